//! l2fwd's loop on null and ring ports asks for no memory.
#![expect(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use pollux_bringup::{Bringup, PortRequest};
use pollux_config::CommandLine;
use pollux_kit::forward::{self, Edit, Path};
use pollux_port::{MacAddress, PortId};

thread_local! {
    /// Requests of this thread; no destructor, so that the allocator may use it at any time.
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is done by `System`, which keeps the contract; counting touches no memory of the heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTS.set(REQUESTS.get() + 1);
        // SAFETY: the caller's layout, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        REQUESTS.set(REQUESTS.get() + 1);
        // SAFETY: the caller's memory, which came from `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Packets that the two ports received, and requests that the lcore made meanwhile.
fn forwarded(devices: [&str; 2], edit: Edit) -> (u64, u64) {
    let args = ["test", "-l", "0", "--no-huge", "--vdev", devices[0], "--vdev", devices[1]];
    let line = CommandLine::parse(args).expect("a command line");
    let mut bringup = Bringup::new(&line).expect("ports");
    let ids = [PortId(0), PortId(1)];
    let request = PortRequest::new().lcores(1);
    let (queues, pool) = bringup.start_ports(&ids, &request).expect("queues");
    let [mut a, mut b] = queues.try_into().expect("two ports");
    let patience = pollux_eal::clock::Nanos(1_000_000);
    let mut paths = [
        Path::new(a.rx.remove(0), b.tx.remove(0), edit, patience),
        Path::new(b.rx.remove(0), a.tx.remove(0), edit, patience),
    ];
    for path in &mut paths {
        let mut burst = pollux_mempool::Burst::new();
        assert!(pool.alloc_burst(&mut burst, 32));
        burst.iter_mut().for_each(|mbuf| assert!(mbuf.append(64).is_some()));
        path.send(&mut burst);
    }
    let main = bringup.eal.lcores().main();
    let work = move |lcore: &pollux_eal::LcoreContext| {
        let before = REQUESTS.get();
        forward::run(lcore, &mut paths);
        REQUESTS.get() - before
    };
    let launched = bringup.eal.launch(main, work).expect("an lcore");
    std::thread::sleep(Duration::from_millis(100));
    bringup.eal.stop_flag().set();
    let requests = launched.wait().expect("no panic");
    let packets = bringup.ports.iter_mut().map(|port| port.stats().ipackets).sum();
    (packets, requests)
}

#[test]
fn forwarding_asks_for_no_memory() {
    let rewrite = Edit::l2fwd(1, MacAddress([2, 0, 0, 0, 0, 9]));
    for devices in [["net_null0", "net_null1"], ["net_ring0", "net_ring1"]] {
        for edit in [Edit::Keep, rewrite, Edit::Swap] {
            let (packets, requests) = forwarded(devices, edit);
            assert!(packets > 10_000, "{devices:?}: only {packets} packets");
            assert_eq!(requests, 0, "{devices:?}, {edit:?}, {packets} packets");
        }
    }
}
