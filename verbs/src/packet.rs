//! Packets of several segments: gathered by a send, scattered over by a receive.

use pollux_mempool::Mbuf;

use crate::{Batch, Piece, Receives, Wc};

/// The segments of a packet, a piece each, in order.
#[derive(Debug)]
pub struct Segments(Option<Mbuf>);

impl Iterator for Segments {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let mut first = self.0.take()?;
        self.0 = first.split_rest();
        Some(Piece::Mbuf(first))
    }
}

impl Piece {
    /// The segments of a packet.
    #[must_use]
    pub fn segments(packet: Mbuf) -> Segments {
        Segments(Some(packet))
    }

    /// Hangs packets together to one, in order, without those that have no bytes behind the first. Pieces that are buffers, and
    /// what is too much for a packet, go home.
    pub fn join(pieces: impl IntoIterator<Item = Self>) -> Option<Mbuf> {
        let mut packets = pieces.into_iter().filter_map(Self::into_mbuf);
        let mut packet = packets.next()?;
        for next in packets.filter(|next| next.pkt_len() > 0) {
            // A tail that is not taken goes home as what it is.
            drop(packet.chain(next));
        }
        Some(packet)
    }
}

impl Batch<'_> {
    /// A packet that goes along, however many segments it has: each is one [piece](Self::piece), of which the queue pair was made
    /// for so many.
    ///
    /// A packet that was posted is gone until it comes back:
    ///
    /// ```compile_fail,E0382
    /// # use pollux_mempool::Mbuf;
    /// # use pollux_verbs::Qp;
    /// fn posted_and_read(qp: &mut Qp, packet: Mbuf) -> u32 {
    ///     let mut batch = qp.batch();
    ///     batch.send(1).packet(packet).signalled();
    ///     batch.ring().unwrap();
    ///     packet.pkt_len() // moved into the queue
    /// }
    /// ```
    pub fn packet(&mut self, packet: Mbuf) -> &mut Self {
        Piece::segments(packet).for_each(|segment| {
            self.piece(segment);
        });
        self
    }
}

impl Receives<'_> {
    /// A receive into the segments of a packet, one after the other.
    pub fn packet(&mut self, id: u64, packet: Mbuf) -> &mut Self {
        self.pieces(id, Piece::segments(packet))
    }
}

impl Wc<'_, '_> {
    /// The next packet that comes back: what was received into the segments of one, or one that was sent. Of sends those of the
    /// requests before it as well that made no completion, in order, a packet a request: there are more until there is none.
    /// Segments without bytes behind the first go home, and so do buffers.
    pub fn take_packet(&mut self) -> Option<Mbuf> {
        loop {
            let pieces = self.left_of_request();
            if pieces == 0 {
                return None;
            }
            let packet = Piece::join((0..pieces).filter_map(|_| self.take()));
            if packet.is_some() {
                return packet;
            }
        }
    }
}
