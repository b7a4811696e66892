//! QEMU, from power-on to power-off.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::bed::Bed;
use super::guest::{Guest, QEMU};
use super::job::{Job, Settings};
use super::kernel::Kernel;
use crate::interrupt;
use crate::run::Outcome;

/// How a machine ended.
pub(crate) enum Ended {
    /// The guest powered off.
    Off,
    /// Its time was over, and it was ended.
    Overtime(Duration),
    /// Its devices went away, which no test asked for, and it was ended.
    Lost(ExitStatus),
    /// QEMU failed, and said this last.
    Failed(String),
}

/// How long a guest may go on whose devices are gone: until its driver has seen it.
const LOST: Duration = Duration::from_secs(10);

/// Boots `image` for one job and waits until it is off. The console goes to `console.log`, what the job says to `jobs.log`.
pub(crate) fn run(
    guest: &Guest,
    kernel: &Kernel,
    image: &Path,
    logs: &Path,
    job: &Job,
    settings: &Settings<'_>,
    bed: &Bed,
) -> Outcome<Ended> {
    let share = guest.path().join("usr/share");
    let console = logs.join("console.log");
    let jobs = logs.join("jobs.log");
    drop(std::fs::remove_file(&jobs));
    let write =
        |path: &Path| File::create(path).map_err(|why| format!("cannot write {}: {why}", path.display()));
    let mut command: Command = guest.outside(QEMU);
    command
        .arg("-L")
        .arg(share.join("qemu"))
        .arg("-L")
        .arg(share.join("seabios"))
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"])
        .args(["-machine", "q35,memory-backend=mem", "-m", "2G", "-smp", "2"])
        // A device in another process reaches the guest's memory through this descriptor.
        .args(["-object", "memory-backend-memfd,id=mem,size=2G,share=on"])
        // Without paging in five levels, with which Linux registers all memory of a program at once only on cards of a later kind:
        // `drivers/infiniband/hw/mlx5/odp.c`, `mlx5_ib_odp_init`, `internal_fill_odp_caps`.
        .args(["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off"])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .arg("-serial")
        .arg(format!("file:{}", jobs.display()))
        .arg("-serial")
        .arg(format!("unix:{}", bed.dialogue_path().display()))
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(image)
        .arg("-append")
        .arg(format!("console=ttyS0 panic=-1 quiet mitigations=off nokaslr POLLUX_JOB={}", job.name))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(write(&logs.join("qemu.log"))?);
    for (index, socket) in bed.functions().iter().enumerate() {
        // Behind a port each, as a slot of a board has: the first is bus 1.
        let slot = index + 1;
        command.arg("-device").arg(format!("pcie-root-port,id=rp{slot},slot={slot},chassis={slot}"));
        command.arg("-device").arg(
            serde_json::json!({
                "driver": "vfio-user-pci",
                "socket": { "type": "unix", "path": socket },
                "bus": format!("rp{slot}"),
                "rombar": 0,
            })
            .to_string(),
        );
    }
    if let Some(across) = bed.across() {
        command.args(across.cards());
    }
    let child = command.spawn().map_err(|why| {
        format!(
            "cannot start QEMU ({}): {why}; remove {} to have it made anew",
            command.get_program().to_string_lossy(),
            guest.path().display()
        )
    })?;
    let limits = Limits { all: settings.limit(job), lost: LOST.mul_f64(settings.patience) };
    wait(Running(child), &limits, &logs.join("qemu.log"), bed)
}

/// How long a machine may run, and how long it may do so without its devices.
struct Limits {
    all: Duration,
    lost: Duration,
}

fn wait(mut machine: Running, limits: &Limits, log: &Path, bed: &Bed) -> Outcome<Ended> {
    let begin = Instant::now();
    let mut lost: Option<(ExitStatus, Instant)> = None;
    loop {
        interrupt::check()?;
        if lost.is_none() {
            lost = bed.lost().map(|status| (status, Instant::now()));
        }
        match machine.0.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(Ended::Off),
            Ok(Some(status)) => {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                let said = said.lines().last().unwrap_or("and said nothing");
                return Ok(Ended::Failed(format!("QEMU ended with {status}: {said}")));
            }
            Ok(None) if lost.is_some_and(|(_, when)| when.elapsed() > limits.lost) => {
                return Ok(lost.map_or(Ended::Overtime(limits.all), |(status, _)| Ended::Lost(status)));
            }
            Ok(None) if begin.elapsed() > limits.all => return Ok(Ended::Overtime(limits.all)),
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
