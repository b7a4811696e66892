//! The root that QEMU and the guest's tools come from.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::{self, Recipe};
use crate::run::{Outcome, must, output};

const PACKAGES: &[&str] = &[
    "kmod",
    "xz-utils",
    "zstd",
    "iproute2",
    "iputils-ping",
    "ethtool",
    "strace",
    "ibverbs-utils",
    "ibverbs-providers",
    "perftest",
    "rdmacm-utils",
];
/// The guest's release.
pub(super) const RELEASE: &str = "trixie";
/// The release's own QEMU cannot be a client of a device in another process (vfio-user).
const FROM_BACKPORTS: &str = "qemu-system-x86";

/// A release that has perftest in an older version, whose programs the root has in a folder of their own; its libraries are the
/// guest's.
const OLDER_RELEASE: &str = "bookworm";
const OLDER: &str = "/usr/older";

/// QEMU, as the root has it.
pub(super) const QEMU: &str = "/usr/bin/qemu-system-x86_64";

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
    "/usr/bin/ibv_rc_pingpong",
    "/usr/bin/ibv_uc_pingpong",
    "/usr/bin/ibv_ud_pingpong",
    "/usr/bin/ibv_srq_pingpong",
    "/usr/bin/ibv_xsrq_pingpong",
    "/usr/bin/ib_send_bw",
    "/usr/bin/ib_send_lat",
    "/usr/bin/ib_write_bw",
    "/usr/bin/ib_write_lat",
    "/usr/bin/ib_read_bw",
    "/usr/bin/ib_read_lat",
    "/usr/bin/ib_atomic_bw",
    "/usr/bin/ib_atomic_lat",
    "/usr/bin/raw_ethernet_bw",
    "/usr/bin/raw_ethernet_lat",
    "/usr/bin/rping",
    "/usr/bin/rstream",
    "/usr/bin/riostream",
    "/usr/bin/ucmatose",
    "/usr/bin/udaddy",
    "/usr/bin/cmtime",
    "/usr/bin/rdma_server",
    "/usr/bin/rdma_client",
    "/usr/older/usr/bin/ib_send_bw",
    "/usr/older/usr/bin/ib_send_lat",
    "/usr/older/usr/bin/ib_write_bw",
    "/usr/older/usr/bin/ib_write_lat",
    "/usr/older/usr/bin/ib_read_bw",
    "/usr/older/usr/bin/ib_atomic_bw",
    "/usr/bin/setpriv",
    "/usr/bin/prlimit",
    // What pthread_cancel loads.
    "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
];
/// Folders of libraries that the tools load by name.
const PLUGINS: &[&str] = &["/usr/lib/x86_64-linux-gnu/libibverbs"];

/// What scripts are written with.
const SHELL: &[&str] = &[
    "dash",
    "coreutils",
    "findutils",
    "grep",
    "sed",
    "mawk",
    "mount",
    "util-linux",
    "procps",
    "kmod",
    "iproute2",
    "iputils-ping",
    "ethtool",
    "ibverbs-utils",
    "ibverbs-providers",
];
/// Files that scripts of packages made, which no package lists.
const WITHOUT_PACKAGE: &[&str] = &[
    "/usr/bin/sh",
    "/usr/bin/awk",
    "/etc/alternatives/awk",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ld.so.cache",
];
/// Packages that others depend on for what a guest never does.
const UNWANTED_PACKAGES: &[&str] =
    &["debconf", "dpkg", "perl-base", "init-system-helpers", "tar", "systemd", "udev"];
/// Folders of what nobody reads in a guest; test suites stand among documentation.
const UNREAD: &[&str] = &[
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/locale",
    "/usr/share/info",
    "/usr/share/lintian",
    "/usr/share/i18n",
    "/usr/lib/x86_64-linux-gnu/gconv",
];

pub(crate) struct Guest {
    path: PathBuf,
}

impl Guest {
    /// Takes the root from the cache, or makes it.
    pub(crate) fn prepare() -> Outcome<Self> {
        let guest = Self { path: debian::cache_dir()?.join(format!("vm-{RELEASE}")) };
        let backports = format!("{RELEASE}-backports");
        if !guest.path.exists() {
            debian::bootstrap(
                &guest.path,
                &Recipe { suites: &[RELEASE, &backports], packages: &PACKAGES.join(",") },
            )
            .map_err(|why| {
                format!(
                    "cannot make the guest's Debian root: {why}; it takes mmdebstrap and a Debian archive"
                )
            })?;
        } else if TOOLS.iter().any(|tool| !tool.starts_with(OLDER) && !guest.has(tool)) {
            // Made when jobs used fewer.
            guest.install(RELEASE, PACKAGES)?;
        }
        if !guest.has(OLDER) {
            guest.unpack_older()?;
        }
        if !guest.has(QEMU) {
            guest.install(&backports, &[FROM_BACKPORTS])?;
        }
        let kernels = guest.path.join("kernels");
        std::fs::create_dir_all(&kernels)
            .map_err(|why| format!("cannot make {}: {why}", kernels.display()))?;
        Ok(guest)
    }

    /// Asks the archive what it has today.
    pub(crate) fn update(&self) -> Outcome {
        must(self.command("apt-get").args(["update", "-qq", "-o", "APT::Update::Error-Mode=any"])).map_err(
            |why| format!("the Debian archive of {}/etc/apt does not answer: {why}", self.path.display()),
        )
    }

    fn install(&self, suite: &str, packages: &[&str]) -> Outcome {
        self.update()?;
        must(
            self.command("apt-get")
                .args(["install", "-y", "-qq", "--no-install-recommends", "-t", suite])
                .args(packages),
        )
        .map_err(|why| format!("cannot install {} for the guest: {why}", packages.join(" ")))
    }

    /// Installs packages that jobs name, where they are not yet, and those that scripts are written with.
    pub(crate) fn provide(&self, packages: &[&str]) -> Outcome {
        let all: Vec<&str> = SHELL.iter().chain(packages).copied().collect();
        let installed = self
            .command("dpkg-query")
            .args(["-W", "-f", "${db:Status-Status}\n"])
            .args(&all)
            .output()
            .map_err(|why| format!("cannot start dpkg-query: {why}"))?;
        let said = String::from_utf8_lossy(&installed.stdout).into_owned();
        let complete = installed.status.success() && said.lines().all(|line| line == "installed");
        if complete { Ok(()) } else { self.install(RELEASE, &all) }
    }

    /// The files of packages, of all that they depend on, and of the shell; without what nobody runs.
    pub(crate) fn package_files(&self, packages: &[&str]) -> Outcome<Vec<String>> {
        let mut depends = self.command("apt-cache");
        depends.args(["depends", "--recurse", "--installed", "--no-recommends", "--no-suggests"]);
        depends.args(["--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"]);
        let said = output(depends.args(SHELL).args(packages))?;
        let mut names: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with(|first: char| first.is_ascii_alphanumeric()))
            .filter(|name| !UNWANTED_PACKAGES.contains(name))
            // Headers and archives, unless a job means them.
            .filter(|name| !name.ends_with("-dev") || packages.contains(name))
            .collect();
        names.sort_unstable();
        names.dedup();
        // Names of other architectures, and virtual ones, are none that are installed.
        let listed = self
            .command("dpkg-query")
            .arg("--listfiles")
            .args(&names)
            .output()
            .map_err(|why| format!("cannot start dpkg-query: {why}"))?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let wanted = |name: &&str| {
            let path = self.path.join(name.trim_start_matches('/'));
            let unread = UNREAD.iter().any(|folder| name.starts_with(folder)) && !name.contains("/tests/");
            // Folders come with what is in them.
            let kind = path.symlink_metadata().map(|about| about.file_type());
            name.starts_with('/') && !unread && kind.is_ok_and(|kind| !kind.is_dir())
        };
        let files = listed.lines().chain(WITHOUT_PACKAGE.iter().copied());
        Ok(files.filter(wanted).map(str::to_owned).collect())
    }

    /// Whether the root has that file or folder.
    fn has(&self, path: &str) -> bool {
        self.path.join(path.trim_start_matches('/')).exists()
    }

    /// Downloads perftest of the older release and unpacks it.
    fn unpack_older(&self) -> Outcome {
        self.knows(OLDER_RELEASE)?;
        self.update()?;
        let script = "set -e; umask 022; top=$1; rm -rf $top.half; mkdir $top.half; cd $top.half; \
                      apt-get download -qq $2; dpkg -x *.deb .; rm *.deb; mv $top.half $top";
        let package = format!("perftest/{OLDER_RELEASE}");
        must(self.command("sh").args(["-c", script, "sh", OLDER, &package]))
            .map_err(|_| format!("cannot download {package} from the Debian archive: is it reachable?"))
    }

    /// Lets apt know the packages of another release, of which none is installed unless its version is named.
    pub(crate) fn knows(&self, release: &str) -> Outcome {
        let apt = self.path.join("etc/apt");
        let list = apt.join(format!("sources.list.d/{release}.list"));
        let pin = apt.join(format!("preferences.d/{release}"));
        let failed = |path: &Path, why| format!("cannot write {}: {why}", path.display());
        let sources = apt.join("sources.list");
        let sources = std::fs::read_to_string(&sources)
            .map_err(|why| format!("cannot read {}: {why}", sources.display()))?;
        let archive = sources.split_whitespace().find(|word| word.contains("://"));
        let archive = archive.ok_or("the guest's root names no Debian archive")?;
        std::fs::write(&pin, format!("Package: *\nPin: release n={release}\nPin-Priority: 1\n"))
            .map_err(|why| failed(&pin, why))?;
        std::fs::write(&list, format!("deb {archive} {release} main\n")).map_err(|why| failed(&list, why))
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
        for folder in PLUGINS {
            let path = self.path.join(folder.trim_start_matches('/'));
            let entries =
                std::fs::read_dir(&path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                wanted.push(format!("{folder}/{name}"));
            }
        }
        let needed = output(self.command("ldd").args(&wanted))?;
        let libraries =
            needed.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
        wanted.extend(libraries.map(str::to_owned));
        // What a link leads to comes along.
        let mut index = 0;
        while let Some(name) = wanted.get(index) {
            index += 1;
            let Ok(target) = std::fs::read_link(self.path.join(name.trim_start_matches('/'))) else {
                continue;
            };
            let folder = Path::new(name).parent().unwrap_or(Path::new("/"));
            let target = folder.join(target).to_string_lossy().into_owned();
            let target = flat(&target);
            if !wanted.contains(&target) {
                wanted.push(target);
            }
        }
        wanted.sort();
        wanted.dedup();
        Ok(wanted)
    }
}

/// An absolute path without `..`.
fn flat(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_are_made_flat() {
        for (path, flat) in
            [("/usr/lib/x/../a.so", "/usr/lib/a.so"), ("/a//b/../../c", "/c"), ("/../a", "/a")]
        {
            assert_eq!(super::flat(path), flat);
        }
    }
}
