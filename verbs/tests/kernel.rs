//! Verbs on a kernel's own device, of rxe or of mlx5: both ends on one device, which sends to itself.

#![expect(unsafe_code, reason = "who takes over a region promises that nobody refers into it")]

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_tests::patience::patient;
use pollux_tests::require::{Need, require};
use pollux_uverbs::KernelFile;
use pollux_uverbs::abi::flags::GidType;
use pollux_uverbs::abi::object::driver;
use pollux_verbs::{
    Access, Ah, Buffers, Connection, Context, Cq, CqOptions, Device, Dm, EthFilter, FlowSpec, FlowType,
    HashFields, HashQp, Ipv4Filter, Mr, MwType, Options, Path as To, Pd, Provider, Qp, QpAttributes, QpKind,
    QpOptions, QpState, Rule, Srq, SrqOptions, TcpUdpFilter, VerbsError, Wc, WcOpcode, WcStatus, Wq,
    WqOptions, WqState, WqTable, Xrcd,
};

/// The kernel's device to try: the first of mlx5 where `POLLUX_REQUIRE` names that, since it may carry somebody's connection; else
/// the first of rxe.
fn device() -> Option<(Device, Context)> {
    device_of(if Need::Mlx5.is_required() { Need::Mlx5 } else { Need::Rxe })
}

fn device_of(need: Need) -> Option<(Device, Context)> {
    if !require(&[need]) {
        return None;
    }
    let wanted = if need == Need::Mlx5 { driver::MLX5 } else { driver::RXE };
    let all = pollux_verbs::devices(Path::new("/")).expect("a kernel with uverbs");
    let found = all
        .into_iter()
        .filter(|device| device.driver_id() == Some(wanted))
        .find_map(|device| Some((Context::open_device(&device, Options::default()).ok()?, device)));
    let (context, device) = found.expect("the device that was found opens");
    Some((device, context))
}

fn kernels() -> Option<Context> {
    device().map(|(_, context)| context)
}

/// Index and value of a GID of IPv4.
fn gid(context: &Context) -> (u8, [u8; 16]) {
    let all = context.gids().expect("GIDs");
    let v4 = all.iter().find(|gid| {
        gid.kind == GidType::ROCE_V2 && gid.gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    });
    let found = v4.or(all.first()).expect("a GID");
    (found.index as u8, found.gid)
}

/// What a completion told.
#[derive(Debug, PartialEq)]
struct Done {
    id: u64,
    status: WcStatus,
    opcode: WcOpcode,
    bytes: u32,
    imm: Option<u32>,
    data: Vec<u8>,
}

fn wait(cq: &mut Cq, count: usize) -> Vec<Done> {
    let end = Instant::now() + patient(Duration::from_secs(10));
    let mut done = Vec::new();
    while done.len() < count {
        assert!(Instant::now() < end, "only {done:?} in time");
        cq.poll(count - done.len(), |wc: &mut Wc<'_, '_>| {
            let (id, status, opcode, bytes, imm) = (wc.id(), wc.status(), wc.opcode(), wc.bytes(), wc.imm());
            let data = std::iter::from_fn(|| wc.take_buf()).flat_map(|buf| buf.to_vec()).collect();
            done.push(Done { id, status, opcode, bytes, imm, data });
        });
    }
    done
}

struct Ends {
    one: Qp,
    two: Qp,
    cq: Cq,
    buffers: Buffers,
    pd: Pd,
}

fn connected(context: &Context, kind: QpKind) -> Ends {
    let pd = Pd::new(context).expect("a domain");
    let buffers = Buffers::new(&pd, 32, 4096).expect("buffers");
    let cq = Cq::new(context, CqOptions::new(64)).expect("a completion queue");
    let options = QpOptions::new(kind).depth(16, 16).inline(64).pieces(2, 2);
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let rights = if kind == QpKind::Rc { rights } else { Access::REMOTE_WRITE };
    let make = || {
        let mut qp = Qp::new(&pd, &cq, &cq, &options).expect("a queue pair");
        qp.init(1, rights).expect("INIT");
        qp
    };
    let (mut one, mut two) = (make(), make());
    let (index, own) = gid(context);
    let path = To { hop_limit: 1, ..To::new(own, index) };
    one.connect(&Connection::new(path, two.qpn())).expect("connected");
    two.connect(&Connection::new(path, one.qpn())).expect("connected");
    Ends { one, two, cq, buffers, pd }
}

#[test]
fn messages_go_over_connections() {
    let Some(context) = kernels() else { return };
    for kind in [QpKind::Rc, QpKind::Uc] {
        let Ends { mut one, mut two, mut cq, buffers, .. } = connected(&context, kind);
        let mut receives = two.receives().expect("a ring of its own");
        for id in 0..3 {
            receives.piece(id, buffers.take().expect("a buffer"));
        }
        assert_eq!(receives.ring(), Ok(3));
        let mut batch = one.batch();
        batch.send(10).inline(b"small").signalled();
        batch.send(11).piece(buffers.filled(&[7; 4000]).expect("a buffer")).imm(0x1234_5678).signalled();
        let parts = [buffers.filled(b"two ").expect("a buffer"), buffers.filled(b"parts").expect("a buffer")];
        let mut open = batch.send(12).signalled();
        for part in parts {
            open = open.piece(part);
        }
        assert_eq!(batch.ring(), Ok(3));
        let done = wait(&mut cq, 6);
        let of = |id| done.iter().find(|done| done.id == id).expect("completed");
        for id in 10..13 {
            assert_eq!((of(id).status, of(id).opcode), (WcStatus::SUCCESS, WcOpcode::SEND), "{done:?}");
        }
        assert_eq!(of(0).data, b"small");
        assert_eq!((of(1).imm, of(1).data.len(), of(1).opcode), (Some(0x1234_5678), 4000, WcOpcode::RECV));
        assert_eq!(of(2).data, b"two parts");
        assert_eq!(buffers.available(), buffers.count(), "all came home");
    }
}

#[test]
fn memory_is_written_read_and_swapped() {
    let Some(context) = kernels() else { return };
    let Ends { mut one, two, mut cq, buffers, pd } = connected(&context, QpKind::Rc);
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let far = Mr::allocate(&pd, 8192, rights).expect("a region");
    far.store64(8, 40);
    let mut batch = one.batch();
    batch.write(1, far.address() + 100, far.rkey()).piece(buffers.filled(&[9; 3000]).expect("a buffer"));
    let mut room = buffers.take().expect("a buffer");
    assert!(room.set_len(3000));
    batch.read(2, far.address() + 100, far.rkey()).piece(room).signalled();
    let word = |value: u64| buffers.filled(&value.to_ne_bytes()).expect("a buffer");
    batch.fetch_add(3, far.address() + 8, far.rkey(), 2).piece(word(0)).signalled();
    batch.compare_swap(4, far.address() + 8, far.rkey(), 42, 77).piece(word(0)).signalled();
    assert_eq!(batch.ring(), Ok(4));
    let done = wait(&mut cq, 3);
    assert!(done.iter().all(|done| done.status == WcStatus::SUCCESS), "{done:?}");
    assert_eq!((done[0].id, done[0].opcode), (2, WcOpcode::RDMA_READ));
    // The written buffer came home with the read, whose data are behind it.
    assert_eq!(done[0].data[3000..], [9; 3000]);
    assert_eq!((done[1].opcode, &done[1].data[..]), (WcOpcode::FETCH_ADD, &40_u64.to_ne_bytes()[..]));
    assert_eq!((done[2].opcode, &done[2].data[..]), (WcOpcode::COMP_SWAP, &42_u64.to_ne_bytes()[..]));
    assert_eq!(far.load64(8), 77);
    let mut seen = [0; 3000];
    far.read(100, &mut seen);
    assert_eq!(seen, [9; 3000]);
    // What is not allowed is an error at this end, and what is behind it is flushed.
    let mut batch = one.batch();
    batch
        .write(5, far.address() + 8000, far.rkey())
        .piece(buffers.filled(&[1; 1000]).expect("a buffer"))
        .signalled();
    batch.send(6).inline(b"x").signalled();
    assert_eq!(batch.ring(), Ok(2));
    let done = wait(&mut cq, 2);
    assert_eq!((done[0].id, done[0].status), (5, WcStatus::REM_ACCESS_ERR));
    assert_eq!((done[1].id, done[1].status), (6, WcStatus::WR_FLUSH_ERR));
    drop((one, two));
    assert_eq!(buffers.available(), buffers.count());
}

#[test]
fn a_window_opens_a_part_of_a_region() {
    let Some(context) = kernels() else { return };
    let Ends { mut one, mut two, mut cq, buffers, pd } = connected(&context, QpKind::Rc);
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::MW_BIND;
    let far = Mr::allocate(&pd, 4096, rights).expect("a region");
    let mut window = pollux_verbs::Mw::new(&pd, MwType::Type2).expect("a window");
    let mut batch = two.batch();
    batch.bind(1, &mut window, &far, 0..64, Access::REMOTE_WRITE).signalled();
    assert_eq!(batch.ring(), Ok(1));
    let done = wait(&mut cq, 1);
    assert_eq!((done[0].status, done[0].opcode), (WcStatus::SUCCESS, WcOpcode::BIND_MW));
    let mut batch = one.batch();
    batch
        .write(2, far.address(), window.rkey())
        .piece(buffers.filled(b"by the window").expect("a buffer"))
        .signalled();
    assert_eq!(batch.ring(), Ok(1));
    assert_eq!(wait(&mut cq, 1)[0].status, WcStatus::SUCCESS);
    let mut seen = [0; 13];
    far.read(0, &mut seen);
    assert_eq!(&seen, b"by the window");
}

#[test]
fn datagrams_are_told_from_whom() {
    let Some(context) = kernels() else { return };
    let pd = Pd::new(&context).expect("a domain");
    let buffers = Buffers::new(&pd, 8, 4096).expect("buffers");
    let mut cq = Cq::new(&context, CqOptions::new(16)).expect("a completion queue");
    let make = || {
        let mut qp = Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Ud).depth(8, 8)).expect("a queue pair");
        qp.ready_datagram(1, 0x1111_1111, 0).expect("RTS");
        qp
    };
    let (mut one, mut two) = (make(), make());
    let (index, own) = gid(&context);
    let ah = Ah::new(&pd, &To { hop_limit: 1, ..To::new(own, index) }).expect("an address");
    let mut receives = two.receives().expect("a ring of its own");
    receives.piece(1, buffers.take().expect("a buffer"));
    receives.ring().expect("posted");
    let mut batch = one.batch();
    batch
        .send(2)
        .to(&ah, two.qpn(), 0x1111_1111)
        .piece(buffers.filled(b"datagram").expect("a buffer"))
        .signalled();
    assert_eq!(batch.ring(), Ok(1));
    let (mut source, mut back) = (0, None);
    let end = Instant::now() + patient(Duration::from_secs(10));
    let mut count = 0;
    while count < 2 {
        assert!(Instant::now() < end, "{count} completions in time");
        count += cq.poll(2, |wc| {
            assert!(wc.is_ok(), "{wc:?}");
            if wc.is_receive() {
                source = wc.source_qpn();
                let buf = wc.take_buf().expect("its buffer");
                assert_eq!(&buf[40..], b"datagram");
                back = To::back(wc, &buf, index);
            }
        });
    }
    assert_eq!(source, one.qpn());
    assert_eq!(back.expect("a header").gid, own);
}

#[test]
fn a_shared_queue_feeds_several() {
    let Some(context) = kernels() else { return };
    let pd = Pd::new(&context).expect("a domain");
    let buffers = Buffers::new(&pd, 16, 256).expect("buffers");
    let mut cq = Cq::new(&context, CqOptions::new(32)).expect("a completion queue");
    let mut srq = Srq::new(&pd, &SrqOptions::new(8)).expect("a shared queue");
    let (index, own) = gid(&context);
    let path = To { hop_limit: 1, ..To::new(own, index) };
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let options = QpOptions::new(QpKind::Rc).depth(4, 4).inline(32);
        let mut one = Qp::new(&pd, &cq, &cq, &options).expect("a queue pair");
        let mut two = Qp::with_srq(&pd, &cq, &cq, &srq, &options).expect("a queue pair");
        one.init(1, Access::empty()).expect("INIT");
        two.init(1, Access::empty()).expect("INIT");
        one.connect(&Connection::new(path, two.qpn())).expect("connected");
        two.connect(&Connection::new(path, one.qpn())).expect("connected");
        pairs.push((one, two));
    }
    let mut receives = srq.receives();
    for id in 0..4 {
        receives.piece(id, buffers.take().expect("a buffer"));
    }
    assert_eq!(receives.ring(), Ok(4));
    for (one, _) in &mut pairs {
        let mut batch = one.batch();
        batch.send(10).inline(b"shared").signalled();
        batch.send(11).inline(b"twice").signalled();
        assert_eq!(batch.ring(), Ok(2));
    }
    let done = wait(&mut cq, 8);
    let received: Vec<&[u8]> = done.iter().filter(|done| done.id < 4).map(|done| &done.data[..]).collect();
    assert_eq!(received.iter().filter(|data| **data == b"shared").count(), 2, "{done:?}");
    assert_eq!(received.iter().filter(|data| **data == b"twice").count(), 2, "{done:?}");
}

#[test]
fn what_was_posted_comes_home_with_the_queue() {
    let Some(context) = kernels() else { return };
    let Ends { one, mut two, mut cq, buffers, .. } = connected(&context, QpKind::Rc);
    let mut receives = two.receives().expect("a ring of its own");
    for id in 0..5 {
        receives.piece(id, buffers.take().expect("a buffer"));
    }
    assert_eq!(receives.ring(), Ok(5));
    let mut refused = two.receives().expect("a ring of its own");
    for id in 0..64 {
        let Some(buf) = buffers.take() else { break };
        refused.piece(id, buf);
    }
    refused.ring().expect_err("more than fit");
    assert_eq!(buffers.available(), buffers.count() - 5);
    drop((one, two));
    // The completion queue might still tell of them.
    assert_eq!(cq.poll(8, |_| {}), 0);
    assert_eq!(buffers.available(), buffers.count());
}

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

/// What mlx5 has and rxe has not.
mod mlx5 {
    use super::*;

    /// Another process's view: the same file, by a duplicate of its descriptor.
    #[test]
    fn a_context_is_shared_by_its_file() {
        let Some((device, _)) = device_of(Need::Mlx5) else { return };
        let file = device.open().expect("the file");
        let copy = file.fd().try_clone_to_owned().expect("a descriptor");
        let first = Context::open(file, Provider::Mlx5, Options::default()).expect("a context");
        let pd = Pd::new(&first).expect("a domain");
        let mr = Mr::allocate(&pd, 4096, Access::LOCAL_WRITE | Access::REMOTE_READ).expect("a region");
        let copy = Arc::new(KernelFile::adopt(copy).expect("a device's file"));
        let second = Context::import(copy, Provider::Mlx5, Options::default()).expect("the same context");
        let imported = Pd::import(&second, pd.handle());
        // SAFETY: nobody has references into a region.
        let region =
            unsafe { Mr::import(&imported, mr.handle().expect("its own"), mr.access()) }.expect("known");
        assert_eq!((region.lkey(), region.rkey()), (mr.lkey(), mr.rkey()));
        assert_eq!((region.address(), region.bytes()), (mr.address(), mr.bytes()));
        // A queue pair of the second's reads what the first has.
        mr.write(0, b"of the first");
        let buffers = Buffers::new(&imported, 2, 64).expect("buffers");
        let mut cq = Cq::new(&second, CqOptions::new(16)).expect("a completion queue");
        let make = || {
            let mut qp = Qp::new(&imported, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
            qp.init(1, Access::REMOTE_READ).expect("INIT");
            qp
        };
        let (mut one, mut two) = (make(), make());
        let (index, own) = gid(&second);
        let path = To { hop_limit: 1, ..To::new(own, index) };
        one.connect(&Connection::new(path, two.qpn())).expect("connected");
        two.connect(&Connection::new(path, one.qpn())).expect("connected");
        let mut batch = one.batch();
        batch
            .read(1, region.address(), region.rkey())
            .piece(buffers.filled(&[0; 12]).expect("a buffer"))
            .signalled();
        assert_eq!(batch.ring(), Ok(1));
        let done = wait(&mut cq, 1);
        assert_eq!((done[0].status, &done[0].data[..]), (WcStatus::SUCCESS, &b"of the first"[..]));
        drop((one, two, cq, buffers, region, imported, second));
        mr.deregister().expect("still the first's");
        assert!(KernelFile::adopt(std::fs::File::open("/proc/self/status").expect("a file").into()).is_err());
    }

    /// A receiver of XRC, known by its number, in a domain that two contexts share by a file.
    #[test]
    fn a_receiver_of_xrc_is_opened() {
        let Some((device, context)) = device_of(Need::Mlx5) else { return };
        let path = std::env::temp_dir().join(format!("pollux-xrc-{}", std::process::id()));
        let file = std::fs::File::create(&path).expect("a file");
        drop(std::fs::remove_file(&path));
        let own = Xrcd::of_file(&context, file.as_fd()).expect("mlx5 has XRC");
        let mut receiver = Qp::xrc_receiver(&own).expect("a receiver");
        receiver.init(1, Access::empty()).expect("INIT");
        let other = Context::open_device(&device, Options::default()).expect("a context");
        let pd = Pd::new(&other).expect("a domain");
        let shared = Xrcd::of_file(&other, file.as_fd()).expect("the same domain");
        let buffers = Buffers::new(&pd, 4, 64).expect("buffers");
        let mut cq = Cq::new(&other, CqOptions::new(16)).expect("a completion queue");
        let mut srq = Srq::xrc(&pd, &shared, &cq, &SrqOptions::new(8)).expect("a shared queue");
        let mut receives = srq.receives();
        receives.piece(5, buffers.take().expect("a buffer"));
        receives.ring().expect("posted");
        let opened = Qp::open(&shared, receiver.qpn()).expect("opened");
        assert_eq!(QpState(opened.query().expect("values").qp_state), QpState::INIT);

        let mut send_cq = Cq::new(&other, CqOptions::new(16)).expect("a completion queue");
        let options = QpOptions::new(QpKind::XrcSend).inline(32);
        let mut sender = Qp::new(&pd, &send_cq, &send_cq, &options).expect("a sender");
        sender.init(1, Access::empty()).expect("INIT");
        let (index, gid) = gid(&context);
        let path = To { hop_limit: 1, ..To::new(gid, index) };
        sender.connect(&Connection::new(path, receiver.qpn())).expect("RTS");
        receiver.ready_to_receive(&Connection::new(path, sender.qpn())).expect("RTR");
        opened
            .modify(&QpAttributes { sq_psn: Some(0), timeout: Some(14), ..QpAttributes::state(QpState::RTS) })
            .expect("RTS");
        drop((receiver, own));
        let mut batch = sender.batch();
        batch.send(7).to_srq(srq.number()).inline(b"to the other").signalled();
        batch.ring().expect("posted");
        assert_eq!(wait(&mut send_cq, 1)[0].status, WcStatus::SUCCESS);
        let got = wait(&mut cq, 1);
        assert_eq!((got[0].id, &got[0].data[..]), (5, &b"to the other"[..]));
    }

    #[test]
    fn memory_of_the_device_is_written_and_read_back() {
        let Some((_, context)) = device_of(Need::Mlx5) else { return };
        let Ends { mut one, two, mut cq, buffers, pd } = connected(&context, QpKind::Rc);
        let dm = Dm::new(&context, 256, 6).expect("memory of the device");
        let mr =
            Mr::of_device(&pd, &dm, 0..256, Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE)
                .expect("a region of it");
        let mut batch = one.batch();
        batch.write(1, mr.address() + 8, mr.rkey()).inline(b"by the peer!").signalled();
        assert_eq!(batch.ring(), Ok(1));
        assert_eq!(wait(&mut cq, 1)[0].status, WcStatus::SUCCESS);
        let mut seen = [0; 12];
        dm.read(8, &mut seen).expect("inside");
        assert_eq!(&seen, b"by the peer!");
        dm.write(100, b"by us").expect_err("not whole words");
        dm.write(100, b"by us...").expect("inside");
        let mut batch = one.batch();
        batch
            .read(2, mr.address() + 100, mr.rkey())
            .piece(buffers.filled(&[0; 8]).expect("a buffer"))
            .signalled();
        assert_eq!(batch.ring(), Ok(1));
        let done = wait(&mut cq, 1);
        assert_eq!((done[0].status, &done[0].data[..]), (WcStatus::SUCCESS, &b"by us..."[..]));
        drop(two);
    }

    /// The MAC address that the device's link-local GID is made of.
    fn mac(context: &Context) -> [u8; 6] {
        let all = context.gids().expect("GIDs");
        let gid = all.iter().find(|gid| gid.gid[..2] == [0xfe, 0x80]).expect("a link-local GID").gid;
        [gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15]]
    }

    #[test]
    fn frames_are_spread_over_queues() {
        if !require(&[Need::Mlx5]) {
            return;
        }
        let all = pollux_verbs::devices(Path::new("/")).expect("a kernel with uverbs");
        let mut contexts: Vec<Context> = all
            .iter()
            .filter(|device| device.driver_id() == Some(driver::MLX5))
            .map(|device| Context::open_device(device, Options::default()).expect("it opens"))
            .collect();
        let (Some(far), Some(near)) = (contexts.pop(), contexts.pop()) else {
            panic!("both ends of a cable")
        };
        let own = mac(&far);
        let pd = Pd::new(&far).expect("a domain");
        let buffers = Buffers::new(&pd, 64, 2048).expect("buffers");
        let mut cq = Cq::new(&far, CqOptions::new(64)).expect("a completion queue");
        let queues: Vec<Wq> = (0..4)
            .map(|_| {
                let mut wq = Wq::new(&pd, &cq, &WqOptions::new(16)).expect("a queue");
                wq.modify(WqState::RDY).expect("it receives");
                let mut receives = wq.receives();
                for id in 0..16 {
                    receives.piece(id, buffers.take().expect("a buffer"));
                }
                assert_eq!(receives.ring(), Ok(16));
                wq
            })
            .collect();
        let table = WqTable::new(&pd, &queues.iter().collect::<Vec<_>>()).expect("a table");
        let fields =
            HashFields::SRC_IPV4 | HashFields::DST_IPV4 | HashFields::SRC_PORT_UDP | HashFields::DST_PORT_UDP;
        let key: [u8; 40] = std::array::from_fn(|at| (at as u8).wrapping_mul(37) ^ 0x5a);
        let mut spread = HashQp::new(&table, fields, &key).expect("a queue pair");
        let value = EthFilter { dst_mac: own, ..EthFilter::default() };
        let mask = EthFilter { dst_mac: [0xff; 6], ..EthFilter::default() };
        let any =
            FlowSpec::Udp { value: TcpUdpFilter::default(), mask: TcpUdpFilter::default(), inner: false };
        let any_ip =
            FlowSpec::Ipv4 { value: Ipv4Filter::default(), mask: Ipv4Filter::default(), inner: false };
        let specs = [FlowSpec::Eth { value, mask, inner: false }, any_ip, any, FlowSpec::Tag(0xbeef)];
        spread.steer(&Rule { port: 1, priority: 0, kind: FlowType::NORMAL, specs: &specs }).expect("a rule");

        let sender = Pd::new(&near).expect("a domain");
        let outgoing = Buffers::new(&sender, 4, 2048).expect("buffers");
        let mut sent = Cq::new(&near, CqOptions::new(16)).expect("a completion queue");
        let options = QpOptions::new(QpKind::Raw).depth(16, 0);
        let mut raw = Qp::new(&sender, &sent, &sent, &options).expect("a queue pair");
        raw.init(1, Access::empty()).expect("INIT");
        for state in [QpState::RTR, QpState::RTS] {
            raw.modify(&QpAttributes::state(state)).expect("ready");
        }
        let mut met = std::collections::HashMap::new();
        for port in 0..32_u16 {
            let mut frame = own.to_vec();
            frame.extend([
                2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
            ]);
            frame.extend(port.to_be_bytes());
            frame.extend([0x12, 0x34, 0, 26, 0, 0]);
            frame.resize(60, port as u8);
            let mut batch = raw.batch();
            batch.send(99).checksums().piece(outgoing.filled(&frame).expect("a buffer")).signalled();
            batch.ring().expect("posted");
            assert_eq!(wait(&mut sent, 1)[0].status, WcStatus::SUCCESS);
            let end = Instant::now() + Duration::from_secs(10);
            let mut came = None;
            while came.is_none() {
                assert!(Instant::now() < end, "port {port} did not come");
                cq.poll(1, |wc: &mut Wc<'_, '_>| {
                    let about = (wc.qpn(), wc.rss_hash(), wc.flow_tag(), wc.are_checksums_ok());
                    came = Some((about, wc.take_buf().map(|buf| buf.to_vec()).unwrap_or_default()));
                });
            }
            let ((number, hash, tag, good), data) = came.expect("it came");
            assert_eq!((tag, good), (0xbeef, true), "port {port}");
            assert_eq!((&data[34..36], data.last()), (&port.to_be_bytes()[..], Some(&(port as u8))));
            assert_eq!(number, queues[hash as usize % 4].number(), "port {port}, hash {hash:#x}");
            *met.entry(number).or_insert(0) += 1;
        }
        assert_eq!(met.len(), 4, "all queues had some: {met:?}");
        // The kernel lets go children first, whatever is dropped first here.
        drop((queues, table));
        drop(spread);
        cq.poll(1, |wc: &mut Wc<'_, '_>| panic!("{wc:?}"));
        assert_eq!(buffers.available(), buffers.count(), "all came home");
    }
}

mod rxe {
    use super::*;

    #[test]
    fn what_rxe_has_not_is_refused() {
        let Some((device, context)) = device_of(Need::Rxe) else { return };
        let file = tempfile::tempfile().expect("a file");
        assert!(Xrcd::of_file(&context, file.as_fd()).is_err(), "a domain of XRC");
        assert!(
            matches!(Dm::new(&context, 256, 6), Err(VerbsError::Unsupported { .. })),
            "memory of its own"
        );
        let file = device.open().expect("the file");
        let copy = file.fd().try_clone_to_owned().expect("a descriptor");
        let _first = Context::open(file, Provider::Rxe, Options::default()).expect("a context");
        let copy = Arc::new(KernelFile::adopt(copy).expect("a device's file"));
        let second = Context::import(copy, Provider::Rxe, Options::default());
        assert!(matches!(second, Err(VerbsError::Unsupported { .. })), "another process's context");
    }
}
