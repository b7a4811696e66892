//! Memory that no pool told the driver of: of the EAL, met in packets; an application's own, told of by the application.
#![expect(unsafe_code, reason = "opens a device")]

use std::ops::Range;
use std::sync::Arc;

use pollux_eal::memory::Memory;
use pollux_mempool::{Burst, External, MbufPool};
use pollux_mlx5_common::context::{Device, Opening};
use pollux_mlx5_common::mr::{Kept, Registry};
use pollux_mlx5_kernel::DoorProfile;
use pollux_pmd_mlx::{Arguments, Mlx5Port, Mlx5Spec};
use pollux_port::{Port, PortConfig, PortId};

use crate::harness::{A, B, Pair, burst, frame, pool, received};

#[test]
fn memory_of_the_eal_is_registered_when_a_packet_brings_it() {
    for (register_regions, of_the_eal) in [(true, true), (true, false), (false, true)] {
        let passes = of_the_eal;
        for devx in [false, true] {
            let pair = Pair::new(DoorProfile::default());
            let memory = Memory::ordinary();
            let arguments =
                Arguments { register_pools: false, register_regions, devx, ..Arguments::default() };
            let spec = Mlx5Spec { memory: memory.clone(), ..pair.a.spec(arguments.clone()) };
            let mut a = Port::new(PortId(0), "mlx5_model0", Box::new(Mlx5Port::open(spec).expect("a port")));
            let mut b = pair.b.open(arguments);
            let (known, to) = (pool("known", 2047), pool("to", 2047));
            let met = MbufPool::builder("met", 255).cache(0);
            let met = if of_the_eal { met.build(&memory) } else { met.build_anonymous() }.expect("a pool");
            let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &known)).expect("up");
            let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &to)).expect("up");
            let before = pair.a.device.memory().pinned_bytes();
            // The two kinds of memory take turns: the look-up's last range is of the other each time.
            for number in 0..20 {
                let sent = [&known, &met].map(|pool| {
                    let sent = frame(B, A, number, 300);
                    let mut one = burst(pool, std::slice::from_ref(&sent));
                    assert_eq!(queues_a.tx[0].tx_burst(&mut one), 1, "taken, whatever comes of it");
                    sent
                });
                pair.settle();
                let came = received(&mut queues_b, 0);
                assert_eq!(came, if passes { &sent[..] } else { &sent[..1] });
            }
            let grown = pair.a.device.memory().pinned_bytes() - before;
            let regions = met.regions();
            let whole = regions.iter().filter_map(|part| part.region.as_ref()).map(|region| region.bytes());
            let whole = whole.max().unwrap_or(0) as u64;
            match (passes, register_regions) {
                (false, _) => assert_eq!(grown, 0),
                (true, true) => assert_eq!(grown, whole, "registered once for all"),
                (true, false) => {
                    assert!((4096..whole).contains(&grown), "{grown} of {whole}: the packets' pages")
                }
            }
            assert_eq!(a.stats().oerrors, if passes { 0 } else { 20 }, "{:?}", a.dropped());
            pair.a.assert_orderly();
            drop((queues_a, a, queues_b, b));
            assert_eq!((known.in_use(), met.in_use(), to.in_use()), (0, 0, 0), "every mbuf is home");
        }
    }
}

#[test]
fn an_applications_own_memory_is_sent_from_while_it_is_registered() {
    const PART: usize = 1500;
    for devx in [false, true] {
        let pair = Pair::new(DoorProfile::default());
        // Pools of other tests are none of this one's.
        let arguments = Arguments { devx, register_pools: false, ..Arguments::default() };
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let (heads, to) = (pool("heads", 2047), pool("to", 2047));
        let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &heads)).expect("up");
        let mut queues_b = b.bring_up(PortConfig::queues(1, 0, &to)).expect("up");
        let mut buffer = External::from(vec![0; 200 * PART]);
        let memory = buffer.memory();
        let before = pair.a.device.memory().pinned_bytes();
        let (mut passed, mut refused) = (0, 0);
        let mut number = 0;
        for registered in [false, true, false, true] {
            if registered {
                a.register_memory(&memory).expect("registered");
                a.register_memory(&memory).expect_err("once is enough");
            } else if number > 0 {
                a.unregister_memory(&memory).expect("unregistered");
            }
            for _ in 0..20 {
                // One of the pool, one of the application's, in turn.
                let sent = [0, 1].map(|more| frame(B, A, number + more, 1400));
                number += 2;
                let mut both = burst(&heads, &sent[..1]);
                let mut mbuf = heads.alloc().expect("an mbuf");
                mbuf.attach_external(buffer.split_to(PART).expect("a part is left")).expect("a fresh mbuf");
                assert!(mbuf.set_data(0, sent[1].len()));
                mbuf.data_mut().expect("its own").copy_from_slice(&sent[1]);
                both.push(mbuf);
                queues_a.tx[0].tx_burst(&mut both);
                assert!(both.is_empty(), "taken, whatever comes of it");
                pair.settle();
                let came = received(&mut queues_b, 0);
                assert_eq!(came, if registered { &sent[..] } else { &sent[..1] });
                passed += came.len() as u64;
                refused += 2 - came.len() as u64;
            }
        }
        let stats = a.stats();
        assert_eq!((stats.opackets, stats.oerrors), (passed, refused));
        let dropped = a.dropped();
        let [only] = &dropped[..] else { panic!("one reason: {dropped:?}") };
        assert_eq!((only.reason, only.packets), ("unregistered memory", refused));
        // What is under way, the application's handles and the port: the last of them frees the memory.
        queues_a.tx[0].tx_burst(&mut Burst::new());
        drop((buffer, memory));
        assert!(pair.a.device.memory().pinned_bytes() - before >= 200 * PART as u64, "still registered");
        pair.a.assert_orderly();
        drop((queues_a, a, queues_b, b));
        assert_eq!((heads.in_use(), to.in_use()), (0, 0), "every mbuf is home");
    }
}

#[test]
fn memory_stays_registered_until_the_last_who_wants_it_gives_it_back() {
    let pair = Pair::new(DoorProfile::default());
    let opening = Opening {
        devx: false,
        relaxed_ordering: false,
        memlock: None,
        address_shift_pages: 0,
        register_regions: true,
        memory: Memory::ordinary(),
        socket: None,
    };
    // SAFETY: what is registered with it is memory that lives on, and nothing is posted.
    let device = unsafe { Device::open(pair.a.kernel.open(), opening) }.expect("a device");
    let pinned = || pair.a.device.memory().pinned_bytes();
    let before = pinned();
    let buffer = External::from(vec![0; 3 * 8192]);
    let memory = buffer.memory();
    let start = memory.base().as_ptr().addr() as u64;
    let all = start..start + memory.bytes() as u64;
    // A pool wants all of it, or a part, before the application or after it.
    for of_others in [all.clone(), start + 100..start + 200] {
        for first in [false, true] {
            let registry = Registry::new(Arc::clone(&device));
            let known =
                |range: &Range<u64>| registry.table().find(range.start, range.end - range.start).is_some();
            if first {
                registry.add(of_others.clone(), Kept::Pool(None)).expect("registered");
            }
            registry.add_external(&memory).expect("registered, or known");
            registry.add_external(&memory).expect("known");
            if !first {
                registry.add(of_others.clone(), Kept::Pool(None)).expect("known");
            }
            for times in ["once", "again"] {
                registry.remove_external(&memory);
                assert!(known(&of_others), "given back {times}: the pool's {of_others:?}, first {first}");
            }
            drop(registry);
            assert_eq!(pinned(), before);
        }
    }
    let registry = Registry::new(device);
    registry.add_external(&memory).expect("registered");
    assert!(registry.table().find(all.start, 1).is_some());
    registry.remove_external(&memory);
    assert!(registry.table().find(all.start, 1).is_none(), "nobody else's");
    assert_eq!(pinned(), before);
}
