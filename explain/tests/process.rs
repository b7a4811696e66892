//! `explain --pid` of processes that are none of ours.

use std::process::{Command, Output};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
};

fn explain(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_explain")).args(arguments).output().expect("it runs")
}

#[test]
fn a_process_without_devices_is_told_as_such() {
    let mut sleep = Command::new("sleep").arg("60").spawn().expect("sleep runs");
    let pid = sleep.id().to_string();
    // Until it is sleep.
    let told = loop {
        let told = explain(&["--pid", &pid]);
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        if text.contains(": sleep 60\n") || !told.status.success() {
            break (told.status.success(), text);
        }
    };
    let (succeeded, text) = told;
    let wanted = format!("process {pid}: sleep 60\nfiles of RDMA devices: none\npages of devices: none\n");
    assert!(succeeded && text.starts_with(&wanted) && text.contains("telemetry: none"), "{text}");
    sleep.kill().expect("it ran");
    sleep.wait().expect("its end");
    let gone = explain(&["--pid", &pid]);
    let why = String::from_utf8_lossy(&gone.stderr);
    assert!(
        !gone.status.success() && why.contains(&format!("process {pid}: there is no such process")),
        "{why}"
    );
    for mistake in [&["--pid", "1", "file"][..], &["--fast-path", "file"], &["--pid", "x"], &[]] {
        assert_eq!(explain(mistake).status.code(), Some(2), "{mistake:?}");
    }
}

/// This process has a socket of telemetry that hangs up at once, as one with too many clients does.
#[test]
fn what_proc_tells_is_told_though_telemetry_is_silent() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dpdk_telemetry.v2");
    // What the other test starts has none of it.
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
    bind(&listener, &SocketAddrUnix::new(&path).expect("a path")).expect("bound");
    listen(&listener, 8).expect("it listens");
    std::thread::spawn(move || while accept(&listener).is_ok() {});
    let pid = std::process::id().to_string();
    let told = explain(&["--pid", &pid]);
    let text = String::from_utf8_lossy(&told.stdout);
    let wanted = "\ntelemetry does not answer: it hung up: it has ended, or has 10 clients already";
    assert!(told.status.success() && text.contains(wanted), "{text}");
    let followed = explain(&["--pid", &pid, "--follow"]);
    let why = String::from_utf8_lossy(&followed.stderr);
    let wanted = format!("explain: process {pid}: telemetry does not answer: it hung up");
    assert_eq!(followed.status.code(), Some(1), "{why}");
    assert!(why.starts_with(&wanted) && why.lines().count() == 1, "{why}");
}
