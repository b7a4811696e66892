//! The thread that answers all clients.

use super::CLIENTS_MAX;
use super::command::{MESSAGE_MAX, info};
use crate::event::EventFd;
use crate::prefix_socket::{Answers, Messages, PrefixSocket, serve};

/// Answers each message by a function.
struct ByFunction<F>(F);

impl<F: Fn(&[u8]) -> String> Answers for ByFunction<F> {
    const CLIENTS_MAX: usize = CLIENTS_MAX;
    const MESSAGE_MAX: usize = MESSAGE_MAX;

    fn greeting(&self) -> Option<String> {
        Some(info().to_string())
    }

    fn answer(&mut self, message: &[u8], _bytes: usize) -> Option<String> {
        Some((self.0)(message))
    }

    fn say_no_files(&self) {
        tracing::warn!(target: "lib.telemetry", "no file descriptor is left for a telemetry client");
    }
}

/// Answers until `end` is signalled.
pub(super) fn run(listener: &PrefixSocket, end: &EventFd, answer: impl Fn(&[u8]) -> String) {
    if let Err(error) = serve(listener, end, &mut Messages::new(ByFunction(answer))) {
        tracing::error!(target: "lib.telemetry", "cannot wait for clients: {error}; telemetry ends");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Eal;
    use crate::prefix_socket::UNREAD_MAX;
    use crate::telemetry::{OUTPUT_MAX, Value, json};
    use pollux_config::EalSpec;
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::time::Duration;
    use tempfile::TempDir;

    fn eal() -> (Eal, TempDir) {
        let mut spec = EalSpec { lcores: Some("0".parse().expect("an lcore")), ..EalSpec::default() };
        spec.memory.no_huge = true;
        let eal = Eal::init(spec).expect("an EAL");
        let base = tempfile::tempdir().expect("a directory");
        eal.telemetry().serve(&base.path().join("dpdk").join("rte")).expect("a socket");
        let long = Value::from("x".repeat(OUTPUT_MAX - 100));
        eal.telemetry().register("/long", "", move |_| long.clone()).expect("a command");
        (eal, base)
    }

    fn connect(path: &Path) -> OwnedFd {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        let limit = Some(Duration::from_secs(20));
        rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, limit)
            .expect("set");
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("connected");
        socket
    }

    fn read(socket: &OwnedFd) -> Result<String, Errno> {
        let mut answer = vec![0; OUTPUT_MAX + 1];
        let (_, bytes) = rustix::net::recv(socket, &mut answer, RecvFlags::empty())?;
        Ok(String::from_utf8(answer[..bytes].to_vec()).expect("text"))
    }

    /// A client that was greeted.
    fn client(path: &Path) -> OwnedFd {
        let socket = connect(path);
        let greeting: Value = serde_json::from_str(&read(&socket).expect("a greeting")).expect("JSON");
        assert_eq!(greeting, info());
        socket
    }

    fn send(socket: &OwnedFd, message: &[u8]) -> Result<usize, Errno> {
        rustix::net::send(socket, message, SendFlags::NOSIGNAL)
    }

    fn ask(socket: &OwnedFd, message: &str) -> String {
        send(socket, message.as_bytes()).expect("sent");
        read(socket).expect("an answer")
    }

    #[test]
    fn several_clients_are_answered_and_one_too_many_is_not() {
        let (eal, _base) = eal();
        let path = eal.telemetry().path().expect("a socket");
        let clients: Vec<OwnedFd> = (0..CLIENTS_MAX).map(|_| client(&path)).collect();
        assert_eq!(read(&connect(&path)), Ok(String::new()), "closed without a word");
        for client in clients.iter().rev() {
            assert_eq!(ask(client, "/eal/lcore/list"), r#"{"/eal/lcore/list":[0]}"#);
            assert_eq!(ask(client, "/none,1"), r#"{"/none":null}"#);
        }
        drop(clients);
        let seen = (0..1000).find_map(|_| {
            let answer = read(&connect(&path)).ok().filter(|answer| !answer.is_empty());
            if answer.is_none() {
                std::thread::sleep(Duration::from_millis(2));
            }
            answer
        });
        assert_eq!(seen, Some(info().to_string()), "places are free again");
    }

    #[test]
    fn who_does_not_read_holds_nobody_up_and_makes_room() {
        let (eal, _base) = eal();
        let path = eal.telemetry().path().expect("a socket");
        let idle: Vec<OwnedFd> = (0..CLIENTS_MAX - 1).map(|_| client(&path)).collect();
        let deaf = client(&path);
        rustix::io::ioctl_fionbio(&deaf, true).expect("set");
        let full = (0..1_000_000).find(|_| send(&deaf, b"/long") == Err(Errno::AGAIN));
        assert!(full.is_some(), "its messages are not read for ever");
        for _ in 0..100 {
            assert_eq!(ask(&idle[0], "/eal/lcore/list"), r#"{"/eal/lcore/list":[0]}"#);
        }
        std::thread::sleep(UNREAD_MAX + Duration::from_millis(200));
        drop(client(&path));
    }

    #[test]
    fn who_did_not_read_gets_all_answers_when_it_does() {
        let (eal, _base) = eal();
        let path = eal.telemetry().path().expect("a socket");
        let slow = client(&path);
        rustix::io::ioctl_fionbio(&slow, true).expect("set");
        let sent = (0..1_000_000).take_while(|_| send(&slow, b"/long").is_ok()).count();
        rustix::io::ioctl_fionbio(&slow, false).expect("set");
        let expected = json!({ "/long": "x".repeat(OUTPUT_MAX - 100) }).to_string();
        for number in 0..sent {
            assert_eq!(read(&slow).as_ref(), Ok(&expected), "answer {number} of {sent}");
        }
        assert_eq!(ask(&slow, "/eal/lcore/list"), r#"{"/eal/lcore/list":[0]}"#);
    }

    #[test]
    fn hostile_clients_harm_nobody() {
        let (eal, base) = eal();
        let path = eal.telemetry().path().expect("a socket");
        let good = client(&path);
        // Longer than a message may be: the kernel refuses it, or the server reads its beginning.
        let wide = connect(&path);
        let grown = rustix::net::sockopt::set_socket_send_buffer_size(&wide, 4 << 20);
        let megabyte = [b'/'; 1 << 20];
        if grown.is_ok() && send(&wide, &megabyte).is_ok() {
            assert_eq!(read(&wide).expect("a greeting"), info().to_string());
            assert_eq!(read(&wide).expect("an answer"), format!("{{\"{}\":null}}", "/".repeat(56)));
        }
        // Sends and goes, without reading.
        for _ in 0..50 {
            let gone = connect(&path);
            let _refused = send(&gone, b"/long");
        }
        // Half a command, no command, bytes of no text.
        for message in [&b"/eal/lco"[..], b",", b"\0", b"\xff\xfe/", b"{\"a\":", b" /info"] {
            send(&good, message).expect("sent");
            let answer = read(&good).expect("an answer");
            let value: Value = serde_json::from_str(&answer).expect("JSON");
            assert!(value.as_object().expect("an object").values().all(Value::is_null), "{answer}");
        }
        // Thousands that come and go.
        for _ in 0..3000 {
            drop(connect(&path));
        }
        assert_eq!(ask(&good, "/eal/lcore/list"), r#"{"/eal/lcore/list":[0]}"#);
        // A message of no bytes ends the conversation, as with DPDK.
        send(&good, b"").expect("sent");
        assert_eq!(read(&good), Ok(String::new()));
        assert_eq!(eal.shutdown().code(), 0);
        let left = std::fs::read_dir(base.path().join("dpdk/rte")).expect("a directory").count();
        assert_eq!(left, 0, "nothing is left behind");
    }

    #[test]
    fn a_handler_that_panics_ends_the_eal_with_its_message() {
        let (eal, _base) = eal();
        eal.telemetry().register("/fails", "", |_| panic!("a handler that fails")).expect("a command");
        let path = eal.telemetry().path().expect("a socket");
        assert_eq!(ask(&client(&path), "/fails"), r#"{"/fails":null}"#);
        assert!(eal.stop_flag().wait(Duration::from_secs(10)));
        let exit = eal.shutdown();
        assert_eq!(
            (exit.code(), exit.panics[0].to_string()),
            (1, "control-telemetry panicked: a handler that fails".into())
        );
    }
}
