//! What a program of Pollux tells of itself, by telemetry.

use std::fmt::Write;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pollux_eal::telemetry::{CLIENTS_MAX, OUTPUT_MAX, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, recv, send, socket, sockopt,
};

use super::plain;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Objects of a kind that are shown.
const SHOWN_MAX: usize = 64;

/// A client of a program's telemetry.
#[derive(Debug)]
pub struct Told {
    socket: OwnedFd,
    pid: u32,
    /// Where the socket is, and the program's files.
    directory: PathBuf,
    /// The user whose process it is.
    user: u32,
}

impl Told {
    /// Connects to the socket of a process, and hears who answers.
    ///
    /// # Errors
    /// Nobody answers, or another process does.
    pub fn connect(path: &Path, pid: u32) -> io::Result<Self> {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(silent)?;
        // By the kernel, and not by what it says itself.
        let user = sockopt::socket_peercred(&socket)?.uid.as_raw();
        let directory = path.parent().unwrap_or(path).to_owned();
        let told = Self { socket, pid, directory, user };
        match told.receive()?["pid"].as_u64() {
            Some(other) if other == u64::from(pid) => Ok(told),
            Some(other) => Err(io::Error::other(format!(
                "process {other} answers there: another one, or the same by its number in a container, in which `explain` has to run then"
            ))),
            None => Err(io::Error::other("what answers there is no telemetry")),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn user(&self) -> u32 {
        self.user
    }

    /// Whether the program has closed the socket, as it does when it ends, waited for or not.
    pub(super) fn is_gone(&self) -> bool {
        // That the other end is closed is told whatever is asked. Source: poll(2), `POLLHUP`.
        let mut state = [PollFd::new(&self.socket, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut state, Some(&now)).is_ok() && state[0].revents().contains(PollFlags::HUP)
    }

    fn receive(&self) -> io::Result<Value> {
        // The answer, and what is around it.
        let mut answer = vec![0; 2 * OUTPUT_MAX];
        let (_, bytes) = recv(&self.socket, &mut answer, RecvFlags::empty()).map_err(silent)?;
        if bytes == 0 {
            return Err(hung_up());
        }
        let text = String::from_utf8_lossy(answer.get(..bytes).unwrap_or(&answer));
        text.parse().map_err(|error| io::Error::other(format!("an answer that is no JSON: {error}")))
    }

    /// The value that a command is answered with; `Null` where it has none.
    ///
    /// # Errors
    /// Nobody answers any more.
    pub fn ask(&self, command: &str) -> io::Result<Value> {
        send(&self.socket, command.as_bytes(), SendFlags::NOSIGNAL).map_err(silent)?;
        let path = command.split(',').next().unwrap_or(command);
        Ok(self.receive()?.get_mut(path).map_or(Value::Null, Value::take))
    }

    /// Whether it tells its calls when it is asked: programs of Pollux do, DPDK's do not.
    ///
    /// # Errors
    /// Nobody answers any more.
    pub fn tells_calls(&self) -> io::Result<bool> {
        Ok(self.ask("/uverbs/trace")?.is_object())
    }

    /// Devices, queues and their states, in words.
    ///
    /// # Errors
    /// Nobody answers any more.
    pub fn text(&self) -> io::Result<String> {
        let mut out = String::new();
        for device in strings(&self.ask("/rdma/list")?) {
            let _ = writeln!(
                out,
                "RDMA device {}: {}",
                plain(&device),
                flat(&self.ask(&format!("/rdma/info,{device}"))?)
            );
            for kind in ["qp", "cq", "srq", "wq", "mr"] {
                let numbers = self.ask(&format!("/rdma/{kind}_list,{device}"))?;
                let numbers: Vec<u64> =
                    numbers.as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
                for number in numbers.iter().take(SHOWN_MAX) {
                    let one = self.ask(&format!("/rdma/{kind},{device},{number}"))?;
                    let _ = writeln!(out, "  {kind} {number:#x}: {}", flat(&one));
                }
                if let Some(more) = numbers.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
                    let _ = writeln!(out, "  and {more} {kind} more");
                }
            }
        }
        for port in self.ask("/ethdev/list")?.as_array().into_iter().flatten().filter_map(Value::as_u64) {
            let info = self.ask(&format!("/ethdev/info,{port}"))?;
            let _ =
                writeln!(out, "port {port}: {}", plain(info["name"].as_str().unwrap_or("without a name")));
            for (way, count) in [("rx", "nb_rx_queues"), ("tx", "nb_tx_queues")] {
                for queue in 0..info[count].as_u64().unwrap_or(0).min(SHOWN_MAX as u64) {
                    let one = self.ask(&format!("/ethdev/{way}_queue,{port},{queue}"))?;
                    let _ = writeln!(out, "  {way} queue {queue}: {}", flat(&one));
                }
            }
        }
        if let Some(models) = self.ask("/model/ledger")?.as_object() {
            for (device, ledger) in models {
                let _ =
                    writeln!(out, "PCIe transfers of {}, which is a model: {}", plain(device), flat(ledger));
            }
        }
        Ok(out)
    }
}

/// Why there is no answer.
fn silent(why: Errno) -> io::Error {
    match why {
        Errno::AGAIN => io::Error::other(format!(
            "no answer within {} s: the process may be stopped, or its device busy",
            PATIENCE.as_secs()
        )),
        Errno::PIPE | Errno::CONNRESET => hung_up(),
        Errno::CONNREFUSED => io::Error::other("nobody listens there any more"),
        why => why.into(),
    }
}

fn hung_up() -> io::Error {
    io::Error::other(format!(
        "it hung up: it has ended, or has {CLIENTS_MAX} clients already, which are the most that it answers"
    ))
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// A value as `key=value` words, those of inner objects with the outer key and a dot in front.
fn flat(value: &Value) -> String {
    fn put(out: &mut Vec<String>, key: &str, value: &Value) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    let name = plain(name);
                    let key = if key.is_empty() { name } else { format!("{key}.{name}") };
                    put(out, &key, value);
                }
            }
            Value::Array(list) => {
                let words: Vec<String> = list.iter().map(flat).collect();
                out.push(format!("{key}={}", words.join(",")));
            }
            Value::String(text) => out.push(format!("{key}={}", plain(text))),
            other => out.push(format!("{key}={other}")),
        }
    }
    match value {
        Value::Null => "gone".into(),
        Value::Object(_) => {
            let mut out = Vec::new();
            put(&mut out, "", value);
            out.join(" ")
        }
        Value::String(text) => plain(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use pollux_eal::telemetry::json;

    use super::*;

    #[test]
    fn keys_and_values_are_shown_without_what_a_terminal_would_obey() {
        let told = json!({ "\u{1b}[2J": { "\u{7}": "\u{1b}", "b": ["\u{9b}", { "\u{1b}c": 1 }] } });
        let text = flat(&told);
        assert_eq!(text, "?[2J.?=? ?[2J.b=?,?c=1");
    }

    #[test]
    fn why_there_is_no_answer_is_told_in_words() {
        for (why, words) in [
            (Errno::AGAIN, "no answer within 5 s: the process may be stopped"),
            (Errno::PIPE, "has 10 clients already"),
            (Errno::CONNREFUSED, "nobody listens"),
            (Errno::NOENT, "No such file"),
        ] {
            assert!(silent(why).to_string().contains(words), "{}", silent(why));
        }
    }
}
