//! The conformance list of ports on the device model: every card, cards and kernels that lack something, every way of moving
//! packets, both kinds of objects; a peer and a source on the wire.

use std::sync::{Arc, Mutex, PoisonError};

use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::config::Profile;
use pollux_mlx5_model::wire::{Cable, Sent, Wire, WireSpec};
use pollux_mlx5_model::{Builder, Model};
use pollux_pmd_mlx::Arguments;
use pollux_pmd_mlx::devargs::{Compression, DoorbellMapping};
use pollux_port::conformance::{Feed, Fixture, Subject, run};

/// The model at one end of a cable, the test at the other.
struct Peer {
    /// What the card and the kernel in front of it are.
    build: fn(Builder) -> Builder,
    arguments: Arguments,
}

impl Fixture for Peer {
    fn open(&self) -> Subject {
        let (near, far) = Cable::pair();
        let model = (self.build)(Model::builder("mlx5_model0")).plugged(near).build().expect("a model");
        let driver = crate::port(&Arc::new(model), self.arguments.clone());
        let far = Arc::new(Mutex::new(far));
        let giver = Arc::clone(&far);
        let give = move |frame: &[u8]| {
            while giver.lock().unwrap_or_else(PoisonError::into_inner).send(frame) == Sent::Busy {
                std::thread::yield_now();
            }
        };
        let seen = move || {
            let mut far = far.lock().unwrap_or_else(PoisonError::into_inner);
            let mut room = vec![0; 16_384];
            std::iter::from_fn(|| far.receive(&mut room).map(|bytes| room[..bytes].to_vec())).collect()
        };
        Subject {
            name: "mlx5_model0".into(),
            driver,
            feed: Feed::Given(Box::new(give)),
            sent: Some(Box::new(seen)),
        }
    }
}

/// The model with a source on its wire.
struct Sourced {
    devx: bool,
}

impl Fixture for Sourced {
    fn open(&self) -> Subject {
        let model = Model::builder("mlx5_model0")
            .wire(WireSpec::Source { size: 64, rate: None })
            .build()
            .expect("a model");
        let driver = crate::port(&Arc::new(model), Arguments { devx: self.devx, ..Arguments::default() });
        Subject { name: "mlx5_model0".into(), driver, feed: Feed::Endless(64), sent: None }
    }
}

/// Objects of the kernel.
fn verbs() -> Arguments {
    Arguments { devx: false, ..Arguments::default() }
}

/// Objects of the firmware.
fn devx() -> Arguments {
    Arguments { devx: true, ..Arguments::default() }
}

/// Striding queues, however few.
fn striding() -> Arguments {
    Arguments { striding: true, striding_queues_min: 1, ..devx() }
}

/// Compressed completions in the enhanced layout.
fn arrays(arguments: Arguments) -> Arguments {
    Arguments { enhanced_compression: true, ..arguments }
}

/// A test for each card, door and way: what is made of the model, and the driver's arguments.
macro_rules! conformance {
    ($($name:ident: $build:expr, $arguments:expr;)*) => {
        $(
            #[test]
            fn $name() {
                run(&Peer { build: $build, arguments: $arguments });
            }
        )*
    };
}

conformance! {
    // Four cards, on both kinds of objects. The oldest wants layer 2 inline and packs no packets together.
    connectx4lx_verbs: |model| model.profile(Profile::ConnectX4Lx), verbs();
    connectx4lx_devx: |model| model.profile(Profile::ConnectX4Lx), devx();
    connectx5_verbs: |model| model.profile(Profile::ConnectX5), verbs();
    connectx5_devx: |model| model.profile(Profile::ConnectX5), devx();
    connectx6dx_verbs: |model| model.profile(Profile::ConnectX6Dx), verbs();
    connectx6dx_devx: |model| model.profile(Profile::ConnectX6Dx), devx();
    connectx7_verbs: |model| model.profile(Profile::ConnectX7), verbs();
    connectx7_devx: |model| model.profile(Profile::ConnectX7), devx();
    // Cards that lack one thing.
    without_devx: |model| model.traits(|card| card.devx = false), devx();
    without_write_combining: |model| model.traits(|card| card.blue_flame = false), devx();
    without_uars_of_4k: |model| model.traits(|card| card.uar_4k = false), devx();
    without_uars_of_4k_on_linux_5_4:
        |model| model.traits(|card| card.uar_4k = false).door(DoorProfile::linux_5_4()), verbs();
    without_compression: |model| model.traits(|card| card.cqe_compression = false), devx();
    without_striding: |model| model.traits(|card| card.striding_rq = false), striding();
    completions_of_version_0: |model| model.traits(|card| card.cqe_version = 0), devx();
    // Kernels that lack something: pages that the context brings, two registers each and two buffers a register, among it.
    linux_5_4_verbs: |model| model.door(DoorProfile::linux_5_4()), verbs();
    linux_5_4_devx: |model| model.door(DoorProfile::linux_5_4()), devx();
    no_blue_flame_on_static_pages: |model| {
        model.door(DoorProfile { no_blue_flame: true, ..DoorProfile::linux_5_4() })
    }, verbs();
    // Ways that the arguments choose.
    striding_queues: |model| model, striding();
    striding_queues_verbs: |model| model, Arguments { devx: false, ..striding() };
    striding_queues_of_an_older_card: |model| model.profile(Profile::ConnectX5), striding();
    completions_of_128_bytes: |model| model, Arguments { cqe_bytes: 128, ..devx() };
    completions_of_128_bytes_verbs: |model| model, Arguments { cqe_bytes: 128, ..verbs() };
    nothing_compressed: |model| model, Arguments { compression: Compression::Off, ..devx() };
    compressed_by_checksum: |model| model, Arguments { compression: Compression::Checksum, ..verbs() };
    compressed_in_arrays: |model| model, arrays(devx());
    compressed_in_arrays_scalar: |model| model, Arguments { rx_vector: false, ..arrays(devx()) };
    compressed_in_arrays_striding: |model| model, arrays(striding());
    compressed_in_arrays_of_an_older_card: |model| model.profile(Profile::ConnectX5), arrays(devx());
    compressed_in_arrays_verbs: |model| model, arrays(verbs());
    scalar: |model| model, Arguments { rx_vector: false, ..devx() };
    inlined: |model| model, Arguments { inline_queues_min: 1, ..devx() };
    inlined_alone: |model| model, Arguments { inline_queues_min: 1, multi_packet: Some(false), ..verbs() };
    doorbells_not_combined: |model| model, Arguments { doorbell: DoorbellMapping::NonCached, ..devx() };
}

#[test]
fn source_verbs() {
    run(&Sourced { devx: false });
}

#[test]
fn source_devx() {
    run(&Sourced { devx: true });
}
