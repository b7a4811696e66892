//! What is told of the devices at the end.

use pollux_tests::require::{Need, require};

use super::bed::Bed;
use super::client::is_client_with;
use pollux_uverbs::KernelFile;
use pollux_verbs::{Context, Options, Pd, Provider};

#[test]
fn a_summary_tells_what_the_devices_saw() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    let program = ["ibv_rc_pingpong", "-g", "1", "-n", "100"];
    let said = bed.must(&["--summary=json"], &program, "-p");
    let seen = |said: &String| -> serde_json::Value {
        let line = said.lines().find(|line| line.starts_with('{')).expect("a line of JSON");
        serde_json::from_str(line).expect("JSON")
    };
    let [client, server] = [&said[0], &said[1]].map(seen);
    let of =
        |end: &serde_json::Value, key: &str| end[key].as_u64().unwrap_or_else(|| panic!("{key} in {end}"));
    assert_eq!(client["device"], "mlx5_0");
    for end in [&client, &server] {
        assert!(of(end, "frames_sent") >= 100 && of(end, "bytes_sent") > 100 * 4096, "{end}");
        assert!(of(end, "objects_made") >= 4 && of(end, "objects_left") == 0, "{end}");
        assert!(
            of(end, "completions") >= 200 && of(end, "doorbells") + of(end, "blue_flame") >= 100,
            "{end}"
        );
        assert!(of(end, "pcie_bytes_from_device") > 100 * 4096 && of(end, "rules_broken") == 0, "{end}");
    }
    let said = bed.run(&["--summary", "--ports", "2"], &["ibv_devinfo"]).said;
    for device in ["mlx5_0", "mlx5_1"] {
        assert!(
            said.contains(&format!(
                "mlx5-run: {device}: sent 0 frames, 0 bytes; received 0 frames, 0 bytes\n"
            )),
            "{said}"
        );
    }
    assert!(!bed.run(&[], &["ibv_devinfo"]).said.contains("frames"), "nothing unless it is asked for");
}

#[test]
fn what_a_program_leaves_is_counted() {
    const TEST: &str = "summary::what_a_program_leaves_is_counted";
    if is_client_with(&["--summary=json"], TEST) {
        let file = KernelFile::open(std::path::Path::new(super::client::FILE), None).expect("a device");
        let context =
            Context::open(std::sync::Arc::new(file), Provider::Mlx5, Options::default()).expect("a context");
        std::mem::forget(Pd::new(&context).expect("a domain"));
        std::mem::forget(context);
        return;
    }
    let bed = Bed::new();
    let own = std::env::current_exe().expect("a path");
    let mut command = bed.command(&["--summary"], &[&own.to_string_lossy(), "--exact", TEST]);
    let ended = super::bed::wait(super::bed::start(command.env("POLLUX_CLIENT", "1")));
    let left = ended
        .said
        .lines()
        .find_map(|line| line.split_once(" objects made, ")?.1.split(' ').next()?.parse().ok());
    assert!(left.is_some_and(|left: u32| left > 0), "{}", ended.said);
}
