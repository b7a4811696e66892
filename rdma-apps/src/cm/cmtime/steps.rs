//! How long each step of connections took, and the original's table of it. Source of names and columns: rdma-core 56
//! `librdmacm/examples/cmtime.c`, `step_str`, `show_perf`. Absent are the rows of attributes and of RTR and RTS: those changes are a part
//! of `establish`, and of the server's `cm connect`.

use std::time::{Duration, Instant};

/// A step, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    FullConnect,
    CreateId,
    Bind,
    ResolveAddress,
    ResolveRoute,
    CreateQp,
    InitQp,
    Connect,
    Establish,
    Disconnect,
    DestroyId,
    DestroyQp,
}

const NAMES: [(Step, &str); 12] = [
    (Step::FullConnect, "full connect"),
    (Step::CreateId, "create id"),
    (Step::Bind, "bind addr"),
    (Step::ResolveAddress, "resolve addr"),
    (Step::ResolveRoute, "resolve route"),
    (Step::CreateQp, "create qp"),
    (Step::InitQp, "init qp"),
    (Step::Connect, "cm connect"),
    (Step::Establish, "establish"),
    (Step::Disconnect, "disconnect"),
    (Step::DestroyId, "destroy id"),
    (Step::DestroyQp, "destroy qp"),
];

/// When each step began, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times([(Option<Instant>, Option<Duration>); NAMES.len()]);

impl Times {
    pub(super) fn begin(&mut self, step: Step) {
        self.0[step as usize] = (Some(Instant::now()), None);
    }

    pub(super) fn end(&mut self, step: Step) {
        let (begin, took) = &mut self.0[step as usize];
        *took = begin.map(|begin| begin.elapsed());
    }

    fn took(&self, step: Step) -> Option<Duration> {
        self.0[step as usize].1
    }
}

/// The table: of all connections together, and of each by itself. At last connections per second: of the whole of making them where that
/// was measured, and of the manager's part.
pub(super) fn table(all: &Times, each: &[Times]) -> Vec<String> {
    let count = each.len().max(1) as u128;
    let mut lines = vec![
        format!("qp_conn        {:10}", each.len()),
        format!("threads        {:10}", 1),
        "step             avg/iter  total(us)    us/conn    sum(us)    max(us)    min(us)".into(),
    ];
    for (step, name) in NAMES {
        let total = all.took(step).unwrap_or_default().as_micros();
        let took = || each.iter().filter_map(|times| times.took(step)).map(|took| took.as_micros());
        // They overlap, so their sum means nothing.
        let sum: u128 = if step == Step::FullConnect { 0 } else { took().sum() };
        let (most, least) = (took().max().unwrap_or(0), took().min().unwrap_or(0));
        lines.push(format!(
            "{name:<13}  {:10} {total:10} {:10} {sum:10} {most:10} {least:10}",
            total / count,
            sum / count
        ));
    }
    for (step, name) in [(Step::FullConnect, "full connect"), (Step::Connect, "cm connect")] {
        if let Some(took) = all.took(step) {
            lines.push(format!("{name}: {:.0} connections/s", each.len() as f64 / took.as_secs_f64()));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(step: Step, micros: u64) -> Times {
        let mut times = Times::default();
        times.0[step as usize] = (None, Some(Duration::from_micros(micros)));
        times
    }

    /// By hand.
    #[test]
    fn rows_are_those_of_the_original() {
        let each =
            [times(Step::Connect, 100), times(Step::Connect, 300), Times::default(), times(Step::Bind, 7)];
        let lines = table(&times(Step::Connect, 2000), &each);
        assert_eq!(lines[0], "qp_conn                 4");
        for row in [
            "cm connect            500       2000        100        400        300        100",
            "bind addr               0          0          1          7          7          7",
            "destroy qp              0          0          0          0          0          0",
        ] {
            assert!(lines.iter().any(|line| line == row), "{row}: {lines:#?}");
        }
        assert_eq!(lines.last().map(String::as_str), Some("cm connect: 2000 connections/s"));
        assert_eq!(lines.len(), 3 + NAMES.len() + 1);
        assert!(NAMES.iter().enumerate().all(|(place, (step, _))| *step as usize == place));
    }
}
