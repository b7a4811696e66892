//! The two ends of a socket: entries in and out of its rings.

use super::ring::{Consumer, Producer};

/// A piece of a received frame, or a whole one. The numbers are the kernel's: nobody has checked them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFrame {
    /// What the chunk was filled with.
    pub chunk: u64,
    /// Where the frame begins, from the chunk's start.
    pub offset: u16,
    /// Its bytes.
    pub bytes: u32,
    /// The frame goes on in the next one.
    pub more: bool,
}

/// The receiving end. Its rings stay mapped as long as it lives, and the socket open with them.
#[derive(Debug)]
pub struct XdpRx {
    pub(super) frames: Consumer<2>,
    pub(super) fill: Producer<1>,
}

/// The sending end; as [`XdpRx`].
#[derive(Debug)]
pub struct XdpTx {
    pub(super) frames: Producer<2>,
    pub(super) completed: Consumer<1>,
}

impl XdpRx {
    /// Whether one more chunk fits the fill ring.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.fill.has_room(1)
    }

    /// Gives the kernel a chunk, by its distance from the memory's start. It sees it with [`publish`](Self::publish).
    ///
    /// # Panics
    /// Without room.
    #[inline]
    pub fn fill(&mut self, chunk: u64) {
        self.fill.push([chunk]);
    }

    /// Shows the kernel the chunks that were given. Cost: one store.
    #[inline]
    pub fn publish(&mut self) {
        self.fill.publish();
    }

    /// Whether the kernel waits for [`XdpSocket::wake_rx`](super::XdpSocket::wake_rx) to take chunks.
    #[inline]
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// The next frame or piece of one. Cost when none is there: one load.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "an end of a ring is no iterator: it goes on after the end"
    )]
    pub fn next(&mut self) -> Option<XdpFrame> {
        let [address, rest] = self.frames.next()?;
        Some(XdpFrame::decode(address, rest))
    }

    /// Gives the places of all frames taken back to the kernel. Cost: one store.
    #[inline]
    pub fn release(&mut self) {
        self.frames.release();
    }

    /// Entries that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.frames.waiting() as usize
    }

    /// Entries of the ring.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.frames.size() as usize
    }
}

/// Where the offset stands in an address of unaligned mode (`XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
const OFFSET_SHIFT: u32 = 48;

impl XdpFrame {
    /// `struct xdp_desc`: address; length and options in one word, the length first.
    fn decode(address: u64, rest: u64) -> Self {
        const { assert!(cfg!(target_endian = "little")) };
        Self {
            chunk: address & ((1 << OFFSET_SHIFT) - 1),
            offset: (address >> OFFSET_SHIFT) as u16,
            bytes: rest as u32,
            more: (rest >> 32) as u32 & libc::XDP_PKT_CONTD != 0,
        }
    }
}

impl XdpTx {
    /// Whether `pieces` more fit the ring.
    #[inline]
    pub fn has_room(&mut self, pieces: usize) -> bool {
        u32::try_from(pieces).is_ok_and(|pieces| self.frames.has_room(pieces))
    }

    /// Writes a piece of a frame, `bytes` bytes `at` so far from the memory's start; `more` follow. The kernel sees it with
    /// [`publish`](Self::publish), which comes after the last piece of a frame.
    ///
    /// # Panics
    /// Without room.
    #[inline]
    pub fn push(&mut self, at: u64, bytes: u32, more: bool) {
        let options = if more { libc::XDP_PKT_CONTD } else { 0 };
        self.frames.push([at, u64::from(options) << 32 | u64::from(bytes)]);
    }

    /// Shows the kernel what was written. Cost: one store.
    #[inline]
    pub fn publish(&mut self) {
        self.frames.publish();
    }

    /// Whether the kernel waits for [`XdpSocket::wake_tx`](super::XdpSocket::wake_tx) to send.
    #[inline]
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        self.frames.needs_wakeup()
    }

    /// A piece that the kernel is done with: where it lies, as the kernel says, which nobody has checked. Cost when there is none: one load.
    #[inline]
    pub fn completed(&mut self) -> Option<u64> {
        let [address] = self.completed.next()?;
        Some((address & ((1 << OFFSET_SHIFT) - 1)).wrapping_add(address >> OFFSET_SHIFT))
    }

    /// Gives the places of all completions taken back to the kernel. Cost: one store.
    #[inline]
    pub fn release(&mut self) {
        self.completed.release();
    }

    /// Pieces that the kernel has not begun with.
    #[inline]
    #[must_use]
    pub fn pending(&self) -> usize {
        self.frames.pending() as usize
    }

    /// Entries of the ring.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.frames.size() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_the_kernel_writes_it() {
        // Documentation/networking/af_xdp.rst: the offset stands in the upper 16 bits of an address.
        let frame = XdpFrame::decode(0x0100_0000_0012_3480, 0x1_0000_05ea);
        assert_eq!(frame, XdpFrame { chunk: 0x12_3480, offset: 0x100, bytes: 1514, more: true });
        assert!(!XdpFrame::decode(0, 60).more);
    }
}
