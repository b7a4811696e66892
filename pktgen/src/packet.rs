//! A packet as it is typed: `ether/vlan(id=5)/ipv4(src=10.0.0.1..10.0.0.9)/udp(dst=53)/payload(c0ffee)`.

use std::str::FromStr;

use crate::layer::{Field, Layer, names};
use crate::value::Values;

/// The most headers of a packet.
const LAYERS_MAX: usize = 16;

/// One header, and what is said of its fields.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) layer: Layer,
    pub(crate) settings: Vec<(&'static Field, Values)>,
}

/// Headers and how the payload begins.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) headers: Vec<Header>,
    pub(crate) payload: Vec<u8>,
}

impl Default for Packet {
    /// A UDP datagram to the discard port, between addresses of benchmarks.
    fn default() -> Self {
        let headers = [Layer::Ether, Layer::Ipv4, Layer::Udp];
        let headers = headers.map(|layer| Header { layer, settings: Vec::new() });
        Self { headers: headers.into(), payload: Vec::new() }
    }
}

impl FromStr for Packet {
    type Err = String;

    /// What is wrong is said behind the text.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut packet = Self { headers: Vec::new(), payload: Vec::new() };
        let mut ended = false;
        for part in text.split('/') {
            if ended {
                return Err("has a header behind the payload, which comes last".into());
            }
            let (name, settings) = part_of(part)?;
            if name == "payload" {
                packet.payload = bytes(settings)?;
                ended = true;
                continue;
            }
            let header = header(name, settings)?;
            match packet.headers.last() {
                None if header.layer != Layer::Ether => {
                    return Err(format!("begins with '{name}': the first header is 'ether'"));
                }
                Some(before) if !before.layer.next().contains(&header.layer.keyless()) => {
                    let allowed = match before.layer.next() {
                        [] => "a payload".into(),
                        next => format!("{} or a payload", names(next)),
                    };
                    return Err(format!("has '{name}' behind '{}', where {allowed} may stand", before.layer));
                }
                _ => {}
            }
            packet.headers.push(header);
            if packet.headers.len() > LAYERS_MAX {
                return Err(format!("has too many headers: at most {LAYERS_MAX}"));
            }
        }
        if packet.headers.is_empty() {
            return Err("has no header: the first one is 'ether'".into());
        }
        Ok(packet)
    }
}

impl Layer {
    /// GRE with a key is GRE where its place is concerned.
    fn keyless(self) -> Self {
        if self == Self::GreKey { Self::Gre } else { self }
    }
}

/// Name and what stands in the parentheses behind it.
fn part_of(part: &str) -> Result<(&str, &str), String> {
    let part = part.trim();
    let Some((name, rest)) = part.split_once('(') else { return Ok((part, "")) };
    let settings = rest.strip_suffix(')').filter(|rest| !rest.contains(['(', ')']));
    let settings = settings.ok_or_else(|| format!("has '{part}', whose parentheses do not match"))?;
    Ok((name.trim(), settings))
}

fn header(name: &str, settings: &str) -> Result<Header, String> {
    let found = Layer::ALL.into_iter().find(|layer| layer.name() == name);
    let mut layer = found
        .ok_or_else(|| format!("has no header '{name}': headers are {}, payload", names(&Layer::ALL)))?;
    let mut header = Header { layer, settings: Vec::new() };
    for setting in settings.split(',').filter(|setting| !setting.trim().is_empty()) {
        let (key, text) = setting
            .split_once('=')
            .ok_or_else(|| format!("has '{}' in '{name}', which is not FIELD=VALUE", setting.trim()))?;
        let key = key.trim();
        let field = layer.field(key).ok_or_else(|| {
            let fields: Vec<&str> = layer.fields().iter().map(|field| field.name).collect();
            format!("has no field '{name}.{key}': fields of {name} are {}", fields.join(", "))
        })?;
        if header.settings.iter().any(|(other, _)| other.name == key) {
            return Err(format!("has field '{name}.{key}' twice"));
        }
        if layer == Layer::Gre {
            // Its only field needs the longer header.
            layer = Layer::GreKey;
        }
        let values = Values::parse(field, &format!("{name}.{key}"), text)?;
        if layer == Layer::Udp && key == "sum" && values.varying() != 0 {
            return Err("field 'udp.sum' is 0 or 1 in all packets".into());
        }
        header.settings.push((field, values));
    }
    header.layer = layer;
    Ok(header)
}

fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("has a payload of '{text}', which is not hexadecimal bytes such as c0ffee");
    let digits = text.trim().as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(wrong());
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect::<Option<_>>().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_stand_in_an_order_that_can_be() {
        for text in [
            "ether",
            "ether/vlan/qinq/ipv4/tcp",
            "ether/mpls(label=16)/mpls/ipv6/icmpv6",
            "ether/ipv4/udp/vxlan(vni=5)/ether/ipv4/udp/payload(c0ffee)",
            "ether/ipv6/gre(key=7)/ether/arp",
            "ether/ipv4/gre/ipv4/icmp",
            "ether/ipv4/udp/gtpu(teid=1..9)/ipv4/tcp(flags=2)",
            "ether / ipv4 ( src = 10.0.0.1 , ttl = 9 ) / payload()",
        ] {
            assert!(text.parse::<Packet>().is_ok(), "{text}: {:?}", text.parse::<Packet>().err());
        }
        for (text, why) in [
            ("", "has no header '': headers are "),
            ("ipv4/udp", "begins with 'ipv4': the first header is 'ether'"),
            ("payload(00)", "has no header: the first one is 'ether'"),
            (
                "ether/udp",
                "has 'udp' behind 'ether', where vlan, qinq, mpls, arp, ipv4, ipv6 or a payload may stand",
            ),
            ("ether/ipv4/tcp/udp", "has 'udp' behind 'tcp', where a payload may stand"),
            ("ether/payload(00)/ipv4", "has a header behind the payload, which comes last"),
            ("ether/payload(0)", "has a payload of '0', which is not hexadecimal bytes such as c0ffee"),
            ("ether/ipv4(src)", "has 'src' in 'ipv4', which is not FIELD=VALUE"),
            (
                "ether/ipv4(port=9)",
                "has no field 'ipv4.port': fields of ipv4 are tos, id, flags, ttl, proto, src, dst",
            ),
            ("ether/ipv4(ttl=9,ttl=8)", "has field 'ipv4.ttl' twice"),
            ("ether/ipv4(ttl=9", "has 'ipv4(ttl=9', whose parentheses do not match"),
            ("ether/ipv4/udp(sum=random)", "field 'udp.sum' is 0 or 1 in all packets"),
        ] {
            let refusal = text.parse::<Packet>().map(|_| ()).expect_err(text);
            assert!(refusal.starts_with(why), "{text}: {refusal}");
        }
        let deep = format!("ether{}", "/mpls".repeat(LAYERS_MAX));
        assert_eq!(deep.parse::<Packet>().map(|_| ()), Err("has too many headers: at most 16".into()));
    }
}
