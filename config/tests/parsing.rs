//! What is accepted, and what becomes of it.

use std::ffi::OsString;

use clap::Parser;
use pollux_config::{
    CommandLine, DeviceArg, HugeUnlink, IovaMode, LcoreMap, LcoreSet, LogLevel, LogPattern, LogTimestamp,
    Parsed,
};
use proptest::prelude::*;

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

fn parse(args: &[&str]) -> CommandLine {
    CommandLine::parse(std::iter::once(&"app").chain(args)).unwrap()
}

fn parse_with_app(args: &[&str]) -> (CommandLine, App) {
    match CommandLine::parse_with(std::iter::once(&"app").chain(args)).unwrap() {
        Parsed::Run(line, app) => (*line, app),
        Parsed::Print(text) => panic!("printed {text}"),
    }
}

#[test]
fn lcores_are_read_in_all_of_dpdks_spellings() {
    for spelling in
        [&["-l0-3"][..], &["-l", "0-3"], &["-l=0-3"], &["--lcores=0-3"], &["--lcores", "0-3"], &["-c", "f"]]
    {
        assert_eq!(parse(spelling).eal.lcores.unwrap().to_string(), "0-3", "{spelling:?}");
    }
}

#[test]
fn lcore_maps_say_where_each_lcore_runs() {
    // The example of DPDK's guide for --lcores.
    let map: LcoreMap =
        "1,2@(5-7),(3-5)@(0,2),(0,6),7-8".parse().unwrap_or_else(|problem| panic!("{problem}"));
    let text = |lcore: usize| map.entries()[lcore].cpus.to_string();
    let expected = ["0,6", "1", "5-7"];
    assert_eq!([0, 1, 2].map(text), expected);
    let map: LcoreMap = "(3-5)@(0,2),(0,6),7-8, 1 @ 4".parse().unwrap();
    let pairs: Vec<String> =
        map.entries().iter().map(|entry| format!("{}:{}", entry.lcore, entry.cpus)).collect();
    assert_eq!(pairs, ["0:0,6", "1:4", "3:0,2", "4:0,2", "5:0,2", "6:0,6", "7:7", "8:8"]);
    let swapped: LcoreMap = "0@1,1@0".parse().unwrap();
    assert_eq!(swapped.to_string(), "0@1,1@0");
}

#[test]
fn lcores_are_numbered_anew() {
    assert_eq!(parse(&["-l", "4,6", "-R"]).eal.lcores.unwrap().to_string(), "0@4,1@6");
    assert_eq!(parse(&["-l", "4,6", "-R=10"]).eal.lcores.unwrap().to_string(), "10@4,11@6");
}

#[test]
fn every_option_arrives() {
    let line = parse(&[
        "-l",
        "0-2",
        "--main-lcore",
        "1",
        "-S",
        "2",
        "--numa-mem",
        "64,32",
        "--huge-dir",
        "/mnt/huge",
        "--huge-unlink",
        "--file-prefix",
        "mine",
        "--proc-type",
        "auto",
        "--iova-mode",
        "va",
        "-a",
        "0000:03:00.0,txq_inline_max=0",
        "--vdev",
        "net_null0,size=64,copy=0",
        "--log-level",
        "notice",
        "--log-level=lib.eal:8",
        "--log-level",
        "pmd.*,debug",
        "--log-timestamp=iso",
        "--no-telemetry",
    ]);
    let eal = &line.eal;
    assert_eq!((eal.main_lcore, eal.service_lcores.as_slice()), (Some(1), &[2][..]));
    assert_eq!((&eal.memory.numa_mib[..], eal.memory.huge_unlink), (&[64, 32][..], HugeUnlink::Always));
    assert!(!eal.memory.no_huge && !eal.memory.in_memory);
    assert_eq!(
        (eal.process.file_prefix.as_str(), eal.iova, eal.telemetry),
        ("mine", IovaMode::Virtual, Some(false))
    );
    assert_eq!((eal.log.filters[0].level, &eal.log.filters[0].pattern), (LogLevel::Notice, &LogPattern::All));
    assert_eq!(eal.log.filters[1].pattern, LogPattern::Glob("lib.eal".into()));
    assert_eq!(eal.log.filters[2].pattern, LogPattern::Regex("pmd.*".into()));
    assert_eq!((eal.log.filters[1].level, eal.log.timestamp), (LogLevel::Debug, LogTimestamp::Iso));
    let devices: Vec<&str> = line.ports.iter().map(|port| port.device.driver.as_str()).collect();
    assert_eq!(devices, ["pci", "net_null"]);
    assert!(line.warnings.is_empty());
}

#[test]
fn options_that_mean_nothing_here_are_accepted_with_one_line_each() {
    let line = parse(&[
        "-n4",
        "-r",
        "2",
        "--legacy-mem",
        "--base-virtaddr=0x100000000",
        "--no-hpet",
        "--no-shconf",
        "--vfio-intr",
        "msix",
        "--vfio-vf-token",
        "x",
        "-d",
        "a.so",
        "-d",
        "b.so",
        "--single-file-segments",
        "--huge-worker-stack",
        "--create-uio-dev",
        "-A",
        "-c",
        "3",
        "-s",
        "4",
    ]);
    assert_eq!(line.warnings.len(), 15, "{:#?}", line.warnings);
    assert_eq!(line.warnings[0], "option '-n' has no effect: the memory layout is chosen automatically");
    assert_eq!(line.warnings[13], "option '-c' is deprecated: write -l 0-1");
    assert_eq!(line.warnings[14], "option '-s' is deprecated: write -S 2");
}

#[test]
fn the_app_half_follows_two_dashes() {
    let (line, app) = parse_with_app(&["-l", "0", "--", "-p3", "--duration", "2"]);
    assert_eq!(app, App { portmask: Some("3".into()), duration: Some(2) });
    assert_eq!(line.app, ["-p3", "--duration", "2"]);
    assert_eq!(parse_with_app(&["-l", "0"]).1, App { portmask: None, duration: None });
}

#[test]
fn help_shows_both_halves_and_the_loop() {
    for args in [["app", "--help"], ["app", "-h"]] {
        let Parsed::Print(text) = CommandLine::parse_with::<App, _, _>(args).unwrap() else { panic!("ran") };
        for part in
            ["app: what it does.", "--portmask <MASK>", "--lcores <LIST>", "forward.rs", "[EAL options] --"]
        {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert!(!text.contains("--legacy-mem"));
    }
    let behind = CommandLine::parse_with::<App, _, _>(["app", "--", "--help"]).unwrap();
    assert!(matches!(behind, Parsed::Print(_)));
    let Parsed::Print(version) = CommandLine::parse_with::<App, _, _>(["app", "-v"]).unwrap() else {
        panic!("ran")
    };
    assert_eq!(version, format!("app (Pollux {})\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_profile_lies_under_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    let text = r#"
        [eal]
        lcores = "0-1"
        memory-size = 64
        no-telemetry = true
        no-huge = false
        log-level = ["notice", "lib.eal:debug"]
        [app]
        duration = 3
        portmask = "f"
        [[port]]
        device = "net_null0,size=128"
        rx-descriptors = 256
        promiscuous = false
        scatter = true
        max-lro = 9000
    "#;
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let (line, app) = parse_with_app(&["--profile", path]);
    assert_eq!(line.eal.lcores.unwrap().to_string(), "0-1");
    assert_eq!((line.eal.memory.initial_mib, line.eal.memory.no_huge), (Some(64), false));
    assert_eq!((line.eal.log.filters.len(), line.eal.telemetry), (2, Some(false)));
    assert_eq!((line.ports[0].queues.rx_descriptors, line.ports[0].promiscuous), (256, Some(false)));
    assert_eq!((line.ports[0].scatter, line.ports[0].max_lro), (Some(true), Some(9000)));
    assert_eq!(app, App { portmask: Some("f".into()), duration: Some(3) });

    let over =
        ["--profile", path, "-c", "4", "--numa-mem", "32", "--vdev", "net_ring0", "--", "--duration=9"];
    let (line, app) = parse_with_app(&over);
    assert_eq!(line.eal.lcores.unwrap().to_string(), "2");
    assert_eq!((line.eal.memory.initial_mib, line.eal.memory.numa_mib), (None, vec![32]));
    assert_eq!(line.ports.iter().map(|port| port.device.to_string()).collect::<Vec<_>>(), ["net_ring0"]);
    assert_eq!(app, App { portmask: Some("f".into()), duration: Some(9) });
}

#[test]
fn the_profiles_that_come_along_are_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let line = CommandLine::parse(["app".into(), OsString::from("--profile"), path.clone().into()]);
        assert!(!line.unwrap_or_else(|error| panic!("{error}")).ports.is_empty(), "{}", path.display());
        count += 1;
    }
    assert!(count >= 2);
}

#[test]
fn device_arguments_keep_lists_in_brackets_together() {
    let device: DeviceArg = "0000:03:00.0,representor=[0,2-3],dv_flow_en=1".parse().unwrap();
    assert_eq!(device.driver, "pci");
    assert_eq!(device.args[0], ("representor".into(), "[0,2-3]".into()));
    assert_eq!(device.args.len(), 2);
    let rdma: DeviceArg = "mlx5_0".parse().unwrap();
    assert_eq!((rdma.driver.as_str(), rdma.name.as_str()), ("mlx5_", "mlx5_0"));
}

fn words() -> impl Strategy<Value = Vec<String>> {
    let known = prop::sample::select(vec![
        "-l",
        "-c",
        "-S",
        "-s",
        "-R",
        "-m",
        "-a",
        "-b",
        "-n",
        "-v",
        "-h",
        "--",
        "--lcores",
        "--main-lcore",
        "--vdev",
        "--log-level",
        "--numa-mem",
        "--huge-unlink",
        "--proc-type",
        "--file-prefix",
        "0-3",
        "(0-1)@0",
        "net_null0",
    ]);
    prop::collection::vec(
        prop_oneof![known.prop_map(str::to_owned), any::<String>(), "-{0,2}[a-z0-9=,@()-]{0,12}"],
        0..8,
    )
}

proptest! {
    #[test]
    fn no_command_line_panics_and_each_refusal_is_one_line(words in words()) {
        let line = CommandLine::parse_with::<App, _, _>(std::iter::once("app".to_owned()).chain(words.clone()));
        if let Err(error) = line {
            let typed_newline = words.iter().any(|word| word.contains(['\n', '\r']));
            prop_assert!(typed_newline || !error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn no_text_panics(text in any::<String>(), bytes in "[0-9,@()\\- ]{0,24}") {
        let _ = text.parse::<LcoreMap>();
        let _ = bytes.parse::<LcoreMap>();
        let _ = LcoreSet::from_mask(&text);
        let _ = text.parse::<DeviceArg>();
    }

    #[test]
    fn an_lcore_map_reads_back_as_itself(
        pairs in prop::collection::btree_map(0_u16..1024, prop::collection::btree_set(0_u16..1024, 1..5), 1..9)
    ) {
        let text: Vec<String> = pairs.iter().map(|(lcore, cpus)| {
            let cpus: Vec<String> = cpus.iter().map(u16::to_string).collect();
            format!("{lcore}@({})", cpus.join(","))
        }).collect();
        let map: LcoreMap = text.join(",").parse().unwrap();
        for (entry, (lcore, cpus)) in map.entries().iter().zip(&pairs) {
            prop_assert_eq!(entry.lcore, *lcore);
            prop_assert_eq!(entry.cpus.as_slice(), &cpus.iter().copied().collect::<Vec<_>>()[..]);
        }
        prop_assert_eq!(map.entries().len(), pairs.len());
        prop_assert_eq!(map.to_string().parse::<LcoreMap>().unwrap(), map);
    }

    #[test]
    fn a_set_reads_back_as_itself(ids in prop::collection::btree_set(0_u16..1024, 1..40)) {
        let set: LcoreSet = ids.iter().copied().collect();
        prop_assert_eq!(set.to_string().parse::<LcoreSet>().unwrap(), set.clone());
        let mut digits = vec![0_u8; 256];
        for id in &ids {
            digits[255 - usize::from(id / 4)] |= 1 << (id % 4);
        }
        let mask: String = digits.iter().map(|digit| format!("{digit:x}")).collect();
        prop_assert_eq!(LcoreSet::from_mask(&mask).unwrap(), set);
    }

    #[test]
    fn a_device_reads_back_as_itself(
        name in "[a-z_]{1,8}[0-9]{0,2}",
        args in prop::collection::vec(("[a-z_]{1,8}", "[a-z0-9./]{0,8}"), 0..5)
    ) {
        let device = DeviceArg { driver: name.trim_end_matches(|mark: char| mark.is_ascii_digit()).into(), name, args };
        prop_assert_eq!(device.to_string().parse::<DeviceArg>().unwrap(), device);
    }
}
