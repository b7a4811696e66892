//! A device made of test code: it looks at record and register, reads entries, and completes those that ask for it.

use std::ptr::NonNull;
use std::sync::Arc;

use pollux_eal::region::Zone;
use pollux_mempool::MbufPool;
use pollux_mlx5_abi::cqe::Cqe64;
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::wqe::{Completion, Control, Data, Ethernet, INLINE as INLINE_BIT, blocks};
use pollux_port::driver::{Alone, TxSetup};
use pollux_port::{Gate, PortId, QueueId, TxCounters, TxOffloads};
use pollux_uverbs::{Page, Protection};
use zerocopy::FromBytes;
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U16;

use crate::eth::parts::{KnownTunnels, NoDevice, SqParts, TxFeatures, TxTunnels};
use crate::eth::rx::fake::{DELTA, keys, zone};
use crate::eth::tx::TxQueue;
use pollux_mlx5_common::cq::CqParts;
use pollux_mlx5_common::dbrec::DoorbellRecords;
use pollux_mlx5_common::uar::SendDoorbell;

/// How a queue under test is made.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) log: u8,
    pub(crate) descriptors: u16,
    pub(crate) inline_min: usize,
    pub(crate) inline_max: usize,
    pub(crate) features: TxFeatures,
    pub(crate) tunnels: TxTunnels,
    pub(crate) blueflame: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            log: 7,
            descriptors: 256,
            inline_min: 0,
            inline_max: 0,
            features: TxFeatures::empty(),
            tunnels: TxTunnels { known: KnownTunnels::all(), ..TxTunnels::default() },
            blueflame: false,
        }
    }
}

/// A frame as it goes on the wire, and what the device is to do to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) checksums: u8,
    pub(crate) vlan: Option<u16>,
    pub(crate) mss: u16,
    /// Bytes that stood in the entry.
    pub(crate) inline: usize,
}

/// The device's half.
pub(crate) struct Device {
    ring: NonNull<u8>,
    log: u8,
    records: DoorbellRecords,
    page: Arc<Zone>,
    cq: NonNull<u8>,
    cq_log: u8,
    /// Blocks read, in all.
    pub(crate) ci: u32,
    pub(crate) completed: u32,
    /// Entries read, and blocks.
    pub(crate) entries: u32,
}

pub(crate) fn rig(plan: &Plan, pool: &MbufPool) -> (Alone<TxQueue>, Device, Arc<TxCounters>) {
    let ring = zone(64 << plan.log);
    let cq_log = 4;
    let cq = zone(64 << cq_log);
    let records = DoorbellRecords::new(zone(4096));
    let page = Arc::new(zone(4096));
    let uar = Arc::new(Page::of_zone(Arc::clone(&page), 0, 4096, Protection::ReadWrite));
    let device = Device {
        ring: ring.base(),
        log: plan.log,
        records: records.clone(),
        page,
        cq: cq.base(),
        cq_log,
        ci: 0,
        completed: 0,
        entries: 0,
    };
    let counters = Arc::new(TxCounters::default());
    let setup = TxSetup {
        port: PortId(0),
        queue: QueueId(0),
        descriptors: plan.descriptors,
        offloads: TxOffloads::empty(),
        finishing: false,
        deferred_start: false,
        counters: Arc::clone(&counters),
        gate: Gate::new(),
    };
    let dbrec = records.take().expect("record");
    let mut cq = CqParts {
        ring: cq,
        entries_log2: cq_log,
        cqe_bytes: 64,
        enhanced: false,
        dbrec: records.take().expect("record"),
        cqn: 8,
        arm: None,
    };
    cq.freshen();
    let parts = SqParts {
        ring,
        wqebbs_log2: plan.log,
        dbrec,
        doorbell: SendDoorbell::own(uar.registers(0x800..0xa00).expect("registers"), plan.blueflame),
        number: 0x12_3456,
        control_imm: 0,
        cq,
        inline_min: plan.inline_min,
        inline_max: plan.inline_max,
        features: plan.features,
        tso_bytes_max: 65_535,
        tso_header_max: 192,
        tunnels: plan.tunnels,
        hold: Box::new(NoDevice),
    };
    let owner = counters.own().expect("nobody has it");
    (Alone::new(TxQueue::new(parts, &setup, keys(pool, &[])), owner), device, counters)
}

impl Device {
    /// Blocks posted, as the record says.
    fn posted(&self) -> u32 {
        let mut word = [0; 4];
        self.records.zone().copy_out(4, &mut word);
        u32::from_be_bytes(word)
    }

    /// 64 bytes of the register, from its first or second buffer on.
    pub(crate) fn register(&self, buffer: usize) -> [u8; 64] {
        let mut bytes = [0; 64];
        self.page.copy_out(0x800 + buffer * 0x100, &mut bytes);
        bytes
    }

    /// The bytes of a segment, counted from the ring's start and past its end.
    pub(crate) fn segment(&self, index: u32) -> [u8; 16] {
        let at = (index & ((4 << self.log) - 1)) as usize * 16;
        let mut bytes = [0; 16];
        // SAFETY: inside the ring, which the queue under test keeps.
        unsafe { std::ptr::copy_nonoverlapping(self.ring.as_ptr().add(at), bytes.as_mut_ptr(), 16) };
        bytes
    }

    fn bytes(&self, first: u32, skip: usize, count: usize) -> Vec<u8> {
        let segments = (skip + count).div_ceil(16) as u32;
        let all: Vec<u8> = (first..first + segments).flat_map(|at| self.segment(at)).collect();
        all[skip..skip + count].to_vec()
    }

    fn fetch(data: &Data) -> Vec<u8> {
        let from = data.addr.get().wrapping_sub(DELTA) as usize;
        let from: *const u8 = std::ptr::with_exposed_provenance(from);
        assert_eq!(data.lkey.get(), 0x1234_5601, "the key of the pool");
        assert!(data.byte_count.get() > 0, "no bytes would mean 2^31");
        // SAFETY: the address is of an mbuf that the queue under test holds.
        unsafe { std::slice::from_raw_parts(from, data.byte_count.get() as usize) }.to_vec()
    }

    /// Reads all that was posted. `heads` are the first 8 bytes of the last entry, as the register must have them.
    pub(crate) fn send(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while self.ci & 0xffff != self.posted() {
            let start = (self.ci & ((1 << self.log) - 1)) * 4;
            let control = Control::read_from_bytes(&self.segment(start)).expect("16 bytes");
            assert_eq!((control.index(), control.qpn()), (self.ci as u16, 0x12_3456));
            let segments = u32::from(control.segments());
            match control.opcode() {
                send::NOP => assert_eq!(segments, 1),
                send::ENHANCED_MPSW => self.many(start, segments, &mut frames),
                send::SEND | send::TSO => frames.push(self.one(start, segments)),
                other => panic!("opcode {other:#x}"),
            }
            let used = blocks(segments as usize) as u32;
            if control.completion() == Completion::Always {
                self.complete(self.ci as u16);
            }
            self.ci = self.ci.wrapping_add(used);
            self.entries += 1;
            let head = control.head();
            if self.ci & 0xffff == self.posted() {
                let rung = (0..2).any(|buffer| self.register(buffer)[..8] == head);
                assert!(rung, "the register has the head of the last entry");
            }
        }
        frames
    }

    fn one(&self, start: u32, segments: u32) -> Frame {
        let eth = Ethernet::read_from_bytes(&self.segment(start + 1)).expect("16 bytes");
        let inline = eth.inline_bytes();
        let mut bytes = if inline > 0 { self.bytes(start + 1, 14, inline) } else { Vec::new() };
        let first = 2 + inline.saturating_sub(2).div_ceil(16) as u32;
        for at in first..segments {
            bytes.extend(Self::fetch(&Data::read_from_bytes(&self.segment(start + at)).expect("16 bytes")));
        }
        Frame { bytes, checksums: eth.cs_flags, vlan: eth.vlan(), mss: eth.mss.get(), inline }
    }

    fn many(&self, start: u32, segments: u32, frames: &mut Vec<Frame>) {
        let eth = Ethernet::read_from_bytes(&self.segment(start + 1)).expect("16 bytes");
        assert_eq!((eth.inline_hdr_sz.get(), eth.mss.get()), (0, 0));
        let mut at = 2;
        while at < segments {
            let data = Data::read_from_bytes(&self.segment(start + at)).expect("16 bytes");
            let count = data.byte_count.get();
            let (bytes, used, inline) = if count & INLINE_BIT == 0 {
                (Self::fetch(&data), 1, 0)
            } else {
                let count = (count & !INLINE_BIT) as usize;
                (self.bytes(start + at, 4, count), (count + 4).div_ceil(16) as u32, count)
            };
            frames.push(Frame { bytes, checksums: eth.cs_flags, vlan: None, mss: 0, inline });
            at += used;
        }
        assert_eq!(at, segments);
    }

    /// Completes the entry that began at block `wqe`.
    pub(crate) fn complete(&mut self, wqe: u16) {
        let mut entry = Cqe64::fresh();
        entry.wqe_counter = U16::new(wqe);
        self.write(entry, completion::REQUESTER << 4);
    }

    /// Says that the entry that began at block `wqe` failed.
    pub(crate) fn fail(&mut self, wqe: u16, syndrome: u8) {
        let mut entry = Cqe64::fresh();
        entry.as_mut_bytes()[55] = syndrome;
        entry.wqe_counter = U16::new(wqe);
        self.write(entry, completion::REQUESTER_ERROR << 4);
    }

    /// Writes a completion, its last byte last.
    pub(crate) fn write(&mut self, mut entry: Cqe64, kind: u8) {
        entry.op_own = kind | (self.completed >> self.cq_log & 1) as u8;
        let at = (self.completed & ((1 << self.cq_log) - 1)) as usize * 64;
        // SAFETY: inside the ring, which the queue under test keeps.
        unsafe {
            std::ptr::copy_nonoverlapping(entry.as_bytes().as_ptr(), self.cq.as_ptr().add(at), 64);
        }
        self.completed = self.completed.wrapping_add(1);
    }

    /// Starts counting where the queue does.
    pub(crate) fn start_at(&mut self, at: u32) {
        self.ci = at;
    }
}
