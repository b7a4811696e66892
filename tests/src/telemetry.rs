//! Clients of telemetry: one of our own, and DPDK's script.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, recv, send, socket, sockopt,
};
use serde_json::Value;

use crate::patience::patient;
use crate::require::{Need, PYTHON, require};

/// DPDK's script, which Debian's `dpdk` has.
const SCRIPT: &str = "/usr/bin/dpdk-telemetry.py";

/// Connects to a socket of packets of a program; an answer may take 20 seconds ([`patient`]).
///
/// # Panics
/// When nobody listens there.
#[must_use]
pub fn connect(path: &Path) -> OwnedFd {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    let limit = Some(patient(Duration::from_secs(20)));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, limit).expect("set");
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("connected");
    socket
}

/// A client at the socket of a program.
#[derive(Debug)]
pub struct Client(OwnedFd);

impl Client {
    /// Connects, and reads the greeting.
    ///
    /// # Panics
    /// When nobody answers there.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let client = Self(connect(path));
        client.read();
        client
    }

    fn read(&self) -> Value {
        let mut answer = vec![0; 1 << 15];
        let (_, bytes) = recv(&self.0, &mut answer, RecvFlags::empty()).expect("an answer");
        serde_json::from_slice(&answer[..bytes]).expect("JSON")
    }

    /// The value that a command is answered with.
    ///
    /// # Panics
    /// When there is no answer, or none in JSON.
    #[must_use]
    pub fn ask(&self, command: &str) -> Value {
        send(&self.0, command.as_bytes(), SendFlags::NOSIGNAL).expect("sent");
        let path = command.split(',').next().expect("a path");
        self.read()[path].take()
    }
}

/// Whether DPDK's script is there.
///
/// # Panics
/// When Debian's DPDK is there without it.
#[must_use]
pub fn has_script() -> bool {
    if !require(&[Need::Dpdk]) {
        return false;
    }
    assert!(Path::new(SCRIPT).exists(), "Debian's dpdk is there without {SCRIPT}");
    true
}

/// What DPDK's script prints of the program of the prefix `rte` whose socket is below `runtime`: a value for each command.
///
/// # Panics
/// When it fails, or prints something else.
#[must_use]
pub fn script(runtime: &Path, instance: &str, commands: &[&str]) -> Vec<Value> {
    let mut script = Command::new(PYTHON);
    script.env("RUNTIME_DIRECTORY", runtime).args([SCRIPT, "-i", instance]);
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = script.spawn().expect("the script starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all((commands.join("\n") + "\n").as_bytes()).expect("commands are read");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect();
    assert_eq!(answers.len(), commands.len(), "{said}");
    let command = |text: &str| text.split(',').next().unwrap_or_default().to_owned();
    answers.iter().zip(commands).map(|(answer, text)| answer[command(text)].clone()).collect()
}
