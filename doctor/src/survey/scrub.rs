//! What a report does not tell: addresses of the card, the network and the machine's memory, and the machine's name.
//!
//! What is known to be such (the card's MAC address, GUIDs and GIDs, the addresses of the machine's other interfaces, its name) is
//! zeroed wherever its bytes stand; in what is asked of the kernel so is every word that can be an address of this process, and in
//! answers every one that can be an address of the kernel's.

use std::fs;
use std::ops::Range;

use pollux_bringup::{BringupError, Mlx5Card};
use pollux_verbs::Options;

/// Addresses of programs: on x86-64 code and heap begin at 0x55.., maps at 0x7f... Source: Linux
/// `Documentation/arch/x86/x86_64/mm.rst`; `arch/x86/include/asm/elf.h`, `ELF_ET_DYN_BASE`.
const OF_PROCESS: Range<u64> = 0x5000_0000_0000..0x8000_0000_0000;
/// Addresses of the kernel, up to the page that every process sees. Source: Linux `Documentation/arch/x86/x86_64/mm.rst`.
const OF_KERNEL: Range<u64> = 0xffff_8000_0000_0000..0xffff_ffff_ff60_0000;

/// In the place of what a text must not tell.
const REMOVED: &str = "removed";

/// Names of machines that are none.
const NO_NAMES: [&str; 3] = ["localhost", "(none)", "linux"];

/// What is not to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Secrets {
    bytes: Vec<Vec<u8>>,
    /// Addresses as text.
    words: Vec<String>,
    /// The machine's name, if it has one. It may be any word, so in texts it is one only where it stands alone.
    host: Option<String>,
}

impl Secrets {
    /// All that is known of a card and its machine. A context is opened and closed for it.
    pub(crate) fn of(card: &Mlx5Card) -> Result<Self, BringupError> {
        let mut secrets = Self::default();
        if let Ok(mac) = card.netdev().mac() {
            secrets.mac(mac.0);
        }
        for interface in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
            let text = fs::read_to_string(interface.path().join("address")).unwrap_or_default();
            let bytes: Option<Vec<u8>> =
                text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
            if let Some(Ok(mac)) = bytes.map(<[u8; 6]>::try_from) {
                secrets.mac(mac);
            }
        }
        let context = card.context(card.channel()?, Options::default())?;
        let base = context.device()?.base;
        for guid in [base.node_guid, base.sys_image_guid] {
            secrets.add(guid.to_bytes().to_vec());
            secrets.add(guid.to_bytes().into_iter().rev().collect());
        }
        for gid in context.gids()? {
            secrets.add(gid.gid.to_vec());
            // The address inside it: of IPv4 behind ten zeros and ff ff, of IPv6 the interface's half.
            secrets.words.push(address_in(gid.gid));
            secrets.add(gid.gid[8..].to_vec());
        }
        if let Ok(name) = fs::read_to_string("/proc/sys/kernel/hostname") {
            secrets.host(name.trim());
        }
        Ok(secrets)
    }

    /// A name of the machine.
    fn host(&mut self, name: &str) {
        if name.len() > 3 && !NO_NAMES.contains(&name) {
            self.host = Some(name.to_ascii_lowercase());
            self.add(name.as_bytes().to_vec());
        }
    }

    /// An address of an interface, and what GUIDs and link-local addresses are made of it. Source: RFC 4291, appendix A.
    fn mac(&mut self, mac: [u8; 6]) {
        let [a, b, c, d, e, f] = mac;
        if mac == [0; 6] || mac == [0xff; 6] {
            return;
        }
        for first in [a, a ^ 2] {
            self.add(vec![first, b, c, 0xff, 0xfe, d, e, f]);
            self.add(vec![f, e, d, 0xfe, 0xff, c, b, first]);
        }
        self.add(mac.to_vec());
        self.words.push(mac.map(|byte| format!("{byte:02x}")).join(":"));
    }

    fn add(&mut self, bytes: Vec<u8>) {
        let tells = bytes.len() >= 4 && bytes.iter().any(|byte| *byte != 0 && *byte != 0xff);
        if tells && !self.bytes.contains(&bytes) {
            // The longest first: a part of one may be another.
            let at = self.bytes.partition_point(|known| known.len() >= bytes.len());
            self.bytes.insert(at, bytes);
        }
    }

    /// A trace without them.
    #[must_use]
    pub(crate) fn of_trace(&self, trace: &str) -> String {
        let mut out = String::with_capacity(trace.len());
        for line in trace.lines() {
            let (asked, answered) = line.split_once(" -> ").unwrap_or((line, ""));
            self.words_of(asked, true, &mut out);
            out.push_str(" -> ");
            self.words_of(answered, false, &mut out);
            out.push('\n');
        }
        out
    }

    fn words_of(&self, part: &str, asked: bool, out: &mut String) {
        for (number, word) in part.split(' ').enumerate() {
            if number > 0 {
                out.push(' ');
            }
            let at = word.rfind([':', '=']).map_or(0, |at| at + 1);
            let (head, digits) = word.split_at(at);
            out.push_str(head);
            match bytes(digits).filter(|_| at > 0) {
                Some(mut bytes) => {
                    self.zero(&mut bytes, asked);
                    bytes.iter().for_each(|byte| out.push_str(&format!("{byte:02x}")));
                }
                None => out.push_str(digits),
            }
        }
    }

    fn zero(&self, bytes: &mut [u8], asked: bool) {
        for secret in &self.bytes {
            let mut at = 0;
            while let Some(window) = bytes.get_mut(at..at + secret.len()) {
                if window == &secret[..] {
                    window.fill(0);
                }
                at += 1;
            }
        }
        for at in (0..bytes.len().saturating_sub(7)).step_by(4) {
            let Some(word) = bytes[at..].first_chunk_mut::<8>() else { continue };
            let little = u64::from_le_bytes(*word);
            let either = [little, u64::from_be_bytes(*word)];
            // Of an answer, whose words stand at multiples of their size.
            let of_kernel = at.is_multiple_of(8) && OF_KERNEL.contains(&little);
            if of_kernel || asked && either.iter().any(|word| OF_PROCESS.contains(word)) {
                word.fill(0);
            }
        }
    }

    /// A line for people without them.
    #[must_use]
    pub(crate) fn of_text(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for word in self.words.iter().chain(&self.host) {
            let lower = out.to_ascii_lowercase();
            let (mut kept, mut from) = (String::new(), 0);
            for (at, _) in lower.match_indices(word.as_str()) {
                let stands_alone = !lower[..at].ends_with(|before: char| before.is_alphanumeric())
                    && !lower[at + word.len()..].starts_with(|behind: char| behind.is_alphanumeric());
                if stands_alone {
                    kept.push_str(&out[from..at]);
                    kept.push_str(REMOVED);
                    from = at + word.len();
                }
            }
            kept.push_str(&out[from..]);
            out = kept;
        }
        out
    }

    /// The first address that a text tells after all, in any spelling.
    #[must_use]
    pub(crate) fn told_by(&self, text: &str) -> Option<String> {
        let lower = text.to_ascii_lowercase();
        let spelled = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.bytes.iter().map(spelled).chain(self.words.iter().cloned()).find(|secret| lower.contains(secret))
    }
}

/// The IP address that a GID is.
fn address_in(gid: [u8; 16]) -> String {
    let address = std::net::Ipv6Addr::from(gid);
    address.to_ipv4_mapped().map_or_else(|| address.to_string(), |address| address.to_string())
}

/// What an even number of hexadecimal digits stands for.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        digits.bytes().map(|one| Some(char::from(one).to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| !digits.is_empty() && digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let mut secrets = Secrets::default();
        secrets.mac([0x0c, 0x42, 0xa1, 0x01, 0x02, 0x03]);
        secrets.host("tower-7");
        secrets
    }

    #[test]
    fn addresses_are_zeroed_wherever_they_stand() {
        let trace = "call 0x0000/0x0002 0x0001=in:aa0c42a1010203bb 0x0002=out:40 -> ok 0x0001=0e42a1fffe010203ff\n\
                     write 0x80000001 Tunnelled core=00000000f0debc9a55550000 driver= -> EINVAL\n";
        let said = secrets().of_trace(trace);
        assert_eq!(
            said,
            "call 0x0000/0x0002 0x0001=in:aa000000000000bb 0x0002=out:40 -> ok 0x0001=0000000000000000ff\n\
             write 0x80000001 Tunnelled core=000000000000000000000000 driver= -> EINVAL\n"
        );
        assert_eq!(secrets().told_by(&said), None);
        assert_eq!(secrets().told_by(trace).as_deref(), Some("0e42a1fffe010203"));
    }

    #[test]
    fn addresses_of_the_kernel_do_not_come_back() {
        // A direct map address, then a mask of pages, which is none.
        let trace = "call 0x0001/0x0002 0x0001=out:16 -> ok 0x0001=00f0debc8088ffff00f0ffffffffffff\n";
        let said = secrets().of_trace(trace);
        assert_eq!(said, "call 0x0001/0x0002 0x0001=out:16 -> ok 0x0001=000000000000000000f0ffffffffffff\n");
        // What an answer counts is no address of a process.
        let counts = "call 0x0001/0x0002 0x0001=out:8 -> ok 0x0001=00400000ff7f0000\n";
        assert_eq!(secrets().of_trace(counts), counts);
    }

    #[test]
    fn texts_lose_names() {
        assert_eq!(secrets().of_text("TOWER-7: 0C:42:a1:01:02:03 is busy"), "removed: removed is busy");
        // A name may be a part of other words, and of what stands in its place.
        let mut named = Secrets::default();
        named.host("move");
        assert_eq!(named.of_text("move, removed, mover"), "removed, removed, mover");
        assert_eq!(named.told_by("pollux move report"), None);
        let mut local = Secrets::default();
        local.host("localhost");
        assert_eq!(local, Secrets::default());
    }
}
