//! Figures in which two lcores pass cache lines to each other.

use std::error::Error;
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pollux_eal::Eal;
use pollux_eal::lcore::LcoreId;
use pollux_ring::{mpmc, spsc};

use crate::{BURST, cycles, per};

const RING: usize = 1024;
const HOPS: u64 = 20_000;

/// One trial of the figure called `name`, or nothing when it is not one of these.
pub(crate) fn run(eal: &Eal, lcores: [LcoreId; 2], name: &str) -> Result<Option<f64>, Box<dyn Error>> {
    Ok(Some(match name {
        "cache_line_one_way" => cache_line(eal, lcores)?,
        "ring_spsc_two1" => pipe::<1>(eal, lcores)?,
        "ring_spsc_two32" => pipe::<BURST>(eal, lcores)?,
        "ring_mpmc_two32" => contend(eal, lcores)?,
        _ => return Ok(None),
    }))
}

/// Runs both sides, the second started first; each gives its first and last cycle count.
fn together(
    eal: &Eal,
    lcores: [LcoreId; 2],
    here: impl FnOnce() + Send,
    there: impl FnOnce() + Send,
) -> Result<u64, Box<dyn Error>> {
    let (ready, go) = (AtomicBool::new(false), AtomicBool::new(false));
    let (ready, go) = (&ready, &go);
    let [(from_a, to_a), (from_b, to_b)] = eal.scope(|scope| -> Result<_, Box<dyn Error>> {
        let second = scope.launch(lcores[1], move |_context| {
            ready.store(true, Ordering::Release);
            while !go.load(Ordering::Acquire) {
                spin_loop();
            }
            let start = cycles();
            there();
            (start, cycles())
        })?;
        let first = scope.launch(lcores[0], move |_context| {
            while !ready.load(Ordering::Acquire) {
                spin_loop();
            }
            go.store(true, Ordering::Release);
            let start = cycles();
            here();
            (start, cycles())
        })?;
        Ok([first.wait()?, second.wait()?])
    })?;
    Ok(to_a.max(to_b) - from_a.min(from_b))
}

/// One producer, one consumer, `N` elements at a time.
fn pipe<const N: usize>(eal: &Eal, lcores: [LcoreId; 2]) -> Result<f64, Box<dyn Error>> {
    let count = if N == 1 { 1 << 17 } else { 1 << 19 };
    let (mut producer, mut consumer) = spsc::ring::<usize>(RING)?;
    let produce = move || {
        let elements = [7; N];
        let mut done = 0;
        while done < count {
            black_box(&elements);
            let moved = producer.enqueue_burst(&elements).count;
            done += moved;
            if moved == 0 {
                spin_loop();
            }
        }
    };
    let consume = move || {
        let mut elements = [0; N];
        let mut done = 0;
        while done < count {
            let moved = consumer.dequeue_burst(&mut elements, N).count;
            black_box(&mut elements);
            done += moved;
            if moved == 0 {
                spin_loop();
            }
        }
    };
    Ok(together(eal, lcores, produce, consume)? as f64 / count as f64)
}

/// Both cores put a burst in and take one out of the same ring.
fn contend(eal: &Eal, lcores: [LcoreId; 2]) -> Result<f64, Box<dyn Error>> {
    let count = 1 << 19;
    let (producer, consumer) = mpmc::ring::<usize>(RING)?;
    let side = |producer: mpmc::Producer<usize>, consumer: mpmc::Consumer<usize>| {
        move || {
            let mut elements = [7; BURST];
            for _ in 0..count / BURST {
                while producer.enqueue_bulk(&elements).count == 0 {
                    spin_loop();
                }
                while consumer.dequeue_bulk(&mut elements, BURST).count == 0 {
                    spin_loop();
                }
                black_box(&mut elements);
            }
        }
    };
    let here = side(producer.clone(), consumer.clone());
    Ok(together(eal, lcores, here, side(producer, consumer))? as f64 / count as f64)
}

/// What the machine itself takes to hand one cache line over: printed beside the figures, which move with it.
fn cache_line(eal: &Eal, lcores: [LcoreId; 2]) -> Result<f64, Box<dyn Error>> {
    #[repr(align(64))]
    struct Line(AtomicU64);
    let line = Arc::new(Line(AtomicU64::new(0)));
    let other = Arc::clone(&line);
    let answer = eal.launch(lcores[1], move |_context| {
        for hop in (1..2 * HOPS).step_by(2) {
            while other.0.load(Ordering::Acquire) != hop {}
            other.0.store(hop + 1, Ordering::Release);
        }
    })?;
    let ask = eal.launch(lcores[0], move |_context| {
        line.0.store(1, Ordering::Release);
        while line.0.load(Ordering::Acquire) != 2 {}
        let start = cycles();
        for hop in (3..2 * HOPS).step_by(2) {
            line.0.store(hop, Ordering::Release);
            while line.0.load(Ordering::Acquire) != hop + 1 {}
        }
        per(start, 2 * (HOPS as usize - 1))
    })?;
    let value = ask.wait()?;
    answer.wait()?;
    Ok(value)
}
