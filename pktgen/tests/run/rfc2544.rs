//! The tests of RFC 2544 by real ports.

use pollux_tests::program::Running;
use serde_json::Value;

use super::{command, count, refused, report};

/// Trials that are over at once, to a coarse result.
const QUICK: [&str; 8] = ["--duration", "0.05", "--wait", "0.02", "--settle", "0", "--resolution", "20"];

fn search(device: &str, args: &[&str]) -> Value {
    let report = report(&[&["--vdev", device, "--", "--rfc2544"], args, &QUICK].concat());
    assert_eq!(report["rfc2544"]["complete"], true, "{report}");
    report
}

#[test]
fn a_ring_is_measured_and_reported_in_three_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ring").display().to_string();
    let args = ["all", "--rate", "20kpps", "--size", "1518,64", "--report", &path];
    let report = search("net_ring0", &args);
    let sizes = report["rfc2544"]["sizes"].as_array().expect("a list");
    assert_eq!(sizes.iter().map(|size| count(&size["bytes"])).collect::<Vec<_>>(), [64, 1518]);
    for size in sizes {
        assert_eq!(size["highest_pps"], 20_000.0);
        // On a busy machine the sender may be late at the highest.
        assert!(size["throughput_pps"].as_f64().is_some_and(|pps| pps > 0.0), "{size}");
        assert!(count(&size["back_to_back_frames"]) > 0, "{size}");
        assert_eq!(size["latency"].as_array().map(Vec::len), Some(10));
        for point in
            [&size["latency"], &size["loss"]].into_iter().flat_map(|all| all.as_array().expect("a list"))
        {
            assert_eq!(count(&point["lost"]), 0, "{size}");
            assert!(count(&point["p50_ns"]) <= count(&point["max_ns"]), "{point}");
        }
    }
    let read = |kind: &str| std::fs::read_to_string(format!("{path}{kind}")).expect("a file");
    assert_eq!(serde_json::from_str::<Value>(&read(".json")).expect("JSON")["rfc2544"], report["rfc2544"]);
    assert!(read(".md").contains("## Throughput") && read(".svg").ends_with("</svg>\n"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 3, "nothing else is left");
}

/// A port that never returns anything, and one that loses a fifth.
#[test]
fn a_device_that_loses_frames_does_not_hold() {
    let throughput = |device: &str, args: &[&str]| {
        let usual = ["throughput", "--rate", "20kpps", "--size", "64"];
        let report = search(device, &[&usual, args].concat());
        report["rfc2544"]["sizes"][0]["throughput_pps"].as_f64().expect("measured")
    };
    assert_eq!(throughput("net_null0", &[]), 0.0);
    let lossy = "net_ring0,fault=[drop:0.2,seed:7]";
    assert_eq!(throughput(lossy, &[]), 0.0);
    assert!(throughput(lossy, &["--tolerance", "45"]) > 0.0);
}

#[test]
fn ctrl_c_ends_a_search_with_what_is_known() {
    let args = ["--vdev", "net_ring0", "--", "--rfc2544", "--rate", "20kpps", "--settle", "0", "--wait", "0"];
    let mut running = Running::start(command(&[&args[..], &["--duration", "0.2", "--json"]].concat()));
    running.wait_for("throughput, 64 bytes");
    let end = running.interrupt();
    assert!(end.status.success(), "{}", end.stderr.join("\n"));
    let report = end.report();
    assert_eq!(report["rfc2544"]["complete"], false, "{report}");
    assert_eq!(report["rfc2544"]["sizes"].as_array().map(Vec::len), Some(1), "{report}");
}

#[test]
fn each_mistake_gives_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let absent = folder.path().join("absent/report").display().to_string();
    let table: &[(&[&str], &str)] = &[
        (
            &["--rfc2544", "speed"],
            "option '--rfc2544': 'speed' has 'speed', which is not throughput, latency",
        ),
        (
            &["--rfc2544", "all", "--rate", "max"],
            "--rate max: the highest rate to be tried is to be a number",
        ),
        (&["--rfc2544", "all", "--count", "5"], "--count"),
        (&["--resolution", "1"], "--rfc2544"),
        (
            &["--rfc2544", "all", "--resolution", "0"],
            "option '--resolution': '0' is not a number from 0.001 to 50",
        ),
        (
            &["--rfc2544", "all", "--tolerance", "51"],
            "option '--tolerance': '51' is not a number from 0 to 50",
        ),
        (
            &["--rfc2544", "all", "--rate", "1kpps", "--report", &absent],
            "report.md: No such file or directory",
        ),
    ];
    for (args, why) in table {
        let (code, line) = refused(&[&["--vdev", "net_null0", "--"], *args].concat());
        assert!(line.contains(why), "{args:?}: {line}");
        assert_eq!(code, Some(2), "{args:?}: {line}");
    }
}
