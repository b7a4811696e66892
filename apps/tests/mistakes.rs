//! What a user sees after a mistake: one line on standard error, nothing on standard output, exit code 2; or 1 where
//! the machine is at fault.

use std::process::Command;

const L2FWD: &str = env!("CARGO_BIN_EXE_l2fwd");

/// Runs l2fwd for a moment; its exit code and what it said.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(L2FWD).args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    // A machine without huge pages gives a line of log, which is no message about the mistake.
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("lib.eal")).collect();
    let [line] = lines[..] else { panic!("{args:?}: {said}") };
    (output.status.code(), line.to_owned())
}

/// The number of a CPU that this machine surely lacks.
const NO_CPU: &str = "1000";

#[test]
fn each_mistake_gives_one_line_and_its_exit_code() {
    let table: &[(&[&str], i32, &str)] = &[
        (&["--frobnicate"], 2, "unknown option '--frobnicate': --help lists all options"),
        (&["--", "--frobnicate"], 2, "unknown option '--frobnicate': --help lists all options"),
        (
            &["--duration", "1"],
            2,
            "unknown option '--duration': it is an app option, write it after '--': -- --duration",
        ),
        (&["--vdev", "net_bogus0"], 2, "device 'net_bogus0': unknown driver; drivers: net_"),
        (
            &["--vdev", "net_nul0"],
            2,
            "device 'net_nul0': unknown driver, did you mean 'net_null'?; drivers: net_",
        ),
        (
            &["--vdev", "net_null0,sise=64"],
            2,
            "device 'net_null0': unknown key 'sise', did you mean 'size'?; allowed: size, copy, no-rx; with all drivers: fault, tee, trace",
        ),
        (
            &["--vdev", "net_null0,size=0"],
            2,
            "device 'net_null0': size=0: is not a whole number from 14 to 65535",
        ),
        (
            &["--vdev", "net_ring0,size=3"],
            2,
            "device 'net_ring0': unknown key 'size'; allowed: none; with all drivers: fault, tee, trace",
        ),
        (
            &["-l", NO_CPU],
            2,
            "lcore 1000 needs CPU 1000, which does not exist or is outside this process's affinity; allowed CPUs: ",
        ),
        (
            &["-l", "0", "--main-lcore", "3"],
            2,
            "option '--main-lcore': '3' is not among the lcores 0: add it to -l or choose one of them",
        ),
        (
            &["-l", "0", "-S", "0"],
            2,
            "no lcore is left for the application: all of 0 are service cores; leave at least one out of -S",
        ),
        (
            &["--proc-type", "secondary"],
            2,
            "option '--proc-type': 'secondary' is not supported yet: leave it out; every process is a primary one",
        ),
        (&["--", "--idle", "doze"], 2, "option '--idle': 'doze' is not one of poll, pause, interrupt"),
        (
            &["--", "--idle-after", "-1"],
            2,
            "option '--idle-after': '-1' is not a whole number of microseconds from 0 to 1000000",
        ),
        (
            &["-l", "0", "--", "-p", "8"],
            2,
            "-p names port 3, which does not exist; ports: 0 mlx5_model0, 1 mlx5_model1",
        ),
        (
            &["-l", "0", "--", "-p", "0"],
            2,
            "option '-p': '0' selects no port: bit 0 is port 0, so 3 selects ports 0 and 1",
        ),
        (&["-l", "0", "--", "-p", "zz"], 2, "option '-p': 'zz' is not a hexadecimal port mask such as 3"),
        (
            &["-l", "0", "--", "--portmap", "(0,7)"],
            2,
            "--portmap names port 7, which does not exist; ports: 0 mlx5_model0, 1 mlx5_model1",
        ),
        (
            &["-l", "0", "--", "--portmap", "0,1"],
            2,
            "option '--portmap': '0,1' is not a port map such as (0,1),(2,3)",
        ),
        (
            &["-l", "0", "--", "-q", "1"],
            2,
            "-q 1 requires 2 lcores for 2 rx queues, but there are 1: give -q 2 or more lcores with -l",
        ),
        (&["-l", "0", "--", "--rxq", "0"], 2, "option '--rxq': '0' is not a whole number from 1 to 1024"),
        (&["-l", "0", "--", "--txq", "x"], 2, "option '--txq': 'x' is not a whole number from 1 to 1024"),
        (&["-l", "0", "--", "-q", "0"], 2, "option '-q': '0' is not a whole number from 1 to 2147483648"),
        (
            &["-l", "0", "--", "--mbufs", "99999999999999"],
            2,
            "option '--mbufs': '99999999999999' is not a whole number from 1 to 2147483648",
        ),
        (
            &["-l", "0", "--", "--prime", "1025"],
            2,
            "option '--prime': '1025' is not a whole number from 1 to 1024",
        ),
        (
            &["-l", "0", "--", "-p", "fffffffffffffffffffffffffffffffff"],
            2,
            "option '-p': 'fffffffffffffffffffffffffffffffff' selects a port above 127: give at most 32 hexadecimal digits",
        ),
        (
            &["-l", "0", "--", "--portmap", "(0,70000)"],
            2,
            "option '--portmap': '(0,70000)' names port 70000: ports are numbered from 0 to 65535",
        ),
        (
            &["-l", "0", "--", "--mac-updating", "--no-mac-updating"],
            2,
            "options '--mac-updating' and '--no-mac-updating' cannot be combined: keep one",
        ),
        (
            &["--vdev", "net_tap0,mac=01:00:00:00:00:00"],
            2,
            "device 'net_tap0': mac=01:00:00:00:00:00: is a multicast address: the first byte must be even, such as 02",
        ),
        (
            &["--vdev", "net_null0,tee=/tmp/a", "--vdev", "net_null1,tee=/tmp/../tmp/a"],
            2,
            "device 'net_null1': tee=/tmp/../tmp/a: is also tee of 'net_null0', and opening it for writing would truncate it: \
             use a different file",
        ),
        (
            &["--vdev", "net_null0,fault=x"],
            2,
            "device 'net_null0': fault=x: has a part \"x\" without ':'; allowed are drop, duplicate, reorder, corrupt and \
             delay (between 0 and 1), bursts, pool-empty (rx calls AT/FOR), seed and on (rx, tx, both), such as [drop:0.01,seed:7]",
        ),
        (
            &["--mbuf-pool-ops-name", "bucket"],
            2,
            "option '--mbuf-pool-ops-name': 'bucket' is not one of ring_mp_mc, ring_mt_rts, ring_mt_hts, ring_sp_sc, stack",
        ),
        (
            &["--no-pci", "-a", "mlx5_0"],
            2,
            "options '--no-pci' and '-a' cannot be combined: -a opens hardware; use --vdev for virtual devices",
        ),
        (
            &["--no-pci", "--vdev", "mlx5_0"],
            2,
            "device 'mlx5_0': is hardware, which --no-pci disables: leave one of them out",
        ),
        (
            &["-l", "0", "--vdev", "net_ring0", "--", "--max-lro-pkt-size", "9000"],
            2,
            "--max-lro-pkt-size 9000 requires --enable-lro: give both",
        ),
        // What is deprecated is no second line where there is an error.
        (&["-c", "1", "--vdev", "net_bogus0"], 2, "device 'net_bogus0': unknown driver; drivers: net_"),
        (
            &["-c", "1", "-n", "4", "--", "-p", "8"],
            2,
            "-p names port 3, which does not exist; ports: 0 mlx5_model0, 1 mlx5_model1",
        ),
        (
            &["--profile", "/dev/zero"],
            2,
            "profile '/dev/zero': cannot be read: the file is larger than the limit of 1 MiB",
        ),
        (
            &["-l", "0", "--", "-T", "86401"],
            2,
            "option '-T': '86401' is not a whole number of seconds from 0 to 86400",
        ),
        (
            &["-l", "0", "--", "--duration", "-1"],
            2,
            "option '--duration': '-1' is not a time in seconds above 0, such as 10 or 0.5",
        ),
        (
            &["-l", "0", "--", "--mbufs", "100"],
            2,
            "mbuf pool is too small (100 mbufs): the queues need up to ",
        ),
        (
            &["-l", "0", "--vdev", "net_ring0", "--", "--txd", "65535"],
            2,
            "port net_ring0: tx descriptor count 65535 is outside 1 to 32768",
        ),
        (
            &["--profile", "/nonexistent.toml"],
            2,
            "profile '/nonexistent.toml': cannot be read: No such file or directory (os error 2)",
        ),
        (
            &["--huge-dir", "/nonexistent"],
            2,
            "cannot use /nonexistent for huge pages: No such file or directory (os error 2)",
        ),
    ];
    for (args, code, expected) in table {
        let (got, said) = refused(args);
        assert_eq!(got, Some(*code), "{args:?}: {said}");
        // What depends on the machine comes last.
        assert!(said.starts_with(&format!("l2fwd: {expected}")), "{args:?}: {said}");
    }
}

/// What users type wrongly in values, ports and devices: the options, and the line behind the program's name.
const VALUES: &[(&[&str], &str)] = &[
    (&["--", "-T", "0.5"], "option '-T': '0.5' is not a whole number of seconds from 0 to 86400"),
    (&["--", "-T", "-1"], "option '-T': '-1' is not a whole number of seconds from 0 to 86400"),
    (
        &["--", "--duration", "0"],
        "option '--duration': '0' is not a time in seconds above 0, such as 10 or 0.5",
    ),
    (
        &["--", "--duration", "1s"],
        "option '--duration': '1s' is not a time in seconds above 0, such as 10 or 0.5",
    ),
    (&["--", "--rxd", "0"], "option '--rxd': '0' is not a whole number from 1 to 65535"),
    (&["--", "--txd", "70000"], "option '--txd': '70000' is not a whole number from 1 to 65535"),
    (&["--", "--rxpkts", "a,b"], "option '--rxpkts': 'a' is not a whole number from 0 to 65535"),
    (&["--", "--mbuf-size", "256"], "--mbuf-size and --rxoffs require --rxpkts: give both"),
    (
        &["--", "--rxpkts", "64", "--mbuf-size", "10"],
        "--mbuf-size 10 leaves no room for data after the headroom of 128 bytes: give at least 129, or 0 to discard the segment",
    ),
    (
        &["--", "--portmap", "(0,1),(0,1)"],
        "option '--portmap': '(0,1),(0,1)' names port 0 twice: a port can be in only one pair",
    ),
    (&["--", "-Pp0"], "option '-p': '0' selects no port: bit 0 is port 0, so 3 selects ports 0 and 1"),
    (
        &["--", "--portmask=0"],
        "option '--portmask': '0' selects no port: bit 0 is port 0, so 3 selects ports 0 and 1",
    ),
    (&["--", "stray"], "argument 'stray' is not an option: options begin with '-', --help lists them"),
    (&["--txd", "5"], "unknown option '--txd': it is an app option, write it after '--': -- --txd"),
    (&["-l", "1"], "option '-l' is given twice: give it once"),
    (&["-S", "1", "-s", "2"], "options '-S' and '-s' cannot be combined: keep -S"),
    (&["-d", "mlx5_0"], "option '-d': 'mlx5_0' is not a driver file; to open a device, write -a mlx5_0"),
    (
        &["--log-level", "[,debug"],
        "option '--log-level': '[' is not a valid pattern: found unclosed character class; write PATTERN:LEVEL",
    ),
    (
        &["--numa-mem", "64,x"],
        "option '--numa-mem': '64,x' is not a list of MiB for each NUMA node, such as 512,512",
    ),
    (
        &["--iova-mode", "pa"],
        "--iova-mode pa is not supported: all devices use virtual addresses; give --iova-mode va",
    ),
    (
        &["--huge-dir", "/"],
        "cannot use / for huge pages: it is not a hugetlbfs mount; run `mount -t hugetlbfs",
    ),
    (&["--vdev", "net_null0", "--", "-p", "3"], "-p names port 1, which does not exist; ports: 0 net_null0"),
    (&["--vdev", "net_null0,trace=2"], "device 'net_null0': trace=2: is not one of 0, 1, summary"),
    (
        &["--vdev", "net_null0,fault=[drop:2]"],
        "device 'net_null0': fault=[drop:2]: gives drop as \"2\"; it must be between 0 and 1",
    ),
    (
        &["--vdev", "net_pcap0"],
        "device 'net_pcap0': needs rx_pcap=: such as rx_pcap=in.pcap, tx_pcap=out.pcap or iface=eth0",
    ),
    (
        &["--vdev", "net_pcap0,iface=lo,rx_pcap=/a"],
        "device 'net_pcap0': iface=lo: sets both directions: leave out the other keys",
    ),
    (&["--vdev", "net_af_packet0"], "device 'net_af_packet0': needs iface=: such as iface=eth0"),
    (
        &["--vdev", "net_af_packet0,iface="],
        "device 'net_af_packet0': iface=: has no value: write iface=VALUE",
    ),
    (
        &["--vdev", "net_af_packet0,iface=lo,qpairs=0"],
        "device 'net_af_packet0': qpairs=0: is not a whole number from 1 to 256",
    ),
    (
        &["--vdev", "net_af_packet0,iface=lo,framesz=100"],
        "device 'net_af_packet0': framesz=100: is not a multiple of 16",
    ),
    (
        &["--vdev", "net_af_packet0,iface=lo,blocksz=5000"],
        "device 'net_af_packet0': blocksz=5000: is not a multiple of 4096 with room for a frame (framesz): at least 4096",
    ),
    (
        &["--vdev", "net_af_packet0,iface=lo,framesz=8192,blocksz=4096"],
        "device 'net_af_packet0': blocksz=4096: is not a multiple of 4096 with room for a frame (framesz): at least 8192",
    ),
    (
        &["--vdev", "net_af_packet0,iface=lo,fanout_mode=x"],
        "device 'net_af_packet0': fanout_mode=x: is not one of hash, lb, cpu, rollover, rnd, qm",
    ),
    (
        &["--vdev", "net_af_packet0,iface=lo", "--vdev", "mlx5_model0,wire=iface:lo"],
        "device 'mlx5_model0': wire=iface:lo: is also used by 'net_af_packet0': give each port its own interface",
    ),
    (
        &["--vdev", "net_af_xdp0,iface=lo,xdp_prog=x.o"],
        "device 'net_af_xdp0': xdp_prog=x.o: is not supported: the port brings its own XDP program",
    ),
    (
        &["--vdev", "net_af_xdp0,iface=lo,busy_budget=x"],
        "device 'net_af_xdp0': busy_budget=x: is not a whole number from 0 to 65535",
    ),
    (
        &["--vdev", "net_af_xdp0,iface=lo", "--vdev", "net_af_packet0,iface=lo"],
        "device 'net_af_packet0': iface=lo: is also used by 'net_af_xdp0': give each port its own interface",
    ),
    (
        &["--vdev", "net_tap0,iface=abcdefghijklmnopq"],
        "device 'net_tap0': iface=abcdefghijklmnopq: is not an interface name: give up to 15 bytes",
    ),
    (
        &["--vdev", "net_tap0,mac=zz"],
        "device 'net_tap0': mac=zz: is not an Ethernet address such as 02:00:00:00:00:01",
    ),
    (&["--vdev", "mlx5_model0,wire="], "device 'mlx5_model0': wire=: has no value: write wire=VALUE"),
    (
        &["--vdev", "mlx5_model0,wire=source:a"],
        "device 'mlx5_model0': wire=source:a: the size is not a whole number of bytes, such as source:64",
    ),
    (
        &["--vdev", "mlx5_model0,wire=source:64:0"],
        "device 'mlx5_model0': wire=source:64:0: the rate is not a whole number of frames a second",
    ),
    (
        &["--vdev", "mlx5_model0,wire=unix:/tmp/a"],
        "device 'mlx5_model0': wire=unix:/tmp/a: names two sockets without ':', its own and the peer's",
    ),
    (
        &["--vdev", "mlx5_model0,device=cx9"],
        "device 'mlx5_model0': device=cx9: is not one of cx4lx, cx5, cx6dx, cx7",
    ),
    (
        &["--vdev", "mlx5_model0,mac=01:02:03:04:05:06"],
        "device 'mlx5_model0': mac=01:02:03:04:05:06: is not a unicast address",
    ),
    (
        &["--vdev", "mlx5_model0,ip=1.2.3"],
        "device 'mlx5_model0': ip=1.2.3: '1.2.3' is no station's address with the length of its subnet",
    ),
    (
        &["--vdev", "mlx5_model0,loss=2"],
        "device 'mlx5_model0': loss=2: must be between 0 and 1, such as 0.01",
    ),
    (
        &["--vdev", "mlx5_model0,memlock=x"],
        "device 'mlx5_model0': memlock=x: must be 'none', 'process' (the process's own limit) or a number of bytes",
    ),
    (
        &["--vdev", "mlx5_model0,kernel=2.6"],
        "device 'mlx5_model0': kernel=2.6: is not one of newest, 6.12, 5.4",
    ),
    (&["--vdev", "mlx5_model0,mprq_en=2"], "device 'mlx5_model0': mprq_en=2: must be 0 or 1"),
    (&["--vdev", "mlx5_model0,cqe_size=100"], "device 'mlx5_model0': cqe_size=100: is not one of 64, 128"),
];

#[test]
fn each_wrong_value_is_told_with_what_is_allowed() {
    for (args, expected) in VALUES {
        let args = [&["-l", "0"][..], args].concat();
        let (code, said) = refused(&args);
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.starts_with(&format!("l2fwd: {expected}")), "{args:?}: {said}");
    }
}

#[test]
fn help_is_as_wide_as_the_terminal() {
    let help = |columns: Option<&str>| {
        let mut command = Command::new(L2FWD);
        command.arg("--help").env_remove("COLUMNS");
        if let Some(columns) = columns {
            command.env("COLUMNS", columns);
        }
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(!text.contains('\u{1b}'), "{text}");
        text
    };
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    for columns in [72, 100, 200] {
        let text = help(Some(&columns.to_string()));
        let widest = widest(&text);
        assert!(widest <= columns && widest > columns * 2 / 3, "{columns}: {widest}\n{text}");
    }
    assert!((67..=100).contains(&widest(&help(None))));
    assert!(
        help(Some("200"))
            .contains("driver name, number, devargs, such as net_af_packet0,iface=eth0 or net_null0,size=64")
    );
}

#[test]
fn too_few_file_descriptors_are_told_as_such() {
    for limit in 4..12 {
        // What the caller of the tests leaves open would count.
        let close: String = (3..10).map(|number| format!(" {number}>&-")).collect();
        let script = format!("exec{close}; ulimit -n {limit}; exec {L2FWD} -l 0 -- --duration 0.05");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let mend = format!("{limit} are allowed; `ulimit -n 1024` allows more");
        let told = said.contains(&format!("too few file descriptors to look for huge pages: {mend}"))
            || said.contains(&format!("the limit is {limit} open files; raise it with `ulimit -n 1024`"));
        // With a few more it runs, and has nothing to say of them.
        let enough = output.status.success() && !said.contains("file descriptors");
        assert!(told || (limit > 7 && enough), "limit {limit}: {:?} {said}", output.status);
        assert!(!told || !said.contains("this kernel has no huge pages"), "limit {limit}: {said}");
    }
}

#[test]
fn a_broken_profile_is_shown_by_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.toml");
    for (text, place) in [
        ("[eal]\nlcores = \n", "line 2, column 10: "),
        ("[eal]\nlcoers = \"0\"\n", "line 2, column 1: unknown key 'lcoers': did you mean 'lcores'?"),
        ("[app]\nduration = -1\n", "line 2, column 1: option '--duration': '-1' is not a time in seconds"),
    ] {
        std::fs::write(&path, text).unwrap();
        let (code, said) = refused(&["--profile", path.to_str().unwrap()]);
        let expected = format!("l2fwd: profile '{}', {place}", path.display());
        assert!(said.starts_with(&expected), "{said}");
        assert_eq!(code, Some(2));
    }
}

#[test]
fn a_damaged_capture_is_refused_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    // Neither magic number of pcap, nor pcapng's.
    std::fs::write(&path, [7; 40]).unwrap();
    let (code, said) = refused(&["--vdev", &format!("net_pcap0,rx_pcap={}", path.display())]);
    assert_eq!(code, Some(1));
    let expected =
        format!("l2fwd: port net_pcap0: cannot use a capture file: {} is damaged at byte 0", path.display());
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn what_was_typed_cannot_break_the_line() {
    for args in [["--vdev", "net\nnull0"], ["--vdev", "net_null0,a\nb=\u{1b}[2J"], ["--frob\nnicate", "x"]] {
        let (code, said) = refused(&args);
        assert_eq!(code, Some(2), "{said}");
        assert!(!said.contains('\u{1b}'), "{said}");
    }
}

#[test]
fn bytes_that_are_no_text_are_shown_with_their_argument() {
    use std::os::unix::ffi::OsStrExt;

    let output =
        Command::new(L2FWD).args(["--vdev".as_ref(), std::ffi::OsStr::from_bytes(b"net_null\xff")]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "l2fwd: argument 'net_null\u{fffd}' is not valid UTF-8\n");
}

/// A capture without frames. Source: the-tcpdump-group/libpcap `pcap/pcap.h`.
const NO_FRAME: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];

#[test]
fn a_capture_that_is_read_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    std::fs::write(&path, [&NO_FRAME[..], &[0; 16]].concat()).unwrap();
    let path = path.to_str().unwrap();
    for devices in [
        vec![format!("net_pcap0,rx_pcap={path},tx_pcap={path}")],
        vec![format!("net_pcap0,tx_pcap={path}"), format!("net_pcap1,rx_pcap={path}")],
        vec![format!("net_pcap0,rx_pcap={path}"), format!("net_null0,tee={path}")],
    ] {
        let args: Vec<&str> = devices.iter().flat_map(|device| ["--vdev", device]).collect();
        let (code, said) = refused(&args);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("opening it for writing would truncate it: use a different file"), "{said}");
        assert_eq!(std::fs::metadata(path).unwrap().len(), 40, "{devices:?}");
    }
}

#[test]
fn a_capture_without_frames_cannot_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.pcap");
    std::fs::write(&path, NO_FRAME).unwrap();
    let path = path.display();
    let (code, said) = refused(&["-l", "0", "--vdev", &format!("net_pcap0,rx_pcap={path},infinite_rx=1")]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.ends_with(&format!("repeats a file's frames, and {path} holds none")), "{said}");
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    for options in [&["--json"][..], &[]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let args = ["-l", "0", "--", "--duration", "0.05"];
        let output = Command::new(L2FWD).args(args).args(options).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        let expected =
            "l2fwd: cannot write the report to standard output: No space left on device (os error 28)";
        assert_eq!(said.lines().last(), Some(expected), "{said}");
    }
}
