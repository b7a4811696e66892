//! What a program tells of the drivers in it to who looks into its file: name, keys, kernel modules, PCI functions.
//!
//! DPDK's `usertools/dpdk-pmdinfo.py` and the program `pmdinfo` look for strings in the section `.rodata` that begin with
//! [`DriverInfo::PREFIX`], after a byte that is no printable character, and end with a zero; what follows the prefix is JSON. The
//! compiler makes them of a driver's own tables. Source: DPDK `usertools/dpdk-pmdinfo.py`, `buildtools/pmdinfogen.py`.
//!
//! ```
//! use pollux_config::Param;
//! use pollux_port::driver::DriverInfo;
//!
//! const UDP: DriverInfo = DriverInfo {
//!     name: "net_udp",
//!     params: &[Param::text("peer"), Param::number("size")],
//!     kmod: "",
//!     pci_ids: &[],
//! };
//! static TEXT: [u8; UDP.text_bytes()] = UDP.text();
//!
//! DriverInfo::carry(&TEXT); // where the driver is opened
//! let json = r#"{"name": "net_udp", "params": "peer=<string> size=<int>", "pci_ids": []}"#;
//! assert_eq!(TEXT, *format!("\0PMD_INFO_STRING= {json}\0").as_bytes());
//! ```

use std::hint::black_box;

use pollux_config::Param;

/// Any vendor or device. Source: DPDK `drivers/bus/pci/rte_bus_pci.h`, `RTE_PCI_ANY_ID`.
pub const PCI_ANY: u16 = 0xffff;

/// A driver, as its program's file tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// Its name: `net_null`.
    pub name: &'static str,
    /// The keys of its device arguments.
    pub params: &'static [Param],
    /// The kernel modules that it needs, as DPDK writes them (`RTE_PMD_REGISTER_KMOD_DEP`); empty: none.
    pub kmod: &'static str,
    /// Its PCI functions: vendor, device, subsystem's vendor, subsystem's device; [`PCI_ANY`] for any.
    pub pci_ids: &'static [[u16; 4]],
}

/// The text as far as it is written, or its length alone.
struct Text<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Text<N> {
    const fn byte(&mut self, byte: u8) {
        if self.at < N {
            self.bytes[self.at] = byte;
        }
        self.at += 1;
    }

    const fn add(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            self.byte(bytes[at]);
            at += 1;
        }
    }

    /// A driver's own word, inside quotes.
    const fn word(&mut self, word: &str) {
        let bytes = word.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let plain = matches!(bytes[at], b' '..=b'~') && bytes[at] != b'"' && bytes[at] != b'\\';
            assert!(plain, "printable ASCII without quotes and backslashes");
            at += 1;
        }
        self.add(word);
    }

    const fn number(&mut self, number: u16) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.byte(b'0' + (number % 10) as u8);
    }
}

impl DriverInfo {
    /// What a text begins with.
    pub const PREFIX: &str = "PMD_INFO_STRING= ";

    /// Bytes of [`DriverInfo::text`].
    #[must_use]
    pub const fn text_bytes(&self) -> usize {
        self.written::<0>().at
    }

    /// The text, to be the value of a `static`. It begins with a zero, too: the compiler may put anything before it.
    ///
    /// # Panics
    /// When `N` is not [`DriverInfo::text_bytes`], or a word needs escapes: in a `static`, both are errors of the compiler.
    #[must_use]
    pub const fn text<const N: usize>(&self) -> [u8; N] {
        let text = self.written::<N>();
        assert!(text.at == N, "as long as text_bytes says");
        text.bytes
    }

    const fn written<const N: usize>(&self) -> Text<N> {
        let mut text = Text { bytes: [0; N], at: 0 };
        text.byte(0);
        text.add(Self::PREFIX);
        text.add("{\"name\": \"");
        text.word(self.name);
        let mut at = 0;
        while at < self.params.len() {
            text.add(if at == 0 { "\", \"params\": \"" } else { " " });
            text.word(self.params[at].key);
            text.byte(b'=');
            text.word(self.params[at].form);
            at += 1;
        }
        if !self.kmod.is_empty() {
            text.add("\", \"kmod\": \"");
            text.word(self.kmod);
        }
        text.add("\", \"pci_ids\": [");
        at = 0;
        while at < self.pci_ids.len() {
            text.add(if at == 0 { "[" } else { ", [" });
            let mut part = 0;
            while part < 4 {
                if part > 0 {
                    text.add(", ");
                }
                text.number(self.pci_ids[at][part]);
                part += 1;
            }
            text.byte(b']');
            at += 1;
        }
        text.add("]}");
        text.byte(0);
        text
    }

    /// Keeps a text in the program: the linker leaves out what no code refers to (`--gc-sections`), `#[used]` or not. For where a driver is
    /// opened or listed; it does nothing there.
    #[inline]
    pub fn carry(text: &'static [u8]) {
        black_box(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: DriverInfo = DriverInfo {
        name: "mlx5_eth",
        params: &[Param::flag("mprq_en")],
        kmod: "* ib_uverbs & mlx5_core",
        pci_ids: &[[0x15b3, 0x1013, PCI_ANY, PCI_ANY], [0x15b3, 0, 9, 10]],
    };
    static TEXT: [u8; CARD.text_bytes()] = CARD.text();

    #[test]
    fn all_parts_are_written() {
        let json = r#"{"name": "mlx5_eth", "params": "mprq_en=<0|1>", "kmod": "* ib_uverbs & mlx5_core", "pci_ids": [[5555, 4115, 65535, 65535], [5555, 0, 9, 10]]}"#;
        assert_eq!(TEXT, *format!("\0PMD_INFO_STRING= {json}\0").as_bytes());
    }

    #[test]
    fn a_driver_may_have_its_name_alone() {
        const RING: DriverInfo = DriverInfo { name: "net_ring", params: &[], kmod: "", pci_ids: &[] };
        let text: [u8; RING.text_bytes()] = RING.text();
        assert_eq!(text, *b"\0PMD_INFO_STRING= {\"name\": \"net_ring\", \"pci_ids\": []}\0");
    }

    #[test]
    #[should_panic(expected = "printable ASCII")]
    fn a_word_that_needs_escapes_is_refused() {
        let _ = DriverInfo { name: "net_\"", params: &[], kmod: "", pci_ids: &[] }.text_bytes();
    }
}
