//! The loop between null and ring ports asks nobody for memory.
#![expect(unsafe_code, reason = "counts what the global allocator is asked for")]

use pollux_capture::{Interface, Layout as RingLayout, Writer};
use pollux_eal::clock::Clock;
use pollux_mempool::{Burst, MbufPool};
use pollux_port::capture::Tap;
use pollux_port::{Port, PortConfig, PortId, Ports, Queues};
use pollux_port_soft::null::{NullOptions, NullPort};
use pollux_port_soft::ring;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Calls of this thread: the test harness's own thread asks for memory meanwhile. No destructor, so that the allocator
    /// may use it at any time.
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is the system allocator's; only a number is counted beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn forwarding_between_null_and_ring_ports_allocates_nothing() {
    let _slot = pollux_eal::slot::lease().expect("this thread has none yet");
    let pool = MbufPool::builder("allocation", 4096).cache(256).build_anonymous().expect("memory");
    let null = NullPort::new("net_null0", NullOptions::default()).expect("good options");
    let mut null = Port::new(PortId(0), "net_null0", Box::new(null));
    let mut ring = Port::new(PortId(1), "net_ring0", Box::new(ring::looped("net_ring0")));
    let Queues { rx: mut null_rx, tx: mut null_tx } =
        null.bring_up(PortConfig::queues(1, 1, &pool)).expect("comes up");
    let Queues { rx: mut ring_rx, tx: mut ring_tx } =
        ring.bring_up(PortConfig::queues(1, 1, &pool)).expect("comes up");
    let mut burst = Burst::new();
    let mut moved = 0;
    let before = CALLS.get();
    for _ in 0..10_000 {
        null_rx[0].rx_burst(&mut burst, 32);
        ring_tx[0].tx_burst(&mut burst);
        ring_rx[0].rx_burst(&mut burst, 32);
        moved += null_tx[0].tx_burst(&mut burst);
    }
    let after = CALLS.get();
    assert_eq!(moved, 320_000);
    assert_eq!(after, before, "allocations and frees in the loop");
    drop(Box::new(1));
    assert_eq!(CALLS.get(), after + 2, "the counter counts");
}

/// Neither while a capture runs, nor in the bursts in which it begins and ends.
#[test]
fn captured_bursts_allocate_nothing() {
    let _slot = pollux_eal::slot::lease().expect("this thread has none yet");
    let pool = MbufPool::builder("captured", 1024).cache(256).build_anonymous().expect("memory");
    let mut ports = Ports::new();
    let id = ports.add("net_ring0", Box::new(ring::looped("net_ring0"))).expect("added");
    let port = ports.get_mut(id).expect("there");
    let Queues { mut rx, mut tx } = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("comes up");
    let layout = RingLayout::of_bytes(RingLayout::BYTES_MIN).expect("a size");
    let writer = Writer::new(layout).expect("memory").into();
    let interface = Interface { number: 0, snaplen: 100, filter: None };
    let tap = Tap { port: id, interface, writer, clock: Clock::get() };
    let mut burst = Burst::new();
    pool.alloc_up_to(&mut burst, 32);
    burst.iter_mut().for_each(|mbuf| assert!(mbuf.append_slice(&[1; 60])));
    let mut moved = 0;
    let mut forward = || {
        let before = CALLS.get();
        for _ in 0..1000 {
            moved += tx[0].tx_burst(&mut burst);
            rx[0].rx_burst(&mut burst, 32);
        }
        assert_eq!(CALLS.get(), before, "allocations and frees in the loop");
    };
    forward();
    let attached = ports.captures().attach(vec![tap]).expect("room");
    forward();
    drop(attached);
    forward();
    assert_eq!(moved, 96_000);
    assert!(!ports.captures().collect());
}
