//! QEMU, from power-on to power-off.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::guest::Guest;
use super::kernel::Kernel;
use crate::run::Outcome;

/// How a machine ended.
pub(crate) enum Ended {
    /// The guest powered off.
    Off,
    /// Its time was over, and it was ended.
    Overtime(Duration),
}

/// Boots `image` and waits until it is off. The console goes to `console.log`, what the jobs say to `jobs.log`.
pub(crate) fn run(
    guest: &Guest,
    kernel: &Kernel,
    image: &Path,
    logs: &Path,
    limit: Duration,
) -> Outcome<Ended> {
    let share = guest.path().join("usr/share");
    let console = logs.join("console.log");
    let jobs = logs.join("jobs.log");
    drop(std::fs::remove_file(&jobs));
    let write =
        |path: &Path| File::create(path).map_err(|why| format!("cannot write {}: {why}", path.display()));
    let mut command: Command = guest.outside("/usr/bin/qemu-system-x86_64");
    command
        .arg("-L")
        .arg(share.join("qemu"))
        .arg("-L")
        .arg(share.join("seabios"))
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"])
        .args(["-machine", "q35,memory-backend=mem", "-m", "2G", "-smp", "2"])
        // A device in another process reaches the guest's memory through this descriptor.
        .args(["-object", "memory-backend-memfd,id=mem,size=2G,share=on"])
        .args(["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max"])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .arg("-serial")
        .arg(format!("file:{}", jobs.display()))
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(image)
        .args(["-append", "console=ttyS0 panic=-1 quiet mitigations=off nokaslr"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(write(&logs.join("qemu.log"))?);
    eprintln!("xtask: vm: Linux {} boots; logs in {}", kernel.version, logs.display());
    let child = command.spawn().map_err(|why| format!("cannot start QEMU: {why}"))?;
    wait(Running(child), Instant::now(), limit, &logs.join("qemu.log"))
}

fn wait(mut machine: Running, begin: Instant, limit: Duration, log: &Path) -> Outcome<Ended> {
    loop {
        match machine.0.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(Ended::Off),
            Ok(Some(status)) => {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                let said = said.lines().last().unwrap_or("and said nothing");
                return Err(format!("QEMU ended with {status}: {said}"));
            }
            Ok(None) if begin.elapsed() > limit => return Ok(Ended::Overtime(limit)),
            Ok(None) => std::thread::sleep(Duration::from_millis(50)),
            Err(why) => return Err(format!("cannot wait for QEMU: {why}")),
        }
    }
}

/// A machine that is ended with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
