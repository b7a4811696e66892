use std::ffi::OsString;

use clap::CommandFactory as _;

use super::EalOptions;
use crate::{CommandLine, ConfigError};

/// What an option does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    /// The spec or the ports differ from those without it.
    Acts,
    /// One warning, which names it.
    Warns,
    /// It acts and is deprecated.
    Both,
    /// It prints and ends, or reads other options.
    Prints,
}
use Effect::{Acts, Both, Prints, Warns};

/// Every option of DPDK 25.11 (`lib/eal/common/eal_option_list.h`), and ours, with arguments that give it.
const ALL: &[(&str, &[&str], Effect)] = &[
    ("allow", &["-a", "0000:03:00.0"], Acts),
    ("base-virtaddr", &["--base-virtaddr", "0x100000000"], Warns),
    ("block", &["-b", "0000:03:00.0"], Acts),
    ("coremask", &["-c", "1"], Both),
    ("create-uio-dev", &["--create-uio-dev"], Warns),
    ("driver-path", &["-d", "a.so"], Warns),
    ("file-prefix", &["--file-prefix", "a"], Acts),
    ("force-max-simd-bitwidth", &["--force-max-simd-bitwidth", "128"], Acts),
    ("help", &["--help"], Prints),
    ("huge-dir", &["--huge-dir", "/mnt"], Acts),
    ("huge-unlink", &["--huge-unlink"], Acts),
    ("huge-worker-stack", &["--huge-worker-stack"], Warns),
    ("in-memory", &["--in-memory"], Acts),
    ("iova-mode", &["--iova-mode", "va"], Acts),
    ("lcores", &["-l", "0"], Acts),
    ("legacy-mem", &["--legacy-mem"], Warns),
    ("log-color", &["--log-color"], Acts),
    ("log-level", &["--log-level", "debug"], Acts),
    ("log-timestamp", &["--log-timestamp"], Acts),
    ("main-lcore", &["--main-lcore", "0"], Acts),
    ("match-allocations", &["--match-allocations"], Warns),
    ("mbuf-pool-ops-name", &["--mbuf-pool-ops-name", "stack"], Acts),
    ("memory-channels", &["-n", "4"], Warns),
    ("memory-ranks", &["-r", "2"], Warns),
    ("memory-size", &["-m", "64"], Acts),
    ("mempool-debug", &["--mempool-debug"], Acts),
    ("no-auto-probing", &["-A"], Warns),
    ("no-hpet", &["--no-hpet"], Warns),
    ("no-huge", &["--no-huge"], Acts),
    ("no-pci", &["--no-pci"], Acts),
    ("no-shconf", &["--no-shconf"], Warns),
    ("no-telemetry", &["--no-telemetry"], Acts),
    ("numa-limit", &["--numa-limit", "64"], Acts),
    ("numa-mem", &["--numa-mem", "64"], Acts),
    ("proc-type", &["--proc-type", "auto"], Acts),
    ("profile", &["--profile", "/dev/null"], Prints),
    ("remap-lcore-ids", &["-R", "-l", "0"], Acts),
    ("service-corelist", &["-S", "1"], Acts),
    ("service-coremask", &["-s", "2"], Both),
    ("single-file-segments", &["--single-file-segments"], Warns),
    ("syslog", &["--syslog"], Warns),
    ("telemetry", &["--telemetry"], Acts),
    ("trace", &["--trace", "a"], Warns),
    ("trace-bufsz", &["--trace-bufsz", "1M"], Warns),
    ("trace-dir", &["--trace-dir", "/tmp"], Warns),
    ("trace-mode", &["--trace-mode", "discard"], Warns),
    ("vdev", &["--vdev", "net_null0"], Acts),
    ("version", &["--version"], Prints),
    ("vfio-intr", &["--vfio-intr", "msix"], Warns),
    ("vfio-vf-token", &["--vfio-vf-token", "a"], Warns),
    ("vmware-tsc-map", &["--vmware-tsc-map"], Warns),
];

fn parse(args: &[&str]) -> Result<CommandLine, ConfigError> {
    CommandLine::parse(std::iter::once("app").chain(args.iter().copied()).map(OsString::from))
}

#[test]
fn each_option_acts_or_warns() {
    let command = EalOptions::command();
    let mut known: Vec<&str> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
    known.sort_unstable();
    assert_eq!(known, ALL.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    let plain = parse(&[]).expect("nothing given");
    for (name, args, effect) in ALL {
        if *effect == Prints {
            continue;
        }
        let line = parse(args).unwrap_or_else(|error| panic!("{name}: {error}"));
        let acts = (&line.eal, &line.ports) != (&plain.eal, &plain.ports);
        assert_eq!(acts, matches!(effect, Acts | Both), "{name} acts");
        let warned = line.warnings.iter().filter(|text| text.contains(args[0])).count();
        let wanted = usize::from(matches!(effect, Warns | Both));
        assert_eq!((warned, line.warnings.len()), (wanted, wanted), "{name}: {:?}", line.warnings);
    }
}

#[test]
fn contradictions_are_refused() {
    for (first, second) in [
        (&["-l", "0"][..], &["-c", "1"][..]),
        (&["-S", "1"], &["-s", "2"]),
        (&["-m", "64"], &["--numa-mem", "64"]),
        (&["--no-huge"], &["--numa-mem", "64"]),
        (&["--no-huge"], &["--socket-mem", "64"]),
        (&["--no-huge"], &["--huge-dir", "/mnt"]),
        (&["--no-huge"], &["--huge-unlink"]),
        (&["--no-huge"], &["--single-file-segments"]),
        (&["--no-huge"], &["--match-allocations"]),
        (&["--in-memory"], &["--huge-dir", "/mnt"]),
        (&["--in-memory"], &["--huge-unlink=never"]),
        (&["--in-memory"], &["--legacy-mem"]),
        (&["--legacy-mem"], &["--match-allocations"]),
        (&["--legacy-mem"], &["--socket-limit", "64"]),
        (&["--single-file-segments"], &["--huge-unlink"]),
        (&["--telemetry"], &["--no-telemetry"]),
        (&["-a", "0000:03:00.0"], &["-b", "0000:04:00.0"]),
        (&["--no-pci"], &["-a", "mlx5_0"]),
    ] {
        for args in [[first, second].concat(), [second, first].concat()] {
            let line = parse(&args).expect_err("a contradiction").to_string();
            let spelt = |args: &[&str]| args[0].split('=').next().unwrap_or_default().to_owned();
            let both = [spelt(first), spelt(second)].iter().all(|name| line.contains(&format!("'{name}'")));
            assert!(line.starts_with("options '") && line.contains("cannot be combined: ") && both, "{line}");
        }
        parse(first).expect("one alone");
        parse(second).expect("one alone");
    }
    let line = parse(&["-l", "0", "--main-lcore", "1"]).expect_err("not among them").to_string();
    assert!(line.starts_with("option '--main-lcore': '1' is not among the lcores 0"), "{line}");
    let line = parse(&["-b", "net_null0", "--vdev", "net_null0"]).expect_err("blocked").to_string();
    assert_eq!(line, "device 'net_null0': is blocked by -b: remove it from -b, or do not use it");
}

#[test]
fn vector_widths_are_checked() {
    for (text, bits) in [("0", 0), ("64", 64), ("256", 256), ("32768", 32_768)] {
        let line = parse(&["--force-max-simd-bitwidth", text]).expect(text);
        assert_eq!(line.eal.simd_bits_max, bits);
    }
    for text in ["32", "100", "65536", "x", "-1"] {
        let line = parse(&["--force-max-simd-bitwidth", text]).expect_err(text).to_string();
        let wanted = format!("option '--force-max-simd-bitwidth': '{text}' is not a SIMD bitwidth");
        assert!(line.starts_with(&wanted), "{line}");
    }
}

#[test]
fn a_device_behind_the_drivers_option_is_told_its_place() {
    let line = parse(&["-d", "mlx5_0"]).expect_err("a device").to_string();
    assert_eq!(line, "option '-d': 'mlx5_0' is not a driver file; to open a device, write -a mlx5_0");
    for path in ["librte_net_mlx5.so", "/usr/lib/dpdk", "./mlx5_0"] {
        assert_eq!(parse(&["-d", path]).expect(path).warnings.len(), 1);
    }
}
