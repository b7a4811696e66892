//! Which frames the port lets in.

use super::lane::Lane;
use super::testpmd::Start;
use super::{WAYS, packet, release};

const SOMEBODY: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
const ELSE: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x66];
const EVERYBODY: [u8; 6] = [0xff; 6];
/// Two groups of IPv4, and one of IPv6, which the driver always lets in.
const GROUP: [u8; 6] = [0x01, 0x00, 0x5e, 0, 0, 1];
const OTHER_GROUP: [u8; 6] = [0x01, 0x00, 0x5e, 0, 0, 2];
const GROUP_OF_IPV6: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

/// A lane that forwards, and a frame to its own address that comes after all others.
fn forwarding(way: &str) -> (Lane, Vec<u8>) {
    let mut lane = Lane::start(&Start { device: way, options: &["--forward-mode=io"], ..Start::default() });
    lane.testpmd.tell("start");
    let mut last = packet::udp_from(1, 100);
    last[..6].copy_from_slice(&lane.mac);
    (lane, last)
}

#[test]
fn only_what_was_asked_for_comes_in() {
    if !release::is_there() {
        return;
    }
    for way in WAYS {
        let (mut lane, last) = forwarding(way);
        let own = lane.mac;
        let targets = [own, SOMEBODY, ELSE, EVERYBODY, GROUP, OTHER_GROUP, GROUP_OF_IPV6];
        let always = [own, EVERYBODY, GROUP_OF_IPV6];
        for (commands, further) in [
            (&["set promisc 0 on"][..], &targets[..]),
            (&["set promisc 0 off"], &[]),
            (&["mac_addr add 0 02:11:22:33:44:55"], &[SOMEBODY]),
            (&["set allmulti 0 on"], &[SOMEBODY, GROUP, OTHER_GROUP]),
            (&["set allmulti 0 off", "mac_addr remove 0 02:11:22:33:44:55"], &[]),
            (&["mcast_addr add 0 01:00:5e:00:00:01"], &[GROUP]),
            (&["mac_addr add 0 02:11:22:33:44:66"], &[GROUP, ELSE]),
            (&["mcast_addr remove 0 01:00:5e:00:00:01"], &[ELSE]),
            (&["set promisc 0 on"], &targets),
        ] {
            for command in commands {
                lane.testpmd.tell(command);
            }
            let came = lane.pass(&targets.map(packet::udp_to), &last);
            let wanted = targets.iter().filter(|target| always.contains(target) || further.contains(target));
            let wanted: Vec<_> = wanted.map(|target| packet::udp_to(*target)).collect();
            assert!(
                came == wanted,
                "{way}: {commands:?}: {:02x?}",
                came.iter().map(|frame| &frame[..6]).collect::<Vec<_>>()
            );
        }
        lane.testpmd.quit();
    }
}

#[test]
fn only_asked_for_vlans_come_in() {
    if !release::is_there() {
        return;
    }
    for way in WAYS {
        let (mut lane, last) = forwarding(way);
        lane.testpmd.tell("set promisc 0 off");
        let plain = packet::udp_to(lane.mac);
        let frames = [plain.clone(), packet::tag(&plain, 5), packet::tag(&plain, 6)];
        for (commands, wanted) in [
            (&[][..], &[0, 1, 2][..]),
            (&["vlan set filter on 0", "rx_vlan add 5 0"], &[1]),
            (&["rx_vlan add 6 0"], &[1, 2]),
            (&["rx_vlan rm 5 0"], &[2]),
            (&["rx_vlan rm 6 0"], &[0, 1, 2]),
        ] {
            for command in commands {
                lane.testpmd.tell(command);
            }
            let last = if wanted.contains(&0) {
                last.clone()
            } else {
                packet::tag(&last, if wanted.contains(&1) { 5 } else { 6 })
            };
            let came = lane.pass(&frames, &last);
            let wanted: Vec<_> = wanted.iter().map(|at| frames[*at].clone()).collect();
            assert!(came == wanted, "{way}: {commands:?}: {came:02x?}");
        }
        lane.testpmd.quit();
    }
}
