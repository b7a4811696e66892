//! What perftest's programs tell each other.
//!
//! Source: linux-rdma/perftest `src/perftest_communication.{c,h}`, `src/{send,write,read,atomic}_{bw,lat}.c`. In every step the
//! client speaks first and the server answers with a message of the same form:
//!
//! 1. its version, 16 bytes of text;
//! 2. the size of the buffer that small messages go round in, and of a cache line: 32 bits each, big-endian;
//! 3. its MTU, a digit and a zero byte: 1 is 256 bytes, 5 is 4096;
//! 4. its keys, as often as the test's program has a point where both must have arrived: text like the pingpongs', with as
//!    many messages as queue pairs in the first round and in the one that is printed;
//! 5. in tests of both directions, its results: five big-endian numbers of 64 bits, each swapped on its own;
//! 6. its keys once more, to take leave; the ends of `ib_write_lat` just hang up.
//!
//! This is the same for all versions from 5.70 to 6.27. From 6.28 on two ends that both say so also compare a C structure of
//! settings; an end that says 6.27 is not asked for it. So 6.27 is what we say, and newer ones are met too.
//!
//! Two of our own ends compare their settings too. The version's last eight bytes are zero from the originals; ours carry a
//! mark there, and when both do, each sends its settings as 512 bytes of `key=value` lines.

use std::mem::offset_of;

use pollux_verbs::Mtu;
use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use super::line::Patience;
use super::{ExchangeError, Line, Side, line::Stop};

/// The version that we say.
pub const VERSION: &str = "6.27";

/// The first version that an end of ours, or an original, talks with, in hundredths.
const OLDEST: u32 = 570;
/// The first version that asks an end of its own kind for a C structure, in hundredths.
const COMPARES: u32 = 628;

/// In the last bytes of the version: this end compares settings as ours do.
const MARK: &[u8; 8] = b"pollux1\0";

const MEETING: &str = "exchanging settings";
const TOLD: &str = "exchanging keys";
const RESULTS: &str = "exchanging results";

/// perftest reads its versions as decimal fractions; in hundredths.
fn hundredths(text: &str) -> Option<u32> {
    let number: f64 = text.parse().ok().filter(|number| (0.0..1000.0).contains(number))?;
    Some((number * 100.0).round() as u32)
}

/// Whether `--peer-version` can be said: the exchange of 5.70 to 6.27 is known here.
///
/// # Errors
/// A sentence when it cannot.
pub fn version(text: &str) -> Result<String, String> {
    let known = hundredths(text).is_some_and(|version| (OLDEST..COMPARES).contains(&version));
    if known && text.len() < 8 {
        return Ok(text.to_owned());
    }
    Err(format!("must be from 5.70 to {VERSION}; perftest 6.28 and newer accept {VERSION}"))
}

/// What the two ends have found out about each other before any queue pair exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// The other end's version.
    pub version: String,
    /// Buffer that messages smaller than it go round in: the larger of the two ends'.
    pub cycle_buffer: u32,
    /// The larger of the two ends' cache lines.
    pub cache_line: u32,
}

impl Met {
    /// Whether the other end's structure of keys has more fields than [`Keys::pack`] writes: from 6.28 on, as its sources were before the
    /// release of 6.29. Source: linux-rdma/perftest `src/perftest_resources.h`, `struct pingpong_dest`, `tail_markers_vaddr`.
    #[must_use]
    pub fn packs_otherwise(&self) -> bool {
        hundredths(&self.version).is_some_and(|version| version >= COMPARES)
    }
}

/// Keys of one queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// RDMA READs and atomics that it answers at once.
    pub out_reads: u32,
    /// Queue pair number.
    pub qpn: u32,
    /// First packet sequence number.
    pub psn: u32,
    /// Key of the memory that the other end may touch.
    pub rkey: u32,
    /// Where that begins.
    pub address: u64,
    /// Shared receive queue; 0 without.
    pub srqn: u32,
    /// Global identifier, when one was chosen; both ends must agree whether.
    pub gid: Option<[u8; 16]>,
}

/// Bytes of keys without and with a GID, the zero at the end included.
const PLAIN: usize = 59;
const WITH_GID: usize = 108;

impl Keys {
    /// Its message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Self { lid, out_reads, qpn, psn, rkey, address, srqn, gid } = self;
        let head = format!("{lid:04x}:{out_reads:04x}:{qpn:06x}:{psn:06x}:{rkey:08x}:{address:016x}:");
        let text = match gid {
            None => format!("{head}{srqn:08x}\0"),
            Some(gid) => {
                let gid: String = gid.iter().map(|byte| format!("{byte:02x}:")).collect();
                format!("{head}{gid}{srqn:08x}:\0")
            }
        };
        text.into_bytes()
    }

    /// Reads a message; none: it is no such message.
    #[must_use]
    pub fn decode(message: &[u8]) -> Option<Self> {
        let end = message.iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(&message[..end]).ok()?;
        let fields: Vec<&str> = text.trim_end_matches(':').split(':').collect();
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let narrow = |text: &str| u32::try_from(number(text)?).ok();
        let [lid, out_reads, qpn, psn, rkey, address, rest @ ..] = &fields[..] else { return None };
        let (gid, srqn) = match rest {
            [srqn] => (None, srqn),
            [gid @ .., srqn] if gid.len() == 16 => {
                let bytes =
                    gid.iter().map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<Vec<u8>>>()?;
                (Some(bytes.try_into().ok()?), srqn)
            }
            _ => return None,
        };
        Some(Self {
            lid: u16::from_str_radix(lid, 16).ok()?,
            out_reads: narrow(out_reads)?,
            qpn: narrow(qpn)?,
            psn: narrow(psn)?,
            rkey: narrow(rkey)?,
            address: number(address)?,
            srqn: narrow(srqn)?,
            gid,
        })
    }
}

/// Keys as the originals have them in memory, big-endian, where they go over a queue pair. Source: linux-rdma/perftest 24.10
/// `src/perftest_resources.h`, `struct pingpong_dest`; `src/perftest_communication.c`, `rdma_write_keys`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Packed {
    lid: U32,
    out_reads: U32,
    qpn: U32,
    psn: U32,
    rkey: U32,
    _pad: U32,
    address: U64,
    gid: [u8; 16],
    srqn: U32,
    gid_index: U32,
}
const PACKED: usize = 56;
const _: () = assert!(
    size_of::<Packed>() == PACKED && offset_of!(Packed, address) == 24 && offset_of!(Packed, gid) == 32
);

impl Keys {
    /// Its message over a queue pair.
    #[must_use]
    pub fn pack(&self) -> [u8; PACKED] {
        let packed = Packed {
            lid: u32::from(self.lid).into(),
            out_reads: self.out_reads.into(),
            qpn: self.qpn.into(),
            psn: self.psn.into(),
            rkey: self.rkey.into(),
            _pad: 0.into(),
            address: self.address.into(),
            gid: self.gid.unwrap_or_default(),
            srqn: self.srqn.into(),
            gid_index: 0.into(),
        };
        transmute!(packed)
    }

    /// Reads one; with a GID, which may be zero.
    #[must_use]
    pub fn unpack(message: [u8; PACKED]) -> Self {
        let packed: Packed = transmute!(message);
        Self {
            lid: packed.lid.get() as u16,
            out_reads: packed.out_reads.get(),
            qpn: packed.qpn.get(),
            psn: packed.psn.get(),
            rkey: packed.rkey.get(),
            address: packed.address.get(),
            srqn: packed.srqn.get(),
            gid: Some(packed.gid),
        }
    }
}

/// What one end measured of a test of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Results {
    /// Bytes of a message.
    pub size: u64,
    /// Messages.
    pub iterations: u64,
    /// In the unit that both ends show.
    pub peak: f64,
    /// In the unit that both ends show.
    pub average: f64,
    /// Millions of messages a second.
    pub rate: f64,
    /// What each of two ports has of the average and of the rate, where that is told.
    pub by_port: Option<[PortShare; 2]>,
}

/// One port's share of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PortShare {
    /// In the unit that both ends show.
    pub average: f64,
    /// Millions of messages a second.
    pub rate: f64,
}

impl Line {
    /// Steps 1 and 2. `settings` are compared when the other end is one of ours.
    ///
    /// # Errors
    /// [`ExchangeError`]: the version of the other end is too old, a setting differs, it went away.
    pub fn meet(
        &mut self,
        version: &str,
        settings: &[(&str, String)],
        cycle_buffer: u32,
        stop: Stop<'_>,
    ) -> Result<Met, ExchangeError> {
        let mut own = [0; 16];
        let length = version.len().min(7);
        own[..length].copy_from_slice(&version.as_bytes()[..length]);
        own[8..].copy_from_slice(MARK);
        let other = self.swap(&own, MEETING, stop)?;
        let end = other.iter().position(|byte| *byte == 0).unwrap_or(other.len());
        let theirs = std::str::from_utf8(&other[..end]).ok();
        let theirs = theirs.and_then(|text| Some((text, hundredths(text)?)));
        let Some((theirs, number)) = theirs else {
            return Err(self.strange(&other, "perftest's version"));
        };
        if number < OLDEST {
            let (ours, theirs) = (version.to_owned(), theirs.to_owned());
            return Err(ExchangeError::Version { peer: self.peer().to_owned(), theirs, ours });
        }
        let theirs = theirs.to_owned();
        if &other[8..] == MARK {
            self.compare(settings, stop)?;
        }
        let mut met = Met { version: theirs, cycle_buffer, cache_line: 64 };
        for value in [&mut met.cycle_buffer, &mut met.cache_line] {
            let other = self.swap(&value.to_be_bytes(), MEETING, stop)?;
            let other = u32::from_be_bytes(other);
            if !other.is_power_of_two() || other > 1 << 21 {
                return Err(self.strange(&other.to_be_bytes(), "the size of a page or a cache line"));
            }
            *value = (*value).max(other);
        }
        // Small messages go round in a page, line by line.
        if met.cache_line > met.cycle_buffer {
            return Err(
                self.strange(&met.cache_line.to_be_bytes(), "the size of a cache line, at most a page")
            );
        }
        Ok(met)
    }

    /// Compares our settings with those of an end of our own kind.
    pub(super) fn compare(
        &mut self,
        settings: &[(&str, String)],
        stop: Stop<'_>,
    ) -> Result<(), ExchangeError> {
        let text: String = settings.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        let mut own = [0; 512];
        assert!(text.len() < own.len(), "settings fit their message");
        own[..text.len()].copy_from_slice(text.as_bytes());
        let other = self.swap(&own, MEETING, stop)?;
        let end = other.iter().position(|byte| *byte == 0).unwrap_or(other.len());
        let Ok(other) = std::str::from_utf8(&other[..end]) else {
            return Err(self.strange(&other, "our settings"));
        };
        let theirs: Vec<(&str, &str)> = other.lines().filter_map(|line| line.split_once('=')).collect();
        for (key, ours) in settings {
            // A key that the other end does not know is one that it cannot differ in.
            if let Some((_, value)) = theirs.iter().find(|(other, _)| other == key)
                && value != ours
            {
                return Err(ExchangeError::Differ {
                    peer: self.peer().to_owned(),
                    what: (*key).to_owned(),
                    ours: ours.clone(),
                    theirs: (*value).to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Step 3: the smaller of the two ends' MTUs, as verbs numbers them.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn agree_mtu(&mut self, own: Mtu, stop: Stop<'_>) -> Result<Mtu, ExchangeError> {
        let other = self.swap(&[b'0' + own.code(), 0], MEETING, stop)?;
        let told = match other {
            [digit, 0] => Mtu::from_code(digit.wrapping_sub(b'0')),
            _ => None,
        };
        told.map(|told| own.min(told)).ok_or_else(|| self.strange(&other, "an MTU"))
    }

    /// Step 4, once. `patience` is whether the other end must come soon; it need not while it measures.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn trade_keys(&mut self, own: &Keys, soon: bool, stop: Stop<'_>) -> Result<Keys, ExchangeError> {
        let packs = self.packs_keys();
        let message = if packs { own.pack().to_vec() } else { own.encode() };
        let length = match own.gid {
            _ if packs => PACKED,
            Some(_) => WITH_GID,
            None => PLAIN,
        };
        let mut other = vec![0; length];
        if self.side() == Side::Client {
            self.send(&message, TOLD)?;
        }
        let Patience { due, alone } = self.patience();
        let patience = if soon { due } else { alone };
        self.receive(
            &mut other,
            if soon { TOLD } else { "waiting for the peer to finish its part of the test" },
            patience,
            stop,
        )?;
        if self.side() == Side::Server {
            self.send(&message, TOLD)?;
        }
        let keys =
            if packs { other.first_chunk().map(|other| Keys::unpack(*other)) } else { Keys::decode(&other) };
        keys.filter(|other| other.gid.is_some() == own.gid.is_some())
            .ok_or_else(|| self.strange(&other, "the keys of a queue pair (-x at both ends, or at none)"))
    }

    /// Step 5. Shares of ports are told, and come, where this end has such: both ends have them, or neither.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn trade_results(&mut self, own: &Results, stop: Stop<'_>) -> Result<Results, ExchangeError> {
        let mut swap = |own: u64| {
            let other = self.swap(&own.to_be_bytes(), RESULTS, stop)?;
            Ok::<_, ExchangeError>(u64::from_be_bytes(other))
        };
        let mut results = Results {
            size: swap(own.size)?,
            iterations: swap(own.iterations)?,
            peak: f64::from_bits(swap(own.peak.to_bits())?),
            average: f64::from_bits(swap(own.average.to_bits())?),
            rate: f64::from_bits(swap(own.rate.to_bits())?),
            by_port: None,
        };
        if let Some(own) = own.by_port {
            let mut shares = [PortShare::default(); 2];
            for (own, share) in own.iter().zip(&mut shares) {
                share.average = f64::from_bits(swap(own.average.to_bits())?);
                share.rate = f64::from_bits(swap(own.rate.to_bits())?);
            }
            results.by_port = Some(shares);
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::tests::{NEVER, SOON, pair};
    use super::*;

    const GID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];

    /// What C's printf makes of the originals' formats.
    const KEYS: &[u8; PLAIN] = b"0000:0010:0000c8:f00ba4:00001234:00007f12a0001000:00000000\0";
    const KEYS_GID: &[u8; WITH_GID] = b"0000:0010:0000c8:f00ba4:00001234:00007f12a0001000:\
        00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:02:00000007:\0";

    fn keys(gid: Option<[u8; 16]>) -> Keys {
        let srqn = if gid.is_some() { 7 } else { 0 };
        Keys {
            lid: 0,
            out_reads: 16,
            qpn: 200,
            psn: 0xf0_0ba4,
            rkey: 0x1234,
            address: 0x7f12_a000_1000,
            srqn,
            gid,
        }
    }

    #[test]
    fn keys_are_the_originals_bytes() {
        for (gid, message) in [(None, &KEYS[..]), (Some(GID), &KEYS_GID[..])] {
            assert_eq!(keys(gid).encode(), message);
            assert_eq!(Keys::decode(message), Some(keys(gid)));
        }
        assert_eq!(Keys::decode(b"0000:0010:0000c8\0"), None);
        assert_eq!(Keys::decode(&[0xff; PLAIN]), None);
    }

    /// What a compiler makes of the originals' structure.
    #[test]
    fn packed_keys_are_the_originals_structure() {
        let bytes = keys(Some(GID)).pack();
        assert_eq!(
            bytes[..24],
            [0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 200, 0, 0xf0, 0x0b, 0xa4, 0, 0, 0x12, 0x34, 0, 0, 0, 0]
        );
        assert_eq!(bytes[24..32], 0x7f12_a000_1000_u64.to_be_bytes());
        assert_eq!(bytes[32..48], GID);
        assert_eq!(bytes[48..], [0, 0, 0, 7, 0, 0, 0, 0]);
        assert_eq!(Keys::unpack(bytes), keys(Some(GID)));
        let met = |version: &str| Met { version: version.into(), cycle_buffer: 4096, cache_line: 64 };
        assert!(met("6.28").packs_otherwise() && met("6.29").packs_otherwise());
        assert!(
            !met(VERSION).packs_otherwise() && !met("6.06").packs_otherwise() && !met("").packs_otherwise()
        );
    }

    #[test]
    fn an_original_server_is_met() {
        let (mut client, mut server) = pair();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // As an original answers, its version padded with zeros.
                let mut said = [0; 16];
                server.receive(&mut said, "", SOON, NEVER).unwrap();
                assert_eq!(&said[..8], b"6.27\0\0\0\0");
                server.send(b"6.06\0\0\0\0\0\0\0\0\0\0\0\0", "").unwrap();
                for (expected, answer) in [([0, 0, 0x10, 0], [0, 1, 0, 0]), ([0, 0, 0, 64], [0, 0, 0, 64])] {
                    let mut said = [0; 4];
                    server.receive(&mut said, "", SOON, NEVER).unwrap();
                    assert_eq!(said, expected);
                    server.send(&answer, "").unwrap();
                }
                let mut said = [0; 2];
                server.receive(&mut said, "", SOON, NEVER).unwrap();
                assert_eq!(&said, b"5\0");
                server.send(b"3\0", "").unwrap();
                let mut said = [0; PLAIN];
                server.receive(&mut said, "", SOON, NEVER).unwrap();
                assert_eq!(&said, KEYS);
                server.send(KEYS, "").unwrap();
                let mut said = [0; 8];
                for answer in [2.0_f64, 3.0] {
                    server.receive(&mut said, "", SOON, NEVER).unwrap();
                    server.send(&answer.to_be_bytes(), "").unwrap();
                }
            });
            let met = client.meet(VERSION, &[("-s", "2".into())], 4096, NEVER).unwrap();
            assert_eq!(met, Met { version: "6.06".into(), cycle_buffer: 65536, cache_line: 64 });
            assert_eq!(client.agree_mtu(Mtu::Bytes4096, NEVER).unwrap(), Mtu::Bytes1024);
            assert_eq!(client.trade_keys(&keys(None), true, NEVER).unwrap(), keys(None));
            // The last three results never come.
            let error = client.trade_results(&Results::default(), NEVER).unwrap_err();
            assert!(matches!(error, ExchangeError::Closed { .. }), "{error}");
        });
    }

    #[test]
    fn two_ends_that_differ_both_say_so() {
        let (mut client, mut server) = pair();
        let settings = |size: &str| vec![("test", "send_bw".to_owned()), ("-s", size.to_owned())];
        std::thread::scope(|scope| {
            let heard = scope
                .spawn(move || server.meet(VERSION, &settings("64"), 4096, NEVER).unwrap_err().to_string());
            let said = client.meet(VERSION, &settings("128"), 4096, NEVER).unwrap_err().to_string();
            assert!(said.starts_with("-s differs: 128 here, 64 at 127.0.0.1:"), "{said}");
            let heard = heard.join().unwrap();
            assert!(heard.starts_with("-s differs: 64 here, 128 at"), "{heard}");
        });
    }

    /// Of a line that is longer than a page none fits into it, and no message would have a place.
    #[test]
    fn a_cache_line_longer_than_a_page_is_refused() {
        let (mut client, mut server) = pair();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                server.receive(&mut [0; 16], "", SOON, NEVER).unwrap();
                server.send(b"6.06\0\0\0\0\0\0\0\0\0\0\0\0", "").unwrap();
                for answer in [4096_u32, 8192] {
                    server.receive(&mut [0; 4], "", SOON, NEVER).unwrap();
                    server.send(&answer.to_be_bytes(), "").unwrap();
                }
            });
            let error = client.meet(VERSION, &[], 4096, NEVER).unwrap_err().to_string();
            assert!(error.contains("expected the size of a cache line, at most a page"), "{error}");
        });
    }

    #[test]
    fn old_versions_and_other_programs_are_named() {
        for (answer, expected) in [
            (b"5.60\0\0\0\0\0\0\0\0\0\0\0\0", "perftest 5.60 is incompatible with 6.27"),
            (b"SSH-2.0-OpenSSH_", r#"unexpected message "SSH-2.0-OpenSSH_", expected perftest's version"#),
        ] {
            let (mut client, mut server) = pair();
            server.send(answer, "").unwrap();
            let error = client.meet(VERSION, &[], 4096, NEVER).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(version("6.06").is_ok() && version(VERSION).is_ok());
        assert!(version("6.28").is_err_and(|line| line.contains("accept 6.27")));
        assert!(version("5.6").is_err() && version("new").is_err() && version("NaN").is_err());
    }

    #[test]
    fn results_are_swapped() {
        let (mut client, mut server) = pair();
        let results =
            |rate, by_port| Results { size: 64, iterations: 1000, peak: 10.5, average: 9.25, rate, by_port };
        let shares =
            |rate| Some([(6.0, rate), (3.25, 0.5)].map(|(average, rate)| PortShare { average, rate }));
        for (shares, others) in [(None, None), (shares(1.0), shares(2.0))] {
            std::thread::scope(|scope| {
                let server = &mut server;
                let other = scope.spawn(move || server.trade_results(&results(1.5, shares), NEVER).unwrap());
                assert_eq!(client.trade_results(&results(2.5, others), NEVER).unwrap(), results(1.5, shares));
                assert_eq!(other.join().unwrap(), results(2.5, others));
            });
        }
    }
}
