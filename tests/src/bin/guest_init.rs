//! The first process of a test guest: mounts what programs expect, runs the jobs, tells the host, powers off.
//!
//! It reads `/jobs.json`, a list of `{"name", "environment": {NAME: VALUE..}, "commands": [[NAME=VALUE.., program,
//! arguments..]..], "seconds", "abrupt", "functions"}`, and runs the job that `POLLUX_JOB` on the kernel's command line names: its
//! commands in order until one fails. To the second serial port go, a line
//! each, `begin NAME`, what the programs print, and `end NAME STATUS` (`ok`, `failed`, `timeout`); then the kernel's log, and
//! `done`. Whatever happens, the guest powers off: a host that sees no `done` knows that it died. The third serial port is
//! for tests that ask the host for something.
#![expect(unsafe_code, reason = "mount(2) and reboot(2)")]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the host listens.
const TO_HOST: &str = "/dev/ttyS1";

fn main() {
    let abrupt = run().unwrap_or_else(|why| {
        eprintln!("guest: {why}");
        false
    });
    if abrupt {
        // Past the drivers. Source: Linux `Documentation/admin-guide/sysrq.rst`.
        drop(fs::write("/proc/sysrq-trigger", "b"));
    }
    power_off();
}

/// Whether the machine is to end without its drivers' leave.
fn run() -> Result<bool, String> {
    for (kind, path) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/dev/shm"),
        ("tmpfs", "/tmp"),
        ("tmpfs", "/run"),
        ("debugfs", "/sys/kernel/debug"),
        ("devpts", "/dev/pts"),
        ("hugetlbfs", "/dev/hugepages"),
    ] {
        mount(kind, path)?;
    }
    // The archive says nothing of the top; programs that load plug-ins look whether others may write there.
    fs::set_permissions("/", fs::Permissions::from_mode(0o755)).map_err(|why| format!("/: {why}"))?;
    let mut host = OpenOptions::new()
        .write(true)
        .open(TO_HOST)
        .map_err(|why| format!("cannot open {TO_HOST}: {why}"))?;
    let jobs = fs::read("/jobs.json").map_err(|why| format!("cannot read /jobs.json: {why}"))?;
    let jobs: serde_json::Value =
        serde_json::from_slice(&jobs).map_err(|why| format!("/jobs.json is not in order: {why}"))?;
    // The kernel gives what it does not know itself to its first process.
    let mut abrupt = false;
    let wanted = std::env::var("POLLUX_JOB").unwrap_or_default();
    for job in jobs.as_array().into_iter().flatten().filter(|job| job["name"] == wanted.as_str()) {
        let name = job["name"].as_str().unwrap_or("nameless");
        abrupt |= job["abrupt"] == true;
        let limit = Duration::from_secs(job["seconds"].as_u64().unwrap_or(60));
        let said = |why: io::Error| format!("cannot write to {TO_HOST}: {why}");
        // What the kernel says before is of the machine, not of the job.
        drop(fs::write("/dev/kmsg", "<6>pollux: the job begins\n"));
        writeln!(host, "begin {name}").map_err(said)?;
        let status = commands(job, Instant::now() + limit, &host);
        writeln!(host, "\nend {name} {status}").map_err(said)?;
    }
    writeln!(host, "begin dmesg").ok();
    kernel_log(&mut host);
    writeln!(host, "\nend dmesg ok\ndone").ok();
    Ok(abrupt)
}

/// Runs the commands of a job in its environment until one fails or the time is over.
fn commands(job: &serde_json::Value, deadline: Instant, host: &File) -> &'static str {
    let of_job = job["environment"].as_object().into_iter().flatten();
    let of_job: Vec<_> = of_job.filter_map(|(name, value)| Some((name, value.as_str()?))).collect();
    for words in job["commands"].as_array().into_iter().flatten() {
        let words: Vec<&str> =
            words.as_array().into_iter().flatten().filter_map(|word| word.as_str()).collect();
        // Words with '=' in front of the program set its environment, as in a shell.
        let set = words.iter().take_while(|word| word.contains('=')).count();
        let (environment, words) = words.split_at(set);
        let Some((program, arguments)) = words.split_first() else { continue };
        let (Ok(out), Ok(err)) = (host.try_clone(), host.try_clone()) else { return "failed" };
        let child = Command::new(program)
            .args(arguments)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs(of_job.iter().copied())
            .envs(environment.iter().filter_map(|word| word.split_once('=')))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(why) => {
                drop(writeln!(&mut &*host, "cannot start {program}: {why}"));
                return "failed";
            }
        };
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => break,
                Ok(Some(status)) => {
                    drop(writeln!(&mut &*host, "{program} ended with {status}"));
                    return "failed";
                }
                Ok(None) if Instant::now() > deadline => {
                    drop(child.kill());
                    drop(child.wait());
                    return "timeout";
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(_) => return "failed",
            }
        }
    }
    "ok"
}

/// Everything that the kernel has logged so far.
fn kernel_log(host: &mut File) {
    use std::os::unix::fs::OpenOptionsExt;
    let Ok(mut log) = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg") else {
        return;
    };
    let mut record = [0; 8192];
    // One read gives one record; `EPIPE` says that older ones were overwritten and reading goes on behind them.
    loop {
        match log.read(&mut record) {
            Ok(0) => return,
            Ok(bytes) => {
                let line = String::from_utf8_lossy(&record[..bytes]);
                let Some((head, text)) = line.split_once(';') else { continue };
                let level = head.split(',').next().and_then(|word| word.parse::<u32>().ok()).unwrap_or(6) % 8;
                drop(writeln!(host, "<{level}> {}", text.lines().next().unwrap_or_default()));
            }
            Err(why) if why.raw_os_error() == Some(libc::EPIPE) => {}
            Err(_) => return,
        }
    }
}

fn mount(kind: &str, path: &str) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|why| format!("cannot make {path}: {why}"))?;
    let (Ok(kind_c), Ok(path_c)) = (CString::new(kind), CString::new(path)) else {
        return Err(format!("{path} has a zero byte"));
    };
    // SAFETY: the strings end in zero and outlive the call; no data is passed.
    let answer =
        unsafe { libc::mount(kind_c.as_ptr(), path_c.as_ptr(), kind_c.as_ptr(), 0, std::ptr::null()) };
    match answer {
        0 => Ok(()),
        _ => Err(format!("cannot mount {kind} on {path}: {}", io::Error::last_os_error())),
    }
}

fn power_off() -> ! {
    // SAFETY: flushes and ends the machine; nothing of this process matters any more.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    // Not the first process of a guest: reboot was refused.
    eprintln!("guest: this program is the first process of a test guest; it does nothing elsewhere");
    std::process::exit(1)
}
