//! From the text after `wire=` to a wire.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Cable, Capture, Datagrams, Impaired, Impairments, KernelInterface, Null, Source, Wire};
use crate::ModelError;
use crate::time::Clock;

/// Fastest source that is asked for: a frame a nanosecond.
const RATE_MAX: u64 = 1_000_000_000;

/// Which wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireSpec {
    /// `cable:NAME`
    Cable(String),
    /// `source:SIZE[:RATE]`
    Source {
        /// Bytes of a frame.
        size: usize,
        /// Frames a second at most; none: as many as are taken.
        rate: Option<u64>,
    },
    /// `null`
    Null,
    /// `pcap:IN:OUT`
    Capture {
        /// What comes in; none: nothing does.
        input: Option<PathBuf>,
        /// Where goes what is sent; none: nowhere.
        output: Option<PathBuf>,
    },
    /// `iface:NAME`
    Interface(String),
    /// `unix:LOCAL:PEER`
    Datagrams {
        /// The socket that is made.
        local: PathBuf,
        /// The socket that frames are sent to.
        peer: PathBuf,
    },
}

impl FromStr for WireSpec {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let wrong = |problem: &str| ModelError::Wire { text: text.into(), problem: problem.into() };
        let parts: Vec<&str> = text.split(':').collect();
        let file = |name: &str| (!name.is_empty()).then(|| PathBuf::from(name));
        match parts[..] {
            ["null"] => Ok(Self::Null),
            ["cable", name] if !name.is_empty() => Ok(Self::Cable(name.into())),
            ["cable", ..] => Err(wrong("a cable has a name without ':'")),
            ["source", size, ref rate @ ..] if rate.len() < 2 => {
                let size = size
                    .parse()
                    .map_err(|_| wrong("the size is not a whole number of bytes, such as source:64"))?;
                // What no source makes is refused before anything is opened.
                Source::new(size, [0; 6]).map_err(|error| match error {
                    ModelError::Wire { problem, .. } => wrong(&problem),
                    other => other,
                })?;
                let frames = |rate: &&str| rate.parse().ok().filter(|rate| (1..=RATE_MAX).contains(rate));
                let rate = rate.first().map(|rate| {
                    frames(rate).ok_or_else(|| {
                        wrong("the rate is not a whole number of frames a second, 1 to 1000000000")
                    })
                });
                Ok(Self::Source { size, rate: rate.transpose()? })
            }
            ["source", ..] => Err(wrong("a source has a frame size, such as source:64")),
            ["pcap", input, output] => {
                if input.is_empty() && output.is_empty() {
                    return Err(wrong("names no file: give one to read, one to write, or both"));
                }
                if input == output {
                    return Err(wrong("would read the file that it writes: name two files"));
                }
                Ok(Self::Capture { input: file(input), output: file(output) })
            }
            ["pcap", ..] => {
                Err(wrong("names two files without ':', of which one may be empty (pcap:in.pcap:)"))
            }
            ["iface", name] if !name.is_empty() => Ok(Self::Interface(name.into())),
            ["iface", ..] => Err(wrong("names no interface")),
            ["unix", local, peer] if !local.is_empty() && !peer.is_empty() => {
                if local == peer {
                    return Err(wrong("would talk to itself: name two sockets"));
                }
                Ok(Self::Datagrams { local: local.into(), peer: peer.into() })
            }
            ["unix", ..] => Err(wrong("names two sockets without ':', its own and the peer's")),
            _ => Err(wrong("there is no such wire")),
        }
    }
}

impl fmt::Display for WireSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path =
            |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        match self {
            Self::Cable(name) => write!(f, "cable:{name}"),
            Self::Source { size, rate: None } => write!(f, "source:{size}"),
            Self::Source { size, rate: Some(rate) } => write!(f, "source:{size}:{rate}"),
            Self::Null => f.write_str("null"),
            Self::Capture { input, output } => write!(f, "pcap:{}:{}", path(input), path(output)),
            Self::Interface(name) => write!(f, "iface:{name}"),
            Self::Datagrams { local, peer } => write!(f, "unix:{}:{}", local.display(), peer.display()),
        }
    }
}

impl WireSpec {
    /// Opens it, with impairments around it if there are any. `mac` is where a source sends to.
    ///
    /// # Errors
    /// As the wire's own: a cable in use, a file that is not there, an interface that may not be opened.
    pub fn open(&self, mac: [u8; 6], what: Impairments, clock: &Clock) -> Result<Box<dyn Wire>, ModelError> {
        let wire: Box<dyn Wire> = match self {
            Self::Cable(name) => Box::new(Cable::join(name)?),
            Self::Source { size, rate } => {
                let source = Source::new(*size, mac)?;
                Box::new(if let Some(rate) = rate { source.paced(*rate, clock) } else { source })
            }
            Self::Null => Box::new(Null::default()),
            Self::Capture { input, output } => {
                Box::new(Capture::open(input.as_deref(), output.as_deref(), clock)?)
            }
            Self::Interface(name) => Box::new(KernelInterface::open(name, clock)?),
            Self::Datagrams { local, peer } => Box::new(Datagrams::open(local, peer, clock)?),
        };
        Ok(if what.is_none() { wire } else { Box::new(Impaired::new(wire, what, clock)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_written() {
        for text in [
            "cable:a",
            "source:64",
            "source:64:1000000",
            "null",
            "pcap:a.pcap:b.pcap",
            "pcap::b.pcap",
            "pcap:a.pcap:",
            "iface:eth0",
            "unix:/tmp/a:/tmp/b",
        ] {
            assert_eq!(text.parse::<WireSpec>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn what_makes_no_sense_is_said_in_one_line() {
        let forms = "; wires: cable:NAME, source:SIZE[:RATE], null, pcap:IN:OUT, iface:NAME, unix:LOCAL:PEER";
        for (text, problem) in [
            ("", "there is no such wire"),
            ("wifi:a", "there is no such wire"),
            ("null:1", "there is no such wire"),
            ("cable", "a cable has a name without ':'"),
            ("cable:a:b", "a cable has a name without ':'"),
            ("source", "a source has a frame size, such as source:64"),
            ("source:many", "the size is not a whole number of bytes, such as source:64"),
            ("source:many:1000", "the size is not a whole number of bytes, such as source:64"),
            ("source:20:1000", "frames have 60 to 16384 bytes, FCS not counted"),
            ("source:64:0", "the rate is not a whole number of frames a second, 1 to 1000000000"),
            ("source:64:1:2", "a source has a frame size, such as source:64"),
            ("source:20", "frames have 60 to 16384 bytes, FCS not counted"),
            ("pcap::", "names no file: give one to read, one to write, or both"),
            ("pcap:a:a", "would read the file that it writes: name two files"),
            ("pcap:a", "names two files without ':', of which one may be empty (pcap:in.pcap:)"),
            ("iface:", "names no interface"),
            ("unix:a", "names two sockets without ':', its own and the peer's"),
            ("unix:a:a", "would talk to itself: name two sockets"),
        ] {
            let error = text.parse::<WireSpec>().expect_err(text).to_string();
            assert_eq!(error, format!("wire '{text}': {problem}{forms}"));
        }
    }

    #[test]
    fn impairments_go_around_a_wire() {
        let clock = Clock::stepped();
        let what = Impairments { loss: 1.0, ..Impairments::default() };
        let mut wire = WireSpec::Null.open([2; 6], what, &clock).expect("opened");
        assert_eq!(wire.describe(), "null");
        assert_eq!(wire.send(&[0; 60]), super::super::Sent::Yes);
        assert!(format!("{wire:?}").starts_with("Impaired"));
    }
}
