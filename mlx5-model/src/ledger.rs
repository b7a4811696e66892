//! What would cross PCIe, counted.
//!
//! A model's speed says nothing about a NIC. What a driver makes the bus carry for each packet does: it is the same on
//! hardware, and a bound on the packet rate there.
//!
//! # What is counted
//! | crossing | who | what |
//! |---|---|---|
//! | [`Doorbell`](Crossing::Doorbell) | processor writes | the 8 bytes of a send doorbell |
//! | [`BlueFlame`](Crossing::BlueFlame) | processor writes | 64 bytes of a work entry, copied with the doorbell |
//! | [`Arm`](Crossing::Arm) | processor writes | a completion or event queue armed |
//! | [`DoorbellRecord`](Crossing::DoorbellRecord) | device reads | the 4 bytes of a doorbell record |
//! | [`SendEntry`](Crossing::SendEntry), [`ReceiveEntry`](Crossing::ReceiveEntry) | device reads | work entries, in whole blocks of 64 bytes, as cards fetch them |
//! | [`SendPayload`](Crossing::SendPayload) | device reads | packet bytes that are not inline |
//! | [`ReceivePayload`](Crossing::ReceivePayload) | device writes | packet bytes |
//! | [`Completion`](Crossing::Completion) | device writes | completion entries, 64 or 128 bytes |
//! | [`Event`](Crossing::Event), [`Interrupt`](Crossing::Interrupt) | device writes | event entries; the 4 bytes of an MSI-X message |
//!
//! # In packets of the bus
//! A transfer is cut up as if it began on a boundary, which is the least that it can take:
//!
//! * a write of n bytes is ceil(n / 256) packets, [`MAX_PAYLOAD`] = 256, each with 24 bytes of overhead;
//! * a read of n bytes is ceil(n / 512) requests of 24 bytes towards memory, [`MAX_READ_REQUEST`] = 512, and ceil(n / 256)
//!   answers with 20 bytes of overhead each towards the device.
//!
//! The overhead of a packet is 2 bytes of framing, 6 of the data link layer (sequence number and CRC), and a header of 16
//! bytes for writes and read requests with 64-bit addresses, 12 for answers. Source: Neugebauer et al., "Understanding PCIe
//! performance for end host networking", SIGCOMM 2018, section 3. Flow control and acknowledgements are left out.
//!
//! Address translation (memory keys) is taken to be in the device's cache.

use std::fmt;
use std::ops::Sub;

use pollux_eal::counter::Counter;

/// Most bytes in one packet on the bus that carries data.
pub const MAX_PAYLOAD: u64 = 256;
/// Most bytes that one read request asks for.
pub const MAX_READ_REQUEST: u64 = 512;
/// Bytes that work entries are read in: a send entry's basic block. Source: Linux `include/linux/mlx5/device.h`, `MLX5_SEND_WQE_BB`.
pub const ENTRY_READ: u64 = 64;
/// Framing, data link layer and header of a write or a read request, with 64-bit address.
pub const REQUEST_OVERHEAD: u64 = 24;
/// The same of an answer to a read.
pub const ANSWER_OVERHEAD: u64 = 20;

/// A kind of transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Crossing {
    /// The processor rings a send doorbell.
    Doorbell,
    /// The processor copies the beginning of a work entry with the doorbell.
    BlueFlame,
    /// The processor arms a completion or event queue.
    Arm,
    /// The device reads a doorbell record.
    DoorbellRecord,
    /// The device reads send work entries.
    SendEntry,
    /// The device reads receive work entries.
    ReceiveEntry,
    /// The device reads bytes of packets to send.
    SendPayload,
    /// The device writes bytes of received packets.
    ReceivePayload,
    /// The device writes a completion entry.
    Completion,
    /// The device writes an event entry.
    Event,
    /// The device raises an interrupt.
    Interrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The processor writes to the device.
    Store,
    /// The device reads memory.
    Read,
    /// The device writes memory.
    Write,
}

const KINDS: usize = 11;

impl Crossing {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; KINDS] = [
        Self::Doorbell,
        Self::BlueFlame,
        Self::Arm,
        Self::DoorbellRecord,
        Self::SendEntry,
        Self::ReceiveEntry,
        Self::SendPayload,
        Self::ReceivePayload,
        Self::Completion,
        Self::Event,
        Self::Interrupt,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Doorbell => "doorbell",
            Self::BlueFlame => "blueflame",
            Self::Arm => "arm",
            Self::DoorbellRecord => "doorbell_record",
            Self::SendEntry => "send_entry",
            Self::ReceiveEntry => "receive_entry",
            Self::SendPayload => "send_payload",
            Self::ReceivePayload => "receive_payload",
            Self::Completion => "completion",
            Self::Event => "event",
            Self::Interrupt => "interrupt",
        }
    }

    const fn way(self) -> Way {
        match self {
            Self::Doorbell | Self::BlueFlame | Self::Arm => Way::Store,
            Self::DoorbellRecord | Self::SendEntry | Self::ReceiveEntry | Self::SendPayload => Way::Read,
            Self::ReceivePayload | Self::Completion | Self::Event | Self::Interrupt => Way::Write,
        }
    }
}

#[derive(Debug, Default)]
struct Entry {
    transfers: Counter,
    bytes: Counter,
    /// Packets that carry data: of a write, or the answers of a read.
    carriers: Counter,
    /// Read requests.
    requests: Counter,
}

/// The counters of one device. It alone adds, from one thread at a time (under its own lock, or from its thread); anybody
/// may take a [`total`](Self::total), which another thread sees a little late.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: [Entry; KINDS],
    sent: Counter,
    received: Counter,
}

impl Ledger {
    /// Counts one transfer of `bytes` bytes that lie together.
    #[inline]
    pub fn add(&self, crossing: Crossing, bytes: usize) {
        let bytes = bytes as u64;
        if bytes == 0 {
            return;
        }
        let entry = &self.entries[crossing as usize];
        entry.transfers.add(1);
        entry.bytes.add(bytes);
        entry.carriers.add(bytes.div_ceil(MAX_PAYLOAD));
        if crossing.way() == Way::Read {
            entry.requests.add(bytes.div_ceil(MAX_READ_REQUEST));
        }
    }

    /// Counts the reading of work entries that lie together from `at` on: all blocks of [`ENTRY_READ`] bytes that they touch.
    #[inline]
    pub fn add_entries(&self, crossing: Crossing, at: u64, bytes: usize) {
        if bytes != 0 {
            let end = (at + bytes as u64).next_multiple_of(ENTRY_READ);
            self.add(crossing, (end - at / ENTRY_READ * ENTRY_READ) as usize);
        }
    }

    /// Counts packets that the device has put on its wire (after it cut up large ones).
    #[inline]
    pub fn add_sent(&self, packets: u64) {
        self.sent.add(packets);
    }

    /// Counts packets that the device has put into memory.
    #[inline]
    pub fn add_received(&self, packets: u64) {
        self.received.add(packets);
    }

    /// All that was counted so far.
    #[must_use]
    pub fn total(&self) -> Total {
        let tallies = Crossing::ALL.map(|crossing| {
            let entry = &self.entries[crossing as usize];
            Tally {
                transfers: entry.transfers.get(),
                bytes: entry.bytes.get(),
                carriers: entry.carriers.get(),
                requests: entry.requests.get(),
            }
        });
        Total { tallies, packets_sent: self.sent.get(), packets_received: self.received.get() }
    }
}

/// What was counted of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Transfers.
    pub transfers: u64,
    /// Bytes of theirs, without overhead.
    pub bytes: u64,
    /// Packets on the bus that carry them.
    pub carriers: u64,
    /// Packets on the bus that ask for them: of reads alone.
    pub requests: u64,
}

impl Tally {
    /// Packets on the bus in all.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.carriers + self.requests
    }

    fn less(&self, earlier: &Self) -> Self {
        Self {
            transfers: self.transfers.wrapping_sub(earlier.transfers),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            carriers: self.carriers.wrapping_sub(earlier.carriers),
            requests: self.requests.wrapping_sub(earlier.requests),
        }
    }
}

/// A reading of a ledger, or the difference of two.
///
/// ```
/// use pollux_mlx5_model::ledger::{Crossing, Ledger};
///
/// let ledger = Ledger::default();
/// let before = ledger.total();
/// ledger.add(Crossing::SendPayload, 1500);
/// ledger.add_sent(1);
/// let spent = ledger.total() - before;
/// assert_eq!(spent.of(Crossing::SendPayload).packets(), 3 + 6);
/// assert_eq!((spent.bytes_from_device(), spent.bytes_to_device()), (3 * 24, 1500 + 6 * 20));
/// println!("{spent}");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    tallies: [Tally; KINDS],
    /// Packets put on the wire.
    pub packets_sent: u64,
    /// Packets put into memory.
    pub packets_received: u64,
}

impl Total {
    /// What was counted of one kind.
    #[must_use]
    pub fn of(&self, crossing: Crossing) -> Tally {
        self.tallies[crossing as usize]
    }

    /// Bytes on the bus towards the device, overhead included: stores, and answers to the device's reads.
    #[must_use]
    pub fn bytes_to_device(&self) -> u64 {
        self.sum(|way, tally| match way {
            Way::Store => tally.bytes + tally.carriers * REQUEST_OVERHEAD,
            Way::Read => tally.bytes + tally.carriers * ANSWER_OVERHEAD,
            Way::Write => 0,
        })
    }

    /// Bytes on the bus towards memory, overhead included: the device's writes, and its requests to read.
    #[must_use]
    pub fn bytes_from_device(&self) -> u64 {
        self.sum(|way, tally| match way {
            Way::Store => 0,
            Way::Read => tally.requests * REQUEST_OVERHEAD,
            Way::Write => tally.bytes + tally.carriers * REQUEST_OVERHEAD,
        })
    }

    /// Packets on the bus, both ways.
    #[must_use]
    pub fn bus_packets(&self) -> u64 {
        self.sum(|_, tally| tally.packets())
    }

    /// Network packets, both ways.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets_sent + self.packets_received
    }

    fn sum(&self, value: impl Fn(Way, &Tally) -> u64) -> u64 {
        Crossing::ALL.iter().map(|&crossing| value(crossing.way(), &self.of(crossing))).sum()
    }

    /// A figure for each network packet; 0 when there were none.
    #[must_use]
    pub fn per_packet(&self, figure: u64) -> f64 {
        if self.packets() == 0 { 0.0 } else { figure as f64 / self.packets() as f64 }
    }
}

impl Sub for Total {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        let mut tallies = self.tallies;
        for (now, then) in tallies.iter_mut().zip(&earlier.tallies) {
            *now = now.less(then);
        }
        Self {
            tallies,
            packets_sent: self.packets_sent.wrapping_sub(earlier.packets_sent),
            packets_received: self.packets_received.wrapping_sub(earlier.packets_received),
        }
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "PCIe of {} packets sent and {} received (max payload {MAX_PAYLOAD}, max read {MAX_READ_REQUEST}), per packet:",
            self.packets_sent, self.packets_received
        )?;
        writeln!(f, "  {:<16} {:>10} {:>10} {:>10}", "", "transfers", "bytes", "TLPs")?;
        for crossing in Crossing::ALL {
            let tally = self.of(crossing);
            if tally.transfers > 0 {
                writeln!(
                    f,
                    "  {:<16} {:>10.3} {:>10.2} {:>10.3}",
                    crossing.name(),
                    self.per_packet(tally.transfers),
                    self.per_packet(tally.bytes),
                    self.per_packet(tally.packets())
                )?;
            }
        }
        write!(
            f,
            "  with overhead: {:.2} bytes to the device, {:.2} from it",
            self.per_packet(self.bytes_to_device()),
            self.per_packet(self.bytes_from_device())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_cut_as_the_bus_cuts_them() {
        let ledger = Ledger::default();
        ledger.add(Crossing::Doorbell, 8);
        ledger.add(Crossing::SendEntry, 64);
        ledger.add(Crossing::SendPayload, 513);
        ledger.add(Crossing::ReceivePayload, 257);
        ledger.add(Crossing::Completion, 64);
        ledger.add(Crossing::SendPayload, 0);
        let total = ledger.total();
        assert_eq!(
            total.of(Crossing::SendPayload),
            Tally { transfers: 1, bytes: 513, carriers: 3, requests: 2 }
        );
        assert_eq!(
            total.of(Crossing::ReceivePayload),
            Tally { transfers: 1, bytes: 257, carriers: 2, requests: 0 }
        );
        assert_eq!(total.bus_packets(), 1 + 2 + 5 + 2 + 1);
        assert_eq!(total.bytes_to_device(), (8 + 24) + (64 + 20) + (513 + 3 * 20));
        assert_eq!(total.bytes_from_device(), 24 + 2 * 24 + (257 + 2 * 24) + (64 + 24));
    }

    #[test]
    fn a_difference_is_what_happened_between() {
        let ledger = Ledger::default();
        ledger.add(Crossing::Completion, 64);
        ledger.add_sent(1);
        let before = ledger.total();
        ledger.add(Crossing::Completion, 128);
        ledger.add_received(4);
        let between = ledger.total() - before;
        assert_eq!(between.of(Crossing::Completion).bytes, 128);
        assert_eq!((between.packets_sent, between.packets_received), (0, 4));
        assert!((between.per_packet(128) - 32.0).abs() < f64::EPSILON);
        let text = between.to_string();
        assert!(
            text.contains("completion") && text.contains("32.00") && !text.contains("doorbell"),
            "{text}"
        );
    }
}
