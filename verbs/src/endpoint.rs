//! Two processes that connect over a stream: queue pairs, numbers and memory, told in both directions.
//!
//! ```text
//!   one process                       a stream, such as TCP                       the other
//!   Endpoint::pair ── port, GID, queue pair, packet number, MTU, memory ──► <── ── Endpoint::pair
//!                  ── ready ──────────────────────────────────────────────► <── ──
//! ```
//!
//! For programs of which both ends are ours. Programs that meet those of rdma-core or perftest speak their text; see `rdma-apps`.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use crate::{
    Access, Connection, Context, Cq, CqOptions, Mr, Mtu, Path, Pd, PortState, Qp, QpKind, QpOptions,
    VerbsError, random_psn,
};

/// First bytes of what an end says: protocol and version.
const MAGIC: [u8; 8] = *b"plxpair1";
/// Bytes that an end says of itself.
const MESSAGE: usize = 64;
/// What an end says when it can receive.
const READY: [u8; 8] = *b"plxready";

/// Why two ends did not connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// The device could not.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The stream failed, or the other end closed it.
    #[error("cannot exchange addresses with the peer: {0}")]
    Stream(#[from] io::Error),
    /// The other end said something else.
    #[error("the peer's {what} cannot be ({value}): is it a program with `Endpoint::pair` of this version?")]
    Peer {
        /// Which part of it.
        what: &'static str,
        /// What was said.
        value: String,
    },
}

/// What an endpoint is made with.
#[derive(Clone, Copy, Debug)]
pub struct EndpointOptions {
    /// Port, from 1; `None` is the first that is active.
    pub port: Option<u8>,
    /// GID by its index; `None` is [`Context::best_gid`].
    pub gid_index: Option<u8>,
    /// Requests under way, of each kind.
    pub depth: u32,
    /// Bytes that a request may carry in itself.
    pub inline: u32,
    /// Reads under way in each direction.
    pub reads: u8,
    /// How long to wait for the port to become active: its link comes up with the other end's.
    pub patience: Duration,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            port: None,
            gid_index: None,
            depth: 128,
            inline: 0,
            reads: 1,
            patience: Duration::from_secs(5),
        }
    }
}

/// Memory of the other end that it allows this one to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Where it begins there.
    pub address: u64,
    /// What requests name it by.
    pub rkey: u32,
    /// How much it is.
    pub bytes: u64,
}

/// A reliable connection to the other end, with one completion queue for both directions.
#[derive(Debug)]
pub struct Endpoint {
    /// Posts.
    pub qp: Qp,
    /// Completes sends and receives.
    pub cq: Cq,
    /// The other end's memory, if it gave any.
    pub remote: Option<RemoteMemory>,
}

/// What an end says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hello {
    gid: [u8; 16],
    qpn: u32,
    psn: u32,
    mtu: Mtu,
    reads: u8,
    memory: Option<RemoteMemory>,
}

impl Hello {
    fn encode(&self) -> [u8; MESSAGE] {
        let mut message = [0; MESSAGE];
        let memory = self.memory.unwrap_or(RemoteMemory { address: 0, rkey: 0, bytes: 0 });
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            message[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&self.gid);
        put(&self.qpn.to_be_bytes());
        put(&self.psn.to_be_bytes());
        put(&[self.mtu.code(), self.reads, self.memory.is_some().into(), 0]);
        put(&memory.rkey.to_be_bytes());
        put(&memory.address.to_be_bytes());
        put(&memory.bytes.to_be_bytes());
        message
    }

    fn decode(message: &[u8; MESSAGE]) -> Result<Self, PairError> {
        let strange =
            |what, value: &dyn std::fmt::Debug| PairError::Peer { what, value: format!("{value:?}") };
        let mut rest = &message[..];
        let mut take = |bytes: usize| {
            let (front, behind) = rest.split_at(bytes);
            rest = behind;
            front.iter().fold(0u128, |number, byte| number << 8 | u128::from(*byte))
        };
        let (magic, gid) = (take(8), take(16));
        if magic != u128::from(u64::from_be_bytes(MAGIC)) {
            return Err(strange("first message", &message[..8].escape_ascii().to_string()));
        }
        let (qpn, psn) = (take(4) as u32, take(4) as u32);
        let (mtu, reads, has_memory, _) = (take(1) as u8, take(1) as u8, take(1), take(1));
        let (rkey, address, bytes) = (take(4) as u32, take(8) as u64, take(8) as u64);
        if qpn >= 1 << 24 || psn >= 1 << 24 {
            return Err(strange("queue pair or packet number", &(qpn, psn)));
        }
        if address.checked_add(bytes).is_none() {
            return Err(strange("memory", &(address, bytes)));
        }
        Ok(Self {
            gid: gid.to_be_bytes(),
            qpn,
            psn,
            mtu: Mtu::from_code(mtu).ok_or_else(|| strange("MTU", &mtu))?,
            reads,
            memory: (has_memory == 1).then_some(RemoteMemory { address, rkey, bytes }),
        })
    }
}

impl Endpoint {
    /// Connects with the process at the other end of `stream`, which calls this too. `memory` is what the other end may reach:
    /// its domain is the queue pair's, and its rights say what may be done there.
    ///
    /// # Errors
    /// [`PairError`]: a device without an active port or GID, a stream that ends or times out, a peer that speaks otherwise.
    pub fn pair(pd: &Pd, memory: Option<&Mr>, stream: &mut (impl Read + Write)) -> Result<Self, PairError> {
        Self::pair_with(pd, memory, stream, EndpointOptions::default())
    }

    /// [`pair`](Self::pair) with choices.
    ///
    /// # Errors
    /// As [`pair`](Self::pair), a port, GID index or sizes that the device does not have, and memory of another domain.
    pub fn pair_with(
        pd: &Pd,
        memory: Option<&Mr>,
        stream: &mut (impl Read + Write),
        options: EndpointOptions,
    ) -> Result<Self, PairError> {
        let context = pd.context();
        if let Some(mr) = memory {
            context.admit("a memory region", mr.pd().context())?;
            if !mr.pd().is(pd) {
                let why = "the memory region is of another protection domain than the queue pair".into();
                return Err(VerbsError::Unsupported { what: "a connection", why }.into());
            }
        }
        let port = active_port(context, options)?;
        let (gid_index, gid) = own_gid(context, port, options.gid_index)?;
        let mut cq = Cq::new(context, CqOptions::new(options.depth.saturating_mul(2)))?;
        let sizes = QpOptions::new(QpKind::Rc).depth(options.depth, options.depth).inline(options.inline);
        let mut qp = Qp::new(pd, &cq, &cq, &sizes)?;
        qp.make_room(&mut cq)?;
        qp.init(port, memory.map_or(Access::empty(), Mr::access))?;

        let own = Hello {
            gid,
            qpn: qp.qpn(),
            psn: random_psn(),
            mtu: context.active_mtu(port)?,
            reads: options.reads,
            memory: memory.map(|mr| RemoteMemory {
                address: mr.address(),
                rkey: mr.rkey(),
                bytes: mr.bytes() as u64,
            }),
        };
        stream.write_all(&own.encode())?;
        stream.flush()?;
        let mut message = [0; MESSAGE];
        stream.read_exact(&mut message)?;
        let peer = Hello::decode(&message)?;

        let reads = options.reads.min(peer.reads);
        qp.connect(&Connection {
            rq_psn: peer.psn,
            sq_psn: own.psn,
            mtu: own.mtu.min(peer.mtu),
            max_rd_atomic: reads,
            max_dest_rd_atomic: reads,
            ..Connection::new(Path { port, ..Path::new(peer.gid, gid_index) }, peer.qpn)
        })?;
        // Nobody sends before the other can receive.
        stream.write_all(&READY)?;
        stream.flush()?;
        let mut ready = [0; READY.len()];
        stream.read_exact(&mut ready)?;
        if ready != READY {
            return Err(PairError::Peer { what: "second message", value: ready.escape_ascii().to_string() });
        }
        Ok(Self { qp, cq, remote: peer.memory })
    }
}

fn active_port(context: &Context, options: EndpointOptions) -> Result<u8, VerbsError> {
    let begin = Instant::now();
    loop {
        let active = match options.port {
            Some(port) => {
                context.port_state(port).map(|state| (state == PortState::Active).then_some(port))?
            }
            None => context.active_port()?,
        };
        match active {
            Some(port) => return Ok(port),
            None if begin.elapsed() < options.patience => std::thread::sleep(Duration::from_millis(10)),
            None => {
                let which = options.port.map_or("no port".to_owned(), |port| format!("port {port}"));
                let is = if options.port.is_some() { "is not" } else { "is" };
                return Err(VerbsError::Unsupported {
                    what: "a connection",
                    why: format!(
                        "{which} of {} {is} active: see `ip link`, its cable and the switch",
                        context.name()
                    ),
                });
            }
        }
    }
}

fn own_gid(context: &Context, port: u8, index: Option<u8>) -> Result<(u8, [u8; 16]), PairError> {
    let found = match index {
        Some(index) => context.gid(port, index.into())?,
        None => context.best_gid(port, false)?,
    };
    let found = found.and_then(|gid| Some((u8::try_from(gid.index).ok()?, gid.gid)));
    found.ok_or_else(|| {
        PairError::Verbs(VerbsError::Unsupported {
            what: "a connection",
            why: match index {
                Some(index) => format!("port {port} of {} has no GID {index}", context.name()),
                None => {
                    format!("port {port} of {} has no GID: give its interface an address", context.name())
                }
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        gid: [7; 16],
        qpn: 0x12_3456,
        psn: 0xff_ffff,
        mtu: Mtu::Bytes4096,
        reads: 16,
        memory: Some(RemoteMemory { address: 1 << 40, rkey: 0xdead_beef, bytes: 1 << 30 }),
    };

    #[test]
    fn what_an_end_says_is_what_the_other_hears() {
        for hello in [HELLO, Hello { memory: None, ..HELLO }] {
            assert_eq!(Hello::decode(&hello.encode()).expect("it was encoded here"), hello);
        }
    }

    #[test]
    fn what_no_end_says_is_refused() {
        // First bytes, queue pair number, packet number, MTU, memory beyond the address space.
        for (at, byte, what) in [
            (0, b'x', "first message"),
            (24, 1, "queue pair or packet number"),
            (28, 1, "queue pair or packet number"),
            (32, 0, "MTU"),
            (32, 6, "MTU"),
            (40, 0xff, ""),
        ] {
            let mut message = HELLO.encode();
            message[at] = byte;
            match Hello::decode(&message) {
                Err(PairError::Peer { what: told, .. }) => assert_eq!(told, what),
                other => assert!(what.is_empty() && other.is_ok(), "{at}: {other:?}"),
            }
        }
        let beyond = Hello { memory: Some(RemoteMemory { address: u64::MAX, rkey: 1, bytes: 2 }), ..HELLO };
        assert!(matches!(Hello::decode(&beyond.encode()), Err(PairError::Peer { what: "memory", .. })));
    }
}
