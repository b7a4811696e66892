//! The loop between null and ring ports asks nobody for memory.
#![expect(unsafe_code, reason = "counts what the global allocator is asked for")]

use pollux_mempool::{Burst, MbufPool};
use pollux_port::{Port, PortConfig, PortId, Queues};
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
