//! Traces of uverbs calls, as `pollux_uverbs::trace` writes them, made comparable: what differs from run to run by its nature,
//! addresses and numbers of objects, gets a name by the order in which it first comes up. Two runs that ask and answer the same are
//! then the same text.
//!
//! A number belongs to an object as long as that lives, and whoever gives numbers out may give it to the next one or another to it: an
//! object that is made has a name of its own in any case. Names of addresses and descriptors hold for one call: which memory or number is
//! used again is for the allocator and for the process to say.

use std::collections::BTreeMap;

use crate::line;

/// A place in a call that holds an address or a number.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The call, as its line begins: `call 0x0007/0x0005`, `write 0x80000034`.
    pub call: &'static str,
    /// The first bytes of what is asked in some attribute, as a firmware command's number is; empty: any.
    pub command: &'static str,
    /// In what is asked (false) or in what is answered.
    pub answer: bool,
    /// The attribute, `core` or `driver`.
    pub part: &'static str,
    /// How long the part is, where others of that name are longer or shorter; 0: any.
    pub whole: usize,
    /// First byte, and how many.
    pub at: (usize, usize),
    /// The firmware's numbers are big-endian, the kernel's little-endian.
    pub big: bool,
    /// It is the number of an object that the call made.
    pub made: bool,
    /// What it is: values of one kind are numbered together.
    pub kind: &'static str,
}

/// A field of what is asked of the kernel, and of what it answers.
const fn asked(call: &'static str, part: &'static str, at: (usize, usize), kind: &'static str) -> Field {
    Field { call, command: "", answer: false, part, whole: 0, at, big: false, made: false, kind }
}

const fn answered(call: &'static str, part: &'static str, at: (usize, usize), kind: &'static str) -> Field {
    Field { answer: true, ..asked(call, part, at, kind) }
}

/// The number of an object that a call made.
const fn numbered(call: &'static str, part: &'static str, at: (usize, usize), kind: &'static str) -> Field {
    Field { made: true, ..answered(call, part, at, kind) }
}

/// A number in a firmware command that makes an object, and the number of the object.
const fn made_of(command: &'static str, at: usize, kind: &'static str) -> Field {
    Field { command, big: true, ..asked("call 0x1001/0x1000", "0x1001", (at + 1, 3), kind) }
}

const fn made(command: &'static str, kind: &'static str) -> Field {
    Field { command, big: true, ..numbered("call 0x1001/0x1000", "0x1002", (9, 3), kind) }
}

const fn changed(command: &'static str, kind: &'static str) -> Field {
    Field { command, big: true, ..asked("call 0x1001/0x1002", "0x1001", (9, 3), kind) }
}

/// The fields of Linux's mlx5_ib and of the firmware's commands that go through it. Sources: Linux
/// `include/uapi/rdma/{ib_user_ioctl_cmds,ib_user_verbs,mlx5-abi,mlx5_user_ioctl_cmds}.h`, `include/linux/mlx5/mlx5_ifc.h`.
pub const MLX5: &[Field] = &[
    // Protection domain; memory: registered, changed, asked about, advised about; UAR.
    numbered("write 0x00000003", "driver", (0, 4), "pd"),
    asked("call 0x0007/0x0005", "0x0003", (0, 8), ADDRESS),
    asked("call 0x0007/0x0005", "0x0004", (0, 8), ADDRESS),
    numbered("call 0x0007/0x0005", "0x0009", (0, 4), "key"),
    numbered("call 0x0007/0x0005", "0x000a", (0, 4), "key"),
    asked("write 0x00000009", "core", (8, 8), ADDRESS),
    asked("write 0x00000009", "core", (24, 8), ADDRESS),
    numbered("write 0x00000009", "core", (4, 4), "key"),
    numbered("write 0x00000009", "core", (8, 4), "key"),
    asked("write 0x0000000b", "core", (16, 8), ADDRESS),
    asked("write 0x0000000b", "core", (32, 8), ADDRESS),
    answered("write 0x0000000b", "core", (0, 4), "key"),
    answered("write 0x0000000b", "core", (4, 4), "key"),
    answered("call 0x0007/0x0003", "0x0001", (0, 4), "key"),
    answered("call 0x0007/0x0003", "0x0002", (0, 4), "key"),
    answered("call 0x0007/0x0003", "0x0004", (0, 8), ADDRESS),
    asked("call 0x0007/0x0002", "0x0003", (0, 8), ADDRESS),
    asked("call 0x0007/0x0002", "0x0003", (12, 4), "key"),
    numbered("call 0x1008/0x1000", "0x1002", (0, 8), "page"),
    numbered("call 0x1008/0x1000", "0x1004", (0, 4), "uar"),
    // Completion queue, made and resized; work queue, queue pair, table of queues, shared receive queue.
    asked("call 0x0003/0x0000", "0x1000", (0, 8), ADDRESS),
    asked("call 0x0003/0x0000", "0x1000", (8, 8), ADDRESS),
    asked("call 0x0003/0x0000", "0x1000", (24, 2), "uar"),
    numbered("call 0x0003/0x0000", "0x1001", (0, 4), "cq"),
    asked("write 0x00000013", "driver", (0, 8), ADDRESS),
    asked("call 0x000c/0x0000", "0x1000", (0, 8), ADDRESS),
    asked("call 0x000c/0x0000", "0x1000", (8, 8), ADDRESS),
    numbered("call 0x000c/0x0000", "0x000b", (0, 4), "rq"),
    Field { whole: 56, ..asked("call 0x0004/0x0000", "0x1000", (0, 8), ADDRESS) },
    Field { whole: 56, ..asked("call 0x0004/0x0000", "0x1000", (8, 8), ADDRESS) },
    Field { whole: 56, ..asked("call 0x0004/0x0000", "0x1000", (36, 4), "uar") },
    Field { whole: 56, ..asked("call 0x0004/0x0000", "0x1000", (40, 8), ADDRESS) },
    numbered("call 0x0004/0x0000", "0x000e", (0, 4), "qp"),
    numbered("call 0x0004/0x0000", "0x1001", (12, 4), "tir"),
    numbered("call 0x0004/0x0000", "0x1001", (16, 4), "tis"),
    numbered("call 0x0004/0x0000", "0x1001", (20, 4), "rq"),
    numbered("call 0x0004/0x0000", "0x1001", (24, 4), "sq"),
    numbered("write 0x80000037", "core", (12, 4), "table"),
    asked("call 0x0005/0x0000", "0x1000", (0, 8), ADDRESS),
    asked("call 0x0005/0x0000", "0x1000", (8, 8), ADDRESS),
    numbered("call 0x0005/0x0000", "0x000d", (0, 4), "srq"),
    numbered("call 0x0005/0x0000", "0x1001", (0, 4), "srq"),
    // Of connected queue pairs the peer's number, of opened ones their own; keys of windows; places and keys of memory on the device;
    // interfaces behind GIDs.
    asked("write 0x0000001a", "core", (84, 4), "qp"),
    asked("write 0x8000001a", "core", (84, 4), "qp"),
    answered("write 0x00000019", "core", (96, 4), "qp"),
    asked("write 0x00000028", "core", (20, 4), "qp"),
    answered("write 0x00000028", "core", (4, 4), "qp"),
    numbered("write 0x0000000e", "core", (4, 4), "key"),
    numbered("call 0x000e/0x0000", "0x1000", (0, 8), "place"),
    numbered("call 0x000e/0x0000", "0x1001", (0, 2), "page"),
    numbered("call 0x0007/0x0000", "0x0006", (0, 4), "key"),
    numbered("call 0x0007/0x0000", "0x0007", (0, 4), "key"),
    answered("call 0x0000/0x0005", "0x0002", (28, 4), "interface"),
    answered("call 0x0000/0x0005", "0x0002", (60, 4), "interface"),
    answered("call 0x0000/0x0005", "0x0002", (92, 4), "interface"),
    answered("call 0x0000/0x0005", "0x0002", (124, 4), "interface"),
    answered("call 0x0000/0x0006", "0x0003", (28, 4), "interface"),
    // Descriptors: of a completion channel, of a file that names an XRC domain.
    answered("write 0x00000011", "core", (0, 4), FILE),
    asked("write 0x00000025", "core", (8, 4), FILE),
    // The number of an event queue; memory for the firmware.
    answered("call 0x1000/0x1002", "0x1001", (0, 4), "eq"),
    asked("call 0x1002/0x1000", "0x1001", (0, 8), ADDRESS),
    numbered("call 0x1002/0x1000", "0x1004", (0, 4), "umem"),
    // ALLOC_TRANSPORT_DOMAIN, CREATE_TIS, ALLOC_Q_COUNTER, QUERY_Q_COUNTER.
    made("0816", "domain"),
    made_of("0912", 0x44, "domain"),
    made("0912", "tis"),
    Field { at: (11, 1), ..made("0771", "counter") },
    Field { command: "0773", big: true, ..asked("call 0x1001/0x1003", "0x1001", (31, 1), "counter") },
    // CREATE_CQ.
    made_of("0400", 0x14, "umem"),
    made_of("0400", 0x1c, "uar"),
    made_of("0400", 0x24, "eq"),
    made_of("0400", 0x58, "umem"),
    made("0400", "cq"),
    // CREATE_RQ, MODIFY_RQ.
    made_of("0908", 0x28, "cq"),
    Field { at: (0x2c, 1), ..made_of("0908", 0, "counter") },
    made_of("0908", 0x58, "pd"),
    made_of("0908", 0x78, "umem"),
    made_of("0908", 0x7c, "umem"),
    made("0908", "rq"),
    changed("0909", "rq"),
    // CREATE_SQ, MODIFY_SQ.
    made_of("0904", 0x28, "cq"),
    made_of("0904", 0x4c, "tis"),
    made_of("0904", 0x58, "pd"),
    made_of("0904", 0x5c, "uar"),
    made_of("0904", 0x78, "umem"),
    made_of("0904", 0x7c, "umem"),
    made("0904", "sq"),
    changed("0905", "sq"),
    // CREATE_RQT, CREATE_TIR.
    made_of("0916", 0x110, "rq"),
    made("0916", "table"),
    made_of("0900", 0x40, "table"),
    made_of("0900", 0x44, "domain"),
    made("0900", "tir"),
];

/// The kind of an address of memory.
const ADDRESS: &str = "address";

/// The kind of a descriptor; all ones is none.
const FILE: &str = "file";

/// Names by kind and value.
#[derive(Default)]
struct Names {
    /// The name's number, and the line in which it was given.
    known: BTreeMap<(&'static str, u64), (usize, usize)>,
    /// The next number of a kind.
    next: BTreeMap<&'static str, usize>,
    /// The line that is read.
    line: usize,
}

impl Names {
    fn next_line(&mut self) {
        self.line += 1;
        for passing in [ADDRESS, FILE] {
            self.known.retain(|(kind, _), _| *kind != passing);
            self.next.remove(passing);
        }
    }

    fn number(&mut self, field: &Field, value: u64) -> usize {
        let key = (field.kind, value);
        if let Some(&(number, line)) = self.known.get(&key)
            && (!field.made || line == self.line)
        {
            return number;
        }
        let next = self.next.entry(field.kind).or_default();
        let number = *next;
        *next += 1;
        self.known.insert(key, (number, self.line));
        number
    }
}

/// Questions about an object. How often they are asked depends on how long a program runs.
const QUERY: &str = "call 0x1001/0x1003";

/// The trace with names in the place of `fields`, without the channels and their ends. `map` lines lose their offset, which is an
/// answer's; a question about an object that was asked and answered in the same words before is left out.
#[must_use]
pub fn normal(trace: &str, fields: &[Field]) -> String {
    let mut names = Names::default();
    let mut out = String::new();
    for line in trace.lines().map(|line| line::channel(line).0).filter(|line| *line != "close") {
        names.next_line();
        let (asked, answered) = line.split_once(" -> ").unwrap_or((line, ""));
        let words: Vec<&str> = asked.split(' ').collect();
        let call = words.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        if let ["map", _, length, right] = words[..] {
            out.push_str(&format!("map {length} {right} -> {answered}\n"));
            continue;
        }
        let mut said: Vec<String> = Vec::new();
        let is_command = |command: &str| {
            command.is_empty() || asked.split("=in:").skip(1).any(|bytes| bytes.starts_with(command))
        };
        for (answer, part) in [(false, asked), (true, answered)] {
            let fields: Vec<Field> = fields
                .iter()
                .filter(|field| field.call == call && field.answer == answer && is_command(field.command))
                .copied()
                .collect();
            let words = part.split(' ').map(|word| named(word, &fields, &mut names));
            said.push(words.collect::<Vec<_>>().join(" "));
        }
        let said = short(&format!("{} -> {}\n", said[0], said[1]));
        if call != QUERY || !out.contains(&said) {
            out.push_str(&said);
        }
    }
    out
}

fn named(word: &str, fields: &[Field], names: &mut Names) -> String {
    let Some((part, value)) = word.split_once('=') else { return word.to_owned() };
    let (head, bytes) = value.rsplit_once(':').map_or(("", value), |(head, bytes)| (head, bytes));
    let fits = |field: &&Field| field.part == part && (field.whole == 0 || field.whole * 2 == bytes.len());
    let mut fields: Vec<&Field> = fields.iter().filter(fits).collect();
    fields.sort_by_key(|field| field.at);
    let mut out = format!("{part}={head}");
    if !head.is_empty() {
        out.push(':');
    }
    let mut done = 0;
    for field in fields {
        let (from, to) = (field.at.0 * 2, (field.at.0 + field.at.1) * 2);
        let Some(digits) = bytes.get(from..to).filter(|_| from >= done) else { continue };
        out.push_str(&bytes[done..from]);
        done = to;
        match number(digits, field.big) {
            // Nothing is named.
            Some(0) | None => out.push_str(digits),
            Some(value) if field.kind == FILE && value == u64::from(u32::MAX) => out.push_str(digits),
            Some(value) => {
                out.push_str(&format!("<{}{}>", field.kind, names.number(field, value)));
            }
        }
    }
    out.push_str(&bytes[done..]);
    out
}

/// Zeros in a row, 16 bytes or more, as their number: `{24}`.
fn short(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let zeros = rest.len() - rest.trim_start_matches('0').len();
        if zeros >= 32 {
            out.push_str(&format!("{{{}}}{}", zeros / 2, &"0"[..zeros % 2]));
        } else {
            out.push_str(&rest[..zeros]);
        }
        rest = &rest[zeros..];
        let next = rest.find('0').unwrap_or(rest.len());
        out.push_str(&rest[..next]);
        rest = &rest[next..];
    }
    out
}

fn number(digits: &str, big: bool) -> Option<u64> {
    let bytes = (0..digits.len()).step_by(2).map(|at| u64::from_str_radix(digits.get(at..at + 2)?, 16).ok());
    let bytes: Vec<u64> = bytes.collect::<Option<_>>()?;
    let join = |value: u64, byte: &u64| value << 8 | byte;
    Some(if big { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) })
}

/// What differs between two normal traces, a line each: where, ours, theirs. A call that one of them lacks moves the others, and
/// makes them no different.
#[must_use]
pub fn differences(ours: &str, theirs: &str) -> Vec<String> {
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), theirs.lines().collect());
    let (mut found, mut alone) = (Vec::new(), Vec::new());
    for (number, pair) in aligned(&ours, &theirs).into_iter().enumerate() {
        match pair {
            (Some(our), Some(their)) if our == their => {}
            (Some(our), Some(their)) => differing(number + 1, our, their, &mut found),
            (Some(our), None) => alone.push(format!("too many: {our}")),
            (None, Some(their)) => alone.push(format!("missing: {their}")),
            (None, None) => {}
        }
    }
    let mut alone = alone.into_iter();
    if let Some(first) = alone.next() {
        found.push(format!("{} calls for {}; {first}", ours.len(), theirs.len()));
    }
    found.extend(alone);
    found
}

/// Where two lines of the same call differ.
fn differing(number: usize, our: &str, their: &str, found: &mut Vec<String>) {
    let call = call(their);
    let parts = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (our, their) = (parts(our), parts(their));
    if our.len() != their.len() {
        found.push(format!("{call} (line {number}): {} for {}", our.join(" "), their.join(" ")));
        return;
    }
    for (our, their) in our.iter().zip(&their).filter(|(our, their)| our != their) {
        let part = their.split('=').next().unwrap_or_default();
        found.push(format!("{call} {part} (line {number}): {our} for {their}"));
    }
}

/// What a line calls.
fn call(line: &str) -> String {
    line.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Traces with more pairs of lines than this are held against each other line by line.
const PAIRS_MAX: usize = 1 << 24;

/// The lines of both in order, those of the same call beside each other: as many as can be, the same ones first of all.
fn aligned<'a>(ours: &[&'a str], theirs: &[&'a str]) -> Vec<(Option<&'a str>, Option<&'a str>)> {
    let same = ours.iter().zip(theirs).take_while(|(our, their)| our == their).count();
    let mut out: Vec<_> = ours[..same].iter().map(|line| (Some(*line), Some(*line))).collect();
    let (ours, theirs) = (&ours[same..], &theirs[same..]);
    let width = theirs.len() + 1;
    if (ours.len() + 1).saturating_mul(width) > PAIRS_MAX {
        let longer = ours.len().max(theirs.len());
        out.extend((0..longer).map(|at| (ours.get(at).copied(), theirs.get(at).copied())));
        return out;
    }
    let calls = |lines: &[&str]| lines.iter().map(|line| call(line)).collect::<Vec<_>>();
    let (our_calls, their_calls) = (calls(ours), calls(theirs));
    let alike = |our: usize, their: usize| match () {
        () if ours[our] == theirs[their] => 3_u32,
        () if our_calls[our] == their_calls[their] => 2,
        () => 0,
    };
    // How much is alike from each pair of lines to the ends.
    let mut best = vec![0_u32; (ours.len() + 1) * width];
    for our in (0..ours.len()).rev() {
        for their in (0..theirs.len()).rev() {
            let at = our * width + their;
            let pair = match alike(our, their) {
                0 => 0,
                alike => alike + best[at + width + 1],
            };
            best[at] = pair.max(best[at + width]).max(best[at + 1]);
        }
    }
    let (mut our, mut their) = (0, 0);
    while our < ours.len() && their < theirs.len() {
        let at = our * width + their;
        let alike = alike(our, their);
        if alike > 0 && best[at] == alike + best[at + width + 1] {
            out.push((Some(ours[our]), Some(theirs[their])));
            (our, their) = (our + 1, their + 1);
        } else if best[at] == best[at + width] {
            out.push((Some(ours[our]), None));
            our += 1;
        } else {
            out.push((None, Some(theirs[their])));
            their += 1;
        }
    }
    out.extend(ours[our..].iter().map(|line| (Some(*line), None)));
    out.extend(theirs[their..].iter().map(|line| (None, Some(*line))));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] = &[
        asked("call 0x0007/0x0005", "0x0004", (0, 8), "address"),
        answered("call 0x0007/0x0005", "0x0009", (0, 4), "key"),
        asked("write 0x80000034", "driver", (4, 4), "key"),
    ];

    fn trace(address: &str, key: &str) -> String {
        format!(
            "map 0x500000 4096 Read -> ok\n\
             call 0x0007/0x0005 0x0000=new 0x0004=in:{address} -> ok 0x0009={key}\n\
             write 0x80000034 Tunnelled core=01 driver=aabbccdd{key}99 -> EINVAL\n"
        )
    }

    #[test]
    fn runs_that_differ_by_addresses_and_numbers_are_the_same() {
        let one = normal(&trace("00112233445566aa", "0a0b0c0d"), FIELDS);
        let other = normal(&trace("ff11223344556600", "01020304"), FIELDS);
        assert_eq!(one, other);
        assert_eq!(
            one,
            "map 4096 Read -> ok\n\
             call 0x0007/0x0005 0x0000=new 0x0004=in:<address0> -> ok 0x0009=<key0>\n\
             write 0x80000034 Tunnelled core=01 driver=aabbccdd<key0>99 -> EINVAL\n"
        );
        assert!(differences(&one, &other).is_empty());
    }

    #[test]
    fn the_firmwares_numbers_are_those_of_the_kernel() {
        let trace = |uar: &str, big: &str| {
            format!(
                "call 0x1008/0x1000 0x1000=new -> ok 0x1004={uar}\n\
                 call 0x1001/0x1000 0x1001=in:0904{}00{big}0000 -> ok 0x1002=0000000000000000000{}\n",
                "00".repeat(0x5a),
                "00007"
            )
        };
        let one = normal(&trace("11010000", "000111"), MLX5);
        assert!(one.contains("0x1004=<uar0>\n") && one.contains("in:0904{91}<uar0>0000 -> ok"), "{one}");
        assert!(one.ends_with("<sq0>\n"), "{one}");
        assert_eq!(one, normal(&trace("37040000", "000437"), MLX5));
        // A question that is asked again is no other run.
        let question = "call 0x1001/0x1003 0x1001=in:0773 0x1002=out:4 -> ok 0x1002=00000000\n";
        assert_eq!(normal(&question.repeat(3), MLX5), question);
        // Another command has no such field.
        let other = trace("11010000", "000111").replace("in:0904", "in:0905");
        assert!(!normal(&other, MLX5).contains("00<uar0>"));
    }

    #[test]
    fn a_number_that_is_given_again_is_another_object() {
        let made =
            |key: &str| format!("write 0x00000009 Tunnelled core= driver= -> ok core=01000000{key}{key}\n");
        let changed = |key: &str| format!("write 0x0000000b Tunnelled core= driver= -> ok core={key}{key}\n");
        let again = made("11111111") + &changed("11111111") + &made("11111111") + &changed("11111111");
        let anew = made("11111111") + &changed("11111111") + &made("22222222") + &changed("22222222");
        assert_eq!(normal(&again, MLX5), normal(&anew, MLX5));
        assert!(normal(&again, MLX5).ends_with("core=<key1><key1>\n"));
        // A change may keep the key or not.
        let other = normal(&(made("11111111") + &changed("22222222")), MLX5);
        assert!(other.ends_with("core=<key1><key1>\n"), "{other}");
    }

    #[test]
    fn addresses_have_their_names_for_one_call() {
        let resized =
            |address: &str| format!("write 0x00000013 Tunnelled core= driver={address}40000000 -> ok\n");
        let (one, other) = ("0011223344556677", "1011223344556677");
        assert_eq!(
            normal(&(resized(one) + &resized(one)), MLX5),
            normal(&(resized(one) + &resized(other)), MLX5)
        );
        let changed = |start: &str, place: &str| {
            format!("write 0x0000000b core={}{start}{}{place} -> ok\n", "01".repeat(16), "02".repeat(8))
        };
        assert!(normal(&changed(one, one), MLX5).contains("<address0>0202020202020202<address0> "));
        assert!(normal(&changed(one, other), MLX5).contains("<address0>0202020202020202<address1> "));
    }

    #[test]
    fn what_differs_is_told() {
        let one = normal(&trace("00112233445566aa", "0a0b0c0d"), FIELDS);
        let changed = one.replace("aabbccdd", "aabbccde").replace("EINVAL", "ok");
        let told = differences(&one, &changed);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("write 0x80000034 driver (line 3): driver=aabbccdd<key0>99 for "),
            "{told:?}"
        );
        let shorter: String = one.lines().take(2).map(|line| format!("{line}\n")).collect();
        assert!(differences(&shorter, &one)[0].starts_with("2 calls for 3; "));
        // Another object in the place of the first is another name.
        let other = trace("00112233445566aa", "0a0b0c0d").replacen(
            "driver=aabbccdd0a0b0c0d",
            "driver=aabbccdd0a0b0c0e",
            1,
        );
        assert!(!differences(&normal(&other, FIELDS), &one).is_empty());
    }
    #[test]
    fn a_call_that_is_missing_makes_no_other_one_differ() {
        let whole: String =
            (0..6).map(|number| format!("call 0x0007/0x000{number} 0x0000=in:0{number} -> ok\n")).collect();
        let lacks: String =
            whole.lines().filter(|line| !line.contains("0x0001")).map(|line| format!("{line}\n")).collect();
        let missing = "5 calls for 6; missing: call 0x0007/0x0001 0x0000=in:01 -> ok";
        assert_eq!(differences(&lacks, &whole), [missing]);
        let many = "6 calls for 5; too many: call 0x0007/0x0001 0x0000=in:01 -> ok";
        assert_eq!(differences(&whole, &lacks), [many]);
        // Beside one that differs, and another that is missing.
        let changed = lacks.replace("in:04", "in:44").replace("call 0x0007/0x0005 0x0000=in:05 -> ok\n", "");
        assert_eq!(
            differences(&changed, &whole),
            [
                "call 0x0007/0x0004 0x0000 (line 5): 0x0000=in:44 for 0x0000=in:04",
                "4 calls for 6; missing: call 0x0007/0x0001 0x0000=in:01 -> ok",
                "missing: call 0x0007/0x0005 0x0000=in:05 -> ok",
            ]
        );
        // The same call again and again: the same lines find each other.
        let again = "call 0x0001/0x0001 -> ok\ncall 0x0001/0x0001 -> EPERM\n";
        assert_eq!(
            differences(again, "call 0x0001/0x0001 -> EPERM\n"),
            ["2 calls for 1; too many: call 0x0001/0x0001 -> ok"]
        );
        assert_eq!(differences("", ""), Vec::<String>::new());
    }
}
