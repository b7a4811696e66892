//! The loop of a forwarding lcore: round its streams, until the prompt says stop.

use pollux_eal::LcoreContext;
use pollux_eal::clock::cycles;
use pollux_kit::rounds::{ROUNDS_PER_LOOK, run_timers};
use pollux_kit::{Idle, Polled};
use pollux_port::RxQueue;

use crate::engine::Engine;
use crate::lane::{Count, Lane};

/// A stream and what forwards it.
#[derive(Debug)]
pub struct Stream<E> {
    /// The stream.
    pub lane: Lane,
    /// Its engine.
    pub engine: E,
}

impl<E: Engine> Polled for Stream<E> {
    fn rx_queue(&mut self) -> &mut RxQueue {
        &mut self.lane.rx
    }

    fn has_work(&self) -> bool {
        self.engine.has_work()
    }
}

/// Goes round the streams and calls the lcore's timers; gives the streams back at the end.
pub fn run<E: Engine>(lcore: &LcoreContext, mut streams: Vec<Stream<E>>, idle: &mut impl Idle) -> Vec<Lane> {
    let mut mark = cycles::now();
    let mut rounds: u32 = 0;
    'rounds: while !lcore.stop_requested() {
        let mut busy = false;
        for Stream { lane, engine } in &mut streams {
            if lane.look() {
                break 'rounds;
            }
            let moved = engine.round(lane);
            // One reading of the counter a round; it is also where the next one begins.
            let now = cycles::now();
            let spent = now.wrapping_sub(mark);
            mark = now;
            if moved != 0 {
                lane.counters.add(Count::Cycles, spent);
                lcore.busy(spent);
                busy = true;
            } else {
                lcore.idle(spent);
            }
        }
        rounds = rounds.wrapping_add(1);
        if !busy || rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            mark = run_timers(lcore, mark);
        }
        if busy {
            idle.busy();
        } else if idle.empty(lcore, mark, &mut streams) {
            let now = cycles::now();
            lcore.idle(now.wrapping_sub(mark));
            mark = now;
        }
    }
    for Stream { lane, engine } in &mut streams {
        engine.finish(lane);
    }
    streams.into_iter().map(|stream| stream.lane).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use pollux_bringup::{Bringup, PortRequest};
    use pollux_config::CommandLine;
    use pollux_kit::Console;
    use pollux_port::PortId;

    use super::*;
    use crate::engine::Io;
    use crate::lane::{STOP, TxRetry};

    #[test]
    fn a_timer_is_called_while_its_lcore_polls() {
        let line = "forward -l 0 --no-huge --no-telemetry --vdev net_null0 --vdev net_null1";
        let line = CommandLine::parse(line.split(' ')).expect("a line");
        let mut bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let (mut queues, _pool) =
            bringup.start_ports(&[PortId(0), PortId(1)], &PortRequest::new()).expect("up");
        let (rx, tx) = (queues[0].rx.remove(0), queues[1].tx.remove(0));
        let switches = Arc::new(AtomicU32::new(0));
        let console = Console { json: true };
        let (lane, _view) = Lane::new(rx, tx, 32, TxRetry::default(), console, Arc::clone(&switches));
        let main = bringup.eal.lcores().main();
        let stop = Arc::clone(&switches);
        let timer = bringup.eal.timers(main).expect("the lcore has timers").timer(move |_| {
            stop.store(STOP, Ordering::Relaxed);
        });
        let mut timer = timer.expect("room");
        let streams = vec![Stream { lane, engine: Io }];
        let running = bringup.eal.launch(main, |lcore| run(lcore, streams, &mut ())).expect("launched");
        timer.arm(bringup.eal.clock().now().0).expect("armed");
        let end = Instant::now() + pollux_tests::patience::patient(Duration::from_secs(20));
        while switches.load(Ordering::Relaxed) != STOP && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let called = switches.swap(STOP, Ordering::Relaxed) == STOP;
        assert_eq!(running.wait().expect("no panic").len(), 1);
        assert!(called, "a timer that was due");
    }
}
