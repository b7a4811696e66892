//! Processor time of a program's threads.

use std::fs;
use std::time::{Duration, Instant};

/// How long the threads of a process whose names begin with `name` have run so far. Source: proc(5), `/proc/PID/task/TID/schedstat`.
///
/// # Panics
/// When there is no such thread.
#[must_use]
pub fn run_time(process: u32, name: &str) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let times: Vec<u64> = tasks
        .filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.starts_with(name)))
        .filter_map(|task| {
            let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
            stat.split_whitespace().next()?.parse().ok()
        })
        .collect();
    assert!(!times.is_empty(), "process {process} has no thread {name}");
    Duration::from_nanos(times.iter().sum())
}

/// The share of one processor that these threads take during the next `span`.
///
/// # Panics
/// As [`run_time`].
#[must_use]
pub fn share(process: u32, name: &str, span: Duration) -> f64 {
    let (begun, before) = (Instant::now(), run_time(process, name));
    std::thread::sleep(span);
    let ran = run_time(process, name).saturating_sub(before);
    ran.as_secs_f64() / begun.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_counts_and_one_that_sleeps_does_not() {
        let spawn = |name: &str, work: fn()| {
            std::thread::Builder::new().name(name.into()).spawn(work).expect("a thread")
        };
        let busy = spawn("count-busy", || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(600) {
                std::hint::spin_loop();
            }
        });
        let idle = spawn("count-idle", || std::thread::sleep(Duration::from_millis(600)));
        std::thread::sleep(Duration::from_millis(100));
        let me = std::process::id();
        let shares = ["count-busy", "count-idle"].map(|name| share(me, name, Duration::from_millis(150)));
        assert!(shares[0] > 10.0 * shares[1] && shares[1] < 0.1, "{shares:?}");
        busy.join().expect("it only spins");
        idle.join().expect("it only sleeps");
    }
}
