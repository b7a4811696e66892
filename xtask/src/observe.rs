//! The apps watched from outside: as an ordinary user, and by strace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{Outcome, build, cargo, must, output, release_dir};

/// Crates whose unit tests need nothing of the machine.
const PLAIN: [&str; 7] = ["config", "ring", "wire", "eal", "mempool", "port", "port-soft"];

/// Crates all of whose tests need nothing of the machine, those that drive the device model among them.
const MODELLED: [&str; 3] = ["mlx5-kernel", "mlx5-model", "pmd-mlx"];

/// The test program that a message of cargo tells of, if it is one of those.
fn test_program(message: &serde_json::Value) -> Option<PathBuf> {
    if message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.file_name()?.to_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let wanted = match kind {
        "lib" => PLAIN.contains(&folder) || MODELLED.contains(&folder),
        "test" => MODELLED.contains(&folder),
        _ => false,
    };
    wanted.then(|| message["executable"].as_str().map(PathBuf::from))?
}

/// A folder that any user can read, removed with all in it.
struct Open(PathBuf);

impl Open {
    fn make() -> Outcome<Self> {
        let path = std::env::temp_dir().join(format!("pollux-open-{}", std::process::id()));
        let made = Self(path);
        must(Command::new("mkdir").args(["-m", "755"]).arg(&made.0))?;
        Ok(made)
    }

    fn copy(&self, program: &Path) -> Outcome<PathBuf> {
        let to = self.0.join(program.file_name().unwrap_or_default());
        fs::copy(program, &to).map_err(|why| format!("cannot copy {}: {why}", program.display()))?;
        Ok(to)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The unit tests and the main job as a user with no rights, no groups and no huge pages to be had.
pub(crate) fn unprivileged() -> Outcome {
    if output(Command::new("id").arg("-u"))?.trim() != "0" {
        return Err("this task becomes another user: it needs root".into());
    }
    build(&["l2fwd", "mlx5-run"])?;
    // All of them: packages alone would be built with other features, and anew.
    let messages = output(&mut cargo(&["test", "--workspace", "--no-run", "--message-format=json"]))?;
    let open = Open::make()?;
    let tests = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| test_program(&message));
    let mut count = 0;
    for test in tests {
        must(as_nobody(&open.copy(&test)?).args(["--test-threads=2", "--quiet"]).current_dir(&open.0))?;
        count += 1;
    }
    let expected = PLAIN.len() + MODELLED.len();
    if count < expected {
        return Err(format!("{count} test programs were built, {expected} or more were expected"));
    }
    let l2fwd = open.copy(&release_dir().join("l2fwd"))?;
    let report = output(as_nobody(&l2fwd).args(["--", "--duration", "1", "--json"]))?;
    let report: serde_json::Value = serde_json::from_str(report.lines().last().unwrap_or_default())
        .map_err(|why| format!("l2fwd gave no report: {why}"))?;
    let moved: u64 =
        report["ports"].as_array().into_iter().flatten().filter_map(|port| port["tx_packets"].as_u64()).sum();
    if moved == 0 {
        return Err(format!("l2fwd moved nothing: {report}"));
    }
    let mlx5_run = open.copy(&release_dir().join("mlx5-run"))?;
    open.copy(&release_dir().join("libpollux_mlx5_run.so"))?;
    let described = output(as_nobody(&mlx5_run).args(["--", "ibv_devinfo"]))?;
    if !described.contains("PORT_ACTIVE") {
        return Err(format!("ibv_devinfo on mlx5-run finds no port that is up: {described}"));
    }
    eprintln!(
        "xtask: as nobody: {count} test programs passed, l2fwd moved {moved} packets in a second, ibv_devinfo found mlx5_0"
    );
    Ok(())
}

fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--inh-caps=-all"])
        .arg(program);
    command.env_remove("POLLUX_REQUIRE").env("HOME", "/nonexistent");
    command
}

/// Seconds of each run, and how much at both ends is set-up and report.
const RUN: f64 = 2.0;
const EDGE: f64 = 0.6;

/// No system call on an `lcore-*` thread between start and stop, on null ports, on ring ports, on the device model; nor while it pauses
/// because nothing comes.
pub(crate) fn quiet() -> Outcome {
    build(&["l2fwd"])?;
    let open = Open::make()?;
    for (what, devices, options) in [
        ("null ports", ["net_null0,size=64", "net_null1,size=64"], &[][..]),
        ("ring ports", ["net_ring0", "net_ring1"], &["--prime", "8"][..]),
        ("model ports", ["mlx5_model0,wire=source:64", "mlx5_model1,wire=source:64"], &[][..]),
        ("idle model ports", ["mlx5_model0,wire=null", "mlx5_model1,wire=null"], &["--idle", "pause"][..]),
    ] {
        let traces = open.0.join(what.replace(' ', "-"));
        fs::create_dir(&traces).map_err(|why| format!("cannot write {}: {why}", traces.display()))?;
        let mut command = Command::new("strace");
        command.args(["-ff", "-ttt", "-o"]).arg(traces.join("t")).arg(release_dir().join("l2fwd"));
        command.args(["-l", "0,1", "--vdev", devices[0], "--vdev", devices[1], "--", "-q", "1", "-T", "0"]);
        command
            .args(["--duration", &RUN.to_string()])
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        must(&mut command)?;
        let mut lcores = 0;
        for entry in
            fs::read_dir(&traces).map_err(|why| format!("cannot read {}: {why}", traces.display()))?.flatten()
        {
            let text =
                fs::read_to_string(entry.path()).map_err(|why| format!("cannot read a trace: {why}"))?;
            if text.contains("\"lcore-") {
                lcores += 1;
                silent_between(what, &text)?;
            }
        }
        if lcores == 0 {
            return Err(format!("{what}: no thread called itself lcore-N"));
        }
        eprintln!("xtask: {what}: {lcores} lcore threads, no system call while they forwarded");
    }
    Ok(())
}

/// A thread's trace has a gap as long as the run, less its edges.
fn silent_between(what: &str, trace: &str) -> Outcome {
    let times: Vec<f64> =
        trace.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    if longest < RUN - EDGE {
        let last = trace.lines().rev().take(5).collect::<Vec<_>>().join(" | ");
        return Err(format!(
            "{what}: an lcore was never silent for more than {longest:.2} s; its last calls: {last}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_in_the_middle_is_found() {
        assert!(silent_between("t", "1.0 mmap() = 0\n1.1 mmap() = 0\n2.9 munmap() = 0\n").is_ok());
        assert!(silent_between("t", "1.0 mmap() = 0\n2.0 write() = 0\n2.9 munmap() = 0\n").is_err());
    }
}
