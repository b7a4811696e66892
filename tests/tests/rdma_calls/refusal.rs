//! Calls that a kernel refuses, each by its own reason; and a few odd ones that it takes. The verbs library asks none of these.
#![expect(unsafe_code, reason = "opens a raw context and registers memory")]

use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::Arc;

use pollux_eal::memory::Memory;
use pollux_eal::region::Zone;
use pollux_mlx5_abi::cqe::FRESH;
use pollux_mlx5_abi::kernel::completion_queue::{CreateCq, CreateCqAnswer, ResizeCq};
use pollux_mlx5_abi::kernel::context::{ContextAnswer, ContextRequest, PdAnswer, library};
use pollux_mlx5_abi::kernel::queue_pair::{
    AllocMw, CreateAhAnswer, CreateQp, CreateQpAnswer, CreateSrq, CreateSrqAnswer,
};
use pollux_uverbs::abi::flags::{Access, Advice, CqFlags, QpFlags, QpMask, QpState, QpType};
use pollux_uverbs::abi::ioctl_verbs::Sge;
use pollux_uverbs::abi::memory::{AhAttr, GlobalRoute};
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::abi::queue_pair::{ModifyQp, QpCap, QpDest};
use pollux_uverbs::cq::{Cq, CqRequest};
use pollux_uverbs::mr::{MrChange, MrRequest};
use pollux_uverbs::mw::MwType;
use pollux_uverbs::qp::{Qp, QpHome, QpRequest};
use pollux_uverbs::srq::{Srq, SrqKind, SrqRequest};
use pollux_uverbs::xrcd::XrcdRequest;
use pollux_uverbs::{
    AhHandle, Channel, Context, CqHandle, DmHandle, Driver, MrHandle, MwHandle, PdHandle, QpHandle,
    SrqHandle, UverbsError, XrcdHandle,
};
use zerocopy::{FromZeros, IntoBytes};

/// A handle that nothing has.
const NONE: u32 = 0x7777;

/// A raw context, and memory that outlives it.
struct Raw {
    context: Context,
    pd: PdHandle,
    memory: Memory,
    zones: std::cell::RefCell<Vec<Zone>>,
    count: Cell<u32>,
}

/// Asks for all of it.
pub(super) fn refused(channel: Arc<dyn Channel>) {
    let request = ContextRequest {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        max_cqe_version: 1,
        lib_caps: library::UAR_4K,
        ..ContextRequest::default()
    };
    let mut answer = ContextAnswer::new_zeroed();
    let data = Driver::new(request.as_bytes(), answer.as_mut_bytes());
    // SAFETY: what is told by address are zones of `Raw`, which nobody looks into and which outlive the context; what is destroyed
    // by number was made here.
    let context = unsafe { Context::open(channel, driver::MLX5, data) }.expect("a context");
    let mut answer = PdAnswer::new_zeroed();
    let pd = context.alloc_pd(Driver::new(&[], answer.as_mut_bytes())).expect("a domain");
    let raw = Raw { context, pd, memory: Memory::ordinary(), zones: Vec::new().into(), count: Cell::new(0) };
    raw.queries();
    raw.regions();
    raw.device_memory();
    raw.completion_queues();
    raw.queue_pairs();
    raw.changes();
    raw.groups();
    raw.shared_queues();
    raw.addresses();
    raw.xrc();
    drop(raw.context.dealloc_pd(PdHandle(NONE)));
    drop(raw.context.dealloc_pd(raw.pd));
    drop(raw.context.dealloc_pd(raw.pd));
}

impl Raw {
    /// Zeroed memory that stays; its address.
    fn zone(&self, bytes: usize) -> u64 {
        self.zone_filled(bytes, |_| {})
    }

    fn zone_filled(&self, bytes: usize, fill: impl FnOnce(&mut Zone)) -> u64 {
        self.count.set(self.count.get() + 1);
        let name = format!("refusal {}", self.count.get());
        let mut zone = self.memory.reserve(&name, bytes, 4096, None).expect("there is memory");
        fill(&mut zone);
        let address = zone.base().as_ptr().addr() as u64;
        self.zones.borrow_mut().push(zone);
        address
    }

    fn queries(&self) {
        drop(self.context.query_port(0));
        drop(self.context.query_gid(0, 0));
        drop(self.context.query_gid(1, u32::MAX));
    }

    fn regions(&self) {
        let start = self.zone(8192);
        let usual =
            MrRequest { pd: self.pd, start, length: 8192, hca_va: start, access: Access::LOCAL_WRITE };
        // SAFETY: the zone stays, and nobody has a reference into it.
        let register =
            |request: MrRequest| unsafe { self.context.reg_mr_by_command(&request, Driver::none()) };
        for request in [
            MrRequest { pd: PdHandle(NONE), ..usual },
            MrRequest { length: 0, ..usual },
            MrRequest { length: u64::MAX, ..usual },
            MrRequest { hca_va: start + 8, ..usual },
            // Nothing is mapped there.
            MrRequest { start: 4096, hca_va: 4096, ..usual },
            // A peer may not write what the device may not.
            MrRequest { access: Access::REMOTE_WRITE, ..usual },
            MrRequest { access: Access::REMOTE_ATOMIC, ..usual },
            MrRequest { access: Access::from_bits_retain(1 << 15), ..usual },
            MrRequest { access: Access::LOCAL_WRITE | Access::ON_DEMAND, ..usual },
            MrRequest { access: Access::LOCAL_WRITE | Access::FLUSH_GLOBAL, ..usual },
            // An optional one that nobody knows, and an address of its own: taken.
            MrRequest { access: Access::LOCAL_WRITE | Access::from_bits_retain(1 << 29), ..usual },
            MrRequest { start: start + 100, length: 1000, hca_va: 0x1_0000_0064, ..usual },
        ] {
            if let Ok(mr) = register(request) {
                drop(self.context.query_mr(mr.handle));
                drop(self.context.dereg_mr(mr.handle));
            }
        }
        let mr = register(usual).expect("a region").handle;
        let same = MrChange::default();
        for (mr, change) in [
            (mr, same),
            (MrHandle(NONE), MrChange { access: Some(Access::LOCAL_WRITE), ..same }),
            (mr, MrChange { pd: Some(PdHandle(NONE)), ..same }),
            (mr, MrChange { access: Some(Access::REMOTE_WRITE), ..same }),
            (mr, MrChange { translation: Some((start, 0, start)), ..same }),
            (mr, MrChange { translation: Some((start, 4096, start + 8)), ..same }),
            (mr, MrChange { translation: Some((start, 4096, start)), ..same }),
            (mr, MrChange { access: Some(Access::LOCAL_WRITE | Access::REMOTE_READ), ..same }),
            (
                mr,
                MrChange {
                    translation: Some((start, 8192, start)),
                    pd: Some(self.pd),
                    access: Some(Access::empty()),
                },
            ),
        ] {
            // SAFETY: the zone stays, and nothing names the region.
            drop(unsafe { self.context.rereg_mr(mr, &change, Driver::none()) });
        }
        drop(self.context.query_mr(mr));
        drop(self.context.query_mr(MrHandle(NONE)));
        let piece = Sge { addr: start, length: 4096, lkey: 0 };
        for (pd, advice, pieces) in [
            (self.pd, Advice::PREFETCH, &[piece][..]),
            (self.pd, Advice(99), &[piece][..]),
            (self.pd, Advice::PREFETCH, &[][..]),
            (PdHandle(NONE), Advice::PREFETCH, &[piece][..]),
        ] {
            drop(self.context.advise_mr(pd, advice, false, pieces));
        }
        drop(self.context.dealloc_pd(self.pd));
        drop(self.context.dereg_mr(mr));
        drop(self.context.dereg_mr(mr));
        // Windows.
        drop(self.context.alloc_mw(PdHandle(NONE), MwType::Type1, Driver::none()));
        for words in [
            AllocMw { num_klms: 3, ..AllocMw::default() },
            AllocMw { comp_mask: 1, ..AllocMw::default() },
            AllocMw { reserved1: 1, ..AllocMw::default() },
        ] {
            if let Ok(mw) =
                self.context.alloc_mw(self.pd, MwType::Type2, Driver::new(words.as_bytes(), &mut []))
            {
                drop(self.context.dealloc_mw(mw.handle));
            }
        }
        drop(self.context.dealloc_mw(MwHandle(NONE)));
    }

    fn device_memory(&self) {
        use pollux_mlx5_abi::kernel::attribute::alloc_dm as a;
        let alloc = |length, log_align| {
            self.context.alloc_dm(length, log_align, |call| {
                call.answer(a::RESP_START_OFFSET, 8).answer(a::RESP_PAGE_INDEX, 2);
            })
        };
        for (length, log_align) in [(0, 0), (1 << 40, 0), (64, 40)] {
            if let Ok((dm, _)) = alloc(length, log_align) {
                drop(self.context.free_dm(dm));
            }
        }
        let Ok((dm, _)) = alloc(100, 0) else { return };
        for (pd, dm, offset, length, access) in [
            (PdHandle(NONE), dm, 0, 64, Access::LOCAL_WRITE),
            (self.pd, DmHandle(NONE), 0, 64, Access::LOCAL_WRITE),
            (self.pd, dm, 64, 64, Access::LOCAL_WRITE),
            (self.pd, dm, u64::MAX, 64, Access::LOCAL_WRITE),
            (self.pd, dm, 0, 64, Access::LOCAL_WRITE | Access::MW_BIND),
            (self.pd, dm, 0, 64, Access::REMOTE_WRITE),
            (self.pd, dm, 0, 0, Access::LOCAL_WRITE),
        ] {
            if let Ok(mr) = self.context.reg_dm_mr(pd, dm, offset, length, access) {
                drop(self.context.dereg_mr(mr.handle));
            }
        }
        if let Ok(mr) = self.context.reg_dm_mr(self.pd, dm, 0, 64, Access::LOCAL_WRITE) {
            drop(self.context.free_dm(dm));
            let change = MrChange { access: Some(Access::empty()), ..MrChange::default() };
            // SAFETY: it is the device's memory.
            drop(unsafe { self.context.rereg_mr(mr.handle, &change, Driver::none()) });
            drop(self.context.dereg_mr(mr.handle));
        }
        drop(self.context.free_dm(dm));
        drop(self.context.free_dm(dm));
    }

    /// A completion queue of 64 entries, `change` being made to what is asked for.
    fn cq(&self, change: impl FnOnce(&mut CqRequest<'_>, &mut CreateCq)) -> Result<Cq, UverbsError> {
        let mut request =
            CqRequest { entries: 63, user_handle: 7, channel: None, vector: 0, flags: CqFlags::empty() };
        let mut words =
            CreateCq { buf_addr: self.ring(), db_addr: self.zone(4096), cqe_size: 64, ..CreateCq::default() };
        change(&mut request, &mut words);
        let mut answer = CreateCqAnswer::new_zeroed();
        self.context.create_cq(&request, Driver::new(words.as_bytes(), answer.as_mut_bytes()))
    }

    /// Room for 64 entries of 128 bytes, none of which is the software's.
    fn ring(&self) -> u64 {
        self.zone_filled(8192, |zone| {
            for at in (63..8192).step_by(64) {
                zone.copy_in(at, &[FRESH]);
            }
        })
    }

    /// The same, destroyed if it was made.
    fn try_cq(&self, change: impl FnOnce(&mut CqRequest<'_>, &mut CreateCq)) {
        if let Ok(cq) = self.cq(change) {
            drop(self.context.destroy_cq(cq.handle));
        }
    }

    fn completion_queues(&self) {
        self.try_cq(|request, _| request.entries = 0);
        self.try_cq(|request, _| request.entries = 1 << 24);
        self.try_cq(|request, _| request.entries = u32::MAX);
        self.try_cq(|request, _| request.vector = 999);
        self.try_cq(|request, _| request.flags = CqFlags::TIMESTAMP_COMPLETION);
        self.try_cq(|request, _| request.flags = CqFlags::IGNORE_OVERRUN);
        self.try_cq(|request, _| request.flags = CqFlags::from_bits_retain(1 << 5));
        self.try_cq(|_, words| words.cqe_size = 96);
        self.try_cq(|_, words| words.cqe_size = 128);
        self.try_cq(|_, words| words.buf_addr = 4096);
        self.try_cq(|_, words| words.buf_addr += 64);
        self.try_cq(|_, words| words.buf_addr += 8);
        self.try_cq(|_, words| words.db_addr = 4096);
        self.try_cq(|_, words| words.db_addr += 2);
        self.try_cq(|_, words| words.flags = 1 << 7);
        self.try_cq(|_, words| (words.cqe_comp_en, words.cqe_comp_res_format) = (1, 0));
        self.try_cq(|_, words| (words.cqe_comp_en, words.cqe_comp_res_format) = (1, 1));
        self.try_cq(|_, words| words.reserved1 = 1);
        let cq = self.cq(|_, _| {}).expect("a completion queue");
        let resize = |cq, entries, cqe_size, buf_addr| {
            let words = ResizeCq { buf_addr, cqe_size, ..ResizeCq::default() };
            drop(self.context.resize_cq(cq, entries, Driver::new(words.as_bytes(), &mut [])));
        };
        resize(cq.handle, 0, 64, self.ring());
        resize(cq.handle, u32::MAX, 64, self.ring());
        resize(cq.handle, 100, 32, self.ring());
        resize(cq.handle, 100, 64, 4096);
        resize(CqHandle(NONE), 100, 64, self.ring());
        resize(cq.handle, 63, 64, self.ring());
        drop(self.context.moderate_cq(CqHandle(NONE), 1, 1));
        drop(self.context.moderate_cq(cq.handle, u16::MAX, u16::MAX));
        drop(self.context.destroy_cq(cq.handle));
        drop(self.context.destroy_cq(cq.handle));
    }

    /// A queue pair with 16 blocks and 16 receives of two pieces, `change` being made to what is asked for.
    fn qp(
        &self,
        kind: QpType,
        cq: CqHandle,
        change: impl FnOnce(&mut QpRequest, &mut CreateQp),
    ) -> Result<Qp, UverbsError> {
        let cap =
            QpCap { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 2, max_inline_data: 0 };
        let mut request = QpRequest {
            send_cq: Some(cq),
            recv_cq: Some(cq),
            cap,
            user_handle: 9,
            ..QpRequest::new(kind, QpHome::Pd(self.pd))
        };
        let mut words = CreateQp {
            buf_addr: self.zone(8192),
            db_addr: self.zone(4096),
            sq_wqe_count: 16,
            rq_wqe_count: 16,
            rq_wqe_shift: 5,
            uidx: 9,
            sq_buf_addr: self.zone(4096),
            ..CreateQp::default()
        };
        change(&mut request, &mut words);
        let mut answer = CreateQpAnswer::new_zeroed();
        self.context.create_qp(&request, Driver::new(words.as_bytes(), answer.as_mut_bytes()))
    }

    fn queue_pairs(&self) {
        let cq = self.cq(|_, _| {}).expect("a completion queue").handle;
        let attempt = |kind, change: &dyn Fn(&mut QpRequest, &mut CreateQp)| {
            if let Ok(qp) = self.qp(kind, cq, change) {
                drop(self.context.query_qp(qp.handle, QpMask::all()));
                drop(self.context.destroy_qp(qp.handle));
            }
        };
        for kind in
            [QpType(0), QpType::GSI, QpType(5), QpType(77), QpType::XRC_TGT, QpType::XRC_INI, QpType::DRIVER]
        {
            attempt(kind, &|_, _| {});
        }
        let rc = |change: &dyn Fn(&mut QpRequest, &mut CreateQp)| attempt(QpType::RC, change);
        rc(&|request, _| request.home = QpHome::Pd(PdHandle(NONE)));
        rc(&|request, _| request.send_cq = Some(CqHandle(NONE)));
        rc(&|request, _| request.send_cq = None);
        rc(&|request, _| request.recv_cq = None);
        rc(&|request, _| request.srq = Some(SrqHandle(NONE)));
        rc(&|request, _| request.cap.max_send_wr = 1 << 20);
        rc(&|request, _| request.cap.max_recv_wr = 1 << 20);
        rc(&|request, _| request.cap.max_send_sge = 200);
        rc(&|request, _| request.cap.max_recv_sge = 200);
        rc(&|request, _| request.cap.max_inline_data = 5000);
        rc(&|request, _| request.cap.max_send_wr = 0);
        rc(&|request, _| request.cap.max_recv_wr = 0);
        rc(&|request, _| request.sq_sig_all = true);
        for bit in 0..13 {
            rc(&|request, _| request.flags = QpFlags::from_bits_retain(1 << bit));
        }
        attempt(QpType::UD, &|request, _| request.flags = QpFlags::BLOCK_MULTICAST_LOOPBACK);
        attempt(QpType::UD, &|request, _| request.source_qpn = Some(5));
        rc(&|_, words| words.sq_wqe_count = 15);
        rc(&|_, words| words.sq_wqe_count = 1 << 20);
        rc(&|_, words| words.rq_wqe_count = 15);
        rc(&|_, words| words.rq_wqe_count = 1 << 20);
        rc(&|_, words| words.rq_wqe_shift = 3);
        rc(&|_, words| words.rq_wqe_shift = 40);
        rc(&|_, words| words.buf_addr = 0);
        rc(&|_, words| words.buf_addr = 4096);
        rc(&|_, words| words.buf_addr += 64);
        rc(&|_, words| words.db_addr = 4096);
        rc(&|_, words| words.db_addr += 2);
        rc(&|_, words| words.uidx = 0);
        rc(&|_, words| words.uidx = 0xff_ffff);
        rc(&|_, words| words.uidx = 0x100_0000);
        for bit in 0..13 {
            rc(&|_, words| words.flags = 1 << bit);
        }
        rc(&|_, words| (words.flags, words.bfreg_index) = (1 << 3, 99));
        attempt(QpType::UD, &|_, words| words.flags = 1 << 8);
        attempt(QpType::RAW_PACKET, &|_, _| {});
        attempt(QpType::RAW_PACKET, &|_, words| words.sq_buf_addr = 4096);
        drop(self.context.destroy_qp(QpHandle(NONE)));
        drop(self.context.query_qp(QpHandle(NONE), QpMask::all()));
        drop(self.context.destroy_cq(cq));
    }

    /// What may not follow in the life of a queue pair.
    fn changes(&self) {
        let cq = self.cq(|_, _| {}).expect("a completion queue").handle;
        let qp = self.qp(QpType::RC, cq, |_, _| {}).expect("a queue pair");
        drop(self.context.destroy_cq(cq));
        let own = self.context.query_gid_table().expect("a table");
        let own = own
            .iter()
            .find(|gid| std::net::Ipv6Addr::from(gid.gid).to_ipv4_mapped().is_some())
            .expect("its GID");
        let ask = |mask: QpMask, values: ModifyQp| {
            drop(self.context.modify_qp(qp.handle, mask, &values, Driver::none()));
        };
        let to = |state: QpState| ModifyQp { qp_state: state.0, port_num: 1, ..ModifyQp::default() };
        let init = QpMask::STATE | QpMask::PKEY_INDEX | QpMask::PORT | QpMask::ACCESS_FLAGS;
        drop(self.context.modify_qp(QpHandle(NONE), init, &to(QpState::INIT), Driver::none()));
        ask(QpMask::STATE, to(QpState::RTR));
        ask(QpMask::STATE, to(QpState::RTS));
        ask(QpMask::STATE, to(QpState::INIT));
        ask(QpMask::STATE, to(QpState(9)));
        ask(init - QpMask::PORT, to(QpState::INIT));
        ask(init | QpMask::QKEY, to(QpState::INIT));
        ask(init | QpMask::CUR_STATE, ModifyQp { cur_qp_state: QpState::RTS.0, ..to(QpState::INIT) });
        ask(init, ModifyQp { port_num: 0, ..to(QpState::INIT) });
        ask(init, ModifyQp { port_num: 2, ..to(QpState::INIT) });
        ask(init, ModifyQp { pkey_index: 5, ..to(QpState::INIT) });
        ask(init, ModifyQp { qp_access_flags: 0xffff_ffff, ..to(QpState::INIT) });
        ask(init | QpMask::from_bits_retain(1 << 22), to(QpState::INIT));
        ask(init | QpMask::from_bits_retain(1 << 30), to(QpState::INIT));
        ask(QpMask::empty(), to(QpState::RESET));
        ask(init, to(QpState::INIT));
        ask(init, to(QpState::INIT));
        let rtr = QpMask::STATE
            | QpMask::AV
            | QpMask::PATH_MTU
            | QpMask::DEST_QPN
            | QpMask::RQ_PSN
            | QpMask::MAX_DEST_RD_ATOMIC
            | QpMask::MIN_RNR_TIMER;
        let dest = QpDest {
            dgid: own.gid,
            sgid_index: u8::try_from(own.index).expect("a small table"),
            hop_limit: 1,
            is_global: 1,
            port_num: 1,
            ..QpDest::default()
        };
        let usual = ModifyQp {
            dest,
            path_mtu: 3,
            dest_qp_num: qp.qpn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            ..to(QpState::RTR)
        };
        ask(rtr - QpMask::AV, usual);
        ask(rtr - QpMask::PATH_MTU, usual);
        ask(rtr, ModifyQp { dest: QpDest { port_num: 7, ..dest }, ..usual });
        ask(rtr, ModifyQp { dest: QpDest { sgid_index: 200, ..dest }, ..usual });
        ask(rtr, ModifyQp { dest: QpDest { is_global: 0, ..dest }, ..usual });
        ask(rtr, ModifyQp { dest: QpDest { static_rate: 200, ..dest }, ..usual });
        ask(rtr, ModifyQp { dest: QpDest { sl: 200, ..dest }, ..usual });
        ask(rtr, ModifyQp { dest: QpDest { dgid: [0; 16], ..dest }, ..usual });
        ask(rtr, ModifyQp { path_mtu: 0, ..usual });
        ask(rtr, ModifyQp { path_mtu: 9, ..usual });
        ask(rtr, ModifyQp { max_dest_rd_atomic: 200, ..usual });
        ask(rtr, ModifyQp { min_rnr_timer: 99, ..usual });
        ask(rtr | QpMask::ALT_PATH, ModifyQp { alt_dest: dest, alt_port_num: 7, ..usual });
        ask(rtr | QpMask::PKEY_INDEX, ModifyQp { pkey_index: 9, ..usual });
        ask(rtr, usual);
        let rts = QpMask::STATE
            | QpMask::TIMEOUT
            | QpMask::RETRY_CNT
            | QpMask::RNR_RETRY
            | QpMask::SQ_PSN
            | QpMask::MAX_QP_RD_ATOMIC;
        let usual =
            ModifyQp { timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1, ..to(QpState::RTS) };
        ask(rts - QpMask::TIMEOUT, usual);
        ask(rts, ModifyQp { max_rd_atomic: 200, ..usual });
        ask(rts, ModifyQp { retry_cnt: 8, ..usual });
        ask(rts, ModifyQp { rnr_retry: 8, ..usual });
        ask(rts, ModifyQp { timeout: 32, ..usual });
        ask(rts | QpMask::PATH_MIG_STATE, ModifyQp { path_mig_state: 2, ..usual });
        drop(self.context.query_qp(qp.handle, QpMask::all()));
        ask(rts, usual);
        ask(QpMask::STATE | QpMask::QKEY, to(QpState::RTS));
        drop(self.context.modify_qp_extended(
            qp.handle,
            QpMask::STATE,
            &to(QpState::RTS),
            Some(1000),
            Driver::none(),
        ));
        ask(
            QpMask::STATE | QpMask::EN_SQD_ASYNC_NOTIFY,
            ModifyQp { en_sqd_async_notify: 1, ..to(QpState::SQD) },
        );
        ask(QpMask::STATE, to(QpState::INIT));
        ask(QpMask::STATE, to(QpState::SQE));
        drop(self.context.query_qp(qp.handle, QpMask::empty()));
        ask(QpMask::STATE, to(QpState::ERR));
        ask(QpMask::STATE, to(QpState::RTS));
        drop(self.context.destroy_qp(qp.handle));
        drop(self.context.destroy_qp(qp.handle));
        drop(self.context.destroy_cq(cq));
    }

    /// Groups.
    fn groups(&self) {
        let cq = self.cq(|_, _| {}).expect("a completion queue").handle;
        let group = |first| {
            let mut gid = [0; 16];
            (gid[0], gid[15]) = (first, 9);
            gid
        };
        for kind in [QpType::RC, QpType::UD] {
            let qp = self.qp(kind, cq, |_, _| {}).expect("a queue pair").handle;
            drop(self.context.attach_mcast(qp, group(0xfe), 0xc001));
            drop(self.context.attach_mcast(qp, group(0xff), 0));
            drop(self.context.attach_mcast(qp, group(0xff), 0xc001));
            drop(self.context.destroy_qp(qp));
            drop(self.context.detach_mcast(qp, group(0xff), 0xc002));
            drop(self.context.detach_mcast(qp, group(0xff), 0));
            drop(self.context.detach_mcast(qp, group(0xff), 0xc001));
            drop(self.context.destroy_qp(qp));
        }
        drop(self.context.attach_mcast(QpHandle(NONE), group(0xff), 0xc001));
        drop(self.context.detach_mcast(QpHandle(NONE), group(0xff), 0xc001));
        drop(self.context.destroy_cq(cq));
    }

    /// A shared receive queue of 15 entries of one piece, `change` being made to what is asked for.
    fn srq(&self, change: impl FnOnce(&mut SrqRequest, &mut CreateSrq)) -> Result<Srq, UverbsError> {
        let mut request = SrqRequest {
            pd: self.pd,
            kind: SrqKind::Basic,
            max_wr: 15,
            max_sge: 1,
            limit: 0,
            user_handle: 5,
        };
        let mut words = CreateSrq {
            buf_addr: self.zone(4096),
            db_addr: self.zone(4096),
            uidx: 11,
            ..CreateSrq::default()
        };
        change(&mut request, &mut words);
        let mut answer = CreateSrqAnswer::new_zeroed();
        self.context.create_srq(&request, Driver::new(words.as_bytes(), answer.as_mut_bytes()))
    }

    fn shared_queues(&self) {
        let cq = self.cq(|_, _| {}).expect("a completion queue").handle;
        let attempt = |change: &dyn Fn(&mut SrqRequest, &mut CreateSrq)| {
            if let Ok(srq) = self.srq(change) {
                drop(self.context.query_srq(srq.handle));
                drop(self.context.destroy_srq(srq.handle));
            }
        };
        attempt(&|request, _| request.pd = PdHandle(NONE));
        attempt(&|request, _| request.max_wr = 0);
        attempt(&|request, _| request.max_wr = 1 << 20);
        attempt(&|request, _| request.max_wr = u32::MAX);
        attempt(&|request, _| request.max_sge = 0);
        attempt(&|request, _| request.max_sge = 5);
        attempt(&|request, _| request.max_sge = 200);
        attempt(&|request, _| request.limit = 100);
        attempt(&|request, _| request.kind = SrqKind::Xrc { xrcd: XrcdHandle(NONE), cq });
        attempt(&|request, _| request.kind = SrqKind::TagMatching { cq, max_tags: 4 });
        attempt(&|_, words| words.buf_addr = 4096);
        attempt(&|_, words| words.buf_addr += 64);
        attempt(&|_, words| words.db_addr = 4096);
        attempt(&|_, words| words.db_addr += 2);
        attempt(&|_, words| words.flags = 1);
        attempt(&|_, words| words.flags = 2);
        attempt(&|_, words| words.reserved0 = 1);
        attempt(&|_, words| words.reserved1 = 1);
        attempt(&|_, words| words.uidx = 0x100_0000);
        let srq = self.srq(|_, _| {}).expect("a shared queue").handle;
        let modify = |srq, max_wr, limit| drop(self.context.modify_srq(srq, max_wr, limit, Driver::none()));
        modify(SrqHandle(NONE), None, Some(1));
        modify(srq, None, None);
        modify(srq, Some(100), None);
        modify(srq, None, Some(15));
        modify(srq, None, Some(16));
        modify(srq, None, Some(1000));
        drop(self.context.query_srq(srq));
        drop(self.context.query_srq(SrqHandle(NONE)));
        if let Ok(qp) = self.qp(QpType::UD, cq, |request, words| {
            (request.srq, request.cap.max_recv_wr, request.cap.max_recv_sge) = (Some(srq), 0, 0);
            (words.rq_wqe_count, words.rq_wqe_shift) = (0, 0);
        }) {
            drop(self.context.destroy_srq(srq));
            drop(self.context.destroy_qp(qp.handle));
        }
        drop(self.context.destroy_srq(srq));
        drop(self.context.destroy_srq(srq));
        drop(self.context.destroy_cq(cq));
    }

    fn addresses(&self) {
        let own = self.context.query_gid_table().expect("a table");
        let own = own
            .iter()
            .find(|gid| std::net::Ipv6Addr::from(gid.gid).to_ipv4_mapped().is_some())
            .expect("its GID");
        let grh = GlobalRoute {
            dgid: own.gid,
            sgid_index: u8::try_from(own.index).expect("a small table"),
            hop_limit: 1,
            ..GlobalRoute::default()
        };
        let usual = AhAttr { grh, is_global: 1, port_num: 1, ..AhAttr::default() };
        for (pd, attributes) in [
            (PdHandle(NONE), usual),
            (self.pd, AhAttr { port_num: 0, ..usual }),
            (self.pd, AhAttr { port_num: 9, ..usual }),
            (self.pd, AhAttr { is_global: 0, ..usual }),
            (self.pd, AhAttr { grh: GlobalRoute { sgid_index: 200, ..grh }, ..usual }),
            (self.pd, AhAttr { grh: GlobalRoute { dgid: [0; 16], ..grh }, ..usual }),
            (self.pd, AhAttr { static_rate: 200, ..usual }),
            (self.pd, AhAttr { static_rate: 3, ..usual }),
            (self.pd, AhAttr { sl: 200, ..usual }),
            (self.pd, AhAttr { dlid: 7, src_path_bits: 3, ..usual }),
        ] {
            let mut answer = CreateAhAnswer::new_zeroed();
            if let Ok(ah) = self.context.create_ah(pd, &attributes, Driver::new(&[], answer.as_mut_bytes())) {
                drop(self.context.dealloc_pd(self.pd));
                drop(self.context.destroy_ah(ah));
            }
        }
        // Without room for the driver's answer.
        if let Ok(ah) = self.context.create_ah(self.pd, &usual, Driver::none()) {
            drop(self.context.destroy_ah(ah));
        }
        drop(self.context.destroy_ah(AhHandle(NONE)));
    }

    fn xrc(&self) {
        let file = tempfile::tempfile().expect("a file");
        let open = |request: XrcdRequest<'_>| self.context.open_xrcd(&request, Driver::none());
        let of_file = XrcdRequest { file: Some(file.as_fd()), create: true, exclusive: false };
        drop(open(XrcdRequest { create: false, ..of_file }));
        let xrcd = open(of_file).expect("a domain");
        drop(open(XrcdRequest { exclusive: true, ..of_file }));
        if let Ok(same) = open(XrcdRequest { create: false, ..of_file }) {
            drop(self.context.close_xrcd(same));
        }
        let cq = self.cq(|_, _| {}).expect("a completion queue").handle;
        drop(self.context.open_qp(xrcd, 0x1234, QpType::XRC_TGT, 0, Driver::none()));
        drop(self.context.open_qp(XrcdHandle(NONE), 0x1234, QpType::XRC_TGT, 0, Driver::none()));
        let receiver = |kind, change: &dyn Fn(&mut QpRequest)| {
            let mut request = QpRequest::new(kind, QpHome::Xrcd(xrcd));
            change(&mut request);
            let mut answer = CreateQpAnswer::new_zeroed();
            let words = CreateQp { uidx: 3, ..CreateQp::default() };
            let words = Driver::new(words.as_bytes(), answer.as_mut_bytes());
            self.context.create_qp(&request, words)
        };
        for (kind, change) in [
            (QpType::RC, &(|_: &mut QpRequest| {}) as &dyn Fn(&mut QpRequest)),
            (QpType::XRC_TGT, &|request| request.home = QpHome::Xrcd(XrcdHandle(NONE))),
            (QpType::XRC_TGT, &|request| request.send_cq = Some(cq)),
            (QpType::XRC_TGT, &|request| request.cap.max_recv_wr = 4),
        ] {
            if let Ok(qp) = receiver(kind, change) {
                drop(self.context.destroy_qp(qp.handle));
            }
        }
        if let Ok(qp) = receiver(QpType::XRC_TGT, &|_| {}) {
            drop(self.context.close_xrcd(xrcd));
            drop(self.context.open_qp(xrcd, qp.qpn, QpType::RC, 0, Driver::none()));
            drop(self.context.attach_mcast(qp.handle, [0xff; 16], 0xc001));
            drop(self.context.destroy_qp(qp.handle));
        }
        drop(self.context.close_xrcd(xrcd));
        drop(self.context.close_xrcd(xrcd));
        drop(self.context.close_xrcd(XrcdHandle(NONE)));
        drop(self.context.destroy_cq(cq));
    }
}
