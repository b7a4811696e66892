//! What a test needs of the machine, and what happens where it is missing.
//!
//! A test that cannot run says why on one line and counts as skipped. `POLLUX_REQUIRE=root,net` names needs that
//! must not be missing: there a skip is a failure, so that CI cannot go green by skipping.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Something a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The rights of the superuser.
    Root,
    /// Namespaces, veth pairs and the tools that make them and look into them.
    Net,
    /// A mount namespace of one's own, which users have where the kernel grants it.
    Mounts,
    /// Huge pages of 2 MiB, or the right to reserve them.
    HugePages,
    /// The guest of `cargo xtask vm`, with what its job plugged into it.
    Guest,
    /// Wireshark's reader of captures.
    Tshark,
    /// Debian's Python with scapy.
    Scapy,
    /// Programs of rdma-core and perftest.
    RdmaCore,
    /// Programs of librdmacm.
    RdmaCm,
    /// DPDK's testpmd, with its mlx5 driver.
    Dpdk,
    /// DPDK's script dpdk-pmdinfo.py, and testpmd to look into.
    PmdInfo,
    /// DPDK's script dpdk-rss-flows.py, which is newer than Debian 12.
    RssFlows,
    /// An RDMA device of the kernel's rdma_rxe.
    Rxe,
    /// An RDMA device of the kernel's mlx5, to itself: it may carry somebody's connection, so it is there only where `POLLUX_REQUIRE`
    /// names it.
    Mlx5,
    /// Chromium and its driver.
    Browser,
    /// Prometheus' own checker of metrics.
    Promtool,
    /// Programs of TCP that know nothing of RDMA.
    TcpPrograms,
}

impl Need {
    /// Its word in `POLLUX_REQUIRE`. Huge pages and mounts come with `root`: who may reserve them has them; tshark and scapy with `net`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Root | Self::HugePages | Self::Mounts => "root",
            Self::Guest => "guest",
            Self::Net | Self::Tshark | Self::Scapy => "net",
            Self::RdmaCore | Self::RdmaCm => "rdma-core",
            Self::Dpdk | Self::PmdInfo => "dpdk",
            Self::RssFlows => "rss-flows",
            Self::Rxe => "rxe",
            Self::Mlx5 => "mlx5",
            Self::Browser => "browser",
            Self::Promtool => "prometheus",
            Self::TcpPrograms => "tcp-programs",
        }
    }

    /// Whether `POLLUX_REQUIRE` names it.
    #[must_use]
    pub fn is_required(self) -> bool {
        let required = std::env::var("POLLUX_REQUIRE").unwrap_or_default();
        required.split(',').any(|named| named.trim() == self.word())
    }

    fn missing(self) -> Option<String> {
        match self {
            Self::Root => (!is_root()).then(|| "needs root".into()),
            Self::Mounts => {
                let mount = ["-r", "-m", "sh", "-c", "mount -t tmpfs none /dev"];
                let may = Command::new("unshare").args(mount).output();
                (!may.is_ok_and(|done| done.status.success()))
                    .then(|| "needs unshare(1) and namespaces of users and mounts".into())
            }
            Self::Net => ["ip", "ping", "tcpdump", "ethtool"]
                .iter()
                .find(|tool| !runs(tool))
                .map(|tool| format!("needs the program {tool}"))
                .or_else(|| (!is_root()).then(|| "needs root to make network namespaces".into())),
            Self::Guest => {
                guest_lacks(Path::new("/")).or_else(|| (!is_root()).then(|| "needs root in its guest".into()))
            }
            Self::Tshark => (!runs("tshark")).then(|| "needs the program tshark".into()),
            Self::Scapy => {
                let has = Command::new(PYTHON).args(["-c", "import scapy.contrib.roce"]).output();
                (!has.is_ok_and(|out| out.status.success())).then(|| "needs Debian's python3-scapy".into())
            }
            Self::RdmaCore => ["ibv_rc_pingpong", "ib_send_bw"]
                .iter()
                .find(|program| !runs(program))
                .map(|program| format!("needs the program {program} (Debian's ibverbs-utils and perftest)")),
            Self::RdmaCm => {
                (!runs("rping")).then(|| "needs the program rping (Debian's rdmacm-utils)".into())
            }
            Self::Dpdk => ["dpdk-testpmd", "stdbuf", "timeout"]
                .iter()
                .find(|program| !runs(program))
                .map(|program| format!("needs the program {program} (Debian's dpdk-dev)")),
            Self::PmdInfo => {
                let has = Command::new(PYTHON).args(["-c", "import elftools"]).output();
                let scripts = ["dpdk-pmdinfo.py", "dpdk-testpmd"];
                let there = scripts.iter().all(|script| dpdk_script(script).is_some());
                (!there || !has.is_ok_and(|out| out.status.success()))
                    .then(|| "needs dpdk-pmdinfo.py (Debian's dpdk, dpdk-dev and python3-pyelftools)".into())
            }
            Self::RssFlows => dpdk_script("dpdk-rss-flows.py")
                .is_none()
                .then(|| format!("needs dpdk-rss-flows.py of DPDK 24.03 or newer, in PATH or {DPDK_ROOT}")),
            Self::Browser => {
                ["chromium", "chromedriver"].iter().find(|program| !runs(program)).map(|program| {
                    format!("needs the program {program} (Debian's chromium and chromium-driver)")
                })
            }
            Self::Promtool => {
                (!runs("promtool")).then(|| "needs the program promtool (Debian's prometheus)".into())
            }
            Self::TcpPrograms => [PYTHON, "iperf3", "redis-server", "redis-benchmark", "curl"]
                .iter()
                .find(|program| !runs(program))
                .map(|program| {
                    format!("needs the program {program} (Debian's python3, iperf3, redis-server and curl)")
                }),
            Self::Rxe => (!has_rdma(Path::new("/"), None)).then(|| "needs a device of rdma_rxe".into()),
            Self::Mlx5 => {
                let there = self.is_required() && has_rdma(Path::new("/"), Some("mlx5_core"));
                (!there).then(|| "needs a device of mlx5 to itself".into())
            }
            Self::HugePages => {
                let reserved = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
                let none = reserved.trim().parse::<u64>().unwrap_or(0) == 0;
                (none && !is_root()).then(|| "needs huge pages, or root to reserve them".into())
            }
        }
    }
}

/// What a machine lacks to be the guest of a job: that job on its kernel's command line and in its list, and the functions that
/// the job plugs in.
fn guest_lacks(root: &Path) -> Option<String> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let line = read("proc/cmdline");
    let name = line.split_whitespace().find_map(|word| word.strip_prefix("POLLUX_JOB="));
    let jobs: serde_json::Value = serde_json::from_str(&read("jobs.json")).unwrap_or_default();
    let job = jobs.as_array().into_iter().flatten().find(|job| name.is_some_and(|name| job["name"] == name));
    let Some(job) = job else { return Some("needs a guest of its own: cargo xtask vm".into()) };
    let wanted = job["functions"].as_u64().unwrap_or(0);
    let functions = std::fs::read_dir(root.join("sys/bus/pci/devices")).into_iter().flatten().flatten();
    let vendor = |path: &Path| std::fs::read_to_string(path.join("vendor")).unwrap_or_default();
    let found = functions.filter(|entry| vendor(&entry.path()).trim() == MELLANOX).count() as u64;
    (found < wanted)
        .then(|| format!("needs {wanted} functions of the device model on its bus, and finds {found}"))
}

/// Whether there is an RDMA device that may be opened, of this driver. One in software has none, but a file that names the interface
/// below it.
fn has_rdma(root: &Path, driver: Option<&str>) -> bool {
    let mut devices =
        std::fs::read_dir(root.join("sys/class/infiniband_verbs")).into_iter().flatten().flatten();
    devices.any(|entry| {
        let name = std::fs::read_to_string(entry.path().join("ibdev")).unwrap_or_default();
        let device = root.join("sys/class/infiniband").join(name.trim());
        let is_its = match driver {
            Some(driver) => {
                std::fs::read_link(device.join("device/driver")).is_ok_and(|link| link.ends_with(driver))
            }
            None => device.join("parent").exists(),
        };
        let file = root.join("dev/infiniband").join(entry.file_name());
        is_its && OpenOptions::new().read(true).write(true).open(file).is_ok()
    })
}

/// A folder with another Debian release, whose DPDK is newer than this machine's.
const DPDK_ROOT: &str = "POLLUX_DPDK_ROOT";

/// A script or program of DPDK's, of this machine or of the release in `POLLUX_DPDK_ROOT`.
#[must_use]
pub fn dpdk_script(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let root = std::env::var_os(DPDK_ROOT).map(|root| Path::new(&root).join("usr/bin"));
    std::env::split_paths(&path).chain(root).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The interpreter that Debian's packages are for.
pub const PYTHON: &str = "/usr/bin/python3";

/// The vendor of mlx5 functions, as sysfs says it. Source: Linux `include/linux/pci_ids.h`, `PCI_VENDOR_ID_MELLANOX`.
const MELLANOX: &str = "0x15b3";

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
}

fn runs(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether a test with these needs can run. Prints the reason when it cannot.
///
/// # Panics
/// When a need is missing that `POLLUX_REQUIRE` names.
#[must_use]
pub fn require(needs: &[Need]) -> bool {
    for need in needs {
        if let Some(why) = need.missing() {
            let word = need.word();
            assert!(!need.is_required(), "POLLUX_REQUIRE names {word}, but the test {why}");
            // Written past the test harness's capture, so that a skip is seen without --nocapture.
            let line = format!("skipped: {why} (POLLUX_REQUIRE={word} makes this a failure)\n");
            drop(std::io::Write::write_all(&mut std::io::stderr().lock(), line.as_bytes()));
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_known_by_its_job_and_its_functions() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder above")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        let lacks = |what: &str| guest_lacks(root.path()).is_some_and(|why| why.contains(what));
        assert!(lacks("cargo xtask vm"), "any machine");
        write("jobs.json", r#"[{"name":"a","functions":2},{"name":"b","functions":0}]"#);
        assert!(lacks("cargo xtask vm"), "a list that lies about");
        write("proc/cmdline", "quiet POLLUX_JOB=c\n");
        assert!(lacks("cargo xtask vm"), "another's guest");
        write("proc/cmdline", "quiet POLLUX_JOB=b\n");
        assert_eq!(guest_lacks(root.path()), None, "a job without functions");
        write("proc/cmdline", "quiet POLLUX_JOB=a\n");
        write("sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086\n");
        write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x15b3\n");
        assert!(lacks("needs 2 functions of the device model on its bus, and finds 1"));
        write("sys/bus/pci/devices/0000:02:00.0/vendor", "0x15b3\n");
        assert_eq!(guest_lacks(root.path()), None);
    }

    #[test]
    fn an_rdma_device_is_known_by_its_driver_and_is_one_that_opens() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder above")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        let found = || [None, Some("mlx5_core")].map(|driver| has_rdma(root.path(), driver));
        assert_eq!(found(), [false, false], "no RDMA at all");
        write("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
        write("sys/class/infiniband/rxe0/parent", "v0\n");
        write("sys/class/infiniband_verbs/abi_version", "6\n");
        assert_eq!(found(), [false, false], "no file to open");
        write("dev/infiniband/uverbs0", "");
        assert_eq!(found(), [true, false]);
        write("sys/class/infiniband_verbs/uverbs1/ibdev", "mlx5_0\n");
        write("sys/class/infiniband/mlx5_0/device/vendor", "0x15b3\n");
        write("dev/infiniband/uverbs1", "");
        let driver = root.path().join("sys/class/infiniband/mlx5_0/device/driver");
        std::os::unix::fs::symlink("../../../bus/pci/drivers/mlx5_core", driver).expect("a link");
        assert_eq!(found(), [true, true]);
    }

    #[test]
    fn what_is_there_is_not_missing() {
        assert!(runs("sh"));
        assert!(!runs("no-such-program-anywhere"));
        assert!(require(&[]));
    }
}
