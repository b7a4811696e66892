//! A session with a testpmd.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pollux_tests::netns::Namespace;

pub(crate) fn testpmd(eal: &[&str], options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testpmd"));
    command.arg("--no-huge").args(eal).arg("--").args(options);
    command
}

/// The number behind a label, the first time that it occurs.
pub(crate) fn number(text: &str, label: &str) -> u64 {
    let behind = text.split(label).nth(1).unwrap_or_else(|| panic!("no {label} in {text}"));
    behind
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("{label}: {behind}"))
}

/// A session that is typed line by line, each after the answer to the last.
pub(crate) struct Typist {
    pub(crate) child: std::process::Child,
    input: std::process::ChildStdin,
    pub(crate) output: std::process::ChildStdout,
}

impl Typist {
    pub(crate) fn start(eal: &[&str], options: &[&str]) -> Self {
        Self::of(testpmd(eal, &[&["-i"], options].concat()))
    }

    /// Inside a host of its own.
    pub(crate) fn inside(host: &Namespace, eal: &[&str], options: &[&str]) -> Self {
        let plain = testpmd(eal, &[&["-i"], options].concat());
        let program = plain.get_program().to_str().expect("a path");
        let args: Vec<&str> = plain.get_args().map(|arg| arg.to_str().expect("a word")).collect();
        Self::of(host.command(program, &args))
    }

    /// Over a command that begins one with a prompt.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("testpmd");
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut typist = Self { child, input, output };
        typist.answer();
        typist
    }

    /// What is printed up to the next prompt.
    fn answer(&mut self) -> String {
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !said.ends_with(b"testpmd> ") {
            assert_eq!(self.output.read(&mut byte).expect("a pipe"), 1, "{}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    pub(crate) fn line(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("a pipe");
        self.answer()
    }

    /// The same line again until its answer is as it should be: lcores and devices work beside other tests.
    pub(crate) fn until(&mut self, line: &str, done: impl Fn(&str) -> bool) {
        let end = Instant::now() + pollux_tests::patience::patient(Duration::from_secs(20));
        loop {
            let said = self.line(line);
            if done(&said) {
                return;
            }
            assert!(Instant::now() < end, "{line}: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn quit(mut self) {
        writeln!(self.input, "quit").expect("a pipe");
        std::io::copy(&mut self.output, &mut std::io::sink()).expect("a pipe");
        assert!(self.child.wait().expect("its end").success());
    }
}

pub(crate) fn two_cpus() -> bool {
    let there = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    if !there {
        eprintln!("skipped: two CPUs are needed");
    }
    there
}
