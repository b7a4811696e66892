//! Captures at the queues of ports: what is seen of a burst, and what comes and goes meanwhile.

#[path = "tagged/burst.rs"]
mod tagged;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pollux_capture::{Counts, Interface, Layout, Reader, Writer};
use pollux_eal::clock::Clock;
use pollux_mempool::{Burst, Mbuf, MbufPool, RxFlags, TxFlags};
use pollux_port::capture::{CAPTURES_MAX, Captures, Tap};
use pollux_port::driver::PortDriver;
use pollux_port::{PortConfig, PortId, Ports, Queues, TxQueue, TxQueueConfig};
use pollux_port_soft::null::{NullOptions, NullPort};
use pollux_port_soft::ring;
use tagged::burst;

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
    // Another one, and none at a port that there is not.
    let (other, mut second) = tap(0);
    let error = captures.attach(vec![tap(7).0]).expect_err("there is no port 7");
    assert_eq!(error.to_string(), "no port 7; ports: 0");
    let both = captures.attach(vec![other]).expect("room");
    queues.rx[1].rx_burst(&mut got, 1);
    assert_eq!((seen(&mut first), seen(&mut second)), (vec![(false, 1, 5)], vec![(false, 1, 5)]));
    drop(attached);
    queues.rx[1].rx_burst(&mut got, 1);
    assert_eq!((seen(&mut first), seen(&mut second)), (vec![], vec![(false, 1, 6)]));
    drop(both);
    queues.tx[0].tx_burst(&mut burst(&pool, 8..9));
    assert_eq!(seen(&mut second), []);
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
    // Tried again and again, it takes no room of the ring, which would have no more after some 400 times.
    for _ in 0..4000 {
        assert_eq!(queues.tx[0].tx_burst(&mut out), 0);
    }
    queues.rx[0].rx_burst(&mut Burst::new(), 32);
    assert_eq!(seen(&mut reader).len(), usize::from(took));
    let counts = reader.counts(0);
    assert_eq!((counts.captured, counts.dropped), (2 * u64::from(took), 0));
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
    assert!(captures.attach(vec![tap(0).0]).is_err());
    queues.tx[0].tx_burst(&mut burst(&pool, 0..1));
    assert!(readers.iter_mut().all(|reader| seen(reader) == [(true, 0, 0)]));
    attached.pop();
    assert!(captures.attach(vec![tap(0).0]).is_ok(), "a place is free again");
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

/// Neither by a queue that is polled nor by one that is not: its next burst is seen, and none after the end.
#[test]
fn a_queue_that_is_not_polled_is_not_waited_for() {
    let pool = pool();
    let (_ports, captures, mut queues) = looped(&pool, 2, 64);
    queues.tx[0].tx_burst(&mut burst(&pool, 0..1));
    let (one, mut reader) = tap(0);
    let attached = captures.attach(vec![one]).expect("room");
    assert!(!captures.collect(), "what queues have of the time before captures holds no memory");
    queues.tx[0].tx_burst(&mut burst(&pool, 1..2));
    drop(attached);
    queues.tx[1].tx_burst(&mut burst(&pool, 2..3));
    assert_eq!(seen(&mut reader), [(true, 0, 1)]);
}

/// A burst that has begun is waited for, and is none of the capture's.
#[test]
fn bursts_under_way_end_before_a_capture_begins_and_ends() {
    let pool = pool();
    let (_ports, captures, mut queues) = looped(&pool, 1, 64);
    let (entered, inside) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(AtomicBool::new(false));
    let last = Arc::clone(&ended);
    // Each burst stands still until it is let go.
    queues.tx[0].add_callback(Box::new(move |_| {
        entered.send(()).expect("the test waits");
        may_go.recv().expect("the test lets it go");
        last.store(true, Ordering::Relaxed);
    }));
    let lcore = std::thread::spawn(move || {
        for tag in 0..3 {
            queues.tx[0].tx_burst(&mut burst(&pool, tag..tag + 1));
        }
    });
    let (one, mut reader) = tap(0);
    inside.recv().expect("the first burst");
    let let_go = |go: &std::sync::mpsc::Sender<()>| {
        ended.store(false, Ordering::Relaxed);
        let go = go.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            go.send(()).expect("it waits");
        })
    };
    let going = let_go(&go);
    let attached = captures.attach(vec![one]).expect("room");
    assert!(ended.load(Ordering::Relaxed), "the first burst was waited for");
    going.join().expect("no panic");
    inside.recv().expect("the second burst");
    let going = let_go(&go);
    drop(attached);
    assert!(ended.load(Ordering::Relaxed), "the second burst was waited for");
    assert_eq!(seen(&mut reader), [(true, 0, 1)], "the second burst, whole when its capture has ended");
    going.join().expect("no panic");
    inside.recv().expect("the third burst");
    go.send(()).expect("it waits");
    lcore.join().expect("no panic");
    assert_eq!(seen(&mut reader), []);
}

/// A number that goes to another port takes no capture along; a device that is opened again does.
#[test]
fn a_capture_is_of_a_port_and_not_of_its_number() {
    let pool = pool();
    let (mut ports, captures, mut queues) = looped(&pool, 1, 64);
    let (one, mut reader) = tap(0);
    let writer = Arc::downgrade(&one.writer);
    let attached = captures.attach(vec![one]).expect("room");
    queues.tx[0].tx_burst(&mut burst(&pool, 0..1));
    drop(queues);
    let put_back = |ports: &mut Ports, name: &str| {
        ports.put_back(PortId(0), name, Box::new(ring::looped(name))).expect("its number is free");
        let port = ports.get_mut(PortId(0)).expect("there");
        port.bring_up(PortConfig::queues(1, 1, &pool)).expect("comes up")
    };
    drop(ports.remove_to_reopen(PortId(0)).expect("there"));
    let mut queues = put_back(&mut ports, "net_ring0");
    queues.tx[0].tx_burst(&mut burst(&pool, 1..2));
    assert_eq!(seen(&mut reader), [(true, 0, 0), (true, 0, 1)], "the same device");
    // One that is alive yet, outside of the registry.
    let alone = ports.remove(PortId(0)).expect("there");
    queues.tx[0].tx_burst(&mut burst(&pool, 2..3));
    drop((queues, alone));
    let mut queues = put_back(&mut ports, "net_ring1");
    queues.tx[0].tx_burst(&mut burst(&pool, 3..4));
    assert_eq!(seen(&mut reader), [], "another device");
    // Its places are its own.
    let (taps, mut readers): (Vec<_>, Vec<_>) = (0..CAPTURES_MAX).map(|_| tap(0)).unzip();
    let others: Vec<_> = taps.into_iter().map(|tap| captures.attach(vec![tap]).expect("room")).collect();
    drop(attached);
    assert!(!captures.collect() && writer.upgrade().is_none());
    queues.tx[0].tx_burst(&mut burst(&pool, 4..5));
    assert!(readers.iter_mut().all(|reader| seen(reader) == [(true, 0, 4)]));
    drop(others);
}

/// Each burst that begins once `attach` has returned is captured, and none that begins once the end has.
#[test]
fn stress_captures_begin_and_end_exactly() {
    let pool = pool();
    let mut ports = Ports::new();
    let null = NullPort::new("net_null0", NullOptions::default()).expect("a driver");
    let id = ports.add("net_null0", Box::new(null)).expect("added");
    let config = PortConfig::queues(0, 2, &pool);
    let Queues { tx, .. } = ports.get_mut(id).expect("there").bring_up(config).expect("comes up");
    let captures = ports.captures();
    let stop = Arc::new(AtomicBool::new(false));
    let announced: Arc<[AtomicU64; 2]> = Arc::default();
    let lcore = |mut tx: TxQueue| {
        let (stop, announced, pool) = (Arc::clone(&stop), Arc::clone(&announced), pool.clone());
        std::thread::spawn(move || {
            let announced = &announced[usize::from(tx.queue().0)];
            while !stop.load(Ordering::Relaxed) {
                announced.fetch_add(1, Ordering::SeqCst);
                assert_eq!(tx.tx_burst(&mut burst(&pool, 0..1)), 1);
            }
        })
    };
    let lcores: Vec<_> = tx.into_iter().map(lcore).collect();
    let now = || [0, 1].map(|queue: usize| announced[queue].load(Ordering::SeqCst));
    for _ in 0..200 {
        let (one, reader) = tap(0);
        let attached = captures.attach(vec![one]).expect("room");
        let since = now();
        while now().iter().zip(since).any(|(now, since)| *now < since + 3) {
            std::thread::yield_now();
        }
        let until = now();
        drop(attached);
        let Counts { captured, dropped, .. } = reader.counts(0);
        // That which was announced last before may have begun before, and the last one after the end.
        let least: u64 = until.iter().zip(since).map(|(until, since)| until - since - 1).sum();
        assert!(captured + dropped >= least, "{captured} and {dropped} of {least} bursts or more");
        let ended = now();
        while now().iter().zip(ended).any(|(now, ended)| *now < ended + 2) {
            std::thread::yield_now();
        }
        assert_eq!(reader.counts(0), Counts { captured, dropped, filtered: 0 }, "after the end");
    }
    stop.store(true, Ordering::Relaxed);
    lcores.into_iter().for_each(|lcore| lcore.join().expect("no panic"));
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
