//! Frames that do not fit one mbuf.

use pollux_frame_io::vnet::{Segmentation, VnetHeader};
use pollux_mempool::{Burst, Mbuf, MbufPool};
use pollux_port::RxDrop;
use pollux_port::driver::RxSetup;

/// What an rx queue was told about packets that do not fit one buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Long {
    pub(crate) scatter: bool,
    max_lro_bytes: usize,
}

impl Long {
    pub(crate) fn of(setup: &RxSetup) -> Self {
        Self { scatter: setup.scatter, max_lro_bytes: setup.max_lro_bytes as usize }
    }

    /// Refuses a packet that the kernel has joined of several when it is longer than wanted.
    #[inline]
    pub(crate) fn check(self, header: &VnetHeader, bytes: usize) -> Result<(), RxDrop> {
        let joined = header.segmentation != Segmentation::None;
        if joined && bytes > self.max_lro_bytes { Err(RxDrop::TooLong) } else { Ok(()) }
    }
}

/// Copies a frame given in pieces into an empty mbuf, and what does not fit into further ones behind it; without
/// `scatter` there are none, and the frame is too long.
pub(crate) fn fill<'a>(
    pool: &MbufPool,
    scatter: bool,
    mbuf: &mut Mbuf,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<(), RxDrop> {
    let mut burst = Burst::new();
    for mut piece in pieces {
        loop {
            let last = burst.last_mut().unwrap_or(mbuf);
            let (here, rest) = piece.split_at(piece.len().min(last.tailroom_own()));
            if !last.append_slice(here) {
                return Err(RxDrop::TooLong);
            }
            piece = rest;
            if piece.is_empty() {
                break;
            }
            if !scatter {
                return Err(RxDrop::TooLong);
            }
            let next = pool.alloc().ok_or(RxDrop::NoMbuf)?;
            if next.tailroom_own() == 0 || burst.is_full() {
                return Err(RxDrop::TooLong);
            }
            burst.push(next);
        }
    }
    match join(burst) {
        Some(tail) => mbuf.chain(tail).map_err(|_| RxDrop::TooLong),
        None => Ok(()),
    }
}

/// Makes one packet of several segments. From the back: hanging something onto one segment is one step.
pub(crate) fn join(mut segments: Burst) -> Option<Mbuf> {
    let mut packet = segments.pop()?;
    while let Some(mut before) = segments.pop() {
        before.chain(packet).ok()?;
        packet = before;
    }
    Some(packet)
}
