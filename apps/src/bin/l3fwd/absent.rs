//! Options of DPDK's l3fwd that mean nothing here: each is refused with the reason, where it would be unknown.
//!
//! Source of names, and of which take a value: DPDK `examples/l3fwd/main.c`, `lgopts`.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// One of them.
#[derive(Debug)]
struct Lacking {
    name: &'static str,
    takes_value: bool,
    why: &'static str,
}

const fn flag(name: &'static str, why: &'static str) -> Lacking {
    Lacking { name, takes_value: false, why }
}

const fn value(name: &'static str, why: &'static str) -> Lacking {
    Lacking { name, takes_value: true, why }
}

const EVENTS: &str = "there are no event devices; queues are always polled";

/// All of them.
const LACKING: &[Lacking] = &[
    value("eth-link-speed", "ports keep the speed of their links"),
    flag("no-numa", "the EAL places memory: --numa-mem and --numa-limit tell it where"),
    value("hash-entry-num", "tables are as large as the rules in their files need"),
    flag("disable-rss", "a port with one rx queue has no RSS"),
    flag("per-port-pool", "one pool serves all ports"),
    value("alg", "rules are classified in only one way"),
    value("eventq-sched", EVENTS),
    value("event-eth-rxqs", EVENTS),
    flag("event-vector", EVENTS),
    value("event-vector-size", EVENTS),
    value("event-vector-tmo", EVENTS),
];

/// `--mode`, of which one value means something. `--idle` has its name in clap already.
const MODE: Lacking = value("mode", EVENTS);
const MODE_ID: &str = "transfer-mode";

/// Which of them was given; none when all is well.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Absent(Option<&'static Lacking>);

impl Absent {
    /// One line on what was given.
    pub(crate) fn line(self) -> Option<String> {
        self.0.map(|lacking| format!("--{} is not supported: {}; leave it out", lacking.name, lacking.why))
    }
}

impl FromArgMatches for Absent {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let typed = |lacking: &&Lacking| matches.value_source(lacking.name) == Some(ValueSource::CommandLine);
        let polls = matches.get_one::<String>(MODE_ID).is_none_or(|mode| mode == "poll");
        Ok(Self(LACKING.iter().find(typed).or(if polls { None } else { Some(&MODE) })))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Absent {
    fn augment_args(command: Command) -> Command {
        let hidden = |id: &'static str, lacking: &Lacking, action| {
            Arg::new(id).long(lacking.name).action(action).hide(true)
        };
        let command = command.arg(hidden(MODE_ID, &MODE, ArgAction::Set));
        LACKING.iter().fold(command, |command, lacking| {
            let action = if lacking.takes_value { ArgAction::Append } else { ArgAction::Count };
            command.arg(hidden(lacking.name, lacking, action))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::options::Options;

    #[test]
    fn each_is_refused_by_its_name_with_the_reason() {
        for lacking in LACKING.iter().chain([&MODE]) {
            let name = format!("--{}", lacking.name);
            let words = ["l3fwd", &name].into_iter().chain(lacking.takes_value.then_some("1"));
            let line = Options::try_parse_from(words).expect("it is known").absent.line();
            let line = line.expect("it is refused");
            assert!(line.starts_with(&name) && line.contains(lacking.why), "{line}");
        }
        let polls = Options::try_parse_from(["l3fwd", "--mode", "poll", "--parse-ptype", "--ipv6"]);
        assert_eq!(polls.expect("it is known").absent.line(), None);
    }
}
