//! Doorbell pages: too few of them, and the registers of kernels that have no pages of their own.

use std::num::NonZeroUsize;
use std::sync::Arc;

use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::Model;
use pollux_mlx5_model::ledger::Crossing;
use pollux_verbs::{CompletionChannel, Cq, CqOptions, Mr, Options, QpKind, QpOptions, WcStatus};

use crate::rig::{End, Rig, Side, all_rights, connect};

fn options() -> QpOptions {
    QpOptions::new(QpKind::Rc).depth(64, 4).inline(32)
}

/// A kernel without UAR objects.
fn older() -> DoorProfile {
    DoorProfile { no_query_gid: false, ..DoorProfile::linux_5_4() }
}

/// Pages with which a model starts, of which none is left.
fn pages_of_the_kernel() -> usize {
    let starts =
        |uars: &usize| Model::builder("few").stepped().traits(|traits| traits.uars = *uars).build().is_ok();
    (1..64).find(starts).expect("a model starts on so many")
}

/// Writes from all ends at once, each from a thread of its own, alone and in pairs.
fn write(rig: &Rig, ends: &mut [(End, End)]) {
    const WRITES: u64 = 48;
    let target = Mr::allocate(&rig.far.pd, 4096, all_rights()).expect("memory");
    let (address, rkey) = (target.address(), target.rkey());
    std::thread::scope(|scope| {
        for (near, _) in ends.iter_mut() {
            scope.spawn(move || {
                let mut id = 0;
                while id < WRITES {
                    let mut batch = near.qp.batch();
                    for _ in 0..=(id % 3 == 0).into() {
                        batch.write(id, address, rkey).inline(&[7; 8]).signalled();
                        id += 1;
                    }
                    batch.ring().expect("posted");
                }
            });
        }
    });
    for (near, _) in ends {
        let mut ids = Vec::new();
        rig.until("completions", || {
            near.cq.poll(64, |wc| {
                assert_eq!(wc.status(), WcStatus::SUCCESS);
                ids.push(wc.id());
            });
            ids.len() as u64 >= WRITES
        });
        assert!(ids.iter().copied().eq(0..ids.len() as u64), "{ids:?}");
    }
    rig.is_clean();
}

#[test]
fn queue_pairs_on_many_threads_share_registers_when_pages_run_out() {
    let own = pages_of_the_kernel();
    // Queue pairs and completion queues want eight.
    for left in [1, 2, 4, 8] {
        let rig = Rig::on(true, |builder| builder.traits(|traits| traits.uars = own + left));
        let mut ends: Vec<_> = (0..4).map(|_| rig.pair(&options())).collect();
        write(&rig, &mut ends);
        drop(ends);
        // What was shared is given back.
        let mut ends = [rig.pair(&options())];
        write(&rig, &mut ends);
    }
}

/// A context that may have one page leaves the other to the next, whose queues would find none.
#[test]
fn a_context_takes_no_more_pages_than_it_may() {
    let own = pages_of_the_kernel();
    let rig = Rig::on(true, |builder| builder.traits(|traits| traits.uars = own + 2));
    let limit = Options { doorbell_pages: NonZeroUsize::new(1), ..Options::default() };
    let few = Side::with(Arc::clone(&rig.near.model), limit);
    let mut ends: Vec<_> = (0..4)
        .map(|_| {
            let (mut near, mut far) = (few.end(&options()), rig.far.end(&options()));
            connect(&mut near, &mut far);
            (near, far)
        })
        .collect();
    // Its page takes copied entries, though a completion queue had it first.
    let copied = || rig.near.model.ledger().of(Crossing::BlueFlame).transfers;
    let before = copied();
    write(&rig, &mut ends);
    assert!(copied() > before, "no entry was copied");
    ends.push(rig.pair(&options()));
    write(&rig, &mut ends);
}

/// The kernel has 127 registers that one queue pair each gets; further ones get the first, which is on a page that is, or may
/// be, mapped write-combining.
#[test]
fn further_queue_pairs_of_older_kernels_share_the_first_register() {
    let rig = Rig::on(true, |builder| builder.door(older()));
    let small = QpOptions::new(QpKind::Rc).depth(1, 1);
    let cq = rig.near.cq(16);
    let qp = || pollux_verbs::Qp::new(&rig.near.pd, &cq, &cq, &small).expect("a queue pair");
    let taken: Vec<_> = (0..127).map(|_| qp()).collect();
    let mut ends: Vec<_> = (0..3).map(|_| rig.pair(&options())).collect();
    write(&rig, &mut ends);
    drop(taken);
}

#[test]
fn every_completion_queue_of_older_kernels_can_be_armed() {
    let rig = Rig::on(true, |builder| builder.door(older()));
    let channel = CompletionChannel::new(&rig.near.context).expect("a channel");
    let options = CqOptions::new(16).channel(&channel);
    let mut queues: Vec<_> =
        (0..3).map(|_| Cq::new(&rig.near.context, options.clone()).expect("a queue")).collect();
    for cq in &mut queues {
        cq.notify(false).expect("armed");
    }
}
