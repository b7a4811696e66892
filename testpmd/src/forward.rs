//! The loop of a forwarding lcore: round its streams, until the prompt says stop.

use pollux_eal::LcoreContext;
use pollux_eal::clock::cycles;

use crate::engine::Engine;
use crate::lane::{Count, Lane};

/// Goes round the streams; gives them back at the end.
pub fn run<E: Engine>(lcore: &LcoreContext, mut streams: Vec<(Lane, E)>) -> Vec<Lane> {
    let mut mark = cycles::now();
    'rounds: while !lcore.stop_requested() {
        for (lane, engine) in &mut streams {
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
            } else {
                lcore.idle(spent);
            }
        }
    }
    for (lane, engine) in &mut streams {
        engine.finish(lane);
    }
    streams.into_iter().map(|(lane, _)| lane).collect()
}
