//! Memory that nobody told the driver of before a packet brought it.

use pollux_eal::memory::Memory;
use pollux_mempool::MbufPool;
use pollux_mlx5_kernel::DoorProfile;
use pollux_pmd_mlx::{Arguments, Mlx5Port, PortSpec};
use pollux_port::{Port, PortConfig, PortId};

use crate::harness::{A, B, Pair, burst, frame, pool, received};

#[test]
fn memory_of_the_eal_is_registered_when_a_packet_brings_it_if_that_is_asked_for() {
    for (register_met, of_the_eal, passes) in [(true, true, true), (true, false, false), (false, true, false)]
    {
        for devx in [false, true] {
            let pair = Pair::new(DoorProfile::default());
            let memory = Memory::ordinary();
            let arguments = Arguments { register_pools: false, register_met, devx, ..Arguments::default() };
            let spec = PortSpec { memory: memory.clone(), ..pair.a.spec(arguments.clone()) };
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
            let grown = pair.a.device.memory().pinned_bytes() > before;
            assert_eq!(grown, passes, "registered once for all");
            assert_eq!(a.stats().oerrors, if passes { 0 } else { 20 }, "{:?}", a.dropped());
            pair.a.assert_orderly();
            drop((queues_a, a, queues_b, b));
            assert_eq!((known.in_use(), met.in_use(), to.in_use()), (0, 0, 0), "every mbuf is home");
        }
    }
}
