//! Programs that sleep until a packet comes, on a port that bring-up opened, whose device runs on its own thread.

use std::time::{Duration, Instant};

use pollux_bringup::{Bringup, PortRequest};
use pollux_config::CommandLine;
use pollux_eal::event::EventSet;
use pollux_mempool::Burst;
use pollux_port::PortId;

/// Wakes up at the latest after that: a wake-up that is lost is seen.
const LOST: Duration = Duration::from_secs(5);

#[test]
fn the_first_packet_wakes_and_no_wake_up_is_lost() {
    // Slow: each packet finds the queue armed. Fast: packets come between the last burst and the arming.
    for (device, packets) in [
        ("mlx5_model0,wire=source:64:500", 200),
        ("mlx5_model0,wire=source:64:500,dv_flow_en=0", 200),
        ("mlx5_model0,wire=source:64:20000", 4000),
        ("mlx5_model0,wire=source:64:20000,mprq_en=1,rxqs_min_mprq=1", 4000),
    ] {
        let line = CommandLine::parse(["sleeper", "-l", "0", "--vdev", device]).expect("a command line");
        let mut bringup = Bringup::new(&line).expect("an environment");
        let request = PortRequest::new().lcores(1).rx_interrupts(true);
        let (mut queues, _pool) = bringup.start_ports(&[PortId(0)], &request).expect("up");
        let queue = &mut queues[0].rx[0];
        let mut set = EventSet::new().expect("a set");
        set.add(queue.interrupt_fd().expect("configured"), 0).expect("added");
        let (mut received, mut woken) = (0, 0);
        let begun = Instant::now();
        while received < packets {
            queue.enable_interrupt().expect("armed");
            // What came before the arming was not told.
            let fresh = queue.rx_burst(&mut Burst::new(), 32);
            if fresh == 0 {
                let ready = set.wait(Some(LOST)).expect("waits").count();
                assert_eq!(ready, 1, "{device}: asleep beside a packet, {received} came");
                woken += 1;
            }
            queue.disable_interrupt().expect("taken");
            received += fresh;
            loop {
                match queue.rx_burst(&mut Burst::new(), 32) {
                    0 => break,
                    fresh => received += fresh,
                }
            }
        }
        assert!(woken > 0, "{device}: it never slept in {:?}", begun.elapsed());
    }
}

#[test]
fn who_did_not_ask_cannot_sleep_and_is_told() {
    let line = CommandLine::parse(["sleeper", "-l", "0", "--vdev", "mlx5_model0,wire=null"]).expect("a line");
    let mut bringup = Bringup::new(&line).expect("an environment");
    let request = PortRequest::new().lcores(1);
    let (mut queues, _pool) = bringup.start_ports(&[PortId(0)], &request).expect("up");
    let refused = queues[0].rx[0].enable_interrupt().expect_err("not configured").to_string();
    assert!(
        refused.contains("mlx5_model0") && refused.contains("not configured for interrupts"),
        "{refused}"
    );
    let line = CommandLine::parse(["sleeper", "-l", "0", "--vdev", "net_null0"]).expect("a command line");
    let mut bringup = Bringup::new(&line).expect("an environment");
    let request = PortRequest::new().lcores(1).rx_interrupts(true);
    let refused = bringup.start_ports(&[PortId(0)], &request).map(|_| ()).expect_err("none there").line();
    assert!(refused.contains("net_null0") && refused.contains("interrupt"), "{refused}");
}
