//! What goes wrong: refusals with their lines, queues in error, a device that goes away.

use std::time::Duration;

use pollux_mlx5_abi::command::{opcode, status};
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::fault::{EntryFault, FaultPlan, OddCompletion, Refusal};
use pollux_mlx5_model::time::Clock;
use pollux_mlx5_model::{DeviceConfig, Traits};
use pollux_pmd_mlx::{Arguments, Mlx5Port, Mlx5Spec};
use pollux_port::{
    Direction, Port, PortConfig, PortError, PortEvent, PortId, PortState, QueueId, Queues, RxOffloads,
};

use crate::fault::timed;
use crate::harness::{A, B, Pair, burst, frame, pool, received};

fn faulty(plan: FaultPlan) -> Pair {
    Pair::with(DoorProfile::default(), move |config| DeviceConfig { faults: plan.clone(), ..config })
}

pub(crate) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

/// A way of making objects, with a card whose commands name the state that a queue has, or that takes a kernel's word for it:
/// of a receive work queue mlx5_ib has no other.
fn recoverable(half: Direction) -> Vec<(Arguments, bool)> {
    let [kernel, firmware] = both();
    let mut all = vec![(firmware.clone(), false), (firmware, true), (kernel.clone(), true)];
    if half == Direction::Tx {
        all.push((kernel, false));
    }
    all
}

fn failing(believes_ready: bool, plan: FaultPlan) -> Pair {
    Pair::with(DoorProfile::default(), move |config| {
        let traits = Traits { believes_ready, ..config.traits };
        DeviceConfig { faults: plan.clone(), traits, ..config }
    })
}

fn broken(nth: u64) -> EntryFault {
    EntryFault { nth, syndrome: Syndrome { code: Syndrome::LOCAL_PROT_ERR, vendor: 0x51 } }
}

fn both() -> [Arguments; 2] {
    [Arguments { devx: false, ..Arguments::default() }, Arguments::default()]
}

/// Sends a frame from `a` to `b` and says whether it came.
fn passes(pair: &Pair, pool: &pollux_mempool::MbufPool, a: &mut Queues, b: &mut Queues, number: u32) -> bool {
    let sent = frame(B, A, number, 200);
    let mut one = burst(pool, std::slice::from_ref(&sent));
    a.tx[0].tx_burst(&mut one);
    pair.settle();
    received(b, 0).contains(&sent)
}

fn events(port: &mut Port) -> Vec<PortEvent> {
    std::iter::from_fn(|| port.poll_event()).collect()
}

#[test]
fn a_send_queue_in_error_is_set_to_work_again() {
    for (arguments, believes) in recoverable(Direction::Tx) {
        let plan = FaultPlan { send_errors: vec![broken(5)], ..FaultPlan::default() };
        let pair = failing(believes, plan);
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        {
            let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
            let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
            let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool_b)).expect("up");
            let mut lost = 0;
            for number in 0..40 {
                if !passes(&pair, &pool_a, &mut queues_a, &mut queues_b, number) {
                    lost += 1;
                }
                events(&mut a);
            }
            assert!((1..=4).contains(&lost), "{lost} of 40 lost");
            assert!(passes(&pair, &pool_a, &mut queues_a, &mut queues_b, 99), "it works again");
            let stats = a.stats();
            // What failed is no longer counted as sent; what the queue did not take meanwhile never was.
            assert_eq!((stats.opackets, stats.oerrors, stats.obytes), (41 - lost, 1, (41 - lost) * 200));
            let xstats = a.xstats();
            let value = |name: &str| xstats.iter().find(|stat| stat.name == name).map(|stat| stat.value);
            assert_eq!(value("tx_q0_error_completions"), Some(1));
            assert_eq!(value("tx_q0_recoveries"), Some(1));
            pair.a.assert_orderly();
        }
        assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "every mbuf is home");
    }
}

#[test]
fn a_receive_queue_in_error_is_set_to_work_again() {
    for (arguments, believes) in recoverable(Direction::Rx) {
        let plan = FaultPlan { receive_errors: vec![broken(7)], ..FaultPlan::default() };
        let pair = failing(believes, plan);
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        {
            let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
            let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
            let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool_b)).expect("up");
            let mut seen = Vec::new();
            let came = (0..40).filter(|number| {
                let came = passes(&pair, &pool_a, &mut queues_a, &mut queues_b, *number);
                seen.extend(events(&mut b));
                came
            });
            let came = came.count();
            assert!((36..40).contains(&came), "{came} of 40 came");
            assert!(
                seen.contains(&PortEvent::Recovering) && seen.contains(&PortEvent::Recovered),
                "{seen:?}"
            );
            assert!(passes(&pair, &pool_a, &mut queues_a, &mut queues_b, 99), "it works again");
            let xstats = b.xstats();
            let value = |name: &str| xstats.iter().find(|stat| stat.name == name).map(|stat| stat.value);
            assert_eq!((value("rx_q0_error_completions"), value("rx_q0_recoveries")), (Some(1), Some(1)));
        }
        assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "every mbuf is home");
    }
}

/// Queues that failed and were not looked at since, as the port stops: the driver believes them ready.
#[test]
fn a_queue_that_failed_unseen_stops() {
    for (arguments, believes) in recoverable(Direction::Rx) {
        let plan = FaultPlan {
            send_errors: vec![broken(1)],
            receive_errors: vec![broken(1)],
            ..FaultPlan::default()
        };
        let pair = failing(believes, plan);
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        {
            let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
            let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
            let queues_b = b.bring_up(PortConfig::queues(1, 1, &pool_b)).expect("up");
            for number in 0..2 {
                // The first entry that is sent fails, and all behind it.
                queues_a.tx[0].tx_burst(&mut burst(&pool_a, &[frame(B, A, number, 200)]));
                pair.settle();
            }
            a.tx_queue_stop(QueueId(0)).expect("stops");
            a.tx_queue_start(QueueId(0)).expect("starts");
            queues_a.tx[0].tx_burst(&mut burst(&pool_a, &[frame(B, A, 2, 200)]));
            // Its first entry fails there.
            pair.settle();
            b.rx_queue_stop(QueueId(0)).expect("stops");
            b.rx_queue_start(QueueId(0)).expect("starts");
            let mut queues_b = queues_b;
            assert!(passes(&pair, &pool_a, &mut queues_a, &mut queues_b, 3), "it works again");
            assert_eq!((a.state(), b.state()), (PortState::Started, PortState::Started));
        }
        assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "every mbuf is home");
    }
}

/// A completion of a kind that the queue never gets: the queue is reset, and goes on.
#[test]
fn a_completion_of_an_unknown_kind_resets_its_queue() {
    for half in [Direction::Tx, Direction::Rx] {
        for (arguments, believes) in recoverable(half) {
            let plan = FaultPlan {
                odd_completions: vec![OddCompletion { nth: 3, opcode: 0x7 }],
                ..FaultPlan::default()
            };
            let at = if half == Direction::Tx { "mlx5_model0" } else { "mlx5_model1" };
            let pair = Pair::with(DoorProfile::default(), |config| {
                let traits = Traits { believes_ready: believes, ..config.traits };
                let faults = if config.name == at { plan.clone() } else { FaultPlan::default() };
                DeviceConfig { faults, traits, ..config }
            });
            let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
            {
                let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
                let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
                let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool_b)).expect("up");
                for number in 0..20 {
                    passes(&pair, &pool_a, &mut queues_a, &mut queues_b, number);
                    events(&mut a);
                    events(&mut b);
                }
                assert!(passes(&pair, &pool_a, &mut queues_a, &mut queues_b, 99), "it works again");
                let (port, prefix) =
                    if half == Direction::Tx { (&mut a, "tx_q0_") } else { (&mut b, "rx_q0_") };
                assert_eq!(xstat(port, &format!("{prefix}bad_completions")), 1);
                assert_eq!(xstat(port, &format!("{prefix}recoveries")), 1);
            }
            assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "every mbuf is home");
        }
    }
}

/// Receive work queues of the kernel, on a card that does not take its word.
#[test]
fn a_queue_that_cannot_be_set_to_work_again_says_so_and_keeps_nothing() {
    let plan = FaultPlan { receive_errors: vec![broken(3)], ..FaultPlan::default() };
    let pair = failing(false, plan);
    let [kernel, _] = both();
    let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
    {
        let (mut a, mut b) = (pair.a.open(kernel.clone()), pair.b.open(kernel));
        let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
        let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool_b)).expect("up");
        let came = (0..8).filter(|number| {
            let came = passes(&pair, &pool_a, &mut queues_a, &mut queues_b, *number);
            let _seen = b.stats();
            came
        });
        assert_eq!(came.count(), 2, "what came before");
        let seen = events(&mut b);
        let mattering: Vec<_> = seen.iter().filter(|event| !matches!(event, PortEvent::Link(_))).collect();
        assert_eq!(mattering, [&PortEvent::Recovering, &PortEvent::RecoveryFailed], "told once");
    }
    assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "every mbuf is home");
}

/// Looks at the queues, and again when patience is over.
fn look_twice(port: &mut Port, clock: &Clock) {
    let _seen = port.stats();
    clock.advance(Duration::from_secs(15));
    let _seen = port.stats();
}

fn xstat(port: &mut Port, name: &str) -> u64 {
    port.xstats().iter().find(|stat| stat.name == name).map(|stat| stat.value).expect(name)
}

#[test]
fn a_send_queue_whose_completions_are_lost_is_reset_in_time() {
    for arguments in both() {
        let pair = Pair::with(DoorProfile::default(), |config| {
            let silent = config.name == "mlx5_model0";
            let lose_completion = if silent { 1.0 } else { 0.0 };
            DeviceConfig { faults: FaultPlan { lose_completion, ..FaultPlan::default() }, ..config }
        });
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        let clock = Clock::stepped();
        let (mut a, mut b) = (timed(&pair.a, &clock, arguments.clone()), pair.b.open(arguments));
        let mut queues_a = a.bring_up(PortConfig::queues(0, 1, &pool_a)).expect("up");
        let mut queues_b = b.bring_up(PortConfig::queues(1, 0, &pool_b)).expect("up");
        for round in 1..=2 {
            for number in 0..20 {
                assert!(passes(&pair, &pool_a, &mut queues_a, &mut queues_b, number), "it works");
            }
            assert_eq!(pool_a.in_use(), 20);
            look_twice(&mut a, &clock);
            assert_eq!(pool_a.in_use(), 0, "home");
            assert_eq!(
                events(&mut a),
                [PortEvent::Recovering, PortEvent::Recovered],
                "the application is told"
            );
            assert_eq!((xstat(&mut a, "tx_q0_timeouts"), xstat(&mut a, "tx_q0_recoveries")), (round, round));
            let stats = a.stats();
            assert_eq!((stats.opackets, stats.oerrors), (0, 20 * round), "nobody says that they were sent");
        }
        pair.a.assert_orderly();
    }
}

#[test]
fn what_an_idle_lcore_does_not_fetch_comes_home() {
    for arguments in both() {
        // Each completion comes so late that the packet behind it asks for none.
        let pair = Pair::with(DoorProfile::default(), |config| DeviceConfig {
            faults: FaultPlan { late_completion: (1.0, 5), ..FaultPlan::default() },
            ..config
        });
        let (pool_a, clock) = (pool("a", 2048), Clock::stepped());
        let mut a = timed(&pair.a, &clock, arguments);
        let mut queues = a.bring_up(PortConfig::queues(0, 1, &pool_a)).expect("up");
        for number in 0..2 {
            let mut one = burst(&pool_a, &[frame(B, A, number, 200)]);
            assert_eq!(queues.tx[0].tx_burst(&mut one), 1);
        }
        // The first is fetched, the second asked for, then fetched.
        let mut in_use = Vec::new();
        for _ in 0..3 {
            for _ in 0..10 {
                pair.a.device.step(64);
            }
            look_twice(&mut a, &clock);
            in_use.push(pool_a.in_use());
        }
        assert_eq!(in_use, [1, 1, 0]);
        assert_eq!(events(&mut a), [], "nothing was wrong");
        assert_eq!((xstat(&mut a, "tx_q0_timeouts"), xstat(&mut a, "tx_q0_recoveries")), (0, 0));
        assert_eq!((a.stats().opackets, a.stats().oerrors), (2, 0));
        pair.a.assert_orderly();
    }
}

#[test]
fn packets_without_a_buffer_are_missed() {
    for arguments in both() {
        let pair = Pair::hasty();
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
        let mut config = PortConfig::queues(1, 1, &pool_b);
        config.rx_queues[0].descriptors = 64;
        let mut queues_b = b.bring_up(config).expect("up");
        for number in 0..100 {
            let mut one = burst(&pool_a, &[frame(B, A, number, 64)]);
            assert_eq!(queues_a.tx[0].tx_burst(&mut one), 1);
            pair.settle();
        }
        let came = received(&mut queues_b, 0).len() as u64;
        assert_eq!((came, b.stats().imissed), (64, 36));
    }
}

#[test]
fn a_device_that_goes_away_takes_no_mbuf_with_it() {
    for arguments in both() {
        let pair = Pair::new(DoorProfile::default());
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        {
            let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments.clone()));
            let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
            let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool_b)).expect("up");
            assert!(passes(&pair, &pool_a, &mut queues_a, &mut queues_b, 1));
            pair.a.kernel.remove();
            pair.a.device.remove();
            assert_eq!(events(&mut a).last(), Some(&PortEvent::Removed));
            assert_eq!(a.state(), PortState::Gone);
            let mut one = burst(&pool_a, &[frame(B, A, 2, 64)]);
            assert_eq!(queues_a.tx[0].tx_burst(&mut one), 0, "a burst moves nothing");
            assert_eq!(queues_a.rx[0].rx_burst(&mut pollux_mempool::Burst::new(), 32), 0);
            drop(one);
            let held = pool_a.in_use();
            assert!(held >= 1024, "the receive ring is full: {held}");
            drop(queues_a);
            assert_eq!(pool_a.in_use(), held, "what the device may reach stays");
            let _refused = a.stop();
            drop(a);
            assert_eq!(pool_a.in_use(), 0, "its file is closed");
            drop((queues_b, b));
        }
        assert_eq!(pool_b.in_use(), 0);
        // Another one in its place.
        let pair = Pair::new(DoorProfile::default());
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
        let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool_b)).expect("up");
        assert!(passes(&pair, &pool_a, &mut queues_a, &mut queues_b, 3));
    }
}

#[test]
fn a_link_that_goes_at_one_end_goes_at_the_other() {
    for arguments in both() {
        let pair = Pair::new(DoorProfile::default());
        let pools = (pool("a", 2048), pool("b", 2048));
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pools.0)).expect("up");
        let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pools.1)).expect("up");
        // The first state is an event as well.
        let links = |port: &mut Port| -> Vec<bool> {
            events(port)
                .into_iter()
                .filter_map(|event| if let PortEvent::Link(link) = event { Some(link.up) } else { None })
                .collect()
        };
        pair.settle();
        drop((links(&mut a), links(&mut b)));
        assert!(passes(&pair, &pools.0, &mut queues_a, &mut queues_b, 1));
        for down in [true, false] {
            pair.b.device.set_link(!down);
            pair.settle();
            assert_eq!((links(&mut a), links(&mut b)), (vec![!down], vec![!down]), "both are told once");
            assert_eq!((a.link().up, b.link().up), (!down, !down));
            assert_eq!(passes(&pair, &pools.0, &mut queues_a, &mut queues_b, 2), !down);
        }
        assert_eq!(pair.a.device.port_counters().sent_while_down, 1);
        pair.b.kernel.remove();
        pair.b.device.remove();
        pair.settle();
        assert_eq!(links(&mut a), [false], "a card that is pulled out sends no light");
    }
}

#[test]
fn too_little_locked_memory_is_said_with_the_sum() {
    for arguments in both() {
        let limit = 6 << 20;
        let pair =
            Pair::with(DoorProfile::default(), |config| DeviceConfig { memlock: Some(limit), ..config });
        let large = pool("large", 4096);
        let spec = Mlx5Spec { memlock: Some(limit), ..pair.a.spec(arguments) };
        let driver = Mlx5Port::open(spec).expect("a port");
        let mut port = Port::new(PortId(0), "mlx5_model0", Box::new(driver));
        let error = port.bring_up(PortConfig::queues(1, 1, &large)).expect_err("too much");
        let said = whole(&error);
        assert!(said.contains("KiB of locked memory are needed"), "{said}");
        assert!(said.contains("the limit is 6144 KiB") && said.contains("`ulimit -l "), "{said}");
    }
}

#[test]
fn a_refused_command_is_decoded() {
    let refused = |opcode, arguments: &Arguments| {
        let refusal = Refusal { opcode, nth: 0, status: status::NO_RES_ERR, syndrome: 0x5d0 };
        let pair = faulty(FaultPlan { refusals: vec![refusal], ..FaultPlan::default() });
        let pool = pool("p", 2048);
        let outcome: Result<(), PortError> =
            Mlx5Port::open(pair.a.spec(arguments.clone())).and_then(|driver| {
                let mut port = Port::new(PortId(0), "mlx5_model0", Box::new(driver));
                port.bring_up(PortConfig::queues(2, 1, &pool)).map(drop)
            });
        drop(pair);
        assert_eq!(pool.in_use(), 0, "{opcode:#x}");
        outcome.map_err(|error| whole(&error))
    };
    let [kernel, firmware] = both();
    for code in [
        opcode::CREATE_RQ,
        opcode::CREATE_SQ,
        opcode::CREATE_CQ,
        opcode::CREATE_RQT,
        opcode::CREATE_TIR,
        opcode::MODIFY_RQ,
        opcode::MODIFY_SQ,
    ] {
        let name = opcode::name(code).expect("named");
        let said = refused(code, &firmware).expect_err(name);
        assert!(said.contains(&format!("{name}: NO_RES_ERR (0xf), syndrome 0x5d0")), "{said}");
        // The kernel tells a number alone; what its log would say, the model says.
        let said = refused(code, &kernel).expect_err(name);
        let words = format!("; the firmware said to {name}: NO_RES_ERR (0xf), syndrome 0x5d0: ");
        assert!(said.contains("cannot ") && said.contains(": EAGAIN") && said.contains(&words), "{said}");
    }
    // A transport interface both back ends need: the firmware's gives way to the kernel's, which is refused as well.
    let said = refused(opcode::CREATE_TIS, &firmware).expect_err("refused to both");
    assert!(
        said.contains("cannot create a send queue") && said.contains("CREATE_TIS: NO_RES_ERR (0xf)"),
        "{said}"
    );
}

/// What only one back end needs sends a port to the other.
#[test]
fn a_port_that_is_refused_the_firmwares_objects_has_the_kernels() {
    for (opcode, nth) in [(opcode::CREATE_TIS, 1), (opcode::ALLOC_TRANSPORT_DOMAIN, 2), (0, 0)] {
        let refusal = Refusal { opcode, nth, status: status::NO_RES_ERR, syndrome: 0x5d0 };
        let pair = faulty(FaultPlan { refusals: vec![refusal], ..FaultPlan::default() });
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        let (mut a, mut b) = (pair.a.open(Arguments::default()), pair.b.open(Arguments::default()));
        // What the kernel's objects cannot do tells them apart.
        let joins = a.info().rx_offloads.contains(RxOffloads::TCP_LRO);
        assert_eq!(joins, opcode == 0, "{opcode:#x}");
        let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
        let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool_b)).expect("up");
        assert!(passes(&pair, &pool_a, &mut queues_a, &mut queues_b, 1));
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let open = |door: DoorProfile| {
        let pair = Pair::new(door);
        Mlx5Port::open(pair.a.spec(Arguments { devx: false, ..Arguments::default() }))
            .map(drop)
            .map_err(|error| whole(&error))
    };
    let said = open(DoorProfile { no_net_raw: true, ..DoorProfile::default() }).expect_err("no right");
    assert!(said.contains("CAP_NET_RAW"), "{said}");
}

#[test]
fn an_mtu_beyond_the_queues_is_refused() {
    let pair = Pair::new(DoorProfile::default());
    let pool = pool("p", 4096);
    let mut port = pair.a.open(Arguments::default());
    let queues = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
    let said = whole(&port.set_mtu(1501).expect_err("the queue is for 1500"));
    assert!(
        said.contains("MTU for the rx queues as they are set up") && said.contains("68 to 1500"),
        "{said}"
    );
    port.set_mtu(1400).expect("smaller");
    port.set_mtu(1500).expect("as before");
    port.stop().expect("stopped");
    drop(queues);
    let config = PortConfig { mtu: Some(9000), ..PortConfig::queues(1, 1, &pool) };
    drop(port.bring_up(config).expect("set up for it"));
    assert_eq!(port.mtu().expect("told"), 9000);
}
