//! The guest's file system: an archive that the kernel unpacks into memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::guest::Guest;
use super::job::witness::{self, INSIDE, LIBRARY};
use super::job::{Job, Program};
use super::kernel::Kernel;
use crate::run::Outcome;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const TEXT: u32 = 0o100_644;
const SYMLINK: u32 = 0o120_777;

/// Writes the archive; `jobs` is what the guest's first process reads, `witness` a job whose script and packages it has beside.
pub(crate) fn write(
    path: &Path,
    guest: &Guest,
    kernel: &Kernel,
    programs: &[Program],
    jobs: &[u8],
    witness: Option<&Job>,
) -> Outcome {
    let file = File::create(path).map_err(|why| format!("cannot write {}: {why}", path.display()))?;
    let mut archive =
        Archive { to: BufWriter::new(file), path: path.to_owned(), made: Vec::new(), number: 0 };
    // Debian's merged layout: the short names are links.
    for (link, target) in
        [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")]
    {
        archive.entry(link, SYMLINK, target.as_bytes())?;
    }
    let mut names: BTreeSet<String> = guest.files()?.iter().map(|name| merged(name)).collect();
    if let Some(job) = witness {
        names.extend(guest.package_files(job.packages)?.iter().map(|name| merged(name)));
    }
    for name in names {
        let path = guest.path().join(&name);
        match std::fs::read_link(&path) {
            // A second copy of a plug-in would be a second plug-in.
            Ok(target) => archive.file(&name, SYMLINK, target.as_os_str().as_bytes())?,
            Err(_) => archive.file(&name, PROGRAM, &read(&path)?)?,
        }
    }
    for name in ["modprobe", "rmmod", "lsmod"] {
        archive.file(&format!("usr/sbin/{name}"), SYMLINK, b"../bin/kmod")?;
    }
    for driver in ["rxe", "mlx5"] {
        let name = format!("etc/libibverbs.d/{driver}.driver");
        archive.file(&name, TEXT, &read(&guest.path().join(&name))?)?;
    }
    if let Some(script) = witness.and_then(|job| job.script) {
        archive.file(&format!("{INSIDE}/run.sh"), PROGRAM, &read(script)?)?;
        archive.file(&format!("{INSIDE}/{LIBRARY}"), TEXT, &read(&witness::folder().join(LIBRARY))?)?;
    }
    let modules = kernel.modules(guest, witness.map_or(&[], |job| job.modules))?;
    let indexes = kernel.indexes(guest, &modules)?;
    for (name, bytes) in modules.into_iter().chain(indexes) {
        archive.file(&format!("usr/lib/modules/{}/{name}", kernel.version), TEXT, &bytes)?;
    }
    for program in programs.iter().filter(|program| program.inside.starts_with('/')) {
        archive.file(program.inside.trim_start_matches('/'), PROGRAM, &read(&program.file)?)?;
    }
    archive.file("jobs.json", TEXT, jobs)?;
    archive.end()
}

/// A path without its leading slash, in the merged layout.
fn merged(path: &str) -> String {
    let path = path.trim_start_matches('/');
    let top = path.split('/').next().unwrap_or_default();
    if matches!(top, "bin" | "sbin" | "lib" | "lib64") { format!("usr/{path}") } else { path.to_owned() }
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    std::fs::read(path).map_err(|why| format!("cannot read {}: {why}", path.display()))
}

/// Writer of the "newc" cpio form. Source: torvalds/linux `Documentation/driver-api/early-userspace/buffer-format.rst`.
struct Archive {
    to: BufWriter<File>,
    path: PathBuf,
    /// Directories that are there already.
    made: Vec<String>,
    number: u32,
}

impl Archive {
    /// A file, with the directories above it.
    fn file(&mut self, name: &str, mode: u32, bytes: &[u8]) -> Outcome {
        for (at, _) in name.match_indices('/') {
            let above = &name[..at];
            if !self.made.iter().any(|made| made == above) {
                self.entry(above, DIRECTORY, &[])?;
                self.made.push(above.to_owned());
            }
        }
        self.entry(name, mode, bytes)
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) -> Outcome {
        self.number += 1;
        let (inode, links) = (self.number, 1);
        // Magic, inode, mode, uid, gid, links, time, length, device twice two numbers, length of the name, checksum.
        let head = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{links:08x}{0:08x}{1:08x}{0:08x}{0:08x}{0:08x}{0:08x}{2:08x}{0:08x}",
            0,
            bytes.len(),
            name.len() + 1
        );
        // Head with name, and content, each fill up to a multiple of 4.
        let pad = |length: usize| &[0_u8; 3][..length.wrapping_neg() % 4];
        [head.as_bytes(), name.as_bytes(), &[0], pad(head.len() + name.len() + 1), bytes, pad(bytes.len())]
            .iter()
            .try_for_each(|part| self.to.write_all(part))
            .map_err(|why| format!("cannot write {}: {why}", self.path.display()))
    }

    fn end(mut self) -> Outcome {
        self.entry("TRAILER!!!", 0, &[])?;
        self.to.flush().map_err(|why| format!("cannot write {}: {why}", self.path.display()))
    }
}
