//! What a user reads after a mistake, word for word.

use std::ffi::OsString;

use clap::Parser;
use pollux_config::{CommandLine, ConfigError, DeviceArg};

#[derive(Parser, Debug, PartialEq)]
#[command(about = "app: what it does.", after_help = "The loop is in forward.rs.")]
struct App {
    /// Ports to use
    #[arg(short = 'p', long, value_name = "MASK")]
    portmask: Option<String>,
    /// Seconds to run
    #[arg(long, value_name = "S")]
    duration: Option<u64>,
}

fn message(args: &[&str]) -> String {
    let words = std::iter::once("app").chain(args.iter().copied()).map(OsString::from);
    match CommandLine::parse_with::<App, _, _>(words) {
        Ok(parsed) => panic!("{args:?} should be refused, and gave {parsed:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_bad_command_line_gives_one_exact_line() {
    let table: &[(&[&str], &str)] = &[
        (&["--lcoers", "0"], "unknown option '--lcoers': did you mean '--lcores'? --help lists all options"),
        (&["--frobnicate"], "unknown option '--frobnicate': --help lists all options"),
        (&["net_null0"], "argument 'net_null0' is not an option: options begin with '-', --help lists them"),
        (&["-y"], "unknown option '-y': --help lists all options"),
        (
            &["--duration", "1"],
            "unknown option '--duration': it is an app option, write it after '--': -- --duration",
        ),
        (
            &["--duration=1"],
            "unknown option '--duration': it is an app option, write it after '--': -- --duration",
        ),
        (&["-p", "3"], "unknown option '-p': it is an app option, write it after '--': -- -p"),
        (&["--", "--duration", "x"], "option '--duration': 'x' invalid digit found in string"),
        (&["--", "--duration"], "option '--duration' needs a value: --duration S"),
        (
            &["--", "--durration", "1"],
            "unknown option '--durration': did you mean '--duration'? --help lists all options",
        ),
        (&["-l"], "option '-l' needs a value: -l LIST"),
        (&["-l", "0", "-l", "1"], "option '-l' is given twice: give it once"),
        (&["-l", ""], "option '-l': '' ends where a number is expected; forms: 0-3,5 or '(0-3)@(0-1)'"),
        (&["-l", "0-"], "option '-l': '0-' ends where a number is expected; forms: 0-3,5 or '(0-3)@(0-1)'"),
        (
            &["-l", "0;1"],
            "option '-l': '0;1' has ';' where ',' and another lcore is expected; forms: 0-3,5 or '(0-3)@(0-1)'",
        ),
        (&["-l", "3-1"], "option '-l': '3-1' has the range 3-1, which is reversed: write 1-3"),
        (&["-l", "0,0"], "option '-l': '0,0' names lcore 0 twice: name each lcore once"),
        (&["-l", "5000"], "option '-l': '5000' contains 5000; the maximum is 1023"),
        (
            &["-l", "(0-3"],
            "option '-l': '(0-3' ends where ',' or ')' is expected; forms: 0-3,5 or '(0-3)@(0-1)'",
        ),
        (&["-l", "0@"], "option '-l': '0@' ends where a number is expected; forms: 0-3,5 or '(0-3)@(0-1)'"),
        (
            &["-l", "99999999999999999999"],
            "option '-l': '99999999999999999999' contains 99999999999999999999; the maximum is 1023",
        ),
        (&["-c", "0xzz"], "option '-c': '0xzz' is not a hexadecimal mask, such as 0xf"),
        (&["-c", "0"], "option '-c': '0' has no bit set: name at least one lcore"),
        (&["-c", "1", "-l", "0"], "options '-l' and '-c' cannot be combined: keep -l"),
        (
            &["-l", "0-1", "--main-lcore", "7"],
            "option '--main-lcore': '7' is not among the lcores 0-1: add it to -l or choose one of them",
        ),
        (&["-l", "0-1", "--main-lcore", "one"], "option '--main-lcore': 'one' is not an lcore number"),
        (
            &["-l", "0-1", "-S", "1", "--main-lcore", "1"],
            "option '--main-lcore': '1' is a service lcore: choose another or take it out of -S",
        ),
        (&["--lcores=0", "-l", "1"], "option '--lcores' is given twice: give it once"),
        (
            &["-n4", "--lcores", "x"],
            "option '--lcores': 'x' has 'x' where a number is expected; forms: 0-3,5 or '(0-3)@(0-1)'",
        ),
        (&["--", "-pz", "-p", "3"], "option '-p' is given twice: give it once"),
        (
            &["-a", "mlx5_0", "--no-pci"],
            "options '--no-pci' and '-a' cannot be combined: -a opens hardware; use --vdev for virtual devices",
        ),
        (&["-R"], "option '-R' requires -l: give both"),
        (&["-m", "lots"], "option '-m': 'lots' is not a number of MiB, such as 512"),
        (&["-m", "0"], "option '-m': '0' must be at least 1 MiB, such as 512"),
        (
            &["--socket-mem", "1,x"],
            "option '--socket-mem': '1,x' is not a list of MiB for each NUMA node, such as 512,512",
        ),
        (&["-m", "1", "--numa-mem", "1"], "options '-m' and '--numa-mem' cannot be combined: keep one"),
        (
            &["--no-huge", "--huge-dir", "/x"],
            "options '--no-huge' and '--huge-dir' cannot be combined: keep one",
        ),
        (&["--no-huge=1"], "option '--no-huge' takes no value, and was given '1': leave it out"),
        (
            &["--huge-unlink=sometimes"],
            "option '--huge-unlink': 'sometimes' is not one of existing, always, never",
        ),
        (&["--iova-mode", "dma"], "option '--iova-mode': 'dma' is not one of va, pa"),
        (
            &["--proc-type", "secondary"],
            "option '--proc-type': 'secondary' is not supported yet: leave it out; every process is a primary one",
        ),
        (&["--proc-type", "tertiary"], "option '--proc-type': 'tertiary' is not one of primary, auto"),
        (
            &["--file-prefix", "a/b"],
            "option '--file-prefix': 'a/b' must not be empty, '.' or '..', or contain '/' or '%': it becomes a file name",
        ),
        (
            &["--log-level", "loud"],
            "option '--log-level': 'loud' is not a log level: use one of emergency, alert, critical, error, warning, notice, info, debug, or 1 to 8",
        ),
        (
            &["--log-level", ":debug"],
            "option '--log-level': ':debug' has an empty pattern: write LEVEL, PATTERN:LEVEL or REGEX,LEVEL",
        ),
        (&["--log-color=pink"], "option '--log-color': 'pink' is not one of auto, always, never"),
        (
            &["--telemetry", "--no-telemetry"],
            "options '--telemetry' and '--no-telemetry' cannot be combined: keep one",
        ),
        (
            &["-a", "0000:03:00.0", "-b", "0000:04:00.0"],
            "options '-a' and '-b' cannot be combined: only named devices are opened, so leave -b out",
        ),
        (&["--vdev", ""], "device '': has no name: write NAME[,KEY=VALUE...], such as net_null0,size=64"),
        (
            &["--vdev", "net_null0,"],
            "device 'net_null0,': has a ',' without a key after it: write NAME[,KEY=VALUE...]",
        ),
        (
            &["--vdev", "net null"],
            "device 'net null': ' ' is not allowed in a name: write NAME[,KEY=VALUE...], such as net_null0,size=64",
        ),
        (
            &["--vdev", "net_null0", "--vdev", "net_null0,size=1"],
            "device 'net_null0,size=1': is given twice: use different numbers, such as net_null0 and net_null1",
        ),
        (&["--profile", "/nonexistent/p.toml"], "profile '/nonexistent/p.toml': cannot be read"),
    ];
    for (args, expected) in table {
        assert_eq!(message(args), *expected, "{args:?}");
    }
}

#[derive(Parser, Debug, PartialEq)]
struct RdmaApp {
    /// The device
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Option<String>,
}

#[test]
fn a_device_that_the_app_takes_stands_behind_the_dashes() {
    for name in ["mlx5_0", "siw0"] {
        let error = CommandLine::parse_with::<RdmaApp, _, _>(["app", "-d", name]).unwrap_err();
        let line = format!(
            "option '-d': '{name}' is not a driver file; to name an RDMA device, write -d after '--': -- -d {name}"
        );
        assert_eq!(error.to_string(), line);
    }
    assert!(CommandLine::parse_with::<RdmaApp, _, _>(["app", "-d", "./a.so", "--", "-d", "mlx5_0"]).is_ok());
}

#[test]
fn each_bad_profile_gives_its_line_and_column() {
    let table: &[(&str, &str)] = &[
        ("[eal]\nlcores = \n", "line 2, column 10: string values must be quoted, expected literal string"),
        (
            "[eal]\nno-huge = true\nlcoers = \"0\"\n",
            "line 3, column 1: unknown key 'lcoers': did you mean 'lcores'? --help lists all options",
        ),
        ("[eel]\n", "line 1, column 2: unknown field `eel`, expected one of `eal`, `app`, `port`"),
        (
            "[eal]\n  lcores = \"0-\"\n",
            "line 2, column 3: option '--lcores': '0-' ends where a number is expected; forms: 0-3,5 or '(0-3)@(0-1)'",
        ),
        (
            "[eal]\nlcores = \"0-1\"\nmain-lcore = 4\n",
            "line 3, column 1: option '--main-lcore': '4' is not among the lcores 0-1: add it to -l or choose one of them",
        ),
        (
            "[eal]\nlcores = { a = 1 }\n",
            "line 2, column 10: 'lcores' is a table; allowed are a string, a number, true, false or a list of strings",
        ),
        (
            "[eal]\nno-huge = \"yes\"\n",
            "line 2, column 1: option '--no-huge' takes no value, and was given 'yes': leave it out",
        ),
        (
            "[eal]\nprofile = \"other.toml\"\n",
            "line 2, column 1: key 'profile' is not allowed in a profile: use --profile on the command line",
        ),
        (
            "[app]\nduration = \"long\"\n",
            "line 2, column 1: option '--duration': 'long' invalid digit found in string",
        ),
        (
            "[app]\nportmask = \"3\"\nspeed = 1\n",
            "line 3, column 1: unknown key 'speed': --help lists all options",
        ),
        (
            "[[port]]\nsize = 3\n",
            "line 2, column 1: unknown field `size`, expected one of `device`, `rx-queues`, `tx-queues`, `rx-descriptors`, `tx-descriptors`, `mtu`, `promiscuous`, `scatter`, `max-lro`",
        ),
        (
            "[[port]]\ndevice = \"\"\n",
            "line 2, column 10: device '': has no name: write NAME[,KEY=VALUE...], such as net_null0,size=64",
        ),
        (
            "[[port]]\ndevice = \"net_null0\"\nrx-queues = 70000\n",
            "line 3, column 13: invalid value: integer `70000`, expected a number from 0 to 65535",
        ),
        (
            "[[port]]\ndevice = \"net_null0\"\nrx-queues = 0\n",
            "line 2, column 10: the number of rx or tx queues must be from 1 to 65535",
        ),
        ("[eal]\nlcores = \"0\"\nlcores = \"1\"\n", "line 3, column 1: duplicate key"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    for (text, expected) in table {
        std::fs::write(&path, text).unwrap();
        let message = message(&["--profile", path.to_str().unwrap()]);
        let place = message.replace(&format!("profile '{}', ", path.display()), "");
        assert_eq!(place, *expected, "{text:?}");
    }
}

#[test]
fn a_device_refuses_what_its_driver_does_not_read() {
    let table: &[(&str, &str)] = &[
        (
            "net_null0,sise=64",
            "device 'net_null0': unknown key 'sise', did you mean 'size'?; allowed: size, copy, mode, mac, loss",
        ),
        ("net_null0,zz=64", "device 'net_null0': unknown key 'zz'; allowed: size, copy, mode, mac, loss"),
        ("net_null0,size", "device 'net_null0': size=: has no value: write size=VALUE"),
        ("net_null0,size=0", "device 'net_null0': size=0: is not a whole number from 1 to 9000"),
        ("net_null0,size=1,size=2", "device 'net_null0': size=2: is given twice: give it once"),
        ("net_null0,copy=yes", "device 'net_null0': copy=yes: must be 0 or 1"),
        ("net_null0,mode=odd", "device 'net_null0': mode=odd: is not one of threaded, stepped"),
        (
            "net_null0,mac=02:00",
            "device 'net_null0': mac=02:00: is not an Ethernet address such as 02:00:00:00:00:01",
        ),
        ("net_null0,loss=2", "device 'net_null0': loss=2: must be between 0 and 1, such as 0.01"),
        ("net_null0", "device 'net_null0': needs iface=: such as iface=eth0"),
    ];
    for (text, expected) in table {
        let read = || -> Result<(), ConfigError> {
            let device: DeviceArg = text.parse()?;
            let mut keys = device.keys();
            keys.number::<u32>("size", 1..=9_000)?;
            keys.flag("copy")?;
            keys.choice("mode", &["threaded", "stepped"])?;
            keys.mac("mac")?;
            keys.share("loss")?;
            if device.args.is_empty() {
                keys.required("iface", "iface=eth0")?;
            }
            keys.finish()
        };
        assert_eq!(read().unwrap_err().to_string(), *expected, "{text:?}");
    }
}
