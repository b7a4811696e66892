//! The conformance list of ports on the device model: every card, both kinds of objects, a peer and a source on the wire.

#[path = "support/model.rs"]
mod model;

use std::sync::{Arc, Mutex, PoisonError};

use pollux_mlx5_model::Model;
use pollux_mlx5_model::config::Profile;
use pollux_mlx5_model::wire::{Cable, Sent, Wire, WireSpec};
use pollux_port::conformance::{Feed, Fixture, Subject, run};

/// The model at one end of a cable, the test at the other.
struct Peer {
    profile: Profile,
    devx: bool,
}

impl Fixture for Peer {
    fn open(&self) -> Subject {
        let (near, far) = Cable::pair();
        let model =
            Model::builder("mlx5_model0").profile(self.profile).plugged(near).build().expect("a model");
        let driver = model::port(&Arc::new(model), self.devx);
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
        let model = Model::builder("mlx5_model0").wire(WireSpec::Source(64)).build().expect("a model");
        let driver = model::port(&Arc::new(model), self.devx);
        Subject { name: "mlx5_model0".into(), driver, feed: Feed::Endless(64), sent: None }
    }
}

#[test]
fn connectx4lx_verbs() {
    run(&Peer { profile: Profile::ConnectX4Lx, devx: false });
}

#[test]
fn connectx4lx_devx() {
    run(&Peer { profile: Profile::ConnectX4Lx, devx: true });
}

#[test]
fn connectx5_verbs() {
    run(&Peer { profile: Profile::ConnectX5, devx: false });
}

#[test]
fn connectx5_devx() {
    run(&Peer { profile: Profile::ConnectX5, devx: true });
}

#[test]
fn connectx6dx_verbs() {
    run(&Peer { profile: Profile::ConnectX6Dx, devx: false });
}

#[test]
fn connectx6dx_devx() {
    run(&Peer { profile: Profile::ConnectX6Dx, devx: true });
}

#[test]
fn connectx7_verbs() {
    run(&Peer { profile: Profile::ConnectX7, devx: false });
}

#[test]
fn connectx7_devx() {
    run(&Peer { profile: Profile::ConnectX7, devx: true });
}

#[test]
fn source_verbs() {
    run(&Sourced { devx: false });
}

#[test]
fn source_devx() {
    run(&Sourced { devx: true });
}
