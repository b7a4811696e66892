//! Signals, each against a process of its own: this program, started again with `child`.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use pollux_config::EalSpec;
use pollux_eal::lcore::CpuSet;
use pollux_eal::{Eal, LcoreId, signal};

fn main() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("child") {
        return child(&args.next().expect("a mode"));
    }
    let cases: [(&str, fn()); 9] = [
        ("each signal ends with status 0", each_signal_ends_with_status_0),
        ("also when the parent ignored them", also_when_the_parent_ignored_them),
        ("nohup is honoured", nohup_is_honoured),
        ("all Eals are told", all_eals_are_told),
        ("a copy of the first is no second", a_copy_of_the_first_is_no_second),
        ("the second ends at once", the_second_ends_at_once),
        ("afterwards the default is back", afterwards_the_default_is_back),
        ("afterwards an ignored signal is ignored", afterwards_an_ignored_signal_is_ignored),
        ("a panic is status 1", a_panic_is_status_1),
    ];
    println!("\nrunning {} tests", cases.len());
    for (name, case) in cases {
        case();
        println!("test {name} ... ok");
    }
    println!("\ntest result: ok. {} passed; 0 failed", cases.len());
}

fn eal() -> Eal {
    let cpu = CpuSet::of_this_thread().expect("an affinity").as_slice()[0];
    let lcores = Some(format!("0@{cpu}").parse().expect("a map"));
    let eal = Eal::init(EalSpec { lcores, ..EalSpec::default() }).expect("an Eal");
    eal.handle_signals().expect("handled");
    eal
}

fn child(mode: &str) {
    let long = Duration::from_secs(60);
    let main = eal();
    let code = match mode {
        "plain" => {
            let launched = main.launch(LcoreId(0), |lcore| lcore.stop_flag().wait(Duration::from_secs(60)));
            println!("ready");
            assert!(launched.expect("launched").wait().expect("no panic"), "no signal came");
            main.shutdown().code()
        }
        "two" => {
            let second = eal();
            println!("ready");
            assert!(main.stop_flag().wait(long) && second.stop_flag().wait(long));
            main.shutdown().code() + second.shutdown().code()
        }
        "hang" => {
            println!("ready");
            assert!(main.stop_flag().wait(long));
            println!("stopping");
            std::thread::sleep(long);
            99
        }
        "after" => {
            drop(main);
            // A second one works as the first did; then it goes too.
            let again = eal();
            println!("ready");
            assert!(again.stop_flag().wait(long));
            drop(again);
            println!("gone");
            std::thread::sleep(long);
            99
        }
        "panic" => {
            let launched = main.launch(LcoreId(0), |_| panic!("on purpose")).expect("launched");
            assert!(launched.wait().is_err());
            main.shutdown().code()
        }
        other => panic!("unknown mode {other}"),
    };
    std::process::exit(code.into());
}

struct Running {
    process: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts the child; `shell` runs before it.
    fn start(mode: &str, shell: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new("sh");
        // Whoever runs the tests may have signals ignored, as a shell does for what it starts in the background.
        let fresh = if shell.is_empty() { "env --default-signal=INT,TERM,HUP" } else { "" };
        command.arg("-c").arg(format!("{shell} exec {fresh} \"$0\" child {mode}")).arg(program);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a shell");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        Self { process, lines }
    }

    fn until(&mut self, word: &str) {
        let line = self.lines.next().expect("a line").expect("text");
        assert_eq!(line, word);
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.process.id())).status();
        assert!(sent.expect("a shell").success(), "the child is gone");
    }

    fn wait(mut self) -> ExitStatus {
        self.process.wait().expect("a status")
    }
}

fn each_signal_ends_with_status_0() {
    for name in ["INT", "TERM", "HUP"] {
        let mut child = Running::start("plain", "");
        child.until("ready");
        child.signal(name);
        assert_eq!(child.wait().code(), Some(0), "{name}");
    }
}

fn also_when_the_parent_ignored_them() {
    for name in ["INT", "TERM"] {
        let mut child = Running::start("plain", "trap '' INT TERM;");
        child.until("ready");
        child.signal(name);
        assert_eq!(child.wait().code(), Some(0), "{name}");
    }
}

fn nohup_is_honoured() {
    let mut child = Running::start("plain", "trap '' HUP;");
    child.until("ready");
    child.signal("HUP");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(child.process.try_wait().expect("a status"), None, "it runs on");
    child.signal("TERM");
    assert_eq!(child.wait().code(), Some(0));
}

fn all_eals_are_told() {
    let mut child = Running::start("two", "");
    child.until("ready");
    child.signal("INT");
    assert_eq!(child.wait().code(), Some(0));
}

fn a_copy_of_the_first_is_no_second() {
    let mut child = Running::start("hang", "");
    child.until("ready");
    child.signal("TERM");
    child.until("stopping");
    child.signal("TERM");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(child.process.try_wait().expect("a status"), None, "it runs on");
    child.process.kill().expect("killed");
    child.wait();
}

fn the_second_ends_at_once() {
    for (name, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let mut child = Running::start("hang", "");
        child.until("ready");
        child.signal(name);
        child.until("stopping");
        std::thread::sleep(signal::GRACE + Duration::from_millis(50));
        child.signal(name);
        assert_eq!(child.wait().code(), Some(status));
    }
}

fn afterwards_the_default_is_back() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let mut child = Running::start("after", "");
        child.until("ready");
        child.signal(name);
        child.until("gone");
        child.signal(name);
        assert_eq!(child.wait().signal(), Some(number));
    }
}

fn afterwards_an_ignored_signal_is_ignored() {
    let mut child = Running::start("after", "trap '' INT;");
    child.until("ready");
    child.signal("INT");
    child.until("gone");
    child.signal("INT");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(child.process.try_wait().expect("a status"), None, "it runs on");
    child.signal("TERM");
    assert_eq!(child.wait().signal(), Some(15));
}

fn a_panic_is_status_1() {
    assert_eq!(Running::start("panic", "").wait().code(), Some(1));
}
