//! Interfaces that are told not to cut, sum or gather, before and while frames pass.

use pollux_tests::require::{Need, require};

use super::middle::{A4, A6, B4, B6, FLOOR, Hosts, Setup, features, forward, makes, tcp};

const SETTINGS: [&[&str]; 8] = [
    &["tso", "off"],
    &["gso", "off"],
    &["tso", "off", "gso", "off"],
    &["tx-tcp6-segmentation", "off"],
    &["tx-tcp-ecn-segmentation", "off"],
    &["tx", "off"],
    &["sg", "off"],
    &["tx", "off", "sg", "off", "tso", "off", "gso", "off", "gro", "off"],
];

fn measure(hosts: &Hosts, v6: bool, what: &str) {
    let (to_b, to_a) =
        if v6 { (format!("[{B6}]"), format!("[{A6}]")) } else { (B4.to_owned(), A4.to_owned()) };
    let rates = [
        tcp(&hosts.a, &hosts.b, &format!("{to_b}:7001"), 16),
        tcp(&hosts.b, &hosts.a, &format!("{to_a}:7002"), 16),
    ];
    println!("{what}, IPv{}: {rates:.0?} Mbit/s", if v6 { 6 } else { 4 });
    assert!(rates.iter().all(|rate| *rate > FLOOR), "{what}: {rates:.0?} Mbit/s");
}

#[test]
fn whatever_an_interface_is_told_tcp_goes_on() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let devices = ["net_af_packet0,iface=left", "net_af_packet1,iface=right"];
    for (number, setting) in SETTINGS.into_iter().enumerate() {
        // Before the port opens, or while it runs; on the egress towards one host, and on the host's own.
        for running in [false, true] {
            let hosts = Hosts::new();
            let mtu = if number % 2 == 0 { "1500" } else { "9000" };
            hosts.veth(&hosts.a, "left", mtu);
            hosts.veth(&hosts.b, "right", mtu);
            let ends = [(&hosts.middle, "right"), (&hosts.a, "eth0")];
            let set = |setting: &[&str]| ends.iter().for_each(|(host, end)| features(host, end, setting));
            if !running {
                set(setting);
            }
            let forwarding =
                forward(&hosts.middle, &devices, Setup::default(), &[(0, 1), (1, 0)], 1 + number % 2);
            hosts.addresses(mtu);
            let what = format!("{setting:?}, running: {running}");
            if running {
                measure(&hosts, false, &format!("{what}, before"));
                set(setting);
            }
            measure(&hosts, false, &what);
            measure(&hosts, true, &what);
            if running {
                let back: Vec<&str> =
                    setting.iter().map(|word| if *word == "off" { "on" } else { word }).collect();
                set(&back);
                measure(&hosts, false, &format!("{what}, back on"));
            }
            let dropped = forwarding.end();
            assert!(dropped.is_empty(), "{what}: {dropped:?}");
        }
    }
}

/// The kernel cuts a frame with two tags for every interface, whatever the features say (`vlan_features_check`,
/// include/linux/if_vlan.h); one tag it leaves to a veth.
#[test]
fn tagged_frames_are_cut_where_the_kernel_does_not() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let probe = Hosts::new();
    if !makes(&probe.a, &["link", "add", "tagged", "link", "lo", "type", "vlan", "id", "7"]) {
        return;
    }
    for (setting, qinq) in
        [(None, false), (None, true), (Some(["tso", "off"]), false), (Some(["tso", "off"]), true)]
    {
        let hosts = Hosts::new();
        hosts.veth(&hosts.a, "left", "1600");
        hosts.veth(&hosts.b, "right", "1600");
        if let Some(setting) = setting {
            features(&hosts.middle, "right", &setting);
            features(&hosts.middle, "left", &setting);
        }
        let devices = ["net_af_packet0,iface=left", "net_af_packet1,iface=right"];
        let forwarding = forward(&hosts.middle, &devices, Setup::default(), &[(0, 1), (1, 0)], 1);
        hosts.addresses("1600");
        for (host, address) in [(&hosts.a, "10.78.0.1/24"), (&hosts.b, "10.78.0.2/24")] {
            let mut below = "eth0";
            if qinq {
                host.ip(&[
                    "link", "add", "outer", "link", "eth0", "type", "vlan", "id", "9", "proto", "802.1ad",
                ]);
                host.ip(&["link", "set", "outer", "up"]);
                below = "outer";
            }
            host.ip(&["link", "add", "inner", "link", below, "type", "vlan", "id", "7"]);
            host.ip(&["link", "set", "inner", "mtu", "1500", "up"]);
            host.ip(&["address", "add", address, "dev", "inner"]);
        }
        let rates =
            [tcp(&hosts.a, &hosts.b, "10.78.0.2:7001", 16), tcp(&hosts.b, &hosts.a, "10.78.0.1:7002", 16)];
        println!("{setting:?}, two tags: {qinq}: {rates:.0?} Mbit/s");
        assert!(rates.iter().all(|rate| *rate > FLOOR), "{setting:?}, two tags: {qinq}: {rates:.0?} Mbit/s");
        let dropped = forwarding.end();
        assert!(dropped.is_empty(), "{dropped:?}");
    }
}
