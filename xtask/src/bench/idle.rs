//! What a forwarder costs while nothing comes: the share of a core that testpmd takes with `--idle interrupt`.

use std::time::{Duration, Instant};

use super::program::Veth;
use super::table::Pair;
use super::testpmd::Testpmd;
use crate::run::Outcome;

/// Its row, which needs root.
pub(super) const NAME: &str = "testpmd_interrupt_idle";
/// How long each trial looks.
const SPAN: Duration = Duration::from_secs(2);

/// All threads of testpmd, its prompt included, forwarding between the ends of an idle veth pair. DPDK's has no such mode.
pub(super) fn measure(trials: u32) -> Outcome<Vec<Pair>> {
    let veth = Veth::make()?;
    let devices = veth.devices();
    let mut testpmd =
        Testpmd::ours_with(&["--vdev", &devices[0], "--vdev", &devices[1]], "io", &["--idle=interrupt"])?;
    testpmd.command("start")?;
    let mut pairs = Vec::new();
    for _ in 0..trials {
        pairs.push(Pair { ours: share(testpmd.id())?, peer: None, copy: None });
    }
    testpmd.command("stop")?;
    Ok(pairs)
}

/// The share of one core that a process takes during the next [`SPAN`].
fn share(process: u32) -> Outcome<f64> {
    let (begun, before) = (Instant::now(), run_time(process)?);
    std::thread::sleep(SPAN);
    let ran = run_time(process)?.saturating_sub(before);
    Ok(ran.as_secs_f64() / begun.elapsed().as_secs_f64())
}

/// How long its threads have run so far. Source: proc(5), `/proc/PID/task/TID/schedstat`.
fn run_time(process: u32) -> Outcome<Duration> {
    let path = format!("/proc/{process}/task");
    let tasks = std::fs::read_dir(&path).map_err(|why| format!("{path}: {why}"))?;
    let nanos = tasks.flatten().filter_map(|task| {
        // A thread may end meanwhile.
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    });
    match nanos.sum() {
        0 => Err("the kernel counts no processor time of threads (CONFIG_SCHED_INFO)".into()),
        nanos => Ok(Duration::from_nanos(nanos)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_this_process_grows_as_it_works() {
        let me = std::process::id();
        let (before, begun) = (run_time(me).expect("counted"), Instant::now());
        while begun.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        assert!(run_time(me).expect("counted") > before);
    }
}
