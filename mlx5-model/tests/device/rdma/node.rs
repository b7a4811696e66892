//! Two devices with addresses, and queue pairs between them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, DestroyMkeyIn, MkeyContext, access_mode};
use pollux_mlx5_abi::command::qp::context::{AddressPath, QpContext, receive, service};
use pollux_mlx5_abi::command::qp::{CreateQpIn, QpIn, QueryQpOut, TransitionIn};
use pollux_mlx5_abi::command::vport::{RoceAddress, SetRoceAddressIn, roce_l3, roce_version};
use pollux_mlx5_abi::command::{Refused, opcode as op};
use pollux_mlx5_abi::cqe::Cqe64;
use pollux_mlx5_abi::wqe::{AddressVector, Completion, Control, Data, EXTENDED_UD_AV, GRH_PRESENT};
use pollux_mlx5_model::time::{Clock, STEP};
use pollux_mlx5_model::wire::{Cable, Impaired, Impairments, Sent, Wire};
use pollux_mlx5_model::{DeviceConfig, Traits};
use zerocopy::IntoBytes;

use crate::rig::{Cq, HCA_DELTA, Hand, Rig, Rq, Sq, number};

/// A device with an address.
pub(crate) struct Node {
    pub(crate) rig: Rig,
    pub(crate) mac: [u8; 6],
    pub(crate) gid: [u8; 16],
}

/// Two of them on a cable, and their time.
pub(crate) struct Ends {
    pub(crate) a: Node,
    pub(crate) b: Node,
    pub(crate) clock: Clock,
    /// Frames that come to each device out of nothing.
    injected: [Arc<Mutex<VecDeque<Vec<u8>>>>; 2],
}

/// What a queue pair is.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) service: u32,
    /// Code of the path's MTU: 1 is 256 bytes, 5 is 4096.
    pub(crate) mtu: u32,
    pub(crate) psn: u32,
    /// Local ACK timeout, retries, retries when nothing is posted, the peer's timer for that.
    pub(crate) timeout: u32,
    pub(crate) retries: u32,
    pub(crate) rnr_retries: u32,
    pub(crate) rnr_timer: u32,
    /// Reads and atomics under way, as logarithm.
    pub(crate) log_reads: u32,
    /// Remote write, read, atomics.
    pub(crate) rights: [bool; 3],
    /// Pool in place of a receive ring.
    pub(crate) pool: Option<u32>,
    pub(crate) xrc_domain: u32,
    pub(crate) qkey: u32,
    /// Options of its connection that it asks for; 0: none.
    pub(crate) options: u32,
    /// Fast registration, which the kernel has for its own queue pairs.
    pub(crate) registers: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            service: service::RC,
            mtu: 3,
            psn: 0xff_fff0,
            timeout: 5,
            retries: 7,
            rnr_retries: 7,
            rnr_timer: 1,
            log_reads: 2,
            rights: [true; 3],
            pool: None,
            xrc_domain: 0,
            qkey: 0x1122,
            options: 0,
            registers: false,
        }
    }
}

impl Plan {
    /// A queue pair of the kernel's own.
    pub(crate) fn of_kernel() -> Self {
        Self { registers: true, ..Self::default() }
    }
}

/// A queue pair, its rings, its completion queues.
pub(crate) struct Pair {
    pub(crate) number: u32,
    pub(crate) plan: Plan,
    pub(crate) sq: Sq,
    pub(crate) rq: Rq,
    pub(crate) send_cq: Cq,
    pub(crate) receive_cq: Cq,
}

pub(crate) const LOG_RING: u8 = 8;
pub(crate) const USER_INDEX: u32 = 0x77;

impl Node {
    fn new(config: DeviceConfig, plug: Box<dyn Wire>, ip: [u8; 4]) -> Self {
        let mac = config.mac;
        let rig = Rig::on(config, plug, Hand::default());
        let mut gid = [0; 16];
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&ip);
        let node = Self { rig, mac, gid };
        node.address(0, gid, None);
        node
    }

    /// Writes an entry of the table of addresses.
    pub(crate) fn address(&self, index: u32, gid: [u8; 16], vlan: Option<u32>) {
        let mut input = SetRoceAddressIn::ZERO;
        SetRoceAddressIn::ROCE_ADDRESS_INDEX.set(&mut input, index);
        let block = SetRoceAddressIn::ROCE_ADDRESS.of_mut(&mut input);
        RoceAddress::SOURCE_L3_ADDRESS.set(block, gid);
        RoceAddress::ROCE_VERSION.set(block, roce_version::V2);
        let l3 = if gid[10] == 0xff { roce_l3::IPV4 } else { roce_l3::IPV6 };
        RoceAddress::ROCE_L3_TYPE.set(block, l3);
        let mac = self.mac.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        RoceAddress::SOURCE_MAC.set(block, mac);
        if let Some(vlan) = vlan {
            RoceAddress::VLAN_VALID.set(block, 1);
            RoceAddress::VLAN_ID.set(block, vlan);
        }
        self.rig.must(op::SET_ROCE_ADDRESS, 0, &mut input, 16);
    }

    /// A key for `bytes` bytes at `at` of the process, which is [`HCA_DELTA`] lower than the key has it.
    pub(crate) fn key(&self, at: u64, bytes: u64, change: impl FnOnce(&mut [u8; MkeyContext::BYTES])) -> u32 {
        let mut context = MkeyContext::ZERO;
        MkeyContext::ACCESS_MODE_1_0.set(&mut context, access_mode::MTT);
        for right in [MkeyContext::LR, MkeyContext::LW, MkeyContext::RR, MkeyContext::RW, MkeyContext::A] {
            right.set(&mut context, 1);
        }
        MkeyContext::QPN.set(&mut context, 0xff_ffff);
        MkeyContext::MKEY_7_0.set(&mut context, 0x42);
        MkeyContext::PD.set(&mut context, self.rig.pd);
        MkeyContext::START_ADDR.set(&mut context, at + HCA_DELTA);
        MkeyContext::LEN.set(&mut context, bytes);
        MkeyContext::LOG_PAGE_SIZE.set(&mut context, 12);
        let first = at & !0xfff;
        let count = (at + bytes - first).div_ceil(4096);
        MkeyContext::TRANSLATIONS_OCTWORD_SIZE.set(&mut context, count.div_ceil(2) as u32);
        change(&mut context);
        let mut input = CreateMkeyIn::ZERO.to_vec();
        let head: &mut [u8; CreateMkeyIn::BYTES] = input.first_chunk_mut().expect("a command");
        CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(head, context);
        CreateMkeyIn::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(head, count.div_ceil(2) as u32);
        input.extend((0..count).flat_map(|page| (first + page * 4096).to_be_bytes()));
        input.resize(input.len().next_multiple_of(16), 0);
        number(&self.rig.must(op::CREATE_MKEY, 0, &mut input, 16)) << 8 | 0x42
    }

    /// A key of pieces, without any yet: a window, or what a pattern is laid over.
    pub(crate) fn key_of_pieces(&self, can_be_invalidated: bool) -> u32 {
        let mut context = MkeyContext::ZERO;
        for (field, value) in [
            (MkeyContext::FREE, 1),
            (MkeyContext::UMR_EN, 1),
            (MkeyContext::LR, 1),
            (MkeyContext::ACCESS_MODE_1_0, access_mode::KLM),
            (MkeyContext::EN_RINVAL, can_be_invalidated.into()),
            (MkeyContext::QPN, 0xff_ffff),
            (MkeyContext::PD, self.rig.pd),
            (MkeyContext::TRANSLATIONS_OCTWORD_SIZE, 4),
        ] {
            field.set(&mut context, value);
        }
        let mut input = CreateMkeyIn::ZERO.to_vec();
        CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(input.first_chunk_mut().expect("a command"), context);
        number(&self.rig.must(op::CREATE_MKEY, 0, &mut input, 16)) << 8
    }

    pub(crate) fn destroy_key(&self, key: u32) {
        let mut input = DestroyMkeyIn::ZERO;
        DestroyMkeyIn::MKEY_INDEX.set(&mut input, key >> 8);
        self.rig.must(op::DESTROY_MKEY, 0, &mut input, 16);
    }

    /// Events on queues that came: what, and of which queue.
    pub(crate) fn events(&self) -> Vec<(u8, u32)> {
        std::iter::from_fn(|| self.rig.event())
            .map(|entry| (entry.kind, u32::from_be_bytes(entry.data[24..].try_into().expect("4 bytes"))))
            .collect()
    }

    /// A queue pair in RESET.
    pub(crate) fn pair(&self, plan: Plan) -> Pair {
        self.pair_with(plan, |_| {})
    }

    pub(crate) fn pair_with(&self, plan: Plan, change: impl FnOnce(&mut [u8; QpContext::BYTES])) -> Pair {
        self.pair_as(0, plan, change).expect("a queue pair")
    }

    /// The same of a user context.
    pub(crate) fn pair_as(
        &self,
        uid: u16,
        plan: Plan,
        change: impl FnOnce(&mut [u8; QpContext::BYTES]),
    ) -> Result<Pair, Refused> {
        use QpContext as Q;
        let (send_cq, receive_cq) = (self.rig.cq(9), self.rig.cq(9));
        let log_bytes = 6;
        let receive_bytes = if plan.pool.is_some() { 0 } else { 1 << (LOG_RING + log_bytes) };
        let bytes = receive_bytes + (64 << LOG_RING);
        let (ring, record) = (self.rig.room(bytes), self.rig.room(64));
        let mut context = Q::ZERO;
        Q::ST.set(&mut context, plan.service);
        Q::PD.set(&mut context, self.rig.pd);
        Q::UAR_PAGE.set(&mut context, self.rig.uar);
        Q::LOG_SQ_SIZE.set(&mut context, LOG_RING.into());
        Q::CQN_SND.set(&mut context, send_cq.number);
        Q::CQN_RCV.set(&mut context, receive_cq.number);
        Q::USER_INDEX.set(&mut context, USER_INDEX);
        Q::DBR_ADDR.set(&mut context, record);
        Q::XRCD.set(&mut context, plan.xrc_domain);
        Q::FRE.set(&mut context, plan.registers.into());
        match plan.pool {
            Some(pool) => {
                Q::RQ_TYPE.set(&mut context, receive::SRQ);
                Q::SRQN_RMPN_XRQN.set(&mut context, pool);
            }
            None => {
                Q::LOG_RQ_SIZE.set(&mut context, LOG_RING.into());
                Q::LOG_RQ_STRIDE.set(&mut context, u32::from(log_bytes) - 4);
            }
        }
        change(&mut context);
        let mut input = CreateQpIn::ZERO.to_vec();
        CreateQpIn::QPC.set(input.first_chunk_mut().expect("a command"), context);
        let pages = (bytes as u64).div_ceil(4096);
        input.extend((0..pages).flat_map(|page| (ring + page * 4096).to_be_bytes()));
        let number = number(&self.rig.command_as(uid, op::CREATE_QP, &mut input, 16)?);
        Ok(Pair {
            number,
            plan,
            sq: Sq::at(number, ring + receive_bytes as u64, record, LOG_RING),
            rq: Rq { number, ring, record, log: LOG_RING, log_bytes, posted: 0 },
            send_cq,
            receive_cq,
        })
    }

    /// One transition.
    pub(crate) fn transit(
        &self,
        opcode: u16,
        number: u32,
        mask: u32,
        change: impl FnOnce(&mut [u8; QpContext::BYTES]),
    ) -> Result<Vec<u8>, Refused> {
        self.transit_with(opcode, number, (mask, 0), change)
    }

    /// The same with options of the connection beside the mask.
    pub(crate) fn transit_with(
        &self,
        opcode: u16,
        number: u32,
        (mask, options): (u32, u32),
        change: impl FnOnce(&mut [u8; QpContext::BYTES]),
    ) -> Result<Vec<u8>, Refused> {
        let mut input = TransitionIn::ZERO;
        TransitionIn::ECE.set(&mut input, options);
        TransitionIn::QPN.set(&mut input, number);
        TransitionIn::OPT_PARAM_MASK.set(&mut input, mask);
        change(TransitionIn::QPC.of_mut(&mut input));
        self.rig.command(opcode, 0, &mut input, 16)
    }

    /// 2ERR, 2RST or DESTROY.
    pub(crate) fn end(&self, opcode: u16, number: u32) -> Result<Vec<u8>, Refused> {
        let mut input = QpIn::ZERO;
        QpIn::QPN.set(&mut input, number);
        self.rig.command(opcode, 0, &mut input, 16)
    }

    pub(crate) fn query(&self, number: u32) -> [u8; QpContext::BYTES] {
        let mut input = QpIn::ZERO;
        QpIn::QPN.set(&mut input, number);
        let out = self.rig.must(op::QUERY_QP, 0, &mut input, QueryQpOut::BYTES);
        QueryQpOut::QPC.get(out.first_chunk().expect("an answer"))
    }

    pub(crate) fn state(&self, number: u32) -> u32 {
        QpContext::STATE.get(&self.query(number))
    }

    /// From RESET to RTS, with a peer.
    pub(crate) fn connect(&self, pair: &Pair, peer: &Node, peer_number: u32, peer_plan: &Plan) {
        self.connect_by(pair, peer, peer_number, peer_plan, |_| {});
    }

    pub(crate) fn connect_by(
        &self,
        pair: &Pair,
        peer: &Node,
        peer_number: u32,
        peer_plan: &Plan,
        path: impl FnOnce(&mut [u8; AddressPath::BYTES]),
    ) {
        self.to_init(pair);
        self.to_receive(pair, peer, peer_number, peer_plan, path);
        self.to_send(pair);
    }

    /// The same with a set of counters, which comes with the first transition.
    pub(crate) fn connect_counted(&self, pair: &Pair, peer: &Node, number: u32, plan: &Plan, set: u32) {
        self.to_init_with(pair, set);
        self.to_receive(pair, peer, number, plan, |_| {});
        self.to_send(pair);
    }

    pub(crate) fn to_init(&self, pair: &Pair) {
        self.to_init_with(pair, 0);
    }

    fn to_init_with(&self, pair: &Pair, set: u32) {
        use QpContext as Q;
        let plan = pair.plan;
        self.transit(op::RST2INIT_QP, pair.number, 0, |context| {
            AddressPath::VHCA_PORT_NUM.set(Q::PRIMARY_ADDRESS_PATH.of_mut(context), 1);
            Q::PM_STATE.set(context, 3);
            Q::COUNTER_SET_ID.set(context, set);
            Q::RWE.set(context, plan.rights[0].into());
            Q::RRE.set(context, plan.rights[1].into());
            Q::RAE.set(context, plan.rights[2].into());
            Q::Q_KEY.set(context, plan.qkey);
        })
        .expect("to INIT");
    }

    pub(crate) fn to_receive(
        &self,
        pair: &Pair,
        peer: &Node,
        peer_number: u32,
        peer_plan: &Plan,
        path: impl FnOnce(&mut [u8; AddressPath::BYTES]),
    ) {
        use QpContext as Q;
        let plan = pair.plan;
        self.transit_with(op::INIT2RTR_QP, pair.number, (0, plan.options), |context| {
            let way = Q::PRIMARY_ADDRESS_PATH.of_mut(context);
            AddressPath::RGID_RIP.set(way, peer.gid);
            AddressPath::RMAC.set(way, peer.mac.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)));
            AddressPath::HOP_LIMIT.set(way, 64);
            path(way);
            Q::MTU.set(context, plan.mtu);
            Q::LOG_MSG_MAX.set(context, 30);
            Q::REMOTE_QPN.set(context, peer_number);
            Q::NEXT_RCV_PSN.set(context, peer_plan.psn);
            Q::LOG_RRA_MAX.set(context, plan.log_reads);
            Q::MIN_RNR_NAK.set(context, plan.rnr_timer);
        })
        .expect("to RTR");
    }

    pub(crate) fn to_send(&self, pair: &Pair) {
        use QpContext as Q;
        let plan = pair.plan;
        self.transit(op::RTR2RTS_QP, pair.number, 0, |context| {
            AddressPath::ACK_TIMEOUT.set(Q::PRIMARY_ADDRESS_PATH.of_mut(context), plan.timeout);
            Q::NEXT_SEND_PSN.set(context, plan.psn);
            Q::RETRY_COUNT.set(context, plan.retries);
            Q::RNR_RETRY.set(context, plan.rnr_retries);
            Q::LOG_SRA_MAX.set(context, plan.log_reads);
            Q::LOG_ACK_REQ_FREQ.set(context, 8);
        })
        .expect("to RTS");
    }
}

impl Pair {
    /// Writes an entry; the doorbell is the caller's.
    pub(crate) fn post(&mut self, node: &Node, opcode: u8, flags: u8, imm: u32, body: &[u8]) {
        let segments = 1 + body.len().div_ceil(16);
        let control = Control::new(opcode, 0, self.sq.next, self.number, segments as u8, flags, imm);
        self.sq.write_raw(&node.rig, &control, body);
    }

    /// Writes an entry that completes, and rings.
    pub(crate) fn send(&mut self, node: &Node, opcode: u8, body: &[u8]) {
        self.post(node, opcode, Completion::Always as u8, 0xabcd, body);
        self.sq.ring(&node.rig);
    }

    /// Posts a receive entry of one piece of memory.
    pub(crate) fn receive(&mut self, node: &Node, key: u32, at: u64, bytes: u32) {
        self.rq.post(&node.rig, &[Data::new(bytes, key, at + HCA_DELTA), Data::new(0, 0x100, 0)]);
    }

    #[track_caller]
    pub(crate) fn done(&mut self, node: &Node) -> Cqe64 {
        self.send_cq.poll(&node.rig).expect("a completion of the sender")
    }

    #[track_caller]
    pub(crate) fn came(&mut self, node: &Node) -> Cqe64 {
        self.receive_cq.poll(&node.rig).expect("a completion of the receiver")
    }
}

/// A segment for memory of the process.
pub(crate) fn data(key: u32, at: u64, bytes: u32) -> Vec<u8> {
    Data::new(bytes, key, at + HCA_DELTA).as_bytes().to_vec()
}

/// Segments for the peer's memory.
pub(crate) fn remote(key: u32, at: u64) -> Vec<u8> {
    pollux_mlx5_abi::wqe::RemoteAddress::new(at + HCA_DELTA, key).as_bytes().to_vec()
}

/// A wire whose frames, both ways, are written down.
#[derive(Debug)]
struct Spy(Cable, Arc<Mutex<Vec<Vec<u8>>>>, Arc<Mutex<VecDeque<Vec<u8>>>>);

impl Wire for Spy {
    fn poll(&mut self) {
        self.0.poll();
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        let sent = self.0.send(frame);
        if sent == Sent::Yes {
            self.1.lock().expect("whole").push(frame.to_vec());
        }
        sent
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        // What a test puts there.
        if let Some(frame) = self.2.lock().expect("whole").pop_front() {
            room[..frame.len()].copy_from_slice(&frame);
            return Some(frame.len());
        }
        let bytes = self.0.receive(room)?;
        self.1.lock().expect("whole").push(room[..bytes].to_vec());
        Some(bytes)
    }

    fn is_up(&self) -> bool {
        self.0.is_up()
    }

    fn waits(&self) -> bool {
        self.0.waits()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

impl Ends {
    pub(crate) fn new() -> Self {
        Self::with(Impairments::default(), |_| {})
    }

    /// What is on the cable is written down.
    pub(crate) fn watched() -> (Self, Arc<Mutex<Vec<Vec<u8>>>>) {
        Self::watched_with(|_| {})
    }

    /// The same of other cards.
    pub(crate) fn watched_with(change: impl Fn(&mut Traits)) -> (Self, Arc<Mutex<Vec<Vec<u8>>>>) {
        let (one, two) = Cable::pair();
        let frames = Arc::default();
        let injected = <[Arc<Mutex<VecDeque<Vec<u8>>>>; 2]>::default();
        // Each frame is seen by both; one writes them down.
        let first = Spy(one, Arc::clone(&frames), Arc::clone(&injected[0]));
        let second = Spy(two, Arc::default(), Arc::clone(&injected[1]));
        let mut ends = Self::on(Box::new(first), Box::new(second), Clock::stepped(), change);
        ends.injected = injected;
        (ends, frames)
    }

    pub(crate) fn with(impairments: Impairments, change: impl Fn(&mut Traits)) -> Self {
        let clock = Clock::stepped();
        let (one, two) = Cable::pair();
        let one: Box<dyn Wire> = if impairments.is_none() {
            Box::new(one)
        } else {
            Box::new(Impaired::new(Box::new(one), impairments, &clock))
        };
        Self::on(one, Box::new(two), clock, change)
    }

    fn on(one: Box<dyn Wire>, two: Box<dyn Wire>, clock: Clock, change: impl Fn(&mut Traits)) -> Self {
        let mut traits = Traits::default();
        change(&mut traits);
        let config =
            |mac| DeviceConfig { mac, mtu: 4200, traits, clock: clock.clone(), ..DeviceConfig::default() };
        Self {
            a: Node::new(config([2, 0, 0, 0, 0, 0xa]), one, [10, 0, 0, 1]),
            b: Node::new(config([2, 0, 0, 0, 0, 0xb]), two, [10, 0, 0, 2]),
            clock,
            injected: Default::default(),
        }
    }

    /// A frame comes to the device that it is addressed to. Only where the cable is watched.
    pub(crate) fn inject(&self, frame: Vec<u8>) {
        let side = usize::from(frame[..6] == self.b.mac);
        self.injected[side].lock().expect("whole").push_back(frame);
    }

    /// An XRC domain of both, where the service needs one; they have the same number.
    pub(crate) fn domain(&self, service: u32) -> u32 {
        if service != service::XRC {
            return 0;
        }
        let [a, b] =
            [&self.a, &self.b].map(|node| number(&node.rig.must(op::ALLOC_XRCD, 0, &mut [0; 16], 16)));
        assert_eq!(a, b);
        a
    }

    /// One step of both.
    pub(crate) fn step(&self) {
        self.clock.advance(STEP);
        Arc::clone(&self.a.rig.device).step(64);
        Arc::clone(&self.b.rig.device).step(64);
    }

    /// So many steps.
    pub(crate) fn steps(&self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Two queue pairs that know each other.
    pub(crate) fn connected(&self, plan: Plan) -> (Pair, Pair) {
        let (a, b) = (self.a.pair(plan), self.b.pair(plan));
        self.a.connect(&a, &self.b, b.number, &plan);
        self.b.connect(&b, &self.a, a.number, &plan);
        (a, b)
    }
}

/// The address of a datagram.
pub(crate) fn vector(to: &Node, number: u32, qkey: u32) -> Vec<u8> {
    vector_to(to.mac, to.gid, number, qkey)
}

pub(crate) fn vector_to(rmac: [u8; 6], rgid: [u8; 16], number: u32, qkey: u32) -> Vec<u8> {
    let vector = AddressVector {
        key: (u64::from(qkey) << 32).into(),
        dqp_dct: (EXTENDED_UD_AV | number).into(),
        rlid: 0xc0de.into(),
        rmac,
        hop_limit: 64,
        grh_gid_fl: GRH_PRESENT.into(),
        rgid,
        ..AddressVector::default()
    };
    vector.as_bytes().to_vec()
}
