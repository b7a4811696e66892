//! The driver under every fault that the model can inject, by chance from seeds that are printed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pollux_bringup::ModelNetdev;
use pollux_eal::memory::Memory;
use pollux_mempool::MbufPool;
use pollux_mlx5_abi::command::{opcode, status};
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::fault::{EntryFault, FaultPlan, Flap, Moment, Refusal};
use pollux_mlx5_model::time::{Clock, STEP};
use pollux_mlx5_model::wire::{Cable, Impaired, Impairments};
use pollux_mlx5_model::{DeviceConfig, Model, Traits, Visibility, watch};
use pollux_pmd_mlx::PortClock;
use pollux_pmd_mlx::devargs::Compression;
use pollux_pmd_mlx::{Arguments, Mlx5Port, Mlx5Spec};
use pollux_port::{Port, PortConfig, PortError, PortEvent, PortId, PortState, Queues, RxOffloads, RxSegment};
use pollux_uverbs::Channel;

use crate::harness::{A, B, Pair, Station, burst, config, frame, pool, received};
use crate::trouble::whole;

/// Runs that repeat, and one that does not; or the one of `POLLUX_SEED`.
pub(crate) fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let wanted = std::env::var("POLLUX_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    (1..=count).chain([now]).map(move |seed| wanted.unwrap_or(seed)).take(if wanted.is_some() {
        1
    } else {
        usize::MAX
    })
}

/// Numbers that look like chance and follow from a seed.
#[derive(Debug)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    pub(crate) fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn entries(&mut self) -> Vec<EntryFault> {
        (0..self.below(4))
            .map(|_| EntryFault {
                nth: 1 + self.below(400),
                syndrome: Syndrome {
                    code: Syndrome::KNOWN[self.below(Syndrome::KNOWN.len() as u64) as usize],
                    vendor: self.below(256) as u8,
                },
            })
            .collect()
    }

    /// What goes wrong in one device.
    fn plan(&mut self) -> FaultPlan {
        FaultPlan {
            seed: self.below(1 << 30),
            lose_completion: if self.one_in(2) { 0.02 } else { 0.0 },
            late_completion: if self.one_in(2) { (0.1, 1 + self.below(30) as u32) } else { (0.0, 0) },
            send_errors: self.entries(),
            receive_errors: self.entries(),
            flaps: (0..self.below(3))
                .map(|_| Flap {
                    at: Moment::Packets(self.below(2000)),
                    lasting: Moment::Packets(1 + self.below(40)),
                })
                .collect(),
            ..FaultPlan::default()
        }
    }

    /// What goes wrong between them.
    fn impairments(&mut self) -> Impairments {
        if self.one_in(2) {
            return Impairments::default();
        }
        Impairments {
            loss: 0.05,
            reorder: 0.05,
            dup: 0.05,
            corrupt: 0.05,
            delay: Duration::from_micros(self.below(3)),
            seed: self.below(1 << 30),
        }
    }

    /// A way of moving packets.
    pub(crate) fn arguments(&mut self) -> Arguments {
        Arguments {
            devx: self.one_in(2),
            compression: if self.one_in(2) { Compression::Hash } else { Compression::Off },
            striding: self.one_in(3),
            striding_queues_min: 1,
            rx_vector: !self.one_in(3),
            multi_packet: Some(!self.one_in(3)),
            inline_queues_min: if self.one_in(2) { 1 } else { 8 },
            enhanced_compression: self.one_in(2),
            ..Arguments::default()
        }
    }
}

/// How far time goes from one look at the queues to the next: four of them are longer than a port is patient.
const BETWEEN_LOOKS: Duration = Duration::from_secs(4);

/// Events of both ports; the control halves look after their queues meanwhile.
fn look(clock: &Clock, ports: [&mut Port; 2]) {
    clock.advance(BETWEEN_LOOKS);
    for port in ports {
        while port.poll_event().is_some() {}
        port.stats();
    }
}

/// A port that goes by a clock of the test's.
pub(crate) fn timed(station: &Station, clock: &Clock, arguments: Arguments) -> Port {
    let clock = clock.clone();
    let spec = Mlx5Spec { clock: PortClock::of(move || clock.now()), ..station.spec(arguments) };
    Port::new(PortId(0), station.device.name(), Box::new(Mlx5Port::open(spec).expect("a port")))
}

#[test]
fn under_every_fault_frames_are_right_counted_and_buffers_come_home() {
    for seed in seeds(40) {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (plans, impairments) = ([chance.plan(), chance.plan()], chance.impairments());
        let arguments = chance.arguments();
        println!("seed {seed}: {plans:?}, {impairments:?}, {arguments:?}");
        let clock = Clock::stepped();
        let (left, right) = Cable::pair();
        let left = Impaired::new(Box::new(left), impairments, &clock);
        let [plan_a, plan_b] = plans;
        // Work queues of the kernel come back where the card takes its word alone; others on any card.
        let believes_ready = !arguments.devx || seed % 2 == 0;
        let make = |name, last, faults| {
            let traits = Traits { believes_ready, ..Traits::default() };
            DeviceConfig { faults, traits, clock: clock.clone(), ..config(name, last) }
        };
        let pair = Pair {
            a: Station::new(make("mlx5_model0", 1, plan_a), left, DoorProfile::default()),
            b: Station::new(make("mlx5_model1", 2, plan_b), right, DoorProfile::default()),
        };
        let pair = if seed % 3 == 0 { pair } else { pair.seen(Visibility::AnyOrder(seed)) };
        let step = |count| {
            for _ in 0..count {
                clock.advance(STEP);
                pair.a.device.step(64);
                pair.b.device.step(64);
            }
        };
        let (pool_a, pool_b) = (pool("a", 2047), pool("b", 4095));
        let heads =
            MbufPool::builder("heads", 1023).data_room(256).cache(0).build_anonymous().expect("a pool");
        let split = chance.one_in(3);
        {
            let [mut a, mut b] = [&pair.a, &pair.b].map(|station| timed(station, &clock, arguments.clone()));
            let small = |pool| {
                let mut config = PortConfig::queues(1, 1, pool);
                (config.rx_queues[0].descriptors, config.tx_queues[0].descriptors) = (64, 64);
                config
            };
            let mut queues_a = a.bring_up(small(&pool_a)).expect("up");
            let mut config = small(&pool_b);
            if split {
                let part =
                    |pool: &MbufPool, length| RxSegment { pool: Some(pool.clone()), length, offset: 0 };
                config.rx_offloads = RxOffloads::BUFFER_SPLIT;
                config.rx_queues[0].segments = vec![part(&heads, 18), part(&heads, 100), part(&pool_b, 0)];
            }
            let mut queues_b = b.bring_up(config).expect("up");
            let (mut number, mut taken, mut last, mut came) = (0, 0, None, 0);
            let mut check = |frames: Vec<Vec<u8>>| {
                came += frames.len() as u64;
                if !impairments.is_none() {
                    return;
                }
                for got in frames {
                    let number = u32::from_be_bytes(got[14..18].try_into().expect("four bytes"));
                    assert_eq!(got, frame(B, A, number, got.len()), "a frame was changed");
                    assert!(last < Some(number), "{number} came after {last:?}");
                    last = Some(number);
                }
            };
            for round in 0..120 {
                let bytes = 60 + chance.below(1400) as usize;
                let frames: Vec<Vec<u8>> = (0..1 + chance.below(32))
                    .map(|_| {
                        number += 1;
                        frame(B, A, number, bytes)
                    })
                    .collect();
                let mut sent = burst(&pool_a, &frames);
                taken += queues_a.tx[0].tx_burst(&mut sent) as u64;
                step(1 + chance.below(6));
                check(received(&mut queues_b, 0));
                if round % 4 == 0 {
                    look(&clock, [&mut a, &mut b]);
                }
            }
            // What is planned has happened; a frame gets through again, if the wire lets it.
            let mut works = false;
            for _ in 0..200 {
                number += 1;
                let sent = frame(B, A, number, 200);
                taken += queues_a.tx[0].tx_burst(&mut burst(&pool_a, std::slice::from_ref(&sent))) as u64;
                step(40);
                look(&clock, [&mut a, &mut b]);
                let frames = received(&mut queues_b, 0);
                works |= frames.contains(&sent);
                check(frames);
                if works {
                    break;
                }
            }
            let told = |port: &mut Port| {
                let counts: Vec<_> = port.xstats().into_iter().filter(|stat| stat.value != 0).collect();
                format!("{:?} {counts:?}", port.link())
            };
            assert!(works, "nothing passes any more: {} {}", told(&mut a), told(&mut b));
            step(60);
            look(&clock, [&mut a, &mut b]);
            check(received(&mut queues_b, 0));
            let (sender, receiver) = (a.stats(), b.stats());
            assert_eq!(sender.opackets + sender.oerrors, taken, "{:?}", a.dropped());
            assert_eq!(receiver.ipackets, came, "{:?}", b.dropped());
            pair.a.assert_orderly();
            pair.b.assert_orderly();
        }
        assert_eq!((pool_a.in_use(), pool_b.in_use(), heads.in_use()), (0, 0, 0), "every mbuf is home");
    }
}

/// The port of a model that the caller steps.
fn modelled(model: &Model, arguments: Arguments) -> Result<Port, PortError> {
    behind(model, model.open(), arguments)
}

/// The same behind another door.
pub(crate) fn behind(
    model: &Model,
    channel: Arc<dyn Channel>,
    arguments: Arguments,
) -> Result<Port, PortError> {
    let netdev = Arc::new(ModelNetdev::of_virtual_function(model.device(), model.kernel()));
    let spec = Mlx5Spec { arguments, watch: false, ..Mlx5Spec::new(channel, netdev, Memory::ordinary()) };
    Mlx5Port::open(spec).map(|driver| Port::new(PortId(0), model.name(), Box::new(driver)))
}

#[test]
fn a_command_refused_at_any_time_leaves_no_buffer_behind() {
    let pool = pool("refused", 255);
    let mut refused = 0;
    let mut names = BTreeSet::new();
    for (code, name) in (0x100..0xc00).filter_map(|code| Some((code, opcode::name(code)?))) {
        for (nth, code_of) in [0, 1, 2, 4].into_iter().flat_map(|nth| {
            [status::BAD_PARAM_ERR, status::LIM_ERR, status::NO_RES_ERR].map(|status| (nth, status))
        }) {
            // The kernel makes EIO of the first, ENOMEM of the second, EAGAIN of the third.
            for devx in [false, true] {
                let refusal = Refusal { opcode: code, nth, status: code_of, syndrome: 0x77 };
                let faults = FaultPlan { refusals: vec![refusal], ..FaultPlan::default() };
                let (word, meaning) = status::text(code_of).expect("a status with a name");
                let answer =
                    format!("{word} ({code_of:#x}), syndrome 0x77: {meaning}; {}", status::advice(code_of));
                let check = |line: &str, begin: &str| {
                    let line_ok = !line.contains('\n') && line.contains(begin) && line.ends_with(&answer);
                    assert!(line_ok, "{name} the {nth}th time: {line}");
                };
                let model = match Model::builder("mlx5_model0").stepped().faults(faults).build() {
                    Ok(model) => model,
                    Err(error) => {
                        let begin = format!("the firmware refused {name} while the device was started: ");
                        check(&error.to_string(), &begin);
                        continue;
                    }
                };
                let watched = watch(model.device(), |_| {});
                let done =
                    modelled(&model, Arguments { devx, ..Arguments::default() }).and_then(|mut port| {
                        let mut config = PortConfig::queues(2, 2, &pool);
                        config.rx_queues.iter_mut().for_each(|queue| queue.descriptors = 64);
                        config.tx_queues.iter_mut().for_each(|queue| queue.descriptors = 64);
                        let queues = port.bring_up(config)?;
                        let stopped = port.stop();
                        drop(queues);
                        stopped?;
                        port.close()
                    });
                if let Err(error) = &done {
                    refused += 1;
                    names.insert(name);
                    // The line begins with what was being done, and has the firmware's command and words behind it.
                    let line = whole(error);
                    check(&line, "cannot ");
                    check(&line, name);
                }
                let (first, count) = model.device().violations();
                assert_eq!(count, 0, "{code:#x} refused the {nth}th time: {first:?}");
                let done_line = done.map_err(|error| whole(&error));
                // What the firmware would not destroy stays with its file; all else was destroyed before that was closed.
                let left = model.kernel().abandoned();
                let undestroyed = name.starts_with("DE");
                assert!(
                    left == 0 || undestroyed,
                    "{name} the {nth}th time, {word}, devx {devx}: {left} objects left after {done_line:?}"
                );
                drop((watched, model));
                assert_eq!(pool.in_use(), 0, "{code:#x} refused the {nth}th time");
            }
        }
    }
    println!("{refused} runs saw a refusal, of {names:?}");
    for name in [
        "CREATE_CQ",
        "CREATE_RQ",
        "CREATE_SQ",
        "CREATE_RQT",
        "CREATE_TIR",
        "MODIFY_RQ",
        "MODIFY_SQ",
        "CREATE_MKEY",
    ] {
        assert!(names.contains(name), "nobody was refused {name}");
    }
}

#[test]
fn a_device_pulled_out_at_any_packet_stops_its_queues_and_another_can_be_opened() {
    let (pool_a, pool_b) = (pool("a", 2047), pool("b", 2047));
    for seed in seeds(30) {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (at, arguments) = (chance.below(1500), chance.arguments());
        println!("seed {seed}: gone after {at} packets, {arguments:?}");
        for remove in [Some(Moment::Packets(at)), None] {
            let (left, right) = Cable::pair();
            let faults = FaultPlan { remove, ..FaultPlan::default() };
            let models = [
                Model::builder("mlx5_model0").stepped().plugged(left).faults(faults).mac(A).build(),
                Model::builder("mlx5_model1").stepped().plugged(right).mac(B).build(),
            ]
            .map(|model| model.expect("a model"));
            let _watched = models.each_ref().map(|model| watch(model.device(), |_| {}));
            let step = || {
                for _ in 0..8 {
                    models.iter().for_each(|model| {
                        model.step();
                    });
                }
            };
            let opened = modelled(&models[0], arguments.clone()).and_then(|mut port| {
                let queues = port.bring_up(PortConfig::queues(1, 1, &pool_a))?;
                Ok((port, queues))
            });
            // Gone before it was open.
            let Ok((mut a, mut queues_a)) = opened else {
                assert!(remove == Some(Moment::Packets(0)), "{opened:?}");
                continue;
            };
            let mut b = modelled(&models[1], arguments.clone()).expect("a port");
            let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool_b)).expect("up");
            let (mut taken, mut came, mut number) = ([0, 0], [0, 0], 0);
            let mut turn = |a: &mut Queues, b: &mut Queues| {
                for (at, (queues, pool, to, from)) in
                    [(a, &pool_a, B, A), (b, &pool_b, A, B)].into_iter().enumerate()
                {
                    let frames: Vec<Vec<u8>> = (0..20)
                        .map(|_| {
                            number += 1;
                            frame(to, from, number, 60)
                        })
                        .collect();
                    taken[at] += queues.tx[0].tx_burst(&mut burst(pool, &frames)) as u64;
                    came[at] += received(queues, 0).len() as u64;
                }
                step();
                (taken, came)
            };
            let mut events = Vec::new();
            for _ in 0..100 {
                turn(&mut queues_a, &mut queues_b);
                events.extend(std::iter::from_fn(|| a.poll_event()));
                if a.state() == PortState::Gone {
                    break;
                }
            }
            assert_eq!(a.state() == PortState::Gone, remove.is_some());
            assert_eq!(events.contains(&PortEvent::Removed), remove.is_some(), "{events:?}");
            let (before, came_before) = turn(&mut queues_a, &mut queues_b);
            let (taken, came) = turn(&mut queues_a, &mut queues_b);
            if remove.is_some() {
                assert_eq!((taken[0], came[0]), (before[0], came_before[0]), "a burst moved something");
            } else {
                assert!(came[0] > 500 && came[1] > 500, "{came:?}");
            }
            for (port, at) in [(&mut a, 0), (&mut b, 1)] {
                let stats = port.stats();
                assert_eq!((stats.opackets + stats.oerrors, stats.ipackets), (taken[at], came[at]));
            }
            if remove.is_some() {
                let refused = modelled(&models[0], arguments.clone()).expect_err("it is gone");
                assert!(refused.to_string().contains("cannot open the device"), "{refused}");
            }
            let _refused = a.stop();
            drop((queues_a, a, queues_b, b));
            for model in &models {
                let (first, count) = model.device().violations();
                assert_eq!(count, 0, "{first:?}");
            }
            assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "every mbuf is home");
        }
    }
}
