//! Frames that do not fit one mbuf.

use pollux_mempool::{Burst, Mbuf, MbufPool};
use pollux_port::RxDrop;

/// Copies a frame given in pieces into an empty mbuf, and what does not fit into further ones behind it.
pub(crate) fn fill<'a>(
    pool: &MbufPool,
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
