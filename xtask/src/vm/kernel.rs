//! Kernels from Debian's packages, unpacked inside the guest's root.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::guest::{self, Guest};
use crate::run::{Outcome, must, output};

/// Modules that jobs load; what they need comes with them. Those a kernel has built in are no files.
const MODULES: &[&str] = &[
    "ib_uverbs",
    "rdma_rxe",
    "rdma_ucm",
    "mlx5_core",
    "mlx5_ib",
    "veth",
    "dummy",
    "tun",
    "8021q",
    "macvlan",
    "virtio_net",
    "crc32_generic",
];

pub(crate) struct Kernel {
    /// As `uname -r` says it.
    pub(crate) version: String,
    /// What QEMU boots.
    pub(crate) image: PathBuf,
    /// Folder of its modules.
    modules: PathBuf,
}

impl Kernel {
    /// The kernel of the guest's own release.
    pub(crate) fn of_the_release(guest: &Guest) -> Outcome<Self> {
        Self::prepare(guest, &format!("linux-image-amd64/{}", guest::RELEASE))
    }

    /// The newest kernel of the archive: of the release, of its backports, of what becomes the next one.
    pub(crate) fn newest(guest: &Guest) -> Outcome<Self> {
        guest.knows("sid")?;
        if let Err(why) = guest.update() {
            eprintln!("xtask: vm: {why}; taking the newest kernel that was known before");
        }
        let table = output(guest.command("apt-cache").args(["madison", "linux-image-amd64"]))?;
        let mut newest: Option<&str> = None;
        for version in versions(&table) {
            let newer = |than: &str| {
                let compared =
                    guest.command("dpkg").args(["--compare-versions", version, "gt", than]).status();
                compared.map_err(|why| format!("cannot start dpkg: {why}"))
            };
            if newest.map(newer).transpose()?.is_none_or(|status| status.success()) {
                newest = Some(version);
            }
        }
        let newest = newest.ok_or("the archive names no package linux-image-amd64")?;
        Self::prepare(guest, &format!("linux-image-amd64={newest}"))
    }

    /// The kernel that a package stands for, downloaded where the cache lacks it.
    fn prepare(guest: &Guest, package: &str) -> Outcome<Self> {
        let inside = |image: &str| format!("/kernels/{}", image.trim_start_matches("linux-image-"));
        let path = |image: &str| guest.path().join(inside(image).trim_start_matches('/'));
        let mut image = image_of(guest, package)?;
        if !path(&image).exists() {
            // What was known of the archive may be of another day.
            guest.update()?;
            image = image_of(guest, package)?;
            // Since 7.x the image package is empty, and two others have the kernel and the modules.
            let mut packages = vec![image.clone()];
            packages.extend(
                depends(guest, &image)?
                    .split_whitespace()
                    .filter(|word| word.starts_with("linux-binary-") || word.starts_with("linux-modules-"))
                    .map(str::to_owned),
            );
            let script = "set -e; umask 022; top=$1; shift; rm -rf $top.half; mkdir -p $top.half; cd $top.half; \
                          apt-get download -qq \"$@\"; for deb in *.deb; do dpkg -x $deb .; rm $deb; done; \
                          [ -e lib ] || ln -s usr/lib lib; depmod -b . $(ls usr/lib/modules); mv $top.half $top";
            must(guest.command("sh").args(["-c", script, "sh", &inside(&image)]).args(packages))
                .map_err(|_| format!("cannot download {image} from the Debian archive: is it reachable?"))?;
        }
        let (folder, version) = (path(&image), image.trim_start_matches("linux-image-").to_owned());
        let modules = folder.join("usr/lib/modules").join(&version);
        let image = [folder.join(format!("boot/vmlinuz-{version}")), modules.join("vmlinuz")]
            .into_iter()
            .find(|path| path.exists())
            .ok_or_else(|| format!("{} holds no kernel image: remove it", folder.display()))?;
        Ok(Self { version, image, modules })
    }

    /// The wanted modules and all that they need, decompressed, as path below `/usr/lib/modules/VERSION` and content.
    ///
    /// # Errors
    /// Also when the kernel lacks one of `more`, which a job names.
    pub(crate) fn modules(&self, guest: &Guest, more: &[&str]) -> Outcome<Vec<(String, Vec<u8>)>> {
        let list = read(&self.modules.join("modules.dep"))?;
        let mut wanted = BTreeSet::new();
        for line in String::from_utf8_lossy(&list).lines() {
            let Some((module, needs)) = line.split_once(':') else { continue };
            let name = Path::new(module).file_name().map(|name| name.to_string_lossy().replace('-', "_"));
            let name = name.as_deref().and_then(|name| name.split('.').next()).unwrap_or_default().to_owned();
            if MODULES.contains(&name.as_str()) || more.contains(&name.as_str()) {
                wanted.insert(module.to_owned());
                wanted.extend(needs.split_whitespace().map(str::to_owned));
            }
        }
        if let Some(missing) = ["ib_uverbs", "mlx5_core", "mlx5_ib"].iter().chain(more).find(|name| {
            let here = |module: &String| {
                module.replace('-', "_").contains(&format!("/{name}.ko")) && wanted.contains(module)
            };
            !wanted.iter().any(here)
        }) {
            return Err(format!("Linux {} has no module {missing}: its jobs cannot run", self.version));
        }
        let mut files = Vec::new();
        for module in wanted {
            let file = self.modules.join(&module);
            let (program, plain) = match module.rsplit_once('.') {
                Some((plain, "xz")) => ("/usr/bin/xz", plain),
                Some((plain, "zst")) => ("/usr/bin/zstd", plain),
                _ => {
                    files.push((module.clone(), read(&file)?));
                    continue;
                }
            };
            let unpacked = guest
                .outside(program)
                .arg("-dc")
                .arg(&file)
                .output()
                .map_err(|why| format!("cannot start {program}: {why}"))?;
            if !unpacked.status.success() {
                return Err(format!("{program} cannot unpack {}", file.display()));
            }
            files.push((plain.to_owned(), unpacked.stdout));
        }
        Ok(files)
    }

    /// The indexes that `modprobe` reads, made for the modules of [`modules`](Self::modules) alone.
    pub(crate) fn indexes(
        &self,
        guest: &Guest,
        modules: &[(String, Vec<u8>)],
    ) -> Outcome<Vec<(String, Vec<u8>)>> {
        let top = tempfile::Builder::new()
            .prefix("stage-")
            .tempdir_in(guest.path().join("kernels"))
            .map_err(|why| format!("cannot write in {}: {why}", guest.path().display()))?;
        let stage = Path::new("/kernels").join(top.path().file_name().unwrap_or_default());
        let folder = top.path().join("lib/modules").join(&self.version);
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            let parent = path.parent().unwrap_or(&folder);
            std::fs::create_dir_all(parent)
                .and_then(|()| std::fs::write(&path, bytes))
                .map_err(|why| format!("cannot write {}: {why}", path.display()))
        };
        for name in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
            // Not every package has them: then what is built in looks absent to modprobe, which jobs never ask for.
            if self.modules.join(name).exists() {
                write(name, &read(&self.modules.join(name))?)?;
            }
        }
        for (name, bytes) in modules {
            write(name, bytes)?;
        }
        must(guest.command("depmod").arg("-b").arg(&stage).arg(&self.version))?;
        let mut indexes = Vec::new();
        for entry in std::fs::read_dir(&folder)
            .map_err(|why| format!("cannot read {}: {why}", folder.display()))?
            .flatten()
            .filter(|entry| entry.path().is_file())
        {
            indexes.push((entry.file_name().to_string_lossy().into_owned(), read(&entry.path())?));
        }
        Ok(indexes)
    }
}

fn depends(guest: &Guest, package: &str) -> Outcome<String> {
    output(guest.command("apt-cache").args(["depends", package]))
}

/// The package of the kernel that a package without a version in its name stands for.
fn image_of(guest: &Guest, package: &str) -> Outcome<String> {
    depends(guest, package)?
        .split_whitespace()
        .find(|word| word.starts_with("linux-image-") && word.as_bytes()[12].is_ascii_digit())
        .map(str::to_owned)
        .ok_or_else(|| format!("{package} names no kernel image"))
}

/// The versions in what `apt-cache madison` says: name, version, origin a line.
fn versions(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim)
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    std::fs::read(path).map_err(|why| format!("cannot read {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_read() {
        let table = "linux-image-amd64 | 7.3.4-1~bpo13+1 | http://a trixie-backports/main amd64 Packages\n\
                     linux-image-amd64 | 6.12.107-1 | http://a trixie/main amd64 Packages\n";
        assert_eq!(super::versions(table).collect::<Vec<_>>(), ["7.3.4-1~bpo13+1", "6.12.107-1"]);
    }
}
