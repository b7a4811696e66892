//! A client's beginning and end beside a burst that is under way.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use pollux_capture::{
    Asked, CaptureRequest, InterfaceRequest, Layout, MESSAGE_BYTES_MAX, Reader, Request, Response,
};
use pollux_mempool::{Burst, MbufPool};
use pollux_port::{PortConfig, Ports, Queues};
use pollux_port_soft::null::{NullOptions, NullPort};
use pollux_tests::patience::patient;
use pollux_tests::telemetry::connect;
use rustix::io::IoSliceMut;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown, recv, recvmsg, send, shutdown,
};

use super::*;

/// A client that captures at port 0, and its ring.
fn capturing(path: &Path) -> (OwnedFd, Reader) {
    let socket = connect(path);
    let interfaces = vec![InterfaceRequest { port: 0, snaplen: 100, filter: None }];
    let request = CaptureRequest { ring_bytes: Layout::BYTES_MIN, interfaces };
    send(&socket, &Asked::encode(Request::Capture(request)), SendFlags::NOSIGNAL).expect("sent");
    let mut answer = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let pieces = &mut [IoSliceMut::new(&mut answer)];
    let bytes = recvmsg(&socket, pieces, &mut control, RecvFlags::CMSG_CLOEXEC).expect("an answer").bytes;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let Ok(Response::Capture(reply)) = Response::decode(&answer[..bytes]) else {
        panic!("{}", String::from_utf8_lossy(&answer[..bytes]))
    };
    let layout = Layout::of_bytes(reply.ring_bytes).expect("a size");
    (socket, Reader::of_file(file.expect("the ring"), layout).expect("mapped"))
}

/// Lets the burst go that stands still, after a while.
fn let_go(go: &Sender<()>) -> std::thread::JoinHandle<()> {
    let go = go.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        go.send(()).expect("it waits");
    })
}

#[test]
fn a_socket_of_a_process_that_is_ending_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(SOCKET);
    let other = PrefixSocket::at(&path).expect("a socket");
    let ending = std::thread::spawn(move || {
        std::thread::sleep(TAKEOVER / 10);
        drop(other);
    });
    let ours = listen(&path).expect("it is free by then");
    ending.join().expect("no panic");
    // One that stays is told.
    let told = listen(&path).expect_err("it is ours");
    assert!(matches!(told, EalError::PrefixSocket(SocketFileError::InUse(_))), "{told}");
    drop(ours);
}

#[test]
fn a_client_is_told_of_beginning_and_end_with_no_burst_under_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(SOCKET);
    let listener = PrefixSocket::at(&path).expect("a socket");
    let pool = MbufPool::builder("capture", 255).build_anonymous().expect("memory");
    let mut ports = Ports::new();
    let null = NullPort::new("net_null0", NullOptions::default()).expect("a driver");
    let id = ports.add("net_null0", Box::new(null)).expect("added");
    let port = ports.get_mut(id).expect("there");
    let Queues { mut tx, .. } = port.bring_up(PortConfig::queues(0, 1, &pool)).expect("comes up");
    let served = Served::new(ports.views(), ports.captures(), Clock::get());
    let end = Arc::new(EventFd::new().expect("a file"));
    let ended = Arc::clone(&end);
    let server = std::thread::spawn(move || run(&listener, &ended, served));

    // Each burst stands still until it is let go.
    let ((entered, inside), (go, may_go)) = (channel(), channel::<()>());
    let passed = Arc::new(AtomicBool::new(false));
    let passing = Arc::clone(&passed);
    tx[0].add_callback(Box::new(move |_| {
        entered.send(()).expect("the test waits");
        may_go.recv().expect("the test lets it go");
        passing.store(true, Ordering::Relaxed);
    }));
    // The next one begins when it is told to: one that came too early would be waited for in place of the last.
    let (begin, begun) = channel::<()>();
    let lcore = std::thread::spawn(move || {
        while begun.recv().is_ok() {
            let mut burst = Burst::new();
            pool.alloc_up_to(&mut burst, 8);
            burst.iter_mut().for_each(|mbuf| assert!(mbuf.append_slice(&[1; 60])));
            assert_eq!(tx[0].tx_burst(&mut burst), 8);
        }
    });
    let limit = patient(Duration::from_secs(20));
    begin.send(()).expect("it waits");
    inside.recv_timeout(limit).expect("the first burst");
    let going = let_go(&go);
    let (client, mut reader) = capturing(&path);
    assert!(passed.swap(false, Ordering::Relaxed), "the first burst was waited for");
    going.join().expect("no panic");

    begin.send(()).expect("it waits");
    inside.recv_timeout(limit).expect("the second burst");
    let going = let_go(&go);
    shutdown(&client, Shutdown::Write).expect("it is connected");
    let (_, bytes) = recv(&client, &mut [0; 1], RecvFlags::empty()).expect("the end");
    assert!(bytes == 0 && passed.load(Ordering::Relaxed), "the second burst was waited for");
    let mut frame = Vec::new();
    let seen = std::iter::from_fn(|| reader.next(&mut frame).expect("whole")).count();
    assert_eq!((seen, reader.counts(0).captured), (8, 8), "the second burst, and all of it");
    going.join().expect("no panic");
    drop(begin);
    lcore.join().expect("no panic");

    // Its place is free at once.
    let clients: Vec<_> = (0..CLIENTS_MAX).map(|_| capturing(&path)).collect();
    drop(clients);
    end.signal();
    let limit = Instant::now() + limit;
    while !server.is_finished() {
        assert!(Instant::now() < limit, "the server ends");
        std::thread::yield_now();
    }
    server.join().expect("no panic");
}
