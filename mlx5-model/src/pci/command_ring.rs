//! The command queue in the host's memory: entries, mailboxes, delivery.

use pollux_mlx5_abi::command::queue::{ENTRIES_MAX, Entry, Mailbox, OWNER, PCI, delivery};
use zerocopy::{FromZeros, IntoBytes};

use crate::memory::{Host, Unreachable};

/// Logarithm of how many entries it has, and of an entry's bytes.
pub(super) const LOG_ENTRIES: u32 = 5;
pub(super) const LOG_STRIDE: u32 = 6;
const _: () = assert!(1 << LOG_ENTRIES <= ENTRIES_MAX && 1 << LOG_STRIDE == size_of::<Entry>());

/// Most bytes of a command or an answer: what the longest list of pages in Linux's driver needs, with room to spare.
const BYTES_MAX: usize = 1 << 20;
/// Mailboxes stand at multiples of this.
const MAILBOX_ALIGN: u64 = 1024;
/// Where in an entry the answer, and the byte with owner and delivery, stand.
const OUTPUT: u64 = 32;
const STATUS_OWN: u64 = 63;

/// A command that was fetched.
#[derive(Debug)]
pub(super) struct Fetched {
    entry: Entry,
    at: u64,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
}

/// Why nothing could be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotFetched {
    /// The entry is not the device's, or cannot be reached: nobody is told.
    Nothing,
    /// It did not arrive whole; the entry says so now.
    Undelivered(u8),
}

/// Fetches the command in entry `index` of the queue at `base`.
pub(super) fn fetch(host: &dyn Host, base: u64, index: u32) -> Result<Fetched, NotFetched> {
    let at = base.checked_add(u64::from(index) << LOG_STRIDE).ok_or(NotFetched::Nothing)?;
    let mut entry = Entry::new_zeroed();
    host.read(at, entry.as_mut_bytes()).map_err(|_| NotFetched::Nothing)?;
    if entry.status_own & OWNER == 0 {
        return Err(NotFetched::Nothing);
    }
    let refuse = |why: u8| {
        // Where even this cannot be written there is nobody to tell.
        let _ = host.write(at + STATUS_OWN, &[why << 1]);
        NotFetched::Undelivered(why)
    };
    if entry.transport != PCI {
        return Err(refuse(delivery::CMD_DESCR_ERR));
    }
    let (input_bytes, output_bytes) = (entry.input_bytes.get() as usize, entry.output_bytes.get() as usize);
    if !(16..=BYTES_MAX).contains(&input_bytes) {
        return Err(refuse(delivery::IN_LENGTH_ERR));
    }
    if !(8..=BYTES_MAX).contains(&output_bytes) {
        return Err(refuse(delivery::OUT_LENGTH_ERR));
    }
    let mut input = entry.input.to_vec();
    let rest = input_bytes - 16;
    let mut left = rest;
    each_mailbox(
        host,
        entry.input_mailbox.get(),
        rest,
        entry.token,
        delivery::IN_PTR_ALIGN_ERR,
        |_, mailbox| {
            let bytes = left.min(mailbox.data.len());
            input.extend_from_slice(&mailbox.data[..bytes]);
            left -= bytes;
            Ok(())
        },
    )
    .map_err(refuse)?;
    Ok(Fetched { entry, at, input, output: vec![0; output_bytes] })
}

/// Writes the answer and gives the entry back.
pub(super) fn answer(host: &dyn Host, done: &Fetched) -> Result<(), Unreachable> {
    let head = done.output.len().min(16);
    host.write(done.at + OUTPUT, &done.output[..head])?;
    let mut rest = &done.output[head..];
    let outcome = each_mailbox(
        host,
        done.entry.output_mailbox.get(),
        rest.len(),
        done.entry.token,
        delivery::OUT_PTR_ALIGN_ERR,
        |at, mailbox| {
            let (now, later) = rest.split_at(rest.len().min(mailbox.data.len()));
            rest = later;
            host.write(at, now)
        },
    );
    let status = outcome.err().unwrap_or(delivery::OK);
    // The entry goes back last: who sees that sees the answer.
    host.write(done.at + STATUS_OWN, &[status << 1])
}

/// Goes through the mailboxes that `bytes` need.
fn each_mailbox(
    host: &dyn Host,
    first: u64,
    bytes: usize,
    token: u8,
    misaligned: u8,
    mut act: impl FnMut(u64, &Mailbox) -> Result<(), Unreachable>,
) -> Result<(), u8> {
    let mut at = first;
    for number in 0..bytes.div_ceil(512) {
        if at == 0 || !at.is_multiple_of(MAILBOX_ALIGN) {
            return Err(misaligned);
        }
        let mut mailbox = Mailbox::new_zeroed();
        host.read(at, mailbox.as_mut_bytes()).map_err(|_| misaligned)?;
        if mailbox.token != token {
            return Err(delivery::TOKEN_ERR);
        }
        if mailbox.block_num.get() as usize != number {
            return Err(delivery::BAD_BLK_NUM_ERR);
        }
        act(at, &mailbox).map_err(|_| misaligned)?;
        at = mailbox.next.get();
    }
    Ok(())
}
