//! Ends that find each other over a stream.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use pollux_verbs::{
    Endpoint, EndpointOptions, Mr, Mtu, PairError, Pd, Piece, PortState, QpAttributes, QpState, VerbsError,
};

use crate::rig::{Rig, Side, all_rights};

fn options() -> EndpointOptions {
    EndpointOptions { depth: 16, inline: 64, ..EndpointOptions::default() }
}

fn memory(side: &Side) -> Mr {
    Mr::allocate(&side.pd, 4096, all_rights()).expect("a region")
}

/// Waits for one completion, which is well.
fn done(end: &mut Endpoint) {
    let mut seen = 0;
    while seen == 0 {
        seen = end.cq.poll(1, |wc| assert!(wc.is_ok(), "{wc:?}"));
        thread::yield_now();
    }
}

#[test]
fn two_ends_reach_each_others_memory() {
    let rig = Rig::threaded();
    let (mut here, mut there) = UnixStream::pair().expect("a stream");
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mr = memory(&rig.far);
            let mut end =
                Endpoint::pair_with(&rig.far.pd, Some(&mr), &mut there, options()).expect("a connection");
            assert!(end.remote.is_none(), "the other gave none");
            let mut word = [0; 1];
            there.read_exact(&mut word).expect("a word");
            let mut text = [0; 5];
            mr.read(100, &mut text);
            // What it sends meets a receive of the other.
            let mut batch = end.qp.batch();
            batch.send(1).piece(rig.far.buffers.filled(&text).expect("a buffer")).signalled();
            batch.ring().expect("room");
            done(&mut end);
        });
        let mut end = Endpoint::pair_with(&rig.near.pd, None, &mut here, options()).expect("a connection");
        let remote = end.remote.expect("the other gave some");
        assert_eq!((remote.bytes, end.qp.state()), (4096, QpState::RTS));
        let mut receives = end.qp.receives().expect("a ring of its own");
        receives.piece(7, rig.near.buffers.take().expect("a buffer"));
        receives.ring().expect("room");
        let mut batch = end.qp.batch();
        batch
            .write(2, remote.address + 100, remote.rkey)
            .piece(rig.near.buffers.filled(b"hello").expect("a buffer"))
            .signalled();
        batch.ring().expect("room");
        done(&mut end);
        here.write_all(&[1]).expect("the stream");
        let mut received = None;
        while received.is_none() {
            end.cq.poll(1, |wc| received = wc.take_buf());
        }
        assert_eq!(received.as_deref(), Some(&b"hello"[..]));
        other.join().expect("no panic");
    });
}

#[test]
fn a_peer_that_says_something_else_is_told() {
    let rig = Rig::stepped();
    let said = |bytes: &[u8]| {
        let (mut here, mut there) = UnixStream::pair().expect("a stream");
        there.write_all(bytes).expect("the stream");
        there.shutdown(std::net::Shutdown::Write).expect("the stream");
        Endpoint::pair(&rig.near.pd, None, &mut here).expect_err("no peer").to_string()
    };
    let garbage = said(&[b'G'; 64]);
    assert!(garbage.starts_with("the peer's first message cannot be (\"GGGGGGGG\")"), "{garbage}");
    for short in [&b""[..], b"plxpair1"] {
        let short = said(short);
        assert!(short.starts_with("cannot exchange addresses with the peer: "), "{short}");
    }
}

#[test]
fn what_the_device_does_not_have_is_told() {
    let rig = Rig::stepped();
    let (mut here, _there) = UnixStream::pair().expect("a stream");
    let mut refused = |options| match Endpoint::pair_with(&rig.near.pd, None, &mut here, options) {
        Err(PairError::Verbs(why)) => why.to_string(),
        other => panic!("{other:?}"),
    };
    let gid = refused(EndpointOptions { gid_index: Some(77), ..options() });
    assert!(gid.contains("has no GID 77"), "{gid}");
    refused(EndpointOptions { port: Some(9), ..options() });
    for depth in [u32::MAX / 4, u32::MAX] {
        refused(EndpointOptions { depth, ..options() });
    }
}

#[test]
fn memory_of_another_domain_or_device_is_refused() {
    let rig = Rig::stepped();
    let (mut here, _there) = UnixStream::pair().expect("a stream");
    let mut refused = |mr: &Mr| match Endpoint::pair(&rig.near.pd, Some(mr), &mut here) {
        Err(PairError::Verbs(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(&memory(&rig.far)), VerbsError::Foreign { .. }));
    let other = Pd::new(&rig.near.context).expect("a domain");
    let mr = Mr::allocate(&other, 4096, all_rights()).expect("a region");
    assert!(refused(&mr).to_string().contains("of another protection domain"));
}

/// Whatever sizes the device rounds the rings up to, all that they hold fits the completion queue.
#[test]
fn rings_posted_until_they_are_full_do_not_overrun_the_completion_queue() {
    for (depth, inline) in [(16, 0), (31, 0), (63, 0), (43, 128)] {
        let rig = Rig::threaded();
        let (mut here, mut there) = UnixStream::pair().expect("a stream");
        let options =
            EndpointOptions { depth, inline, patience: Duration::MAX, ..EndpointOptions::default() };
        let [mut near, mut far] = thread::scope(|scope| {
            let far = scope.spawn(|| Endpoint::pair_with(&rig.far.pd, None, &mut there, options));
            let near = Endpoint::pair_with(&rig.near.pd, None, &mut here, options);
            [near, far.join().expect("no panic")].map(|end| end.expect("a connection"))
        });
        let [mut receives, mut sends] = [0, 0];
        for end in [&mut near, &mut far] {
            loop {
                let mut list = end.qp.receives().expect("a ring of its own");
                list.pieces::<Piece>(0, []);
                if list.ring().is_err() {
                    break;
                }
                receives += 1;
            }
        }
        for end in [&mut near, &mut far] {
            loop {
                let mut batch = end.qp.batch();
                batch.write(0, 0, 0).signalled();
                if batch.ring().is_err() {
                    break;
                }
                sends += 1;
            }
        }
        assert!(sends >= 2 * depth && receives >= 2 * depth, "{sends} sends, {receives} receives");
        // The receives are flushed.
        for end in [&mut near, &mut far] {
            end.qp.modify(&QpAttributes::state(QpState::ERR)).expect("an error state");
        }
        let (mut seen, end) = (0, Instant::now() + Duration::from_secs(20));
        while seen < sends + receives {
            assert!(Instant::now() < end, "depth {depth}: {seen} of {} completions", sends + receives);
            seen += (near.cq.poll(64, |_| ()) + far.cq.poll(64, |_| ())) as u32;
        }
    }
}

#[test]
fn ports_tell_state_mtu_and_a_gid() {
    let rig = Rig::stepped();
    let context = &rig.near.context;
    assert_eq!(context.port_state(1).expect("a port"), PortState::Active);
    assert_eq!(context.active_port().expect("a port"), Some(1));
    assert_eq!(context.active_mtu(1).expect("a port"), Mtu::Bytes1024, "what an Ethernet MTU of 1500 leaves");
    let best = context.best_gid(1, false).expect("GIDs").expect("one");
    assert!(context.gids().expect("GIDs").contains(&best));
    assert!(matches!(context.port_state(9), Err(VerbsError::Kernel { .. })));
}
