//! The commands of the prompt: all of them, in one table.

mod attach;
mod control;
mod display;
mod filter;
mod flow;
mod port;
mod regroup;
mod setting;

pub(crate) use control::{start, stop};

use crate::grammar::{Command, complete, parse};
use crate::session::Session;

/// Runs a line. Empty lines and comments do nothing.
///
/// # Errors
/// What is wrong with it, or why it cannot be done.
pub fn run(session: &mut Session, line: &str) -> Result<String, String> {
    let line = line.split('#').next().unwrap_or_default().trim();
    if line.is_empty() {
        return Ok(String::new());
    }
    let commands = table();
    let (command, args) = parse(&commands, line)?;
    (command.run)(session, &args)
}

/// All commands.
#[must_use]
pub fn table() -> Vec<Command> {
    let parts: [&[Command]; 8] = [
        control::COMMANDS,
        display::COMMANDS,
        setting::COMMANDS,
        port::COMMANDS,
        attach::COMMANDS,
        filter::COMMANDS,
        regroup::COMMANDS,
        flow::COMMANDS,
    ];
    parts.concat()
}

/// Words that may stand at the end of a line.
#[must_use]
pub fn completions(line: &str) -> Vec<String> {
    complete(&table(), line)
}

/// The port of that number.
fn port_of(session: &mut Session, id: u16) -> Result<&mut pollux_port::Port, String> {
    session.bringup.ports.get_mut(pollux_port::PortId(id)).ok_or_else(|| crate::ports::no_port(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_commands_have_one_syntax() {
        let table = table();
        let mut all: Vec<&str> = table.iter().map(|command| command.syntax).collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(count > 80, "{count}");
    }

    #[test]
    fn lines_are_completed_from_the_table() {
        assert_eq!(completions("sta"), ["start"]);
        assert_eq!(completions("set fw"), ["fwd"]);
        assert!(completions("show port ").contains(&"info".to_owned()));
        assert_eq!(completions("set fwd macs"), ["macswap"]);
        assert_eq!(completions("show port info a"), ["all"]);
        assert_eq!(completions("flow create 0 ingress pattern eth / ipv4 s"), ["src"]);
        assert_eq!(completions("nothing "), [""; 0]);
    }
}
