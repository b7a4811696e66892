//! rdma-core's pingpongs at the other end, whose exchange and course of events are spoken here with nothing between them and `verbs`.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use super::*;

/// What the ends of rdma-core's pingpongs tell each other over TCP. Source: rdma-core
/// `libibverbs/examples/rc_pingpong.c`, `pp_client_exch_dest`, `pp_server_exch_dest`.
mod exchange {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    /// An end: queue pair, first packet number, GID.
    pub(super) type End = (u32, u32, [u8; 16]);

    /// A message: four fields and a zero.
    const BYTES: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;

    pub(super) fn tell(stream: &mut TcpStream, (qpn, psn, gid): End) {
        let gid: String = gid.iter().map(|byte| format!("{byte:02x}")).collect();
        let message = format!("{:04x}:{qpn:06x}:{psn:06x}:{gid}\0", 0);
        stream.write_all(message.as_bytes()).expect("told");
    }

    pub(super) fn hear(stream: &mut TcpStream) -> End {
        let mut message = [0; BYTES];
        stream.read_exact(&mut message).expect("the peer's end");
        let text = std::str::from_utf8(&message[..BYTES - 1]).expect("text");
        let mut fields = text.split(':').skip(1);
        let mut number = || u32::from_str_radix(fields.next().expect("a field"), 16).expect("a number");
        let (qpn, psn) = (number(), number());
        let text = fields.next().expect("a GID");
        let gid = std::array::from_fn(|byte| {
            u8::from_str_radix(&text[2 * byte..2 * byte + 2], 16).expect("a byte")
        });
        (qpn, psn, gid)
    }
}

/// Our end of a pingpong: the program's name, whether it listens, and where both meet.
struct Game<'a> {
    device: &'a str,
    kind: QpKind,
    program: &'static str,
    listens: bool,
    port: u16,
}

const ROUNDS: usize = 200;
const BYTES: usize = 1024;
const PSN: u32 = 0x12_3456;
const QKEY: u32 = 0x1111_1111;

impl Game<'_> {
    /// Plays against rdma-core's program.
    fn play(&self, context: &Context) {
        let (index, own) = gid(context);
        let mut command = Command::new(self.program);
        command.args(["-d", self.device, "-g", &index.to_string(), "-n", &ROUNDS.to_string()]);
        command.args(["-s", &BYTES.to_string(), "-p", &self.port.to_string()]);
        let pd = Pd::new(context).expect("a domain");
        let buffers = Buffers::new(&pd, 128, BYTES + 40).expect("buffers");
        let mut cq = Cq::new(context, CqOptions::new(256)).expect("a completion queue");
        let mut qp = Qp::new(&pd, &cq, &cq, &QpOptions::new(self.kind).depth(8, 100)).expect("a queue pair");
        if self.kind == QpKind::Ud {
            qp.ready_datagram(1, QKEY, PSN).expect("RTS");
        } else {
            qp.init(1, Access::empty()).expect("INIT");
        }
        let fill = |qp: &mut Qp, count: u64| {
            let mut receives = qp.receives().expect("a ring of its own");
            for id in 0..count {
                receives.piece(id, buffers.take().expect("a buffer"));
            }
            receives.ring().expect("posted");
        };
        fill(&mut qp, 100);
        let listener = self.listens.then(|| TcpListener::bind(("127.0.0.1", self.port)).expect("a port"));
        if listener.is_some() {
            command.arg("127.0.0.1");
        }
        let mut peer = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut stream = match &listener {
            Some(listener) => listener.accept().expect("the peer").0,
            None => until(|| TcpStream::connect(("127.0.0.1", self.port)).ok()),
        };
        let our_end = (qp.qpn(), PSN, own);
        let connect = |qp: &mut Qp, (qpn, rq_psn, far): exchange::End| {
            let path = To { hop_limit: 1, ..To::new(far, index) };
            if self.kind == QpKind::Ud {
                return (Some(Ah::new(&pd, &path).expect("an address")), qpn);
            }
            let connection = Connection { rq_psn, sq_psn: PSN, ..Connection::new(path, qpn) };
            qp.connect(&connection).expect("connected");
            (None, qpn)
        };
        let (ah, far) = if self.listens {
            let far = exchange::hear(&mut stream);
            let connected = connect(&mut qp, far);
            exchange::tell(&mut stream, our_end);
            let mut done = [0; 5];
            std::io::Read::read_exact(&mut stream, &mut done).expect("done");
            connected
        } else {
            exchange::tell(&mut stream, our_end);
            let far = exchange::hear(&mut stream);
            std::io::Write::write_all(&mut stream, b"done\0").expect("told");
            connect(&mut qp, far)
        };
        let send = |qp: &mut Qp, round: usize| {
            let mut batch = qp.batch();
            batch.send(1000).piece(buffers.filled(&[round as u8; BYTES]).expect("a buffer")).signalled();
            if let Some(ah) = &ah {
                batch.to(ah, far, QKEY);
            }
            batch.ring().expect("posted");
        };
        // Who connects serves first.
        if !self.listens {
            send(&mut qp, 0);
        }
        // The next ball may be here before the acknowledgement of the one before.
        let (mut came, mut went) = (0, 0);
        let take = |cq: &mut Cq, came: &mut usize, went: &mut usize| {
            for done in wait(cq, 1) {
                assert_eq!(done.status, WcStatus::SUCCESS, "{done:?}");
                if done.opcode == WcOpcode::RECV {
                    *came += 1;
                } else {
                    assert_eq!(done.id, 1000, "{done:?}");
                    *went += 1;
                }
            }
        };
        for round in 0..ROUNDS {
            if self.listens {
                // The ball comes, and goes back.
                while came <= round {
                    take(&mut cq, &mut came, &mut went);
                }
                send(&mut qp, round);
            } else {
                let done = wait(&mut cq, 2);
                assert!(done.iter().all(|done| done.status == WcStatus::SUCCESS), "{done:?}");
                if round + 1 < ROUNDS {
                    send(&mut qp, round + 1);
                }
            }
            fill(&mut qp, 1);
        }
        while self.listens && went < ROUNDS {
            take(&mut cq, &mut came, &mut went);
        }
        let said = peer.wait_with_output_in(Duration::from_secs(20));
        assert!(said.contains(&format!("{ROUNDS} iters")), "{}: {said}", self.program);
    }
}

/// Waits for something, ten seconds at most where the machine is not slow.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + patient(Duration::from_secs(10));
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "nothing in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

trait EndsInTime {
    fn wait_with_output_in(&mut self, limit: Duration) -> String;
}

impl EndsInTime for Child {
    fn wait_with_output_in(&mut self, limit: Duration) -> String {
        let end = Instant::now() + patient(limit);
        while self.try_wait().expect("its state").is_none() {
            if Instant::now() >= end {
                let _ = self.kill();
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut said = String::new();
        if let Some(stdout) = &mut self.stdout {
            let _ = std::io::Read::read_to_string(stdout, &mut said);
        }
        if let Some(stderr) = &mut self.stderr {
            let _ = std::io::Read::read_to_string(stderr, &mut said);
        }
        said
    }
}

#[test]
fn rdma_cores_pingpongs_play_with_us() {
    let Some((device, context)) = device() else { return };
    let kinds =
        [(QpKind::Rc, "ibv_rc_pingpong"), (QpKind::Uc, "ibv_uc_pingpong"), (QpKind::Ud, "ibv_ud_pingpong")];
    for (number, (kind, program)) in (0_u16..).zip(kinds) {
        for listens in [false, true] {
            let port = 18600 + 2 * number + u16::from(listens);
            Game { device: &device.ibdev, kind, program, listens, port }.play(&context);
        }
    }
}
