//! `flow`: rules, in DPDK's grammar. `rule.rs` reads them.

mod fields;
mod rule;

use std::fmt::Write;

use pollux_port::flow::{FlowHandle, FlowRule};

use super::port_of;
use crate::grammar::{Arg, Args, Command, Section};
use crate::session::Session;

const fn command(syntax: &'static str, help: &'static str, run: crate::grammar::Handler) -> Command {
    Command { syntax, help, section: Section::Filters, run, rest: None }
}

const fn with_rule(syntax: &'static str, help: &'static str, run: crate::grammar::Handler) -> Command {
    Command { rest: Some(rule::complete), ..command(syntax, help, run) }
}

pub(super) const COMMANDS: &[Command] = &[
    with_rule(
        "flow validate <port> <rest>",
        "Check a flow rule: [group N] [priority N] ingress pattern ITEM / ... / end actions ACTION / ... / end.",
        validate,
    ),
    with_rule("flow create <port> <rest>", "Create a flow rule.", create),
    command("flow destroy <port> rule <rest>", "Destroy flow rules, by number.", destroy),
    command("flow query <port> <rule> (count)", "Show the counter of a flow rule.", query),
    command("flow list <port>", "Show the flow rules of a port.", |session, args| {
        list(session, args.port(0), None)
    }),
    command("flow list <port> group <group>", "Show the flow rules of a group.", |session, args| {
        list(session, args.port(0), u32::try_from(args.number(1)).ok())
    }),
    command("flow flush <port>", "Destroy all flow rules of a port.", flush),
    command(
        "flow isolate <port> <switch>",
        "Deliver only packets that flow rules match: 1, or all: 0.",
        isolate,
    ),
];

fn read(args: &Args) -> Result<FlowRule, String> {
    let words: Vec<&str> = args.word(1).split(' ').collect();
    rule::parse(&words)
}

/// As DPDK's testpmd begins such lines.
fn complain(error: &pollux_port::PortError) -> String {
    format!("port_flow_complain(): Caught PMD error: {error}")
}

fn validate(session: &mut Session, args: &Args) -> Result<String, String> {
    let rule = read(args)?;
    let done = port_of(session, args.port(0))?.flow_validate(&rule);
    done.map(|()| "Flow rule validated\n".into()).map_err(|error| complain(&error))
}

fn create(session: &mut Session, args: &Args) -> Result<String, String> {
    let rule = read(args)?;
    let made = port_of(session, args.port(0))?.flow_create(&rule);
    made.map(|handle| format!("Flow rule #{handle} created\n")).map_err(|error| complain(&error))
}

/// The rule of that number.
fn handle(session: &mut Session, id: u16, number: u64) -> Result<FlowHandle, String> {
    let port = port_of(session, id)?;
    let found =
        port.flow_rules().map(|(handle, _)| handle).find(|handle| handle.to_string() == number.to_string());
    found.ok_or_else(|| format!("Flow rule #{number} not found"))
}

fn destroy(session: &mut Session, args: &Args) -> Result<String, String> {
    let id = args.port(0);
    let mut told = String::new();
    // Further ones stand behind the word again.
    for word in args.word(1).split(' ').filter(|word| *word != "rule") {
        let number = crate::grammar::number(word)
            .ok_or_else(|| format!("Bad arguments\n'{word}' is not the number of a flow rule"))?;
        let handle = handle(session, id, number)?;
        port_of(session, id)?.flow_destroy(handle).map_err(|error| complain(&error))?;
        let _ = writeln!(told, "Flow rule #{number} destroyed");
    }
    Ok(told)
}

fn query(session: &mut Session, args: &Args) -> Result<String, String> {
    let id = args.port(0);
    let handle = handle(session, id, args.number(1))?;
    let count = port_of(session, id)?.flow_query(handle, false).map_err(|error| complain(&error))?;
    Ok(format!("COUNT:\n hits_set: 1\n bytes_set: 1\n hits: {}\n bytes: {}\n", count.packets, count.bytes))
}

fn list(session: &mut Session, id: u16, group: Option<u32>) -> Result<String, String> {
    let port = port_of(session, id)?;
    let mut rules: Vec<(FlowHandle, &FlowRule)> = port
        .flow_rules()
        .filter(|(_, rule)| group.is_none_or(|group| rule.attributes.group == group))
        .collect();
    if rules.is_empty() {
        return Ok(String::new());
    }
    rules.sort_by_key(|(handle, rule)| (rule.attributes.group, rule.attributes.priority, *handle));
    let mut told = String::from("ID\tGroup\tPrio\tAttr\tRule\n");
    for (handle, rule) in rules {
        let attributes = &rule.attributes;
        let flag = |on: bool, letter: char| if on { letter } else { '-' };
        let _ = write!(
            told,
            "{handle}\t{}\t{}\t{}{}{}\t",
            attributes.group,
            attributes.priority,
            flag(attributes.ingress, 'i'),
            flag(attributes.egress, 'e'),
            flag(attributes.transfer, 't')
        );
        for item in &rule.pattern {
            let _ = write!(told, "{} ", item.name().to_uppercase());
        }
        told += "=>";
        for action in &rule.actions {
            let _ = write!(told, " {}", action.name().to_uppercase());
        }
        told.push('\n');
    }
    Ok(told)
}

fn flush(session: &mut Session, args: &Args) -> Result<String, String> {
    let done = port_of(session, args.port(0))?.flow_flush();
    done.map(|()| String::new()).map_err(|error| complain(&error))
}

fn isolate(session: &mut Session, args: &Args) -> Result<String, String> {
    let on = match args.0.get(1) {
        Some(Arg::Number(0)) => false,
        Some(Arg::Number(1)) => true,
        _ => return Err("Bad arguments\nflow isolate: must be 0 or 1".into()),
    };
    let id = args.port(0);
    port_of(session, id)?.flow_isolate(on).map_err(|error| complain(&error))?;
    let what = if on { "now restricted" } else { "not restricted anymore" };
    Ok(format!("Ingress traffic on port {id} is {what} to the defined flow rules\n"))
}
