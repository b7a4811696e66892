//! Reports of cards: of device models here, so that anybody can run it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use pollux_bringup::Mlx5Card;
use pollux_doctor::{CardReport, Survey};
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::{Cable, Wire};

use crate::program::End;

fn run(arguments: &[&str]) -> End {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doctor"));
    let output = command.args(arguments).stdin(Stdio::null()).output().expect("it runs");
    End {
        status: output.status.code().expect("no signal ended it"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_model_answers_as_itself_and_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("card.txt");
    for device in ["cx4lx", "cx5", "cx6dx", "cx7"] {
        let end = run(&["--card", &format!("mlx5_model0,device={device}"), "--report", shown(&file)]);
        assert_eq!(end.status, 0, "{device}: {}", end.stderr);
        let text = std::fs::read_to_string(&file).expect("a report");
        for fact in [
            "fact send request: success (send), receive: success (recv) bytes=256; data right\n",
            "fact write request: success (rdma-write); data right\n",
            "fact read request: success (rdma-read); data right\n",
            "fact fetch_add request: success (atomic-fetch-and-add); data right\n",
            "fact doorbell_blueflame 32 of 32 sends came\n",
            "fact doorbell_head 32 of 32 sends came\n",
            "fact wrong_key request: remote access error (rdma-write)\n",
            "fact wrong_key_state ERR\n",
            "fact no_receive_recovered request: success (send), receive: success (recv) bytes=256; data right\n",
            "fact frames 5 of 5 came back as they were\n",
        ] {
            assert!(text.contains(fact), "{device}: {fact}: {text}");
        }
        let whole = "fact frames_1514 16 of 16 taken, 16 came back, 16 as they were\n";
        let modes = text.lines().filter(|line| line.starts_with("step port_")).count();
        assert_eq!(text.matches(whole).count(), modes, "{device}: {text}");
        assert_eq!(text.matches("fact ended").count(), 0, "{device}: {text}");
        let end = run(&["--differences", shown(&file)]);
        assert!(
            end.status == 0 && end.stdout.starts_with("no difference from mlx5_model0"),
            "{device}: {}{}",
            end.stdout,
            end.stderr
        );
    }
}

#[test]
fn what_a_card_lacks_is_a_difference() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("card.txt");
    let card = "mlx5_model0,device=cx6dx,has_empw=0,has_mprq=0";
    assert_eq!(run(&["--card", card, "--report", shown(&file)]).status, 0);
    let end = run(&["--differences", shown(&file)]);
    assert_eq!(end.status, 1, "{}", end.stderr);
    for line in [
        "capabilities: ethernet.enhanced_multi_pkt_send_wqe: card 0x0; model 0x1\n",
        "port_striding: receives: card ",
        "port_usual: sends: card plain",
    ] {
        assert!(end.stdout.contains(line), "{line}: {}", end.stdout);
    }
}

#[test]
fn a_report_has_no_address_and_no_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("card.txt");
    let card = "mlx5_model0,mac=0c:42:a1:de:ad:01,ip=10.77.66.55/24,ip=fd12:3456:789a::77/64";
    assert_eq!(run(&["--card", card, "--report", shown(&file)]).status, 0);
    let text = std::fs::read_to_string(&file).expect("a report").to_ascii_lowercase();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // MAC, GUID (as a GUID, and without the world's bit), GIDs: as bytes and as text.
    for secret in [
        "0c42a1dead01",
        "01deada1420c",
        "0c:42:a1:de:ad:01",
        "0e42a1fffedead01",
        "0c42a1fffedead01",
        "0a4d4237",
        "10.77.66.55",
        "fd123456789a",
        "fd12:3456:789a",
    ] {
        assert!(!text.contains(secret), "{secret}");
    }
    if host.trim().len() > 3 && host.trim() != "localhost" {
        assert!(!text.contains(&host.trim().to_ascii_lowercase()), "{host}");
    }
    assert_eq!(addresses(&text), Vec::<String>::new());
    // Nor payload: the pattern of the first message.
    assert!(!text.contains("01060f141d222b30"), "{text}");
}

/// What a report says was asked that is an address of a program: the lowest byte first, 0x55... and 0x7f..., or, where the stack has
/// no limit, 0x2a..., 0x14... and their like; or was one that became a name.
fn addresses(report: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in report.lines().filter(|line| line.starts_with("call ") || line.starts_with("write ")) {
        let asked = line.split(" -> ").next().expect("one");
        if asked.contains("<address") {
            found.push(line.to_owned());
        }
        for word in asked.split(' ') {
            let digits = word.rsplit([':', '=']).next().unwrap_or_default().as_bytes();
            for chunk in digits.chunks_exact(16).filter(|chunk| chunk.iter().all(u8::is_ascii_hexdigit)) {
                let tails: [&[u8]; 7] =
                    [b"7f0000", b"550000", b"560000", b"2a0000", b"2b0000", b"140000", b"150000"];
                if tails.iter().any(|tail| chunk.ends_with(tail)) {
                    found.push(line.to_owned());
                }
            }
        }
    }
    found
}

#[test]
fn a_report_has_no_address_where_the_stack_has_no_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("card.txt");
    // Maps then begin elsewhere. `-L` asks for that too, where the limit may not be raised.
    let script =
        "if ulimit -s unlimited 2>/dev/null; then exec \"$0\" \"$@\"; else exec setarch -L \"$0\" \"$@\"; fi";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_doctor")]);
    command.args(["--card", "mlx5_model0,device=cx5", "--report", shown(&file)]);
    let done = command.stdin(Stdio::null()).output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = std::fs::read_to_string(&file).expect("a report");
    assert_eq!(addresses(&text), Vec::<String>::new());
    let end = run(&["--differences", shown(&file)]);
    assert_eq!(end.status, 0, "where its maps are makes no other card of it: {}", end.stdout);
}

#[test]
fn a_report_takes_the_place_of_another_one_when_it_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, link) = (folder.path().join("card.txt"), folder.path().join("link"));
    std::fs::write(&file, "the last one\n").expect("a file");
    std::os::unix::fs::symlink("card.txt", &link).expect("a link");
    let files = || std::fs::read_dir(folder.path()).expect("a folder").count();
    let mut command = Command::new(env!("CARGO_BIN_EXE_doctor"));
    command
        .args(["--card", "mlx5_model0", "--report", shown(&link)])
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).spawn().expect("it runs");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert_eq!(said.next().as_deref(), Some("doctor: device"));
    // What stops it now leaves all as it was.
    child.kill().and_then(|()| child.wait()).expect("it ends");
    assert_eq!((std::fs::read_to_string(&file).expect("a file").as_str(), files()), ("the last one\n", 2));
    assert_eq!(run(&["--card", "mlx5_model0", "--report", shown(&link)]).status, 0);
    let text = std::fs::read_to_string(&file).expect("a report");
    assert!(text.starts_with("pollux card report "), "{text}");
    assert!(link.is_symlink() && files() == 2);
    // What cannot be replaced is written to.
    let end = run(&["--card", "mlx5_model0", "--report", "/dev/stderr"]);
    assert!(end.status == 0 && end.stderr.contains("\npollux card report "), "{}", end.stderr);
}

/// What the checks do to a card that others use: nothing stays, and no frame but their own leaves.
#[test]
fn checks_leave_a_card_as_it_was() {
    let (near, mut far) = Cable::pair();
    let model = Arc::new(Model::builder("mlx5_model0").plugged(near).build().expect("a model"));
    let before = (model.kernel().objects().1, model.device().mac(), model.device().mtu());
    let survey = Survey::new(Mlx5Card::of_model(&model)).expect("a card");
    let report = survey.run(|_| {});
    assert_eq!(survey.told_by(&report), None);
    assert!(report.text().contains("fact frames 5 of 5 came back as they were"), "{}", report.text());
    assert_eq!((model.kernel().objects().1, model.device().mac(), model.device().mtu()), before);
    assert_eq!(model.kernel().abandoned(), 0);
    assert_eq!(model.device().violations().1, 0, "{:?}", model.device().violations().0);
    // Nothing left: its own frames came back, as RoCE to the card itself does. What the kernel's network announces is to groups.
    let mut room = vec![0; 16384];
    while let Some(bytes) = far.receive(&mut room) {
        assert_eq!(room[0] & 1, 1, "{:02x?}", &room[..bytes.min(64)]);
    }
}

#[test]
fn a_dry_run_prints_the_calls_and_writes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("card.txt");
    let end = run(&["--card", "mlx5_model0,device=cx5", "--report", shown(&file), "--dry-run"]);
    assert_eq!(end.status, 0, "{}", end.stderr);
    assert!(!file.exists());
    for part in [
        "dry run: the card is asked",
        "(mlx5_model0,wire=null,device=cx5)",
        "step device\n",
        "step port_usual\n",
        "  QP/CREATE: call 0x0004/0x0000",
    ] {
        assert!(end.stdout.contains(part), "{part}: {}", end.stdout);
    }
    assert!(!end.stdout.contains(" -> "), "answers are none of it: {}", end.stdout);
}

#[test]
fn mistakes_are_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let file = path("card.txt");
    std::fs::write(path("image.gif"), b"GIF89a\xff\xfe").expect("a file");
    std::fs::write(path("text.txt"), "hello\n").expect("a file");
    std::fs::write(path("newer.txt"), "pollux card report 9\nend 1 00000000\n").expect("a file");
    std::fs::write(path("short.txt"), "pollux card report 2\nstep device\ncall 0x0").expect("a file");
    let no_folder = folder.path().join("no/card.txt");
    let (image, text) = (path("image.gif"), path("text.txt"));
    let (newer, short, none) = (path("newer.txt"), path("short.txt"), path("none.txt"));
    let cases: [(&[&str], &str); 10] = [
        (&["--card", "mlx5_9", "--report", shown(&file)], "mlx5_9"),
        (&["--card", "mlx5_model0,device=cx3", "--report", shown(&file)], "is not one of cx4lx"),
        (&["--card", "mlx5_model0,mprq_en=1", "--report", shown(&file)], "mprq_en"),
        (&["--card", "mlx5_model0", "--report", shown(&no_folder)], "cannot be written"),
        (&["--card", ",", "--report", shown(&file)], "has no name"),
        (&["--differences", shown(&image)], "no text"),
        (&["--differences", shown(&text)], "no report of a card"),
        (&["--differences", shown(&newer)], "is of version 9"),
        (&["--differences", shown(&short)], "is cut short"),
        (&["--differences", shown(&none)], "cannot be read"),
    ];
    for (arguments, part) in cases {
        let end = run(arguments);
        assert_eq!((end.status, end.stdout.as_str()), (2, ""), "{arguments:?}: {}", end.stderr);
        assert_eq!(end.stderr.lines().count(), 1, "{arguments:?}: {}", end.stderr);
        assert!(end.stderr.contains(part), "{arguments:?}: {}", end.stderr);
        assert!(!file.exists(), "{arguments:?}");
    }
    for refused in [&["--report", "x"][..], &["--dry-run"], &["--card", "a", "--report", "x", "--json"]] {
        let end = run(refused);
        assert_eq!((end.status, end.stdout.as_str()), (2, ""), "{refused:?}: {}", end.stderr);
    }
}

/// Reports of cards that owners sent, each beside what the model was known to do otherwise: `cargo xtask card FILE` adds one.
#[test]
fn the_model_differs_from_cards_as_known() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cards");
    let reports: Vec<_> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .map(|file| file.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    if reports.is_empty() {
        eprintln!("skipped: nobody has sent the report of a card yet; docs/doctor.md says how");
    }
    for path in reports {
        let known =
            std::fs::read_to_string(path.with_extension("differences")).expect("the known differences");
        let found = CardReport::read(&path).expect("a report").differences().expect("a model");
        let found: String = found.iter().map(|line| format!("{line}\n")).collect();
        assert_eq!(found, known, "{}: cargo xtask card {} writes them anew", path.display(), path.display());
    }
}
