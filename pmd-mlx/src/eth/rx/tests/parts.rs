//! Packets in parts of their own.

use pollux_mempool::Mbuf;
use proptest::prelude::*;

use super::*;
use crate::eth::parts::SplitPart;

fn part(pool: Option<&MbufPool>, offset: u32, bytes: u32) -> SplitPart {
    SplitPart { pool: pool.cloned(), offset, bytes }
}

fn named(name: &'static str, room: usize) -> MbufPool {
    MbufPool::builder(name, 256).data_room(room).cache(0).build_anonymous().expect("pool")
}

fn plan(parts: Vec<SplitPart>) -> Plan {
    let segments_log2 = parts.len().next_power_of_two().ilog2() as u8;
    Plan { log: 4, segments_log2, split: Some(parts), ..Plan::default() }
}

/// Data of each mbuf, and how far into its room it begins.
fn pieces(packet: &Mbuf, parts: &[SplitPart]) -> Vec<(Vec<u8>, usize)> {
    let firsts = packet.segments().map(<[u8]>::as_ptr);
    let rooms: Vec<_> =
        parts.iter().filter_map(|part| part.pool.as_ref()).flat_map(|pool| pool.addresses()).collect();
    let offset = |at: *const u8| {
        let inside = rooms.iter().filter_map(|(_, room)| at.addr().checked_sub(room.as_ptr().addr()));
        inside.min().expect("of a pool")
    };
    packet.segments().zip(firsts).map(|(data, at)| (data.to_vec(), offset(at))).collect()
}

#[test]
fn each_part_lies_in_an_mbuf_of_its_own_pool_at_its_own_place() {
    let (heads, bodies) = (named("heads", 256), named("bodies", 2048));
    let parts = vec![part(Some(&heads), 130, 14), part(None, 0, 100), part(Some(&bodies), 7, 1500)];
    let (mut queue, mut device, counters) = rig(&plan(parts.clone()), &bodies);
    assert_eq!((heads.in_use(), bodies.in_use(), queue.mode()), (16, 16, "split"));
    for bytes in [1, 14, 15, 114, 115, 1000, 1518] {
        let whole = frame(bytes, bytes);
        device.receive(&whole, say(2));
        let mut burst = Burst::new();
        assert_eq!(queue.rx_burst(&mut burst, 8).packets, 1);
        let mut want = vec![(whole[..bytes.min(14)].to_vec(), 130)];
        if bytes > 114 {
            want.push((whole[114..].to_vec(), 7));
        }
        assert_eq!(pieces(&burst[0], &parts), want, "{bytes} bytes");
        let delivered: Vec<u8> = want.into_iter().flat_map(|(data, _)| data).collect();
        assert_eq!(got(&burst), [expected(&delivered, say(2))]);
        assert_eq!(device.posted(), 16);
    }
    assert_eq!(counters.dropped(RxDrop::Unwanted), 0);
    drop(queue);
    assert_eq!((heads.in_use(), bodies.in_use()), (0, 0));
}

#[test]
fn what_lies_in_dropped_parts_only_is_counted_and_costs_nothing() {
    let pool = named("rest", 2048);
    let parts = vec![part(None, 0, 100), part(Some(&pool), 0, 1500)];
    let (mut queue, mut device, counters) = rig(&plan(parts), &pool);
    for round in 0..40 {
        device.receive(&frame(round, 100), say(1));
        device.receive(&frame(round, 101), say(1));
        assert_eq!(receive_all(&mut queue), [expected(&frame(round, 101)[100..], say(1))]);
    }
    assert_eq!(counters.dropped(RxDrop::Unwanted), 40);
    drop(queue);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_dry_pool_costs_the_packet_and_the_other_pools_get_theirs_back() {
    let (heads, bodies) = (named("first", 256), named("second", 2048));
    let parts = vec![part(Some(&heads), 0, 14), part(Some(&bodies), 0, 1504)];
    let (mut queue, mut device, counters) = rig(&plan(parts), &bodies);
    let mut held = Vec::new();
    loop {
        let mut burst = Burst::new();
        if bodies.alloc_up_to(&mut burst, 64) == 0 {
            break;
        }
        held.push(burst);
    }
    device.receive(&frame(1, 100), say(1));
    assert_eq!((receive_all(&mut queue), counters.dropped(RxDrop::NoMbuf)), (vec![], 1));
    // One that does not reach the dry pool's part goes on.
    device.receive(&frame(2, 14), say(1));
    assert_eq!(receive_all(&mut queue), [expected(&frame(2, 14), say(1))]);
    assert_eq!((heads.in_use(), device.posted()), (16, 16));
    held.clear();
    device.receive(&frame(3, 100), say(1));
    assert_eq!(receive_all(&mut queue).len(), 1);
    drop(queue);
    assert_eq!((heads.in_use(), bodies.in_use()), (0, 0));
}

#[test]
fn a_queue_that_cannot_be_made_gives_all_parts_back() {
    let (enough, few) =
        (named("enough", 256), MbufPool::builder("few", 10).cache(0).build_anonymous().expect("pool"));
    let parts = vec![part(Some(&enough), 0, 14), part(Some(&few), 0, 1504)];
    let (queue, _, _) = try_rig(&plan(parts), &enough);
    let refused = queue.expect_err("too few mbufs").to_string();
    assert!(refused.contains("10 of 16"), "{refused}");
    assert_eq!((enough.in_use(), few.in_use()), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever the parts: what is delivered is what the scalar way delivers, without the bytes of dropped parts; sessions,
    /// errors and wraps as everywhere.
    #[test]
    fn parts_put_together_are_the_packet(
        shape in proptest::collection::vec((1..200_u32, 0..60_u32, any::<bool>()), 1..8),
        rounds in proptest::collection::vec((1..1400_usize, 1..9_usize, any::<bool>()), 1..60),
        enhanced in any::<bool>(), max in 1..9_usize, fails in 0..80_usize,
    ) {
        let (a, b) = (named("a", 1024), named("b", 2048));
        let mut parts: Vec<_> = shape.iter().enumerate().map(|(at, (bytes, offset, dropped))| {
            let pool = if at % 2 == 0 { &a } else { &b };
            part((!dropped).then_some(pool), *offset, *bytes)
        }).collect();
        parts.push(part(Some(&b), 128, 1600));
        let keep = |bytes: &[u8]| {
            let (mut at, mut kept) = (0, Vec::new());
            for part in &parts {
                let end = (at + part.bytes as usize).min(bytes.len());
                if part.pool.is_some() {
                    kept.extend(&bytes[at..end]);
                }
                at = end;
            }
            kept
        };
        let compressed = Some(MiniFormat::Hash);
        let (mut queue, mut device, _) = rig(&Plan { compressed, enhanced, ..plan(parts.clone()) }, &b);
        let control = queue.control();
        for (round, (bytes, count, together)) in rounds.iter().enumerate() {
            let frames: Vec<_> = (0..*count).map(|at| (frame(round + at, bytes + at), say(round))).collect();
            if *together && *count > 1 {
                device.receive_compressed(&frames, MiniFormat::Hash);
            } else {
                frames.iter().for_each(|(frame, say)| device.receive(frame, *say));
            }
            let want: Vec<_> = frames.iter().map(|(frame, say)| (keep(frame), say)).filter(|(kept, _)| !kept.is_empty())
                .map(|(kept, say)| expected(&kept, *say)).collect();
            let mut all = Vec::new();
            while all.len() < want.len() {
                let mut burst = Burst::new();
                prop_assert!(queue.rx_burst(&mut burst, max).packets > 0, "{:?}", control.health().trouble());
                all.extend(got(&burst));
            }
            prop_assert_eq!(all, want);
            prop_assert_eq!(receive_all(&mut queue), []);
            if round == fails {
                device.fail(Syndrome::LOCAL_PROT_ERR);
                queue.rx_burst(&mut Burst::new(), 8);
                let mut parked = control.take().expect("parked");
                parked.drain();
                parked.reset();
                device.reset();
                parked.refill();
                parked.resume();
            }
        }
        drop(queue);
        prop_assert_eq!((a.in_use(), b.in_use()), (0, 0));
    }
}
