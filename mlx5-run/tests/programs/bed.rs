//! Two programs on the two ends of a link.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// `mlx5-run` with a folder of links of its own.
pub(crate) struct Bed {
    runtime: tempfile::TempDir,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) said: String,
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self { runtime: tempfile::tempdir().expect("a folder") }
    }

    /// The folder.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.runtime.path()
    }

    /// `mlx5-run` with these options, and a program behind them.
    pub(crate) fn command(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = self.launcher(options);
        command.arg("--").args(program);
        command
    }

    /// `mlx5-run` with these arguments.
    pub(crate) fn launcher(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5-run"));
        command.args(arguments);
        command.env("XDG_RUNTIME_DIR", self.runtime.path()).env("TMPDIR", self.runtime.path());
        command.stdin(Stdio::null());
        command
    }

    /// What is left in the folder of a run that is over.
    pub(crate) fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.runtime.path()).expect("a folder");
        let names = entries.map(|entry| entry.expect("a name").file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("mlx5-run-")).collect()
    }

    pub(crate) fn run(&self, options: &[&str], program: &[&str]) -> Ended {
        wait(start(&mut self.command(options, program)))
    }

    /// Runs a server, and a client that finds it by TCP on this machine; both get the options, and a port behind `port`.
    pub(crate) fn pair(&self, options: &[&str], program: &[&str], port: &str) -> [Ended; 2] {
        let number = free_port();
        let mut server: Vec<&str> = program.to_vec();
        server.extend([port, &number]);
        let mut client = server.clone();
        client.push("127.0.0.1");
        let server = until_listening(start(&mut self.command(options, &server)), &number);
        let client = start(&mut self.command(options, &client));
        [wait(client), wait(server)]
    }

    /// The same; both must end well. What they said, the client's first.
    pub(crate) fn must(&self, options: &[&str], program: &[&str], port: &str) -> [String; 2] {
        self.pair(options, program, port).map(|ended| {
            assert_eq!(ended.status, Some(0), "{program:?}: {}", ended.said);
            assert!(!ended.said.contains("broke a rule"), "{program:?}: {}", ended.said);
            ended.said
        })
    }
}

/// A port that nobody has.
pub(crate) fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port().to_string()
}

/// Waits until a server listens, without a word to it: it may take the first who comes for its client.
pub(crate) fn until_listening(mut server: Child, port: &str) -> Child {
    let wanted = format!(":{:04X}", port.parse::<u16>().expect("a number"));
    let deadline = Instant::now() + PATIENCE;
    let listens = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&wanted)) && words.nth(1) == Some("0A")
    };
    loop {
        let both =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        if both.iter().flat_map(|table| table.lines()).any(listens) {
            return server;
        }
        let has_ended = server.try_wait().expect("a child").is_some();
        if has_ended || Instant::now() > deadline {
            let said = if has_ended { wait(server).said } else { stop(server) };
            panic!("nobody listens at port {port}: {said}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mlx5-run runs")
}

/// Ends a program by SIGTERM, as one that would go on. What it said.
pub(crate) fn stop(child: Child) -> String {
    let ended = Command::new("kill").arg(child.id().to_string()).status();
    assert!(ended.is_ok_and(|status| status.success()), "it is not there any more");
    wait(child).said
}

/// Waits for its end, which comes in time or is brought about.
pub(crate) fn wait(mut child: Child) -> Ended {
    let mut streams = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let out = std::thread::spawn(move || {
        let mut said = String::new();
        streams.0.read_to_string(&mut said).expect("text");
        said
    });
    let error = std::thread::spawn(move || {
        let mut said = String::new();
        streams.1.read_to_string(&mut said).expect("text");
        said
    });
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status.code();
        }
        if Instant::now() > deadline {
            // Its program goes with it.
            let _ended = Command::new("kill").arg(child.id().to_string()).status();
            std::thread::sleep(Duration::from_secs(1));
            let _ended = child.kill();
            let _status = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let said = out.join().expect("a reader") + &error.join().expect("a reader");
    Ended { status, said }
}
