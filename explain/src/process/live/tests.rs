use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pollux_eal::telemetry::json;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen, recv, send, socket,
};

use super::*;

const LINE: &str = "map 0x500000 4096 Read -> ok @7.0\n";

/// A program with one device, `a0`, whose trace 7 it says is at a path.
struct Program {
    folder: tempfile::TempDir,
    trace: PathBuf,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Program {
    fn new(trace: impl FnOnce(&Path) -> PathBuf) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = trace(folder.path());
        Self { folder, trace, asked: Arc::default() }
    }

    /// With the file of its trace.
    fn writing(text: &str) -> Self {
        Self::new(|folder| {
            let trace = own(folder);
            fs::write(&trace, text).expect("written");
            trace
        })
    }

    /// Answers one client until that goes, or has asked so often.
    fn answer(&self, times: usize) -> Told {
        let path = self.folder.path().join("dpdk_telemetry.v2");
        let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        bind(&listener, &SocketAddrUnix::new(&path).expect("a path")).expect("bound");
        listen(&listener, 1).expect("it listens");
        let (asked, trace) = (Arc::clone(&self.asked), self.trace.clone());
        std::thread::spawn(move || {
            let client = accept(&listener).expect("a client");
            let say = |value: Value| send(&client, value.to_string().as_bytes(), SendFlags::NOSIGNAL);
            let _ = say(json!({ "pid": std::process::id() }));
            let mut message = [0; 256];
            for _ in 0..times {
                let bytes = recv(&client, &mut message, RecvFlags::empty()).map_or(0, |(_, bytes)| bytes);
                let command = String::from_utf8_lossy(&message[..bytes]).into_owned();
                let answer = match command.as_str() {
                    "" => return,
                    "/uverbs/trace" => json!({ "a0": true }),
                    command if command.ends_with("on") => json!({ "path": trace, "number": 7 }),
                    _ => json!({ "path": null }),
                };
                asked.lock().unwrap_or_else(PoisonError::into_inner).push(command);
                let _ = say(json!({ "/uverbs/trace": answer }));
            }
        });
        Told::connect(&path, std::process::id()).expect("it answers")
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn own(folder: &Path) -> PathBuf {
    folder.join(format!("uverbs_trace.{}.7.a0", std::process::id()))
}

#[test]
fn no_file_but_a_trace_of_the_process_is_opened_or_removed() {
    let secret = tempfile::NamedTempFile::new().expect("a file");
    let beside = |name: &str| {
        let name = name.to_owned();
        Program::new(move |folder| {
            fs::write(folder.join(&name), LINE).expect("written");
            folder.join(name)
        })
    };
    let elsewhere = own(secret.path().parent().expect("a folder"));
    fs::write(&elsewhere, LINE).expect("written");
    for program in [
        Program::new(|_| secret.path().to_owned()),
        Program::new(|_| elsewhere.clone()),
        Program::new(|folder| folder.join("..").join(elsewhere.file_name().expect("a name"))),
        Program::new(|_| "/dev/zero".into()),
        beside("shadow"),
        beside("uverbs_trace.1.7.a0"),
        Program::new(|folder| {
            symlink(secret.path(), own(folder)).expect("a link");
            own(folder)
        }),
        Program::new(|folder| {
            rustix::fs::mkfifoat(rustix::fs::CWD, own(folder), rustix::fs::Mode::RUSR).expect("a pipe");
            own(folder)
        }),
        Program::new(|folder| {
            fs::create_dir(own(folder)).expect("a folder");
            own(folder)
        }),
    ] {
        let refused = Live::begin(program.answer(9), true, false).map(drop).expect_err("refused");
        let shown = refused.to_string();
        assert!(shown.starts_with(&*program.trace.to_string_lossy()), "{shown}");
        assert!(fs::symlink_metadata(&program.trace).is_ok(), "{shown}");
        assert_eq!(program.asked().last().map(String::as_str), Some("/uverbs/trace,a0,off,7"), "{shown}");
    }
    fs::remove_file(elsewhere).expect("there");
}

#[test]
fn a_path_is_shown_without_what_a_terminal_would_obey() {
    let program = Program::new(|folder| folder.join("\u{1b}[2J"));
    let refused = Live::begin(program.answer(9), true, false).map(drop).expect_err("refused").to_string();
    assert!(!refused.contains('\u{1b}'), "{refused:?}");
}

#[test]
fn what_was_written_by_the_end_is_explained_to_its_end() {
    let count = 3 * (1 << 20) / LINE.len();
    let program = Program::writing(&LINE.repeat(count));
    let mut live = Live::begin(program.answer(9), true, false).expect("it writes");
    live.end();
    while live.more().expect("a trace").is_some() {}
    assert!(live.summary().contains(&format!("in all: {count} maps")), "{}", live.summary());
    drop(live);
    assert!(!program.trace.exists());
    let off = program.asked().iter().filter(|asked| asked.contains("off")).count();
    assert_eq!(off, 1, "once");
}

#[test]
fn a_line_without_end_is_not_kept() {
    let program = Program::writing(&"x".repeat(5 << 20));
    let mut live = Live::begin(program.answer(9), true, false).expect("it writes");
    let mut held = 0;
    while live.more().expect("a trace").is_some() {
        held += 1;
    }
    assert_eq!(held, 5);
    fs::write(&program.trace, format!("{}\n{LINE}", "x".repeat(5 << 20))).expect("written");
    let said = live.more().expect("a trace").expect("a line");
    assert!(said.contains("1 is no line of a trace"), "{said}");
    assert!(said.contains("2 mmap"), "{said}");
}

#[test]
fn whoever_is_replaced_hears_of_it_and_leaves_the_other_alone() {
    let program = Program::writing(LINE);
    let mut live = Live::begin(program.answer(9), true, false).expect("it writes");
    assert!(live.more().expect("a trace").expect("a line").contains("mmap") && !live.is_over());
    fs::remove_file(&program.trace).expect("there");
    let said = live.more().expect("a trace").expect("a line");
    assert!(said.contains("device a0: another one watches it now"), "{said}");
    assert!(live.is_over());
    drop(live);
    assert!(!program.asked().iter().any(|asked| asked.contains("off")), "{:?}", program.asked());
}

#[test]
fn it_is_over_with_the_program() {
    let program = Program::writing(LINE);
    // Gone behind these two answers, as a zombie's socket is.
    let mut live = Live::begin(program.answer(2), true, false).expect("it writes");
    while !live.is_over() {
        std::thread::yield_now();
    }
    live.end();
    assert!(live.more().expect("a trace").is_some());
    assert!(live.summary().contains("in all: 1 maps") && !program.trace.exists());
}
