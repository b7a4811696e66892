//! A line of a trace, taken apart: a call, a write command, a map, the end of a channel, or a line of the fast path
//! (`pollux_mlx5_model`, `device/fast_path.rs`). Whatever a file holds, what is no such line is none.

use pollux_uverbs::trace::FULL;

/// What an attribute carries, asked or answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Bytes.
    Bytes(Vec<u8>),
    /// An element of an enumeration, and its bytes.
    Element(u8, Vec<u8>),
    /// Room for so many bytes of an answer.
    Room(usize),
    /// An object that exists, or was made.
    Handle(u32),
    /// An object is made.
    New,
    /// A descriptor, given or made.
    Descriptor,
    /// What is not taken apart: bytes of which some stand as a name.
    Other(&'a str),
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A method of the ioctl.
    Call {
        /// Kind of the object.
        object: u16,
        /// What to do with it.
        method: u16,
        /// What is asked, by attribute.
        asked: Vec<(u16, Value<'a>)>,
        /// `ok` or the error's name.
        outcome: &'a str,
        /// What is answered, by attribute.
        answered: Vec<(u16, Value<'a>)>,
    },
    /// A write command.
    Write {
        /// Its number.
        command: u32,
        /// `Tunnelled` or `Plain`.
        route: &'a str,
        /// What is asked: of the core and of the driver.
        asked: [Value<'a>; 2],
        /// `ok` or the error's name.
        outcome: &'a str,
        /// What is answered: by the core and by the driver.
        answered: [Option<Value<'a>>; 2],
    },
    /// Pages of the device.
    Map {
        /// The offset; none in a normal trace.
        offset: Option<u64>,
        /// How many bytes.
        bytes: u64,
        /// `Read`, `Write` or `ReadWrite`.
        rights: &'a str,
        /// `ok` or the error's name.
        outcome: &'a str,
    },
    /// Pages of the device that are mapped no longer.
    Unmap {
        /// The offset that they were mapped by.
        offset: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// The file of a device is opened.
    Open {
        /// Its name.
        file: &'a str,
        /// `ok` or the error's name.
        outcome: &'a str,
    },
    /// A descriptor of the file becomes another one, too.
    Dup {
        /// The one that was there.
        from: i32,
        /// The one that is made.
        to: i32,
    },
    /// An event that was read.
    Event {
        /// What was read.
        bytes: Vec<u8>,
    },
    /// A channel is gone, and with it what was made through it.
    Close,
    /// The trace is as long as it may be, and has no more lines.
    Full,
    /// A store to a register of the device.
    Ring {
        /// Number of the UAR page.
        page: u32,
        /// Where in it.
        offset: u64,
        /// What was stored.
        bytes: Vec<u8>,
    },
    /// A send entry, as the device takes it up.
    Entry {
        /// Number of the queue.
        queue: u32,
        /// Index of its first block.
        index: u16,
        /// The entry.
        bytes: Vec<u8>,
    },
    /// A completion, as the device writes it.
    Completion {
        /// Number of the completion queue.
        queue: u32,
        /// The entry.
        bytes: Vec<u8>,
    },
}

/// No attribute is longer: what its 16-bit length can say.
const BYTES_MAX: usize = u16::MAX as usize;

/// A line without the channel at its end, and that channel, where it tells one: `@` and numbers.
#[must_use]
pub fn channel(line: &str) -> (&str, Option<&str>) {
    match line.rsplit_once(" @") {
        Some((body, channel))
            if !channel.is_empty() && channel.bytes().all(|one| one.is_ascii_digit() || one == b'.') =>
        {
            (body, Some(channel))
        }
        _ => (line, None),
    }
}

/// Takes a line apart, but for its [`channel`]; `None` for what is none.
#[must_use]
pub fn parse(line: &str) -> Option<Line<'_>> {
    let line = channel(line).0;
    if line == "close" {
        return Some(Line::Close);
    }
    if line == FULL {
        return Some(Line::Full);
    }
    let (kind, rest) = line.split_once(' ')?;
    match kind {
        "ring" | "entry" | "completion" => fast(kind, rest),
        "call" | "write" | "map" | "unmap" | "open" | "dup" | "event" => {
            let (asked, answer) = rest.split_once(" -> ")?;
            let (outcome, answered) = answer.split_once(' ').unwrap_or((answer, ""));
            match kind {
                "call" => call(asked, outcome, answered),
                "write" => write(asked, outcome, answered),
                "map" => map(asked, outcome),
                "open" => Some(Line::Open { file: asked, outcome }),
                _ => done(kind, asked),
            }
        }
        _ => None,
    }
}

fn call<'a>(asked: &'a str, outcome: &'a str, answered: &'a str) -> Option<Line<'a>> {
    let mut words = asked.split(' ');
    let (object, method) = words.next()?.split_once('/')?;
    let (object, method) = (half(object)?, half(method)?);
    let asked = words.map(attribute).collect::<Option<_>>()?;
    let answered =
        answered.split(' ').filter(|word| !word.is_empty()).map(attribute).collect::<Option<_>>()?;
    Some(Line::Call { object, method, asked, outcome, answered })
}

fn write<'a>(asked: &'a str, outcome: &'a str, answered: &'a str) -> Option<Line<'a>> {
    let mut words = asked.split(' ');
    let (command, route) = (u32::try_from(hexadecimal(words.next()?)?).ok()?, words.next()?);
    let asked = [bytes(words.next()?.strip_prefix("core=")?), bytes(words.next()?.strip_prefix("driver=")?)];
    let part = |name: &str| answered.split(' ').find_map(|word| word.strip_prefix(name)).map(bytes);
    Some(Line::Write { command, route, asked, outcome, answered: [part("core="), part("driver=")] })
}

fn map<'a>(asked: &'a str, outcome: &'a str) -> Option<Line<'a>> {
    let words: Vec<&str> = asked.split(' ').collect();
    let (offset, length, rights) = match words[..] {
        [offset, length, rights] => (Some(hexadecimal(offset)?), length, rights),
        [length, rights] => (None, length, rights),
        _ => return None,
    };
    Some(Line::Map { offset, bytes: length.parse().ok()?, rights, outcome })
}

/// What the tracer of other programs (`process::tracer`) writes of calls that were not refused.
fn done<'a>(kind: &str, asked: &'a str) -> Option<Line<'a>> {
    if kind == "event" {
        return match bytes(asked.strip_prefix("bytes=")?) {
            Value::Bytes(bytes) => Some(Line::Event { bytes }),
            _ => None,
        };
    }
    let (first, second) = asked.split_once(' ')?;
    Some(match kind {
        "unmap" => Line::Unmap { offset: hexadecimal(first)?, bytes: second.parse().ok()? },
        _ => Line::Dup { from: first.parse().ok()?, to: second.parse().ok()? },
    })
}

fn fast<'a>(kind: &str, rest: &'a str) -> Option<Line<'a>> {
    let mut words = rest.split(' ');
    let number = u32::try_from(hexadecimal(words.next()?)?).ok()?;
    let stored = |words: &mut std::str::Split<'a, char>| match bytes(words.next()?.strip_prefix("bytes=")?) {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    };
    Some(match kind {
        "ring" => {
            let offset = hexadecimal(words.next()?)?;
            Line::Ring { page: number, offset, bytes: stored(&mut words)? }
        }
        "entry" => {
            let index = words.next()?.strip_prefix("index=")?.parse().ok()?;
            Line::Entry { queue: number, index, bytes: stored(&mut words)? }
        }
        _ => Line::Completion { queue: number, bytes: stored(&mut words)? },
    })
}

fn attribute(word: &str) -> Option<(u16, Value<'_>)> {
    let (id, value) = word.split_once('=')?;
    let (kind, rest) = value.split_once(':').unwrap_or((value, ""));
    let value = match kind {
        "in" => bytes(rest),
        "out" => Value::Room(rest.parse().ok().filter(|room| *room <= BYTES_MAX)?),
        "handle" => Value::Handle(rest.parse().ok()?),
        "new" => Value::New,
        "fd" | "newfd" => Value::Descriptor,
        "element" => {
            let (element, rest) = rest.split_once(':')?;
            match bytes(rest) {
                Value::Bytes(bytes) => Value::Element(element.parse().ok()?, bytes),
                other => other,
            }
        }
        // An answer has its bytes alone.
        _ => bytes(value),
    };
    Some((half(id)?, value))
}

fn half(text: &str) -> Option<u16> {
    hexadecimal(text)?.try_into().ok()
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Bytes as digits, zeros in a row perhaps as their number in braces.
fn bytes(text: &str) -> Value<'_> {
    digits(text).map_or(Value::Other(text), Value::Bytes)
}

/// What hexadecimal digits stand for, of which zeros in a row may be their number in braces; `None` for anything else, and for
/// more than any part has.
#[must_use]
pub fn digits(text: &str) -> Option<Vec<u8>> {
    let mut digits = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (zeros, after) = behind.split_once('}')?;
        let zeros: usize = zeros.parse().ok().filter(|zeros| *zeros <= BYTES_MAX)?;
        digits.push_str(before);
        digits.extend(std::iter::repeat_n('0', zeros * 2));
        if digits.len() > 2 * BYTES_MAX {
            return None;
        }
        rest = after;
    }
    digits.push_str(rest);
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * BYTES_MAX {
        return None;
    }
    let digit = |one: u8| char::from(one).to_digit(16);
    digits.as_bytes().chunks(2).map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let line = "call 0x0003/0x1001 0x0000=out:4 0x0001=new 0x0002=in:01020304 0x0003=handle:7 0x0004=element:2:ff \
                    0x0005=newfd -> ok 0x0000=0102{1}00 0x0001=handle:9";
        let Some(Line::Call { object: 3, method: 0x1001, asked, outcome: "ok", answered }) = parse(line)
        else {
            panic!("{:?}", parse(line))
        };
        assert_eq!(asked[0], (0, Value::Room(4)));
        assert_eq!(
            asked[1..4],
            [(1, Value::New), (2, Value::Bytes(vec![1, 2, 3, 4])), (3, Value::Handle(7))]
        );
        assert_eq!(asked[4..], [(4, Value::Element(2, vec![255])), (5, Value::Descriptor)]);
        assert_eq!(answered, [(0, Value::Bytes(vec![1, 2, 0, 0])), (1, Value::Handle(9))]);
        let Some(Line::Write {
            command: 0x8000_0001,
            route: "Tunnelled",
            asked,
            outcome: "EINVAL",
            answered,
        }) = parse("write 0x80000001 Tunnelled core=00 driver= -> EINVAL")
        else {
            panic!()
        };
        assert_eq!(asked, [Value::Bytes(vec![0]), Value::Bytes(vec![])]);
        assert_eq!(answered, [None, None]);
        let map = Line::Map { offset: Some(0x50_0000), bytes: 4096, rights: "Read", outcome: "ok" };
        assert_eq!(parse("map 0x500000 4096 Read -> ok"), Some(map));
        assert_eq!(parse("unmap 0x500000 4096 -> ok"), Some(Line::Unmap { offset: 0x50_0000, bytes: 4096 }));
        assert_eq!(parse("dup 3 7 -> ok"), Some(Line::Dup { from: 3, to: 7 }));
        assert_eq!(parse("open uverbs0 -> EACCES"), Some(Line::Open { file: "uverbs0", outcome: "EACCES" }));
        assert_eq!(parse("event bytes=0102 -> ok"), Some(Line::Event { bytes: vec![1, 2] }));
        assert_eq!(
            parse("ring 0x00000040 0x800 bytes=0102"),
            Some(Line::Ring { page: 0x40, offset: 0x800, bytes: vec![1, 2] })
        );
    }

    #[test]
    fn lines_tell_their_channel() {
        let map = "map 0x500000 4096 Read -> ok";
        assert_eq!(channel(&format!("{map} @12.0")), (map, Some("12.0")));
        assert_eq!(parse(&format!("{map} @12.0")), parse(map));
        assert_eq!(parse("close @12.0"), Some(Line::Close));
        for other in [map, "map 0x1 2 Read -> @", "map 0x1 2 Read -> ok @x", ""] {
            assert_eq!(channel(other), (other, None));
        }
    }

    #[test]
    fn names_in_the_place_of_bytes_stay_as_they_are() {
        let Some(Line::Call { asked, .. }) = parse("call 0x0007/0x0005 0x0003=in:<address0> -> ok") else {
            panic!()
        };
        assert_eq!(asked, [(3, Value::Other("<address0>"))]);
    }

    #[test]
    fn what_is_no_line_is_none() {
        for line in [
            "",
            "call",
            "call 0x0/0x0",
            "call 0x10000/0x0 -> ok",
            "call 1/2 -> ok",
            "call 0x1/0x2 0x0=out:99999999999999999999 -> ok",
            "call 0x1/0x2 0x0=handle:-1 -> ok",
            "call 0x1/0x2 nonsense -> ok",
            "write 0x1 Plain core=00 -> ok",
            "map 0x1 0x2 0x3 0x4 -> ok",
            "map x y z -> ok",
            "unmap 0x1 -> ok",
            "dup 1 -> ok",
            "event bytes=0 -> ok",
            "event 00 -> ok",
            "ring 0x1 bytes=00",
            "entry 0x1 index=99999999 bytes=00",
            "entry 0x1 index=1 bytes=0",
            "completion 0x1 bytes={99999999999}",
            "\u{1f600} -> ",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
        for short in ["{99999999999}", "{x}", "{3", "}{", "{65535}{65535}{65535}", "abc", "xy"] {
            assert_eq!(digits(short), None, "{short}");
        }
        assert_eq!(digits("a0{2}0b"), Some(vec![0xa0, 0, 0, 0x0b]));
        // More zeros than any part has.
        assert_eq!(bytes("{65535}{65535}"), Value::Other("{65535}{65535}"));
    }
}
