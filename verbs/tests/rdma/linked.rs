//! Receives that are linked to a region: written once, posted again and again as they stand.

use pollux_verbs::{
    Access, Ah, Mr, Path, PostError, Qp, QpAttributes, QpKind, QpOptions, QpState, Srq, SrqOptions, WcStatus,
};

use crate::rig::{End, QKEY, Rig, all_rights, connect};

/// Bytes of a piece, and of the network header before a datagram.
const PIECE: usize = 128;
const GRH: usize = 40;
const DEPTH: u32 = 8;

fn options(kind: QpKind, pieces: u32) -> QpOptions {
    QpOptions::new(kind).depth(64, DEPTH).pieces(1, pieces).inline(64)
}

fn region(rig: &Rig) -> Mr {
    Mr::allocate(&rig.far.pd, PIECE * DEPTH as usize, all_rights()).expect("memory")
}

/// Sends messages that say their number, and takes them at the other end: each where its completion says.
fn goes(
    rig: &Rig,
    ends: (&mut End, &mut End),
    to: Option<&Ah>,
    mr: &Mr,
    numbers: std::ops::Range<u64>,
) -> Vec<u64> {
    let (near, far) = ends;
    let mut batch = near.qp.batch();
    for number in numbers.clone() {
        batch.send(number).inline(&number.to_le_bytes()).signalled();
        if let Some(ah) = to {
            batch.to(ah, far.qp.qpn(), QKEY);
        }
    }
    batch.ring().expect("posted");
    let count = (numbers.end - numbers.start) as usize;
    rig.completions(&mut near.cq, count);
    let done = rig.completions(&mut far.cq, count);
    let header = if to.is_some() { GRH } else { 0 };
    for (wc, number) in done.iter().zip(numbers) {
        assert_eq!((wc.status, wc.bytes as usize), (WcStatus::SUCCESS, 8 + header), "{number}");
        let mut said = [0; 8];
        mr.read(wc.id as usize * PIECE + header, &mut said);
        assert_eq!(u64::from_le_bytes(said), number);
    }
    done.iter().map(|wc| wc.id).collect()
}

/// By kind, with room for more pieces than the one that is linked, and whatever order the bus leaves what is written in.
#[test]
fn linked_receives_are_filled_in_turn() {
    let seeds = (0..8).map(|seed| (QpKind::Rc, 2, Some(seed)));
    let kinds = [(QpKind::Rc, 1), (QpKind::Rc, 4), (QpKind::Uc, 2), (QpKind::Ud, 1), (QpKind::Ud, 3)];
    for (kind, pieces, seed) in kinds.map(|(kind, pieces)| (kind, pieces, None)).into_iter().chain(seeds) {
        let rig = Rig::stepped();
        let rig = if let Some(seed) = seed { rig.seeded(seed) } else { rig };
        let (mut near, mut far) = (rig.near.end(&options(kind, pieces)), rig.far.end(&options(kind, pieces)));
        let ah =
            (kind == QpKind::Ud).then(|| Ah::new(&rig.near.pd, &Path::new(rig.far.gid, 0)).expect("an AH"));
        match ah {
            None => connect(&mut near, &mut far),
            Some(_) => {
                for end in [&mut near, &mut far] {
                    end.qp.ready_datagram(1, QKEY, 0).expect("ready");
                }
            }
        }
        let mr = region(&rig);
        far.qp.link_receives(&mr, PIECE).expect("linked");
        // Never all that there are, all, and over the end of the ring.
        let (mut number, mut place) = (0, 0);
        for count in [8, 3, 4, 1, 8, 5, 7, 6, 2, 8, 8] {
            far.qp.post_linked(count).expect("posted");
            let ids = goes(&rig, (&mut near, &mut far), ah.as_ref(), &mr, number..number + u64::from(count));
            let expected: Vec<u64> =
                (0..u64::from(count)).map(|at| (place + at) % u64::from(DEPTH)).collect();
            assert_eq!(ids, expected, "{kind:?}");
            (number, place) = (number + u64::from(count), place + u64::from(count));
        }
        rig.is_clean();
    }
}

/// The counter in entries has 16 bits, and the ring goes around it.
#[test]
fn linked_receives_pass_the_end_of_the_counter() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options(QpKind::Rc, 1));
    let mr = region(&rig);
    far.qp.link_receives(&mr, PIECE).expect("linked");
    for turn in 0..(1 << 16) / u64::from(DEPTH) + 2 {
        far.qp.post_linked(DEPTH).expect("posted");
        let from = turn * u64::from(DEPTH);
        goes(&rig, (&mut near, &mut far), None, &mr, from..from + u64::from(DEPTH));
    }
}

#[test]
fn a_linked_queue_takes_linked_receives_alone() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options(QpKind::Rc, 1));
    let mr = region(&rig);
    let wrong = |outcome: Result<(), PostError>, word: &str| {
        let said = outcome.expect_err("refused").to_string();
        assert!(said.contains(word), "{said}");
    };
    wrong(far.qp.post_linked(1), "call Qp::link_receives first");
    // While receives are posted, and while they are done but not polled.
    let mut receives = far.qp.receives().expect("its own");
    receives.mr(7, &mr, 0..PIECE);
    receives.ring().expect("posted");
    let another = region(&rig);
    wrong(far.qp.link_receives(&another, PIECE), "posted receives");
    another.deregister().map_err(|refused| refused.0).expect("not kept");
    goes(&rig, (&mut near, &mut far), None, &mr, 0..1);
    // Too short a region, no bytes, and another card's region.
    let foreign = Mr::allocate(&rig.near.pd, PIECE * DEPTH as usize, Access::LOCAL_WRITE).expect("memory");
    wrong(far.qp.link_receives(&mr, PIECE + 1), "shorter than the receives");
    wrong(far.qp.link_receives(&mr, 0), "pieces of none");
    wrong(far.qp.link_receives(&mr, usize::MAX / 2), "shorter than the receives");
    wrong(far.qp.link_receives(&foreign, PIECE), "of another device");
    far.qp.link_receives(&mr, PIECE).expect("linked");
    // The ring is one entry on already, and the entry of that place is the piece of that place.
    far.qp.post_linked(3).expect("posted");
    let mut receives = far.qp.receives().expect("its own");
    receives.mr(9, &mr, 0..PIECE).piece(10, rig.far.buffers.take().expect("a buffer"));
    let said = receives.ring().expect_err("refused").to_string();
    assert!(said.contains("Qp::post_linked"), "{said}");
    assert_eq!(rig.far.buffers.available(), 64, "the buffer went home");
    wrong(far.qp.link_receives(&mr, PIECE), "posted receives");
    assert_eq!(goes(&rig, (&mut near, &mut far), None, &mr, 1..4), [1, 2, 3]);
    // Linked anew, while none is posted.
    far.qp.link_receives(&mr, PIECE / 2).expect("linked");
    far.qp.link_receives(&mr, PIECE).expect("linked");
    assert_eq!(far.qp.post_linked(DEPTH + 1), Err(PostError::Full));
    assert_eq!(far.qp.post_linked(u32::MAX), Err(PostError::Full));
    far.qp.post_linked(0).expect("nothing");
    far.qp.post_linked(DEPTH - 1).expect("posted");
    assert_eq!(far.qp.post_linked(2), Err(PostError::Full));
    far.qp.post_linked(1).expect("posted");
    assert_eq!(goes(&rig, (&mut near, &mut far), None, &mr, 4..12), [4, 5, 6, 7, 0, 1, 2, 3]);
    // Those that are posted when the queue fails come back by name.
    far.qp.post_linked(2).expect("posted");
    far.qp.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
    let flushed = rig.completions(&mut far.cq, 2);
    assert!(flushed.iter().all(|wc| wc.status == WcStatus::WR_FLUSH_ERR), "{flushed:?}");
    assert_eq!(flushed.iter().map(|wc| wc.id).collect::<Vec<_>>(), [4, 5]);
    // After a reset it is as if it never was.
    for qp in [&mut near.qp, &mut far.qp] {
        qp.modify(&QpAttributes::state(QpState::RESET)).expect("RESET");
    }
    wrong(far.qp.post_linked(1), "call Qp::link_receives first");
    for end in [&mut near, &mut far] {
        end.qp.init(1, all_rights()).expect("INIT");
    }
    connect(&mut near, &mut far);
    let mut receives = far.qp.receives().expect("its own");
    receives.mr(77, &mr, 0..PIECE);
    receives.ring().expect("posted");
    let mut batch = near.qp.batch();
    batch.send(1).inline(b"again").signalled();
    batch.ring().expect("posted");
    assert_eq!(rig.completions(&mut far.cq, 1)[0].id, 77);
    far.qp.link_receives(&mr, PIECE).expect("linked");
    far.qp.post_linked(1).expect("posted");
    assert_eq!(goes(&rig, (&mut near, &mut far), None, &mr, 12..13), [1]);
    assert_eq!(far.qp.state(), QpState::RTS);
}

/// What is behind the one piece of an entry is no memory.
#[test]
fn a_message_longer_than_its_piece_fails() {
    for pieces in [1, 4] {
        let rig = Rig::stepped();
        let (mut near, mut far) = rig.pair(&options(QpKind::Rc, pieces));
        let mr = region(&rig);
        far.qp.link_receives(&mr, 32).expect("linked");
        far.qp.post_linked(2).expect("posted");
        for length in [32, 33] {
            let mut batch = near.qp.batch();
            batch.send(1).inline(&[7; 64][..length]).signalled();
            batch.ring().expect("posted");
            let done = rig.completions(&mut far.cq, 1);
            let expected = if length == 32 { WcStatus::SUCCESS } else { WcStatus::LOC_LEN_ERR };
            assert_eq!(done[0].status, expected, "{pieces} pieces, {length} bytes");
        }
    }
}

#[test]
fn queue_pairs_without_receives_have_none_to_link() {
    let rig = Rig::stepped();
    let mr = region(&rig);
    let cq = rig.far.cq(16);
    let srq = Srq::new(&rig.far.pd, &SrqOptions::new(8)).expect("an SRQ");
    let mut qp = Qp::with_srq(&rig.far.pd, &cq, &cq, &srq, &options(QpKind::Rc, 1)).expect("a queue pair");
    for outcome in [qp.link_receives(&mr, PIECE), qp.post_linked(1)] {
        let said = outcome.expect_err("refused").to_string();
        assert!(said.contains("without a receive queue of its own"), "{said}");
    }
}

/// The region stays the queue's: it is neither given other rights nor deregistered meanwhile.
#[test]
fn a_linked_region_stays_the_queues() {
    let rig = Rig::stepped();
    let (_near, mut far) = rig.pair(&options(QpKind::Rc, 1));
    let mr = region(&rig);
    far.qp.link_receives(&mr, PIECE).expect("linked");
    let (error, mr) = *mr.deregister().expect_err("in use");
    assert!(error.to_string().contains("a queue that it was posted to"), "{error}");
    drop(far);
    mr.expect("there still").deregister().map_err(|refused| refused.0).expect("free");
}
