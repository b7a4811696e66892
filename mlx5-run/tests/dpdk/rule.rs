//! Rules of rte_flow in the root table, and the hash by which queues are chosen.

use super::lane::Lane;
use super::testpmd::{Start, Testpmd};
use super::{WAYS, packet, release};

/// What testpmd says of a received packet, known by its length: nothing if it was not received.
fn received(said: &str, bytes: usize) -> Option<&str> {
    let mark = format!(" - length={bytes} ");
    let (_, behind) = said.split_once(&mark)?;
    behind.split("  src=").next()
}

/// A number in base 16 behind a word.
fn hex(said: &str, word: &str) -> Option<u32> {
    let (_, behind) = said.split_once(word)?;
    let digits = behind.trim_start_matches("0x").split(|letter: char| !letter.is_ascii_hexdigit()).next()?;
    u32::from_str_radix(digits, 16).ok()
}

/// The key of the port's hash.
fn key(testpmd: &mut Testpmd) -> Vec<u8> {
    let told = testpmd.tell("show port 0 rss-hash key");
    let (_, behind) = told.split_once("RSS key:\n").expect("a key");
    let digits = behind.lines().next().expect("a line").trim().as_bytes();
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    digits.chunks(2).map(|two| byte(two).expect("digits")).collect()
}

/// A packet from that port, of a length that no other one has.
fn from(port: u16) -> Vec<u8> {
    packet::udp_from(port, 100 + usize::from(port))
}

#[test]
fn rules_say_what_becomes_of_packets() {
    if !release::is_there() {
        return;
    }
    // What follows the match of a source port; then the queue, unless it is dropped, the mark, and whether ports are hashed.
    let rules = [
        ("drop", None, None, false),
        ("queue index 1", Some(1), None, false),
        ("queue index 0", Some(0), None, false),
        ("mark id 42 / queue index 1", Some(1), Some(42), false),
        ("flag / queue index 1", Some(1), None, false),
        ("rss queues 1 end types ipv4-udp end", Some(1), None, true),
        ("mark id 7 / rss queues 0 end types ipv4-udp end", Some(0), Some(7), true),
    ];
    for way in WAYS {
        let mut lane = Lane::start(&Start {
            device: way,
            options: &["--forward-mode=io", "--rxq=2", "--txq=2"],
            ..Start::default()
        });
        let key = key(&mut lane.testpmd);
        lane.testpmd.tell("set verbose 1");
        for (port, (actions, ..)) in (1..).zip(rules) {
            let rule = format!("pattern eth / ipv4 / udp src is {port} / end actions {actions} / end");
            let told = lane.testpmd.tell(&format!("flow create 0 ingress {rule}"));
            assert!(told.contains(&format!("Flow rule #{} created", port - 1)), "{way}: {told}");
        }
        lane.testpmd.give("start");
        let frames: Vec<_> = (1..).zip(rules).map(|(port, _)| from(port)).collect();
        lane.pass(&frames, &from(90));
        // A rule that is gone says nothing.
        lane.testpmd.give("flow destroy 0 rule 0");
        lane.testpmd.until("Flow rule #0 destroyed");
        lane.pass(&[frames[0].clone()], &from(91));
        lane.testpmd.give("flow flush 0");
        lane.pass(&[], &from(92));
        let said = lane.testpmd.quit();
        let (before, after) = said.split_once("Flow rule #0 destroyed").expect("both");
        for (frame, (actions, queue, mark, is_hashed)) in frames.iter().zip(rules) {
            let packet = received(before, frame.len());
            assert_eq!(
                packet.and_then(|packet| hex(packet, "Receive queue=")),
                queue,
                "{way}: {actions}: {before}"
            );
            assert_eq!(
                packet.and_then(|packet| hex(packet, "matched ID=")),
                mark,
                "{way}: {actions}: {before}"
            );
            let hash = packet.and_then(|packet| hex(packet, "RSS hash="));
            let wanted = if is_hashed { packet::toeplitz(&key, frame) } else { 0 };
            assert_eq!(hash, packet.map(|_| wanted), "{way}: {actions}: {before}");
        }
        let flagged = received(before, frames[4].len()).expect("it came");
        assert!(flagged.contains("RTE_MBUF_F_RX_FDIR ") && !flagged.contains("FDIR_ID"), "{way}: {flagged}");
        assert!(received(after, frames[0].len()).is_some(), "{way}: {after}");
    }
}

#[test]
fn gre_is_matched_by_its_protocol() {
    if !release::is_there() {
        return;
    }
    for way in WAYS {
        let mut lane = Lane::start(&Start {
            device: way,
            options: &["--forward-mode=io", "--rxq=2", "--txq=2"],
            ..Start::default()
        });
        lane.testpmd.tell("set verbose 1");
        for (number, (spec, queue)) in
            [("protocol is 0x0800", 1), ("protocol is 0x6558", 0)].iter().enumerate()
        {
            let rule = format!(
                "pattern eth / ipv4 / gre {spec} / end actions mark id 5 / queue index {queue} / end"
            );
            let told = lane.testpmd.tell(&format!("flow create 0 ingress {rule}"));
            assert!(told.contains(&format!("Flow rule #{number} created")), "{way}: {told}");
        }
        lane.testpmd.give("start");
        let frames = [packet::gre(0x0800, 1, 100), packet::gre(0x6558, 1, 110), packet::gre(0x86dd, 1, 120)];
        lane.pass(&frames, &from(90));
        let said = lane.testpmd.quit();
        let told = frames.each_ref().map(|frame| {
            let packet = received(&said, frame.len()).unwrap_or_else(|| panic!("{way}: it came: {said}"));
            (hex(packet, "Receive queue="), hex(packet, "matched ID="))
        });
        assert_eq!(told[..2], [(Some(1), Some(5)), (Some(0), Some(5))], "{way}: {said}");
        assert_eq!(told[2].1, None, "{way}: {said}");
    }
}

#[test]
fn queues_are_chosen_by_the_hash() {
    if !release::is_there() {
        return;
    }
    for way in WAYS {
        let mut lane = Lane::start(&Start {
            device: way,
            options: &["--forward-mode=io", "--rxq=4", "--txq=4", "--rss-udp"],
            ..Start::default()
        });
        let key = key(&mut lane.testpmd);
        lane.testpmd.tell("set verbose 1");
        let told = lane.testpmd.tell("show port info 0");
        let (_, behind) = told.split_once("Redirection table size: ").expect("a size");
        let size: u32 = behind.lines().next().and_then(|text| text.trim().parse().ok()).expect("a number");
        lane.testpmd.give("start");
        let frames: Vec<_> = (1..=16).map(from).collect();
        lane.pass(&frames, &from(90));
        lane.testpmd.give("stop");
        let said = lane.testpmd.quit();
        for frame in &frames {
            let packet = received(&said, frame.len()).expect("it came");
            let hash = packet::toeplitz(&key, frame);
            assert_eq!(hex(packet, "RSS hash="), Some(hash), "{way}: {packet}");
            // The driver's table has the queues in turn.
            assert_eq!(hex(packet, "Receive queue="), Some(hash % size % 4), "{way}: {packet}");
        }
    }
}
