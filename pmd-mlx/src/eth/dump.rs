//! A queue in words: its number, its indices, what went wrong last, its rings decoded.
//!
//! The rings of a queue that runs belong to its lcore; of such a queue there are number and health alone. A queue that is
//! parked after an error, or stopped, shows everything; recovery logs it before it resets the queue.

use std::fmt::{self, Write};

use pollux_mlx5_abi::cqe::{Cqe64, CqeError};
use pollux_mlx5_abi::opcode;
use pollux_mlx5_abi::wqe::Control as ControlSegment;
use zerocopy::FromBytes;

use super::parking::{Control, QueueHealth};
use super::rq::Rq;
use super::sq::Sq;
use pollux_mlx5_common::cq::Cq;

/// Entries shown on each side of the place where the queue stands.
const AROUND: u32 = 4;

/// What can be said of a receive queue.
pub(crate) fn rx(control: &Control<Rq>) -> String {
    let mut text = String::new();
    let written = match control.take_any() {
        None => write!(text, "{}", Health(control.health(), None)),
        Some(rq) => {
            let (posted, taken) = rq.indices();
            write!(
                text,
                "number {:#x}, {} entries, posted {posted}, taken {taken}; ",
                rq.number(),
                rq.entries()
            )
            .and_then(|()| write!(text, "{}", Health(control.health(), Some(rq.state()))))
            .and_then(|()| completions(&mut text, rq.cq()))
        }
    };
    debug_assert!(written.is_ok(), "a string takes everything");
    text
}

/// What can be said of a send queue.
pub(crate) fn tx(control: &Control<Sq>) -> String {
    let mut text = String::new();
    let written = match control.take_any() {
        None => write!(text, "{}", Health(control.health(), None)),
        Some(sq) => {
            let ring = sq.ring();
            let (number, blocks, posted, done) = (ring.number(), ring.blocks(), ring.posted(), ring.done());
            write!(text, "number {number:#x}, {blocks} blocks, posted {posted}, done {done}, ")
                .and_then(|()| {
                    let health = Health(control.health(), Some(sq.state()));
                    write!(text, "{} packets pending; {health}", sq.pending())
                })
                .and_then(|()| self::blocks(&mut text, &sq, done, posted))
                .and_then(|()| completions(&mut text, sq.cq()))
        }
    };
    debug_assert!(written.is_ok(), "a string takes everything");
    text
}

/// With the state that the queue was found in, where it was taken to be looked at.
struct Health<'a>(&'a QueueHealth, Option<&'static str>);

impl fmt::Display for Health<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(health, found) = self;
        let state = found.unwrap_or(if health.runs() { "runs" } else { "taken" });
        write!(f, "{state}, last trouble: ")?;
        match health.trouble() {
            Some(trouble) => write!(f, "{trouble}")?,
            None => f.write_str("none")?,
        }
        let (failed, malformed, recovered) = (health.failed(), health.malformed(), health.recovered());
        write!(
            f,
            " ({failed} failed, {malformed} malformed, {} silent, {recovered} recovered)",
            health.silent()
        )
    }
}

/// The completions around the place that is read next.
fn completions(text: &mut String, cq: &Cq) -> fmt::Result {
    let consumer = cq.consumer();
    write!(text, "\n  completions of {:#x}, next {consumer} of {}", cq.number(), cq.entries())?;
    for at in 0..(2 * AROUND).min(cq.entries()) {
        let index = consumer.wrapping_sub(AROUND).wrapping_add(at);
        write!(text, "\n    {}", Completion(index, &cq.copy_out(index)))?;
    }
    Ok(())
}

struct Completion<'a>(u32, &'a Cqe64);

impl fmt::Display for Completion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(index, entry) = self;
        let code = entry.op_own >> 4;
        let name = opcode::completion::name(code).unwrap_or("unknown");
        let (counter, bytes) = (entry.wqe_counter.get(), entry.byte_cnt.get());
        write!(f, "{index}: {name} ({code:#x}), owner {}, entry {counter}, {bytes} bytes", entry.op_own & 1)?;
        if let Some(error) = CqeError::of(entry) {
            write!(f, ", {}", error.syndrome())?;
        }
        Ok(())
    }
}

/// The entries between what is done and what is posted, the first few.
fn blocks(text: &mut String, sq: &Sq, from: u32, to: u32) -> fmt::Result {
    let mut at = from;
    for _ in 0..2 * AROUND {
        if at == to {
            break;
        }
        let block = sq.copy_block(at);
        let Ok((control, _)) = ControlSegment::read_from_prefix(&block) else { break };
        let code = control.opcode();
        let (name, segments) = (opcode::send::name(code).unwrap_or("unknown"), control.segments());
        write!(
            text,
            "\n    block {at}: {name} ({code:#x}), index {}, queue {:#x}, {segments} segments, {:?}",
            control.index(),
            control.qpn(),
            control.completion()
        )?;
        // An entry is as many blocks as its segments fill; one that says none would never end.
        at = at.wrapping_add(u32::from(segments).div_ceil(4).max(1));
    }
    Ok(())
}
