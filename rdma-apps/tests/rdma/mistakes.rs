//! What a user sees after a mistake in a line of an RDMA program: one line on standard error, nothing on standard output, exit code
//! 2; or 1 where the machine or the other end is at fault. Nobody is waited for before.

use std::process::Command;

use pollux_tests::program::{Finished, Running};

use super::place::{LIMIT, PINGPONGS, Place, SIGINT, TESTS, line};

const RC: &str = PINGPONGS[0].0;
const UD: &str = PINGPONGS[2].0;
const SRQ: &str = PINGPONGS[3].0;
const XSRQ: &str = env!("CARGO_BIN_EXE_xsrq_pingpong");
const SEND: &str = TESTS[0].0;
const SEND_LAT: &str = TESTS[1].0;
const WRITE: &str = TESTS[2].0;
const WRITE_LAT: &str = TESTS[3].0;
const READ: &str = TESTS[4].0;
const ATOMIC: &str = TESTS[6].0;
const RAW: &str = env!("CARGO_BIN_EXE_raw_ethernet_bw");
const RAW_LAT: &str = env!("CARGO_BIN_EXE_raw_ethernet_lat");
const RAW_BURST: &str = env!("CARGO_BIN_EXE_raw_ethernet_burst_lat");
const DEVINFO: &str = env!("CARGO_BIN_EXE_devinfo");
const ASYNCWATCH: &str = env!("CARGO_BIN_EXE_asyncwatch");
const BOTH: &str = env!("CARGO_BIN_EXE_forward_and_serve");

/// A program, what is typed behind its device, and the line that comes of it, behind the program's name.
const OPTIONS: &[(&str, &str, &str)] = &[
    // Numbers that are none, 0, negative, too large.
    (RC, "-g 0 -n x", "option '-n': 'x' is not a whole number from 1 to 1099511627776"),
    (RC, "-g 0 -n 0", "option '-n': '0' is not a whole number from 1 to 1099511627776"),
    (RC, "-g 0 -n -1", "option '-n': '-1' is not a whole number from 1 to 1099511627776"),
    (
        RC,
        "-g 0 -n 99999999999999999999",
        "option '-n': '99999999999999999999' is not a whole number from 1 to",
    ),
    (RC, "-g 0 -s 0", "option '-s': '0' is not a number of bytes from 1 to 2147483648, such as 64, 4K or 1M"),
    (RC, "-g 0 -s 3000M", "option '-s': '3000M' is not a number of bytes from 1 to 2147483648"),
    (RC, "-g 0 -s 2048M", "-s 2147483648 exceeds the maximum message size of mlx5_model0 (1073741824)"),
    (RC, "-g 0 -r 0", "option '-r': '0' is not a whole number from 1 to 16777216"),
    (RC, "-g 0 -r 1000000", "-r 1000000 exceeds the limit of mlx5_model0"),
    (RC, "-g 0 -p 0", "option '-p': '0' is not a whole number from 1 to 65535"),
    (RC, "-g 0 -p 70000", "option '-p': '70000' is not a whole number from 1 to 65535"),
    (RC, "-g 0 -l 16", "option '-l': '16' is not a whole number from 0 to 15"),
    (
        RC,
        "-g 0 --peer-timeout 100000",
        "option '--peer-timeout': '100000' is not a whole number from 0 to 86400",
    ),
    (SRQ, "-g 0 -q 0", "option '-q': '0' is not a whole number from 1 to 255"),
    (SRQ, "-g 0 -r 1000000", "-r 1000000 exceeds the SRQ limit of mlx5_model0 (32767)"),
    (SRQ, "-g 0 -q 20 -r 10", "-r 10 is too small for -q 20"),
    (XSRQ, "-g 0 -c 100000", "option '-c': '100000' is not a whole number from 1 to 1024"),
    (XSRQ, "-g 0 -c 8", "-c 8: the wire of the model mlx5_model0 reaches only one peer; give -c 1"),
    (SEND, "-n 4", "option '-n': '4' is not a whole number from 5 to 4294967296"),
    (SEND, "-s -5", "option '-s': '-5' is not a number of bytes from 1 to 2147483648"),
    (SEND, "-D 0", "option '-D': '0' is not a whole number from 1 to 86400"),
    (SEND, "-w nan", "option '-w': 'nan' must be a number above 0"),
    (SEND, "-q 20000", "option '-q': '20000' is not a whole number from 1 to 16384"),
    (SEND, "-n 20000 -t 15000", "-t 15000 exceeds the limit of mlx5_model0 (8192)"),
    (SEND, "-n 20000 -r 16384", "-r 16384 exceeds the limit of mlx5_model0 (8192)"),
    (SEND, "-I 2000", "option '-I': '2000' is not a whole number from 0 to 1024"),
    (
        SEND,
        "-I 1000",
        "-I 1000: RC queue pair: 1 SGEs and 1000 inline bytes per send; the device allows 60 SGEs or 956",
    ),
    (WRITE_LAT, "-I 1024", "-I 1024: RC queue pair: "),
    (
        SEND,
        "--flow_label 1048576",
        "option '--flow_label': '1048576' is not a whole number from 0 to 1048575",
    ),
    (
        SEND_LAT,
        "--latency_gap 18446744073709551615",
        "option '--latency_gap': '18446744073709551615' is not a whole number from 0 to 86400000000",
    ),
    (READ, "-o 255", "-o 255 exceeds the limit of mlx5_model0 (16): give at most 16"),
    (RAW, "--server -B 02:00:00:00:00:01 -E 02:00:00:00:00:02 -I 1000", "-I 1000: RAW_PACKET queue pair: "),
    (RAW, "--server --flows 0", "option '--flows': '0' is not a whole number from 1 to 1024"),
    // Devices, ports, GIDs, MTUs.
    (RC, "-g 9", "-g 9: port 1 of mlx5_model0 has no such GID; available: -g 0 (fe80::"),
    (RC, "-g 300", "option '-g': '300' is not a whole number from 0 to 255"),
    (RC, "", "RoCE requires a GID index; available on port 1 of mlx5_model0: -g 0 (fe80::"),
    (RC, "-g 0 -i 0", "option '-i': '0' is not a whole number from 1 to 255"),
    (RC, "-g 0 -i 2", "-i 2: mlx5_model0 has one port, -i 1"),
    (RC, "-g 0 -m 1500", "option '-m': '1500' is not an RDMA MTU: choose 256, 512, 1024, 2048 or 4096"),
    (RC, "-g 0 -m 4096", "-m 4096 exceeds the MTU of port 1 of mlx5_model0 (1024): give at most 1024"),
    (SRQ, "-g 0 -m 4096", "-m 4096 exceeds the MTU of port 1 of mlx5_model0 (1024): give at most 1024"),
    (XSRQ, "-g 0 -m 2048", "-m 2048 exceeds the MTU of port 1 of mlx5_model0 (1024): give at most 1024"),
    (
        RC,
        "-g 0 -d mlx5_modl0",
        "device 'mlx5_modl0': no such device, did you mean 'mlx5_model0'?; devices named by --vdev and -a: mlx5_model0; devices of the kernel: ",
    ),
    (RC, "-g 0 -d net_null0", "device 'net_null0' does not support RDMA: use --vdev mlx5_model0"),
    (RC, "-g 0 -d", "option '-d' needs a value: -d DEV"),
    (RC, "-g 0 -j -s 900000", "-s 900000 exceeds the device memory of mlx5_model0 (-j), "),
    (UD, "-g 0 -s 5000", "-s 5000: a UD message is at most one MTU (1024)"),
    (SEND, "-x 99", "-x 99: port 1 of mlx5_model0 has no such GID; available: -x 0 (fe80::"),
    (SEND, "-m 1500", "-m 1500 is not an RDMA MTU: choose 256, 512, 1024, 2048 or 4096"),
    (SEND, "-m 4096", "-m 4096 exceeds the MTU of port 1 of mlx5_model0 (1024): give at most 1024"),
    (SEND, "-c UD -s 5000", "-s 5000: a UD message is at most one MTU (1024): give at most 1024"),
    (SEND, "-c UD -m 512 -s 1000", "-s 1000: a UD message is at most one MTU (512): give at most 512"),
    (
        SEND,
        "-d nope",
        "device 'nope': no such device; devices named by --vdev and -a: mlx5_model0; devices of the kernel: ",
    ),
    (DEVINFO, "-d mlx5_9", "device 'mlx5_9': no such device"),
    (DEVINFO, "-i 9", "-i 9: mlx5_model0 has one port, -i 1"),
    (ASYNCWATCH, "-d nope", "device 'nope': no such device"),
    // The other end's name.
    (RC, "-g 0 nowhere.invalid", "cannot resolve 'nowhere.invalid': "),
    (SEND, "300.0.0.1", "cannot resolve '300.0.0.1': "),
    (RC, "-g 0 here there", "argument 'there' is not an option: options begin with '-', --help lists them"),
    // Options that are unknown, twice, of another program, or against each other.
    (RC, "--frobnicate", "unknown option '--frobnicate': --help lists all options"),
    (RC, "-g 0 -g 1", "option '-g' is given twice: give it once"),
    (RC, "-g 0 -o", "-o: mlx5_model0 does not support on-demand paging: leave it out"),
    (UD, "-g 0 -m 1024", "unknown option '-m': --help lists all options"),
    (SEND, "--iter 5", "unknown option '--iter': did you mean '--iters'?"),
    (SEND, "-c DC", "option '-c': 'DC' is not one of RC, UC, UD, XRC"),
    (SEND, "-c xrc", "option '-c': 'xrc' is not one of RC, UC, UD, XRC"),
    (SEND, "-c XRC -R", "-R cannot be combined with -c XRC: RDMA CM connects RC and UD QPs; use one of them"),
    (SEND, "-c XRC -q 8 -r 4", "-r 4 is too small for 8 QPs on one shared receive queue: give at least 8"),
    (
        WRITE,
        "-c XRC --use-srq",
        "--use-srq is not supported by write_bw: only send tests and --write_with_imm post",
    ),
    (SEND_LAT, "-c XRC -q 2", "-q is not supported by send_lat: latency tests use one QP"),
    (SEND, "-c XRC -I 1000", "-I 1000: XRC_SEND queue pair: "),
    (WRITE_LAT, "-c XRC -e", "-e is not supported by write_lat: "),
    (
        RAW,
        "--server -B 02:00:00:00:00:01 -c XRC",
        "-c is not supported by raw_ethernet_bw: it always uses raw",
    ),
    (
        RAW,
        "--server -v -B 02:00:00:00:00:01 -E 02:00:00:00:00:02 --use_hugepages",
        "-v cannot be combined with --use_hugepages: ",
    ),
    (SEND, "-n 1000 -l 3", "-n 1000 is not a multiple of -l 3"),
    (
        SEND,
        "-r 4 -n 64 --recv_post_list 8",
        "--recv_post_list 8 exceeds the receive queue depth, -r 4: give at most 4",
    ),
    (SEND, "-D 4 -f 2", "--duration 4 is too short for two margins of 2 seconds (-f)"),
    (SEND, "-D 4 -n 10", "-n cannot be combined with -D or --run_infinitely: give only one of them"),
    (
        SEND,
        "--run_infinitely -n 10",
        "-n cannot be combined with -D or --run_infinitely: give only one of them",
    ),
    (SEND, "-f 1", "-f requires -D"),
    (SEND, "-a -s 64", "-a cannot be combined with -s: -a runs all sizes; give only one of them"),
    (SEND, "-b --reversed", "-b cannot be combined with --reversed: "),
    (SEND, "--rate_units M", "--rate_units requires --rate_limit"),
    (SEND, "--out_json_file /tmp/x.json", "--out_json_file requires --out_json"),
    (
        SEND,
        "--out_json --out_json_file /nowhere/x.json",
        "--out_json_file /nowhere/x.json: cannot write the file: No such file",
    ),
    (SEND, "--output latency", "--output latency is not supported by send_bw: use bandwidth or message_rate"),
    (
        SEND_LAT,
        "--output bandwidth",
        "--output bandwidth or message_rate is not supported by send_lat: use latency",
    ),
    (SEND, "--pin_cores 0", "--pin_cores 0 and -l both choose the CPUs"),
    (SEND_LAT, "-q 2", "-q is not supported by send_lat: latency tests use one QP"),
    (
        WRITE,
        "--send_with_imm",
        "--send_with_imm is not supported by write_bw: only send_bw and send_lat support it",
    ),
    (
        SEND,
        "--write_with_imm",
        "--write_with_imm is not supported by send_bw: only write_bw and write_lat support it",
    ),
    (WRITE, "-r 16", "-r is not supported by write_bw: only send tests and --write_with_imm post receives"),
    (
        WRITE,
        "--write_with_imm --perform_warm_up",
        "--perform_warm_up is not supported by write_bw: only write_bw, read_bw and atomic_bw support it, without --write_with_imm",
    ),
    (
        WRITE,
        "--write_with_imm --data_validation",
        "--write_with_imm cannot be combined with --data_validation: give only one of them",
    ),
    (WRITE, "-c UD", "-c UD is not supported by write_bw: UD supports only sends"),
    (READ, "-c UC", "-c UC is not supported by read_bw"),
    (ATOMIC, "-A XOR", "option '-A': 'XOR' is not one of CMP_AND_SWAP, FETCH_AND_ADD"),
    (RAW, "", "choose one of --server and --client"),
    (RAW, "--client", "-B is missing: give the source MAC address, such as -B 02:00:00:00:00:01"),
    (RAW, "--client -B zz", "option '-B': 'zz' is not a MAC address, such as 02:00:00:00:00:01"),
    (
        RAW,
        "--client -B 01:00:00:00:00:01 -E 02:00:00:00:00:02",
        "-B 01:00:00:00:00:01 is a multicast address: ",
    ),
    (
        RAW,
        "--client -B 02:00:00:00:00:01 -E 02:00:00:00:00:02 -m 20000",
        "-m 20000: the maximum frame size must be from 64 to 9600",
    ),
    (RAW_LAT, "--client -j 1.2.3.4", "-j 1.2.3.4 requires -J, the server's IP address: give both"),
    (
        RAW_LAT,
        "--client -B 02:00:00:00:00:01 -E 02:00:00:00:00:02 --reply_every 2",
        "--reply_every is not supported by raw_ethernet_lat: every message is answered",
    ),
    (RAW_BURST, "", "choose one of --server and --client"),
    (RAW_BURST, "--client --reply_every 0", "option '--reply_every': '0' is not a whole number from 1 to "),
    (
        RAW_BURST,
        "--client --burst_size 0",
        "option '--burst_size': '0' is not a whole number from 1 to 15000",
    ),
    (
        RAW_BURST,
        "--client -B 02:00:00:00:00:01 -E 02:00:00:00:00:02 --output bandwidth",
        "--output bandwidth or message_rate is not supported by raw_ethernet_burst_lat: use latency",
    ),
    (
        RAW_BURST,
        "--client -B 02:00:00:00:00:01 -E 02:00:00:00:00:02 -n 1000 -l 3",
        "-n 1000 is not a multiple of -l 3",
    ),
    (BOTH, "", "two lcores are required, one to forward and one to serve: give -l 0,1"),
    (BOTH, "--serve x", "option '--serve': 'x' is not one of read, write"),
];

/// Runs a program with one lcore on a device, and ends it if it does not end by itself.
fn end(program: &str, device: &str, options: &str) -> Finished {
    let mut command = Command::new(program);
    command.args(["-l", "0", "--vdev", device, "--"]).args(options.split_whitespace());
    Running::start(command).finish(LIMIT)
}

/// Looks for one line, which is the whole of what a program said.
fn told(end: &Finished, program: &str, line: &str, code: i32, expected: &str) {
    let name = program.rsplit('/').next().expect("a name");
    let [message] = end.messages()[..] else { panic!("{name} {line}: {:#?}", end.stderr) };
    assert!(message.starts_with(&format!("{name}: {expected}")), "{name} {line}: {message}");
    assert_eq!(end.status.code(), Some(code), "{name} {line}: {message}");
    assert!(end.stdout.is_empty(), "{name} {line}: {}", end.stdout);
}

#[test]
fn each_wrong_option_is_one_line() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.folder.path().join(name).display().to_string());
    let device = format!("mlx5_model0,wire=unix:{a}:{b}");
    for (program, options, expected) in OPTIONS {
        told(&end(program, &device, options), program, options, 2, expected);
    }
}

/// A device, the exit code, and the line behind the program's name.
const DEVICES: &[(&str, i32, &str)] = &[
    ("mlx5_model0", 2, "mlx5_model0: its wire (source:64) does not connect to another process"),
    (
        "mlx5_model0,wire=cable:alone",
        2,
        "mlx5_model0: its wire (cable:alone) does not connect to another process",
    ),
    (
        "mlx5_model0,wire=bogus:x",
        2,
        "device 'mlx5_model0': wire=bogus:x: there is no such wire; wires: cable:NAME, ",
    ),
    ("mlx5_model0,wire=unix:a", 2, "device 'mlx5_model0': wire=unix:a: names two sockets without ':'"),
    (
        "mlx5_model0,wire=unix:/tmp/a:/tmp/a",
        2,
        "device 'mlx5_model0': wire=unix:/tmp/a:/tmp/a: would talk to itself",
    ),
    ("mlx5_model0,core", 2, "device 'mlx5_model0': core=: has no value: write core=VALUE"),
    ("mlx5_model0,", 2, "device 'mlx5_model0,': has a ',' without a key after it"),
    ("mlx5_model0,core=x", 2, "device 'mlx5_model0': core=x: is not a whole number from 0 to 1023"),
    ("mlx5_model0,core=-1", 2, "device 'mlx5_model0': core=-1: is not a whole number from 0 to 1023"),
    (
        "mlx5_model0,core=1000",
        2,
        "device 'mlx5_model0': core=1000: is not a CPU this process may use: choose one of ",
    ),
    ("mlx5_model0,device=cx99", 2, "device 'mlx5_model0': device=cx99: is not one of cx4lx, cx5, cx6dx, cx7"),
    (
        "mlx5_model0,ip=10.0.0.1/99",
        2,
        "device 'mlx5_model0': ip=10.0.0.1/99: '10.0.0.1/99' is no station's address",
    ),
    ("mlx5_model0,mode=stepped", 2, "device 'mlx5_model0': mode=stepped: is supported only in tests"),
    ("mlx5_model0,fault=[drop:0.1]", 2, "device 'mlx5_model0': unknown key 'fault'; allowed: wire, "),
    ("net_null0", 2, "device 'net_null0' does not support RDMA"),
    (
        "mlx5_model0,wire=iface:nowhere0",
        1,
        "port mlx5_model0: cannot create the model: interface \"nowhere0\" does not exist",
    ),
    (
        "mlx5_model0,wire=unix:/nowhere/a:/nowhere/b",
        1,
        "port mlx5_model0: cannot create the model: making a socket for /nowhere/a: ",
    ),
    (
        "mlx5_model0,wire=pcap:/nowhere.pcap:",
        1,
        "port mlx5_model0: cannot create the model: cannot open /nowhere.pcap: ",
    ),
    ("mlx5_97", 1, "port mlx5_97: cannot find the device: "),
];

#[test]
fn each_wrong_device_is_one_line() {
    for (device, code, expected) in DEVICES {
        for (program, options) in [(RC, "-g 0"), (SEND, "")] {
            told(&end(program, device, options), program, device, *code, expected);
        }
    }
    // The machine's answer stands there once.
    let core = end(RC, "mlx5_model0,core=1000", "");
    assert!(!core.messages()[0].contains("os error"), "{:?}", core.stderr);
}

#[test]
fn a_server_that_is_not_there_is_one_line() {
    let place = Place::new();
    for (program, options) in [(RC, "-g 0"), (SRQ, "-g 0"), (XSRQ, "-g 0"), (SEND, ""), (WRITE_LAT, "")] {
        let end = place.client(program, options).finish(LIMIT);
        let expected = format!(
            "cannot connect to 127.0.0.1:{}: Connection refused (os error 111); start the server first",
            place.port
        );
        assert!(line(&end).contains(&expected), "{program}: {}", line(&end));
    }
    // A report that was asked for is not there, not even empty.
    let report = place.folder.path().join("report.json");
    let options = format!("--out_json --out_json_file {}", report.display());
    assert_eq!(place.client(SEND, &options).finish(LIMIT).status.code(), Some(1));
    assert!(!report.exists());
    let taken = std::net::TcpListener::bind(("::", place.port)).expect("it is free");
    for (program, options, lcores) in [(RC, "-g 0", "0"), (SEND, "", "0"), (BOTH, "", "0,1")] {
        let [a, b] = ["a", "b"].map(|name| place.folder.path().join(name).display().to_string());
        let mut command = Command::new(program);
        command.args(["-l", lcores, "--vdev", &format!("mlx5_model0,wire=unix:{a}:{b}"), "--"]);
        command.args(["-p", &place.port.to_string()]).args(options.split_whitespace());
        let end = Running::start(command).finish(LIMIT);
        let expected = format!("cannot listen on TCP port {}: Address already in use", place.port);
        told(&end, program, "", 1, &expected);
    }
    drop(taken);
}

/// Options of two ends that do not go together, and what each end says of it.
const PAIRS: &[(&str, &str, &str, &str)] = &[
    (RC, "-g 0 -n 100", "-g 0 -n 200", "-n differs: "),
    (RC, "-g 0 -n 100 -m 512", "-g 0 -n 100 -m 1024", "-m differs: "),
    (SRQ, "-g 0 -n 100 -m 256", "-g 0 -n 100", "-m differs: "),
    (RC, "-g 0 -n 100 -c", "-g 0 -n 100", "-c differs: "),
    (RC, "-g 0 -n 100", "-g 1 -n 100", "GID types differ: IPv6 here, IPv4 at 127.0.0.1:"),
    (SRQ, "-g 1 -n 100", "-g 0 -n 100", "GID types differ: IPv4 here, IPv6 at 127.0.0.1:"),
    (SEND, "-n 100 -x 1", "-n 100 -x 0", "GID types differ: IPv4 here, IPv6 at 127.0.0.1:"),
    (SEND, "-n 100 -c UC", "-n 100", "-c differs: "),
    (SEND, "-n 100", "-n 200", "the extent differs: "),
    (WRITE, "-n 100 -s 64 --data_validation", "-n 100 -s 64", "--data_validation differs: "),
];

#[test]
fn ends_that_do_not_fit_say_what_differs() {
    for (program, server, client, expected) in PAIRS {
        let place = Place::new();
        let mut running = place.server(program, server);
        let client = place.client(program, client).finish(LIMIT);
        // The one that looks first tells; the other end is hung up on.
        assert_eq!(client.status.code(), Some(1), "{program} {server}: {}", client.stderr.join("\n"));
        running.wait_for("; still listening on TCP port ");
        let said = running.interrupt();
        let named: Vec<&String> =
            said.stderr.iter().filter(|line| line.contains("still listening")).collect();
        assert!(named.len() == 1 && named[0].starts_with(expected), "{program} {server}: {named:?}");
    }
}

#[test]
fn more_messages_than_memory_can_tell_of_are_refused() {
    let place = Place::new();
    // 32 GiB of times, unless the machine has them.
    let options = "-n 4294967296 -s 64";
    let server = place.server(SEND_LAT, options);
    let mut client = place.client(SEND_LAT, options);
    client.wait_for("#bytes");
    std::thread::sleep(std::time::Duration::from_millis(500));
    client.signal(SIGINT);
    let client = client.finish(LIMIT);
    let refused = client.status.code() == Some(2)
        && client
            .stderr
            .last()
            .is_some_and(|line| line.contains("-n 4294967296: not enough memory to record every sample"));
    assert!(refused || client.status.code() == Some(0), "{:?} {}", client.status, client.stderr.join("\n"));
    let server = server.finish(LIMIT);
    assert!(server.status.code().is_some(), "{:?}", server.status);
}

#[test]
fn a_line_without_a_device_shows_one_that_works() {
    let alone = Running::start(Command::new(RC)).finish(LIMIT);
    assert_eq!(alone.status.code(), Some(2));
    assert!(
        alone
            .stderr
            .iter()
            .any(|line| line.contains("-l 1 --vdev mlx5_model0,wire=unix:/tmp/b:/tmp/a -- -g 0 127.0.0.1"))
    );
}
