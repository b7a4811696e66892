//! Which ports there are, and which lcore polls which of their rx queues (`--config`).

use std::collections::BTreeMap;
use std::str::FromStr;

use pollux_eal::lcore::LcoreId;
use pollux_kit::pairs::{PortMask, deal};
use pollux_port::PortId;

/// An rx queue and who polls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Polled {
    port: u16,
    queue: u16,
    lcore: u16,
}

/// DPDK's `--config`: `(port,queue,lcore),(port,queue,lcore)`. The comma between them may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config(Vec<Polled>);

impl FromStr for Config {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "is not a list of (port,queue,lcore) such as (0,0,1),(1,0,2)".to_owned();
        let text: String = text.chars().filter(|mark| !mark.is_whitespace()).collect();
        let text = text.replace(")(", "),(");
        let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).ok_or_else(wrong)?;
        let one = |item: &str| {
            let numbers = item.split(',').map(|number| {
                let plain = number.bytes().all(|digit| digit.is_ascii_digit());
                number.parse().ok().filter(|_| plain).ok_or_else(wrong)
            });
            match numbers.collect::<Result<Vec<u16>, String>>()?[..] {
                [port, queue, lcore] => Ok(Polled { port, queue, lcore }),
                _ => Err(wrong()),
            }
        };
        inner.split("),(").map(one).collect::<Result<_, _>>().map(Self)
    }
}

/// The ports that forward, in the order of their numbers: a place in that order is what tables answer.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    /// Of all ports, by number.
    names: Vec<String>,
    used: Vec<u16>,
}

impl Ports {
    /// Those of the mask; all if there is none.
    ///
    /// # Errors
    /// A sentence when the mask names a port that does not exist.
    pub(crate) fn new(names: Vec<String>, mask: Option<PortMask>) -> Result<Self, String> {
        let used = match mask {
            Some(mask) => mask.ports().collect(),
            None => (0..names.len()).map(|port| port as u16).collect(),
        };
        let ports = Self { names, used };
        for port in &ports.used {
            ports.exists(*port).map_err(|why| format!("-p names {why}"))?;
        }
        Ok(ports)
    }

    /// Their numbers.
    pub(crate) fn ids(&self) -> Vec<PortId> {
        self.used.iter().map(|port| PortId(*port)).collect()
    }

    pub(crate) fn name(&self, port: PortId) -> &str {
        &self.names[usize::from(port.0)]
    }

    fn exists(&self, port: u16) -> Result<(), String> {
        if usize::from(port) < self.names.len() {
            return Ok(());
        }
        let list = self.names.iter().enumerate().map(|(port, name)| format!("{port} {name}"));
        let list = list.collect::<Vec<_>>().join(", ");
        Err(format!("port {port}, which does not exist; ports: {list}"))
    }

    /// The place of a port.
    ///
    /// # Errors
    /// The rest of a sentence that says who names it: it does not exist, or is not used.
    pub(crate) fn place(&self, port: u16) -> Result<usize, String> {
        self.exists(port)?;
        let place = self.used.iter().position(|used| *used == port);
        place.ok_or_else(|| format!("port {port}, which -p leaves out: add it to -p"))
    }
}

/// The rx queues of an lcore: the place of a port, and a queue's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) lcore: LcoreId,
    pub(crate) queues: Vec<(usize, u16)>,
}

/// Deals the queues out as `config` says; without it each port has one, and neighbours are on the same lcore where there are fewer of these.
///
/// # Errors
/// A sentence: a port or an lcore that is not there, a queue that is polled twice, or one that is not though a later one is.
pub(crate) fn shares(
    config: Option<&Config>,
    ports: &Ports,
    lcores: &[LcoreId],
) -> Result<Vec<Share>, String> {
    let Some(Config(list)) = config else {
        let mut places = 0..ports.used.len();
        let counts = deal(places.len(), lcores.len(), None)?;
        let share = |(lcore, count): (&LcoreId, usize)| Share {
            lcore: *lcore,
            queues: places.by_ref().take(count).map(|place| (place, 0)).collect(),
        };
        return Ok(lcores.iter().zip(counts).map(share).collect());
    };
    let mut shares: BTreeMap<LcoreId, Vec<(usize, u16)>> = BTreeMap::new();
    let mut queues: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
    for &Polled { port, queue, lcore } in list {
        let place = ports.place(port).map_err(|why| format!("--config names {why}"))?;
        if !lcores.contains(&LcoreId(lcore)) {
            let all: Vec<String> = lcores.iter().map(ToString::to_string).collect();
            let all = all.join(",");
            return Err(format!("--config names lcore {lcore}, which is not one of {all}: add it to -l"));
        }
        let of_port = queues.entry(port).or_default();
        if of_port.contains(&queue) {
            return Err(format!(
                "--config names queue {queue} of port {port} twice: one lcore polls a queue"
            ));
        }
        of_port.push(queue);
        shares.entry(LcoreId(lcore)).or_default().push((place, queue));
    }
    for (port, of_port) in &queues {
        if let Some(missing) = (0..of_port.len() as u16).find(|queue| !of_port.contains(queue)) {
            let most = of_port.iter().max().copied().unwrap_or_default();
            return Err(format!(
                "--config names queue {most} of port {port}, but not queue {missing}: queues are numbered from 0 without gaps"
            ));
        }
    }
    Ok(shares.into_iter().map(|(lcore, queues)| Share { lcore, queues }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(mask: Option<&str>) -> Result<Ports, String> {
        let names = (0..3).map(|port| format!("net_null{port}")).collect();
        Ports::new(names, mask.map(|mask| mask.parse().expect("a mask")))
    }

    type Dealt = Vec<(u16, Vec<(usize, u16)>)>;

    fn dealt(config: Option<&str>, mask: Option<&str>) -> Result<Dealt, String> {
        let config = config.map(|text| text.parse().expect("a list"));
        let shares = shares(config.as_ref(), &ports(mask)?, &[LcoreId(1), LcoreId(2)])?;
        Ok(shares.into_iter().map(|share| (share.lcore.0, share.queues)).collect())
    }

    #[test]
    fn each_port_has_a_queue_on_an_lcore_in_turn() {
        assert_eq!(dealt(None, None), Ok(vec![(1, vec![(0, 0), (1, 0)]), (2, vec![(2, 0)])]));
        assert_eq!(dealt(None, Some("4")), Ok(vec![(1, vec![(0, 0)])]));
    }

    #[test]
    fn a_list_says_who_polls_what() {
        assert_eq!(
            dealt(Some("(0,0,2),(0,1,1)(2,0,2)"), None),
            Ok(vec![(1, vec![(0, 1)]), (2, vec![(0, 0), (2, 0)])])
        );
        // Places count the ports that are used.
        assert_eq!(dealt(Some(" ( 2, 0, 1 ) "), Some("6")), Ok(vec![(1, vec![(1, 0)])]));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let there = "ports: 0 net_null0, 1 net_null1, 2 net_null2";
        for (config, mask, why) in [
            ("(3,0,1)", None, format!("--config names port 3, which does not exist; {there}")),
            ("(0,0,1)", Some("2"), "--config names port 0, which -p leaves out: add it to -p".into()),
            ("(0,0,3)", None, "--config names lcore 3, which is not one of 1,2: add it to -l".into()),
            (
                "(0,0,1),(0,0,2)",
                None,
                "--config names queue 0 of port 0 twice: one lcore polls a queue".into(),
            ),
            (
                "(0,2,1),(0,0,1)",
                None,
                "--config names queue 2 of port 0, but not queue 1: queues are numbered from 0 without gaps"
                    .into(),
            ),
        ] {
            assert_eq!(dealt(Some(config), mask), Err(why), "{config}");
        }
        assert!(dealt(None, Some("8")).is_err_and(|why| why.starts_with("-p names port 3, which does not")));
        for wrong in
            ["", "0,0,1", "(0,0)", "(0,0,1,2)", "(0,0,x)", "(0,0,-1)", "(0,0,+1)", "(0,0,70000)", "(0,0,1),"]
        {
            assert!(wrong.parse::<Config>().is_err_and(|why| why.contains("such as")), "{wrong}");
        }
    }
}
