//! The root that QEMU and the guest's tools come from.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::{self, Recipe};
use crate::run::{Outcome, must, output};

const PACKAGES: &str =
    "kmod,xz-utils,zstd,iproute2,iputils-ping,ethtool,strace,ibverbs-utils,ibverbs-providers,perftest";
/// The release's own QEMU cannot be a client of a device in another process (vfio-user).
const FROM_BACKPORTS: &str = "qemu-system-x86";

/// Programs that jobs use, as the root has them.
const TOOLS: &[&str] = &[
    "/usr/bin/kmod",
    "/usr/bin/ip",
    "/usr/bin/rdma",
    "/usr/bin/ping",
    "/usr/sbin/ethtool",
    "/usr/bin/sleep",
    "/usr/bin/strace",
    "/usr/bin/ibv_devinfo",
    "/usr/bin/raw_ethernet_bw",
];
/// Libraries that the tools load by name.
const PROVIDERS: &str = "/usr/lib/x86_64-linux-gnu/libibverbs";

pub(crate) struct Guest {
    path: PathBuf,
}

impl Guest {
    /// Takes the root from the cache, or makes it.
    pub(crate) fn prepare() -> Outcome<Self> {
        let guest = Self { path: debian::cache_dir()?.join("vm-trixie") };
        if !guest.path.exists() {
            debian::bootstrap(
                &guest.path,
                &Recipe { suites: &["trixie", "trixie-backports"], packages: PACKAGES },
            )?;
        }
        if !guest.path.join("usr/bin/qemu-system-x86_64").exists() {
            must(guest.command("apt-get").args(["update", "-qq"]))?;
            must(guest.command("apt-get").args(["install", "-y", "-qq", "--no-install-recommends"]).args([
                "-t",
                "trixie-backports",
                FROM_BACKPORTS,
            ]))?;
        }
        Ok(guest)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A program of the root, run inside it.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.path).arg(program).env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// A program of the root, run from outside with the root's libraries, so that it sees this machine's files.
    pub(crate) fn outside(&self, program: &str) -> Command {
        let libraries = self.path.join("usr/lib/x86_64-linux-gnu");
        let mut command = Command::new(self.path.join("usr/lib64/ld-linux-x86-64.so.2"));
        command
            .arg("--library-path")
            .arg(format!("{0}:{0}/pulseaudio", libraries.display()))
            .arg(self.path.join(program.trim_start_matches('/')));
        command
    }

    /// The tools and every library they need, as paths of the root.
    pub(crate) fn files(&self) -> Outcome<Vec<String>> {
        let mut wanted: Vec<String> = TOOLS.iter().map(|&tool| tool.to_owned()).collect();
        let providers = self.path.join(PROVIDERS.trim_start_matches('/'));
        for entry in std::fs::read_dir(&providers)
            .map_err(|why| format!("cannot read {}: {why}", providers.display()))?
            .flatten()
        {
            wanted.push(format!("{PROVIDERS}/{}", entry.file_name().to_string_lossy()));
        }
        let needed = output(self.command("ldd").args(&wanted))?;
        let libraries =
            needed.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
        wanted.extend(libraries.map(str::to_owned));
        wanted.sort();
        wanted.dedup();
        Ok(wanted)
    }
}
