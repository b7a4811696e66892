//! Where its sockets stand, and what stood there before.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use crate::machine::Machine;
use crate::program::{Devices, command, refusal};

const IDENTITY: u32 = 0x101d_15b3;

#[test]
fn a_file_is_left_alone_and_a_stale_socket_taken_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let precious = folder.path().join("precious");
    std::fs::write(&precious, "data").expect("written");
    let said = refusal(&precious);
    assert!(said.contains("precious: something that is no socket stands there"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(std::fs::read(&precious).expect("still there"), b"data");
    for name in ["one", "two"] {
        // As a process that was killed leaves it.
        drop(UnixListener::bind(folder.path().join(name)).expect("a socket"));
    }
    let mut arguments = command();
    for name in ["one", "two"] {
        arguments.arg("--socket").arg(folder.path().join(name)).args(["--wire", "null"]);
    }
    let devices = Devices::of(arguments, folder);
    // Who looks whether it is in use does not end it.
    for _ in 0..3 {
        let said = refusal(&devices.socket("one"));
        assert!(said.contains("another process has this socket open"), "{said}");
    }
    assert_eq!(Machine::meet(&devices.socket("one")).identity(), IDENTITY);
}

#[test]
fn signals_end_it_and_its_sockets_go_whoever_is_connected() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let folder = tempfile::tempdir().expect("a folder");
        let wire = folder.path().join("wire");
        let mut arguments = command();
        arguments.arg("--console");
        for (name, wire) in [
            ("one", format!("unix:{}:{}", wire.display(), folder.path().join("far").display())),
            ("two", "null".to_owned()),
        ] {
            arguments.arg("--socket").arg(folder.path().join(name)).args(["--wire", &wire]);
        }
        let mut devices = Devices::of(arguments, folder);
        for path in [devices.socket("one"), devices.socket("two"), wire.clone()] {
            let mode = std::fs::metadata(&path).expect("a socket").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", path.display());
        }
        let mut machine = Machine::meet(&devices.socket("one"));
        assert_eq!(machine.identity(), IDENTITY);
        devices.signal(signal);
        let status = devices.end();
        assert_eq!(status.code(), Some(0), "signal {signal}: {status}: {}", devices.log());
        for path in [devices.socket("one"), devices.socket("two"), wire] {
            assert!(!path.exists(), "signal {signal}: {} is left", path.display());
        }
    }
}

#[test]
fn it_ends_with_its_machines_and_its_sockets_go() {
    let mut devices = Devices::start();
    for name in ["one", "two"] {
        assert_eq!(Machine::meet(&devices.socket(name)).identity(), IDENTITY);
    }
    assert_eq!(devices.end().code(), Some(0), "{}", devices.log());
    assert!(!devices.socket("one").exists() && !devices.socket("two").exists());
}
