//! Two cards on a cable, each with a domain, and ends of connections between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_mlx5_model::wire::Cable;
use pollux_mlx5_model::{Builder, Model, Visibility, Watched, watch};
use pollux_verbs::{
    Access, Buffers, Connection, Context, Cq, CqOptions, Options, Path, Pd, Piece, Provider, Qp, QpKind,
    QpOptions, WcOpcode, WcStatus,
};

/// All rights.
pub(crate) fn all_rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// One card.
pub(crate) struct Side {
    /// Ends before the registers are unmapped: the next device may have their addresses.
    _watched: Option<Watched>,
    pub(crate) model: Arc<Model>,
    pub(crate) context: Context,
    pub(crate) pd: Pd,
    pub(crate) buffers: Buffers,
    pub(crate) gid: [u8; 16],
}

impl Side {
    pub(crate) fn new(model: Model) -> Self {
        Self::over(Arc::new(model))
    }

    /// With a context of its own on a card that others may have open too.
    pub(crate) fn over(model: Arc<Model>) -> Self {
        Self::with(model, Options::default())
    }

    pub(crate) fn with(model: Arc<Model>, options: Options) -> Self {
        // The device knows memory by other addresses than the process does, so a confusion of the two leads nowhere.
        let options = Options { address_shift_pages: 7, ..options };
        let context = Context::open(model.open(), Provider::Mlx5, options).expect("a context");
        let pd = Pd::new(&context).expect("a domain");
        let buffers = Buffers::new(&pd, 64, 8192).expect("buffers");
        let gid = context.gid(1, 0).expect("a table").expect("an entry").gid;
        Self { _watched: None, model, context, pd, buffers, gid }
    }

    pub(crate) fn cq(&self, entries: u32) -> Cq {
        Cq::new(&self.context, CqOptions::new(entries)).expect("a completion queue")
    }

    /// The handles that the kernel gives next: the smallest that are free. They are what they were once all that was made is gone.
    pub(crate) fn next_handles(&self) -> Vec<u32> {
        let domains: Vec<Pd> = (0..16).map(|_| Pd::new(&self.context).expect("a domain")).collect();
        domains.iter().map(|pd| pd.handle().0).collect()
    }

    /// A queue pair with a completion queue of its own, in INIT.
    pub(crate) fn end(&self, options: &QpOptions) -> End {
        self.end_with(CqOptions::new(512), options)
    }

    /// The same with another completion queue.
    pub(crate) fn end_with(&self, cq: CqOptions, options: &QpOptions) -> End {
        let cq = Cq::new(&self.context, cq).expect("a completion queue");
        let mut qp = Qp::new(&self.pd, &cq, &cq, options).expect("a queue pair");
        qp.init(1, all_rights()).expect("INIT");
        End { qp, cq, gid: self.gid }
    }
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) qp: Qp,
    pub(crate) cq: Cq,
    gid: [u8; 16],
}

/// Both cards.
pub(crate) struct Rig {
    pub(crate) near: Side,
    pub(crate) far: Side,
    stepped: bool,
}

impl Rig {
    /// Cards that do something when they are told to, in one thread.
    pub(crate) fn stepped() -> Self {
        Self::with(true)
    }

    /// Cards with a thread each.
    pub(crate) fn threaded() -> Self {
        Self::with(false)
    }

    fn with(stepped: bool) -> Self {
        Self::on(stepped, |builder| builder)
    }

    /// Cards that are not the usual ones.
    pub(crate) fn on(stepped: bool, change: impl Fn(Builder) -> Builder) -> Self {
        let (near, far) = Cable::pair();
        let [near, far] = [("near", near), ("far", far)].map(|(name, end)| {
            let builder = change(Model::builder(name).plugged(end));
            let builder = if stepped { builder.stepped() } else { builder.threaded() };
            let model = Arc::new(builder.build().expect("a model"));
            let _watched = Some(watch(model.device(), |_| {}));
            Side { _watched, ..Side::over(model) }
        });
        Self { near, far, stepped }
    }

    /// What both write becomes visible in any order that the bus allows, by seed.
    pub(crate) fn seeded(self, seed: u64) -> Self {
        for side in [&self.near, &self.far] {
            side.model.device().set_visibility(Visibility::AnyOrder(seed));
        }
        self
    }

    /// Lets both cards work.
    pub(crate) fn turn(&self) {
        if self.stepped {
            for _ in 0..8 {
                self.near.model.step();
                self.far.model.step();
            }
        } else {
            std::thread::yield_now();
        }
    }

    /// Ends of a kind, connected.
    pub(crate) fn pair(&self, options: &QpOptions) -> (End, End) {
        let (mut near, mut far) = (self.near.end(options), self.far.end(options));
        connect(&mut near, &mut far);
        (near, far)
    }

    /// Polls until `count` completions came, and tells what they were.
    pub(crate) fn completions(&self, cq: &mut Cq, count: usize) -> Vec<Done> {
        let mut all = Vec::new();
        let enough = self.soon(|| {
            cq.poll(64, |wc| all.push(Done::of(wc)));
            all.len() >= count
        });
        assert!(enough && all.len() == count, "{count} wanted, not {all:?}; {}", self.told());
        all
    }

    /// Lets both cards work until something is so.
    pub(crate) fn until(&self, what: &str, is: impl FnMut() -> bool) {
        assert!(self.soon(is), "no {what}; {}", self.told());
    }

    fn soon(&self, mut is: impl FnMut() -> bool) -> bool {
        let begun = Instant::now();
        let mut turns = 0_u64;
        while !is() {
            self.turn();
            turns += 1;
            if if self.stepped { turns > 200_000 } else { begun.elapsed() > Duration::from_secs(10) } {
                return false;
            }
        }
        true
    }

    fn told(&self) -> String {
        let of = |side: &Side| side.model.device().violations();
        format!("near {:?}, far {:?}", of(&self.near), of(&self.far))
    }

    /// That the cards found nothing wrong with what they were told.
    pub(crate) fn is_clean(&self) {
        for side in [&self.near, &self.far] {
            let violations = side.model.device().violations();
            assert!(violations.0.is_empty(), "{}: {violations:?}", side.model.name());
        }
    }
}

/// Whatever a test looks at: a driver that breaks a rule fails it.
impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.is_clean();
        }
    }
}

pub(crate) fn connect(near: &mut End, far: &mut End) {
    let (near_qpn, far_qpn) = (near.qp.qpn(), far.qp.qpn());
    let values = |gid, qpn, rq_psn, sq_psn| Connection {
        rq_psn,
        sq_psn,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        ..Connection::new(Path::new(gid, 0), qpn)
    };
    // Numbers of packets that soon wrap.
    let (one, two) = (0xff_fffa, 0x12_3456);
    if near.qp.kind() == QpKind::Ud {
        for end in [near, far] {
            end.qp.ready_datagram(1, QKEY, 0).expect("RTS");
        }
        return;
    }
    near.qp.connect(&values(far.gid, far_qpn, two, one)).expect("RTS");
    far.qp.connect(&values(near.gid, near_qpn, one, two)).expect("RTS");
}

/// The queue key of datagrams.
pub(crate) const QKEY: u32 = 0x1111_1111;

/// A completion, kept.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) id: u64,
    pub(crate) status: WcStatus,
    pub(crate) opcode: WcOpcode,
    pub(crate) bytes: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated: Option<u32>,
    pub(crate) qpn: u32,
    pub(crate) source_qpn: u32,
    pub(crate) pieces: Vec<Piece>,
}

impl Done {
    pub(crate) fn of(wc: &mut pollux_verbs::Wc<'_, '_>) -> Self {
        let mut pieces = Vec::new();
        while let Some(piece) = wc.take() {
            pieces.push(piece);
        }
        Self {
            id: wc.id(),
            status: wc.status(),
            opcode: wc.opcode(),
            bytes: wc.bytes(),
            imm: wc.imm(),
            invalidated: wc.invalidated(),
            qpn: wc.qpn(),
            source_qpn: wc.source_qpn(),
            pieces,
        }
    }

    /// All its bytes.
    pub(crate) fn data(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|piece| piece.bytes().to_vec()).collect()
    }
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}
