//! Packet sockets and taps on real interfaces, in network namespaces of their own.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use pollux_frame_io::interface::Interface;
use pollux_frame_io::packet_socket::{PacketControl, PacketOptions, PacketPort, PacketRx};
use pollux_frame_io::tap::Tap;
use pollux_frame_io::vnet::{PartialChecksum, Segmentation, VlanTag, VnetHeader};
use pollux_frame_io::{FrameError, Trouble};
use pollux_tests::netns::{Namespace, join, must};
use pollux_tests::require::{Need, require};

/// An EtherType that no stack answers.
const LOCAL: [u8; 2] = [0x88, 0xb5];

fn frame(tag: u8, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, tag]);
    frame.extend(LOCAL);
    frame.extend((14..bytes).map(|at| (at as u8) ^ tag));
    frame
}

fn open(options: &PacketOptions) -> PacketPort {
    let port = PacketPort::open(options).unwrap_or_else(|error| panic!("{error}"));
    port.control.admit(true).expect("opens the gate");
    port
}

/// What one frame was: its bytes, what travels beside it, its tag.
type Seen = (Vec<u8>, VnetHeader, Option<VlanTag>);

fn take(rx: &mut PacketRx) -> Option<Seen> {
    let mut frame = rx.next()?;
    let (vlan, mut vnet) = (frame.vlan(), frame.vnet());
    let data = if frame.is_whole() {
        frame.data().to_vec()
    } else {
        assert!(frame.can_receive(), "the socket has room for a few long frames");
        let mut data = vec![0; frame.wire_bytes()];
        let (head, tail) = data.split_at_mut(1000);
        let places = &mut [std::io::IoSliceMut::new(head), std::io::IoSliceMut::new(tail)];
        let (header, bytes) = frame.receive(places).expect("it waits");
        assert_eq!(bytes, frame.wire_bytes());
        vnet = header;
        data
    };
    Some((data, vnet, vlan))
}

/// The next frame of ours; others (IPv6 neighbours, say) are passed over.
fn await_frame(rx: &mut PacketRx, kind: [u8; 2]) -> Seen {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(seen) = take(rx)
            && seen.0[12..14] == kind
        {
            return seen;
        }
        assert!(Instant::now() < end, "no frame of type {kind:02x?} within five seconds");
    }
}

#[test]
fn frames_of_all_lengths_cross_a_veth_pair_in_order() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("len");
    join(&host, "va", &host, "vb");
    for end in ["va", "vb"] {
        host.ip(&["link", "set", end, "mtu", "9000"]);
    }
    host.enter(|| {
        // A small ring, so that it goes round and blocks are crossed with a rest.
        let mut options = PacketOptions::new("va");
        (options.frames, options.frame_bytes, options.block_bytes) = (10, 1600, 8192);
        let mut a = open(&options);
        let mut b = open(&PacketOptions { interface: "vb".into(), ..options });
        let plain = VnetHeader::default();
        for round in 0..60u8 {
            // Short ones through the ring, long ones past it, mixed.
            let lengths = [60, 1400, 1514, 2000, 9014, 61];
            for (at, &bytes) in lengths.iter().enumerate() {
                let frame = frame(round ^ at as u8, bytes);
                let (head, tail) = frame.split_at(33);
                let tx = &mut a.queues[0].1;
                if bytes <= tx.slot_room() {
                    assert!(tx.push(&plain, [head, tail].into_iter()), "round {round}, frame {at}");
                } else {
                    tx.send(&plain, &[IoSlice::new(head), IoSlice::new(tail)]).expect("room");
                }
            }
            a.queues[0].1.kick().expect("up");
            for (at, &bytes) in lengths.iter().enumerate() {
                let (data, vnet, vlan) = await_frame(&mut b.queues[0].0, LOCAL);
                assert!(data == frame(round ^ at as u8, bytes), "round {round}, frame {at}");
                assert_eq!((vnet, vlan), (plain, None));
            }
        }
        assert_eq!(b.control.statistics(0).dropped, 0);
        assert!(b.control.statistics(0).offered >= 360);
        assert!(b.control.statistics(0).offered >= 360, "reading does not lose counts");
        assert_eq!(b.control.statistics(7).offered, 0, "no such queue");
        assert_eq!(a.queues[0].1.pending(), 0);
    })
    .join()
    .expect("the test");
}

#[test]
fn open_checksums_segments_and_tags_travel_beside_the_frame() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("gso");
    join(&host, "va", &host, "vb");
    host.enter(|| {
        let mut a = open(&PacketOptions::new("va"));
        let mut b = open(&PacketOptions::new("vb"));
        // IPv4 (20 bytes), TCP (20 bytes), 40000 bytes of payload, to be cut into 1448.
        let mut tcp = frame(1, 14 + 40 + 40_000);
        tcp[12..14].copy_from_slice(&[0x08, 0x00]);
        tcp[14..34]
            .copy_from_slice(&[0x45, 0, 0x9c, 0x68, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        tcp[46] = 0x50;
        let header = VnetHeader {
            checksum: Some(PartialChecksum { start: 34, offset: 16 }),
            segmentation: Segmentation::Tcp4,
            header_bytes: 54,
            segment_bytes: 1448,
            ..VnetHeader::default()
        };
        a.queues[0].1.send(&header, &[IoSlice::new(&tcp)]).expect("room");
        let (data, vnet, _) = await_frame(&mut b.queues[0].0, [0x08, 0x00]);
        assert!(data == tcp);
        assert_eq!((vnet.checksum, vnet.segmentation), (header.checksum, header.segmentation));
        assert_eq!(vnet.segment_bytes, 1448);

        // The tag inside the frame comes out beside it.
        let mut tagged = frame(2, 100);
        tagged.splice(12..12, [0x88, 0xa8, 0x60, 0x2a]);
        assert!(a.queues[0].1.push(&VnetHeader::default(), [&tagged[..]].into_iter()));
        a.queues[0].1.kick().expect("up");
        let (data, _, vlan) = await_frame(&mut b.queues[0].0, LOCAL);
        assert_eq!(vlan, Some(VlanTag { tpid: 0x88a8, tci: 0x602a }));
        assert!(data == frame(2, 100));
        assert_eq!(vlan.map(VlanTag::bytes), Some([0x88, 0xa8, 0x60, 0x2a]));

        // A frame that is not fetched does not stand in the way of the next.
        for tag in [3, 4] {
            a.queues[0].1.send(&header, &[IoSlice::new(&tcp)]).expect("room");
            assert!(a.queues[0].1.push(&VnetHeader::default(), [&frame(tag, 60)[..]].into_iter()));
            a.queues[0].1.kick().expect("up");
        }
        let rx = &mut b.queues[0].0;
        let end = Instant::now() + Duration::from_secs(5);
        let mut passed = 0;
        while passed < 1 {
            if let Some(frame) = rx.next() {
                passed += usize::from(frame.can_receive());
            }
            assert!(Instant::now() < end);
        }
        assert!(await_frame(rx, LOCAL).0 == frame(3, 60));
        assert!(await_frame(rx, [0x08, 0x00]).0 == tcp);
        assert!(await_frame(rx, LOCAL).0 == frame(4, 60));
    })
    .join()
    .expect("the test");
}

#[test]
fn fan_out_gives_each_frame_to_one_queue() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("fan");
    join(&host, "va", &host, "vb");
    host.enter(|| {
        let mut a = open(&PacketOptions::new("va"));
        let fanout = pollux_frame_io::packet_socket::Fanout::LoadBalance;
        let mut b = open(&PacketOptions { queues: 4, receiving: 3, fanout, ..PacketOptions::new("vb") });
        for round in 0..30 {
            assert!(a.queues[0].1.push(&VnetHeader::default(), [&frame(round, 60)[..]].into_iter()));
        }
        a.queues[0].1.kick().expect("up");
        let end = Instant::now() + Duration::from_secs(5);
        let mut counts = [0; 3];
        assert!(b.queues.pop().is_some_and(|(rx, _)| rx.ready(9) == 0), "the fourth only sends");
        while counts.iter().sum::<u32>() < 30 {
            for (count, (rx, _)) in counts.iter_mut().zip(&mut b.queues) {
                *count += u32::from(take(rx).is_some_and(|seen| seen.0[12..14] == LOCAL));
            }
            assert!(Instant::now() < end, "{counts:?}");
        }
        assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
        // A second group on the same interface does not join the first.
        let _second = open(&PacketOptions { queues: 2, receiving: 2, ..PacketOptions::new("vb") });
    })
    .join()
    .expect("the test");
}

fn trouble(rx: &mut PacketRx) -> Trouble {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        if let Err(trouble) = rx.check() {
            return trouble;
        }
        assert!(Instant::now() < end, "no trouble within five seconds");
    }
}

fn interface_is_gone(control: &PacketControl) -> bool {
    matches!(control.state().map_err(|error| error.raw_os_error()), Err(Some(libc::ENODEV | libc::ENXIO)))
}

#[test]
fn an_interface_goes_down_comes_back_and_disappears() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("gone");
    join(&host, "va", &host, "vb");
    host.enter(|| {
        let mut a = open(&PacketOptions::new("va"));
        let mut b = open(&PacketOptions::new("vb"));
        let ip = |args: &[&str]| drop(must(std::process::Command::new("ip").args(args)));
        let tell = |a: &mut PacketPort, tag| {
            assert!(a.queues[0].1.push(&VnetHeader::default(), [&frame(tag, 60)[..]].into_iter()));
            a.queues[0].1.kick()
        };
        let state = b.control.state().expect("there");
        assert!(state.up && state.running && state.mtu == 1500 && state.name == "vb");
        let promiscuity = || {
            let shown = must(std::process::Command::new("ip").args(["-d", "link", "show", "vb"]));
            String::from_utf8_lossy(&shown.stdout).contains("promiscuity 1")
        };
        b.control.modes().set_promiscuous(true).expect("root may");
        assert!(promiscuity());
        b.control.modes().set_promiscuous(false).expect("root may");
        assert!(!promiscuity());

        ip(&["link", "set", "vb", "down"]);
        assert_eq!(trouble(&mut b.queues[0].0), Trouble::Down);
        assert_eq!(b.queues[0].0.check(), Ok(()), "said once");
        ip(&["link", "set", "vb", "up"]);
        tell(&mut a, 7).expect("up");
        assert!(await_frame(&mut b.queues[0].0, LOCAL).0 == frame(7, 60), "it works again");

        ip(&["link", "set", "vb", "name", "renamed"]);
        assert_eq!(b.control.state().expect("there").name, "renamed");

        ip(&["link", "set", "va", "down"]);
        assert_eq!(tell(&mut a, 8), Err(Trouble::Down));
        ip(&["link", "delete", "va"]);
        assert_eq!(trouble(&mut b.queues[0].0), Trouble::Gone);
        assert_eq!(trouble(&mut a.queues[0].0), Trouble::Gone);
        assert_eq!(a.queues[0].1.kick(), Err(Trouble::Gone));
        assert!(interface_is_gone(&a.control) && interface_is_gone(&b.control));
        while take(&mut b.queues[0].0).is_some() {}
        assert!(!b.queues[0].0.is_ready());
    })
    .join()
    .expect("the test");
}

#[test]
fn what_cannot_be_opened_is_said_in_one_line() {
    let missing = Interface::find("no-such-if").expect_err("no such interface");
    assert_eq!(
        missing.to_string(),
        "interface \"no-such-if\" does not exist in this network namespace (`ip link` lists those that do)"
    );
    for bad in ["", "a-name-that-is-much-too-long", "nul\0"] {
        assert!(matches!(Interface::find(bad), Err(FrameError::NoInterface { .. })), "{bad:?}");
        assert!(matches!(Tap::open(bad, 1, None), Err(FrameError::Setting { .. })), "{bad:?}");
    }
    assert!(matches!(Tap::open("tap9", 0, None), Err(FrameError::Setting { .. })));
    let bad = |change: fn(&mut PacketOptions)| {
        let mut options = PacketOptions::new("lo");
        change(&mut options);
        PacketPort::open(&options).expect_err("refused").to_string()
    };
    assert_eq!(
        bad(|options| options.frame_bytes = 100),
        "frame size 100 is not possible: a multiple of 16 from 256 to 1048576"
    );
    assert_eq!(
        bad(|options| options.block_bytes = 1024),
        "block size 1024 is not possible: a multiple of 4096 from the frame size (2048) to 4194304"
    );
    assert!(bad(|options| options.frames = u32::MAX).starts_with("number of frames 4294967295"));
    assert!(bad(|options| options.queues = 0).starts_with("number of queue pairs 0"));
}

#[test]
fn a_tap_carries_frames_and_follows_into_another_namespace() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let (home, away) = (Namespace::new("home"), Namespace::new("away"));
    let away_name = away.name().to_owned();
    let far = away.name().to_owned();
    home.enter(move || {
        let mac = [2, 0, 0, 0, 0, 9];
        let mut tap = Tap::open("plxtap%d", 2, Some(mac)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(tap.control.name().expect("there"), "plxtap0");
        assert_eq!(tap.control.mac().expect("there"), mac);
        assert!(matches!(Tap::open("plxtap0", 1, None), Err(FrameError::Interface { .. })), "in use");
        assert!(matches!(Tap::open("lo", 1, None), Err(FrameError::Interface { .. })), "not a tap");
        let write = |tap: &mut Tap, tag| {
            tap.queues[0].1.write(&VnetHeader::default(), [&frame(tag, 60)[..]].into_iter())
        };
        assert_eq!(write(&mut tap, 0), Err(Trouble::Down));
        must(std::process::Command::new("ip").args(["link", "set", "plxtap0", "netns", &far]));
        tap.control.set_up(true).expect("wherever it is");
        assert!(!tap.control.state().expect("there").running);
        tap.control.set_carrier(true).expect("there");
        tap.control.set_mtu(1400).expect("there");
        let end = Instant::now() + Duration::from_secs(5);
        // The kernel follows the carrier in its own time.
        while !tap.control.state().expect("there").running {
            assert!(Instant::now() < end, "no carrier within five seconds");
        }
        let state = tap.control.state().expect("there");
        assert!(state.up && state.running && state.mtu == 1400 && state.mac == mac, "{state:?}");
        write(&mut tap, 1).expect("up");
        // In very many pieces.
        let long = frame(3, 1400);
        tap.queues[1].1.write(&VnetHeader::default(), long.chunks(7)).expect("up");
        tap.queues[1].1.write(&VnetHeader::default(), long.chunks(100)).expect("up");
        let statistics = "/sys/class/net/plxtap0/statistics/rx_bytes";
        let seen = must(std::process::Command::new("ip").args(["netns", "exec", &far, "cat", statistics]));
        assert_eq!(String::from_utf8_lossy(&seen.stdout).trim(), "2860");

        // The stack there asks who has an address: the question comes to us.
        must(std::process::Command::new("ip").args([
            "-n",
            &far,
            "addr",
            "add",
            "10.9.9.1/24",
            "dev",
            "plxtap0",
        ]));
        let ping = ["netns", "exec", &far, "ping", "-c1", "-W1", "10.9.9.2"];
        let mut ping = std::process::Command::new("ip")
            .args(ping)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("ping");
        let end = Instant::now() + Duration::from_secs(5);
        let (mut first, mut rest) = ([0; 20], [0; 2000]);
        loop {
            let taken =
                tap.queues.iter_mut().find_map(|(rx, _)| rx.read(&mut first, &mut rest).expect("there"));
            if let Some((_, bytes)) = taken
                && first[12..14] == [0x08, 0x06]
            {
                assert_eq!(bytes, 42);
                assert_eq!(first[6..12], mac);
                assert_eq!(rest[18..22], [10, 9, 9, 2], "the address that is looked for");
                break;
            }
            assert!(Instant::now() < end, "no question within five seconds");
        }
        drop(ping.wait());

        must(std::process::Command::new("ip").args(["-n", &far, "link", "delete", "plxtap0"]));
        assert_eq!(write(&mut tap, 2), Err(Trouble::Gone));
        assert_eq!(tap.queues[0].0.read(&mut first, &mut rest), Err(Trouble::Gone));
        assert!(tap.control.name().is_err() && tap.control.state().is_err());

        // Gone with its last descriptor.
        drop(Tap::open("plxtap1", 1, None).expect("a second one"));
        assert!(matches!(Interface::find("plxtap1"), Err(FrameError::NoInterface { .. })));
    })
    .join()
    .unwrap_or_else(|_| panic!("the test in {away_name}"));
}
