//! The guest as tests see it: functions of the model on its bus, the kernel's drivers for them, a line to the host.
#![expect(unsafe_code, reason = "a serial line is made raw by termios")]

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pollux_tests::netns::must;
use pollux_tests::patience::patient;
use pollux_tests::require::{Need, require};

/// The functions, as the host puts them behind root ports 1 and 2.
pub(crate) const FUNCTIONS: [&str; 2] = ["0000:01:00.0", "0000:02:00.0"];
/// Their addresses, as `mlx5-device` gives them.
pub(crate) const MACS: [&str; 2] = ["0c:42:a1:00:00:01", "0c:42:a1:00:00:02"];

/// Whether this is the guest.
pub(crate) fn here() -> bool {
    require(&[Need::Guest])
}

/// Runs a command that has to succeed; what it wrote on standard output.
pub(crate) fn run(words: &str) -> String {
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    let done = must(command.args(words));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display())).trim().to_owned()
}

pub(crate) fn write(path: &str, text: &str) {
    fs::write(path, text).unwrap_or_else(|why| panic!("{path}: {why}"));
}

/// Waits until `ready` answers, for as long as `limit`, on a slow machine more.
pub(crate) fn wait<T>(what: &str, limit: Duration, mut ready: impl FnMut() -> Option<T>) -> T {
    let limit = patient(limit);
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ready() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what} did not come within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The kernel's drivers, loaded; unloaded at the end.
pub(crate) struct Drivers {
    modules: &'static [&'static str],
}

impl Drivers {
    /// mlx5_core alone: network interfaces.
    pub(crate) fn net() -> Self {
        Self::load(&["mlx5_core"])
    }

    /// mlx5_ib too: RDMA devices.
    pub(crate) fn rdma() -> Self {
        Self::load(&["mlx5_core", "ib_uverbs", "mlx5_ib"])
    }

    fn load(modules: &'static [&'static str]) -> Self {
        for module in modules {
            run(&format!("modprobe {module}"));
        }
        for function in FUNCTIONS {
            wait("an interface", Duration::from_secs(10), || netdev(function));
        }
        Self { modules }
    }

    /// Unloads them, which has to work.
    pub(crate) fn unload(mut self) {
        for module in std::mem::take(&mut self.modules).iter().rev() {
            run(&format!("rmmod {module}"));
        }
    }
}

impl Drop for Drivers {
    fn drop(&mut self) {
        for module in self.modules.iter().rev() {
            drop(Command::new("rmmod").arg(module).output());
        }
    }
}

/// The network interface of a function.
pub(crate) fn netdev(function: &str) -> Option<String> {
    let folder = format!("/sys/bus/pci/devices/{function}/net");
    let entry = fs::read_dir(folder).ok()?.flatten().next()?;
    Some(entry.file_name().to_string_lossy().into_owned())
}

/// The RDMA device of a function.
pub(crate) fn ibdev(function: &str) -> String {
    let folder = format!("/sys/bus/pci/devices/{function}/infiniband");
    wait("an RDMA device", Duration::from_secs(20), || {
        let entry = fs::read_dir(&folder).ok()?.flatten().next()?;
        Some(entry.file_name().to_string_lossy().into_owned())
    })
}

/// Both functions as two hosts: the first here, the second in a namespace, so that what they say to each other takes the wire.
pub(crate) struct Pair {
    /// Interface of the first function.
    pub(crate) near: String,
    /// Interface of the second.
    pub(crate) far: String,
    pub(crate) there: pollux_tests::netns::Namespace,
    _drivers: Drivers,
}

pub(crate) const NEAR: &str = "10.0.0.1";
pub(crate) const FAR: &str = "10.0.0.2";

impl Pair {
    pub(crate) fn up() -> Self {
        Self::on(Drivers::net())
    }

    pub(crate) fn on(drivers: Drivers) -> Self {
        let [near, far] = FUNCTIONS.map(|function| netdev(function).expect("an interface"));
        let there = pollux_tests::netns::Namespace::new("far");
        run(&format!("ip link set {far} netns {}", there.name()));
        run(&format!("ip address add {NEAR}/24 dev {near}"));
        there.ip(&["address", "add", &format!("{FAR}/24"), "dev", &far]);
        let pair = Self { near, far, there, _drivers: drivers };
        pair.set("up");
        pair.wait_for_carrier();
        pair
    }

    /// `ip link set` on both.
    pub(crate) fn set(&self, what: &str) {
        run(&format!("ip link set {} {what}", self.near));
        let mut words = vec!["link", "set", &self.far];
        words.extend(what.split_whitespace());
        self.there.ip(&words);
    }

    pub(crate) fn wait_for_carrier(&self) {
        wait("a carrier", Duration::from_secs(10), || {
            (read(format!("/sys/class/net/{}/carrier", self.near)) == "1").then_some(())
        });
        wait("a carrier there", Duration::from_secs(10), || {
            let said = must(&mut self.there.command("ip", &["link", "show", &self.far]));
            String::from_utf8_lossy(&said.stdout).contains("LOWER_UP").then_some(())
        });
    }

    /// Pings of which every one has to be answered.
    pub(crate) fn ping(&self, count: u32, more: &str) {
        // The first may wait for the neighbour's answer.
        let said = run(&format!("ping -q -c {count} -i 0.01 -W 5 {more}"));
        assert!(
            said.contains(&format!("{count} packets transmitted, {count} received, 0% packet loss")),
            "{said}"
        );
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // A physical interface goes back to the first namespace by itself, but not at once.
        drop(
            Command::new("ip")
                .args(["-n", self.there.name(), "link", "set", &self.far, "netns", "1"])
                .output(),
        );
    }
}

/// A line to the host: see `xtask/src/vm/bed.rs`.
pub(crate) fn ask(request: &str) -> String {
    let path = "/dev/ttyS2";
    let mut line =
        OpenOptions::new().read(true).write(true).open(path).unwrap_or_else(|why| panic!("{path}: {why}"));
    // SAFETY: all-zero bytes are a valid termios, which tcgetattr fills; the descriptor is open.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(line.as_raw_fd(), &raw mut settings), 0);
        libc::cfmakeraw(&raw mut settings);
        assert_eq!(libc::tcsetattr(line.as_raw_fd(), libc::TCSANOW, &raw const settings), 0);
    }
    line.write_all(format!("{request}\n").as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"));
    let mut answer = String::new();
    BufReader::new(line).read_line(&mut answer).unwrap_or_else(|why| panic!("{path}: {why}"));
    let answer = answer.trim();
    answer.strip_prefix("ok").unwrap_or_else(|| panic!("{request}: {answer}")).trim().to_owned()
}

/// Everything in the kernel's log so far.
pub(crate) fn log() -> String {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg")
        .unwrap_or_else(|why| panic!("/dev/kmsg: {why}"));
    let mut all = String::new();
    let mut record = [0; 8192];
    while let Ok(bytes) = file.read(&mut record) {
        let line = String::from_utf8_lossy(&record[..bytes]);
        all.push_str(line.split_once(';').map_or("", |(_, text)| text.lines().next().unwrap_or_default()));
        all.push('\n');
    }
    all
}

/// A counter of `ethtool -S`.
pub(crate) fn counter(statistics: &str, name: &str) -> u64 {
    statistics
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": ")?.parse().ok())
        .unwrap_or_else(|| panic!("no counter {name} in {statistics}"))
}

/// Path of a program of ours.
pub(crate) fn ours(name: &str) -> PathBuf {
    Path::new("/ours").join(name)
}

/// Whether records are written instead of held against.
pub(crate) fn recording() -> bool {
    std::env::var_os("POLLUX_RECORD").is_some()
}

/// Sends a record to the host.
pub(crate) fn keep(name: &str, text: &str) {
    for line in text.lines() {
        ask(&format!("record {name} {line}"));
    }
}

/// The kernel that the records are of.
pub(crate) fn is_recorded_kernel() -> bool {
    read("/proc/sys/kernel/osrelease").starts_with("6.12.")
}
