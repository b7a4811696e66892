//! Doorbell pages: too few of them, registers of other sizes, and those of kernels that have no pages of their own.

use std::sync::Arc;

use pollux_mempool::{Burst, MbufPool};
use pollux_mlx5_kernel::{DoorProfile, Kernel};
use pollux_mlx5_model::wire::Null;
use pollux_mlx5_model::{Device, DeviceConfig, Traits};
use pollux_pmd_mlx::Arguments;
use pollux_port::{PortConfig, Queues};

use crate::harness::{A, B, Pair, burst, config, frame, pool};

const QUEUES: usize = 4;

/// Pages that the model's kernel takes for itself.
fn pages_of_the_kernel() -> usize {
    let starts = |uars: &usize| {
        let traits = Traits { uars: *uars, ..Traits::default() };
        let config = DeviceConfig { traits, ..config("mlx5_model9", 9) };
        let device = Device::new(config, Box::new(Null::default())).expect("registers");
        let memory = Arc::new(device.memory().clone());
        Kernel::new(device, memory, DoorProfile::default()).is_ok()
    };
    (1..64).find(starts).expect("a kernel starts on so many")
}

/// Sends frames from each queue of `from`, in turn, and says how many of them came.
fn pass(pair: &Pair, pool: &MbufPool, from: &mut Queues, to: &mut Queues, rounds: u32) -> usize {
    let mut came = 0;
    for round in 0..rounds {
        for tx in &mut from.tx {
            // One that is copied whole, and more than one.
            for count in [1, 3] {
                let frames: Vec<_> = (0..count).map(|at| frame(B, A, round * 8 + at, 20)).collect();
                tx.tx_burst(&mut burst(pool, &frames));
            }
        }
        pair.settle();
        for rx in &mut to.rx {
            let mut got = Burst::new();
            came += rx.rx_burst(&mut got, 32);
        }
    }
    came
}

/// Brings ports up on such cards and moves frames.
fn works(door: DoorProfile, change: impl Fn(&mut Traits), arguments: Arguments) {
    let pair = Pair::with(door, |mut config: DeviceConfig| {
        change(&mut config.traits);
        config
    });
    let pools = (pool("a", 8191), pool("b", 8191));
    {
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let small = |pool| {
            let mut config = PortConfig::queues(QUEUES, QUEUES, pool);
            config.rx_queues.iter_mut().for_each(|queue| queue.descriptors = 256);
            config.tx_queues.iter_mut().for_each(|queue| queue.descriptors = 256);
            config
        };
        let mut queues_a = a.bring_up(small(&pools.0)).expect("up");
        let mut queues_b = b.bring_up(small(&pools.1)).expect("up");
        let came = pass(&pair, &pools.0, &mut queues_a, &mut queues_b, 5);
        assert_eq!(came, 5 * 4 * QUEUES);
        pair.a.assert_orderly();
        pair.b.assert_orderly();
    }
    assert_eq!((pools.0.in_use(), pools.1.in_use()), (0, 0), "every mbuf is home");
    assert_eq!((pair.a.kernel.abandoned(), pair.b.kernel.abandoned()), (0, 0), "every object is gone");
}

fn both() -> [Arguments; 2] {
    [false, true].map(|devx| Arguments { devx, ..Arguments::default() })
}

#[test]
fn queues_share_pages_when_there_are_too_few() {
    let own = pages_of_the_kernel();
    for arguments in both() {
        for left in 1..=2 * QUEUES + 1 {
            println!("{left} pages, {arguments:?}");
            works(DoorProfile::default(), |traits| traits.uars = own + left, arguments.clone());
        }
    }
}

#[test]
fn a_card_without_a_page_says_so() {
    let own = pages_of_the_kernel();
    let pair = Pair::with(DoorProfile::default(), |mut config: DeviceConfig| {
        config.traits.uars = own;
        config
    });
    let pool = pool("p", 2047);
    let mut port = pair.a.open(Arguments::default());
    let error = port.bring_up(PortConfig::queues(1, 1, &pool)).expect_err("no page");
    let line = crate::trouble::whole(&error);
    assert!(line.contains("cannot allocate a doorbell page: UAR/ALLOC: EAGAIN"), "{line}");
    assert!(
        line.contains("ALLOC_UAR: NO_RES_ERR (0xf)") && line.contains("; ask for fewer queues"),
        "{line}"
    );
}

#[test]
fn blueflame_registers_are_as_long_as_the_kernel_says() {
    let own = pages_of_the_kernel();
    for arguments in both() {
        for log in 7..=10 {
            for left in [3, 64] {
                println!("2^{log} bytes, {left} pages, {arguments:?}");
                let change = |traits: &mut Traits| (traits.blue_flame_log, traits.uars) = (log, own + left);
                works(DoorProfile::default(), change, arguments.clone());
            }
        }
    }
}

#[test]
fn the_registers_of_older_kernels_are_mapped_once_for_all() {
    works(DoorProfile::linux_5_4(), |_| (), Arguments::default());
    works(DoorProfile { no_blue_flame: true, ..DoorProfile::linux_5_4() }, |_| (), Arguments::default());
}

/// The context has 128 registers, the first of which serves all queues behind the others.
#[test]
fn further_tx_queues_of_older_kernels_share_the_first_register() {
    const MANY: u16 = 132;
    let pair = Pair::with(DoorProfile::linux_5_4(), |config| config);
    let pools = (pool("a", 2047), pool("b", 2047));
    let (mut a, mut b) = (pair.a.open(Arguments::default()), pair.b.open(Arguments::default()));
    let up = |port: &mut pollux_port::Port, tx: usize, pool| {
        let mut config = PortConfig::queues(1, tx, pool);
        config.tx_queues.iter_mut().for_each(|queue| queue.descriptors = 64);
        port.bring_up(config).expect("up")
    };
    let mut from = up(&mut a, MANY.into(), &pools.0);
    let mut to = up(&mut b, 1, &pools.1);
    let mut came = 0;
    for (index, tx) in from.tx.iter_mut().enumerate() {
        assert_eq!(tx.tx_burst(&mut burst(&pools.0, &[frame(B, A, index as u32, 20)])), 1);
        pair.settle();
        let mut got = Burst::new();
        came += to.rx[0].rx_burst(&mut got, 32);
    }
    assert_eq!(came, usize::from(MANY));
    pair.a.assert_orderly();
}
