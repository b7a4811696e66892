//! A pool that has nothing for a while: the queue starves, is refilled and goes on, and every mbuf comes home.

use pollux_pmd_mlx::{Arguments, Mlx5Port};
use pollux_port::layer::around;
use pollux_port::layer::fault::{FaultPlan, Faults};
use pollux_port::{Port, PortConfig, PortId};

use crate::harness::{A, B, Pair, burst, frame, pool, received};

/// Rounds; a round has two rx calls or more, the last of which finds nothing.
const ROUNDS: u32 = 400;
/// Frames of a round.
const FRAMES: u32 = 16;

#[test]
fn a_queue_whose_pool_runs_empty_goes_on_when_it_is_full_again() {
    for (devx, striding, descriptors) in
        [(false, false, 512), (true, false, 512), (true, false, 64), (true, false, 1024), (true, true, 64)]
    {
        let arguments = Arguments { devx, striding, striding_queues_min: 1, ..Arguments::default() };
        let pair = Pair::hasty();
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 4096));
        let case = format!("devx {devx}, striding {striding}, {descriptors} descriptors");
        {
            let plan = FaultPlan::parse("[pool-empty:41/300,on:rx]").expect("a plan");
            let driver = Mlx5Port::open(pair.b.spec(arguments.clone())).expect("a port");
            let mut b = Port::new(PortId(1), "b", around(Box::new(driver), Faults::new(plan)));
            let mut a = pair.a.open(arguments);
            let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
            let mut config = PortConfig::queues(1, 1, &pool_b);
            config.rx_queues[0].descriptors = descriptors;
            let mut queues_b = b.bring_up(config).expect("up");
            let mut came = Vec::new();
            for round in 0..ROUNDS {
                let sent: Vec<_> =
                    (0..FRAMES).map(|number| frame(B, A, round * FRAMES + number, 200)).collect();
                let mut out = burst(&pool_a, &sent);
                assert_eq!(queues_a.tx[0].tx_burst(&mut out), FRAMES as usize, "{case}");
                pair.settle();
                let got = received(&mut queues_b, 0);
                assert!(got.iter().all(|frame| sent.contains(frame)), "{case}: round {round}");
                came.push(got.len() as u32);
            }
            assert!(came[..20].iter().all(|count| *count == FRAMES), "{case}: {came:?}");
            assert!(came.contains(&0), "{case}: it never ran dry: {came:?}");
            assert!(came[ROUNDS as usize - 20..].iter().all(|count| *count == FRAMES), "{case}: {came:?}");
            assert!(b.stats().rx_nombuf > 0, "{case}: {:?}", b.stats());
        }
        assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "{case}: mbufs that did not come home");
    }
}
