//! Signatures that queue pairs have to do with: entries that set their variables, and completions of mismatches.
//!
//! A completion of a signature comes in front of that of the work, and a queue pair that was made so then drains its send queue: what is
//! begun ends, what is not waits. Source: rdma-core `providers/mlx5/cq.c`, `mlx5_parse_cqe`, and
//! `providers/mlx5/man/mlx5dv_qp_cancel_posted_send_wrs.3.md`; Linux `drivers/infiniband/hw/mlx5/cq.c`, `mlx5_poll_one`.

use super::Around;
use super::qp::Qp;
use super::request::Request;
use super::state::State;
use crate::failure::Failure;

/// Sets a signature variable.
pub(super) fn set(pair: &Qp, around: &mut Around<'_, '_>, request: &Request) -> Result<(), Failure> {
    around.keys.signatures.set(pair.who(), &request.segments).map_err(Failure::from)
}

/// Reports mismatches in work of the pair's own.
pub(super) fn report_sent(pair: &mut Qp, around: &mut Around<'_, '_>) {
    let cqn = pair.cqn_send;
    if report(pair, around, cqn) && pair.drains && pair.state == State::Send {
        pair.state = State::Draining;
    }
}

/// The same of what its peer asked for.
pub(super) fn report_received(pair: &mut Qp, around: &mut Around<'_, '_>, cqn: u32) {
    report(pair, around, cqn);
}

/// True when there were any.
fn report(pair: &mut Qp, around: &mut Around<'_, '_>, cqn: u32) -> bool {
    let mut some = false;
    for found in around.keys.signatures.take_found() {
        // What another pair's access came upon has nobody to be told any more.
        if found.pair != pair.number {
            continue;
        }
        some = true;
        let entry = found.completion();
        let Around { bus, completions, events, .. } = around;
        if completions.push(bus, events, cqn, entry.entry(), true).is_err() {
            pair.die(around);
        }
    }
    some
}
