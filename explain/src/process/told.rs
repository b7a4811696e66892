//! What a program of Pollux tells of itself, by telemetry.

use std::fmt::Write;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use pollux_eal::telemetry::{OUTPUT_MAX, Value};
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
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        let told = Self { socket };
        let greeting = told.receive()?;
        match greeting["pid"].as_u64() {
            Some(other) if other == u64::from(pid) => Ok(told),
            other => Err(io::Error::other(format!("process {} answers there", other.unwrap_or(0)))),
        }
    }

    fn receive(&self) -> io::Result<Value> {
        // The answer, and what is around it.
        let mut answer = vec![0; 2 * OUTPUT_MAX];
        let (_, bytes) = recv(&self.socket, &mut answer, RecvFlags::empty())?;
        let text = String::from_utf8_lossy(answer.get(..bytes).unwrap_or(&answer));
        text.parse().map_err(|error| io::Error::other(format!("an answer that is no JSON: {error}")))
    }

    /// The value that a command is answered with; `Null` where it has none.
    ///
    /// # Errors
    /// Nobody answers any more.
    pub fn ask(&self, command: &str) -> io::Result<Value> {
        send(&self.socket, command.as_bytes(), SendFlags::NOSIGNAL)?;
        let path = command.split(',').next().unwrap_or(command);
        Ok(self.receive()?.get_mut(path).map_or(Value::Null, Value::take))
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

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// A value as `key=value` words, those of inner objects with the outer key and a dot in front.
fn flat(value: &Value) -> String {
    fn put(out: &mut Vec<String>, key: &str, value: &Value) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
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
