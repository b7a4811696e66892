//! Every operation on every transport that has it, against plain memory.

use pollux_verbs::{
    Access, Ah, Mr, Mw, MwType, Path, Piece, QpKind, QpOptions, VerbsError, WcOpcode, WcStatus,
};

use crate::rig::{Done, QKEY, Rig, all_rights, pattern};

const MESSAGE: u64 = 100;

/// How data go along.
#[derive(Clone, Copy, Debug)]
enum Form {
    Inline,
    One,
    Many,
    Region,
}

const FORMS: [Form; 4] = [Form::Inline, Form::One, Form::Many, Form::Region];

fn options(kind: QpKind) -> QpOptions {
    QpOptions::new(kind).depth(32, 32).inline(200).pieces(4, 4)
}

fn succeeded(done: &Done, id: u64, opcode: WcOpcode) {
    assert_eq!((done.id, done.status, done.opcode), (id, WcStatus::SUCCESS, opcode), "{done:?}");
}

/// Describes the data of the open request.
fn give(batch: &mut pollux_verbs::Batch<'_>, rig: &Rig, mr: &Mr, form: Form, data: &[u8]) {
    let buffers = &rig.near.buffers;
    match form {
        Form::Inline => {
            batch.inline(data);
        }
        Form::One => {
            batch.piece(buffers.filled(data).expect("a buffer"));
        }
        Form::Many => {
            for part in data.chunks(data.len().div_ceil(4).max(1)) {
                batch.piece(buffers.filled(part).expect("a buffer"));
            }
        }
        Form::Region => {
            mr.write(64, data);
            batch.mr(mr, 64..64 + data.len());
        }
    }
}

/// Messages of many lengths in every form, with and without immediate data.
fn messages(kind: QpKind) {
    messages_on(Rig::stepped(), kind);
    for seed in 1..=3 {
        messages_on(Rig::stepped().seeded(seed), kind);
    }
}

fn messages_on(rig: Rig, kind: QpKind) {
    let (mut near, mut far) = rig.pair(&options(kind));
    let ah =
        (kind == QpKind::Ud).then(|| Ah::new(&rig.near.pd, &Path::new(rig.far.gid, 0)).expect("an address"));
    let header = if kind == QpKind::Ud { 40 } else { 0 };
    let mr = Mr::allocate(&rig.near.pd, 16384, all_rights()).expect("memory");
    let all = (rig.near.buffers.available(), rig.far.buffers.available());
    let lengths: &[usize] =
        if kind == QpKind::Ud { &[0, 1, 7, 64, 200, 1000] } else { &[0, 1, 64, 200, 1024, 1025, 5000] };
    for (number, bytes) in lengths.iter().copied().enumerate() {
        for form in FORMS {
            if matches!(form, Form::Inline) && bytes > 200 {
                continue;
            }
            let id = MESSAGE + number as u64;
            let data = pattern(bytes, id);
            let imm = (number % 2 == 1).then_some(0x1122_3300 + number as u32);
            let mut receives = far.qp.receives().expect("its own");
            if matches!(form, Form::Many) {
                let mut parts: Vec<_> = (0..4).map(|_| rig.far.buffers.take().expect("a buffer")).collect();
                parts.truncate(3);
                receives.pieces(id, parts);
            } else {
                receives.piece(id, rig.far.buffers.take().expect("a buffer"));
            }
            receives.ring().expect("posted");
            let mut batch = near.qp.batch();
            batch.send(id);
            if let Some(ah) = &ah {
                batch.to(ah, far.qp.qpn(), QKEY);
            }
            give(&mut batch, &rig, &mr, form, &data);
            if let Some(imm) = imm {
                batch.imm(imm);
            }
            batch.signalled();
            assert_eq!(batch.ring(), Ok(1));
            let sent = rig.completions(&mut near.cq, 1).remove(0);
            succeeded(&sent, id, WcOpcode::SEND);
            let got = rig.completions(&mut far.cq, 1).remove(0);
            succeeded(&got, id, WcOpcode::RECV);
            assert_eq!(got.bytes as usize, header + bytes, "{kind} {form:?}");
            assert_eq!((got.imm, got.invalidated), (imm, None), "{kind} {form:?} {bytes}");
            assert_eq!(got.qpn, far.qp.qpn());
            if kind == QpKind::Ud {
                assert_eq!(got.source_qpn, near.qp.qpn());
            }
            assert_eq!(got.data()[header..], data, "{kind} {form:?} {bytes}");
            drop((sent, got));
            assert_eq!((rig.near.buffers.available(), rig.far.buffers.available()), all);
        }
    }
    rig.is_clean();
}

#[test]
fn messages_on_rc() {
    messages(QpKind::Rc);
}

#[test]
fn messages_on_uc() {
    messages(QpKind::Uc);
}

#[test]
fn datagrams() {
    messages(QpKind::Ud);
}

/// Writes of many lengths in every form, with and without immediate data, into a region that is checked whole.
fn writes(kind: QpKind) {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options(kind));
    let source = Mr::allocate(&rig.near.pd, 16384, all_rights()).expect("memory");
    let target = Mr::allocate(&rig.far.pd, 16384, all_rights()).expect("memory");
    let mut oracle = vec![0_u8; 16384];
    for (number, bytes) in [0_usize, 1, 8, 200, 1024, 4096, 7000].into_iter().enumerate() {
        for form in FORMS {
            if matches!(form, Form::Inline) && bytes > 200 {
                continue;
            }
            let id = number as u64;
            let data = pattern(bytes, id + 50);
            let at = number * 333;
            oracle[at..at + bytes].copy_from_slice(&data);
            let imm = (number % 2 == 0).then_some(0xfeed_0000 + number as u32);
            if imm.is_some() {
                let mut receives = far.qp.receives().expect("its own");
                receives.piece(id, rig.far.buffers.take().expect("a buffer"));
                receives.ring().expect("posted");
            }
            let mut batch = near.qp.batch();
            batch.write(id, target.address() + at as u64, target.rkey());
            give(&mut batch, &rig, &source, form, &data);
            if let Some(imm) = imm {
                batch.imm(imm);
            }
            batch.signalled();
            assert_eq!(batch.ring(), Ok(1));
            succeeded(&rig.completions(&mut near.cq, 1)[0], id, WcOpcode::RDMA_WRITE);
            if imm.is_some() {
                let got = rig.completions(&mut far.cq, 1).remove(0);
                succeeded(&got, id, WcOpcode::RECV_RDMA_WITH_IMM);
                assert_eq!((got.imm, got.bytes as usize, got.data().len()), (imm, bytes, 0));
            } else {
                for _ in 0..20 {
                    rig.turn();
                }
            }
            let mut seen = vec![0; oracle.len()];
            target.read(0, &mut seen);
            assert!(seen == oracle, "{kind} {form:?} {bytes}: another byte than those written changed");
        }
    }
    rig.is_clean();
}

#[test]
fn writes_on_rc() {
    writes(QpKind::Rc);
}

#[test]
fn writes_on_uc() {
    writes(QpKind::Uc);
}

#[test]
fn a_zero_based_region_is_reached_by_offsets() {
    let rig = Rig::stepped();
    let (mut near, far) = rig.pair(&options(QpKind::Rc));
    let rights = all_rights() | Access::ZERO_BASED;
    let mut target = Mr::allocate(&rig.far.pd, 8192, rights).expect("memory");
    let local = Mr::allocate(&rig.near.pd, 4096, rights).expect("memory");
    local.write(8, b"by offset");
    assert_eq!((target.address(), local.address()), (0, 0));
    let mut batch = near.qp.batch();
    batch.write(1, 100, target.rkey()).mr(&local, 8..17).signalled();
    assert_eq!(batch.ring(), Ok(1));
    succeeded(&rig.completions(&mut near.cq, 1)[0], 1, WcOpcode::RDMA_WRITE);
    let mut seen = [0; 9];
    target.read(100, &mut seen);
    assert_eq!(&seen, b"by offset");
    let other = rig.far.context.reserve(8192).expect("memory");
    let refused = target.replace(other).expect_err("the kernel has no way for that");
    assert!(matches!(*refused, (VerbsError::Unsupported { .. }, Some(_))), "{refused:?}");
    drop(far);
}

#[test]
fn reads_fetch_what_is_there() {
    let rig = Rig::stepped();
    let (mut near, far) = rig.pair(&options(QpKind::Rc));
    let target = Mr::allocate(&rig.far.pd, 16384, all_rights()).expect("memory");
    let local = Mr::allocate(&rig.near.pd, 16384, all_rights()).expect("memory");
    let bytes = pattern(16384, 3);
    target.write(0, &bytes);
    for (number, length) in [1_usize, 8, 1000, 1024, 5000].into_iter().enumerate() {
        let id = number as u64;
        let at = number * 100;
        let mut batch = near.qp.batch();
        let mut whole = rig.near.buffers.take().expect("a buffer");
        whole.set_len(length);
        batch.read(id, target.address() + at as u64, target.rkey()).piece(whole).signalled();
        batch
            .read(id + 100, target.address() + at as u64, target.rkey())
            .mr(&local, 64..64 + length)
            .signalled();
        batch.read(id + 200, target.address() + at as u64, target.rkey());
        let mut left = length;
        for _ in 0..3 {
            let part = left.min(length / 3 + 1);
            let mut buf = rig.near.buffers.take().expect("a buffer");
            buf.set_len(part);
            batch.piece(buf);
            left -= part;
        }
        batch.fenced().signalled();
        assert_eq!(batch.ring(), Ok(3));
        let done = rig.completions(&mut near.cq, 3);
        for (done, id) in done.iter().zip([id, id + 100, id + 200]) {
            succeeded(done, id, WcOpcode::RDMA_READ);
        }
        assert!(
            done[0].data() == bytes[at..at + length] && done[2].data() == bytes[at..at + length],
            "{length}"
        );
        let mut seen = vec![0; length];
        local.read(64, &mut seen);
        assert!(seen == bytes[at..at + length], "{length}");
    }
    drop(far);
    rig.is_clean();
}

#[test]
fn a_fenced_request_sends_what_the_read_before_it_brought() {
    let rig = Rig::stepped();
    let (mut near, far) = rig.pair(&options(QpKind::Rc));
    let target = Mr::allocate(&rig.far.pd, 16384, all_rights()).expect("memory");
    let local = Mr::allocate(&rig.near.pd, 8192, all_rights()).expect("memory");
    let bytes = pattern(5000, 11);
    target.write(0, &bytes);
    let mut batch = near.qp.batch();
    batch.read(1, target.address(), target.rkey()).mr(&local, 0..5000);
    batch.write(2, target.address() + 8192, target.rkey()).mr(&local, 0..5000).fenced().signalled();
    assert_eq!(batch.ring(), Ok(2));
    succeeded(&rig.completions(&mut near.cq, 1)[0], 2, WcOpcode::RDMA_WRITE);
    let mut seen = vec![0; 5000];
    target.read(8192, &mut seen);
    assert!(seen == bytes, "the write went before the read had come back");
    drop(far);
    rig.is_clean();
}

#[test]
fn inline_data_go_on_at_the_rings_start() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options(QpKind::Rc));
    // Entries of one to four blocks, so that long ones stand in each way across the end of a ring of some hundred.
    for round in 0..400_u64 {
        let data = pattern([200, 9, 120, 200, 60][round as usize % 5], round);
        let mut receives = far.qp.receives().expect("its own");
        receives.piece(round, rig.far.buffers.take().expect("a buffer"));
        receives.ring().expect("posted");
        let mut batch = near.qp.batch();
        batch.send(round).inline(&data).signalled();
        assert_eq!(batch.ring(), Ok(1));
        succeeded(&rig.completions(&mut near.cq, 1)[0], round, WcOpcode::SEND);
        let got = rig.completions(&mut far.cq, 1).remove(0);
        assert_eq!(got.data(), data, "message {round}");
    }
    rig.is_clean();
}

#[test]
fn atomics_give_back_what_was_there() {
    let rig = Rig::stepped();
    let (mut near, far) = rig.pair(&options(QpKind::Rc));
    let target = Mr::allocate(&rig.far.pd, 64, all_rights()).expect("memory");
    target.store64(8, 40);
    let result = |rig: &Rig| {
        let mut buf = rig.near.buffers.take().expect("a buffer");
        buf.set_len(8);
        buf
    };
    let mut batch = near.qp.batch();
    let at = target.address() + 8;
    batch.fetch_add(1, at, target.rkey(), 2).piece(result(&rig)).signalled();
    batch.compare_swap(2, at, target.rkey(), 42, 7).piece(result(&rig)).signalled();
    batch.compare_swap(3, at, target.rkey(), 42, 9).piece(result(&rig)).signalled();
    batch.fetch_add(4, at, target.rkey(), u64::MAX).piece(result(&rig)).signalled();
    assert_eq!(batch.ring(), Ok(4));
    let done = rig.completions(&mut near.cq, 4);
    let expected = [
        (1, WcOpcode::FETCH_ADD, 40_u64),
        (2, WcOpcode::COMP_SWAP, 42),
        (3, WcOpcode::COMP_SWAP, 7),
        (4, WcOpcode::FETCH_ADD, 7),
    ];
    for (done, (id, opcode, old)) in done.iter().zip(expected) {
        succeeded(done, id, opcode);
        assert_eq!(done.data(), old.to_ne_bytes(), "{done:?}");
    }
    assert_eq!(target.load64(8), 6);
    drop(far);
    rig.is_clean();
}

#[test]
fn unsignalled_requests_come_back_with_the_next_signalled_one() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options(QpKind::Rc));
    let all = rig.near.buffers.available();
    for round in 0..20_u64 {
        let mut receives = far.qp.receives().expect("its own");
        for id in 0..8 {
            receives.piece(id, rig.far.buffers.take().expect("a buffer"));
        }
        receives.ring().expect("posted");
        let mut batch = near.qp.batch();
        for id in 0..8_u64 {
            batch.send(round * 8 + id).piece(rig.near.buffers.filled(&[id as u8; 9]).expect("a buffer"));
        }
        batch.signalled();
        assert_eq!(batch.ring(), Ok(8));
        let done = rig.completions(&mut near.cq, 1).remove(0);
        succeeded(&done, round * 8 + 7, WcOpcode::SEND);
        let bytes: Vec<u8> = done.pieces.iter().map(|piece| piece.bytes()[0]).collect();
        assert_eq!(bytes, (0..8).collect::<Vec<u8>>(), "in the order in which they were posted");
        let got = rig.completions(&mut far.cq, 8);
        assert!(got.iter().enumerate().all(|(at, done)| done.data() == [at as u8; 9]), "{got:?}");
        drop(done);
        assert_eq!(rig.near.buffers.available(), all);
    }
    rig.is_clean();
}

#[test]
fn windows_open_and_close_parts_of_regions() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options(QpKind::Rc));
    let rights = all_rights() | pollux_verbs::Access::MW_BIND;
    let target = Mr::allocate(&rig.far.pd, 4096, rights).expect("memory");
    let mut window = Mw::new(&rig.far.pd, MwType::Type2).expect("a window");
    let mut batch = far.qp.batch();
    batch.bind(1, &mut window, &target, 256..512, pollux_verbs::Access::REMOTE_WRITE).signalled();
    assert_eq!(batch.ring(), Ok(1));
    succeeded(&rig.completions(&mut far.cq, 1)[0], 1, WcOpcode::BIND_MW);
    let mut batch = near.qp.batch();
    batch.write(2, target.address() + 300, window.rkey()).inline(b"inside").signalled();
    assert_eq!(batch.ring(), Ok(1));
    succeeded(&rig.completions(&mut near.cq, 1)[0], 2, WcOpcode::RDMA_WRITE);
    let mut seen = [0; 6];
    target.read(300, &mut seen);
    assert_eq!(&seen, b"inside");
    // The peer closes it with a message.
    let mut receives = far.qp.receives().expect("its own");
    receives.piece(3, rig.far.buffers.take().expect("a buffer"));
    receives.ring().expect("posted");
    let mut batch = near.qp.batch();
    batch.send_invalidate(3, window.rkey()).inline(b"done").signalled();
    assert_eq!(batch.ring(), Ok(1));
    succeeded(&rig.completions(&mut near.cq, 1)[0], 3, WcOpcode::SEND);
    let got = rig.completions(&mut far.cq, 1).remove(0);
    assert_eq!((got.invalidated, got.data()), (Some(window.rkey()), b"done".to_vec()));
    let mut batch = near.qp.batch();
    batch.write(4, target.address() + 300, window.rkey()).inline(b"closed").signalled();
    assert_eq!(batch.ring(), Ok(1));
    assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::REM_ACCESS_ERR);
    rig.is_clean();
}

#[test]
fn a_window_is_invalidated_here() {
    let rig = Rig::stepped();
    let (near, mut far) = rig.pair(&options(QpKind::Rc));
    let rights = all_rights() | pollux_verbs::Access::MW_BIND;
    let target = Mr::allocate(&rig.far.pd, 4096, rights).expect("memory");
    let mut window = Mw::new(&rig.far.pd, MwType::Type2).expect("a window");
    for round in 0..3 {
        let mut batch = far.qp.batch();
        batch.bind(round, &mut window, &target, 0..64, pollux_verbs::Access::REMOTE_READ).signalled();
        batch.ring().expect("posted");
        let mut batch = far.qp.batch();
        batch.invalidate(round + 10, window.rkey()).signalled();
        batch.ring().expect("posted");
        let done = rig.completions(&mut far.cq, 2);
        succeeded(&done[0], round, WcOpcode::BIND_MW);
        succeeded(&done[1], round + 10, WcOpcode::LOCAL_INV);
    }
    drop(near);
    rig.is_clean();
}

/// In the same batch, and behind a doorbell. The card tells of an entry without a fence there.
#[test]
fn what_comes_behind_a_change_to_a_key_waits_for_it() {
    for apart in [false, true] {
        let rig = Rig::stepped();
        let (near, mut far) = rig.pair(&options(QpKind::Rc));
        let rights = all_rights() | Access::MW_BIND;
        let target = Mr::allocate(&rig.far.pd, 4096, rights).expect("memory");
        let peers = Mr::allocate(&rig.near.pd, 64, all_rights()).expect("memory");
        let mut window = Mw::new(&rig.far.pd, MwType::Type2).expect("a window");
        let mut batch = far.qp.batch();
        batch.bind(1, &mut window, &target, 0..64, Access::REMOTE_READ).signalled();
        if apart {
            assert_eq!(batch.ring(), Ok(1));
            batch = far.qp.batch();
        }
        batch.write(2, peers.address(), peers.rkey()).inline(b"open").signalled();
        batch.ring().expect("posted");
        let mut batch = far.qp.batch();
        batch.invalidate(3, window.rkey()).signalled();
        if apart {
            assert_eq!(batch.ring(), Ok(1));
            batch = far.qp.batch();
        }
        // It waits for a read before it, too.
        batch.read(4, peers.address(), peers.rkey()).mr(&target, 0..64).fenced().signalled();
        batch.ring().expect("posted");
        let done = rig.completions(&mut far.cq, 4);
        let opcodes = [WcOpcode::BIND_MW, WcOpcode::RDMA_WRITE, WcOpcode::LOCAL_INV, WcOpcode::RDMA_READ];
        for (index, opcode) in opcodes.into_iter().enumerate() {
            succeeded(&done[index], index as u64 + 1, opcode);
        }
        drop(near);
        rig.is_clean();
    }
}

/// The longest entries, of which the card has begun none: it tells of a doorbell for more than its ring has.
#[test]
fn a_full_ring_takes_no_more() {
    let rig = Rig::stepped();
    let (mut near, far) = rig.pair(&options(QpKind::Rc));
    let target = Mr::allocate(&rig.far.pd, 4096, all_rights()).expect("memory");
    let mut posted = 0;
    let why = loop {
        let mut batch = near.qp.batch();
        batch.write(posted, target.address(), target.rkey()).inline(&[posted as u8; 200]).signalled();
        match batch.ring() {
            Ok(_) => posted += 1,
            Err(why) => break why,
        }
        assert!(posted < 1000, "a ring has an end");
    };
    rig.is_clean();
    assert!(why.to_string().starts_with("the queue is full") && posted >= 32, "{posted}: {why}");
    let done = rig.completions(&mut near.cq, posted as usize);
    for (id, done) in done.iter().enumerate() {
        succeeded(done, id as u64, WcOpcode::RDMA_WRITE);
    }
    drop(far);
}

/// A completion queue of few places is gone round many times: the card raises an event where it finds none.
#[test]
fn completions_that_were_polled_leave_room_for_others() {
    let rig = Rig::stepped();
    let mut near = rig.near.end_with(pollux_verbs::CqOptions::new(8), &options(QpKind::Rc));
    let mut far = rig.far.end(&options(QpKind::Rc));
    crate::rig::connect(&mut near, &mut far);
    let target = Mr::allocate(&rig.far.pd, 4096, all_rights()).expect("memory");
    // The port came up.
    rig.turn();
    while rig.near.context.next_event().expect("a file").is_some() {}
    for id in 0..100 {
        let mut batch = near.qp.batch();
        batch.write(id, target.address(), target.rkey()).inline(b"once more").signalled();
        assert_eq!(batch.ring(), Ok(1));
        let mut done = Vec::new();
        for _ in 0..20 {
            rig.turn();
            near.cq.poll(8, |wc| done.push((wc.id(), wc.status())));
            let event = rig.near.context.next_event().expect("a file");
            assert!(
                event.is_none(),
                "write {id}: {event:?}: places of completions that were polled are not given back"
            );
        }
        assert_eq!(done, [(id, WcStatus::SUCCESS)]);
    }
    drop(far);
}

#[test]
fn packets_are_pieces_too() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options(QpKind::Rc));
    let pool = pollux_mempool::MbufPool::builder("pieces", 64).build_anonymous().expect("a pool");
    rig.near.pd.add_pool(&pool).expect("registered");
    rig.far.pd.add_pool(&pool).expect("registered");
    let mut receives = far.qp.receives().expect("its own");
    receives.piece(1, pool.alloc().expect("an mbuf"));
    receives.ring().expect("posted");
    let mut mbuf = pool.alloc().expect("an mbuf");
    assert!(mbuf.append_slice(b"a packet's bytes"));
    let mut batch = near.qp.batch();
    batch.send(2).piece(mbuf).signalled();
    batch.ring().expect("posted");
    let sent = rig.completions(&mut near.cq, 1).remove(0);
    assert!(matches!(sent.pieces[..], [Piece::Mbuf(_)]));
    let got = rig.completions(&mut far.cq, 1).remove(0).pieces.remove(0).into_mbuf().expect("an mbuf");
    assert_eq!(got.data(), b"a packet's bytes");
    drop((sent, got));
    assert_eq!(pool.available(), 64);
    rig.is_clean();
}

/// A packet of three segments is gathered, and scattered over one of two.
#[test]
fn packets_of_several_segments_go_whole() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options(QpKind::Rc));
    let pool = pollux_mempool::MbufPool::builder("segments", 64).build_anonymous().expect("a pool");
    rig.near.pd.add_pool(&pool).expect("registered");
    rig.far.pd.add_pool(&pool).expect("registered");
    let chain = |parts: &[&[u8]]| {
        let mut parts = parts.iter().map(|part| {
            let mut mbuf = pool.alloc().expect("an mbuf");
            assert!(mbuf.append_slice(part));
            mbuf
        });
        let mut first = parts.next().expect("a segment");
        parts.for_each(|next| first.chain(next).expect("room"));
        first
    };
    let data = pattern(2500, 3);
    let mut receives = far.qp.receives().expect("its own");
    receives.packet(1, chain(&[&[], &[]]));
    receives.packet(2, chain(&[&[], &[]]));
    receives.ring().expect("posted");
    let mut batch = near.qp.batch();
    batch.send(3).packet(chain(&[&data[..1000], &data[1000..1001], &data[1001..]])).signalled();
    batch.send(4).packet(chain(&[b"short"])).signalled();
    batch.ring().expect("posted");
    let taken = |cq: &mut pollux_verbs::Cq, id: u64, bytes: &[u8], segments: usize| {
        let mut packet = None;
        rig.until("completion", || {
            cq.poll(1, |wc| {
                assert!(wc.is_ok() && wc.id() == id, "{wc:?}");
                packet = wc.take_packet();
            }) == 1
        });
        let packet = packet.expect("a packet");
        let mut seen = vec![0; bytes.len() + 1];
        assert_eq!((packet.read(0, &mut seen), packet.segment_count()), (bytes.len(), segments));
        assert_eq!(seen[..bytes.len()], *bytes);
    };
    taken(&mut near.cq, 3, &data, 3);
    taken(&mut near.cq, 4, b"short", 1);
    taken(&mut far.cq, 1, &data, 2);
    taken(&mut far.cq, 2, b"short", 1);
    assert_eq!(pool.available(), 64);
    // With the completion of the last come those of the requests before it, each as it was sent.
    let mut receives = far.qp.receives().expect("its own");
    (0..5).for_each(|id| {
        receives.packet(id, chain(&[&[], &[]]));
    });
    receives.ring().expect("posted");
    let mut batch = near.qp.batch();
    batch.send(0).packet(chain(&[&data[..10], &data[10..20], &data[20..30]]));
    batch.send(1).inline(b"no packet");
    batch.send(2).piece(rig.near.buffers.filled(b"a buffer").expect("a buffer"));
    batch.send(3).packet(chain(&[b"alone"]));
    batch.send(4).packet(chain(&[&data[..40], &data[40..80]])).signalled();
    batch.ring().expect("posted");
    let mut back = Vec::new();
    rig.until("completion", || {
        near.cq.poll(1, |wc| {
            assert!(wc.is_ok() && wc.id() == 4, "{wc:?}");
            back.extend(std::iter::from_fn(|| wc.take_packet()));
        }) == 1
    });
    let back: Vec<_> = back.into_iter().map(|packet| (packet.segment_count(), packet.pkt_len())).collect();
    assert_eq!(back, [(3, 30), (1, 5), (2, 80)]);
    drop(rig.completions(&mut far.cq, 5));
    assert_eq!(pool.available(), 64);
    // More segments than the queue pair was made for.
    let mut batch = near.qp.batch();
    batch.send(5).packet(chain(&[&b"a"[..]; 5]));
    assert!(batch.ring().expect_err("too many").to_string().contains("more than 4 SGEs"));
    assert_eq!(pool.available(), 64);
    rig.is_clean();
}

/// Cards that work by themselves, while two threads post and poll.
#[test]
fn two_threads_pass_messages_back_and_forth() {
    const ROUNDS: u64 = 300;
    let rig = Rig::threaded();
    let (near, far) = rig.pair(&options(QpKind::Rc));
    let play = |mut end: crate::rig::End, buffers: &pollux_verbs::Buffers, first: bool| {
        let post = |qp: &mut pollux_verbs::Qp| {
            let mut receives = qp.receives().expect("its own");
            receives.piece(0, buffers.take().expect("a buffer"));
            receives.ring().expect("posted");
        };
        post(&mut end.qp);
        let send = |qp: &mut pollux_verbs::Qp, round: u64| {
            let mut batch = qp.batch();
            batch.send(1).inline(&round.to_ne_bytes()).signalled();
            batch.ring().expect("posted");
        };
        if first {
            send(&mut end.qp, 0);
        }
        let (mut round, mut sent) = (0, 0);
        while round < ROUNDS || sent < ROUNDS {
            let mut got = Vec::new();
            end.cq.poll(8, |wc| {
                assert!(wc.is_ok(), "{wc:?}");
                if wc.is_receive() {
                    got.push(u64::from_ne_bytes(wc.take().expect("it").bytes().try_into().expect("8 bytes")));
                } else {
                    sent += 1;
                }
            });
            if got.is_empty() {
                std::thread::yield_now();
            }
            for value in got {
                assert_eq!(value, round);
                round += 1;
                if round < ROUNDS {
                    post(&mut end.qp);
                }
                let answer = if first { round } else { value };
                if answer < ROUNDS {
                    send(&mut end.qp, answer);
                }
            }
        }
        end
    };
    // Neither end goes before both are done.
    let ends = std::thread::scope(|scope| {
        let one = scope.spawn(|| play(near, &rig.near.buffers, true));
        let two = scope.spawn(|| play(far, &rig.far.buffers, false));
        (one.join(), two.join())
    });
    assert!(ends.0.is_ok() && ends.1.is_ok());
    rig.is_clean();
}
