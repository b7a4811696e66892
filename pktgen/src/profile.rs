//! Streams in a TOML file.
//!
//! ```toml
//! [[stream]]
//! name = "web"                                             # for reports [default: its number]
//! port = 0                                                 # that sends it [default: those of -p]
//! # pcap = "in.pcap", with speed = 1.0 and loops = 1, in place of packet and size
//! packet = "ether/ipv4(src=10.0.0.1..10.0.0.9)/tcp"        # or a list, in turn
//! size = "imix"                                            # or a number [default: 64]
//! rate = "100kpps"                                         # [default: --rate]
//! pattern = "poisson"                                      # [default: constant]
//! count = 1000000                                          # [default: until the end]
//! tuple = ["tcp.src", "ipv4.src"]
//! latency = true                                           # [default: --latency]
//! ```

use std::path::Path;
use std::str::FromStr;

use pollux_config::{ConfigError, TomlFile};
use serde::Deserialize;
use toml::{Spanned, Value};

use crate::options::Options;
use crate::packet::Packet;
use crate::replay::ReplaySpec;
use crate::spec::StreamSpec;

/// The most streams.
pub(crate) const STREAMS_MAX: usize = 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    stream: Vec<Spanned<Table>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: Option<Spanned<String>>,
    port: Option<u16>,
    packet: Option<Spanned<Value>>,
    pcap: Option<Spanned<String>>,
    speed: Option<Spanned<f64>>,
    loops: Option<u64>,
    size: Option<Spanned<Value>>,
    rate: Option<Spanned<String>>,
    pattern: Option<Spanned<String>>,
    count: Option<Spanned<i64>>,
    #[serde(default)]
    tuple: Vec<String>,
    latency: Option<bool>,
}

/// A stream and where it stands in the file.
pub(crate) struct Placed {
    pub(crate) spec: StreamSpec,
    offset: usize,
}

/// A file of streams.
pub(crate) struct Profile(TomlFile);

impl Profile {
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        TomlFile::read(path).map(Self)
    }

    /// Its streams; what they leave out is as the options say.
    pub(crate) fn streams(&self, options: &Options) -> Result<Vec<Placed>, ConfigError> {
        let document: Document = self.0.parse()?;
        if document.stream.is_empty() {
            return Err(self.0.error(0, "has no stream: a table [[stream]] with a key 'packet' is one"));
        }
        if document.stream.len() > STREAMS_MAX {
            let why = format!("{} streams are too many: at most {STREAMS_MAX}", document.stream.len());
            return Err(self.0.error(0, &why));
        }
        let mut streams: Vec<Placed> = Vec::new();
        for (number, table) in document.stream.into_iter().enumerate() {
            let offset = table.span().start;
            let spec = self.stream(number, table, options)?;
            if streams.iter().any(|other| other.spec.name == spec.name) {
                return Err(self.0.error(offset, &format!("name '{}' is that of two streams", spec.name)));
            }
            streams.push(Placed { spec, offset });
        }
        Ok(streams)
    }

    /// What is wrong with a stream as a whole.
    pub(crate) fn locate(&self, placed: &Placed, problem: &str) -> ConfigError {
        self.0.error(placed.offset, &format!("stream '{}' {problem}", placed.spec.name))
    }

    fn stream(
        &self,
        number: usize,
        table: Spanned<Table>,
        options: &Options,
    ) -> Result<StreamSpec, ConfigError> {
        let at = table.span().start;
        let table = table.into_inner();
        let replay = self.replay(&table, at)?;
        let packets = table.packet.as_ref().map(|packet| self.packets(packet)).transpose()?;
        let count = table.count.map(|count| {
            let why =
                || self.0.error(count.span().start, &format!("count '{}' is not above 0", count.get_ref()));
            u64::try_from(*count.get_ref()).ok().filter(|count| *count > 0).ok_or_else(why)
        });
        let sizes = table.size.map(|size| {
            let text = match size.get_ref() {
                Value::Integer(number) => number.to_string(),
                Value::String(text) => text.clone(),
                other => return Err(self.kind(&size, "size", other, "a number or a string")),
            };
            self.parse("size", &text, size.span().start)
        });
        let name = table.name.map(|name| match name.get_ref().as_str() {
            text if (1..=32).contains(&text.chars().count()) && !text.contains(char::is_control) => {
                Ok(text.to_owned())
            }
            _ => Err(self.0.error(name.span().start, "name is not of 1 to 32 printable characters")),
        });
        Ok(StreamSpec {
            name: name.transpose()?.unwrap_or_else(|| number.to_string()),
            port: table.port,
            replay,
            packets: packets.unwrap_or_default(),
            sizes: sizes.transpose()?.unwrap_or_default(),
            rate: self.text("rate", table.rate)?.or(options.rate).unwrap_or_default(),
            pattern: self.text("pattern", table.pattern)?.unwrap_or_default(),
            count: count.transpose()?,
            tuple: table.tuple,
            latency: table.latency.unwrap_or(options.latency) && table.pcap.is_none(),
        })
    }

    /// The capture file, where there is one in place of packets.
    fn replay(&self, table: &Table, at: usize) -> Result<Option<ReplaySpec>, ConfigError> {
        let Some(path) = &table.pcap else {
            if table.packet.is_none() {
                return Err(self.0.error(at, "a stream needs a key 'packet' or 'pcap'"));
            }
            if table.speed.is_some() || table.loops.is_some() {
                return Err(self.0.error(at, "'speed' and 'loops' are for a stream with 'pcap'"));
            }
            return Ok(None);
        };
        let packets = [table.packet.is_some(), table.size.is_some(), table.pattern.is_some()];
        if packets.contains(&true) || !table.tuple.is_empty() || table.latency == Some(true) {
            let why = "'pcap' cannot be combined with packet, size, pattern, tuple or latency: leave one of them out";
            return Err(self.0.error(path.span().start, why));
        }
        let speed = table.speed.as_ref().map_or(1.0, |speed| *speed.get_ref());
        if !(1e-6..=1e6).contains(&speed) {
            let at = table.speed.as_ref().map_or(at, |speed| speed.span().start);
            return Err(self
                .0
                .error(at, &format!("speed '{speed}' is not a number from 0.000001 to 1000000")));
        }
        let path = path.get_ref().into();
        Ok(Some(ReplaySpec { path, speed, loops: table.loops.unwrap_or(1) }))
    }

    fn packets(&self, value: &Spanned<Value>) -> Result<Vec<Packet>, ConfigError> {
        let at = value.span().start;
        let parse = |one: &Value| match one {
            Value::String(text) => self.parse("packet", text, at),
            other => Err(self.kind(value, "packet", other, "a string or a list of strings")),
        };
        match value.get_ref() {
            Value::Array(list) if list.is_empty() || list.len() > 1024 => {
                Err(self.0.error(at, "packet is a list of 1 to 1024 strings"))
            }
            Value::Array(list) => list.iter().map(parse).collect(),
            one => Ok(vec![parse(one)?]),
        }
    }

    fn text<T: FromStr<Err = String>>(
        &self,
        key: &str,
        text: Option<Spanned<String>>,
    ) -> Result<Option<T>, ConfigError> {
        text.map(|text| self.parse(key, text.get_ref(), text.span().start)).transpose()
    }

    fn parse<T: FromStr<Err = String>>(&self, key: &str, text: &str, at: usize) -> Result<T, ConfigError> {
        text.parse().map_err(|why| self.0.error(at, &format!("{key} '{text}' {why}")))
    }

    fn kind(&self, value: &Spanned<Value>, key: &str, is: &Value, allowed: &str) -> ConfigError {
        self.0.error(value.span().start, &format!("'{key}' is a {}; allowed is {allowed}", is.type_str()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::rate::Rate;
    use crate::schedule::Pattern;

    fn read(text: &str) -> Result<Vec<StreamSpec>, String> {
        let profile = Profile(TomlFile::new(Path::new("p.toml"), text.into()));
        let options = Options::parse_from(["pktgen", "--rate", "7pps", "--latency"]);
        let streams = profile.streams(&options).map_err(|error| error.to_string())?;
        Ok(streams.into_iter().map(|placed| placed.spec).collect())
    }

    #[test]
    fn what_is_left_out_is_as_the_options_say() {
        let text = "[[stream]]\npacket = 'ether/ipv4/udp'\n[[stream]]\nname = 'b'\nport = 1\npacket = ['ether', 'ether/arp']\n\
                    size = 'imix'\nrate = '50%'\npattern = 'poisson'\ncount = 9\ntuple = ['udp.src']\nlatency = false\n";
        let [first, second] = read(text).expect("streams").try_into().expect("two");
        assert_eq!(
            (first.name.as_str(), first.rate, first.latency, first.port),
            ("0", Rate::Packets(7.0), true, None)
        );
        assert_eq!((first.sizes.0, first.pattern, first.count), (vec![64], Pattern::Constant, None));
        assert_eq!((second.name.as_str(), second.rate, second.latency), ("b", Rate::Percent(50.0), false));
        assert_eq!(
            (second.port, second.packets.len(), second.sizes.0.len(), second.count),
            (Some(1), 2, 12, Some(9))
        );
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, why) in [
            (
                "",
                "profile 'p.toml', line 1, column 1: has no stream: a table [[stream]] with a key 'packet' is one",
            ),
            ("[[stream]]\n", "profile 'p.toml', line 1, column 1: a stream needs a key 'packet' or 'pcap'"),
            (
                "[[stream]]\npacket = 'ether/ip'\n",
                "profile 'p.toml', line 2, column 10: packet 'ether/ip' has no header 'ip': headers are ether,",
            ),
            (
                "[[stream]]\npacket = 'ether'\nsize = 63\n",
                "profile 'p.toml', line 3, column 8: size '63' has size '63', which is not a whole number of bytes from 64 to 9018",
            ),
            (
                "[[stream]]\npacket = 'ether'\nsize = 1.5\n",
                "profile 'p.toml', line 3, column 8: 'size' is a float; allowed is",
            ),
            (
                "[[stream]]\npacket = 7\n",
                "profile 'p.toml', line 2, column 10: 'packet' is a integer; allowed is a string",
            ),
            (
                "[[stream]]\npacket = []\n",
                "profile 'p.toml', line 2, column 10: packet is a list of 1 to 1024 strings",
            ),
            (
                "[[stream]]\npacket = 'ether'\nrate = '5'\n",
                "profile 'p.toml', line 3, column 8: rate '5' is not a rate such as",
            ),
            (
                "[[stream]]\npacket = 'ether'\ncount = 0\n",
                "profile 'p.toml', line 3, column 9: count '0' is not above 0",
            ),
            ("[[stream]]\npacket = 'ether'\nport = 65536\n", "profile 'p.toml', line 3, column 8: "),
            (
                "[[stream]]\npacket = 'ether'\nrat = '5pps'\n",
                "profile 'p.toml', line 3, column 1: unknown field `rat`, expected one of",
            ),
            (
                "[[stream]]\npacket = 'ether'\nname = ''\n",
                "profile 'p.toml', line 3, column 8: name is not of 1 to 32 printable characters",
            ),
            (
                "[[stream]]\npacket = 'ether'\nname = 'a'\n[[stream]]\npacket = 'ether'\nname = 'a'\n",
                "profile 'p.toml', line 4, column 1: name 'a' is that of two streams",
            ),
            (
                "[[stream]]\npcap = 'a'\nsize = 64\n",
                "profile 'p.toml', line 2, column 8: 'pcap' cannot be combined with packet, size,",
            ),
            (
                "[[stream]]\npcap = 'a'\nspeed = 0.0\n",
                "profile 'p.toml', line 3, column 9: speed '0' is not a number from",
            ),
            (
                "[[stream]]\npacket = 'ether'\nloops = 2\n",
                "profile 'p.toml', line 1, column 1: 'speed' and 'loops' are",
            ),
            ("[[stream]\n", "profile 'p.toml', line 1, column "),
        ] {
            let refusal = read(text).map(|_| ()).expect_err(text);
            assert!(refusal.starts_with(why), "{text}: {refusal}");
        }
    }
}
