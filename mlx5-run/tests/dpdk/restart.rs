//! Ports that are stopped, changed, started again and closed.

use super::lane::Lane;
use super::testpmd::Start;
use super::{WAYS, packet, release};

#[test]
fn long_frames_come_in_parts_where_the_mtu_allows_them() {
    if !release::is_there() {
        return;
    }
    let [short, long] = [1000, 8900].map(|bytes| packet::udp_from(1, bytes));
    for way in WAYS {
        // Frames of many buffers, both ways.
        let parts = ["--mbuf-size=2176", "--enable-scatter", "--tx-offloads=0x8000"];
        let options = [&["--forward-mode=io", "--max-pkt-len=9018"][..], &parts[..]].concat();
        let mut lane = Lane::start(&Start { device: way, options: &options, ..Start::default() });
        lane.testpmd.tell("set verbose 1");
        for mtu in [8000, 9000, 1500, 9000] {
            for port in [0, 1] {
                for command in
                    [&format!("stop {port}"), &format!("config mtu {port} {mtu}"), &format!("start {port}")]
                {
                    lane.testpmd.tell(&format!("port {command}"));
                }
                let told = lane.testpmd.tell(&format!("show port info {port}"));
                assert!(told.contains(&format!("MTU: {mtu}\n")), "{way}: {told}");
            }
            lane.testpmd.give("start");
            let came = lane.pass(&[short.clone(), long.clone()], &packet::udp());
            let wanted = if mtu == 9000 { vec![short.clone(), long.clone()] } else { vec![short.clone()] };
            assert!(came == wanted, "{way}, {mtu}: {} frames", came.len());
            lane.testpmd.give("stop");
            lane.testpmd.until("Done.");
        }
        lane.testpmd.tell("port stop 0");
        let closed = lane.testpmd.tell("port close 0");
        assert!(closed.contains("Port 0 is closed"), "{way}: {closed}");
        let said = lane.testpmd.quit();
        let parts = |bytes: usize| format!(" - length={bytes} - nb_segs={}", bytes.div_ceil(2048).max(1));
        for (frame, times) in [(&short, 4), (&long, 2)] {
            assert_eq!(said.matches(&parts(frame.len())).count(), times, "{way}: {said}");
        }
    }
}
