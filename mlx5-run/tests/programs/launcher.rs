//! `mlx5-run` itself: what it refuses, and how it ends.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::bed::{Bed, Ended, start, wait};

#[test]
fn what_it_cannot_run_is_one_line() {
    let bed = Bed::new();
    for (options, program, status, line) in [
        (&[][..], &["there-is-none"][..], 127, "mlx5-run: there is no program there-is-none in PATH"),
        (&[], &["./there-is-none"], 127, "mlx5-run: there is no program ./there-is-none"),
        (
            &["--ports", "2", "--wire", "null"],
            &["true"],
            1,
            "mlx5-run: 1 of --wire for 2 ports: give one for each, or none",
        ),
        (
            &["--ports", "2", "--wire", "unix:a:b", "--wire", "unix:a:c"],
            &["true"],
            1,
            "mlx5-run: --wire 'unix:a:c' of port 1: ports before it have the socket a: name another one",
        ),
        (
            &["--ports", "3", "--wire", "cable:a", "--wire", "cable:a", "--wire", "cable:a"],
            &["true"],
            1,
            "mlx5-run: --wire 'cable:a' of port 2: ports before it have both ends of it: name another one",
        ),
        (
            &["--link", "a/b"],
            &["true"],
            1,
            "mlx5-run: --link 'a/b': must be 1 to 40 letters, digits, '-', '_' or '.'",
        ),
        (
            &["--dual-port", "--link", "a"],
            &["true"],
            1,
            "mlx5-run: 1 of --link for 2 ports: give one for each, or none",
        ),
        (
            &["--link", "a", "--link", "b"],
            &["true"],
            1,
            "mlx5-run: 2 of --link for 1 ports: give one for each, or none",
        ),
    ] {
        let Ended { status: ended, said } = bed.run(options, program);
        assert_eq!((ended, said.trim_end()), (Some(status), line), "{options:?} {program:?}");
    }
    for (options, part) in [
        (["--device", "cx9"], "is not one of cx4lx, cx5, cx6dx, cx7"),
        (["--loss", "2"], "must be between 0 and 1"),
        (["--delay", "5"], "must be a time up to 1s, such as 200us or 5ms"),
        (["--delay", "2s"], "must be a time up to 1s, such as 200us or 5ms"),
        (["--fault-plan", "bad"], "a plan has these parts: seed, "),
        (["--ports", "0"], "0 is not in 1..=8"),
        (["--wire", "string"], "there is no such wire"),
        (["--with", "hairpin,lasers"], "with=lasers: is not one of on-demand-paging, "),
    ] {
        let Ended { status, said } = bed.run(&options, &["true"]);
        assert_eq!(status, Some(2), "{options:?}: {said}");
        assert!(said.contains(part), "{options:?}: {said}");
    }
    // A program that loads no libraries; glibc's own is one.
    if std::path::Path::new("/sbin/ldconfig").exists() {
        let said = bed.run(&[], &["/sbin/ldconfig", "--version"]).said;
        assert_eq!(said, "mlx5-run: /sbin/ldconfig is linked statically: no library can be loaded into it\n");
    }
    assert_eq!(bed.left(), [""; 0]);
}

#[test]
fn its_status_is_its_programs() {
    let bed = Bed::new();
    assert_eq!(bed.run(&[], &["sh", "-c", "exit 7"]).status, Some(7));
    assert_eq!(bed.run(&[], &["sh", "-c", "kill -9 $$"]).status, Some(137));
    assert_eq!(bed.left(), [""; 0]);
}

#[test]
fn a_signal_ends_its_program_and_nothing_is_left() {
    let bed = Bed::new();
    let child = start(&mut bed.command(&[], &["sh", "-c", "echo $$; exec sleep 50"]));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(bed.left().len(), 1, "the folder of its devices");
    let begin = Instant::now();
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    let ended = wait(child);
    assert!(begin.elapsed() < Duration::from_secs(10), "at once");
    assert_eq!(ended.status, Some(128 + 15), "{}", ended.said);
    assert!(!std::path::Path::new(&format!("/proc/{}", ended.said.trim())).exists(), "its program has ended");
    assert_eq!(bed.left(), [""; 0]);
}

#[test]
fn what_a_killed_launcher_leaves_goes_with_the_next_run() {
    let bed = Bed::new();
    let links = || {
        let entries = std::fs::read_dir(bed.path().join("mlx5-run")).expect("links");
        let names = entries.map(|entry| entry.expect("a name").file_name().to_string_lossy().into_owned());
        names.filter(|name| !name.ends_with(".lock")).collect::<Vec<_>>()
    };
    let opens = "exec 3<>/dev/infiniband/uverbs0; echo $$; exec sleep 50";
    let mut launcher = start(&mut bed.command(&["--link", "left"], &["sh", "-c", opens]));
    let mut said = String::new();
    let out = launcher.stdout.as_mut().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut said).expect("its number");
    launcher.kill().expect("it runs");
    launcher.wait().expect("it has ended");
    assert_eq!((bed.left().len(), links()), (1, vec!["left.a".to_owned()]));
    // Its program runs on, and what it stands on stays.
    assert_eq!(bed.run(&["--link", "another"], &["true"]).status, Some(0));
    assert_eq!((bed.left().len(), links()), (1, vec!["left.a".to_owned()]));
    assert_eq!(bed.run(&["--link", "left"], &["true"]).status, Some(0), "at the other end");
    let killed = Command::new("kill").args(["-9", said.trim()]).status().expect("kill runs");
    assert!(killed.success());
    let gone = Instant::now() + Duration::from_secs(10);
    while Path::new(&format!("/proc/{}", said.trim())).exists() && Instant::now() < gone {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(bed.run(&["--link", "another"], &["true"]).status, Some(0));
    assert_eq!((bed.left(), links()), (vec![], vec![]));
}

#[test]
fn a_wire_outlasts_what_a_program_does_with_small_numbers() {
    let bed = Bed::new();
    let [own, peer] = ["own", "peer"].map(|end| bed.path().join(end).to_string_lossy().into_owned());
    let wire = format!("unix:{own}:{peer}");
    let opens = "exec 3<>/dev/infiniband/uverbs0 4</dev/null 5</dev/null 6</dev/null 7</dev/null 8</dev/null";
    let first = start(&mut bed.command(&["--wire", &wire], &["sh", "-c", &format!("{opens}; sleep 3")]));
    std::thread::sleep(Duration::from_millis(1000));
    let second = bed.run(&["--wire", &wire], &["sh", "-c", opens]);
    assert!(second.said.contains("another process has this socket open"), "{}", second.said);
    assert_ne!(second.status, Some(0), "{}", second.said);
    assert_eq!(wait(first).status, Some(0));
}

#[test]
fn a_link_has_two_ends() {
    let bed = Bed::new();
    let mut held = [0, 1].map(|_| Some(start(&mut bed.command(&["--link", "two"], &["sleep", "3"]))));
    std::thread::sleep(Duration::from_millis(500));
    let third = bed.run(&["--link", "two"], &["true"]);
    assert_eq!(third.status, Some(1));
    assert!(third.said.starts_with("mlx5-run: both ends of the link 'two' are taken"), "{}", third.said);
    for child in held.iter_mut().filter_map(Option::take) {
        assert_eq!(wait(child).status, Some(0));
    }
    assert_eq!(bed.run(&["--link", "two"], &["true"]).status, Some(0), "they are free again");
    // A program that opens its device and dies leaves no socket.
    let child = ["sh", "-c", "exec 3<>/dev/infiniband/uverbs0; kill -9 $$"];
    assert_eq!(bed.run(&["--link", "two"], &child).status, Some(137));
    let left = std::fs::read_dir(bed.path().join("mlx5-run")).expect("links");
    let mut left: Vec<_> = left.map(|entry| entry.expect("a name").file_name()).collect();
    left.sort();
    assert_eq!(left, ["two.a.lock", "two.b.lock"]);
}
