//! Which port sends what which port received.

use std::str::FromStr;

/// DPDK's port mask: `3` or `0x3` is ports 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMask(u128);

impl FromStr for PortMask {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_start_matches("0x").trim_start_matches("0X");
        // `from_str_radix` would take a sign too.
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        match u128::from_str_radix(digits, 16) {
            Ok(0) => Err("selects no port: bit 0 is port 0, so 3 selects ports 0 and 1".into()),
            Ok(mask) if plain => Ok(Self(mask)),
            Err(_) if plain && digits.len() > 32 => {
                Err("selects a port above 127: give at most 32 hexadecimal digits".into())
            }
            _ => Err("is not a hexadecimal port mask such as 3".into()),
        }
    }
}

impl PortMask {
    /// The port numbers, ascending.
    pub fn ports(self) -> impl Iterator<Item = u16> {
        (0..128).filter(move |port| self.0 >> port & 1 == 1)
    }
}

/// DPDK's port map: `(0,1),(2,3)`; the two ports of a pair send what the other receives. As in DPDK, the comma between
/// pairs may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMap(Vec<(u16, u16)>);

impl FromStr for PortMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "is not a port map such as (0,1),(2,3)".to_owned();
        let mut pairs: Vec<(u16, u16)> = Vec::new();
        let text: String = text.chars().filter(|mark| !mark.is_whitespace()).collect();
        let text = text.replace(")(", "),(");
        let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).ok_or_else(wrong)?;
        for pair in inner.split("),(") {
            let (first, second) = pair.split_once(',').ok_or_else(wrong)?;
            let port = |text: &str| match text.parse::<u128>() {
                Ok(port) if !text.starts_with('+') => u16::try_from(port)
                    .map_err(|_| format!("names port {port}: ports are numbered from 0 to {}", u16::MAX)),
                _ => Err(wrong()),
            };
            let (first, second) = (port(first)?, port(second)?);
            for port in [first, second] {
                if pairs.iter().any(|&(a, b)| a == port || b == port) {
                    return Err(format!("names port {port} twice: a port can be in only one pair"));
                }
            }
            pairs.push((first, second));
        }
        Ok(Self(pairs))
    }
}

/// From which port to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Receives.
    pub from: u16,
    /// Sends.
    pub to: u16,
}

/// The hops of DPDK's l2fwd: neighbours among the ports of `mask` (of all those in `names` if there is none) send to each
/// other, or the pairs of `map` do. Ascending by source; every port is the destination of at most one hop.
///
/// With an odd number of ports the last one sends to itself; then there is a notice that says so.
///
/// # Errors
/// A sentence when mask or map name a port that does not exist or contradict each other.
pub fn hops(
    names: &[String],
    mask: Option<PortMask>,
    map: Option<&PortMap>,
) -> Result<(Vec<Hop>, Option<String>), String> {
    let there = || {
        let list: Vec<String> =
            names.iter().enumerate().map(|(port, name)| format!("{port} {name}")).collect();
        format!("ports: {}", list.join(", "))
    };
    let exists = |what: &str, port: u16| {
        if usize::from(port) < names.len() {
            Ok(())
        } else {
            Err(format!("{what} names port {port}, which does not exist; {}", there()))
        }
    };
    let enabled: Vec<u16> = match mask {
        Some(mask) => mask.ports().collect(),
        None => (0..names.len()).map(|port| port as u16).collect(),
    };
    enabled.iter().try_for_each(|&port| exists("-p", port))?;
    let mut hops = Vec::new();
    let mut notice = None;
    if let Some(PortMap(pairs)) = map {
        for &(first, second) in pairs {
            for port in [first, second] {
                exists("--portmap", port)?;
                if !enabled.contains(&port) {
                    return Err(format!("--portmap names port {port}, which -p leaves out: add it to -p"));
                }
            }
            hops.push(Hop { from: first, to: second });
            if first != second {
                hops.push(Hop { from: second, to: first });
            }
        }
    } else {
        for pair in enabled.chunks(2) {
            match *pair {
                [first, second] => {
                    hops.extend([Hop { from: first, to: second }, Hop { from: second, to: first }])
                }
                [last] => {
                    hops.push(Hop { from: last, to: last });
                    notice = Some(format!("odd number of ports: port {last} sends to itself"));
                }
                _ => {}
            }
        }
    }
    hops.sort_unstable_by_key(|hop| hop.from);
    Ok((hops, notice))
}

/// Deals `count` hops out to lcores, neighbours together: `each` to an lcore, or as few as the lcores allow if not
/// given. One entry for each lcore that has work: how many hops it takes.
///
/// # Errors
/// A sentence when the lcores do not suffice.
pub fn deal(count: usize, lcores: usize, each: Option<usize>) -> Result<Vec<usize>, String> {
    let per_lcore = each.unwrap_or(count.div_ceil(lcores.max(1))).max(1);
    let needed = count.div_ceil(per_lcore);
    if needed > lcores {
        return Err(format!(
            "-q {per_lcore} requires {needed} lcores for {count} rx queues, but there are {lcores}: give -q {} or more lcores \
             with -l",
            count.div_ceil(lcores.max(1))
        ));
    }
    Ok((0..needed).map(|lcore| per_lcore.min(count - lcore * per_lcore)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|port| format!("net_null{port}")).collect()
    }

    type Route = Result<(Vec<(u16, u16)>, Option<String>), String>;

    fn route(count: usize, mask: Option<&str>, map: Option<&str>) -> Route {
        let mask = mask.map(|text| text.parse().unwrap());
        let map = map.map(|text| text.parse().unwrap());
        let (hops, notice) = hops(&names(count), mask, map.as_ref())?;
        Ok((hops.iter().map(|hop| (hop.from, hop.to)).collect(), notice))
    }

    #[test]
    fn neighbours_send_to_each_other() {
        assert_eq!(route(4, None, None), Ok((vec![(0, 1), (1, 0), (2, 3), (3, 2)], None)));
        assert_eq!(route(4, Some("a"), None), Ok((vec![(1, 3), (3, 1)], None)));
    }

    #[test]
    fn a_last_odd_port_sends_to_itself_with_one_notice() {
        let notice = Some("odd number of ports: port 2 sends to itself".to_owned());
        assert_eq!(route(3, None, None), Ok((vec![(0, 1), (1, 0), (2, 2)], notice)));
    }

    #[test]
    fn a_map_overrides_neighbours() {
        assert_eq!(route(4, None, Some("(0,3),(1,2)")), Ok((vec![(0, 3), (1, 2), (2, 1), (3, 0)], None)));
        assert_eq!(route(4, None, Some("(0,1)(3,2)")), Ok((vec![(0, 1), (1, 0), (2, 3), (3, 2)], None)));
        assert_eq!(route(4, Some("0x9"), Some(" ( 3 , 0 ) ")), Ok((vec![(0, 3), (3, 0)], None)));
    }

    #[test]
    fn ports_that_are_not_there_are_refused() {
        let there = "ports: 0 net_null0, 1 net_null1";
        assert_eq!(route(2, Some("8"), None), Err(format!("-p names port 3, which does not exist; {there}")));
        let map = route(2, None, Some("(0,5)"));
        assert_eq!(map, Err(format!("--portmap names port 5, which does not exist; {there}")));
        let out = route(4, Some("3"), Some("(0,2)"));
        assert_eq!(out, Err("--portmap names port 2, which -p leaves out: add it to -p".into()));
    }

    #[test]
    fn masks_and_maps_are_read() {
        assert_eq!("0x5".parse::<PortMask>().map(|mask| mask.ports().collect::<Vec<_>>()), Ok(vec![0, 2]));
        for bad in ["", "0", "x", "+1", "-1", &"f".repeat(33)] {
            assert!(bad.parse::<PortMask>().is_err(), "{bad}");
        }
        for bad in ["", "0,1", "(0)", "(0,1", "(+0,1)", "(0,70000)", "(0,1),(1,2)", "(a,b)", "(0,1),"] {
            assert!(bad.parse::<PortMap>().is_err(), "{bad}");
        }
    }

    #[test]
    fn hops_are_dealt_to_as_few_lcores_as_q_allows() {
        assert_eq!(deal(4, 2, None), Ok(vec![2, 2]));
        assert_eq!(deal(3, 2, None), Ok(vec![2, 1]));
        assert_eq!(deal(2, 8, None), Ok(vec![1, 1]));
        assert_eq!(deal(4, 4, Some(3)), Ok(vec![3, 1]));
        let refusal =
            "-q 1 requires 4 lcores for 4 rx queues, but there are 2: give -q 2 or more lcores with -l";
        assert_eq!(deal(4, 2, Some(1)), Err(refusal.into()));
    }
}
