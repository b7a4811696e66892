//! The flow rules of the end that receives.
//!
//! Source: linux-rdma/perftest `src/raw_ethernet_resources.c`, `set_up_flow_rules`, `fill_ip_common`, `print_spec`.

use std::fmt::Write;
use std::net::IpAddr;

use pollux_verbs::{EthFilter, FlowSpec, Ipv4Filter, Ipv6Filter, TcpUdpFilter};
use pollux_wire::MacAddress;

use super::plan::{Plan, Role};

/// What a frame of a queue pair's flow is known by.
#[must_use]
pub fn specs(plan: &Plan, flow: u16) -> Vec<FlowSpec> {
    let destination = plan.multicast.unwrap_or(plan.own);
    let mut value = EthFilter { dst_mac: destination.0, ..EthFilter::default() };
    let mut mask = EthFilter { dst_mac: [0xff; 6], ..EthFilter::default() };
    if let Some(ethertype) = plan.headers.ethertype {
        value.ether_type = ethertype.into();
        mask.ether_type = 0xffff.into();
    }
    let mut specs = vec![FlowSpec::Eth { value, mask, inner: false }];
    // The client of a test of both directions looks at the addresses' kind alone.
    let exact = plan.role == Role::Server;
    // Whoever sends to one of the queues over which frames are spread.
    let spread = plan.spread.is_some();
    match plan.ips {
        None => {}
        Some((IpAddr::V4(server), IpAddr::V4(client))) => {
            let (mut value, mut mask) = (Ipv4Filter::default(), Ipv4Filter::default());
            if exact {
                value.dst_ip = server.to_bits().into();
                mask.dst_ip = u32::MAX.into();
                if !spread {
                    value.src_ip = client.to_bits().into();
                    mask.src_ip = u32::MAX.into();
                }
            }
            specs.push(FlowSpec::Ipv4 { value, mask, inner: false });
        }
        Some((server, client)) => {
            let (mut value, mut mask) = (Ipv6Filter::default(), Ipv6Filter::default());
            if exact && let (IpAddr::V6(server), IpAddr::V6(client)) = (server, client) {
                (value.dst_ip, mask.dst_ip) = (server.octets(), [0xff; 16]);
                if !spread {
                    (value.src_ip, mask.src_ip) = (client.octets(), [0xff; 16]);
                    if let Some(label) = plan.headers.flow_label(flow) {
                        (value.flow_label, mask.flow_label) = (label.into(), 0xf_ffff.into());
                    }
                }
            }
            specs.push(FlowSpec::Ipv6 { value, mask, inner: false });
        }
    }
    if let Some((server, client)) = plan.ports {
        let (server, client) = (server.wrapping_add(flow), client.wrapping_add(flow));
        let (to, from) = if exact { (server, client) } else { (client, server) };
        // A multicast comes from no port.
        let any = plan.multicast.is_some();
        let from = if any { 0 } else { from };
        let mut value = TcpUdpFilter { dst_port: to.into(), src_port: from.into() };
        let mut mask =
            TcpUdpFilter { dst_port: 0xffff.into(), src_port: if any { 0 } else { 0xffff }.into() };
        if spread {
            (value, mask) = (TcpUdpFilter::default(), TcpUdpFilter::default());
        }
        specs.push(match plan.headers.tcp {
            true => FlowSpec::Tcp { value, mask, inner: false },
            false => FlowSpec::Udp { value, mask, inner: false },
        });
    }
    specs
}

/// A rule as the original prints it.
#[must_use]
pub fn text(specs: &[FlowSpec]) -> String {
    let mut text = String::new();
    for spec in specs {
        let _ = match spec {
            FlowSpec::Eth { value, .. } => {
                let mac = MacAddress(value.dst_mac).to_string().to_uppercase();
                writeln!(text, "MAC attached  : {mac}")
            }
            FlowSpec::Ipv4 { value, .. } => {
                let [to, from] = [value.dst_ip, value.src_ip].map(|ip| std::net::Ipv4Addr::from(ip.get()));
                writeln!(text, "spec_info - dst_ip   : {to}\nspec_info - src_ip   : {from}")
            }
            FlowSpec::Ipv6 { value, .. } => {
                let [to, from] = [value.dst_ip, value.src_ip].map(std::net::Ipv6Addr::from);
                writeln!(text, "spec_info - dst_ip   : {to}\nspec_info - src_ip   : {from}")
            }
            FlowSpec::Udp { value, .. } | FlowSpec::Tcp { value, .. } => {
                let (to, from) = (value.dst_port, value.src_port);
                writeln!(text, "spec_info - dst_port : {to}\nspec_info - src_port : {from}")
            }
            _ => Ok(()),
        };
    }
    text
}
