//! Hosts that reach each other through a tunnel whose underlay passes the ports.

use pollux_tests::netns::must;
use pollux_tests::require::{Need, require};
use std::process::Command;

use super::middle::{A4, A6, B4, B6, FLOOR, Hosts, Setup, forward, makes, tcp};

/// Kinds of tunnel, as `ip link add` has them, with LOCAL and REMOTE to be filled in; whether they carry IPv6, too.
const TUNNELS: [(&str, bool, bool); 13] = [
    // Kind, over IPv6, carries IPv6.
    ("vxlan id 5 local LOCAL remote REMOTE dstport 4789", false, true),
    ("vxlan id 5 local LOCAL remote REMOTE dstport 4789 udpcsum", false, true),
    ("vxlan id 5 local LOCAL remote REMOTE dstport 8472 noudpcsum", false, true),
    ("vxlan id 5 local LOCAL remote REMOTE dstport 4789", true, true),
    ("vxlan id 5 local LOCAL remote REMOTE dstport 4789 udp6zerocsumtx udp6zerocsumrx", true, true),
    ("geneve id 5 remote REMOTE", false, true),
    ("geneve id 5 remote REMOTE", true, true),
    ("gretap local LOCAL remote REMOTE", false, true),
    ("gretap local LOCAL remote REMOTE csum", false, true),
    ("gre local LOCAL remote REMOTE key 7", false, true),
    ("ip6gretap local LOCAL remote REMOTE", true, true),
    ("ipip local LOCAL remote REMOTE", false, false),
    ("ip6tnl local LOCAL remote REMOTE mode any", true, true),
];

#[test]
fn tcp_in_every_tunnel_passes() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    for ports in [
        ["net_af_packet0,iface=left", "net_af_packet1,iface=right"],
        ["net_tap0,iface=left", "net_tap1,iface=right"],
        // The device cuts what it knows and is told of, software the rest: all of VXLAN's UDP checksums, GRE's, IP in IP.
        ["net_af_packet0,iface=left", "mlx5_model1,wire=iface:right"],
        ["net_af_packet0,iface=left", "mlx5_model1,wire=iface:right,device=cx4lx"],
        ["net_af_packet0,iface=left", "mlx5_model1,wire=iface:right,has_swp=0,has_gre=0"],
    ] {
        let taps = ports[0].starts_with("net_tap");
        let hosts = Hosts::new();
        if !taps {
            hosts.veth(&hosts.a, "left", "1500");
            hosts.veth(&hosts.b, "right", "1500");
        }
        let forwarding = forward(&hosts.middle, &ports, Setup::default(), &[(0, 1), (1, 0)], 1);
        if taps {
            hosts.tap(&hosts.a, "left");
            hosts.tap(&hosts.b, "right");
        }
        hosts.addresses("1500");
        let mut passed = 0;
        for (kind, over_v6, carries_v6) in TUNNELS {
            let pairs = [(&hosts.a, A4, B4, A6, B6, 1), (&hosts.b, B4, A4, B6, A6, 2)];
            let there = pairs.into_iter().all(|(host, local4, remote4, local6, remote6, _)| {
                let (local, remote) = if over_v6 { (local6, remote6) } else { (local4, remote4) };
                let kind = kind.replace("LOCAL", local).replace("REMOTE", remote);
                let args: Vec<&str> =
                    ["link", "add", "tun", "type"].into_iter().chain(kind.split(' ')).collect();
                makes(host, &args)
            });
            if !there {
                continue;
            }
            for (host, .., number) in pairs {
                host.quiet_ipv6("tun");
                host.ip(&["link", "set", "tun", "mtu", "1400", "up"]);
                host.ip(&["address", "add", &format!("10.79.0.{number}/24"), "dev", "tun"]);
                if carries_v6 {
                    host.ip(&["-6", "address", "add", &format!("fd79::{number}/64"), "dev", "tun", "nodad"]);
                }
            }
            let mut rates = vec![
                tcp(&hosts.a, &hosts.b, "10.79.0.2:7001", 16),
                tcp(&hosts.b, &hosts.a, "10.79.0.1:7002", 16),
            ];
            if carries_v6 {
                rates.push(tcp(&hosts.a, &hosts.b, "[fd79::2]:7003", 16));
            }
            println!("{}, {kind} over IPv{}: {rates:.0?} Mbit/s", ports[0], if over_v6 { 6 } else { 4 });
            assert!(rates.iter().all(|rate| *rate > FLOOR), "{ports:?}, {kind}: {rates:.0?} Mbit/s");
            for (host, ..) in pairs {
                must(Command::new("ip").args(["-n", host.name(), "link", "delete", "tun"]));
            }
            passed += 1;
        }
        assert!(passed > 0, "this kernel makes one tunnel at least");
        let dropped = forwarding.end();
        assert!(dropped.is_empty(), "{ports:?}: {dropped:?}");
    }
}
