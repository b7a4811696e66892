//! What each way of posting makes the bus carry, counted by the model and by hand.
//!
//! By hand, for `n` requests in batches of `b` of which every `s`-th makes a completion (the last one of all among them), entries
//! of `e` segments of 16 bytes, and data of `d` bytes:
//!
//! | crossing | doorbell alone | BlueFlame, batches of one, one block |
//! |---|---|---|
//! | doorbell | n / b times 8 bytes | none |
//! | BlueFlame | none | n times 64 bytes |
//! | doorbell record | what the model reads of it is at most one for each batch | the same |
//! | send entry | n times 16 e bytes | none: it came along |
//! | payload | n times d bytes, none where it stands in the entry | the same |
//! | completion | n / s times 64 bytes | the same |
//!
//! Segments: control 1; remote address 1; address vector 3; inline data (4 + d) / 16 rounded up; a piece of memory 1 each.

use pollux_mlx5_model::ledger::Crossing;
use pollux_verbs::{Ah, Connection, Mr, Path, Qp, QpKind, QpOptions, Srq, SrqOptions};

use crate::rig::{QKEY, Rig, all_rights};

const REQUESTS: u64 = 64;

/// A way of posting.
#[derive(Clone, Copy, Debug)]
struct Way {
    kind: QpKind,
    write: bool,
    bytes: usize,
    inline: bool,
    blueflame: bool,
    batch: u64,
    signal_every: u64,
}

impl Way {
    fn segments(&self) -> u64 {
        let data = if self.inline { (4 + self.bytes).div_ceil(16) } else { 1 };
        1 + 3 * u64::from(self.kind == QpKind::Ud) + u64::from(self.write) + data as u64
    }

    /// By hand: crossing, how often, bytes in all.
    fn by_hand(&self) -> [(Crossing, u64, u64); 5] {
        let copied = self.blueflame && self.batch == 1 && self.segments() <= 4;
        let rings = REQUESTS / self.batch;
        let fetched = if copied { 0 } else { REQUESTS };
        let (doorbells, copies) = if copied { (0, rings) } else { (rings, 0) };
        let payload = if self.inline { 0 } else { REQUESTS };
        let completions = REQUESTS / self.signal_every;
        [
            (Crossing::Doorbell, doorbells, 8 * doorbells),
            (Crossing::BlueFlame, copies, 64 * copies),
            (Crossing::SendEntry, fetched, 64 * self.segments().div_ceil(4) * fetched),
            (Crossing::SendPayload, payload, self.bytes as u64 * payload),
            (Crossing::Completion, completions, 64 * completions),
        ]
    }
}

fn spend(way: Way) {
    let rig = Rig::stepped();
    let options =
        QpOptions { blueflame: way.blueflame, ..QpOptions::new(way.kind).depth(128, 128).inline(64) };
    let (mut near, mut far) = rig.pair(&options);
    let ah = Ah::new(&rig.near.pd, &Path::new(rig.far.gid, 0)).expect("an address");
    let source = Mr::allocate(&rig.near.pd, 4096, all_rights()).expect("memory");
    let target = Mr::allocate(&rig.far.pd, 4096, all_rights()).expect("memory");
    let buffer = Mr::allocate(&rig.far.pd, 4096, all_rights()).expect("memory");
    if !way.write {
        let mut receives = far.qp.receives().expect("its own");
        for id in 0..REQUESTS {
            receives.mr(id, &buffer, 0..4096);
        }
        receives.ring().expect("posted");
    }
    let data = vec![7; way.bytes];
    let before = rig.near.model.ledger();
    let mut posted = 0;
    while posted < REQUESTS {
        let mut batch = near.qp.batch();
        for _ in 0..way.batch {
            posted += 1;
            if way.write {
                batch.write(posted, target.address(), target.rkey());
            } else {
                batch.send(posted);
            }
            if way.kind == QpKind::Ud {
                batch.to(&ah, far.qp.qpn(), QKEY);
            }
            if way.inline {
                batch.inline(&data);
            } else {
                batch.mr(&source, 0..way.bytes);
            }
            if posted % way.signal_every == 0 {
                batch.signalled();
            }
        }
        batch.ring().expect("posted");
        // The device is done with each batch before the next: nothing is fetched on suspicion.
        for _ in 0..4 {
            rig.turn();
        }
    }
    rig.completions(&mut near.cq, (REQUESTS / way.signal_every) as usize);
    let spent = rig.near.model.ledger() - before;
    for (crossing, transfers, bytes) in way.by_hand() {
        let tally = spent.of(crossing);
        assert_eq!((tally.transfers, tally.bytes), (transfers, bytes), "{crossing:?} of {way:?}; {spent:?}");
    }
    let records = spent.of(Crossing::DoorbellRecord).transfers;
    assert!(records <= REQUESTS / way.batch + 2, "{records} records of {way:?}");
    rig.is_clean();
}

/// Receives in lists: the entries of 16 bytes are read four at once, those of a shared queue, of 32 bytes, one at once, and the record once for each list at most.
fn take(shared: bool, list: u64) {
    let rig = Rig::stepped();
    let options = QpOptions::new(QpKind::Rc).depth(128, 128).inline(64);
    let (mut near, cq) = (rig.near.end(&options), rig.far.cq(512));
    let mut srq = Srq::new(&rig.far.pd, &SrqOptions::new(128)).expect("a shared queue");
    let mut far = match shared {
        true => Qp::with_srq(&rig.far.pd, &cq, &cq, &srq, &options),
        false => Qp::new(&rig.far.pd, &cq, &cq, &options),
    }
    .expect("a queue pair");
    far.init(1, all_rights()).expect("INIT");
    let to = |gid, qpn| Connection::new(Path::new(gid, 0), qpn);
    near.qp.connect(&to(rig.far.gid, far.qpn())).expect("RTS");
    far.connect(&to(rig.near.gid, near.qp.qpn())).expect("RTS");
    let buffer = Mr::allocate(&rig.far.pd, 4096, all_rights()).expect("memory");
    let before = rig.far.model.ledger();
    for _ in 0..REQUESTS / list {
        let mut receives = if shared { srq.receives() } else { far.receives().expect("its own") };
        for id in 0..list {
            receives.mr(id, &buffer, 0..64);
        }
        receives.ring().expect("posted");
    }
    let mut batch = near.qp.batch();
    for id in 0..REQUESTS {
        batch.send(id).inline(&[7; 64]);
    }
    batch.signalled();
    batch.ring().expect("posted");
    rig.completions(&mut near.cq, 1);
    let spent = rig.far.model.ledger() - before;
    // Whole blocks of 64 bytes are read, and an entry of a shared queue tells where the next one is.
    let entry = if shared { 64 } else { 16 };
    let entries = spent.of(Crossing::ReceiveEntry);
    assert_eq!(entries.bytes, entry * REQUESTS, "shared {shared}, {list}");
    assert!(entries.transfers <= REQUESTS, "shared {shared}, {list}");
    for (crossing, transfers, bytes) in [
        (Crossing::ReceivePayload, REQUESTS, 64 * REQUESTS),
        (Crossing::Completion, REQUESTS, 64 * REQUESTS),
        (Crossing::Doorbell, 0, 0),
    ] {
        let tally = spent.of(crossing);
        assert_eq!(
            (tally.transfers, tally.bytes),
            (transfers, bytes),
            "{crossing:?}, shared {shared}, {list}"
        );
    }
    let records = spent.of(Crossing::DoorbellRecord).transfers;
    assert!(records <= REQUESTS / list + 2, "{records} records, shared {shared}, in lists of {list}");
    rig.is_clean();
}

#[test]
fn receives_in_lists_cost_what_was_counted_by_hand() {
    for shared in [false, true] {
        for list in [1, 32] {
            take(shared, list);
        }
    }
}

#[test]
fn each_way_of_posting_costs_what_was_counted_by_hand() {
    let plain = Way {
        kind: QpKind::Rc,
        write: false,
        bytes: 64,
        inline: false,
        blueflame: false,
        batch: 1,
        signal_every: 1,
    };
    spend(plain);
    spend(Way { inline: true, ..plain });
    spend(Way { inline: true, bytes: 8, ..plain });
    spend(Way { inline: true, bytes: 8, blueflame: true, ..plain });
    spend(Way { inline: true, bytes: 8, write: true, blueflame: true, signal_every: 32, ..plain });
    // Two blocks: BlueFlame is of no use, nor in a batch.
    spend(Way { inline: true, bytes: 64, blueflame: true, ..plain });
    spend(Way { inline: true, bytes: 8, blueflame: true, batch: 32, signal_every: 32, ..plain });
    spend(Way { batch: 32, ..plain });
    spend(Way { batch: 32, signal_every: 32, inline: true, ..plain });
    spend(Way { write: true, inline: true, bytes: 8, batch: 32, signal_every: 32, ..plain });
    spend(Way { kind: QpKind::Ud, inline: true, bytes: 8, batch: 32, signal_every: 32, ..plain });
    spend(Way { kind: QpKind::Ud, bytes: 64, batch: 32, ..plain });
}
