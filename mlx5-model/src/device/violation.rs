//! What a driver did against the rules of doorbells and their records: silicon would fail in its own way, or at random.

use std::fmt;

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A doorbell of a queue that is not there, or not on this page.
    Unknown {
        /// The UAR page.
        uar: u32,
        /// What was stored.
        rung: [u8; 8],
    },
    /// A doorbell of a queue in the RESET state.
    NotReady {
        /// The queue.
        queue: u32,
    },
    /// The doorbell is not the head of the last entry posted: it was rung before the entry was written, or with another's.
    Head {
        /// The queue.
        queue: u32,
        /// What was stored.
        rung: [u8; 8],
        /// What stands in the ring.
        posted: [u8; 8],
    },
    /// The doorbell record does not say what the doorbell does: it was written late, or not at all.
    RecordValue {
        /// The queue.
        queue: u32,
        /// What it says.
        record: u16,
        /// The block behind the last entry.
        expected: u16,
    },
    /// The doorbell record or the ring cannot be read.
    Record {
        /// The queue.
        queue: u32,
    },
    /// More is posted than the ring has room for.
    TooMuch {
        /// The queue.
        queue: u32,
        /// Blocks, or receive entries.
        posted: u16,
    },
    /// The doorbell record does not say zero when the queue leaves RESET: the device takes it for entries that are posted.
    RecordAtReady {
        /// The queue.
        queue: u32,
        /// What it says.
        record: u16,
    },
    /// A queue was made with a doorbell record that is another queue's, which is there still.
    SharedRecord {
        /// The queue.
        queue: u32,
        /// The other.
        other: u32,
    },
    /// A BlueFlame buffer that is used again while what was copied there, or is copied now, may still be on its way: the other
    /// one is next.
    Buffer {
        /// The queue.
        queue: u32,
        /// Where in the UAR page the buffer is.
        offset: usize,
    },
    /// A store that tells the device of others before it, with no barrier that keeps them before it.
    Fence {
        /// The queue.
        queue: u32,
        /// What was stored.
        before: Before,
    },
    /// An entry was written after the record that tells of it.
    Late {
        /// The queue.
        queue: u32,
    },
    /// A doorbell was left in a buffer of the processor, where it may stay: its thread posted more, or turned to something else.
    Unflushed {
        /// The queue.
        queue: u32,
    },
    /// An entry was copied to a page that is not mapped write-combining: it arrives in pieces.
    NotCombining {
        /// The queue.
        queue: u32,
    },
    /// Bits of a send entry are set that mean nothing: cards may give them a meaning, or refuse the entry.
    Reserved {
        /// The queue.
        queue: u32,
        /// Where: the first byte of the entry that has such.
        byte: usize,
    },
    /// The same in the segment that leads a receive entry to the next one.
    ReservedInReceive {
        /// The receive queue, queue pair or pool.
        queue: u32,
        /// Where: the first byte of the entry that has such.
        byte: usize,
    },
    /// A bit of a command is set that belongs to no field, of its own or of a context in it.
    ReservedInCommand {
        /// The command's opcode.
        opcode: u16,
        /// Which, counted from the most significant bit of its first byte.
        bit: u32,
    },
    /// An entry behind one that changes a memory key, with no fence that has it wait for the change: the card may begin it before.
    /// Source: rdma-core `providers/mlx5/qp.c`, where `fm_cache` is set; Linux `drivers/infiniband/hw/mlx5/wr.c`, `next_fence`.
    Unfenced {
        /// The queue pair.
        queue: u32,
    },
    /// An arm word that differs from the one in the doorbell record, or of a queue that is not there.
    Arm {
        /// The completion queue.
        queue: u32,
    },
}

/// What tells a device of stores before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// A doorbell record, of entries posted or completions taken.
    Record,
    /// A doorbell, of a record.
    Doorbell,
    /// The arm register, of a record.
    Arm,
}

impl fmt::Display for Before {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Record => "doorbell record",
            Self::Doorbell => "doorbell",
            Self::Arm => "arm register",
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { uar, rung } => {
                write!(out, "doorbell {rung:02x?} on page {uar:#x} names no queue of that page")
            }
            Self::NotReady { queue } => write!(out, "doorbell of queue {queue:#x}, which is in RESET"),
            Self::Head { queue, rung, posted } => {
                write!(out, "doorbell {rung:02x?} of queue {queue:#x}, but the ring has {posted:02x?} there")
            }
            Self::RecordValue { queue, record, expected } => write!(
                out,
                "doorbell record of queue {queue:#x} says {record:#x} where the doorbell's entry ends at {expected:#x}"
            ),
            Self::Record { queue } => {
                write!(out, "queue {queue:#x}: its doorbell record or ring is not pinned")
            }
            Self::TooMuch { queue, posted } => {
                write!(out, "queue {queue:#x}: {posted} posted, which is more than its ring has")
            }
            Self::RecordAtReady { queue, record } => write!(
                out,
                "doorbell record of queue {queue:#x} says {record:#x} as the queue leaves RESET, where it must say 0"
            ),
            Self::SharedRecord { queue, other } => {
                write!(
                    out,
                    "queue {queue:#x} has the doorbell record of queue {other:#x}, which is there still"
                )
            }
            Self::Buffer { queue, offset } => write!(
                out,
                "queue {queue:#x}: BlueFlame buffer {offset:#x} is used twice in a row, where the two of a register take turns"
            ),
            Self::Fence { queue, before } => {
                write!(out, "queue {queue:#x}: no barrier before the store to its {before}")
            }
            Self::Late { queue } => {
                write!(out, "queue {queue:#x}: an entry was written after the record that tells of it")
            }
            Self::Unflushed { queue } => {
                write!(out, "queue {queue:#x}: its last doorbell was not flushed from write-combining memory")
            }
            Self::NotCombining { queue } => {
                write!(out, "queue {queue:#x}: an entry was copied to a page that is not write-combining")
            }
            Self::Reserved { queue, byte } => {
                write!(out, "queue {queue:#x}: byte {byte} of a send entry has bits set that mean nothing")
            }
            Self::ReservedInReceive { queue, byte } => {
                write!(out, "queue {queue:#x}: byte {byte} of a receive entry has bits set that mean nothing")
            }
            Self::ReservedInCommand { opcode, bit } => {
                let name = pollux_mlx5_abi::command::opcode::name(*opcode).unwrap_or("command");
                write!(out, "{name} ({opcode:#x}): byte {:#x} has bits set that belong to no field", bit / 8)
            }
            Self::Unfenced { queue } => {
                write!(out, "queue {queue:#x}: an entry behind a change to a memory key has no fence")
            }
            Self::Arm { queue } => {
                write!(out, "completion queue {queue:#x}: the arm register differs from its record")
            }
        }
    }
}

/// Most violations that are kept, and that are written to the log.
const KEPT_MAX: usize = 256;

/// The violations seen, the first ones in full.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    pub(crate) first: Vec<Violation>,
    pub(crate) count: u64,
    /// The device's name in the log, of one whose drivers are not in this process to ask.
    teller: Option<String>,
}

impl Violations {
    /// Writes each to the log, a line each, as far as they are kept.
    pub(crate) fn tell_as(&mut self, name: &str) {
        self.teller = Some(name.to_owned());
    }

    pub(crate) fn note(&mut self, violation: Violation) {
        self.count += 1;
        if let Some(name) = &self.teller
            && self.first.len() < KEPT_MAX
        {
            tracing::warn!(target: "model.rule", "{name}: {violation}");
        }
        if self.first.len() < KEPT_MAX {
            self.first.push(violation);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panicked").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Log {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn violations_of_guests_are_told_a_line_each_up_to_a_bound() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let mut quiet = Violations::default();
            quiet.note(Violation::Late { queue: 1 });
            let mut telling = Violations::default();
            telling.tell_as("card");
            (0..KEPT_MAX + 9).for_each(|_| telling.note(Violation::Arm { queue: 7 }));
            assert_eq!((telling.count, telling.first.len()), (KEPT_MAX as u64 + 9, KEPT_MAX));
        });
        let text = log.0.lock().expect("nobody panicked").clone();
        let text = String::from_utf8(text).expect("text");
        let line = "WARN model.rule: card: completion queue 0x7: the arm register differs from its record";
        assert_eq!(text.lines().filter(|said| said.ends_with(line)).count(), KEPT_MAX, "{text}");
        assert_eq!(text.lines().count(), KEPT_MAX);
    }
}
