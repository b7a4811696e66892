//! Frames from one port to another, through either back end and every kind of door and card.

use std::time::{Duration, Instant};

use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::fault::{EntryFault, FaultPlan};
use pollux_mlx5_model::{DeviceConfig, Traits};
use pollux_pmd_mlx::devargs::{Compression, DoorbellMapping};
use pollux_pmd_mlx::{Arguments, Mlx5Port, Mlx5Spec};
use pollux_port::{Port, PortConfig, PortId, PortState, TxOffloads};

use crate::harness::{A, B, Pair, burst, frame, pool, received};

fn kernel_objects() -> Arguments {
    Arguments { devx: false, ..Arguments::default() }
}

fn exchange(pair: &Pair, arguments: &Arguments, rounds: u32) {
    let (pool_a, pool_b) = (pool("a", 4096), pool("b", 4096));
    {
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments.clone()));
        let config = |pool| PortConfig {
            tx_offloads: TxOffloads::MULTI_SEGS | TxOffloads::CHECKSUM,
            ..PortConfig::queues(2, 2, pool)
        };
        let mut queues_a = a.bring_up(config(&pool_a)).expect("up");
        let mut queues_b = b.bring_up(config(&pool_b)).expect("up");
        for round in 0..rounds {
            let frames: Vec<Vec<u8>> =
                (0..16).map(|number| frame(B, A, round * 16 + number, 60 + number as usize * 90)).collect();
            let queue = round as usize % 2;
            let mut sent = burst(&pool_a, &frames);
            assert_eq!(queues_a.tx[queue].tx_burst(&mut sent), 16, "round {round}");
            pair.settle();
            // No address of layer 3: all to the table's first queue.
            let came = received(&mut queues_b, 0);
            assert_eq!(came.len(), frames.len(), "round {round}");
            assert!(came == frames, "round {round}: a frame was changed");
            let mut back = burst(&pool_b, &frames[..3]);
            assert_eq!(queues_b.tx[queue].tx_burst(&mut back), 3);
            pair.settle();
            assert_eq!(received(&mut queues_a, 0).len(), 0, "not for this port");
        }
        a.stop().expect("stopped");
        b.stop().expect("stopped");
        pair.a.assert_orderly();
        pair.b.assert_orderly();
        drop((queues_a, queues_b));
        a.close().expect("closed");
        b.close().expect("closed");
    }
    assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "every mbuf is home");
}

#[test]
fn frames_pass_through_kernel_objects() {
    exchange(&Pair::new(DoorProfile::default()), &kernel_objects(), 200);
}

#[test]
fn frames_pass_through_firmware_objects() {
    exchange(&Pair::new(DoorProfile::default()), &Arguments::default(), 200);
}

#[test]
fn frames_pass_every_door() {
    let none = DoorProfile::default();
    let doors = [
        ("Linux 5.4", DoorProfile::linux_5_4()),
        ("no INVOKE_WRITE", DoorProfile { no_invoke_write: true, ..none }),
        ("no CQ/CREATE", DoorProfile { no_cq_create: true, ..none }),
        ("no QP/CREATE", DoorProfile { no_qp_create: true, ..none }),
        ("no WQ/CREATE", DoorProfile { no_wq_create: true, ..none }),
        ("no MR/REG_MR", DoorProfile { no_mr_reg: true, ..none }),
        ("no GET_CONTEXT", DoorProfile { no_get_context: true, ..none }),
        ("no UAR/ALLOC", DoorProfile { no_uar_alloc: true, ..none }),
        ("no GID", DoorProfile { no_query_gid: true, ..none }),
        ("no DevX", DoorProfile { no_devx: true, ..none }),
        ("no BlueFlame", DoorProfile { no_blue_flame: true, ..none }),
        ("no BlueFlame, no UAR/ALLOC", DoorProfile { no_blue_flame: true, no_uar_alloc: true, ..none }),
    ];
    for (name, door) in doors {
        for arguments in [kernel_objects(), Arguments::default()] {
            println!("{name}, devx {}", arguments.devx);
            exchange(&Pair::new(door), &arguments, 4);
        }
    }
}

#[test]
fn frames_pass_on_every_card() {
    type Change = fn(&mut Traits);
    let cards: [(&str, Change); 7] = [
        ("layer 2 inline", |traits| {
            traits.needs_inline_l2 = true;
            traits.enhanced_multi_packet = false;
        }),
        ("no multi-packet write", |traits| traits.enhanced_multi_packet = false),
        ("no striding", |traits| traits.striding_rq = false),
        ("no compression", |traits| traits.cqe_compression = false),
        ("no stride in minis", |traits| traits.mini_cqe_stride_index = false),
        ("no DevX", |traits| traits.devx = false),
        ("no BlueFlame", |traits| traits.blue_flame = false),
    ];
    for (name, change) in cards {
        for arguments in [kernel_objects(), Arguments::default()] {
            println!("{name}, devx {}", arguments.devx);
            let pair = Pair::with(DoorProfile::default(), |mut config: DeviceConfig| {
                change(&mut config.traits);
                config
            });
            let arguments = Arguments { striding: true, striding_queues_min: 1, ..arguments };
            exchange(&pair, &arguments, 4);
        }
    }
}

#[test]
fn frames_pass_with_every_argument() {
    let plain = Arguments::default();
    let variants = [
        Arguments { compression: Compression::Off, ..plain.clone() },
        Arguments { compression: Compression::Checksum, ..plain.clone() },
        Arguments { compression: Compression::FlowTag, ..plain.clone() },
        Arguments { enhanced_compression: true, ..plain.clone() },
        Arguments { enhanced_compression: true, rx_vector: false, ..plain.clone() },
        Arguments { enhanced_compression: true, compression: Compression::FlowTag, ..plain.clone() },
        Arguments { enhanced_compression: true, striding: true, striding_queues_min: 1, ..plain.clone() },
        Arguments { striding: true, striding_queues_min: 1, ..plain.clone() },
        Arguments { striding: true, striding_queues_min: 1, striding_copy_max: 2048, ..plain.clone() },
        Arguments { striding: true, striding_queues_min: 1, compression: Compression::Off, ..plain.clone() },
        Arguments { inline_queues_min: 1, ..plain.clone() },
        Arguments { inline_queues_min: 1, multi_packet: Some(false), ..plain.clone() },
        Arguments { inline_min: Some(18), ..plain.clone() },
        Arguments { multi_packet: Some(false), ..plain.clone() },
        Arguments { doorbell: DoorbellMapping::Combining, ..plain.clone() },
        Arguments { doorbell: DoorbellMapping::NonCached, ..plain.clone() },
        Arguments { rx_vector: false, ..plain.clone() },
        Arguments { register_pools: false, ..plain.clone() },
        Arguments { relaxed_ordering: false, ..plain.clone() },
        Arguments { packet_padding: true, ..plain.clone() },
        Arguments { delay_drop: true, ..plain.clone() },
        Arguments { cqe_bytes: 128, ..plain.clone() },
    ];
    for arguments in variants {
        for devx in [false, true] {
            let arguments = Arguments { devx, ..arguments.clone() };
            println!("{arguments:?}");
            exchange(&Pair::new(DoorProfile::default()), &arguments, 4);
        }
    }
}

#[test]
fn a_port_is_watched_on_a_thread_of_its_own() {
    let failing = EntryFault { nth: 3, syndrome: Syndrome { code: Syndrome::LOCAL_PROT_ERR, vendor: 0x51 } };
    let plan = FaultPlan { send_errors: vec![failing], ..FaultPlan::default() };
    let pair = Pair::with(DoorProfile::default(), |config| DeviceConfig { faults: plan.clone(), ..config });
    let pool = pool("p", 4096);
    let spec = Mlx5Spec { watch: true, ..pair.a.spec(Arguments::default()) };
    let mut a = Port::new(PortId(0), "watched", Box::new(Mlx5Port::open(spec).expect("a port")));
    let mut b = pair.b.open(Arguments::default());
    let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
    let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
    let mut came = 0;
    let until = Instant::now() + Duration::from_secs(10);
    for number in 0.. {
        let mut one = burst(&pool, &[frame(B, A, number, 100)]);
        queues_a.tx[0].tx_burst(&mut one);
        pair.settle();
        came = if received(&mut queues_b, 0).is_empty() { 0 } else { came + 1 };
        let recovered = a.xstats().iter().any(|stat| stat.name == "tx_q0_recoveries" && stat.value == 1);
        if recovered && came == 5 {
            break;
        }
        assert!(Instant::now() < until, "nobody set the queue to work again");
        std::thread::sleep(Duration::from_millis(1));
    }
    let first = a.read_clock().expect("a clock");
    pair.settle();
    std::thread::sleep(Duration::from_millis(2));
    pair.a.device.step(1);
    let second = a.read_clock().expect("a clock");
    assert!(first.hz > 0 && second.ticks > first.ticks, "{first:?} {second:?}");
    pair.a.device.set_link(false);
    assert!(!a.link().up);
    pair.a.kernel.remove();
    pair.a.device.remove();
    while a.state() != PortState::Gone {
        assert!(Instant::now() < until, "nobody saw the device go");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!a.link().up);
}
