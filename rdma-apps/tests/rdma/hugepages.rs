//! `--use_hugepages`: message buffers of huge pages, or a line.

use std::path::Path;
use std::process::Command;

use pollux_eal::hugepage::HugePool;
use pollux_tests::program::Running;
use pollux_tests::require::Need;

use super::place::{LIMIT, Place, TESTS, report};

#[test]
fn buffers_are_of_huge_pages() {
    // Each end takes some for its queues and some for its buffers.
    let free = HugePool::all(Path::new("/"), None).iter().map(|pool| pool.free).max().unwrap_or(0);
    if free < 32 {
        let lack = format!("{free} huge pages are free, 32 are needed: `sysctl vm.nr_hugepages=64`");
        assert!(!Need::HugePages.is_required(), "POLLUX_REQUIRE names them, but {lack}");
        eprintln!("skipped: {lack}");
        return;
    }
    for (program, options) in [
        (TESTS[0].0, "--use_hugepages -n 100 -s 5000 -q 2"),
        (TESTS[2].0, "--use_hugepages -n 100 -s 4096 --data_validation"),
        (TESTS[0].0, "--use_hugepages -n 100 -s 100 -c XRC -b"),
    ] {
        let [server, client] = Place::new().pair(program, options, options);
        report(&server);
        report(&client);
    }
}

#[test]
fn too_few_huge_pages_are_one_line() {
    let program = TESTS[0].0;
    // More than a machine for tests has set aside: 128 GiB.
    let beyond = ["--", "--use_hugepages", "-s", "1024M", "-q", "64", "-n", "5"];
    let none = ["--no-huge", "--", "--use_hugepages"];
    for (words, value, mend) in [
        (&beyond[..], "137438961664 bytes: ", "nr_hugepages`, or"),
        (&none, "131200 bytes: --no-huge forbids them; ", "leave --no-huge out"),
    ] {
        let place = Place::new();
        let [own, other] = ["a", "b"].map(|name| place.folder.path().join(name).display().to_string());
        let mut command = Command::new(program);
        command.args(["--vdev", &format!("mlx5_model0,wire=unix:{own}:{other}")]).args(words);
        let end = Running::start(command).finish(LIMIT);
        assert_eq!(end.status.code(), Some(1), "{}", end.stderr.join("\n"));
        let said = end.stderr.last().expect("a line");
        let expected = format!("--use_hugepages: not enough huge pages for message buffers of {value}");
        assert!(said.contains(&expected) && said.contains(mend), "{words:?}: {said}");
        assert!(said.ends_with("or leave --use_hugepages out"), "{said}");
        assert_eq!(end.stdout, "");
    }
}
