//! Sleeping until a packet comes.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use pollux_eal::event::EventSet;
use pollux_mempool::Burst;
use pollux_mlx5_kernel::DoorProfile;
use pollux_pmd_mlx::Arguments;
use pollux_port::{PortConfig, RxQueue};

use crate::harness::{A, B, Pair, burst, frame, pool};

/// Whether the queue's descriptor becomes readable, and after how long.
fn woken(queue: &RxQueue, longest: Duration) -> Option<Duration> {
    readable(queue.interrupt_fd().expect("configured"), longest)
}

fn readable(descriptor: BorrowedFd<'_>, longest: Duration) -> Option<Duration> {
    let mut set = EventSet::new().expect("a set");
    set.add(descriptor, 7).expect("added");
    let begun = Instant::now();
    let ready = set.wait(Some(longest)).expect("waits").count();
    (ready > 0).then(|| begun.elapsed())
}

fn fetched(queue: &mut RxQueue) -> usize {
    queue.rx_burst(&mut Burst::new(), 32)
}

const NEVER: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(10);

#[test]
fn an_armed_queue_wakes_who_sleeps_once_for_each_arming() {
    for devx in [false, true] {
        let arguments = Arguments { devx, ..Arguments::default() };
        let pair = Pair::new(DoorProfile::default());
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut sender = a.bring_up(PortConfig::queues(0, 1, &pool_a)).expect("up");
        let config = PortConfig { rx_interrupts: true, ..PortConfig::queues(1, 0, &pool_b) };
        let mut receiver = b.bring_up(config).expect("up");
        let queue = &mut receiver.rx[0];
        let mut send = |number| {
            let mut one = burst(&pool_a, &[frame(B, A, number, 100)]);
            assert_eq!(sender.tx[0].tx_burst(&mut one), 1);
            pair.settle();
        };

        send(1);
        assert_eq!(woken(queue, NEVER), None, "nobody asked");
        assert_eq!(fetched(queue), 1);

        queue.enable_interrupt().expect("armed");
        assert_eq!(woken(queue, NEVER), None, "nothing has come");
        let (asleep, pause) = (Instant::now(), Duration::from_millis(30));
        std::thread::scope(|scope| {
            let descriptor = queue.interrupt_fd().expect("configured");
            let sleeper = scope.spawn(move || readable(descriptor, LONG));
            std::thread::sleep(pause);
            send(2);
            assert!(sleeper.join().expect("no panic").is_some(), "a packet wakes it");
        });
        assert!(asleep.elapsed() >= pause && asleep.elapsed() < LONG);
        assert_eq!(fetched(queue), 1, "and it is there");

        // Armed once, it tells once.
        queue.disable_interrupt().expect("taken");
        send(3);
        assert_eq!(woken(queue, NEVER), None, "not armed again");

        // What came before the arming and was not fetched is told at once: nobody sleeps beside a packet.
        queue.enable_interrupt().expect("armed");
        assert!(woken(queue, LONG).is_some());
        assert_eq!(fetched(queue), 1);
        for number in 4..20 {
            queue.enable_interrupt().expect("armed");
            assert_eq!(woken(queue, Duration::ZERO), None, "all is fetched");
            send(number);
            assert!(woken(queue, LONG).is_some(), "arming {number}");
            assert_eq!(fetched(queue), 1);
        }

        // A stopped queue tells nothing; started, it can be armed as before.
        queue.disable_interrupt().expect("taken");
        b.rx_queue_stop(queue.queue()).expect("stops");
        queue.enable_interrupt().expect("nothing to arm");
        send(20);
        assert_eq!(woken(queue, NEVER), None);
        b.rx_queue_start(queue.queue()).expect("starts");
        queue.enable_interrupt().expect("armed");
        send(21);
        assert!(woken(queue, LONG).is_some());
        assert_eq!(fetched(queue), 1);
        pair.b.assert_orderly();
    }
}
