//! Queue pairs in a hostile driver's hand: RC, UC, UD and XRC, with their own rings, a pool, a pool of XRC and a memory window. They
//! send to each other inside the device, so that what one writes the other has to bear.

use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext, access_mode};
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::qp::context::{AddressPath, QpContext as Q, receive, service};
use pollux_mlx5_abi::command::qp::{CreateQpIn, TransitionIn};
use pollux_mlx5_abi::command::srq::{CreateSrqIn, CreateXrcSrqIn, SrqContext, XrcSrqContext};
use pollux_mlx5_abi::command::vport::{RoceAddress, SetRoceAddressIn, roce_l3, roce_version};
use pollux_mlx5_abi::field::mac_value;
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{
    self, AddressVector, Data, EXTENDED_UD_AV, GRH_PRESENT, INLINE, MkeyContext as Bound, RemoteAddress,
    UmrControl,
};
use zerocopy::IntoBytes;

use super::{DATA, DATA_BYTES, Hostile, RECORDS, RINGS};

/// Logarithm of a ring's entries, 64 bytes each, and bytes from one pair's rings to the next's: receive, then send.
const LOG: u32 = 4;
const RING: u64 = 64 << LOG;
const STRIDE: u64 = 0x1000;
const GID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];

/// What was made.
#[derive(Debug, Default)]
pub(super) struct Rdma {
    /// Number, service and place.
    pairs: Vec<(u32, u32, u64)>,
    /// The block behind the last that was posted, of each.
    posted: [u16; 10],
    /// Ring and record of pools.
    pools: Vec<(u64, u64)>,
    xrc_pool: u32,
    key: u32,
    window: u32,
    mac: [u8; 6],
}

impl Hostile {
    fn key(&mut self, domain: u32, change: impl FnOnce(&mut [u8; MkeyContext::BYTES]), pages: &[u64]) -> u32 {
        let mut context = MkeyContext::ZERO;
        MkeyContext::QPN.set(&mut context, 0xff_ffff);
        MkeyContext::PD.set(&mut context, domain);
        MkeyContext::LR.set(&mut context, 1);
        change(&mut context);
        let mut input = CreateMkeyIn::ZERO.to_vec();
        if let Some(head) = input.first_chunk_mut() {
            CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(head, context);
            CreateMkeyIn::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(head, pages.len().div_ceil(2) as u32);
        }
        input.extend(pages.iter().flat_map(|page| page.to_be_bytes()));
        input.resize(input.len().next_multiple_of(16), 0);
        self.number(op::CREATE_MKEY, &mut input) << 8
    }

    /// Makes it all, and connects it.
    pub(super) fn start_rdma(&mut self, domain: u32, cq: u32) -> Rdma {
        let mut rdma = Rdma { mac: self.guest.function.device().mac(), ..Rdma::default() };
        let mut input = SetRoceAddressIn::ZERO;
        let block = SetRoceAddressIn::ROCE_ADDRESS.of_mut(&mut input);
        RoceAddress::SOURCE_L3_ADDRESS.set(block, GID);
        RoceAddress::ROCE_VERSION.set(block, roce_version::V2);
        RoceAddress::ROCE_L3_TYPE.set(block, roce_l3::IPV4);
        let mac = mac_value(rdma.mac);
        RoceAddress::SOURCE_MAC.set(block, mac);
        self.command(op::SET_ROCE_ADDRESS, &mut input, 16);

        let pages: Vec<u64> = (0..DATA_BYTES / 4096).map(|page| DATA + page * 4096).collect();
        rdma.key = self.key(
            domain,
            |context| {
                MkeyContext::ACCESS_MODE_1_0.set(context, access_mode::MTT);
                for right in [MkeyContext::LW, MkeyContext::RR, MkeyContext::RW, MkeyContext::A] {
                    right.set(context, 1);
                }
                MkeyContext::START_ADDR.set(context, DATA);
                MkeyContext::LEN.set(context, DATA_BYTES);
                MkeyContext::LOG_PAGE_SIZE.set(context, 12);
                MkeyContext::TRANSLATIONS_OCTWORD_SIZE.set(context, (DATA_BYTES / 4096).div_ceil(2) as u32);
            },
            &pages,
        );
        rdma.window = self.key(
            domain,
            |context| {
                for (field, value) in [
                    (MkeyContext::FREE, 1),
                    (MkeyContext::UMR_EN, 1),
                    (MkeyContext::ACCESS_MODE_1_0, access_mode::KLM),
                    (MkeyContext::EN_RINVAL, 1),
                    (MkeyContext::TRANSLATIONS_OCTWORD_SIZE, 4),
                ] {
                    field.set(context, value);
                }
            },
            &[],
        );

        let xrc_domain = self.number(op::ALLOC_XRCD, &mut [0; 16]);
        let place = |index: u64| (RINGS + index * STRIDE, RECORDS + 0x100 + index * 64);
        let (ring, record) = place(0);
        let mut input = CreateSrqIn::ZERO;
        let context = CreateSrqIn::SRQ_CONTEXT_ENTRY.of_mut(&mut input);
        SrqContext::PD.set(context, domain);
        SrqContext::DBR_ADDR.set(context, record);
        SrqContext::LOG_SRQ_SIZE.set(context, LOG);
        SrqContext::LOG_RQ_STRIDE.set(context, 2);
        let pool = self.number(op::CREATE_SRQ, &mut [&input[..], &ring.to_be_bytes()].concat());
        rdma.pools.push((ring, record));
        let (ring, record) = place(1);
        let mut input = CreateXrcSrqIn::ZERO;
        let context = CreateXrcSrqIn::XRC_SRQ_CONTEXT_ENTRY.of_mut(&mut input);
        XrcSrqContext::PD.set(context, domain);
        XrcSrqContext::XRCD.set(context, xrc_domain);
        XrcSrqContext::CQN.set(context, cq);
        XrcSrqContext::DBR_ADDR_4.set(context, record >> 2);
        XrcSrqContext::LOG_XRC_SRQ_SIZE.set(context, LOG);
        XrcSrqContext::LOG_RQ_STRIDE.set(context, 2);
        rdma.xrc_pool = self.number(op::CREATE_XRC_SRQ, &mut [&input[..], &ring.to_be_bytes()].concat());
        rdma.pools.push((ring, record));

        // Two of each, for each other; of the second two of RC one has the pool.
        let services = [
            service::RC,
            service::RC,
            service::RC,
            service::RC,
            service::UC,
            service::UC,
            service::XRC,
            service::XRC,
        ];
        for (index, kind) in services.into_iter().chain([service::UD, service::UD]).enumerate() {
            let (ring, record) = place(2 + index as u64);
            let mut context = Q::ZERO;
            Q::ST.set(&mut context, kind);
            Q::PD.set(&mut context, domain);
            Q::UAR_PAGE.set(&mut context, self.uar);
            Q::LOG_SQ_SIZE.set(&mut context, LOG);
            Q::CQN_SND.set(&mut context, cq);
            Q::CQN_RCV.set(&mut context, cq);
            Q::DBR_ADDR.set(&mut context, record);
            Q::FRE.set(&mut context, 1);
            match (kind, index) {
                (service::XRC, _) => {
                    Q::XRCD.set(&mut context, xrc_domain);
                    Q::RQ_TYPE.set(&mut context, receive::SRQ);
                    Q::SRQN_RMPN_XRQN.set(&mut context, rdma.xrc_pool);
                }
                (_, 2) => {
                    Q::RQ_TYPE.set(&mut context, receive::SRQ);
                    Q::SRQN_RMPN_XRQN.set(&mut context, pool);
                }
                _ => {
                    Q::LOG_RQ_SIZE.set(&mut context, LOG);
                    Q::LOG_RQ_STRIDE.set(&mut context, 2);
                }
            }
            let mut input = CreateQpIn::ZERO;
            CreateQpIn::QPC.set(&mut input, context);
            let number = self.number(op::CREATE_QP, &mut [&input[..], &ring.to_be_bytes()].concat());
            rdma.pairs.push((number, kind, ring));
        }
        for index in 0..rdma.pairs.len() {
            self.connect(&rdma, index);
        }
        rdma
    }

    fn connect(&mut self, rdma: &Rdma, index: usize) {
        let (number, _, _) = rdma.pairs[index];
        let peer = rdma.pairs[index ^ 1].0;
        let mut step = |code: u16, change: &dyn Fn(&mut [u8; Q::BYTES])| {
            let mut input = TransitionIn::ZERO;
            TransitionIn::QPN.set(&mut input, number);
            change(TransitionIn::QPC.of_mut(&mut input));
            self.command(code, &mut input, 16);
        };
        step(op::RST2INIT_QP, &|context| {
            AddressPath::VHCA_PORT_NUM.set(Q::PRIMARY_ADDRESS_PATH.of_mut(context), 1);
            Q::PM_STATE.set(context, 3);
            for right in [Q::RWE, Q::RRE, Q::RAE] {
                right.set(context, 1);
            }
            Q::Q_KEY.set(context, 0x1122);
        });
        step(op::INIT2RTR_QP, &|context| {
            let path = Q::PRIMARY_ADDRESS_PATH.of_mut(context);
            AddressPath::RGID_RIP.set(path, GID);
            AddressPath::RMAC.set(path, mac_value(rdma.mac));
            AddressPath::HOP_LIMIT.set(path, 64);
            Q::MTU.set(context, 1);
            Q::LOG_MSG_MAX.set(context, 30);
            Q::REMOTE_QPN.set(context, peer);
            Q::LOG_RRA_MAX.set(context, 2);
            Q::MIN_RNR_NAK.set(context, 1);
        });
        step(op::RTR2RTS_QP, &|context| {
            AddressPath::ACK_TIMEOUT.set(Q::PRIMARY_ADDRESS_PATH.of_mut(context), 3);
            Q::RETRY_COUNT.set(context, 3);
            Q::RNR_RETRY.set(context, 3);
            Q::LOG_SRA_MAX.set(context, 2);
            Q::LOG_ACK_REQ_FREQ.set(context, 8);
        });
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next() % limit
    }

    /// A place in the memory that the key is for, or nearly.
    fn place(&mut self) -> u64 {
        if self.below(16) == 0 { self.random.next() } else { DATA + self.below(DATA_BYTES + 64) }
    }

    fn data(&mut self) -> Data {
        let bytes = match self.below(8) {
            0 => self.random.next() as u32,
            1 => INLINE | self.below(64) as u32,
            _ => self.below(600) as u32,
        };
        let key = match self.below(16) {
            0 => self.random.next() as u32,
            1 => self.rdma.window,
            _ => self.rdma.key,
        };
        Data { byte_count: bytes.into(), ..Data::new(0, key, self.place()) }
    }

    /// An entry of a queue pair that is right in most of it, with its record and doorbell or in a BlueFlame buffer; entries of
    /// its peer's ring or of the pools to receive into.
    pub(super) fn post_request(&mut self) {
        let pick = self.below(self.rdma.pairs.len() as u64) as usize;
        let (number, kind, ring) = self.rdma.pairs[pick];
        let opcode = match self.below(10) {
            0 => self.random.next() as u8,
            1 => send::UMR,
            2 => send::LOCAL_INVAL,
            more => [
                send::SEND,
                send::SEND_IMM,
                send::RDMA_WRITE,
                send::RDMA_WRITE_IMM,
                send::RDMA_READ,
                send::ATOMIC_CS,
                send::SEND_INVAL,
            ][more as usize - 3],
        };
        let mut body = Vec::new();
        if kind == service::XRC {
            let pool = if self.below(8) == 0 { self.random.next() as u32 } else { self.rdma.xrc_pool };
            body.extend(pool.to_be_bytes());
            body.resize(16, 0);
        }
        if kind == service::UD {
            let vector = AddressVector {
                key: 0x1122_0000_0000.into(),
                dqp_dct: (EXTENDED_UD_AV | self.rdma.pairs[pick ^ 1].0).into(),
                rmac: self.rdma.mac,
                hop_limit: 64,
                grh_gid_fl: GRH_PRESENT.into(),
                rgid: GID,
                ..AddressVector::default()
            };
            body.extend(vector.as_bytes());
        }
        match opcode {
            send::UMR => {
                body.extend(
                    UmrControl { mkey_mask: self.random.next().into(), ..UmrControl::default() }.as_bytes(),
                );
                let bound = Bound { qpn_mkey: (self.random.next() as u32).into(), ..Bound::default() };
                body.extend(bound.as_bytes());
            }
            send::RDMA_WRITE | send::RDMA_WRITE_IMM | send::RDMA_READ | send::ATOMIC_CS => {
                let key = if self.below(8) == 0 { self.rdma.window } else { self.rdma.key };
                body.extend(RemoteAddress::new(self.place(), key).as_bytes());
            }
            _ => {}
        }
        if opcode == send::ATOMIC_CS {
            body.extend(self.bytes()[..16].iter());
            body.extend(Data::new(8, self.rdma.key, DATA + 64).as_bytes());
        } else {
            for _ in 0..self.below(3) {
                body.extend(self.data().as_bytes());
            }
        }
        body.truncate(64 * 3 - 16);
        // A byte of it that is not as it should be.
        if self.below(4) == 0 && !body.is_empty() {
            let at = self.below(body.len() as u64) as usize;
            body[at] = self.random.next() as u8;
        }
        // Where the ring stands is what the driver remembers; this one remembers badly.
        let slots = 1_u16 << LOG;
        let next = &mut self.rdma.posted[pick];
        let index = if self.random.next().is_multiple_of(16) { self.random.next() as u16 } else { *next };
        let segments = 1 + body.len().div_ceil(16);
        let blocks = wqe::blocks(segments);
        let end = index.wrapping_add(blocks as u16);
        *next = end;
        let mut bytes = vec![0; blocks * 64];
        bytes[..4].copy_from_slice(&(u32::from(index) << 8 | u32::from(opcode)).to_be_bytes());
        bytes[4..8].copy_from_slice(&(number << 8 | segments as u32).to_be_bytes());
        bytes[11] = 8;
        bytes[12..16].copy_from_slice(&if opcode == send::LOCAL_INVAL || opcode == send::SEND_INVAL {
            self.rdma.window.to_be_bytes()
        } else {
            [0; 4]
        });
        bytes[16..16 + body.len()].copy_from_slice(&body);
        let record = RECORDS + 0x100 + (2 + pick as u64) * 64;
        for (block, part) in bytes.chunks(64).enumerate() {
            let slot = index.wrapping_add(block as u16) & (slots - 1);
            self.guest
                .put(ring + RING * u64::from(kind != service::XRC && pick != 2) + u64::from(slot) * 64, part);
        }
        self.guest.put(record + 4, &u32::from(end).to_be_bytes());
        // Something to receive into, at the peer and in the pools.
        let receive = self.data();
        let peer = self.rdma.pairs[pick ^ 1].2;
        let mut rings = vec![(peer, RECORDS + 0x100 + (2 + (pick ^ 1) as u64) * 64)];
        rings.extend(self.rdma.pools.iter().copied());
        let slot = self.below(slots.into());
        for (ring, record) in rings {
            self.guest.put(ring + slot * 64 + 16, receive.as_bytes());
            let posted = self.below(u64::from(slots) * 2) as u32;
            self.guest.put(record, &posted.to_be_bytes());
        }
        let register = u64::from(self.uar) * 4096 + 0x800 + self.below(2) * 0x100;
        if self.below(2) == 0 {
            self.guest.function.bar_write(register, &bytes[..8]);
        } else {
            for (part, eight) in bytes.chunks(8).enumerate().take(32) {
                self.guest.function.bar_write(register + part as u64 * 8, eight);
            }
        }
    }
}
