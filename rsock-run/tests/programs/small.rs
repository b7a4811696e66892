//! Small programs, each with one habit of a program of TCP.

use pollux_tests::require::{Need, require};

use super::bed::{Bed, CLIENT, End, SERVER, free_port, must};

/// What every program here begins with. A server tells on standard error that it listens.
const HEAD: &str = "
import hashlib, os, random, selectors, signal, socket, sys, time
port = int(sys.argv[1])
def listen(address, family=socket.AF_INET):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    s.listen(64)
    print('listening', file=sys.stderr, flush=True)
    return s
def connect(to='10.9.0.1'):
    return socket.create_connection((to, port))
def rest(s):
    parts = []
    while True:
        part = s.recv(65536)
        if not part: return b''.join(parts)
        parts.append(part)
";

/// A server and a client, both of which end well. What they printed, the client's first.
fn pair(server: &str, client: &str) -> [String; 2] {
    let bed = Bed::new();
    let port = free_port();
    let mut server = bed.python(End::Server, &format!("{HEAD}{server}"), &[&port]);
    server.wait_for("listening");
    let client = bed.python(End::Client, &format!("{HEAD}{client}"), &[&port]);
    let said = [must(client), must(server)];
    assert_eq!(bed.left(), 0, "folders of launchers that have ended");
    said
}

#[test]
fn both_ends_are_told_the_addresses_of_rdma() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    for (address, source) in [(SERVER, "None"), ("0.0.0.0", "('10.9.0.2', 0)"), ("::", "None")] {
        let family = if address == "::" { "socket.AF_INET6" } else { "socket.AF_INET" };
        let server = format!(
            "
s = listen('{address}', {family})
print(s.getsockname()[:2])
c, peer = s.accept()
print(c.getsockname()[0], peer[0], c.getpeername() == peer, c.dup().getpeername() == peer)
c.sendall(rest(c))
print(peer[1])
"
        );
        let client = format!(
            "
c = socket.create_connection(('10.9.0.1', port), source_address={source})
print(c.getsockname()[0], c.getpeername() == ('10.9.0.1', port))
c.sendall(b'over RDMA')
c.shutdown(socket.SHUT_WR)
print(rest(c))
print(c.getsockname()[1])
"
        );
        let [client, server] = pair(&server, &client);
        let (client, server): (Vec<_>, Vec<_>) = (client.lines().collect(), server.lines().collect());
        assert_eq!(client[..2], [format!("{CLIENT} True").as_str(), "b'over RDMA'"], "{address}");
        let mapped = if address == "::" { "::ffff:" } else { "" };
        assert!(server[0].starts_with(&format!("('{address}', ")), "{server:?}");
        assert_eq!(server[1], format!("{mapped}{SERVER} {mapped}{CLIENT} True True"));
        assert_eq!(client[2], server[2], "one port of the client");
    }
}

/// Who is not for the program's socket is not for another either, which listens at the same port of the other family.
#[test]
fn a_listener_of_ipv6_alone_leaves_ipv4_to_nobody() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let server = "
other = socket.create_server(('127.0.0.1', port)); other.settimeout(2)
s = socket.create_server(('::', port), family=socket.AF_INET6)
print('listening', file=sys.stderr, flush=True)
try: other.accept(); print('another')
except TimeoutError: print('nobody')
";
    let [client, server] = pair(server, "print(rest(connect()))");
    assert_eq!((client.as_str(), server.as_str()), ("b''\n", "nobody\n"));
}

/// What the program wrote is its peer's however late it reads, and however long the program has ended.
#[test]
fn what_a_program_wrote_outlasts_it() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let server = "
s = listen('10.9.0.1'); c, _ = s.accept(); c.setblocking(False)
sent, still = 0, time.time() + 1
while time.time() < still:
    try: sent += c.send(b'x' * 65536); still = time.time() + 1
    except BlockingIOError: time.sleep(0.01)
print(sent)
";
    let [client, server] = pair(server, "c = connect(); time.sleep(14); print(len(rest(c)))");
    assert_eq!(client, server);
}

/// A child has a connection still; a signal does not wait for it.
#[test]
fn a_signal_ends_what_a_program_left_behind() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let (bed, port) = (Bed::new(), free_port());
    let server = "
s = listen('10.9.0.1'); c, _ = s.accept()
if os.fork(): os._exit(4)
s.close(); print('left', file=sys.stderr, flush=True); os.close(1); os.close(2); os.close(0)
rest(c)
";
    let mut server = bed.python(End::Server, &format!("{HEAD}{server}"), &[&port]);
    server.wait_for("listening");
    let client = bed.python(End::Client, &format!("{HEAD}print(rest(connect()))"), &[&port]);
    server.wait_for("left");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let begin = std::time::Instant::now();
    server.signal(15);
    assert_eq!(server.finish(super::bed::LIMIT).status.code(), Some(4));
    assert!(begin.elapsed() < std::time::Duration::from_secs(8), "{:?}", begin.elapsed());
    assert_eq!(must(client), "b''\n");
}

/// Errors of the program's calls are the kernel's.
#[test]
fn addresses_that_are_wrong_are_refused_as_by_the_kernel() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let program = "
import ctypes, errno, struct
libc = ctypes.CDLL(None, use_errno=True)
def failed(status): assert status == -1; return errno.errorcode[ctypes.get_errno()]
s = socket.socket()
print(failed(libc.bind(s.fileno(), ctypes.c_void_p(8), 16)))
six = socket.socket(socket.AF_INET6)
to = struct.pack('=HH4s8x', socket.AF_INET, socket.htons(port), socket.inet_aton('10.9.0.1'))
status = libc.connect(six.fileno(), to, len(to)); print(failed(status))
";
    let said = must(Bed::new().python(End::Server, &format!("{HEAD}{program}"), &[&free_port()]));
    assert_eq!(said, "EFAULT\nEINVAL\n");
}

/// A program that does not accept has so many connections and no more; others are closed.
#[test]
fn a_program_that_does_not_accept_has_a_limit() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let server = "
told = socket.create_server(('127.0.0.2', port))
s = socket.create_server(('10.9.0.1', port), backlog=1); print('listening', file=sys.stderr, flush=True)
told.accept()
";
    let client = "
def is_open(c):
    c.setblocking(False)
    try: return c.recv(1) != b''
    except BlockingIOError: return True
held = [connect() for _ in range(160)]
time.sleep(1); print(sum(is_open(c) for c in held))
connect('127.0.0.2')
";
    let count: usize = pair(server, client)[0].trim().parse().expect("a number");
    assert!((100..=135).contains(&count), "{count}");
}

/// A server without a descriptor to ask its launcher by does not take a peer elsewhere for one on its host.
#[test]
fn a_peer_that_cannot_be_asked_for_is_not_accepted() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let server = "
import errno, resource
s = listen('0.0.0.0')
free = os.dup(0); os.close(free)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
try: s.accept()
except ConnectionAbortedError: print('aborted')
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
os.environ.clear()
c, peer = s.accept(); print(peer[0])
resource.setrlimit(resource.RLIMIT_NOFILE, (c.fileno() + 1, hard))
try: c.getpeername()
except OSError as error: print(errno.errorcode[error.errno])
c.sendall(b'second')
";
    let [client, server] =
        pair(server, "c = connect(); assert rest(c) == b''; c = connect(); print(rest(c))");
    assert_eq!((client.as_str(), server.as_str()), ("b'second'\n", "aborted\n10.9.0.2\nENOBUFS\n"));
}

/// A process for each connection, which the server's own end of does not close; and one that becomes another program on it.
#[test]
fn children_and_what_they_become_keep_connections() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let server = "
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
s = listen('10.9.0.1')
for number in range(6):
    c, peer = s.accept()
    if os.fork() == 0:
        s.close()
        if number % 2:
            os.dup2(c.fileno(), 0); os.dup2(c.fileno(), 1); c.close()
            os.execvp('cat', ['cat'])
        print(c.getpeername() == peer, flush=True)
        c.sendall(rest(c))
        os._exit(0)
    c.close()
";
    let client = "
def one(number):
    c = connect()
    words = b'%d ' % number * 5000
    c.sendall(words); c.shutdown(socket.SHUT_WR)
    assert rest(c) == words
# Children connect, too.
for number in range(6):
    if os.fork() == 0:
        one(number); os._exit(0)
for number in range(6):
    assert os.wait()[1] == 0
";
    let [_, server] = pair(server, client);
    assert_eq!(server, "True\n".repeat(3));
}

/// One thread with epoll at each end, and calls that do not block.
#[test]
fn loops_around_epoll_have_many_connections() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let server = "
poll = selectors.EpollSelector()
s = listen('10.9.0.1'); s.setblocking(False)
poll.register(s, selectors.EVENT_READ)
ended = 0
while ended < 40:
    for key, _ in poll.select():
        c = key.fileobj
        if c is s:
            c, _ = s.accept(); c.setblocking(False)
            poll.register(c, selectors.EVENT_READ)
            continue
        part = c.recv(4096)
        if part: c.send(part)
        else:
            poll.unregister(c); c.close(); ended += 1
";
    let client = "
poll = selectors.EpollSelector()
heard = {}
for number in range(40):
    c = socket.socket(); c.setblocking(False)
    status = c.connect_ex(('10.9.0.1', port))
    assert status in (0, 115), status
    poll.register(c, selectors.EVENT_WRITE, number)
    heard[number] = b''
while heard:
    for key, event in poll.select():
        c, number = key.fileobj, key.data
        words = b'%d:' % number * 100
        if event & selectors.EVENT_WRITE:
            assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            c.send(words)
            poll.modify(c, selectors.EVENT_READ, number)
            continue
        heard[number] += c.recv(4096)
        if heard[number] == words:
            poll.unregister(c); c.close(); del heard[number]
print('all')
";
    assert_eq!(pair(server, client)[0], "all\n");
}

/// 64 MiB in each direction; the sender of the second has ended before the last of it was read.
#[test]
fn large_transfers_arrive_whole() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let body = "
def send(c, seed):
    data = random.Random(seed).randbytes(1 << 20); sum = hashlib.sha256()
    for number in range(64):
        part = number.to_bytes(8, 'big') + data
        sum.update(part); c.sendall(part)
    print(sum.hexdigest())
def receive(c):
    sum = hashlib.sha256()
    while True:
        part = c.recv(1 << 16)
        if not part: break
        sum.update(part)
    print(sum.hexdigest())
";
    let server = format!("{body}\ns = listen('10.9.0.1'); c, _ = s.accept(); receive(c); send(c, 2)");
    let client =
        format!("{body}\nc = connect(); send(c, 1); c.shutdown(socket.SHUT_WR); time.sleep(0.5); receive(c)");
    let [client, server] = pair(&server, &client);
    let (client, server): (Vec<_>, Vec<_>) = (client.lines().collect(), server.lines().collect());
    assert_eq!((client[0], client[1], client[0].len()), (server[0], server[1], 64));
}

/// Who does not read holds its writer up, and is not held up by it; nor are others.
#[test]
fn a_reader_that_rests_holds_its_writer_up() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let server = "
s = listen('10.9.0.1'); slow, _ = s.accept(); fast, _ = s.accept()
fast.sendall(rest(fast)); fast.close()
slow.sendall(b'%d' % len(rest(slow)))
";
    let client = "
slow, fast = connect(), connect()
slow.setblocking(False)
sent, still = 0, time.time() + 1
while time.time() < still:
    try: sent += slow.send(b'x' * 65536); still = time.time() + 1
    except BlockingIOError: time.sleep(0.01)
assert sent < 64 << 20, sent
fast.sendall(b'fast'); fast.shutdown(socket.SHUT_WR); assert rest(fast) == b'fast'
slow.setblocking(True); slow.shutdown(socket.SHUT_WR)
assert rest(slow) == b'%d' % sent
";
    pair(server, client);
}

/// A program under the same launcher is reached at the device's address, too.
#[test]
fn a_program_reaches_its_own_devices_address() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let program = "
s = listen('10.9.0.1')
if os.fork() == 0:
    c = connect(); print(c.getpeername() == ('10.9.0.1', port), flush=True); c.sendall(b'own'); os._exit(0)
c, peer = s.accept()
assert rest(c) == b'own' and peer[0] == '10.9.0.1' and c.getsockname() == ('10.9.0.1', port), peer
os.wait()
try: socket.create_connection(('10.9.0.1', 1))
except ConnectionRefusedError: print('refused')
";
    let bed = Bed::new();
    let said = must(bed.python(End::Server, &format!("{HEAD}{program}"), &[&free_port()]));
    assert_eq!(said, "True\nrefused\n");
}

/// Who accepts a connection of a program under the same launcher may do so before that has said that it made it: a library that rests between
/// the two, and one that never says so.
#[test]
fn who_connects_under_the_same_launcher_is_named_though_late() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let program = "
import struct, threading
def packet(kind, first, second=None):
    def at(a): return bytes(19) if a is None else b'\\4' + socket.inet_aton(a[0]) + bytes(12) + struct.pack('>H', a[1])
    return bytes([kind]) + bytes(4) + at(first) + at(second)
def offered():
    call = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); call.connect(os.environ['RSOCK_RUN'])
    call.send(packet(4, None, ('10.9.0.1', port))); answer = call.recv(64)
    assert answer[0] == 13, answer
    c = socket.create_connection((socket.inet_ntoa(answer[6:10]), *struct.unpack('>H', answer[22:24])))
    return call, c
def later(act):
    def body(): time.sleep(0.3); act()
    threading.Thread(target=body).start()
s = listen('10.9.0.1')
for is_said in True, False:
    call, c = offered()
    own = c.getsockname()
    later(lambda: call.send(packet(5, own)) if is_said else call.close())
    begin = time.time(); d, peer = s.accept()
    print(peer == ('10.9.0.1' if is_said else '127.0.0.1', own[1]), 0.2 < time.time() - begin < 4)
";
    let said = must(Bed::new().python(End::Server, &format!("{HEAD}{program}"), &[&free_port()]));
    assert_eq!(said, "True True\nTrue True\n");
}

/// SIGKILL of a program ends its connections, and its launcher with the status for it.
#[test]
fn a_program_that_is_killed_leaves_no_connection() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let bed = Bed::new();
    let port = free_port();
    let server = "s = listen('10.9.0.1'); c, _ = s.accept(); print(len(rest(c)))";
    let mut server = bed.python(End::Server, &format!("{HEAD}{server}"), &[&port]);
    server.wait_for("listening");
    let client = "c = connect(); c.sendall(b'x' * 100000); os.kill(os.getpid(), signal.SIGKILL)";
    let client = bed.python(End::Client, &format!("{HEAD}{client}"), &[&port]).finish(super::bed::LIMIT);
    assert_eq!(client.status.code(), Some(137), "{:?}", client.stderr);
    assert_eq!(must(server), "100000\n", "what it wrote arrives first");
}

/// A launcher that is killed takes the connections of its program along; the program goes on with the kernel's.
#[test]
fn a_launcher_that_is_killed_hangs_nobody() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let bed = Bed::new();
    let port = free_port();
    let server = "
s = listen('10.9.0.1'); c, _ = s.accept()
print('connected', file=sys.stderr, flush=True)
try: rest(c)
except ConnectionResetError: pass
t = socket.socket(); t.bind(('127.0.0.1', 0)); t.listen()
u = socket.create_connection(t.getsockname()); assert u.getpeername() == t.getsockname()
print('over', file=sys.stderr, flush=True)
";
    let mut server = bed.python(End::Server, &format!("{HEAD}{server}"), &[&port]);
    server.wait_for("listening");
    let client = bed.python(End::Client, &format!("{HEAD}c = connect(); time.sleep(60)"), &[&port]);
    server.wait_for("connected");
    server.signal(9);
    server.wait_for("over");
    assert_eq!(bed.left(), 2, "the folder of the killed one, and of the one that runs");
    client.signal(15);
    assert_eq!(client.finish(super::bed::LIMIT).status.code(), Some(128 + 15));
    // What the killed one left goes with the next.
    must(bed.start(End::Server, &["true"]));
    assert_eq!(bed.left(), 0);
}
