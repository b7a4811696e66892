//! The commands, and what a message is answered.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use super::{COMMAND_MAX, OUTPUT_MAX, reply};
use crate::EalError;
use crate::panic::Reporter;

/// What answers a command.
pub(super) type Handler = Arc<dyn Fn(&str) -> Value + Send + Sync>;

/// Longest part of a message that is looked at; the rest is ignored. Source: DPDK `lib/telemetry/telemetry.c`, `client_handler`.
pub(super) const MESSAGE_MAX: usize = 1023;

#[derive(Clone)]
struct Command {
    help: String,
    does: Does,
}

#[derive(Clone)]
enum Does {
    /// `/`
    List,
    /// `/help`
    Help,
    /// What was registered.
    Call(Handler),
}

/// All commands of one `Eal`.
pub(super) struct Commands(Mutex<BTreeMap<String, Command>>);

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.table().keys()).finish()
    }
}

/// What a client is greeted with, and what `/info` answers.
pub(super) fn info() -> Value {
    json!({
        "version": concat!("Pollux ", env!("CARGO_PKG_VERSION")),
        "pid": std::process::id(),
        "max_output_len": OUTPUT_MAX,
    })
}

/// A message cut in two, as DPDK cuts it: commas before the command are passed over, and the rest of the message after the next
/// one is parameters. A NUL ends it.
fn split(message: &[u8]) -> (String, String) {
    let message = &message[..message.len().min(MESSAGE_MAX)];
    let message = message.split(|byte| *byte == 0).next().unwrap_or_default();
    // Bytes that are no UTF-8 are replaced, so that the answer is JSON whatever was asked.
    let message = String::from_utf8_lossy(message);
    let message = message.trim_start_matches(',');
    let (command, parameters) = message.split_once(',').unwrap_or((message, ""));
    (command.into(), parameters.into())
}

impl Commands {
    pub(super) fn new() -> Self {
        let commands = Self(Mutex::default());
        let own = |help: &str, does| Command { help: help.into(), does };
        let mut table = commands.table();
        // The texts that DPDK's own users see may be looked for by scripts; what they say is the same.
        table.insert("/".into(), own("Lists all commands. Takes no parameters", Does::List));
        table.insert(
            "/help".into(),
            own("Returns the help text of a command. Parameters: string command", Does::Help),
        );
        let describe: Handler = Arc::new(|_| info());
        let help = "Returns version, process ID and maximum answer length. Takes no parameters";
        table.insert("/info".into(), own(help, Does::Call(describe)));
        drop(table);
        commands
    }

    pub(super) fn add(&self, path: &str, help: &str, handler: Handler) -> Result<(), EalError> {
        let wrong = |problem| Err(EalError::TelemetryCommand { command: path.into(), problem });
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'/';
        if path.len() < 2 || path.len() >= COMMAND_MAX || !path.starts_with('/') || !path.bytes().all(plain) {
            return wrong("must be '/', then letters, digits, '_' and '/', shorter than 56 characters");
        }
        let mut table = self.table();
        if table.contains_key(path) {
            return wrong("is registered already: choose another path, or unregister it first");
        }
        table.insert(path.into(), Command { help: help.into(), does: Does::Call(handler) });
        Ok(())
    }

    pub(super) fn remove(&self, path: &str) -> bool {
        let mut table = self.table();
        let ours = table.get(path).is_some_and(|command| matches!(command.does, Does::Call(_)));
        let removed = if ours && path != "/info" { table.remove(path) } else { None };
        // What the handler holds may be code of the application.
        drop(table);
        removed.is_some()
    }

    /// Takes all commands out. What the handlers hold is dropped by the caller, with no lock held.
    pub(super) fn clear(&self) -> impl Sized + use<> {
        std::mem::take(&mut *self.table())
    }

    /// The answer to a message, [`OUTPUT_MAX`] bytes at most.
    pub(super) fn answer(&self, message: &[u8], reporter: &Reporter) -> String {
        let (command, parameters) = split(message);
        // DPDK says "none" where there is no command.
        let name = if command.is_empty() { "none" } else { &command };
        reply::text(name, &self.call(&command, &parameters, reporter).unwrap_or_default())
    }

    pub(super) fn call(&self, command: &str, parameters: &str, reporter: &Reporter) -> Option<Value> {
        // The lock is not held while the handler runs: it may register commands.
        let found = self.table().get(command).cloned()?;
        Some(match found.does {
            Does::List => self.table().keys().map(String::as_str).collect(),
            Does::Help => self.help(parameters, found.help),
            Does::Call(handler) => reporter.guard(|| handler(parameters)).ok()?,
        })
    }

    fn help(&self, of: &str, own: String) -> Value {
        if of.is_empty() {
            return own.into();
        }
        let text = self.table().get(of).map(|command| Value::from(command.help.clone()));
        text.map_or(Value::Null, |text| Map::from_iter([(of.to_owned(), text)]).into())
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Command>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StopFlag;

    fn reporter() -> Reporter {
        Reporter::new(StopFlag::new().expect("an event file"))
    }

    fn echo() -> Commands {
        let commands = Commands::new();
        commands.add("/app/echo", "Returns its parameters", Arc::new(|text| text.into())).expect("a name");
        commands
    }

    #[test]
    fn messages_are_answered_as_dpdk_answers_them() {
        let (commands, reporter) = (echo(), reporter());
        for (message, answer) in [
            ("/", r#"{"/":["/","/app/echo","/help","/info"]}"#),
            ("/help", r#"{"/help":"Returns the help text of a command. Parameters: string command"}"#),
            ("/help,/app/echo", r#"{"/help":{"/app/echo":"Returns its parameters"}}"#),
            ("/help,/none", r#"{"/help":null}"#),
            ("/none", r#"{"/none":null}"#),
            ("/app/echo", r#"{"/app/echo":""}"#),
            ("/app/echo,a,b", r#"{"/app/echo":"a,b"}"#),
            (",,/app/echo,,a", r#"{"/app/echo":",a"}"#),
            ("/app/echo,a\0b", r#"{"/app/echo":"a"}"#),
            ("/app/echo,\"\n", r#"{"/app/echo":"\"\n"}"#),
            (",,", r#"{"none":null}"#),
            ("\0", r#"{"none":null}"#),
            ("\"", r#"{"\"":null}"#),
        ] {
            assert_eq!(commands.answer(message.as_bytes(), &reporter), answer, "{message:?}");
        }
        assert_eq!(commands.answer(b"/app/echo,\xff", &reporter), "{\"/app/echo\":\"\u{fffd}\"}");
        let info: Value = serde_json::from_str(&commands.answer(b"/info", &reporter)).expect("JSON");
        assert_eq!(info["/info"]["pid"], std::process::id());
        assert_eq!(info["/info"]["max_output_len"], 16384);
    }

    #[test]
    fn names_are_those_that_dpdk_takes() {
        let commands = Commands::new();
        let long = format!("/{}", "a".repeat(COMMAND_MAX - 1));
        for wrong in ["", "/", "app", "/a,b", "/a b", "/ä", "/info", "/help", long.as_str()] {
            assert!(commands.add(wrong, "", Arc::new(|_| Value::Null)).is_err(), "{wrong}");
        }
        let most = &long[..COMMAND_MAX - 1];
        commands.add(most, "", Arc::new(|_| 1.into())).expect("the longest name");
        assert_eq!(commands.answer(most.as_bytes(), &reporter()), format!("{{\"{most}\":1}}"));
        assert!(
            commands.remove(most)
                && !commands.remove(most)
                && !commands.remove("/help")
                && !commands.remove("/info")
        );
    }

    #[test]
    fn a_handler_may_register_and_its_panic_stops_the_eal() {
        let (commands, reporter) = (Arc::new(Commands::new()), reporter());
        let own = Arc::downgrade(&commands);
        let register = move |_: &str| {
            let commands = own.upgrade().expect("it lives");
            commands.add("/late", "", Arc::new(|_| 2.into())).expect("a name");
            Value::from(1)
        };
        commands.add("/register", "", Arc::new(register)).expect("a name");
        commands.add("/panic", "", Arc::new(|_| panic!("a handler that fails"))).expect("a name");
        assert_eq!(commands.answer(b"/register", &reporter), r#"{"/register":1}"#);
        assert_eq!(commands.answer(b"/late", &reporter), r#"{"/late":2}"#);
        assert!(!reporter.stop.is_set());
        assert_eq!(commands.answer(b"/panic", &reporter), r#"{"/panic":null}"#);
        assert!(reporter.stop.is_set());
    }

    /// Random messages from a seed: each is answered by one JSON object of one member, in time and length.
    #[test]
    fn whatever_is_asked_is_answered_by_json() {
        let (commands, reporter) = (echo(), reporter());
        let seed = std::env::var("POLLUX_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(17_u64);
        let mut state = seed;
        let mut random = || {
            // SplitMix64, Steele et al. 2014.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let known: [&[u8]; 6] = [b"/", b"/help,", b"/info", b"/app/echo,", b"/help,/app/echo", b","];
        for round in 0..20_000 {
            let mut message: Vec<u8> = Vec::new();
            if random() % 2 == 0 {
                message.extend(known[random() as usize % known.len()]);
            }
            let length = random() as usize % if round % 50 == 0 { 100_000 } else { 80 };
            message.extend((0..length).map(|_| random() as u8));
            if !message.is_empty() && random() % 4 == 0 {
                let place = random() as usize % message.len();
                message[place] = b',';
            }
            let answer = commands.answer(&message, &reporter);
            assert!(answer.len() <= OUTPUT_MAX, "seed {seed}, round {round}: {} bytes", answer.len());
            let value: Value = serde_json::from_str(&answer)
                .unwrap_or_else(|why| panic!("seed {seed}, round {round}: {why}: {answer}"));
            assert_eq!(value.as_object().map(Map::len), Some(1), "seed {seed}, round {round}");
        }
        assert!(!reporter.stop.is_set());
    }
}
