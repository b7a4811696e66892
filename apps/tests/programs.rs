//! The apps as a user runs them: what they print, how they end.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use pollux_tests::capture::{capture, frames};
use pollux_tests::program::{Running, with_default_signals};
use serde_json::Value;

const L2FWD: &str = env!("CARGO_BIN_EXE_l2fwd");

/// SIGINT, SIGTERM and SIGHUP, as Linux numbers them on every architecture.
const INTERRUPT: i32 = 2;
const TERMINATE: i32 = 15;
const HANG_UP: i32 = 1;

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The report, which must be the last line of standard output.
fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap()
}

fn sum(report: &Value, count: &str) -> u64 {
    report["ports"].as_array().unwrap().iter().map(|port| port[count].as_u64().unwrap()).sum()
}

#[test]
fn l2fwd_moves_packets_with_nothing_set_up() {
    let output = run(L2FWD, &["--", "--duration", "0.5", "--json"]);
    let report = report(&output);
    assert_eq!(text(&output.stdout).lines().count(), 1, "all else goes to standard error");
    let mut keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["app", "lcores", "ledger", "ports", "seconds"]);
    assert_eq!(report["app"], "l2fwd");
    let seconds = report["seconds"].as_f64().unwrap();
    assert!((0.5..5.0).contains(&seconds), "{seconds}");
    let ports = report["ports"].as_array().unwrap();
    assert_eq!(ports.len(), 2);
    for (number, port) in ports.iter().enumerate() {
        assert_eq!(port["name"], format!("mlx5_model{number}"));
        assert_eq!(port["driver"], "mlx5_pci");
        assert!(port["rx_packets"].as_u64().unwrap() > 1_000, "{port}");
        assert_eq!(port["rx_bytes"].as_u64().unwrap(), port["rx_packets"].as_u64().unwrap() * 64);
        assert_eq!(port["dropped"], serde_json::json!({}), "{port}");
    }
    assert_eq!(sum(&report, "rx_packets"), sum(&report, "tx_packets"), "nothing is lost");
    for lcore in report["lcores"].as_array().unwrap() {
        assert!(lcore["busy"].as_f64().unwrap() > 0.0, "{lcore}");
        assert!(lcore["cycles_per_packet"].as_f64().unwrap() > 1.0, "{lcore}");
    }
    let said = text(&output.stderr);
    assert_eq!(said.matches("no device named").count(), 1, "{said}");
    let could = said
        .lines()
        .filter(|line| line.contains("available devices: -") || line.contains("no usable device"));
    assert_eq!(could.count(), 1, "what could be named, or that there is nothing:\n{said}");
}

#[test]
fn the_first_table_comes_within_two_seconds() {
    let begun = Instant::now();
    let output = run(L2FWD, &["-l", "0", "--", "--duration", "1.2"]);
    assert!(output.status.success());
    assert!(begun.elapsed() < Duration::from_secs(10));
    let said = text(&output.stdout);
    assert!(said.starts_with("l2fwd after 1.0 s"), "{said}");
    assert_eq!(said.matches("\nport ").count(), 2, "one after a second, one at the end:\n{said}");
}

#[test]
fn options_of_both_halves_arrive() {
    let args =
        ["-l0", "-n4", "--vdev=net_null0,size=128", "--vdev", "net_null1", "--vdev", "net_null2", "--"];
    let output = run(L2FWD, &[&args[..], &["-p5", "-T0", "--json", "--duration", "0.1"]].concat());
    let report = report(&output);
    let names: Vec<&str> =
        report["ports"].as_array().unwrap().iter().map(|port| port["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["net_null0", "net_null2"]);
    assert_eq!(
        report["ports"][0]["rx_bytes"].as_u64(),
        report["ports"][0]["rx_packets"].as_u64().map(|n| n * 128)
    );
    let said = text(&output.stderr);
    assert_eq!(said.matches("option '-n' has no effect").count(), 1, "{said}");
    assert!(!said.contains("no device named") && !said.contains("available devices"), "{said}");
}

#[test]
fn ports_have_as_many_queues_as_asked_for_each_forwarded_by_one_lcore() {
    let args =
        ["-l", "0,1", "--vdev", "mlx5_model0,wire=source:64", "--vdev", "mlx5_model1,wire=source:64", "--"];
    let output = run(L2FWD, &[&args[..], &["--rxq", "2", "--duration", "0.5", "--json"]].concat());
    let forwarded = report(&output);
    assert_eq!(sum(&forwarded, "rx_packets"), sum(&forwarded, "tx_packets"), "{forwarded}");
    assert!(sum(&forwarded, "rx_packets") > 1_000, "{forwarded}");
    let said = text(&output.stderr);
    for lcore in 0..2 {
        let path = format!("lcore {lcore}: port {lcore} mlx5_model{lcore} ");
        assert_eq!(said.matches(&path).count(), 2, "{said}");
    }
    let refused = run(L2FWD, &[&args[..], &["--rxq", "2", "--txq", "1"]].concat());
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(
        said.contains("has fewer tx queues than its source port has rx queues: set as many with --txq"),
        "{said}"
    );
}

#[test]
fn an_odd_port_sends_to_itself_with_one_notice() {
    let vdevs = ["-l", "0", "--vdev", "net_null0", "--vdev", "net_null1,no-rx=1", "--vdev", "net_null2"];
    let output = run(L2FWD, &[&vdevs[..], &["--", "--duration", "0.1", "--json"]].concat());
    let report = report(&output);
    let packets = |port: usize, count: &str| report["ports"][port][count].as_u64().unwrap();
    assert_eq!((packets(1, "rx_packets"), packets(0, "tx_packets")), (0, 0));
    assert_eq!(packets(0, "rx_packets"), packets(1, "tx_packets"));
    assert!(packets(2, "rx_packets") > 0);
    assert_eq!(packets(2, "rx_packets"), packets(2, "tx_packets"));
    let said = text(&output.stderr);
    assert_eq!(said.matches("odd number of ports: port 2 sends to itself").count(), 1, "{said}");
}

#[test]
fn rings_pass_round_what_they_are_primed_with() {
    let args = ["-l", "0", "--vdev", "net_ring0", "--vdev", "net_ring1", "--"];
    let options = ["--prime", "4", "--no-mac-updating", "--duration", "0.2", "--json"];
    let report = report(&run(L2FWD, &[&args[..], &options].concat()));
    assert!(sum(&report, "rx_packets") > 10_000, "{report}");
    let lag = sum(&report, "tx_packets").abs_diff(sum(&report, "rx_packets"));
    assert!(lag <= 2 * 4 * 32, "no packet is lost in a ring: {report}");
}

#[test]
fn every_port_may_have_an_lcore_of_its_own_and_share_one_cpu() {
    let args = ["--lcores", "(0-1)@0", "--", "-q", "1", "--duration", "0.3", "--json"];
    let report = report(&run(L2FWD, &args));
    let lcores = report["lcores"].as_array().unwrap();
    assert_eq!(
        lcores.iter().map(|lcore| lcore["ports"].clone()).collect::<Vec<_>>(),
        [serde_json::json!([0]), serde_json::json!([1])]
    );
}

#[test]
fn two_run_side_by_side() {
    let args = ["-l", "0", "--", "--duration", "0.3", "--json"];
    let first = Command::new(L2FWD).args(args).output();
    let both = std::thread::scope(|scope| {
        let second = scope.spawn(|| run(L2FWD, &args));
        [run(L2FWD, &args), second.join().unwrap()]
    });
    for output in both.iter().chain([&first.unwrap()]) {
        assert!(sum(&report(output), "tx_packets") > 0);
    }
}

#[test]
fn a_profile_opens_its_ports() {
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/profiles/two-null-ports.toml");
    let report = report(&run(L2FWD, &["--profile", profile, "-l0", "--", "--duration", "0.1", "--json"]));
    assert_eq!(report["ports"][1]["name"], "net_null1");
}

/// Sends frames through l2fwd, from file to file.
fn through_l2fwd(sent: &[Vec<u8>], options: &[&str]) -> (Value, Vec<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let (source, sink) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    std::fs::write(&source, capture(sent)).unwrap();
    let from = format!("net_pcap0,rx_pcap={}", source.display());
    let to = format!("net_pcap1,tx_pcap={}", sink.display());
    let args = ["-l", "0", "--vdev", &from, "--vdev", &to, "--", "-T", "0", "--json", "--duration", "0.3"];
    let report = report(&run(L2FWD, &[&args[..], options].concat()));
    (report, frames(&std::fs::read(&sink).unwrap()))
}

fn sample() -> Vec<Vec<u8>> {
    (0..100_u8).map(|n| (0..60 + n).map(|place| place ^ n).collect()).collect()
}

#[test]
fn addresses_are_rewritten_as_dpdks_l2fwd_does() {
    let sent = sample();
    let (report, received) = through_l2fwd(&sent, &[]);
    assert_eq!(report["ports"][0]["rx_packets"], 100);
    assert_eq!(report["ports"][1]["tx_packets"], 100);
    assert_eq!(received.len(), sent.len());
    for (sent, received) in sent.iter().zip(&received) {
        assert_eq!(received[..6], [2, 0, 0, 0, 0, 1], "to 02:00:00:00:00:<port>");
        assert_eq!(received[6] & 3, 2, "a locally administered unicast address");
        assert_eq!(received[12..], sent[12..]);
    }
    assert!(received.iter().all(|frame| frame[6..12] == received[0][6..12]), "one port, one address");
}

#[test]
fn frames_pass_untouched_without_mac_updating() {
    let sent = sample();
    let (_, received) = through_l2fwd(&sent, &["--no-mac-updating"]);
    assert!(received == sent);
}

fn forwarding(command: Command) -> Running {
    let mut running = Running::start(command);
    running.wait_for("forwarding");
    running
}

fn l2fwd(args: &[&str]) -> Command {
    let mut command = Command::new(L2FWD);
    command.args(args);
    command
}

#[test]
fn signals_end_it_like_the_duration() {
    for signal in [INTERRUPT, TERMINATE, HANG_UP] {
        let running = forwarding(l2fwd(&["-l", "0", "--", "-T", "0", "--json"]));
        std::thread::sleep(Duration::from_millis(100));
        running.signal(signal);
        let done = running.finish(Duration::from_secs(10));
        assert_eq!(done.status.code(), Some(0), "signal {signal}");
        assert!(sum(&done.report(), "tx_packets") > 0);
    }
}

#[test]
fn signals_that_the_parent_ignored_end_it_too() {
    let mut shell = Command::new("sh");
    let script = format!("trap '' INT TERM; exec '{L2FWD}' -l 0 -- -T 0 --json");
    shell.args(["-c", &script]);
    let running = forwarding(shell);
    let done = running.interrupt();
    assert_eq!(done.status.code(), Some(0));
    assert!(done.report()["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_second_signal_while_it_ends_does_no_harm() {
    let running = forwarding(l2fwd(&["-l", "0", "--", "-T", "0", "--json"]));
    running.signal(INTERRUPT);
    running.signal(INTERRUPT);
    assert_eq!(running.finish(Duration::from_secs(10)).status.code(), Some(0));
}

#[test]
fn a_signal_ends_a_start_up_that_sleeps_in_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.display();
    let table = [
        ["--vdev".to_owned(), format!("net_pcap0,tx_pcap={pipe}")],
        ["--vdev".to_owned(), format!("net_pcap0,rx_pcap={pipe},infinite_rx=1")],
        ["--vdev".to_owned(), format!("net_null0,tee={pipe}")],
        ["--profile".to_owned(), pipe.to_string()],
    ];
    for args in &table {
        for (signal, name) in [(INTERRUPT, "SIGINT"), (TERMINATE, "SIGTERM"), (HANG_UP, "SIGHUP")] {
            let running = Running::start(with_default_signals(&l2fwd(&[&args[0], &args[1]])));
            // Until it sleeps there; before, the signal has the same effect.
            std::thread::sleep(pollux_tests::patience::patient(Duration::from_millis(300)));
            running.signal(signal);
            let done = running.finish(Duration::from_secs(10));
            assert_eq!(done.status.code(), Some(128 + signal), "{args:?}: {:?}", done.stderr);
            let line = format!("l2fwd: terminated by {name} during startup");
            assert_eq!(done.stderr.last(), Some(&line), "{args:?}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    // Both outputs lead to a reader that takes nothing; the status comes by another way.
    for args in ["--help", "-l 0 -- --duration 0.1", "-l 0 -- --duration 0.1 --json", "--frobnicate"] {
        let script = format!("{{ '{L2FWD}' {args}; echo $? >&3; }} 2>&1 | true");
        let output = run("sh", &["-c", &format!("{{ {script}; }} 3>&1")]);
        let expected = if args == "--frobnicate" { "2\n" } else { "0\n" };
        assert_eq!(text(&output.stdout), expected, "{args}");
    }
}

#[test]
fn a_port_on_an_interface_shows_the_interfaces_name() {
    use pollux_tests::netns::Namespace;
    use pollux_tests::require::{Need, require};
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("shown");
    let args = ["-l", "0", "--vdev", "net_tap0", "--vdev", "net_null0", "--", "--duration", "0.1"];
    let output = host.command(L2FWD, &args).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("l2fwd: lcore 0: port 0 net_tap0 (dtap0) to port 1 net_null0\n"), "{said}");
    assert!(!said.contains('%') && !text(&output.stdout).contains("%d"), "{said}");
}

#[test]
fn captures_are_whole_after_a_pause_and_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let pipe = file("in");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (out, tee) = (file("out.pcap"), file("tee.pcap"));
    let device =
        format!("net_pcap0,rx_pcap={},tx_pcap={},tee={}", pipe.display(), out.display(), tee.display());
    let running = forwarding(l2fwd(&["--vdev", &device, "--", "--no-mac-updating"]));
    let sent: Vec<Vec<u8>> = (0..40_u8).map(|number| vec![number; 60]).collect();
    let mut pipe = std::fs::File::options().write(true).open(&pipe).unwrap();
    std::io::Write::write_all(&mut pipe, &capture(&sent)).unwrap();
    // Nothing comes from now on: what came is there soon, and no end of the program can take it away.
    std::thread::sleep(pollux_tests::patience::patient(Duration::from_secs(1)));
    running.kill();
    assert!(frames(&std::fs::read(&out).unwrap()) == sent);
    // Received and sent, burst by burst.
    let mut seen = frames(&std::fs::read(&tee).unwrap());
    seen.sort();
    let mut both = [&sent[..], &sent[..]].concat();
    both.sort();
    assert!(seen == both);
}
