//! A device made of test code: it reads the ring's entries, puts frames where they say, and writes completions.

use std::ptr::NonNull;
use std::sync::Arc;

use pollux_eal::region::{Region, Zone};
use pollux_eal::simd::SimdWidth;
use pollux_mempool::MbufPool;
use pollux_mlx5_abi::cqe::{Cqe64, MiniCqe, MiniFormat, Strides, format};
use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::Data;
use pollux_port::driver::{Alone, RxSetup};
use pollux_port::{Gate, PortId, QueueId, RxCounters, RxOffloads};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::eth::parts::{NoDevice, RqParts, RxFeatures, SplitPart, SplitParts, StridingParts};
use crate::eth::rx::RxQueue;
use pollux_mlx5_common::cq::CqParts;
use pollux_mlx5_common::dbrec::DoorbellRecords;
use pollux_mlx5_common::key::{KeyRange, KeyTable, Keys};

/// What differs between an address and the device's.
pub(crate) const DELTA: u64 = 7 << 12;
const LKEY: u32 = 0x1234_5600;

pub(crate) fn zone(bytes: usize) -> Zone {
    Region::anonymous("fake", bytes).expect("memory").into_zone()
}

pub(crate) fn pool(count: usize) -> MbufPool {
    MbufPool::builder("fake", count).cache(0).build_anonymous().expect("pool")
}

/// Keys for a pool and for other memory.
pub(crate) fn keys(pool: &MbufPool, other: &[&Zone]) -> Keys {
    keys_of(&[pool], other)
}

fn keys_of(pools: &[&MbufPool], other: &[&Zone]) -> Keys {
    let table = KeyTable::new(None);
    let mut lkey = LKEY;
    let mut insert = |start: usize, bytes: usize| {
        lkey += 1;
        table.insert(KeyRange { start: start as u64, bytes: bytes as u64, lkey, delta: DELTA });
    };
    for region in pools.iter().flat_map(|pool| pool.regions()) {
        insert(region.base.as_ptr().addr(), region.bytes);
    }
    for zone in other {
        insert(zone.base().as_ptr().addr(), zone.bytes());
    }
    Keys::new(table)
}

/// How a queue under test is made.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) log: u8,
    pub(crate) segments_log2: u8,
    pub(crate) cqe_bytes: usize,
    pub(crate) compressed: Option<MiniFormat>,
    pub(crate) enhanced: bool,
    pub(crate) features: RxFeatures,
    pub(crate) simd: SimdWidth,
    /// Buffers, strides, bytes of a stride, copy limit.
    pub(crate) striding: Option<(usize, u8, u8, usize)>,
    /// Pool, offset and bytes of each part of a packet.
    pub(crate) split: Option<Vec<SplitPart>>,
    pub(crate) longest: usize,
    pub(crate) crc: usize,
}

/// The key of no memory.
const NULL_KEY: u32 = 0x400;

impl Default for Plan {
    fn default() -> Self {
        Self {
            log: 6,
            segments_log2: 0,
            cqe_bytes: 64,
            compressed: None,
            enhanced: false,
            features: RxFeatures::all() - RxFeatures::LRO,
            simd: SimdWidth::Scalar,
            striding: None,
            split: None,
            longest: 1518,
            crc: 0,
        }
    }
}

/// The device's half.
pub(crate) struct Device {
    ring: NonNull<u8>,
    plan: Plan,
    records: DoorbellRecords,
    cq: NonNull<u8>,
    cq_log: u8,
    /// Entries used, in all.
    pub(crate) taken: u32,
    /// Completions written, in all.
    pub(crate) completed: u32,
    /// Strides used of the entry at hand.
    stride: u32,
}

/// What a frame's completion says besides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Say {
    pub(crate) hash: u32,
    pub(crate) tag: u32,
    pub(crate) vlan: Option<u16>,
    pub(crate) time: u64,
    pub(crate) l4_l3: u8,
    pub(crate) ok: u8,
    pub(crate) joined: Option<SayJoined>,
}

/// What a completion says of segments that were joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SayJoined {
    pub(crate) segments: u8,
    pub(crate) push: bool,
    pub(crate) ttl: u8,
    pub(crate) window: u16,
    pub(crate) acknowledged: u32,
    pub(crate) sum: u16,
}

impl Say {
    fn entry(self) -> Cqe64 {
        let mut entry = Cqe64::fresh();
        entry.rss_hash_result = U32::new(self.hash);
        entry.rss_hash_type = if self.hash != 0 { 0x84 } else { 0 };
        entry.sop_drop_qpn = U32::new(self.tag);
        entry.l4_l3_hdr_type = self.l4_l3 & !1 | u8::from(self.vlan.is_some());
        entry.vlan_info = U16::new(self.vlan.unwrap_or(0));
        entry.timestamp = U64::new(self.time);
        entry.hds_ip_ext = self.ok;
        if let Some(joined) = self.joined {
            entry.srqn_uidx = U32::new(u32::from(joined.segments) << 24 | 0xab_cdef);
            entry.lro_tcppsh_abort_dupack = if joined.push { 0x40 } else { 0x22 };
            entry.lro_min_ttl = joined.ttl;
            entry.lro_tcp_win = U16::new(joined.window);
            entry.lro_ack_seq_num = U32::new(joined.acknowledged);
            entry.check_sum = U16::new(joined.sum);
        }
        entry
    }
}

/// A queue and its device.
pub(crate) fn rig(plan: &Plan, pool: &MbufPool) -> (Alone<RxQueue>, Device, Arc<RxCounters>) {
    let (queue, device, counters) = try_rig(plan, pool);
    (queue.expect("queue"), device, counters)
}

pub(crate) fn try_rig(
    plan: &Plan,
    pool: &MbufPool,
) -> (Result<Alone<RxQueue>, pollux_mlx5_common::MlxError>, Device, Arc<RxCounters>) {
    let entry = if plan.striding.is_some() { 32 } else { 16 << plan.segments_log2 };
    let ring = zone(entry << plan.log);
    let strides = plan.striding.map_or(0, |(_, strides, ..)| strides);
    let cq_log = plan.log + strides;
    let cq = zone(plan.cqe_bytes << cq_log);
    let records = DoorbellRecords::new(zone(4096));
    let striding = plan.striding.map(|(count, strides_log2, stride_bytes_log2, copy)| StridingParts {
        buffers: zone(count << (strides_log2 + stride_bytes_log2)).into(),
        count,
        strides_log2,
        stride_bytes_log2,
        two_byte_shift: false,
        copy_bytes_max: copy,
    });
    let others: Vec<&Zone> = striding.iter().map(|striding| &*striding.buffers).collect();
    let parts = plan.split.iter().flatten();
    let mut pools: Vec<&MbufPool> = parts.filter_map(|part| part.pool.as_ref()).collect();
    pools.push(pool);
    pools.sort_by_key(|pool| pool.name());
    pools.dedup_by_key(|pool| pool.name());
    let keys = keys_of(&pools, &others);
    let device = Device {
        ring: ring.base(),
        plan: plan.clone(),
        records: records.clone(),
        cq: cq.base(),
        cq_log,
        taken: 0,
        completed: 0,
        stride: 0,
    };
    let counters = Arc::new(RxCounters::default());
    let setup = RxSetup {
        port: PortId(3),
        queue: QueueId(0),
        descriptors: 1 << plan.log,
        pool: pool.clone(),
        segments: Vec::new(),
        offloads: RxOffloads::empty(),
        scatter: plan.segments_log2 > 0,
        max_lro_bytes: 0,
        deferred_start: false,
        interrupts: false,
        counters: Arc::clone(&counters),
        gate: Gate::new(),
    };
    let dbrec = records.take().expect("record");
    let cq_dbrec = records.take().expect("record");
    let mut cq = CqParts {
        ring: cq,
        entries_log2: cq_log,
        cqe_bytes: plan.cqe_bytes,
        enhanced: plan.enhanced,
        dbrec: cq_dbrec,
        cqn: 9,
        arm: None,
    };
    cq.freshen();
    let parts = RqParts {
        ring,
        wqes_log2: plan.log,
        segments_log2: plan.segments_log2,
        dbrec,
        number: 5,
        cq,
        compressed: plan.compressed,
        striding,
        split: plan.split.clone().map(|parts| SplitParts { parts, null_key: NULL_KEY }),
        features: plan.features,
        simd: plan.simd,
        frame_bytes_max: plan.longest,
        crc_bytes: plan.crc,
        events: None,
        hold: Box::new(NoDevice),
    };
    let owner = counters.own().expect("nobody has it");
    (RxQueue::new(parts, &setup, keys).map(|queue| Alone::new(queue, owner)), device, counters)
}

impl Device {
    /// The words of record 0 (the receive queue's) and 1 (the completion queue's).
    fn record(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        self.records.zone().copy_out(at * 64, &mut word);
        u32::from_be_bytes(word)
    }

    /// Entries that are posted and not used.
    pub(crate) fn posted(&self) -> u32 {
        self.record(0).wrapping_sub(self.taken) & 0xffff
    }

    /// Completions that software said it consumed.
    pub(crate) fn consumed(&self) -> u32 {
        self.record(1)
    }

    /// Entries of the completion ring that may be written.
    pub(crate) fn room(&self) -> u32 {
        (1 << self.cq_log) - (self.completed.wrapping_sub(self.consumed()) & 0xff_ffff)
    }

    pub(crate) fn data(&self, entry: u32, segment: usize) -> Data {
        let slot = (entry & ((1 << self.plan.log) - 1)) as usize;
        let at = if self.plan.striding.is_some() {
            slot * 32 + 16
        } else {
            (slot << self.plan.segments_log2) * 16 + segment * 16
        };
        let mut bytes = [0; 16];
        // SAFETY: inside the ring, which the queue under test keeps.
        unsafe { std::ptr::copy_nonoverlapping(self.ring.as_ptr().add(at), bytes.as_mut_ptr(), 16) };
        Data::read_from_bytes(&bytes).expect("16 bytes")
    }

    /// Writes an entry at the next place of the completion ring, `ahead` of it, its last byte last.
    pub(crate) fn complete_at(&mut self, ahead: u32, mut entry: Cqe64, kind: u8) {
        let index = self.completed.wrapping_add(ahead);
        entry.op_own = kind | (index >> self.cq_log & 1) as u8;
        if self.plan.enhanced {
            entry.signature = (index >> self.cq_log) as u8;
        }
        self.write_place(index, entry.as_bytes());
    }

    fn write_place(&mut self, index: u32, bytes: &[u8]) {
        let slot = (index & ((1 << self.cq_log) - 1)) as usize;
        let at = slot * self.plan.cqe_bytes + self.plan.cqe_bytes - 64;
        assert_eq!(bytes.len(), 64);
        // SAFETY: inside the ring, which the queue under test keeps.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.cq.as_ptr().add(at), 64) };
    }

    /// Puts a frame into the next entry, or the next strides. What the byte count says, and counter and entry.
    fn place(&mut self, frame: &[u8]) -> (u32, u16, u16) {
        assert!(self.posted() > 0, "no entry is posted");
        if let Some((_, strides_log2, stride_log2, _)) = self.plan.striding {
            let count = (frame.len() as u32).div_ceil(1 << stride_log2);
            assert!(self.stride + count <= 1 << strides_log2, "a filler comes first");
            let data = self.data(self.taken, 0);
            let base = data.addr.get().wrapping_sub(DELTA) as usize + ((self.stride as usize) << stride_log2);
            self.copy(base, frame);
            let strides = Strides { bytes: frame.len() as u16, count: count as u16, filler: false };
            let answer = (strides.byte_cnt(), self.stride as u16, self.taken as u16);
            self.use_strides(count);
            return answer;
        }
        let mut rest = frame;
        for segment in 0..1 << self.plan.segments_log2 {
            let data = self.data(self.taken, segment);
            let here = rest.len().min(data.byte_count.get() as usize);
            if data.lkey.get() != NULL_KEY && here > 0 {
                self.copy(data.addr.get().wrapping_sub(DELTA) as usize, &rest[..here]);
            }
            rest = &rest[here..];
        }
        assert!(rest.is_empty(), "a frame longer than its entry");
        let counter = self.taken as u16;
        self.taken = self.taken.wrapping_add(1);
        (frame.len() as u32, counter, 0)
    }

    #[expect(clippy::unused_self, reason = "it is the device that writes")]
    fn copy(&mut self, to: usize, bytes: &[u8]) {
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(to);
        // SAFETY: the address is that of an entry of the queue under test, whose mbufs or buffers are the device's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    fn use_strides(&mut self, count: u32) {
        let (_, strides_log2, ..) = self.plan.striding.expect("striding");
        self.stride += count;
        if self.stride == 1 << strides_log2 {
            self.stride = 0;
            self.taken = self.taken.wrapping_add(1);
        }
    }

    /// Strides left in the entry at hand.
    pub(crate) fn strides_left(&self) -> u32 {
        self.plan.striding.map_or(0, |(_, strides_log2, ..)| (1 << strides_log2) - self.stride)
    }

    /// Strides that a frame takes.
    pub(crate) fn strides_of(&self, bytes: usize) -> u32 {
        self.plan.striding.map_or(0, |(_, _, stride_log2, _)| (bytes as u32).div_ceil(1 << stride_log2))
    }

    /// Says that the rest of the entry at hand stays empty.
    pub(crate) fn fill(&mut self) {
        let left = self.strides_left();
        let mut entry = Say::default().entry();
        entry.byte_cnt = U32::new(Strides { bytes: 0, count: left as u16, filler: true }.byte_cnt());
        entry.wqe_counter = U16::new(self.stride as u16);
        entry.wqe_id = U16::new(self.taken as u16);
        self.complete_at(0, entry, completion::RESPONDER_SEND << 4);
        self.completed = self.completed.wrapping_add(1);
        self.use_strides(left);
    }

    /// Receives a frame.
    pub(crate) fn receive(&mut self, frame: &[u8], say: Say) {
        assert!(self.room() > 0, "the completion ring is full");
        if self.plan.striding.is_some() && self.strides_of(frame.len()) > self.strides_left() {
            self.fill();
        }
        let (byte_cnt, counter, id) = self.place(frame);
        let mut entry = say.entry();
        entry.byte_cnt = U32::new(byte_cnt);
        entry.wqe_counter = U16::new(counter);
        entry.wqe_id = U16::new(id);
        self.complete_at(0, entry, completion::RESPONDER_SEND << 4);
        self.completed = self.completed.wrapping_add(1);
    }

    /// Receives frames that differ in what the format has, and completes them in one session.
    pub(crate) fn receive_compressed(&mut self, frames: &[(Vec<u8>, Say)], of: MiniFormat) {
        assert!(self.room() as usize >= frames.len(), "the completion ring is full");
        if self.plan.enhanced {
            return self.receive_arrays(frames, of);
        }
        let mut minis = Vec::new();
        let mut title = frames[0].1.entry();
        for (at, (frame, say)) in frames.iter().enumerate() {
            let (byte_cnt, counter, id) = self.place(frame);
            if at == 0 {
                title.wqe_counter = U16::new(counter);
                title.wqe_id = U16::new(id);
                title.byte_cnt = U32::new(frames.len() as u32);
            }
            minis.push(mini(of, *say, counter, byte_cnt));
        }
        for (at, array) in minis.chunks(8).enumerate() {
            let mut bytes = [0xff; 64];
            for (mini, to) in array.iter().zip(bytes.chunks_mut(8)) {
                to.copy_from_slice(mini.as_bytes());
            }
            let place = self.completed.wrapping_add(if at == 0 { 1 } else { 8 * at as u32 });
            // The last bytes of an array are data, and may look like an owner bit.
            self.write_place(place, &bytes);
        }
        self.complete_at(0, title, completion::RESPONDER_SEND << 4 | format::COMPRESSED << 2);
        self.completed = self.completed.wrapping_add(frames.len() as u32);
    }

    /// The same in the enhanced layout: a plain completion, and arrays of 1 to 7.
    fn receive_arrays(&mut self, frames: &[(Vec<u8>, Say)], of: MiniFormat) {
        let (first, rest) = frames.split_first().expect("a frame");
        self.receive(&first.0, first.1);
        for frames in rest.chunks(1 + rest.len() % 7) {
            let mut bytes = [0xff; 64];
            for ((frame, say), to) in frames.iter().zip(bytes.chunks_mut(8)) {
                let (byte_cnt, counter, _) = self.place(frame);
                to.copy_from_slice(mini(of, *say, counter, byte_cnt).as_bytes());
            }
            let kind = (frames.len() as u8 - 1) << 4 | format::COMPRESSED << 2;
            self.complete_at(0, Cqe64::read_from_bytes(&bytes).expect("64 bytes"), kind);
            self.completed = self.completed.wrapping_add(frames.len() as u32);
        }
    }

    /// Says that the next entry failed.
    pub(crate) fn fail(&mut self, syndrome: u8) {
        let mut entry = Cqe64::fresh();
        let bytes = entry.as_mut_bytes();
        (bytes[54], bytes[55]) = (0x77, syndrome);
        entry.wqe_counter = U16::new(self.taken as u16);
        self.taken = self.taken.wrapping_add(1);
        self.complete_at(0, entry, completion::RESPONDER_ERROR << 4);
        self.completed = self.completed.wrapping_add(1);
    }

    /// The queue was reset.
    pub(crate) fn reset(&mut self) {
        (self.taken, self.stride) = (0, 0);
    }

    /// Starts counting where the queue does.
    pub(crate) fn start_at(&mut self, taken: u32, completed: u32) {
        (self.taken, self.completed) = (taken, completed);
    }
}

/// What the short form of a completion keeps.
fn mini(of: MiniFormat, say: Say, counter: u16, byte_cnt: u32) -> MiniCqe {
    match of {
        MiniFormat::Hash => MiniCqe::with_hash(say.hash, byte_cnt),
        MiniFormat::Checksum => MiniCqe::with_checksum(0xabcd, 0, byte_cnt),
        MiniFormat::ChecksumStride => MiniCqe::with_checksum(0xabcd, counter, byte_cnt),
        MiniFormat::FlowTagStride => MiniCqe::with_flow_tag(say.tag, counter, byte_cnt),
        MiniFormat::HeaderStride => MiniCqe::with_headers(say.l4_l3, counter, byte_cnt),
    }
}

/// A syndrome as [`Device::fail`] tells it.
pub(crate) fn failed(code: u8) -> crate::eth::parking::Trouble {
    crate::eth::parking::Trouble::Failed(Syndrome { code, vendor: 0x77 })
}
