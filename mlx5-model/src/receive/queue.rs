//! One receive queue: buffers, packets into them, completions.

use pollux_mlx5_abi::cqe::{Cqe64, Strides as Count, lro, packet};
use pollux_mlx5_abi::eqe::{event, queue_kind};
use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::Data;
use pollux_wire::checksum::Sum;
use zerocopy::{FromBytes, FromZeros};

use super::fcs::fcs;
use super::ring::{Entry, Strides, WorkRing};
use super::scatter::{self, Pieces, Problem};
use super::{Around, Arrival, Taken};
use crate::device::bus::Bus;
use crate::device::state::State;
use crate::frame::be16;
use crate::hairpin::Buffer;
use crate::memory_keys::KeyError;

/// Where a queue's buffers are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Own,
    Pool(u32),
}

/// What a queue is made of.
pub(crate) struct Make {
    pub(crate) cqn: u32,
    pub(crate) user_index: u32,
    pub(crate) source: Source,
    pub(crate) ring: Option<Box<WorkRing>>,
    /// What a hairpin queue has in a ring's place.
    pub(crate) hairpin: Option<Box<Buffer>>,
    /// VLAN tags stay in the frame.
    pub(crate) keep_tag: bool,
    pub(crate) scatter_fcs: bool,
    pub(crate) flush: bool,
    pub(crate) counter_set: u32,
    pub(crate) context: [u8; 240],
}

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) number: u32,
    pub(crate) state: State,
    pub(crate) cqn: u32,
    pub(crate) user_index: u32,
    pub(crate) source: Source,
    pub(super) ring: Option<Box<WorkRing>>,
    pub(crate) hairpin: Option<Box<Buffer>>,
    pub(crate) keep_tag: bool,
    pub(crate) scatter_fcs: bool,
    flush: bool,
    /// Nothing can be reported any more.
    dead: bool,
    /// Why it failed last.
    pub(super) failure: u8,
    pub(crate) counter_set: u32,
    pub(crate) context: [u8; 240],
}

/// A stripped tag counts only if its type is this one. Source: IEEE 802.1Q, table 9-1.
const CUSTOMER_TAG: u16 = 0x8100;

impl Queue {
    pub(crate) fn new(make: Make) -> Self {
        let Make { cqn, user_index, source, ring, hairpin, keep_tag, .. } = make;
        let Make { scatter_fcs, flush, counter_set, context, .. } = make;
        Self {
            number: 0,
            state: State::Reset,
            cqn,
            user_index,
            source,
            ring,
            hairpin,
            keep_tag,
            scatter_fcs,
            flush,
            dead: false,
            failure: 0,
            counter_set,
            context,
        }
    }

    /// Whether what is posted in the error state makes completions.
    pub(super) fn flushes(&self) -> bool {
        self.flush && !self.dead
    }

    pub(crate) fn become_state(&mut self, state: State) {
        if state == State::Reset
            && let Some(ring) = &mut self.ring
        {
            ring.reset();
        }
        match (&mut self.hairpin, state) {
            (Some(buffer), State::Reset) => buffer.unbind(),
            (Some(buffer), State::Error) => buffer.forget(),
            _ => {}
        }
        self.dead = false;
        self.state = state;
    }

    /// Its own ring.
    pub(crate) fn ring_mut(&mut self) -> Option<&mut WorkRing> {
        self.ring.as_deref_mut()
    }

    /// Where its own ring's doorbell record is.
    pub(crate) fn record(&self) -> Option<u64> {
        self.ring.as_ref().map(|ring| ring.record)
    }

    /// It leaves RESET: as [`WorkRing::at_ready`].
    pub(crate) fn at_ready(&mut self, bus: &Bus<'_>) -> Option<u16> {
        self.ring.as_mut()?.at_ready(bus)
    }

    /// Entries used up so far.
    pub(crate) fn hardware_counter(&self) -> u32 {
        self.ring.as_ref().map_or(0, |ring| ring.next.into())
    }

    /// Takes a packet.
    #[inline]
    pub(super) fn take(
        &mut self,
        around: &mut Around<'_, '_>,
        ring: &mut WorkRing,
        entry: &mut Entry,
        arrival: &Arrival<'_>,
    ) -> Taken {
        if self.state != State::Ready {
            return Taken::No;
        }
        match ring.has_entry(around.bus) {
            Ok(true) => {}
            Ok(false) => return Taken::NoBuffer,
            Err(_) => return self.die(around),
        }
        if ring.peek(around.bus, entry).is_err() {
            return self.die(around);
        }
        if let Some(syndrome) = around.bus.faults.receive_entry() {
            return self.fail(around, ring, entry, syndrome);
        }
        let tag = (!self.keep_tag && arrival.headers.tags > 0 && be16(arrival.frame, 12) == CUSTOMER_TAG)
            .then(|| be16(arrival.frame, 14));
        let (head, rest) = match tag {
            Some(_) => (&arrival.frame[..12], &arrival.frame[16..]),
            None => (arrival.frame, &[][..]),
        };
        let trailer = if self.scatter_fcs { fcs(&[head, rest]) } else { [0; 4] };
        let pieces = Pieces { parts: [head, rest, if self.scatter_fcs { &trailer } else { &[] }] };
        let mut report = self.report(around, arrival, tag);
        report.byte_cnt.set(pieces.bytes() as u32);
        match ring.strides {
            None => self.take_whole(around, ring, entry, &pieces, &mut report),
            Some(strides) => self.take_strides(around, ring, entry, strides, &pieces, &mut report),
        }
    }

    /// What the completion says of the packet, wherever it goes.
    #[inline]
    fn report(&self, around: &Around<'_, '_>, arrival: &Arrival<'_>, tag: Option<u16>) -> Cqe64 {
        let mut report = Cqe64::new_zeroed();
        report.pkt_info = arrival.checked.info;
        report.rss_hash_result.set(arrival.hash);
        report.rss_hash_type = arrival.hash_kind;
        // The sum covers all that is delivered behind the Ethernet header, as `cqe_checksum_full` says: tags that stay too.
        let tags = arrival.frame.get(if tag.is_some() { 18 } else { 14 }..arrival.headers.l3);
        let sum = tags.map_or(arrival.checked.sum, |tags| Sum::of(tags).add_word(arrival.checked.sum).fold());
        report.check_sum.set(sum);
        report.hds_ip_ext = arrival.checked.status;
        report.l4_l3_hdr_type = arrival.checked.types;
        if let Some(tag) = tag {
            report.l4_l3_hdr_type |= packet::VLAN_STRIPPED;
            report.vlan_info.set(tag);
        }
        report.srqn_uidx.set(self.user_index);
        if let Some(joined) = &arrival.joined {
            report.srqn_uidx.set(u32::from(joined.segments) << 24 | self.user_index & 0xff_ffff);
            report.lro_tcppsh_abort_dupack = if joined.push { lro::PUSH } else { 0 };
            report.lro_min_ttl = joined.ttl_min;
            report.lro_tcp_win.set(joined.window);
            report.lro_ack_seq_num.set(joined.acknowledged);
            report.check_sum.set(joined.sum);
        }
        report.timestamp.set(around.bus.stamp());
        report.sop_drop_qpn.set(arrival.tag & 0xff_ffff);
        report.op_own = completion::RESPONDER_SEND << 4;
        report
    }

    fn take_whole(
        &mut self,
        around: &mut Around<'_, '_>,
        ring: &mut WorkRing,
        entry: &Entry,
        pieces: &Pieces<'_>,
        report: &mut Cqe64,
    ) -> Taken {
        if let Err(problem) = scatter::over_segments(around, ring.domain, entry.segments(), pieces, ring.pad)
        {
            return self.fail(around, ring, entry, syndrome(problem));
        }
        report.wqe_counter.set(entry.index);
        ring.advance(entry);
        self.complete(around, report)
    }

    /// Packets follow each other in one buffer, each from a stride's beginning on. One that does not fit behind the others
    /// leaves the rest to a filler.
    fn take_strides(
        &mut self,
        around: &mut Around<'_, '_>,
        ring: &mut WorkRing,
        entry: &mut Entry,
        strides: Strides,
        pieces: &Pieces<'_>,
        report: &mut Cqe64,
    ) -> Taken {
        let bytes = pieces.bytes();
        let shift = if strides.shift { 2 } else { 0 };
        let needed = ((bytes + shift) as u32).div_ceil(1 << strides.log_bytes).max(1);
        let all = 1_u32 << strides.log_count;
        if needed > all {
            return self.fail(around, ring, entry, syndrome(Problem::Length));
        }
        if ring.stride + needed > all {
            let mut filler = Cqe64::new_zeroed();
            filler.wqe_id.set(entry.index);
            filler.wqe_counter.set(ring.stride as u16);
            let left = Count { bytes: 0, count: (all - ring.stride) as u16, filler: true };
            filler.byte_cnt.set(left.byte_cnt());
            filler.srqn_uidx = report.srqn_uidx;
            filler.timestamp = report.timestamp;
            filler.op_own = report.op_own;
            ring.advance(entry);
            if self.complete(around, &filler) != Taken::Yes {
                return Taken::No;
            }
            match ring.has_entry(around.bus) {
                Ok(true) => {}
                Ok(false) => return Taken::NoBuffer,
                Err(_) => return self.die(around),
            }
            if ring.peek(around.bus, entry).is_err() {
                return self.die(around);
            }
        }
        let Ok((data, _)) = Data::ref_from_prefix(entry.segments()) else { return self.die(around) };
        let offset = (u64::from(ring.stride) << strides.log_bytes) + shift as u64;
        let room = data.bytes();
        let outcome = if offset + bytes as u64 > room {
            Err(Problem::Length)
        } else {
            data.addr.get().checked_add(offset).ok_or(Problem::Key(KeyError::Bounds)).and_then(|at| {
                scatter::write(around, ring.domain, data.lkey.get(), at, pieces, 0, bytes)
                    .map_err(Problem::Key)
            })
        };
        if let Err(problem) = outcome {
            return self.fail(around, ring, entry, syndrome(problem));
        }
        report.wqe_id.set(entry.index);
        report.wqe_counter.set(ring.stride as u16);
        report.byte_cnt.set(Count { bytes: bytes as u16, count: needed as u16, filler: false }.byte_cnt());
        ring.stride += needed;
        if ring.stride == all {
            ring.advance(entry);
        }
        self.complete(around, report)
    }

    fn complete(&mut self, around: &mut Around<'_, '_>, report: &Cqe64) -> Taken {
        if around.completions.push(around.bus, around.events, self.cqn, report, false).is_err() {
            return self.die(around);
        }
        Taken::Yes
    }

    /// The entry fails: its error is reported and the queue is in error.
    fn fail(
        &mut self,
        around: &mut Around<'_, '_>,
        ring: &mut WorkRing,
        entry: &Entry,
        syndrome: Syndrome,
    ) -> Taken {
        self.state = State::Error;
        self.failure = syndrome.code;
        let Syndrome { code, vendor } = syndrome;
        tracing::info!(target: "model.receive", queue = self.number, entry = entry.index, code, vendor, "failed");
        ring.advance(entry);
        self.report_error(around, entry.index, syndrome);
        Taken::No
    }

    fn report_error(&mut self, around: &mut Around<'_, '_>, index: u16, syndrome: Syndrome) {
        let pushed = around.completions.push_error(
            around.bus,
            around.events,
            self.cqn,
            completion::RESPONDER_ERROR,
            self.number,
            0,
            self.user_index,
            index,
            syndrome,
        );
        if pushed.is_err() {
            self.die(around);
        }
    }

    /// Flushes what is posted; returns how many entries.
    pub(super) fn flush(&mut self, around: &mut Around<'_, '_>, ring: &mut WorkRing, budget: usize) -> usize {
        let mut count = 0;
        let mut entry = Entry::default();
        while count < budget
            && ring.has_entry(around.bus) == Ok(true)
            && ring.peek(around.bus, &mut entry).is_ok()
        {
            ring.advance(&entry);
            self.report_error(around, entry.index, Syndrome { code: Syndrome::WR_FLUSH_ERR, vendor: 0xf9 });
            count += 1;
        }
        count
    }

    /// Nothing can be reported any more.
    fn die(&mut self, around: &mut Around<'_, '_>) -> Taken {
        self.state = State::Error;
        self.dead = true;
        around.events.queue_error(around.bus, event::WQ_CATAS_ERROR, queue_kind::RQ, self.number);
        Taken::No
    }
}

fn syndrome(problem: Problem) -> Syndrome {
    match problem {
        Problem::Length => Syndrome { code: Syndrome::LOCAL_LENGTH_ERR, vendor: 0x71 },
        Problem::Key(error) => Syndrome { code: Syndrome::LOCAL_PROT_ERR, vendor: error.vendor() },
    }
}
