//! Checks of what passes through queues.

use super::{Feed, Fixture, POOL, Received, Rig, config, frame, new_pool, opened, send, tag, whole, works};
use crate::driver::{RxDescriptor, TxDescriptor};
use crate::{PortConfig, PortError, Queues, RxOffloads, RxQueue, TxBuffer, TxQueue};
use pollux_mempool::{BURST_MAX, Burst, HEADROOM, Mbuf, MbufPool};
use std::time::Instant;

/// The port counts what the queues moved, to the packet and the byte.
pub fn stats_add_up(fixture: &dyn Fixture) {
    let (shortest, longest) = fixture.frame_lengths();
    let mut rig = Rig::new(fixture, 2);
    let (mut received, mut bytes_in) = (0, 0);
    let (mut sent, mut bytes_out) = (0, 0);
    for round in 0..8 {
        let length = shortest + (longest - shortest) * round / 7;
        let count = 1 + round * 3;
        let through = rig.feed(count, length);
        sent += through as u64;
        bytes_out += (through * length) as u64;
        if !matches!(rig.feed, Feed::Nothing) {
            let got = rig.receive(count);
            assert_eq!(got.ours.len(), count, "frames of {length} bytes that arrived");
            assert!(
                got.ours
                    .iter()
                    .all(|mbuf| mbuf.segments().map(<[u8]>::len).sum::<usize>() == mbuf.pkt_len() as usize)
            );
            received += got.packets;
            bytes_in += got.bytes;
        }
        if !rig.tx.is_empty() && !matches!(rig.feed, Feed::Loop) {
            let mut burst = rig.burst(count, length);
            assert_eq!(rig.send(&mut burst), count);
            sent += count as u64;
            bytes_out += (count * length) as u64;
        }
    }
    let stats = rig.port.stats();
    assert_eq!((stats.ipackets, stats.ibytes), (received, bytes_in), "received");
    assert_eq!((stats.opackets, stats.obytes), (sent, bytes_out), "sent");
    assert_eq!((stats.oerrors, stats.ierrors, stats.rx_nombuf), (0, 0, 0), "{:?}", rig.port.dropped());
    if let Some(left) = &mut rig.sent {
        let end = Instant::now() + rig.patience;
        let mut seen = 0;
        while seen < sent && Instant::now() < end {
            seen += left().iter().filter(|bytes| tag(bytes).is_some()).count() as u64;
        }
        assert_eq!(seen, sent, "frames that were seen to leave");
    }
    rig.end();
}

/// After traffic both ways nothing is missing from the pool.
pub fn mbufs_come_home(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    for _ in 0..20 {
        rig.feed(16, 200);
        let Received { ours, .. } = rig.receive(16);
        if let Some(queue) = rig.tx.first_mut() {
            let mut burst = Burst::new();
            burst.extend(ours);
            queue.tx_burst(&mut burst);
            // What was not taken is freed here.
        }
    }
    rig.end();
}

/// A full queue takes what fits from the front and leaves the rest in order.
pub fn partial_tx(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    if rig.tx.is_empty() {
        return rig.end();
    }
    let length = 100;
    // Past every queue of the usual size, if nobody takes the packets at the other end.
    for _ in 0..POLLS {
        let mut burst = rig.burst(BURST_MAX, length);
        let first = tag(burst[0].data()).expect("ours");
        let taken = rig.tx[0].tx_burst(&mut burst);
        assert_eq!(taken + burst.len(), BURST_MAX, "taken and left are all there were");
        let left: Vec<u32> = burst.iter().map(|mbuf| tag(mbuf.data()).expect("ours")).collect();
        let rest: Vec<u32> = (first + taken as u32..first + BURST_MAX as u32).collect();
        assert_eq!(left, rest, "the rest, in order");
        if taken < BURST_MAX {
            break;
        }
    }
    let mut none = Burst::new();
    assert_eq!(rig.tx[0].tx_burst(&mut none), 0, "an empty burst moves nothing");
    rig.end();
}

const POLLS: usize = 40;

/// While stopped, live queues move nothing; after a start they go on.
pub fn stop_and_start(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    for _ in 0..3 {
        rig.port.stop().expect("stops");
        if !rig.rx.is_empty() {
            let mut burst = Burst::new();
            assert_eq!(rig.rx[0].rx_burst(&mut burst, 32), 0, "received while stopped");
        }
        if !rig.tx.is_empty() {
            let mut burst = rig.burst(4, 100);
            assert_eq!(rig.tx[0].tx_burst(&mut burst), 0, "sent while stopped");
            assert_eq!(burst.len(), 4, "the caller keeps what was not sent");
        }
        rig.port.start().expect("starts");
        rig.feed(8, 100);
        if !matches!(rig.feed, Feed::Nothing) {
            assert!(rig.receive(8).ours.len() >= 8, "received after the start");
        }
        if !rig.tx.is_empty() && !matches!(rig.feed, Feed::Loop) {
            let mut burst = rig.burst(4, 100);
            assert_eq!(rig.send(&mut burst), 4, "sent after the start");
        }
    }
    rig.end();
}

/// Mbufs and queue values may outlive the port; all comes home in the end.
pub fn close_with_mbufs_out(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    rig.feed(16, 100);
    let out = rig.receive(16).ours;
    rig.feed(16, 100);
    if !rig.tx.is_empty() {
        let mut burst = rig.burst(16, 100);
        rig.tx[0].tx_burst(&mut burst);
    }
    rig.port.stop().expect("stops");
    rig.port.close().expect("closes while queue values live");
    let Rig { mut rx, mut tx, port, pool, .. } = rig;
    drop(port);
    let mut burst = Burst::new();
    assert!(rx.iter_mut().all(|queue| queue.rx_burst(&mut burst, 32) == 0), "received after close");
    let whole_before: Vec<usize> = out.iter().map(|mbuf| whole(mbuf).len()).collect();
    assert!(whole_before.iter().all(|length| *length > 0), "mbufs that are out stay readable");
    burst.extend(out.into_iter().take(BURST_MAX));
    let held = burst.len();
    assert!(tx.iter_mut().all(|queue| queue.tx_burst(&mut burst) == 0), "sent after close");
    assert_eq!(burst.len(), held);
    drop((rx, tx, burst));
    assert_eq!(pool.in_use(), 0, "mbufs that did not come home");
}

/// With the pool empty nothing is received and the loss is counted; with mbufs back, packets come again.
pub fn empty_pool(fixture: &dyn Fixture) {
    let mut rig = Rig::with_pool(fixture, 1, new_pool(super::POOL / 4));
    // On a looped port the sender's mbufs come back: its rx takes none from the pool.
    if rig.rx.is_empty() || matches!(rig.feed, Feed::Loop | Feed::Nothing) {
        return rig.end();
    }
    let mut hoard: Vec<Mbuf> = std::iter::from_fn(|| rig.pool.alloc()).collect();
    let before = rig.port.stats();
    let end = Instant::now() + rig.patience;
    let counted = loop {
        rig.feed(1, 100);
        // Whatever the driver held already may still arrive, and is kept from the pool as well.
        let mut burst = Burst::new();
        rig.rx[0].rx_burst(&mut burst, 32);
        hoard.extend(burst.drain(..));
        let stats = rig.port.stats();
        if stats.rx_nombuf > before.rx_nombuf || stats.imissed > before.imissed {
            break true;
        }
        if Instant::now() > end {
            break false;
        }
    };
    assert!(counted, "an empty pool is counted: {:?}", rig.port.stats());
    hoard.clear();
    rig.feed(4, 100);
    assert!(!rig.receive(4).ours.is_empty(), "packets come again");
    rig.end();
}

/// The shortest and the longest frame pass untouched.
pub fn frame_sizes(fixture: &dyn Fixture) {
    let (shortest, longest) = fixture.frame_lengths();
    let mut rig = Rig::new(fixture, 1);
    for length in [shortest, shortest + 1, (shortest + longest) / 2, longest - 1, longest] {
        let expected = frame(length, rig.next_tag);
        match &rig.feed {
            Feed::Endless(own) => {
                let own = *own;
                let got = rig.receive(1).ours;
                assert_eq!(got[0].pkt_len() as usize, own);
            }
            Feed::Given(_) | Feed::Loop => {
                rig.feed(1, length);
                let got = rig.receive(1).ours;
                assert_eq!(got.len(), 1, "a frame of {length} bytes arrives");
                assert_eq!(whole(&got[0]), expected, "{length} bytes");
            }
            Feed::Nothing => {}
        }
        if rig.sent.is_some() && !matches!(rig.feed, Feed::Loop) {
            let expected = frame(length, rig.next_tag);
            let mut burst = rig.burst(1, length);
            assert_eq!(rig.send(&mut burst), 1, "a frame of {length} bytes is taken");
            let wanted = tag(&expected);
            let end = Instant::now() + rig.patience;
            let mut found = None;
            while found.is_none() && Instant::now() < end {
                let left = rig.sent.as_mut().map(|left| left()).unwrap_or_default();
                found = left.into_iter().find(|bytes| tag(bytes) == wanted);
            }
            assert_eq!(found, Some(expected), "{length} bytes");
        }
    }
    rig.end();
}

/// Descriptor status and queue counts agree where the port tells them.
pub fn descriptor_status(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    let name = rig.port.name().to_owned();
    rig.feed(5, 100);
    if let Some(queue) = rig.rx.first() {
        let count = works(&name, "rx queue count", queue.queue_count());
        let status = works(&name, "rx descriptor status", queue.descriptor_status(0));
        if let (Some(_), Some(_)) = (count, status) {
            let count = queue.queue_count().expect("told before");
            let done =
                (0..count).all(|offset| matches!(queue.descriptor_status(offset), Ok(RxDescriptor::Done)));
            assert!(done, "{count} packets wait, so as many descriptors are done");
        }
        assert!(!queue.burst_mode().is_empty());
    }
    if let Some(queue) = rig.tx.first_mut() {
        let count = works(&name, "tx queue count", queue.queue_count());
        let status = works(&name, "tx descriptor status", queue.descriptor_status(0));
        if let (Some(count), Some(status)) = (count, status) {
            assert!(count > 0 || status == TxDescriptor::Done, "an empty queue has its next descriptor free");
        }
        works(&name, "tx done cleanup", queue.done_cleanup(0));
        assert!(!queue.burst_mode().is_empty());
    }
    drop(rig.receive(5));
    rig.end();
}

/// Two lcores on two queue pairs at once: nothing is lost between them.
pub fn two_lcores(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 2);
    if rig.rx.len() < 2 || rig.tx.len() < 2 {
        return rig.end();
    }
    let frames: Vec<Burst> = (0..2).map(|_| rig.burst(32, 100)).collect();
    let (endless, patience) = (matches!(rig.feed, Feed::Endless(_)), rig.patience);
    let work = |rx: &mut RxQueue, tx: &mut TxQueue, mut burst: Burst| {
        let (mut received, mut sent) = (0_u64, 0_u64);
        for _ in 0..200 {
            sent += send(tx, &mut burst, patience) as u64;
            burst.clear();
            received += rx.rx_burst(&mut burst, 32) as u64;
            if burst.is_empty() && endless {
                break;
            }
        }
        (received, sent)
    };
    let Rig { rx, tx, .. } = &mut rig;
    let (received, sent) = std::thread::scope(|scope| {
        let lcores: Vec<_> = rx
            .iter_mut()
            .zip(tx.iter_mut())
            .zip(frames)
            .map(|((rx, tx), burst)| scope.spawn(move || work(rx, tx, burst)))
            .collect();
        lcores
            .into_iter()
            .map(|lcore| lcore.join().expect("a lcore ends well"))
            .fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    });
    let stats = rig.port.stats();
    assert_eq!((stats.ipackets, stats.opackets), (received, sent));
    rig.end();
}

/// Callbacks see each burst, in order, until they are removed.
pub fn callbacks(fixture: &dyn Fixture) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let mut rig = Rig::new(fixture, 1);
    let (seen_in, seen_out) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    if !matches!(rig.feed, Feed::Nothing) && !rig.rx.is_empty() {
        let seen = Arc::clone(&seen_in);
        let count = rig.rx[0].add_callback(Box::new(move |burst, first| {
            seen.fetch_add(burst.len() - first, Ordering::Relaxed);
        }));
        let drop_all = rig.rx[0].add_callback(Box::new(|burst, first| drop(burst.drain(first..))));
        rig.feed(3, 100);
        let end = Instant::now() + rig.patience;
        let mut burst = Burst::new();
        while seen_in.load(Ordering::Relaxed) < 3 && Instant::now() < end {
            assert_eq!(rig.rx[0].rx_burst(&mut burst, 3), 0, "the second callback dropped them");
        }
        assert!(seen_in.load(Ordering::Relaxed) >= 3, "the first callback saw them");
        assert!(rig.rx[0].remove_callback(count) && rig.rx[0].remove_callback(drop_all));
        assert!(!rig.rx[0].remove_callback(count), "removed twice");
        let before = seen_in.load(Ordering::Relaxed);
        rig.feed(2, 100);
        assert!(rig.receive(2).ours.len() >= 2);
        assert_eq!(seen_in.load(Ordering::Relaxed), before);
    }
    if !rig.tx.is_empty() {
        let seen = Arc::clone(&seen_out);
        let id = rig.tx[0].add_callback(Box::new(move |burst| {
            seen.fetch_add(burst.len(), Ordering::Relaxed);
        }));
        let mut burst = rig.burst(2, 100);
        rig.tx[0].tx_burst(&mut burst);
        assert_eq!(seen_out.load(Ordering::Relaxed), 2);
        assert!(rig.tx[0].remove_callback(id));
    }
    rig.end();
}

/// A tx buffer sends at its size and at a flush, and drops and counts what a stopped port does not take.
pub fn tx_buffer(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    if rig.tx.is_empty() {
        return rig.end();
    }
    let mut buffer = TxBuffer::new(4);
    for place in 1..=5 {
        let mbuf = rig.mbuf(100);
        let sent = buffer.buffer(&mut rig.tx[0], mbuf);
        assert_eq!(sent, if place == 4 { 4 } else { 0 });
    }
    assert_eq!(buffer.flush(&mut rig.tx[0]), 1);
    assert_eq!(buffer.flush(&mut rig.tx[0]), 0);
    rig.port.stop().expect("stops");
    let mbuf = rig.mbuf(100);
    buffer.buffer(&mut rig.tx[0], mbuf);
    assert_eq!(buffer.flush(&mut rig.tx[0]), 0);
    assert_eq!((buffer.dropped(), buffer.len()), (1, 0));
    let caught = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let catch = std::sync::Arc::clone(&caught);
    let mut buffer = TxBuffer::new(1).on_error(Box::new(move |burst| {
        catch.lock().expect("nobody panics with it").extend(burst.pop());
    }));
    let mbuf = rig.mbuf(100);
    assert_eq!(buffer.buffer(&mut rig.tx[0], mbuf), 0);
    assert_eq!((buffer.dropped(), caught.lock().expect("nobody panics with it").len()), (0, 1));
    drop((buffer, caught));
    rig.port.start().expect("starts");
    rig.end();
}

/// Buffers of sent packets are received into again, past the pool, and none that somebody else uses is; or the port says
/// why it does not do that.
pub fn recycle(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    if rig.rx.is_empty() || rig.tx.is_empty() {
        return rig.end();
    }
    let name = rig.port.name().to_owned();
    let mut spare = Burst::new();
    let gives = works(&name, "recycle", rig.tx[0].recycle(&mut spare)).is_some();
    let takes = works(&name, "refill", rig.rx[0].refill(&mut spare)).is_some();
    assert!(spare.is_empty(), "nothing was sent yet");
    if gives {
        let mut burst = rig.burst(8, 100);
        let buffers: Vec<*mut u8> = burst.iter().map(Mbuf::room_ptr).collect();
        assert_eq!(rig.send(&mut burst), 8);
        let end = Instant::now() + rig.patience;
        while spare.len() < 8 && Instant::now() < end {
            rig.tx[0].recycle(&mut spare).expect("it worked before");
        }
        let back: Vec<*mut u8> = spare.iter().map(Mbuf::room_ptr).collect();
        assert_eq!(back, buffers, "what was sent comes back");
        if takes {
            refilled(&mut rig, spare, &buffers);
        } else {
            drop(spare);
        }
        let mut burst = rig.burst(8, 100);
        assert_eq!(rig.send(&mut burst), 8);
        // What nobody fetches goes home with the queue, or when told to.
        works(&name, "tx done cleanup", rig.tx[0].done_cleanup(0));
    }
    rig.port.stop().expect("stops");
    let mut burst = rig.burst(2, 100);
    assert_eq!(rig.rx[0].refill(&mut burst).ok(), Some(0), "taken while stopped");
    assert_eq!((rig.tx[0].recycle(&mut burst).ok(), burst.len()), (Some(0), 2), "given while stopped");
    drop(burst);
    rig.port.start().expect("starts");
    rig.end();
}

/// Of `spare` the rx queue takes all and what is not its to take it leaves; the next packets come in `buffers`.
fn refilled(rig: &mut Rig, mut spare: Burst, buffers: &[*mut u8]) {
    let stranger = new_pool(16).alloc().expect("a fresh pool");
    let shared = rig.mbuf(100);
    let sharer = shared.clone_indirect(&rig.pool).expect("the pool has some left");
    let mut chained = rig.mbuf(100);
    let tail = rig.mbuf(100);
    chained.chain(tail).expect("two make a chain");
    let not_ours = [&stranger, &shared, &chained].map(Mbuf::room_ptr);
    for mbuf in [stranger, shared, chained] {
        spare.push(mbuf);
    }
    assert_eq!(rig.rx[0].refill(&mut spare).ok(), Some(buffers.len()));
    let mut left: Vec<*mut u8> = spare.iter().map(Mbuf::room_ptr).collect();
    left.sort_unstable();
    let mut not_ours = not_ours.to_vec();
    not_ours.sort_unstable();
    assert_eq!(left, not_ours, "another pool's, shared and chained ones stay");
    drop((spare, sharer));
    let free = rig.pool.available();
    rig.feed(buffers.len(), 100);
    let ours = rig.receive(buffers.len()).ours;
    assert_eq!(ours.len(), buffers.len());
    if matches!(rig.feed, Feed::Endless(_)) {
        assert_eq!(rig.pool.available(), free, "the pool was not asked");
    }
    let now: Vec<*mut u8> = ours.iter().map(Mbuf::room_ptr).collect();
    assert!(now.iter().all(|buffer| buffers.contains(buffer)), "received into what was given");
    assert!(ours.iter().all(|mbuf| mbuf.segment_count() == 1 && mbuf.data_len() == mbuf.pkt_len() as usize));
}

/// A frame longer than a buffer arrives as a chain, or in a buffer of the port's own; with scatter off it is dropped and
/// counted; a port without it says so.
pub fn scatter(fixture: &dyn Fixture) {
    let (_, longest) = fixture.frame_lengths();
    let room = 256;
    let pool = MbufPool::builder("small", POOL).data_room(HEADROOM + room);
    let pool = pool.build_anonymous().expect("there is memory for a small pool");
    for on in [None, Some(true), Some(false)] {
        let (mut port, feed, sent) = opened(fixture.open());
        let info = port.info();
        let wanted = PortConfig { scatter: on, ..config(&port, 1, &pool) };
        let offered = info.rx_offloads.contains(RxOffloads::SCATTER);
        if on == Some(true) && !offered {
            let refused = port.configure(wanted);
            assert!(matches!(refused, Err(PortError::Offload { .. })), "{refused:?}");
            continue;
        }
        if on == Some(false) && offered {
            let both = PortConfig { rx_offloads: RxOffloads::SCATTER, ..wanted.clone() };
            let refused = port.configure(both);
            assert!(matches!(refused, Err(PortError::Argument { .. })), "{refused:?}");
        }
        let fed = matches!(feed, Feed::Given(_) | Feed::Loop);
        if !fed || !offered || info.min_rx_room > room {
            continue;
        }
        let Queues { rx, tx } = port.bring_up(wanted).expect("a fresh port comes up");
        let mut rig =
            Rig { rx, tx, port, feed, sent, pool: pool.clone(), patience: fixture.patience(), next_tag: 1 };
        let expected = frame(longest, rig.next_tag);
        match &mut rig.feed {
            Feed::Given(give) => give(&expected),
            _ => {
                let mut first = rig.pool.alloc().expect("the pool has some left");
                let (head, rest) = expected.split_at(room);
                assert!(first.append_slice(head));
                // From the back: hanging something onto one segment is one step.
                let mut tail: Option<Mbuf> = None;
                for piece in rest.chunks(room).rev() {
                    let mut mbuf = rig.pool.alloc().expect("the pool has some left");
                    assert!(mbuf.append_slice(piece));
                    if let Some(behind) = tail.take() {
                        mbuf.chain(behind).expect("a short chain");
                    }
                    tail = Some(mbuf);
                }
                first.chain(tail.expect("the frame is longer than a buffer")).expect("a short chain");
                let mut burst = Burst::new();
                burst.push(first);
                assert_eq!(rig.send(&mut burst), 1);
            }
        }
        rig.next_tag += 1;
        if on == Some(false) {
            // One that fits comes behind it: by then the long one is dropped.
            rig.feed(1, 100);
            let got = rig.receive(1).ours;
            assert_eq!(got.len(), 1, "a frame that fits arrives");
            assert_eq!(got[0].segment_count(), 1);
            assert_eq!(rig.port.xstat("rx_too_long_errors").map(|xstat| xstat.value), Some(1));
            assert_eq!(rig.port.stats().ierrors, 1);
        } else {
            let got = rig.receive(1).ours;
            assert_eq!(got.len(), 1, "a frame longer than a buffer arrives");
            assert!(!got[0].is_plain_of(&rig.pool), "a chain, or a buffer of the port's own");
            assert_eq!(whole(&got[0]), expected);
            assert_eq!(rig.port.stats().ierrors, 0);
        }
        rig.end();
    }
}
