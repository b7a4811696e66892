//! The loop of a forwarding lcore: round its streams, until the prompt says stop.

use pollux_eal::LcoreContext;
use pollux_eal::clock::cycles;
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

/// Goes round the streams; gives them back at the end.
pub fn run<E: Engine>(lcore: &LcoreContext, mut streams: Vec<Stream<E>>, idle: &mut impl Idle) -> Vec<Lane> {
    let mut mark = cycles::now();
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
