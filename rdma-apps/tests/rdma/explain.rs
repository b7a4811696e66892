//! What `explain` makes of rc_pingpong's calls and of what it does without: making a queue pair, posting, its doorbell, its completion.
//! `BLESS=1 cargo test -p pollux-rdma-apps --test rdma explain::` writes the golden; look at the difference before it is committed.

use std::path::Path;

use pollux_explain::Explainer;
use pollux_tests::program::{Running, with_default_signals};

use crate::place::{LIMIT, Place};

const PROGRAM: &str = env!("CARGO_BIN_EXE_rc_pingpong");

/// The first line that has `part`, with those below it that are indented, without numbers of lines.
fn block<'a>(said: &[&'a str], part: &str) -> Vec<&'a str> {
    let at = said.iter().position(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part}"));
    let below = said[at + 1..].iter().take_while(|line| line.starts_with("     "));
    std::iter::once(said[at].trim_start().split_once(' ').expect("a number").1)
        .chain(below.copied())
        .collect()
}

#[test]
fn a_queue_pair_is_made_and_posted_to_as_explained_before() {
    let place = Place::new();
    let server = place.server(PROGRAM, "-g 1 -n 4");
    let mut command = place.command(PROGRAM, ["b", "a"], ",device=cx6dx,kernel=6.12");
    command.args(["-g", "1", "-n", "4", "127.0.0.1"]);
    let calls = place.folder.path().join("calls");
    let mut command = with_default_signals(&command);
    command.env("POLLUX_UVERBS_TRACE", &calls).env("POLLUX_UVERBS_TRACE_FAST_PATH", "1");
    let client = Running::start(command).finish(LIMIT);
    assert!(client.status.success(), "{}", client.stderr.join("\n"));
    assert!(server.finish(LIMIT).status.success());
    let trace = std::fs::read_to_string(calls.with_extension("mlx5_model0")).expect("a trace");
    let mut explainer = Explainer::new(true);
    let said: String = trace.lines().map(|line| explainer.line(line)).collect();
    assert!(explainer.is_clean(), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let mut shown = Vec::new();
    for part in ["QP/CREATE", "RESET -> INIT", "INIT -> RTR", "RTR -> RTS"] {
        if part == "QP/CREATE" {
            shown.extend(block(&lines, part));
        } else {
            shown.push(
                lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part}: {said}")),
            );
        }
    }
    shown.extend(block(&lines, "post_send, fast path"));
    shown.push(block(&lines, "the head of entry")[0]);
    shown.push(block(&lines, "REQ of queue")[0]);
    let shown: String = shown.iter().map(|line| format!("{}\n", line.trim_end())).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/explain-rc_pingpong.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &shown).expect("a golden");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    assert_eq!(golden, shown, "{said}");
}
