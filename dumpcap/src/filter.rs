//! Filters in tcpdump's syntax, compiled to classic BPF for Ethernet.
//!
//! ```text
//!   "udp and not port 53" ─ token ─► words ─ parse, primitive, address ─► tree of checks ─ code ─► BPF
//! ```
//!
//! Compiled here because no Rust library does it and libpcap is C's: a tool that needs it would not build or start without it. What is
//! there is the common part of pcap-filter(7): see `docs/dumpcap.md`. Any other program comes in by `--filter-code`, as
//! `tcpdump -ddd` prints it.

mod accessor;
mod address;
mod code;
mod cursor;
mod parse;
mod primitive;
mod qualifiers;
mod token;
mod tree;

use pollux_capture::bpf::{INSTRUCTIONS_MAX, Instruction};

/// Why a filter is refused: one line, without the filter itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FilterError(String);

/// Compiles a filter; frames that it accepts are kept whole. A filter without a word accepts all: no program.
pub(crate) fn compile(text: &str) -> Result<Option<Vec<Instruction>>, FilterError> {
    let Some(tree) = parse::parse(text)? else { return Ok(None) };
    let program = code::generate(&tree);
    if program.len() > INSTRUCTIONS_MAX {
        let problem = format!(
            "it compiles to {} instructions, of which there may be {INSTRUCTIONS_MAX}",
            program.len()
        );
        return Err(FilterError(problem));
    }
    Ok(Some(program))
}

/// Reads a program as `tcpdump -ddd` prints it: the number of instructions, then each as four numbers.
pub(crate) fn from_numbers(text: &str) -> Result<Vec<Instruction>, FilterError> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let count = lines.next().and_then(|line| line.trim().parse::<usize>().ok());
    let count =
        count.ok_or_else(|| FilterError("its first line must be the number of instructions".into()))?;
    let program: Vec<Instruction> = lines.map(instruction).collect::<Result<_, _>>()?;
    if program.len() != count {
        let problem = format!("it announces {count} instructions and has {}", program.len());
        return Err(FilterError(problem));
    }
    Ok(program)
}

fn instruction(line: &str) -> Result<Instruction, FilterError> {
    let wrong = || FilterError(format!("'{line}' is not an instruction: four numbers, code jt jf k"));
    let mut numbers = line.split_whitespace();
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok()).ok_or_else(wrong);
    let (code, jt, jf, k) = (next()?, next()?, next()?, next()?);
    match (code.try_into(), jt.try_into(), jf.try_into(), numbers.next()) {
        (Ok(code), Ok(jt), Ok(jf), None) => Ok(Instruction { code, jt, jf, k }),
        _ => Err(wrong()),
    }
}

/// A program as `tcpdump -ddd` prints it.
pub(crate) fn to_numbers(program: &[Instruction]) -> String {
    let lines = program.iter().map(|one| format!("{} {} {} {}\n", one.code, one.jt, one.jf, one.k));
    format!("{}\n", program.len()) + &lines.collect::<String>()
}

#[cfg(test)]
mod tests;
