//! Rules: which flows are dropped.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use pollux::kit::WatchedFile;
use pollux::wire::{FiveTuple, IpProtocol};

/// What a rule asks of an address and a port; `None` matches all.
type End = (Option<IpAddr>, Option<u16>);

/// Flows that are dropped: protocol, source, destination.
#[derive(Debug)]
pub(crate) struct Rules(Vec<(Option<IpProtocol>, End, End)>);

fn matches<T: PartialEq>(wanted: Option<T>, value: T) -> bool {
    wanted.is_none_or(|wanted| wanted == value)
}

fn word<T: FromStr>(word: &str) -> Option<Option<T>> {
    if word == "*" { Some(None) } else { word.parse().ok().map(Some) }
}

fn rule(line: &str) -> Option<(Option<IpProtocol>, End, End)> {
    let words: [&str; 6] = line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
    let protocol = match words[..2] {
        ["drop", "tcp"] => Some(IpProtocol::TCP),
        ["drop", "udp"] => Some(IpProtocol::UDP),
        ["drop", "*"] => None,
        _ => return None,
    };
    Some((protocol, (word(words[2])?, word(words[3])?), (word(words[4])?, word(words[5])?)))
}

impl Rules {
    pub(crate) fn read(file: &mut WatchedFile) -> Result<Self, String> {
        let text = file.read(1 << 20)?;
        let name = file.path().display();
        let lines =
            text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('#'));
        let all = lines.map(|(line, at)| {
            let wrong =
                || format!("{name}:{at}: '{line}' is no rule; one is: drop tcp 10.0.0.1 * 10.0.0.2 23");
            rule(line).ok_or_else(wrong)
        });
        Ok(Self(all.collect::<Result<_, _>>()?))
    }

    /// The flow, if no rule drops it.
    pub(crate) fn allow(&self, flow: FiveTuple) -> Option<FiveTuple> {
        let end = |wanted: End, end: SocketAddr| matches(wanted.0, end.ip()) && matches(wanted.1, end.port());
        let mut rules = self.0.iter();
        let drops = rules
            .any(|rule| matches(rule.0, flow.protocol) && end(rule.1, flow.src) && end(rule.2, flow.dst));
        (!drops).then_some(flow)
    }
}
