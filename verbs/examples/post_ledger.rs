//! What each way of posting makes PCIe carry: transactions and bytes a request, by the device model's ledger, store by store.
//!
//! Two stepped models and a cable. The sending card, or the receiving one where receives are posted, is told of each store to a
//! doorbell page as it is made, so that one that brings its entry along is seen. The same in cycles: `verbs_post` in `benches`.
//! That these are the counts by hand is in `tests/rdma/ledger.rs`.
//!
//! `cargo run -p pollux-verbs --example post_ledger`

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use pollux_eal::mmio::trace;
use pollux_mlx5_model::Model;
use pollux_mlx5_model::ledger::{Crossing, Total};
use pollux_mlx5_model::wire::Cable;
use pollux_verbs::{
    Access, Ah, Connection, Context, Cq, CqOptions, Mr, Options, Path, Pd, Provider, Qp, QpKind, QpOptions,
    Srq, SrqOptions,
};

const REQUESTS: usize = 64;
const QKEY: u32 = 0x1111_1111;

/// A way of posting; what is not said is as in the first row.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    kind: QpKind,
    bytes: usize,
    write: bool,
    inline: bool,
    blueflame: bool,
    batch: usize,
    signal_every: usize,
    /// Peers in turn, behind one queue pair each or, of datagrams, behind one.
    peers: usize,
    /// Receives are what is posted, to the queue pair or to a shared queue.
    receives: Option<bool>,
    /// They are linked, and posted as they stand.
    linked: bool,
}

const PLAIN: Way = Way {
    name: "RC SEND 64 B, inline, batch 32, signalled 1 in 32",
    kind: QpKind::Rc,
    bytes: 64,
    write: false,
    inline: true,
    blueflame: false,
    batch: 32,
    signal_every: 32,
    peers: 1,
    receives: None,
    linked: false,
};

const WAYS: [Way; 15] = [
    PLAIN,
    Way { name: "inline off: from memory", inline: false, ..PLAIN },
    Way { name: "selective off: each signalled", signal_every: 1, ..PLAIN },
    Way { name: "batching off: one a doorbell", batch: 1, ..PLAIN },
    Way { name: "RC WRITE 8 B, inline, batch 32, signalled 1 in 32", bytes: 8, write: true, ..PLAIN },
    Way { name: "batch 4", bytes: 8, write: true, batch: 4, ..PLAIN },
    Way { name: "batching off: one a doorbell", bytes: 8, write: true, batch: 1, ..PLAIN },
    Way { name: "BlueFlame: one a copied entry", bytes: 8, write: true, batch: 1, blueflame: true, ..PLAIN },
    Way {
        name: "fan-out, RC SEND 8 B: 32 queue pairs, one each",
        bytes: 8,
        peers: 32,
        batch: 1,
        signal_every: 1,
        ..PLAIN
    },
    Way { name: "fan-out, UD SEND 8 B: one queue pair, batch 32", bytes: 8, kind: QpKind::Ud, ..PLAIN },
    Way { name: "receives in lists of 32", receives: Some(false), ..PLAIN },
    Way { name: "receives one by one", receives: Some(false), batch: 1, ..PLAIN },
    Way { name: "linked receives, 32 a record", receives: Some(false), linked: true, ..PLAIN },
    Way { name: "receives of a shared queue in lists of 32", receives: Some(true), ..PLAIN },
    Way { name: "receives of a shared queue one by one", receives: Some(true), batch: 1, ..PLAIN },
];

struct End {
    model: Model,
    pd: Pd,
    cq: Cq,
    gid: [u8; 16],
    mr: Mr,
}

fn end(name: &str, plug: Cable) -> Result<End, Box<dyn Error>> {
    let model = Model::builder(name).plugged(plug).stepped().build()?;
    let context = Context::open(model.open(), Provider::Mlx5, Options::default())?;
    let pd = Pd::new(&context)?;
    let gid = context.gid(1, 0)?.ok_or("no GID")?.gid;
    let cq = Cq::new(&context, CqOptions::new(1024))?;
    let mr = Mr::allocate(&pd, 8192, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    Ok(End { model, pd, cq, gid, mr })
}

fn work(ends: [&End; 2]) {
    while ends.iter().map(|end| end.model.settle()).sum::<usize>() > 0 {}
}

fn spend(way: &Way) -> Result<Total, Box<dyn Error>> {
    let (near, far) = Cable::pair();
    let (mut near, mut far) = (end("near", near)?, end("far", far)?);
    let counted = if way.receives.is_some() { &far } else { &near };
    let device = Arc::clone(counted.model.device());
    let registers = device.registers();
    let _observation = trace::observe(registers, move |store| device.store(store.address, store.bytes));

    let options =
        QpOptions { blueflame: way.blueflame, ..QpOptions::new(way.kind).depth(128, 128).inline(64) };
    let mut srq = match way.receives {
        Some(true) => Some(Srq::new(&far.pd, &SrqOptions::new(255))?),
        _ => None,
    };
    let queue_pairs = if way.kind == QpKind::Ud { 1 } else { way.peers };
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for _ in 0..queue_pairs {
        let mut sender = Qp::new(&near.pd, &near.cq, &near.cq, &options)?;
        let mut receiver = match &srq {
            Some(srq) => Qp::with_srq(&far.pd, &far.cq, &far.cq, srq, &options)?,
            None => Qp::new(&far.pd, &far.cq, &far.cq, &options)?,
        };
        if way.kind == QpKind::Ud {
            sender.ready_datagram(1, QKEY, 0)?;
            receiver.ready_datagram(1, QKEY, 0)?;
        } else {
            sender.init(1, Access::REMOTE_WRITE)?;
            receiver.init(1, Access::REMOTE_WRITE)?;
            sender.connect(&Connection::new(Path::new(far.gid, 0), receiver.qpn()))?;
            receiver.connect(&Connection::new(Path::new(near.gid, 0), sender.qpn()))?;
        }
        senders.push(sender);
        receivers.push(receiver);
    }
    let ah = Ah::new(&near.pd, &Path::new(far.gid, 0))?;
    let data = vec![7; way.bytes];
    let supply = |receivers: &mut [Qp], srq: &mut Option<Srq>, list: usize| -> Result<(), Box<dyn Error>> {
        let count = receivers.len();
        for at in 0..REQUESTS / list {
            if way.linked {
                receivers[at % count].post_linked(list as u32)?;
                continue;
            }
            let mut receives = match srq {
                Some(srq) => srq.receives(),
                None => receivers[at % count].receives().ok_or("no receives")?,
            };
            for id in 0..list {
                receives.mr(id as u64, &far.mr, 0..256);
            }
            receives.ring()?;
        }
        Ok(())
    };
    if way.linked {
        receivers[0].link_receives(&far.mr, 64)?;
    }
    let before = counted.model.ledger();
    supply(&mut receivers, &mut srq, if way.receives.is_some() { way.batch } else { 1 })?;
    let mut posted = 0;
    while posted < REQUESTS {
        // What is counted of receives are they alone, and their messages; these come in the cheapest way.
        let batch_size = if way.receives.is_some() { 32 } else { way.batch };
        let which = posted % senders.len();
        let mut batch = senders[which].batch();
        for _ in 0..batch_size {
            posted += 1;
            match way.write {
                true => batch.write(posted as u64, far.mr.address(), far.mr.rkey()),
                false => batch.send(posted as u64),
            };
            if way.kind == QpKind::Ud {
                batch.to(&ah, receivers[0].qpn(), QKEY);
            }
            match way.inline {
                true => batch.inline(&data),
                false => batch.mr(&near.mr, 0..way.bytes),
            };
            if posted.is_multiple_of(way.signal_every) {
                batch.signalled();
            }
        }
        batch.ring()?;
        work([&near, &far]);
    }
    near.cq.poll(1024, |wc| assert!(wc.is_ok(), "{wc:?}"));
    far.cq.poll(1024, |wc| assert!(wc.is_ok(), "{wc:?}"));
    let counted = if way.receives.is_some() { &far } else { &near };
    Ok(counted.model.ledger() - before)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::from(
        "| way | doorbells | copied | records | entries, B | payload, B | completions, B | transactions | bytes, with overhead |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for way in &WAYS {
        let spent = spend(way)?;
        let each = |value: u64| value as f64 / REQUESTS as f64;
        let (entry, payload) = match way.receives {
            None => (Crossing::SendEntry, Crossing::SendPayload),
            Some(_) => (Crossing::ReceiveEntry, Crossing::ReceivePayload),
        };
        // A card that only sends writes what it receives, its acknowledgements, nowhere.
        let cells = [
            each(spent.of(Crossing::Doorbell).transfers),
            each(spent.of(Crossing::BlueFlame).transfers),
            each(spent.of(Crossing::DoorbellRecord).transfers),
            each(spent.of(entry).bytes),
            each(spent.of(payload).bytes),
            each(spent.of(Crossing::Completion).bytes),
            each(spent.bus_packets()),
            each(spent.bytes_to_device() + spent.bytes_from_device()),
        ];
        let cells: Vec<String> = cells.iter().map(|value| format!("{value:.2}")).collect();
        text.push_str(&format!("| {} | {} |\n", way.name, cells.join(" | ")));
    }
    // A reader that went away, such as `| head`, is no error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}
