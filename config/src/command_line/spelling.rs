//! Options in messages, spelt as the user typed them: `-l` or `--lcores`.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

use crate::ConfigError;

/// The error with its options in the spelling that stands in `args`. `command` knows which spellings are the same option.
pub(super) fn as_typed(error: ConfigError, args: &[OsString], command: &Command) -> ConfigError {
    let typed = |option: &str, value: Option<&str>| find(option, value, args, command);
    match error {
        ConfigError::Value { option, value, problem } => {
            ConfigError::Value { option: typed(&option, Some(&value)), value, problem }
        }
        ConfigError::Usage { option, problem } => {
            let spelt = typed(&option, None);
            // `needs a value: --lcores LIST`
            let problem = problem.replace(&format!(": {option} "), &format!(": {spelt} "));
            ConfigError::Usage { option: spelt, problem }
        }
        ConfigError::Conflict { first, second, mend } => {
            ConfigError::Conflict { first: typed(&first, None), second: typed(&second, None), mend }
        }
        other => other,
    }
}

/// How `option` was typed, with `value` if that is known and stands there; as it is if it was not typed.
fn find(option: &str, value: Option<&str>, args: &[OsString], command: &Command) -> String {
    let Some(wanted) = command.get_arguments().find(|arg| spells(arg, option)) else { return option.into() };
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let mut first = None;
    for (place, word) in words.iter().enumerate() {
        let next = words.get(place + 1).copied();
        for (spelling, given) in options_in(word, next, command) {
            if !spells(wanted, &spelling) {
                continue;
            }
            if given.is_some() && given == value {
                return spelling;
            }
            first = first.or(Some(spelling));
        }
    }
    first.unwrap_or_else(|| option.into())
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

fn spells(arg: &Arg, spelling: &str) -> bool {
    match spelling.strip_prefix("--") {
        Some(long) => {
            arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|all| all.contains(&long))
        }
        None => arg.get_short().is_some_and(|short| spelling == format!("-{short}")),
    }
}

/// The options that one word of a command line gives, each with its value: `--long=V`, `--long V`, `-sV`, `-abs V`.
fn options_in<'a>(word: &'a str, next: Option<&'a str>, command: &Command) -> Vec<(String, Option<&'a str>)> {
    if word.starts_with("--") {
        return match word.split_once('=') {
            Some((long, value)) => vec![(long.into(), Some(value))],
            None => vec![(word.into(), next)],
        };
    }
    let Some(letters) = word.strip_prefix('-') else { return Vec::new() };
    let mut found = Vec::new();
    for (at, letter) in letters.char_indices() {
        let spelling = format!("-{letter}");
        let valued = command.get_arguments().any(|arg| spells(arg, &spelling) && takes_value(arg));
        let rest = &letters[at + letter.len_utf8()..];
        let value = if rest.is_empty() { next } else { Some(rest.strip_prefix('=').unwrap_or(rest)) };
        found.push((spelling, valued.then_some(value).flatten()));
        if valued {
            break;
        }
    }
    found
}
