//! Datagrams, groups, and packets that come back to their own device.

use pollux_mlx5_abi::command::group::AttachToMcgIn;
use pollux_mlx5_abi::command::qp::context::{AddressPath, QpContext, service};
use pollux_mlx5_abi::command::vport::{NicVportContext, QueryNicVportContextIn, QueryNicVportContextOut};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::opcode::{completion, send};

use super::fuzz::seal;
use super::node::{Ends, Node, Pair, Plan, data, vector};

/// Of a frame without a tag, over IPv4.
const PARTITION: usize = 14 + 20 + 8 + 2;

pub(crate) const UD: Plan = Plan {
    service: service::UD,
    mtu: 3,
    psn: 5,
    timeout: 0,
    retries: 0,
    rnr_retries: 0,
    rnr_timer: 0,
    log_reads: 0,
    rights: [false; 3],
    pool: None,
    xrc_domain: 0,
    qkey: 0x1122,
    options: 0,
    registers: false,
};

fn join(node: &Node, opcode: u16, number: u32, gid: [u8; 16]) -> Result<Vec<u8>, u8> {
    let mut input = AttachToMcgIn::ZERO;
    AttachToMcgIn::QPN.set(&mut input, number);
    AttachToMcgIn::MULTICAST_GID.set(&mut input, gid);
    node.rig.command(opcode, 0, &mut input, 16).map_err(|refused| refused.status)
}

#[test]
fn a_datagram_comes_with_the_header_that_brought_it() {
    for six in [false, true] {
        let mut ends = Ends::new();
        if six {
            for (node, last) in [(&mut ends.a, 1), (&mut ends.b, 2)] {
                node.gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
                node.address(0, node.gid, Some(9));
            }
        }
        let (mut a, mut b) = ends.connected(UD);
        let (from, to) = (ends.a.rig.room(4096), ends.b.rig.room(4096));
        ends.a.rig.write(from, b"a datagram");
        b.receive(&ends.b, ends.b.rig.lkey, to, 4096);
        let mut body = vector(&ends.b, b.number, 0x1122);
        body.extend(data(ends.a.rig.lkey, from, 10));
        a.send(&ends.a, send::SEND_IMM, &body);
        ends.steps(5);
        a.done(&ends.a);
        let came = b.came(&ends.b);
        assert_eq!((came.opcode(), came.byte_cnt.get()), (completion::RESPONDER_SEND_IMM, 50));
        let flags = came.flags_rqpn.get();
        assert_eq!(
            (flags & 0xff_ffff, flags >> 28 & 3, flags >> 24 & 3),
            (a.number, 1, if six { 1 } else { 2 })
        );
        let seen = ends.b.rig.read(to, 50);
        assert_eq!(&seen[40..], b"a datagram");
        if six {
            assert_eq!((seen[0] >> 4, &seen[8..24], &seen[24..40]), (6, &ends.a.gid[..], &ends.b.gid[..]));
        } else {
            assert_eq!(
                (seen[20], &seen[32..36], &seen[36..40]),
                (0x45, &[10, 0, 0, 1][..], &[10, 0, 0, 2][..])
            );
        }
        // Another key, another queue pair: nobody is told.
        for (number, key) in [(b.number, 7), (b.number + 100, 0x1122)] {
            b.receive(&ends.b, ends.b.rig.lkey, to, 4096);
            let mut body = vector(&ends.b, number, key);
            body.extend(data(ends.a.rig.lkey, from, 10));
            a.send(&ends.a, send::SEND, &body);
            ends.steps(5);
            a.done(&ends.a);
            assert!(b.receive_cq.poll(&ends.b.rig).is_none());
        }
        // A queue pair that is not there has no key.
        assert_eq!([&ends.a, &ends.b].map(violations), [0, 1]);
    }
}

/// Datagrams that came with a wrong key, as the port tells.
fn violations(node: &Node) -> u32 {
    let mut input = QueryNicVportContextIn::ZERO;
    let said = node.rig.must(op::QUERY_NIC_VPORT_CONTEXT, 0, &mut input, QueryNicVportContextOut::BYTES);
    let said: &[u8; QueryNicVportContextOut::BYTES] = said.first_chunk().expect("whole");
    NicVportContext::QKEY_VIOLATION_COUNTER.get(QueryNicVportContextOut::NIC_VPORT_CONTEXT.of(said))
}

/// The port is in the default partition, with full membership: of that partition both kinds of members reach it, of another none.
#[test]
fn only_members_of_the_partition_are_heard() {
    for (partition, is_heard) in
        [(0xffff_u16, true), (0x7fff, true), (0xfffe, false), (0x8000, false), (0, false)]
    {
        let (ends, frames) = Ends::watched();
        let (mut a, mut b) = ends.connected(UD);
        let (from, to) = (ends.a.rig.room(4096), ends.b.rig.room(4096));
        let mut body = vector(&ends.b, b.number, 0x1122);
        body.extend(data(ends.a.rig.lkey, from, 10));
        a.send(&ends.a, send::SEND, &body);
        // Without a receive it is dropped; the same comes again in the partition.
        ends.steps(5);
        a.done(&ends.a);
        let mut frame = frames.lock().expect("whole").last().expect("a datagram").clone();
        b.receive(&ends.b, ends.b.rig.lkey, to, 4096);
        frame[PARTITION..PARTITION + 2].copy_from_slice(&partition.to_be_bytes());
        seal(&mut frame);
        ends.inject(frame);
        ends.steps(5);
        let came = b.receive_cq.poll(&ends.b.rig);
        assert_eq!(came.is_some(), is_heard, "{partition:#x}");
        assert_eq!(violations(&ends.b), 0, "{partition:#x}");
    }
}

/// The kernel's connection manager answers in the partition that the completion names; with immediate data it stands there.
#[test]
fn a_datagram_without_immediate_data_names_its_partition() {
    for service in [service::UD, service::QP1] {
        let ends = Ends::new();
        // Queue pair 1 knows one key alone.
        let qkey = if service == service::QP1 { 0x8001_0000 } else { 0x1122 };
        let plan = Plan { service, qkey, ..UD };
        let (mut a, mut b) = ends.connected(plan);
        let (from, to) = (ends.a.rig.room(4096), ends.b.rig.room(4096));
        b.receive(&ends.b, ends.b.rig.lkey, to, 4096);
        let mut body = vector(&ends.b, b.number, qkey);
        body.extend(data(ends.a.rig.lkey, from, 10));
        a.send(&ends.a, send::SEND, &body);
        ends.steps(5);
        a.done(&ends.a);
        assert_eq!(b.came(&ends.b).imm_inval_pkey.get(), 0xffff, "the default partition, service {service}");
    }
}

#[test]
fn a_datagram_longer_than_a_packet_is_refused_here() {
    let ends = Ends::new();
    let (mut a, b) = ends.connected(UD);
    let mut body = vector(&ends.b, b.number, 0x1122);
    body.extend(data(ends.a.rig.lkey, ends.a.rig.room(4096), 1025));
    a.send(&ends.a, send::SEND, &body);
    ends.steps(3);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, 1);
}

#[test]
fn a_group_is_all_that_joined() {
    let ends = Ends::new();
    let pairs: Vec<Pair> = (0..2).map(|_| ends.b.pair(UD)).collect();
    let own = ends.a.pair(UD);
    let blocked = ends.a.pair_with(UD, |context| QpContext::BLOCK_LB_MC.set(context, 1));
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&[239, 1, 2, 3]);
    let group = Node2 { gid, mac: [1, 0, 0x5e, 1, 2, 3] };
    let mut all: Vec<(&Node, Pair)> = pairs.into_iter().map(|pair| (&ends.b, pair)).collect();
    all.push((&ends.a, own));
    all.push((&ends.a, blocked));
    for (node, pair) in &mut all {
        node.to_init(pair);
        node.to_receive(pair, &ends.b, 0, &UD, |_| {});
        node.to_send(pair);
        join(node, op::ATTACH_TO_MCG, pair.number, gid).expect("a group");
        assert_eq!(join(node, op::ATTACH_TO_MCG, pair.number, gid), Err(status::BAD_PARAM_ERR));
        let at = node.rig.room(4096);
        pair.receive(node, node.rig.lkey, at, 4096);
    }
    let from = ends.a.rig.room(64);
    let sender = all.len() - 1;
    let mut body = group.vector();
    body.extend(data(ends.a.rig.lkey, from, 10));
    all[sender].1.send(&ends.a, send::SEND, &body);
    ends.steps(5);
    for (index, (node, pair)) in all.iter_mut().enumerate() {
        let came = pair.receive_cq.poll(&node.rig);
        assert_eq!(came.is_some(), index != sender, "member {index}");
    }
    join(&ends.b, op::DETACH_FROM_MCG, all[0].1.number, gid).expect("a member");
    assert_eq!(join(&ends.b, op::DETACH_FROM_MCG, all[0].1.number, gid), Err(status::BAD_RES_ERR));
    assert_eq!(join(&ends.b, op::ATTACH_TO_MCG, all[0].1.number, ends.b.gid), Err(status::BAD_PARAM_ERR));
}

struct Node2 {
    gid: [u8; 16],
    mac: [u8; 6],
}

impl Node2 {
    fn vector(&self) -> Vec<u8> {
        super::node::vector_to(self.mac, self.gid, 0xff_ffff, 0x1122)
    }
}

#[test]
fn a_device_speaks_to_itself() {
    let ends = Ends::new();
    let plan = Plan::default();
    let (mut one, mut two) = (ends.a.pair(plan), ends.a.pair(plan));
    ends.a.connect(&one, &ends.a, two.number, &plan);
    ends.a.connect_by(&two, &ends.a, one.number, &plan, |path| AddressPath::HOP_LIMIT.set(path, 1));
    let (from, to) = (ends.a.rig.room(8192), ends.a.rig.room(8192));
    ends.a.rig.write(from, &[7; 5000]);
    two.receive(&ends.a, ends.a.rig.lkey, to, 8192);
    one.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, from, 5000));
    ends.steps(10);
    one.done(&ends.a);
    assert_eq!(two.came(&ends.a).byte_cnt.get(), 5000);
    assert_eq!(ends.a.rig.read(to, 5000), [7; 5000]);
    assert_eq!(ends.a.rig.device.port_counters().sent.all().packets, 0, "nothing is on the wire");
}
