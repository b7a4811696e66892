//! The peer: a Debian sid root with DPDK and a compiler, cached outside the tree.

pub(super) mod native;
pub(super) mod router;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian;
use crate::run::{Outcome, must, output, root};

/// Huge pages of 2 MiB that both sides find reserved; raised to this for the run, as each side needs some.
const HUGE_PAGES: u32 = 1024;
const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";

/// The peer's programs.
const SOURCES: [&str; 5] = [
    "benches/peer/figures.c",
    "benches/peer/mlx5.c",
    "benches/peer/rdma.c",
    "benches/peer/cycles.h",
    "mlx5-run/include/mlx5_run.h",
];
/// How each is compiled: with Debian's packages, as their pkg-config says.
const COMPILED: [&str; 3] = [
    "-DALLOW_EXPERIMENTAL_API $(pkgconf --cflags libdpdk) figures.c -o figures $(pkgconf --libs libdpdk)",
    "-DALLOW_EXPERIMENTAL_API $(pkgconf --cflags libdpdk) mlx5.c -o mlx5 $(pkgconf --libs libdpdk)",
    "rdma.c -o rdma $(pkgconf --libs libibverbs)",
];

/// Copies a file into a folder.
fn take(file: &Path, folder: &Path) -> Outcome {
    let name = file.file_name().ok_or_else(|| format!("{} is no file", file.display()))?;
    std::fs::copy(file, folder.join(name))
        .map(|_| ())
        .map_err(|why| format!("cannot copy {}: {why}", file.display()))
}

/// Compiles a program of the peer's in `root`: everything behind gcc's usual options.
fn compile(root: &Path, program: &str) -> Outcome {
    let line = format!("cd /pollux && gcc -O3 -Wall -Wextra -Werror {program}");
    must(Command::new("chroot").arg(root).args(["sh", "-c", &line]))
}

pub(crate) struct Root {
    path: PathBuf,
    /// Name and version of the package that is measured.
    pub(crate) version: String,
    huge_pages_before: Option<String>,
}

impl Root {
    /// Makes the root if the cache has none, compiles the peer's half of the figures, reserves huge pages.
    ///
    /// # Errors
    /// One line when there is no privilege, no `mmdebstrap`, no package registry or no huge page.
    pub(crate) fn prepare() -> Outcome<Self> {
        debian::needs_root("bench peers")?;
        let path = debian::newest_dpdk()?;
        let inside = path.join("pollux");
        std::fs::create_dir_all(&inside)
            .map_err(|why| format!("cannot write {}: {why}", inside.display()))?;
        for source in SOURCES {
            take(&root().join(source), &inside)?;
        }
        for program in COMPILED {
            compile(&path, program)?;
        }
        let version = output(Command::new("chroot").arg(&path).args([
            "dpkg-query",
            "--show",
            "--showformat=dpdk ${Version}",
            "dpdk",
        ]))?;
        let mut ready = Self { path, version, huge_pages_before: None };
        ready.reserve_huge_pages()?;
        Ok(ready)
    }

    fn reserve_huge_pages(&mut self) -> Outcome {
        let refused =
            |why: std::io::Error| format!("cannot reserve {HUGE_PAGES} huge pages by {NR_HUGEPAGES}: {why}");
        let before = std::fs::read_to_string(NR_HUGEPAGES).map_err(refused)?;
        if before.trim().parse::<u32>().unwrap_or(0) < HUGE_PAGES {
            std::fs::write(NR_HUGEPAGES, HUGE_PAGES.to_string()).map_err(refused)?;
            self.huge_pages_before = Some(before);
        }
        Ok(())
    }

    /// The package's version alone.
    fn package_version(&self) -> &str {
        self.version.rsplit(' ').next().unwrap_or_default()
    }

    /// A command inside the root, in a mount namespace of its own.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", MOUNT_AND_GO, "sh"]).arg(&self.path).arg(program).args(args);
        command
    }

    /// Takes a program of ours into the root.
    pub(crate) fn take(&self, file: &Path) -> Outcome {
        take(file, &self.path.join("pollux"))
    }

    /// The root's folder as seen from outside.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The peer's figure server.
    pub(crate) fn figures(&self) -> Command {
        self.command("/pollux/figures", &[EAL, &["-l", "0,1", "--vdev", "net_null0"]].concat())
    }
}

/// What every run of the peer is told: no PCI scan (the machine's own NIC is none of its business), no files left.
pub(crate) const EAL: &[&str] = &["--no-pci", "--no-telemetry", "--in-memory"];

const MOUNT_AND_GO: &str = "top=$1; shift; for d in dev proc sys; do mount --rbind /$d $top/$d || exit 1; done; \
    mkdir -p $top/hugepages && mount -t hugetlbfs none $top/hugepages || exit 1; exec chroot $top \"$@\"";

impl Drop for Root {
    fn drop(&mut self) {
        if let Some(before) = &self.huge_pages_before {
            drop(std::fs::write(NR_HUGEPAGES, before));
        }
    }
}
