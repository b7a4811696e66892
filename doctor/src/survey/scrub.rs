//! What a report does not tell: addresses of the card, the network and the machine's memory, and the machine's name.
//!
//! What is known to be such (the card's MAC address, GUIDs and GIDs, the addresses of the machine's other interfaces, its name) is
//! zeroed wherever its bytes stand. So is every word that can be an address of this process in what is asked of the kernel, and in
//! answers what was asked as such, and every word that can be an address of the kernel's.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;

use pollux_bringup::{BringupError, Mlx5Card};
use pollux_explain::line::digits;
use pollux_uverbs::trace::hex;
use pollux_verbs::Options;

/// Addresses of programs on x86-64: code and heap begin at 0x55.., maps at 0x7f... and below. Where the stack has no limit they begin
/// at a third of all addresses and go upwards, in newer kernels at a sixth, less what is random of it, and go downwards: 0x14....
/// Source: Linux `Documentation/arch/x86/x86_64/mm.rst`; `arch/x86/include/asm/elf.h`, `ELF_ET_DYN_BASE`; `arch/x86/mm/mmap.c`,
/// `mmap_base` and `mmap_legacy_base`.
const OF_PROCESS: Range<u64> = 0x1200_0000_0000..0x8000_0000_0000;
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

    /// A trace without them. `own`: what else this process [has mapped](own_memory), wherever that may be.
    #[must_use]
    pub(crate) fn of_trace(&self, trace: &str, own: &[Range<u64>]) -> String {
        let mut out = String::with_capacity(trace.len());
        let mut asked_for = BTreeSet::new();
        for line in trace.lines() {
            // The end of a channel is no call.
            let Some((asked, answered)) = line.split_once(" -> ") else {
                out.push_str(line);
                out.push('\n');
                continue;
            };
            words_of(asked, &mut out, |bytes| {
                self.zero(bytes);
                let is_own = |word| can_be_own(word) || own.iter().any(|map| map.contains(&word));
                zero_words(bytes, |_, word| {
                    is_own(word) && (asked_for.contains(&word) || asked_for.insert(word))
                });
            });
            out.push_str(" -> ");
            words_of(answered, &mut out, |bytes| {
                self.zero(bytes);
                zero_words(bytes, |at, word| {
                    // Of an answer, whose words stand at multiples of their size.
                    asked_for.contains(&word) || at.is_multiple_of(8) && OF_KERNEL.contains(&word)
                });
            });
            out.push('\n');
        }
        out
    }

    fn zero(&self, bytes: &mut [u8]) {
        for secret in &self.bytes {
            let mut at = 0;
            while let Some(window) = bytes.get_mut(at..at + secret.len()) {
                if window == &secret[..] {
                    window.fill(0);
                }
                at += 1;
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
        without_addresses(&out)
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

/// Where this process has memory: it is elsewhere than usual where its personality says so, or its program is not relocatable.
pub(crate) fn own_memory() -> Vec<Range<u64>> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let map = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        Some(u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?)
    };
    // The page that the kernel shows every process is at the same place in all of them.
    maps.lines().filter_map(map).filter(|map| map.end <= OF_PROCESS.end).collect()
}

/// Whether a word can be an address of a process. A single bit is one of a mask.
fn can_be_own(word: u64) -> bool {
    OF_PROCESS.contains(&word) && !word.is_power_of_two()
}

/// The words of one half of a line, with their bytes as `change` leaves them.
fn words_of(part: &str, out: &mut String, mut change: impl FnMut(&mut [u8])) {
    for (number, word) in part.split(' ').enumerate() {
        if number > 0 {
            out.push(' ');
        }
        let at = word.rfind([':', '=']).map_or(0, |at| at + 1);
        let (head, written) = word.split_at(at);
        out.push_str(head);
        match digits(written).filter(|_| at > 0) {
            Some(mut bytes) => {
                change(&mut bytes);
                out.push_str(&hex(&bytes));
            }
            None => out.push_str(written),
        }
    }
}

/// Zeroes each word that is refused as a number of the host, the lowest byte first, or as one of the firmware.
fn zero_words(bytes: &mut [u8], mut is_refused: impl FnMut(usize, u64) -> bool) {
    for at in (0..bytes.len().saturating_sub(7)).step_by(4) {
        let Some(word) = bytes[at..].first_chunk_mut::<8>() else { continue };
        if is_refused(at, u64::from_le_bytes(*word)) || is_refused(at, u64::from_be_bytes(*word)) {
            word.fill(0);
        }
    }
}

/// A text without numbers that can be addresses of this process or of the kernel.
fn without_addresses(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("0x") {
        let behind = &rest[at + 2..];
        let end = behind.find(|one: char| !one.is_ascii_hexdigit()).unwrap_or(behind.len());
        let value = u64::from_str_radix(&behind[..end], 16);
        let is_address = value.is_ok_and(|value| can_be_own(value) || OF_KERNEL.contains(&value));
        out.push_str(&rest[..at]);
        out.push_str(if is_address { REMOVED } else { &rest[at..at + 2 + end] });
        rest = &behind[end..];
    }
    out.push_str(rest);
    out
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
        let said = secrets().of_trace(trace, &[]);
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
        let said = secrets().of_trace(trace, &[]);
        assert_eq!(said, "call 0x0001/0x0002 0x0001=out:16 -> ok 0x0001=000000000000000000f0ffffffffffff\n");
        // What an answer counts is no address of a process.
        let counts = "call 0x0001/0x0002 0x0001=out:8 -> ok 0x0001=00400000ff7f0000\n";
        assert_eq!(secrets().of_trace(counts, &[]), counts);
    }

    #[test]
    fn addresses_of_this_process_do_not_stay_wherever_it_has_them() {
        let asked = |word: u64| {
            let bytes = hex(&word.to_le_bytes());
            format!("call 0x0007/0x0005 0x0003=in:{bytes} -> ok 0x000a=01000000{bytes}\n")
        };
        let gone = "call 0x0007/0x0005 0x0003=in:0000000000000000 -> ok 0x000a=010000000000000000000000\n";
        // Maps, code, and maps where the stack has no limit; what comes back of it too.
        for address in
            [0x7f12_3456_7000, 0x5555_5555_4000, 0x2aaa_aaaa_b000, 0x2b12_3456_7000, 0x149d_e04f_1000]
        {
            assert_eq!(secrets().of_trace(&asked(address), &[]), gone, "{address:#x}");
        }
        // Elsewhere by what the kernel says; what is no address stays.
        let low = asked(0x1_4000_1000);
        let elsewhere = 0x1_4000_0000..0x1_4000_2000;
        assert_eq!(secrets().of_trace(&low, std::slice::from_ref(&elsewhere)), gone);
        assert_eq!(secrets().of_trace(&low, &[]), low);
        for mask in [1 << 44, 1 << 45, 1 << 46] {
            assert_eq!(secrets().of_trace(&asked(mask), &[]), asked(mask));
        }
        let here = u64::try_from((&raw const gone).addr()).expect("64 bits");
        assert!(own_memory().iter().any(|map| map.contains(&here)), "{here:#x}");
        // What is no call stays as it is.
        assert_eq!(secrets().of_trace("close @12.0\n", &[]), "close @12.0\n");
    }

    #[test]
    fn texts_lose_addresses() {
        let said =
            secrets().of_text("cannot map 0x2aaab0001000 at 0x500000, 0x7F0012345678: 0xffff888000001000 0x");
        assert_eq!(said, "cannot map removed at 0x500000, removed: removed 0x");
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
