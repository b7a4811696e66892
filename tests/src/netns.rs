//! Hosts made of network namespaces, joined by veth pairs. Everything is removed on drop.
#![expect(unsafe_code, reason = "setns and raw sockets are system calls without a safe wrapper in std")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace under a name that no other test has.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one, with its loopback up.
    ///
    /// # Panics
    /// When the kernel or `ip` refuses.
    #[must_use]
    pub fn new(role: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("plx-{}-{}-{role}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        must(Command::new("ip").args(["netns", "add", &name]));
        let made = Self { name };
        made.ip(&["link", "set", "lo", "up"]);
        made
    }

    /// Its name under `/run/netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run inside.
    #[must_use]
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]).args(args);
        command
    }

    /// Runs `ip` inside.
    ///
    /// # Panics
    /// When it fails.
    pub fn ip(&self, args: &[&str]) {
        must(Command::new("ip").args(["-n", &self.name]).args(args));
    }

    /// Turns off duplicate address detection, so that an IPv6 address serves at once, and router solicitations, so
    /// that an idle link is silent.
    ///
    /// # Panics
    /// When the setting cannot be written.
    pub fn quiet_ipv6(&self, interface: &str) {
        let base = format!("/proc/sys/net/ipv6/conf/{interface}");
        let script = format!("echo 0 > {base}/accept_dad; echo 0 > {base}/router_solicitations");
        must(&mut self.command("sh", &["-c", &script]));
    }

    /// Runs `work` on a new thread that is inside the namespace.
    ///
    /// # Panics
    /// When the namespace cannot be entered.
    pub fn enter<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> std::thread::JoinHandle<R> {
        let path = format!("/run/netns/{}", self.name);
        std::thread::spawn(move || {
            let namespace = File::open(&path).unwrap_or_else(|why| panic!("{path}: {why}"));
            // SAFETY: the descriptor is open; setns changes only this thread, which ends with `work`.
            let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(entered, 0, "setns {path}: {}", std::io::Error::last_os_error());
            work()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(Command::new("ip").args(["netns", "delete", &self.name]).output());
    }
}

/// Joins two namespaces by a veth pair, both ends up.
///
/// # Panics
/// When the kernel or `ip` refuses.
pub fn join(a: &Namespace, end_a: &str, b: &Namespace, end_b: &str) {
    must(Command::new("ip").args([
        "link",
        "add",
        end_a,
        "netns",
        a.name(),
        "type",
        "veth",
        "peer",
        "name",
        end_b,
        "netns",
        b.name(),
    ]));
    for (namespace, end) in [(a, end_a), (b, end_b)] {
        namespace.quiet_ipv6(end);
        namespace.ip(&["link", "set", end, "up"]);
    }
}

/// Runs a command that has to succeed.
///
/// # Panics
/// When it does not, with what it said.
pub fn must(command: &mut Command) -> Output {
    let done = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    assert!(
        done.status.success(),
        "{command:?} ended with {}: {}{}",
        done.status,
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    done
}
