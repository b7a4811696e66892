//! A device that is pulled out under load and put back, in one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pollux_bringup::{Bringup, PortRequest, ReceiveRequest};
use pollux_config::CommandLine;
use pollux_eal::clock::Nanos;
use pollux_kit::forward::{Edit, Path};
use pollux_mempool::MbufPool;
use pollux_port::{PortEvent, PortId, PortState};

const IDS: [PortId; 2] = [PortId(0), PortId(1)];
const LIMIT: Duration = Duration::from_secs(20);

/// Starts both ports and forwards between them until `enough`, and for a while after; the pool of that time. Nothing that was
/// received may be missing.
fn forward(
    bringup: &mut Bringup,
    receive: &ReceiveRequest,
    mut enough: impl FnMut(&mut Bringup) -> bool,
) -> MbufPool {
    let request = PortRequest::new().lcores(2).receive(receive.clone());
    let (queues, pool) = bringup.start_ports(&IDS, &request).expect("up");
    let (rx, mut tx): (Vec<_>, Vec<_>) = queues.into_iter().map(|queues| (queues.rx, queues.tx)).unzip();
    tx.reverse();
    for id in IDS {
        bringup.ports.get_mut(id).expect("a port").reset_stats();
    }
    let ends = rx.into_iter().flatten().zip(tx.into_iter().flatten());
    let stop = Arc::new(AtomicBool::new(false));
    let (mut lost, mut launched) = (Vec::new(), Vec::new());
    for (lcore, (rx, tx)) in bringup.eal.lcores().dataplane().into_iter().zip(ends) {
        let mut path = Path::new(rx, tx, Edit::Swap, Nanos(100_000_000));
        lost.push(path.lost());
        let stop = Arc::clone(&stop);
        let work = move |lcore: &pollux_eal::LcoreContext| {
            while !stop.load(Ordering::Relaxed) {
                path.step(lcore);
            }
            path.finish(lcore);
        };
        launched.push(bringup.eal.launch(lcore, work).expect("launched"));
    }
    let end = Instant::now() + LIMIT;
    while !enough(bringup) {
        assert!(Instant::now() < end, "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(50));
    stop.store(true, Ordering::Relaxed);
    for one in launched {
        one.wait().expect("no panic");
    }
    let (mut received, mut gone) = (0, 0);
    for id in IDS {
        let stats = bringup.ports.get_mut(id).expect("a port").stats();
        received += stats.ipackets;
        gone += stats.opackets + stats.oerrors;
    }
    gone += lost.iter().flat_map(|lost| lost.by_reason()).map(|(_, count)| count).sum::<u64>();
    assert_eq!(received, gone, "counters add up");
    assert!(received > 0);
    pool
}

#[test]
fn a_port_that_was_pulled_out_is_opened_again_and_forwards() {
    let whole = ReceiveRequest::default();
    // Two pools of other sizes beside the usual one.
    let parts =
        ReceiveRequest { lengths: vec![14, 20, 0], sizes: vec![256, 512, 2304], ..ReceiveRequest::default() };
    for (objects, receive) in [("dv_flow_en=1", &whole), ("dv_flow_en=0", &whole), ("dv_flow_en=1", &parts)] {
        let ports = [",fault_plan=[remove:100000]", ""];
        let mut args = vec!["reopen".to_owned(), "--lcores".into(), "(0-1)@0".into()];
        for (end, more) in ports.iter().enumerate() {
            args.extend(["--vdev".into(), format!("mlx5_model{end},wire=source:64,{objects}{more}")]);
        }
        let mut bringup = Bringup::new(&CommandLine::parse(args).expect("a line")).expect("opened");
        let mut pools = Vec::new();
        for life in 0..3 {
            let pool = forward(&mut bringup, receive, |bringup| {
                let port = bringup.ports.get_mut(IDS[0]).expect("a port");
                let removed =
                    std::iter::from_fn(|| port.poll_event()).any(|event| event == PortEvent::Removed);
                assert_eq!(removed, port.state() == PortState::Gone, "told when it is seen");
                removed
            });
            pools.push(pool);
            let stopped = bringup.ports.get_mut(IDS[1]).expect("a port").stop();
            stopped.expect("the other one goes on");
            bringup.reopen(IDS[0]).expect("open again");
            let port = bringup.ports.get(IDS[0]).expect("a port");
            assert_eq!((port.name(), port.state()), ("mlx5_model0", PortState::Unconfigured), "life {life}");
        }
        drop(bringup);
        for pool in pools {
            assert_eq!(pool.in_use(), 0, "every mbuf is home");
        }
    }
}
