//! The driver conforms, and command line, profile and a second opening reach it.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net_udp::UdpOptions;
use pollux::port::conformance::{Feed, Fixture, Subject, run};
use pollux::port::driver::PortDriver;
use pollux::prelude::*;

/// The port at one end, a plain socket at the other.
struct Facing;

impl Fixture for Facing {
    fn open(&self) -> Subject {
        let far = UdpSocket::bind("127.0.0.1:0").expect("a free UDP port");
        let peer = far.local_addr().expect("bound");
        let options = UdpOptions { local: ([127, 0, 0, 1], 0).into(), peer };
        let port = net_udp::open("net_udp0", options).expect("opens");
        let local = port.info().device.expect("the address");
        far.connect(local).expect("connects");
        far.set_nonblocking(true).expect("polls");
        let far = Arc::new(far);
        let giver = Arc::clone(&far);
        let give = move |frame: &[u8]| {
            giver.send(frame).expect("the kernel takes a datagram");
        };
        let sent = move || {
            let mut room = [0; 2048];
            std::iter::from_fn(|| far.recv(&mut room).ok().map(|bytes| room[..bytes].to_vec())).collect()
        };
        Subject {
            name: "net_udp0".into(),
            driver: Box::new(port),
            feed: Feed::Given(Box::new(give)),
            sent: Some(Box::new(sent)),
        }
    }
}

#[test]
fn it_conforms() {
    run(&Facing);
}

fn open(args: &[&str]) -> Result<Bringup, BringupError> {
    let line = CommandLine::parse(["driver", "-l", "0"].iter().chain(args))?;
    Bringup::with_drivers(&line, net_udp::drivers()?)
}

/// Two devices at the ends of one cable.
fn cable() -> [String; 2] {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a free UDP port"));
    let [a, b]: [SocketAddr; 2] = sockets.each_ref().map(|socket| socket.local_addr().expect("bound"));
    [format!("net_udp0,local={a},peer={b}"), format!("net_udp1,local={b},peer={a}")]
}

/// Frames that port 0 sends arrive at port 1.
fn passes(bringup: &mut Bringup) {
    let (mut queues, pool) = bringup
        .start_ports(&[PortId(0), PortId(1)], &PortRequest::new())
        .unwrap_or_else(|error| panic!("{}", error.line()));
    let mut burst = Burst::new();
    for number in 0..8 {
        let mut mbuf = pool.alloc().expect("an mbuf");
        assert!(mbuf.append_slice(&[number; 60]));
        burst.push(mbuf);
    }
    assert_eq!(queues[0].tx[0].tx_burst(&mut burst), 8);
    let end = Instant::now() + Duration::from_secs(10);
    while burst.len() < 8 {
        assert!(Instant::now() < end, "{} of 8 frames", burst.len());
        queues[1].rx[0].rx_burst(&mut burst, 8);
    }
    for (number, mbuf) in burst.iter().enumerate() {
        assert_eq!((mbuf.data(), mbuf.port()), (&[number as u8; 60][..], 1));
    }
}

#[test]
fn the_command_line_and_a_second_opening_reach_it() {
    let [a, b] = cable();
    let mut bringup = open(&["--vdev", &a, "--vdev", &b]).unwrap_or_else(|error| panic!("{}", error.line()));
    passes(&mut bringup);
    for id in [PortId(0), PortId(1)] {
        bringup.reopen(id).unwrap_or_else(|error| panic!("{}", error.line()));
    }
    passes(&mut bringup);
}

#[test]
fn a_profile_reaches_it() {
    let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver.toml");
    let [a, b] = cable().map(|device| format!("[[port]]\ndevice = \"{device},trace=summary\"\n"));
    std::fs::write(&profile, format!("{a}\n{b}")).expect("a file");
    let profile = profile.to_str().expect("a path in UTF-8");
    passes(&mut open(&["--profile", profile]).unwrap_or_else(|error| panic!("{}", error.line())));
}

#[test]
fn what_is_typed_wrongly_is_one_line() {
    let [good, _] = cable();
    for (device, expected) in [
        ("net_udp0", "device 'net_udp0': needs local=: such as local=127.0.0.1:4000".to_owned()),
        (
            "net_udp0,local=127.0.0.1:4000",
            "device 'net_udp0': needs peer=: such as peer=127.0.0.1:4001".to_owned(),
        ),
        (
            "net_udp0,local=here,peer=127.0.0.1:4001",
            "device 'net_udp0': local=here: cannot be read: write it like 127.0.0.1:4000".to_owned(),
        ),
        (
            "net_udp0,local=127.0.0.1:4000,peer=[::1]:4001",
            "device 'net_udp0': peer=[::1]:4001: is not of the same family as local=: give both IPv4 or both IPv6 addresses"
                .to_owned(),
        ),
        (
            &*format!("{good},pear=1"),
            "device 'net_udp0': unknown key 'pear', did you mean 'peer'?; allowed: local, peer; with all drivers: fault, tee, \
             trace"
                .to_owned(),
        ),
    ] {
        let error = open(&["--vdev", device]).map(drop).expect_err(device);
        assert_eq!((error.line(), error.exit_code()), (expected, 2));
    }
}

#[test]
fn what_the_kernel_refuses_is_one_line() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a free UDP port");
    let local = taken.local_addr().expect("bound");
    let device = format!("net_udp0,local={local},peer=127.0.0.1:9");
    let error = open(&["--vdev", &device]).map(drop).expect_err("somebody has the address");
    assert_eq!(
        (error.line(), error.exit_code()),
        (format!("port net_udp0: cannot bind to {local}: Address already in use (os error 98)"), 1)
    );
}
