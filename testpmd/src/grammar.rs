//! The commands' grammar: one table drives parsing, completion and help.
//!
//! A command's syntax is its words, in DPDK's order:
//!
//! ```text
//!   show            this word
//!   (on|off)        one of these words
//!   <port>          a number of that name; <ports>: such a number, or all
//!   <mac>           an Ethernet address
//!   <text>          any word
//!   <rest>          all that is left of the line
//! ```

use pollux_port::MacAddress;

use crate::session::Session;

/// Sections of `help`, as testpmd has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Start and stop.
    Control,
    /// What is shown.
    Display,
    /// What is set.
    Config,
    /// Ports and queues.
    Ports,
    /// Filters and flow rules.
    Filters,
}

impl Section {
    /// All, with testpmd's words for them.
    pub const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::Control, "control", "Start and stop forwarding."),
        (Self::Display, "display", "Displaying port, stats and config information."),
        (Self::Config, "config", "Configuration information."),
        (Self::Ports, "ports", "Configuring ports."),
        (Self::Filters, "filters", "Filters configuration help."),
    ];
}

/// What a word of a line was taken as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// One of several words, or any.
    Word(String),
    /// A number.
    Number(u64),
    /// `all`, where a number could stand.
    All,
    /// An address.
    Mac(MacAddress),
}

/// The words of a line that are not fixed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args(pub Vec<Arg>);

impl Args {
    /// The word at that place.
    #[must_use]
    pub fn word(&self, at: usize) -> &str {
        match self.0.get(at) {
            Some(Arg::Word(word)) => word,
            _ => "",
        }
    }

    /// Whether the word at that place is `on`.
    #[must_use]
    pub fn is_on(&self, at: usize) -> bool {
        self.word(at) == "on"
    }

    /// The number at that place.
    #[must_use]
    pub fn number(&self, at: usize) -> u64 {
        match self.0.get(at) {
            Some(Arg::Number(number)) => *number,
            _ => 0,
        }
    }

    /// The number at that place, which the grammar bounds to 16 bits.
    #[must_use]
    pub fn port(&self, at: usize) -> u16 {
        u16::try_from(self.number(at)).unwrap_or(u16::MAX)
    }

    /// The address at that place.
    #[must_use]
    pub fn mac(&self, at: usize) -> MacAddress {
        match self.0.get(at) {
            Some(Arg::Mac(mac)) => *mac,
            _ => MacAddress([0; 6]),
        }
    }

    /// The ports that the place names: one, or all of the session.
    ///
    /// # Errors
    /// DPDK's line when there is no such port.
    pub fn ports(&self, at: usize, session: &Session) -> Result<Vec<u16>, String> {
        match self.0.get(at) {
            Some(Arg::All) => Ok(session.ports.slots.iter().map(|slot| slot.id.0).collect()),
            _ => session.ports.get(self.port(at)).map(|slot| vec![slot.id.0]),
        }
    }
}

/// What a command does: the text that it prints, or the line that says why not.
pub type Handler = fn(&mut Session, &Args) -> Result<String, String>;

/// Words that may stand next in what is left of a line, for completion: those before, and the beginning of the last.
pub type RestCompleter = fn(&[&str]) -> Vec<String>;

/// One command.
#[derive(Clone, Copy)]
pub struct Command {
    /// Its words.
    pub syntax: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// Where `help` has it.
    pub section: Section,
    /// Does it.
    pub run: Handler,
    /// What `<rest>` may be.
    pub rest: Option<RestCompleter>,
}

/// One word of a syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Fixed(&'a str),
    OneOf(&'a str),
    Number(&'a str),
    NumberOrAll(&'a str),
    Mac,
    Text(&'a str),
    Rest,
}

/// Names of words that are text, not numbers.
const TEXTS: [&str; 6] = ["text", "name", "list", "mask", "address", "ports_list"];

fn tokens(syntax: &str) -> impl Iterator<Item = Token<'_>> {
    syntax.split(' ').map(|word| {
        if let Some(words) = word.strip_prefix('(').and_then(|word| word.strip_suffix(')')) {
            return Token::OneOf(words);
        }
        match word.strip_prefix('<').and_then(|word| word.strip_suffix('>')) {
            None => Token::Fixed(word),
            Some("rest") => Token::Rest,
            Some("mac") => Token::Mac,
            Some(name @ ("ports" | "rules")) => Token::NumberOrAll(name),
            Some(name) if TEXTS.contains(&name) => Token::Text(name),
            Some(name) => Token::Number(name),
        }
    })
}

/// The largest number that a word of that name takes.
fn most(name: &str) -> u64 {
    match name {
        "port" | "ports" | "queue" | "mtu" | "vlan" | "count16" | "peer" | "outer" | "length" => {
            u16::MAX.into()
        }
        "cycles" => u8::MAX.into(),
        "rule" | "rules" | "value" => u64::MAX,
        _ => u32::MAX.into(),
    }
}

/// A number as the command line library of DPDK reads it: decimal or hexadecimal.
#[must_use]
pub fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+')),
        None => word.parse().ok().filter(|_| !word.starts_with('+')),
    }
}

/// What a word is taken as; `None`: it does not fit. Fixed words are taken as nothing.
fn take(token: Token<'_>, word: &str) -> Option<Option<Arg>> {
    let bounded = |name: &str| {
        number(word).filter(|number| *number <= most(name)).map(|number| Some(Arg::Number(number)))
    };
    match token {
        Token::Fixed(fixed) => (fixed == word).then_some(None),
        Token::OneOf(words) => words.split('|').any(|one| one == word).then(|| Some(Arg::Word(word.into()))),
        Token::Number(name) => bounded(name),
        Token::NumberOrAll(name) => {
            if word == "all" {
                Some(Some(Arg::All))
            } else {
                bounded(name)
            }
        }
        Token::Mac => word.parse().ok().map(|mac| Some(Arg::Mac(mac))),
        Token::Text(_) | Token::Rest => Some(Some(Arg::Word(word.into()))),
    }
}

/// How a line fits a command: whole, or up to a word.
enum Fit {
    Whole(Args),
    /// The words that fit, and what should have stood next.
    Until(usize, String),
}

fn fit(syntax: &str, words: &[&str]) -> Fit {
    let mut args = Args::default();
    let mut at = 0;
    for token in tokens(syntax) {
        if token == Token::Rest {
            if at >= words.len() {
                return Fit::Until(at, "more words".into());
            }
            args.0.push(Arg::Word(words[at..].join(" ")));
            return Fit::Whole(args);
        }
        let Some(word) = words.get(at) else { return Fit::Until(at, expected(token)) };
        match take(token, word) {
            Some(arg) => args.0.extend(arg),
            None => return Fit::Until(at, expected(token)),
        }
        at += 1;
    }
    if at < words.len() { Fit::Until(at, "the end of the line".into()) } else { Fit::Whole(args) }
}

fn expected(token: Token<'_>) -> String {
    match token {
        Token::Fixed(word) => word.into(),
        Token::OneOf(words) => words.replace('|', ", "),
        Token::Number(name) => format!("<{name}>, a number up to {}", most(name)),
        Token::NumberOrAll(name) => format!("<{name}>, a number or all"),
        Token::Mac => "an address such as 02:00:00:00:00:01".into(),
        Token::Text(name) => format!("<{name}>"),
        Token::Rest => "more words".into(),
    }
}

/// The command of a line, and its words.
///
/// # Errors
/// DPDK's words for a line that is none, and what should have stood where.
pub fn parse<'a>(commands: &'a [Command], line: &str) -> Result<(&'a Command, Args), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (mut farthest, mut wanted): (usize, Vec<String>) = (0, Vec::new());
    for command in commands {
        match fit(command.syntax, &words) {
            Fit::Whole(args) => return Ok((command, args)),
            Fit::Until(at, expected) => {
                if at > farthest {
                    (farthest, wanted) = (at, Vec::new());
                }
                if at == farthest && !wanted.contains(&expected) {
                    wanted.push(expected);
                }
            }
        }
    }
    if farthest == 0 {
        return Err("Command not found".into());
    }
    let before = shortened(&words[..farthest].join(" "));
    let what = match words.get(farthest) {
        Some(word) => format!("'{}' after '{before}'", shortened(word)),
        None => format!("the line ends after '{before}'"),
    };
    Err(format!("Bad arguments\n{what}: expected {}", wanted.join(", or ")))
}

/// Enough of it to be known by.
fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST {
        text.into()
    } else {
        text.chars().take(MOST).chain("...".chars()).collect()
    }
}

/// The words that may stand where the line ends: its last word is what they begin with.
#[must_use]
pub fn complete(commands: &[Command], line: &str) -> Vec<String> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    if line.is_empty() || line.ends_with(char::is_whitespace) {
        words.push("");
    }
    let Some((last, before)) = words.split_last() else { return Vec::new() };
    let mut found: Vec<String> = Vec::new();
    for command in commands {
        let mut rest = before.iter();
        for (at, token) in tokens(command.syntax).enumerate() {
            if token == Token::Rest {
                if let Some(complete) = command.rest {
                    found.extend(complete(&words[at.min(words.len() - 1)..]));
                }
                break;
            }
            match rest.next() {
                Some(word) if take(token, word).is_some() => {}
                Some(_) => break,
                None => {
                    match token {
                        Token::Fixed(word) => found.push(word.into()),
                        Token::OneOf(words) => found.extend(words.split('|').map(str::to_owned)),
                        Token::NumberOrAll(_) => found.push("all".into()),
                        _ => {}
                    }
                    break;
                }
            }
        }
    }
    found.retain(|word| word.starts_with(last));
    found.sort();
    found.dedup();
    found
}

/// `help`: the sections, or the commands of one.
#[must_use]
pub fn help(commands: &[Command], section: Option<&str>) -> String {
    let Some(section) = section else {
        let mut text = String::from("\nHelp is available for the following sections:\n\n");
        for (_, name, what) in Section::ALL {
            text += &format!("    help {name:<26} : {what}\n");
        }
        return text + &format!("    help {:<26} : All of the above sections.\n\n", "all");
    };
    let mut text = String::new();
    for (kind, name, what) in Section::ALL.iter().filter(|(_, name, _)| section == "all" || section == *name)
    {
        text += &format!("\n{what} ({name})\n");
        for command in commands.iter().filter(|command| command.section == *kind) {
            text += &format!("\n{}\n    {}\n", command.syntax, command.help);
        }
    }
    text
}
