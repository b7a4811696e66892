//! Captures at the queues of ports: what is seen of a burst, and what comes and goes meanwhile.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use pollux_capture::{Counts, Interface, Layout, Reader, Writer};
use pollux_eal::clock::Clock;
use pollux_mempool::{Burst, Mbuf, MbufPool, RxFlags, TxFlags};
use pollux_port::capture::{CAPTURES_MAX, Captures, Tap};
use pollux_port::driver::PortDriver;
use pollux_port::{PortConfig, PortId, Ports, Queues, TxQueueConfig};
use pollux_port_soft::ring;

fn pool() -> MbufPool {
    MbufPool::builder("capture", 1024).build_anonymous().expect("memory")
}

/// A ring of its own at a port, and who reads it.
fn tap(port: u16) -> (Tap, Reader) {
    let layout = Layout::of_bytes(Layout::BYTES_MIN).expect("a size");
    let writer = Writer::new(layout).expect("memory");
    let file: OwnedFd = writer.file().expect("a file").try_clone_to_owned().expect("a descriptor");
    let reader = Reader::of_file(file, layout).expect("mapped");
    let interface = Interface { number: 0, snaplen: 1 << 18, filter: None };
    (Tap { port: PortId(port), interface, writer: Arc::new(writer), clock: Clock::get() }, reader)
}

fn burst(pool: &MbufPool, tags: std::ops::Range<u8>) -> Burst {
    let mut burst = Burst::new();
    for tag in tags {
        let mut mbuf = pool.alloc().expect("enough mbufs");
        assert!(mbuf.append_slice(&[tag; 60]));
        burst.push(mbuf);
    }
    burst
}

/// Direction, queue and first byte of all that was captured.
fn seen(reader: &mut Reader) -> Vec<(bool, u16, u8)> {
    let mut frame = Vec::new();
    let mut seen = Vec::new();
    while let Some(record) = reader.next(&mut frame).expect("not damaged") {
        assert_eq!(frame, [frame[0]; 60]);
        seen.push((record.passage.sent, record.passage.queue, frame[0]));
    }
    reader.release();
    seen
}

/// A port that receives what it sends, and its queues.
fn looped(pool: &MbufPool, queues: usize, descriptors: u16) -> (Ports, Captures, Queues) {
    let mut ports = Ports::new();
    let driver: Box<dyn PortDriver> = Box::new(ring::looped("net_ring0"));
    let id = ports.add("net_ring0", driver).expect("added");
    let tx = TxQueueConfig { descriptors, ..TxQueueConfig::default() };
    let mut config = PortConfig::queues(queues, queues, pool);
    config.tx_queues.fill(tx);
    let queues = ports.get_mut(id).expect("there").bring_up(config).expect("comes up");
    let captures = ports.captures();
    (ports, captures, queues)
}

#[test]
fn both_ways_and_all_queues_from_the_next_burst_on() {
    let pool = pool();
    let (_ports, captures, mut queues) = looped(&pool, 2, 64);
    let mut got = Burst::new();
    queues.tx[0].tx_burst(&mut burst(&pool, 0..3));
    let (one, mut first) = tap(0);
    let attached = captures.attach(vec![one]).expect("room");
    queues.rx[0].rx_burst(&mut got, 32);
    queues.tx[1].tx_burst(&mut burst(&pool, 5..7));
    assert_eq!(seen(&mut first), [(false, 0, 0), (false, 0, 1), (false, 0, 2), (true, 1, 5), (true, 1, 6)]);
    // Another one; and one at a port that there is not.
    let ((other, mut second), (nowhere, mut none)) = (tap(0), tap(7));
    let both = captures.attach(vec![other, nowhere]).expect("room");
    queues.rx[1].rx_burst(&mut got, 1);
    assert_eq!((seen(&mut first), seen(&mut second)), (vec![(false, 1, 5)], vec![(false, 1, 5)]));
    drop(attached);
    queues.rx[1].rx_burst(&mut got, 1);
    assert_eq!((seen(&mut first), seen(&mut second)), (vec![], vec![(false, 1, 6)]));
    drop(both);
    queues.tx[0].tx_burst(&mut burst(&pool, 8..9));
    assert_eq!((seen(&mut second), seen(&mut none)), (vec![], vec![]));
    assert_eq!(second.counts(0), Counts { captured: 2, ..Counts::default() });
}

#[test]
fn of_what_is_sent_that_which_the_driver_took() {
    let pool = pool();
    let (_ports, captures, mut queues) = looped(&pool, 1, 4);
    let (one, mut reader) = tap(0);
    let _attached = captures.attach(vec![one]).expect("room");
    let mut out = burst(&pool, 0..10);
    let took = queues.tx[0].tx_burst(&mut out) as u8;
    assert!((1..10).contains(&took), "the ring is full");
    let expected: Vec<_> = (0..took).map(|tag| (true, 0, tag)).collect();
    assert_eq!(seen(&mut reader), expected);
    assert_eq!(queues.tx[0].tx_burst(&mut out), 0);
    assert_eq!(seen(&mut reader), []);
    assert_eq!(reader.counts(0).captured, u64::from(took));
}

#[test]
fn callbacks_stand_nearer_to_the_application() {
    let pool = pool();
    let (_ports, captures, mut queues) = looped(&pool, 1, 64);
    queues.tx[0].add_callback(Box::new(|burst| burst.retain(|mbuf| mbuf.data()[0] % 2 == 0)));
    queues.rx[0].add_callback(Box::new(|burst, from| {
        while burst.len() > from {
            burst.pop();
        }
    }));
    let (one, mut reader) = tap(0);
    let attached = captures.attach(vec![one]).expect("room");
    let mut got = Burst::new();
    queues.tx[0].tx_burst(&mut burst(&pool, 0..2));
    assert_eq!(queues.rx[0].rx_burst(&mut got, 32), 0, "its callback dropped all");
    assert_eq!(seen(&mut reader), [(true, 0, 0), (false, 0, 0)]);
    drop(attached);
    queues.tx[0].tx_burst(&mut burst(&pool, 0..2));
    assert_eq!(queues.rx[0].rx_burst(&mut got, 32), 0, "callbacks stay");
    assert_eq!(seen(&mut reader), []);
}

#[test]
fn a_port_that_stops_and_starts_is_captured_on() {
    let pool = pool();
    let (mut ports, captures, mut queues) = looped(&pool, 1, 64);
    let (one, mut reader) = tap(0);
    let attached = captures.attach(vec![one]).expect("room");
    queues.tx[0].tx_burst(&mut burst(&pool, 0..1));
    let port = ports.get_mut(PortId(0)).expect("there");
    port.stop().expect("stops");
    queues.tx[0].tx_burst(&mut burst(&pool, 1..2));
    port.start().expect("starts");
    queues.tx[0].tx_burst(&mut burst(&pool, 2..3));
    assert_eq!(seen(&mut reader), [(true, 0, 0), (true, 0, 2)]);
    // Queues made anew take part at once; a port that is closed harms nobody.
    port.stop().expect("stops");
    drop(queues);
    let mut queues = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("comes up again");
    queues.tx[0].tx_burst(&mut burst(&pool, 3..4));
    assert_eq!(seen(&mut reader), [(true, 0, 3)]);
    drop(ports.remove(PortId(0)));
    queues.tx[0].tx_burst(&mut burst(&pool, 4..5));
    assert_eq!(seen(&mut reader), []);
    drop(attached);
}

#[test]
fn a_chain_is_one_frame_and_tags_beside_it_are_put_in() {
    let pool = pool();
    let (_ports, captures, mut queues) = looped(&pool, 1, 64);
    let (one, mut reader) = tap(0);
    let _attached = captures.attach(vec![one]).expect("room");
    let mut chained: Mbuf = pool.alloc().expect("enough");
    assert!(chained.append_slice(&[1; 100]));
    for part in 2..5 {
        let mut tail = pool.alloc().expect("enough");
        assert!(tail.append_slice(&[part; 33]));
        chained.chain(tail).expect("room in the chain");
    }
    chained.set_rx_flags(RxFlags::VLAN_STRIPPED);
    chained.set_vlan_tci(0x2005);
    let mut expected = [&[1; 100][..], &[2; 33], &[3; 33], &[4; 33]].concat();
    let mut out = Burst::new();
    out.push(chained);
    queues.tx[0].tx_burst(&mut out);
    let mut frame = Vec::new();
    let record = reader.next(&mut frame).expect("not damaged").expect("sent");
    assert_eq!((&frame, record.wire_bytes), (&expected, 199), "a tag of another direction");
    queues.rx[0].rx_burst(&mut out, 1);
    expected.splice(12..12, [0x81, 0, 0x20, 5]);
    let record = reader.next(&mut frame).expect("not damaged").expect("received");
    assert_eq!((&frame, record.wire_bytes), (&expected, 203));
    // Two tags to be put in by whoever sends it.
    let mut plain = burst(&pool, 9..10);
    plain[0].set_rx_flags(RxFlags::empty());
    plain[0].set_tx_flags(TxFlags::QINQ);
    plain[0].set_vlan_tci(6);
    plain[0].set_vlan_tci_outer(7);
    queues.tx[0].tx_burst(&mut plain);
    reader.next(&mut frame).expect("not damaged").expect("sent");
    assert_eq!(frame[12..20], [0x88, 0xa8, 0, 7, 0x81, 0, 0, 6]);
    assert_eq!(frame.len(), 68);
}

#[test]
fn a_port_has_so_many_captures_and_no_more() {
    let pool = pool();
    let (_ports, captures, mut queues) = looped(&pool, 1, 64);
    let (taps, mut readers): (Vec<_>, Vec<_>) = (0..CAPTURES_MAX).map(|_| tap(0)).unzip();
    let mut attached: Vec<_> =
        taps.into_iter().map(|tap| captures.attach(vec![tap]).expect("room")).collect();
    assert!(captures.attach(vec![tap(0).0]).is_none());
    queues.tx[0].tx_burst(&mut burst(&pool, 0..1));
    assert!(readers.iter_mut().all(|reader| seen(reader) == [(true, 0, 0)]));
    attached.pop();
    assert!(captures.attach(vec![tap(0).0]).is_some(), "a place is free again");
}

#[test]
fn what_ended_is_freed_once_the_queues_have_looked() {
    let pool = pool();
    let (_ports, captures, mut queues) = looped(&pool, 1, 64);
    let (one, _reader) = tap(0);
    let writer = Arc::downgrade(&one.writer);
    let attached = captures.attach(vec![one]).expect("room");
    let mut got = Burst::new();
    queues.rx[0].rx_burst(&mut got, 1);
    queues.tx[0].tx_burst(&mut got);
    drop(attached);
    assert!(captures.collect() && writer.upgrade().is_some(), "the queues have it");
    queues.rx[0].rx_burst(&mut got, 1);
    queues.tx[0].tx_burst(&mut got);
    assert!(!captures.collect() && writer.upgrade().is_none());
}

/// Captures come and go while lcores poll; nothing is lost of those that stay.
#[test]
fn stress_captures_come_and_go_under_bursts() {
    const BURSTS: u32 = 20_000;
    let pool = pool();
    let (_ports, captures, mut queues) = looped(&pool, 1, 64);
    let (one, mut reader) = tap(0);
    let _stays = captures.attach(vec![one]).expect("room");
    let lcore = std::thread::spawn(move || {
        let mut got = Burst::new();
        for _ in 0..BURSTS {
            queues.tx[0].tx_burst(&mut burst(&pool, 0..1));
            got.clear();
            assert_eq!(queues.rx[0].rx_burst(&mut got, 32), 1);
        }
    });
    let mut count = 0;
    while !lcore.is_finished() {
        drop(captures.attach(vec![tap(0).0]).expect("room"));
        count += seen(&mut reader).len();
    }
    lcore.join().expect("no panic");
    count += seen(&mut reader).len();
    let Counts { captured, dropped, .. } = reader.counts(0);
    assert_eq!((captured, captured + dropped), (count as u64, u64::from(BURSTS) * 2));
    assert!(!captures.collect());
}
