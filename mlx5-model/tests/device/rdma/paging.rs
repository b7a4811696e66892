//! Keys over pages that are not there: work waits until the host brings them.

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::{QueryHcaCapOut, kind};
use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext as M, access_mode};
use pollux_mlx5_abi::command::{Refused, opcode as op};
use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::paging::{self, Fault};
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_abi::wqe::copy;
use pollux_mlx5_abi::wqe::{MkeyContext, UmrControl, mkey_access, mkey_mask as mask, umr_flag};
use pollux_mlx5_kernel::CommandQueue;
use pollux_mlx5_model::Traits;
use pollux_mlx5_model::wire::Impairments;
use zerocopy::{FromBytes, IntoBytes};

use super::local::copying;
use super::node::{Ends, Node, Pair, Plan, data, remote};
use crate::rig::{HCA_DELTA, number};

const PAGE: u64 = 4096;

fn ends() -> Ends {
    Ends::with(Impairments::default(), |traits: &mut Traits| traits.on_demand_paging = true)
}

/// Writes entries of a key's translation, eight at a time; pages without rights are not there.
fn enter(pair: &mut Pair, node: &Node, key: u32, fields: u64, context: MkeyContext, pages: [u64; 8]) {
    let list: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
    let control = UmrControl {
        flags: umr_flag::INLINE,
        klm_octowords: 4.into(),
        mkey_mask: fields.into(),
        ..UmrControl::default()
    };
    let mut body = control.as_bytes().to_vec();
    body.extend(context.as_bytes());
    body.extend(list);
    pair.post(node, send::UMR, 2 << 2, key, &body);
    pair.sq.ring(&node.rig);
}

/// A key for eight pages of which none is there.
pub(crate) fn empty(ends: &Ends, pair: &mut Pair, node: &Node, at: u64) -> u32 {
    let mut context = M::ZERO;
    for (field, value) in [
        (M::FREE, 1),
        (M::UMR_EN, 1),
        (M::ACCESS_MODE_1_0, access_mode::MTT),
        (M::QPN, 0xff_ffff),
        (M::PD, node.rig.pd),
        (M::LOG_PAGE_SIZE, 12),
        (M::TRANSLATIONS_OCTWORD_SIZE, 4),
    ] {
        field.set(&mut context, value);
    }
    let mut input = CreateMkeyIn::ZERO.to_vec();
    CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(input.first_chunk_mut().expect("a command"), context);
    let key = number(&node.rig.must(op::CREATE_MKEY, 0, &mut input, 16)) << 8;
    let fields =
        mask::FREE | mask::LEN | mask::START_ADDR | mask::LR | mask::LW | mask::RR | mask::RW | mask::A;
    let context = MkeyContext {
        access_flags: mkey_access::LOCAL_READ
            | mkey_access::LOCAL_WRITE
            | mkey_access::REMOTE_READ
            | mkey_access::REMOTE_WRITE
            | mkey_access::ATOMIC,
        start_addr: (at + HCA_DELTA).into(),
        len: (8 * PAGE).into(),
        ..MkeyContext::default()
    };
    enter(pair, node, key, fields, context, [0; 8]);
    ends.steps(3);
    pair.done(node);
    key
}

/// The pages are there from now on.
fn fill(ends: &Ends, pair: &mut Pair, node: &Node, key: u32, at: u64) {
    fill_with(ends, pair, node, key, at, paging::PRESENT);
}

fn fill_with(ends: &Ends, pair: &mut Pair, node: &Node, key: u32, at: u64, rights: u64) {
    let pages = std::array::from_fn(|index| (at + index as u64 * PAGE) | rights);
    enter(pair, node, key, 0, MkeyContext::default(), pages);
    ends.steps(3);
    pair.done(node);
}

/// What the device asks for, if it does.
pub(crate) fn question(node: &Node) -> Option<Fault> {
    let asked = std::iter::from_fn(|| node.rig.event()).find(|entry| entry.kind == event::PAGE_FAULT)?;
    assert_eq!(asked.sub_type, paging::SUB_TYPE);
    Some(Fault::read_from_bytes(&asked.data).expect("28 bytes"))
}

fn answer(node: &Node, fault: &Fault, refused: bool) -> Result<Vec<u8>, Refused> {
    let mut input = [0; 16];
    paging::RESUME_ERROR.set(&mut input, refused.into());
    paging::RESUME_TOKEN_47_32.set(&mut input, fault.token47_32.get().into());
    paging::RESUME_TOKEN_31_0.set(&mut input, fault.token31_0.get());
    node.rig.command(op::PAGE_FAULT_RESUME, 0, &mut input, 16)
}

/// Pages that lie in a row, at the beginning of one.
pub(crate) fn pages(node: &Node) -> u64 {
    node.rig.room(9 * PAGE as usize).next_multiple_of(PAGE)
}

#[test]
fn work_waits_for_pages_on_either_side() {
    for opcode in [send::SEND, send::RDMA_WRITE, send::RDMA_READ, send::ATOMIC_FA] {
        for far in [false, true] {
            let ends = ends();
            let (mut a, mut b) = ends.connected(Plan::of_kernel());
            let (mut helper_a, mut helper_b) = ends.connected(Plan::of_kernel());
            let (here, there) = (pages(&ends.a), pages(&ends.b));
            let bytes: u32 = if opcode == send::ATOMIC_FA { 8 } else { 3 * PAGE as u32 };
            let (mut here_key, mut there_key) = (ends.a.rig.lkey, ends.b.key(there, 8 * PAGE, |_| {}));
            let (node, helper, at) =
                if far { (&ends.b, &mut helper_b, there) } else { (&ends.a, &mut helper_a, here) };
            let key = empty(&ends, helper, node, at);
            *(if far { &mut there_key } else { &mut here_key }) = key;
            let content: Vec<u8> = (0..bytes).map(|index| (index % 253) as u8 + 1).collect();
            let fetches = matches!(opcode, send::RDMA_READ | send::ATOMIC_FA);
            let (from, to) = if fetches { (there, here) } else { (here, there) };
            let (from_node, to_node) = if fetches { (&ends.b, &ends.a) } else { (&ends.a, &ends.b) };
            from_node.rig.write(from + 256, &content);
            let mut body = Vec::new();
            if opcode == send::SEND {
                b.receive(&ends.b, there_key, there + 256, bytes);
            } else {
                body.extend(remote(there_key, there + 256));
            }
            if opcode == send::ATOMIC_FA {
                body.extend([0; 16]);
            }
            body.extend(data(here_key, here + 256, bytes));
            a.send(&ends.a, opcode, &body);
            ends.steps(20);
            let what = format!("{opcode:#x}, far: {far}");
            assert!(a.send_cq.poll(&ends.a.rig).is_none(), "{what}: it waits");
            let fault = question(node).unwrap_or_else(|| panic!("{what}: nobody is asked"));
            assert_eq!((fault.mkey.get(), fault.flags), (key, paging::LAST), "{what}");
            assert!(fault.va.get() <= at + HCA_DELTA + 256 && fault.va.get().is_multiple_of(PAGE), "{what}");
            assert!(fault.demand_fault_pages.get() >> paging::LOG_PAGE >= 1, "{what}");
            fill(&ends, helper, node, key, at);
            answer(node, &fault, false).expect("an answer");
            assert!(answer(node, &fault, false).is_err(), "{what}: it was answered");
            // What came back too early is asked for again when it is late.
            ends.steps(3000);
            assert_eq!(a.done(&ends.a).send_opcode(), opcode, "{what}");
            assert_eq!(to_node.rig.read(to + 256, bytes as usize), content, "{what}");
        }
    }
}

#[test]
fn a_page_that_may_only_be_read_is_asked_for_to_be_written() {
    let ends = ends();
    let (mut a, mut b) = ends.connected(Plan::of_kernel());
    let (mut helper, _other) = ends.connected(Plan::of_kernel());
    let (here, there) = (pages(&ends.a), pages(&ends.b));
    let key = empty(&ends, &mut helper, &ends.a, here);
    // As Linux has pages that nobody wrote to: one of zeros for all.
    fill_with(&ends, &mut helper, &ends.a, key, here, paging::READ);
    let there_key = ends.b.key(there, PAGE, |_| {});
    b.receive(&ends.b, there_key, there, 64);
    a.send(&ends.a, send::SEND, &data(key, here, 64));
    ends.steps(20);
    a.done(&ends.a);
    assert!(question(&ends.a).is_none(), "it is there to be read");
    ends.b.rig.write(there, &[9; 64]);
    a.send(&ends.a, send::RDMA_READ, &[remote(there_key, there), data(key, here, 64)].concat());
    ends.steps(20);
    assert_eq!(ends.a.rig.read(here, 64), [0; 64], "nothing was written");
    let fault = question(&ends.a).expect("a question");
    fill(&ends, &mut helper, &ends.a, key, here);
    answer(&ends.a, &fault, false).expect("an answer");
    ends.steps(3000);
    a.done(&ends.a);
    assert_eq!(ends.a.rig.read(here, 64), [9; 64]);
}

#[test]
fn what_does_not_come_fails_the_work() {
    let ends = ends();
    let (mut a, _b) = ends.connected(Plan::of_kernel());
    let (mut helper, _other) = ends.connected(Plan::of_kernel());
    let here = pages(&ends.a);
    let key = empty(&ends, &mut helper, &ends.a, here);
    a.send(&ends.a, send::SEND, &data(key, here, 64));
    ends.steps(5);
    let fault = question(&ends.a).expect("a question");
    answer(&ends.a, &fault, true).expect("an answer");
    ends.steps(5);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::LOCAL_PROT_ERR);
}

#[test]
fn the_same_is_asked_once() {
    let ends = ends();
    let (mut a, _b) = ends.connected(Plan::of_kernel());
    let (mut c, _d) = ends.connected(Plan::of_kernel());
    let (mut helper, _other) = ends.connected(Plan::of_kernel());
    let here = pages(&ends.a);
    let key = empty(&ends, &mut helper, &ends.a, here);
    for pair in [&mut a, &mut c] {
        pair.send(&ends.a, send::RDMA_WRITE, &[remote(1, 0), data(key, here, 64)].concat());
    }
    ends.steps(5);
    let fault = question(&ends.a).expect("a question");
    assert!(question(&ends.a).is_none());
    answer(&ends.a, &fault, true).expect("an answer");
    ends.steps(5);
    for pair in [&mut a, &mut c] {
        assert_eq!(pair.send_cq.error(&ends.a.rig).syndrome().code, S::LOCAL_PROT_ERR, "both were told");
    }
}

#[test]
fn what_is_refused_fails_its_own_work_alone() {
    let ends = ends();
    let (mut a, mut b) = ends.connected(Plan::of_kernel());
    let (mut helper, _other) = ends.connected(Plan::of_kernel());
    let (from, to, there) = (pages(&ends.a), pages(&ends.a), ends.b.rig.room(4096));
    let from_key = empty(&ends, &mut helper, &ends.a, from);
    let to_key = empty(&ends, &mut helper, &ends.a, to);
    let peer = ends.b.key(there, 4096, |_| {});
    // It waits as a sender and as a receiver.
    a.send(&ends.a, send::RDMA_WRITE, &[remote(peer, there), data(from_key, from, 64)].concat());
    ends.steps(5);
    let sends = question(&ends.a).expect("a question");
    a.receive(&ends.a, to_key, to, 64);
    b.send(&ends.b, send::SEND, &data(ends.b.rig.lkey, there, 64));
    ends.steps(5);
    let receives = question(&ends.a).expect("a question");
    assert_ne!(sends.mkey, receives.mkey);
    answer(&ends.a, &receives, true).expect("an answer");
    ends.steps(20);
    assert_eq!(a.receive_cq.error(&ends.a.rig).syndrome().code, S::LOCAL_PROT_ERR);
    assert!(a.send_cq.error(&ends.a.rig).syndrome().is_flush(), "nobody refused what it sends");
}

#[test]
fn what_is_answered_after_a_reset_is_nobodys() {
    let ends = ends();
    let plan = Plan::default();
    let (mut a, b) = ends.connected(plan);
    let (mut helper, _other) = ends.connected(Plan::of_kernel());
    let here = pages(&ends.a);
    let key = empty(&ends, &mut helper, &ends.a, here);
    let peer = ends.b.rig.lkey;
    let body = [remote(peer, here), data(key, here, 64)].concat();
    a.send(&ends.a, send::RDMA_WRITE, &body);
    ends.steps(5);
    let before = question(&ends.a).expect("a question");
    ends.a.end(op::TO_RST_QP, a.number).expect("from any state");
    a.sq.next = 0;
    a.sq.write_record(&ends.a.rig);
    ends.a.connect(&a, &ends.b, b.number, &plan);
    answer(&ends.a, &before, true).expect("an answer");
    a.send(&ends.a, send::RDMA_WRITE, &body);
    ends.steps(5);
    let again = question(&ends.a).expect("another question");
    assert!(a.send_cq.poll(&ends.a.rig).is_none(), "it waits");
    answer(&ends.a, &again, true).expect("an answer");
    ends.steps(5);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::LOCAL_PROT_ERR);
}

#[test]
fn copies_wait_for_pages() {
    for refused in [false, true] {
        let ends = ends();
        let (mut a, _b) = ends.connected(Plan::of_kernel());
        let (mut helper, _other) = ends.connected(Plan::of_kernel());
        let (from, to) = (pages(&ends.a), ends.a.rig.room(4096));
        let key = empty(&ends, &mut helper, &ends.a, from);
        copying(&mut a, &ends.a, copy::MODIFIER, (from, key), (to, ends.a.rig.lkey), 64);
        ends.steps(5);
        let fault = question(&ends.a).expect("a question");
        assert!(a.send_cq.poll(&ends.a.rig).is_none(), "it waits");
        ends.a.rig.write(from, &[9; 64]);
        if !refused {
            fill(&ends, &mut helper, &ends.a, key, from);
        }
        answer(&ends.a, &fault, refused).expect("an answer");
        ends.steps(5);
        if refused {
            assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::LOCAL_PROT_ERR);
        } else {
            assert_eq!(a.done(&ends.a).send_opcode(), send::MMO);
            assert_eq!(ends.a.rig.read(to, 64), [9; 64]);
        }
    }
}

#[test]
fn changes_of_keys_wait_for_their_list() {
    let ends = ends();
    let (mut a, _b) = ends.connected(Plan::of_kernel());
    let (mut helper, _other) = ends.connected(Plan::of_kernel());
    let (list, memory) = (pages(&ends.a), pages(&ends.a));
    let listed = empty(&ends, &mut helper, &ends.a, list);
    let changed = empty(&ends, &mut helper, &ends.a, memory);
    let pages: Vec<u8> =
        (0..8).flat_map(|page| ((memory + page * PAGE) | paging::PRESENT).to_be_bytes()).collect();
    ends.a.rig.write(list, &pages);
    let control = UmrControl { klm_octowords: 4.into(), ..UmrControl::default() };
    let mut body = control.as_bytes().to_vec();
    body.extend(MkeyContext::default().as_bytes());
    body.extend(data(listed, list, 64));
    a.post(&ends.a, send::UMR, 2 << 2, changed, &body);
    a.sq.ring(&ends.a.rig);
    ends.steps(5);
    let fault = question(&ends.a).expect("a question");
    assert_eq!(fault.mkey.get(), listed);
    assert!(a.send_cq.poll(&ends.a.rig).is_none(), "it waits");
    fill(&ends, &mut helper, &ends.a, listed, list);
    answer(&ends.a, &fault, false).expect("an answer");
    ends.steps(5);
    a.done(&ends.a);
    // What the key stands for is there now.
    let to = ends.a.rig.room(4096);
    ends.a.rig.write(memory, &[5; 64]);
    copying(&mut a, &ends.a, copy::MODIFIER, (memory, changed), (to, ends.a.rig.lkey), 64);
    ends.steps(5);
    a.done(&ends.a);
    assert_eq!(ends.a.rig.read(to, 64), [5; 64]);
}

#[test]
fn a_card_says_whether_it_can() {
    for can in [false, true] {
        let ends = Ends::with(Impairments::default(), |traits: &mut Traits| traits.on_demand_paging = can);
        let query = |kind: u16| {
            let output = ends.a.rig.must(op::QUERY_HCA_CAP, kind << 1, &mut [0; 16], QueryHcaCapOut::BYTES);
            *output[16..].first_chunk::<256>().expect("a block")
        };
        let (general, block) = (query(kind::GENERAL), query(kind::ODP));
        assert_eq!((GeneralCaps::PG.is_set(&general), paging::BY_MEMORY.is_set(&block)), (can, can));
        assert_eq!(paging::DATAGRAM.get(&block) & paging::service::SEND != 0, can);
        let none = Fault::default();
        assert!(answer(&ends.a, &none, false).is_err(), "nothing was asked");
    }
}

/// A key whose pages are given with the command that makes it, as entries that say which are there.
fn made(node: &Node, at: u64, length: Option<u64>, log_page: u32, pages: &[u64]) -> u32 {
    let mut context = M::ZERO;
    for (field, value) in [
        (M::UMR_EN, length.is_some().into()),
        (M::ACCESS_MODE_1_0, access_mode::MTT),
        (M::QPN, 0xff_ffff),
        (M::PD, node.rig.pd),
        (M::LR, 1),
        (M::LW, 1),
        (M::LENGTH64, length.is_none().into()),
        (M::LOG_PAGE_SIZE, log_page & 0x1f),
        (M::TRANSLATIONS_OCTWORD_SIZE, pages.len() as u32 / 2),
    ] {
        field.set(&mut context, value);
    }
    paging::LOG_PAGE_SIZE_5.set(&mut context, log_page >> 5);
    M::START_ADDR.set(&mut context, at);
    M::LEN.set(&mut context, length.unwrap_or(0));
    let mut input = CreateMkeyIn::ZERO;
    CreateMkeyIn::PG_ACCESS.set(&mut input, 1);
    CreateMkeyIn::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(&mut input, pages.len() as u32 / 2);
    CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(&mut input, context);
    let mut input = input.to_vec();
    input.extend(pages.iter().flat_map(|page| page.to_be_bytes()));
    number(&node.rig.must(op::CREATE_MKEY, 0, &mut input, 16)) << 8
}

#[test]
fn a_key_is_made_with_pages_that_are_there_and_others() {
    let ends = ends();
    let (mut a, mut b) = ends.connected(Plan::of_kernel());
    let (here, there) = (pages(&ends.a), pages(&ends.b));
    let peer = ends.b.key(there, 8 * PAGE, |_| {});
    let entries = [here | paging::PRESENT, 0, (here + 2 * PAGE) | paging::READ, 0];
    let key = made(&ends.a, here + HCA_DELTA, Some(4 * PAGE), 12, &entries);
    ends.a.rig.write(here, &[5; 64]);
    b.receive(&ends.b, peer, there, 64);
    a.send(&ends.a, send::SEND, &data(key, here, 64));
    ends.steps(20);
    a.done(&ends.a);
    assert_eq!(ends.b.rig.read(there, 64), [5; 64]);
    assert!(question(&ends.a).is_none(), "it is there");
    for (page, opcode) in [(1, send::SEND), (2, send::RDMA_READ)] {
        let at = here + page * PAGE;
        let remote = if opcode == send::SEND { vec![] } else { remote(peer, there).to_vec() };
        a.send(&ends.a, opcode, &[remote, data(key, at, 64).to_vec()].concat());
        ends.steps(20);
        let fault = question(&ends.a).unwrap_or_else(|| panic!("page {page} is there"));
        assert_eq!((fault.mkey.get(), fault.va.get()), (key, at + HCA_DELTA));
        answer(&ends.a, &fault, page == 2).expect("an answer");
        if page == 1 {
            // It is asked for again: nobody brought it.
            ends.steps(5);
            let again = question(&ends.a).expect("another question");
            ends.a.rig.write(here + PAGE, &[6; 64]);
            b.receive(&ends.b, peer, there, 64);
            let entry = [here | paging::PRESENT, (here + PAGE) | paging::PRESENT];
            let list: Vec<u8> = entry.iter().flat_map(|entry: &u64| entry.to_be_bytes()).collect();
            assert!(ends.a.rig.device.set_key_entries(key >> 8, 0, &list));
            answer(&ends.a, &again, false).expect("an answer");
            ends.steps(20);
            a.done(&ends.a);
            assert_eq!(ends.b.rig.read(there, 64), [6; 64]);
        }
    }
}

/// What Linux puts behind all pieces of an implicit region that are not there: it is asked for by its own key, whatever the address.
#[test]
fn a_key_for_any_address_is_never_there() {
    let ends = ends();
    let key = made(&ends.a, 0, None, 61, &[0; 8]);
    for at in [0, 4096 * 3, 0x7fff_1234_5000, 1 << 62] {
        let (mut a, _b) = ends.connected(Plan::of_kernel());
        a.send(&ends.a, send::RDMA_WRITE, &[remote(1, 0), data(key, at, 64)].concat());
        ends.steps(5);
        let fault = question(&ends.a).unwrap_or_else(|| panic!("nobody is asked for {at:#x}"));
        assert_eq!((fault.mkey.get(), fault.va.get()), (key, at + HCA_DELTA));
        answer(&ends.a, &fault, true).expect("an answer");
    }
    // It was made so that nothing is entered there.
    assert!(!ends.a.rig.device.set_key_entries(key >> 8, 0, &[0xff; 16]));
}
