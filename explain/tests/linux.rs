//! What Linux' own mlx5_ib was asked and answered (`mlx5-kernel/tests/golden`), explained: every method, attribute and command of it has a
//! name, and so has every structure that it carries.

use pollux_explain::Explainer;
use pollux_explain::line::{Line, parse};

const RECORDS: [(&str, &str); 4] = [
    ("linux-6.12", include_str!("../../mlx5-kernel/tests/golden/linux-6.12.txt")),
    ("l2fwd-verbs", include_str!("../../mlx5-kernel/tests/golden/l2fwd-verbs.txt")),
    ("l2fwd-devx", include_str!("../../mlx5-kernel/tests/golden/l2fwd-devx.txt")),
    ("rdma", include_str!("../../mlx5-kernel/tests/golden/rdma.txt")),
];

/// What the titles of a record's calls are, in order, each once.
fn titles(record: &str) -> Vec<String> {
    let mut explainer = Explainer::new(true);
    let mut titles = Vec::new();
    for line in record.lines() {
        let said = explainer.line(line);
        let title = said.lines().next().unwrap_or_default()[5..].split([',', ':']).next().unwrap_or_default();
        let title = title.to_owned();
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    assert!(explainer.is_clean(), "{}", explainer.summary());
    titles
}

#[test]
fn everything_that_linux_was_asked_has_a_name() {
    for (name, record) in RECORDS {
        let mut explainer = Explainer::new(true);
        for line in record.lines() {
            for said in explainer.line(line).lines().skip(1) {
                let first = said.trim_start().trim_start_matches("=> ");
                assert!(!first.starts_with("0x"), "{name}: an attribute without a name: {said}: {line}");
            }
        }
        for title in titles(record) {
            assert!(!title.contains("0x") || title.starts_with("mmap"), "{name}: {title}");
        }
    }
}

#[test]
fn the_ways_of_linux_are_told_apart() {
    let verbs = titles(RECORDS[1].1);
    let begins = ["DEVICE/INVOKE_WRITE", "DEVICE/GET_CONTEXT", "ASYNC_EVENT/ALLOC", "EX_QUERY_DEVICE"];
    assert!(verbs.iter().map(String::as_str).take(4).eq(begins), "{verbs:?}");
    for title in
        ["ALLOC_PD", "UAR/ALLOC", "CQ/CREATE", "QP/CREATE", "WQ/CREATE", "MR/REG_MR", "EX_CREATE_FLOW"]
    {
        assert!(verbs.iter().any(|known| known == title), "{title}: {verbs:?}");
    }
    // With objects of the firmware the same program makes no queue pair.
    let devx = titles(RECORDS[2].1);
    assert!(
        devx.iter().any(|known| known == "DEVX_OBJ/CREATE") && !devx.iter().any(|known| known == "QP/CREATE"),
        "{devx:?}"
    );
    // The first is a hash queue pair, the second one sends.
    let mut made = RECORDS[1]
        .1
        .lines()
        .filter(|line| matches!(parse(line), Some(Line::Call { object: 4, method: 0, .. })));
    let create = made.find(|line| line.contains(" 0x0004=handle:"));
    let said = Explainer::new(true).line(create.expect("a queue pair is made"));
    for attribute in ["PD_HANDLE", "SEND_CQ_HANDLE", "CAP ib_uverbs_qp_cap:", "TYPE", "=> RESP_QP_NUM"] {
        assert!(said.contains(attribute), "{attribute}: {said}");
    }
}

#[test]
fn garbage_is_told_and_borne() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_explain"))
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut input = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || {
        // A line without end, bytes that are no text, and a line of a trace behind them.
        let _ = input.write_all(&vec![b'x'; 3 << 20]);
        let _ = input.write_all(b"\n\xff\xfe\x00\nmap 0x500000 4096 Read -> ok\n");
    });
    let end = child.wait_with_output().expect("it ends");
    writer.join().expect("it wrote");
    let said = String::from_utf8(end.stdout).expect("UTF-8");
    assert_eq!(end.status.code(), Some(1), "{}", String::from_utf8_lossy(&end.stderr));
    assert!(
        said.contains("is no line of a trace: xxx") && said.contains("page of the adapter's clock"),
        "{said}"
    );
    assert!(said.len() < 4096, "a long line is not repeated");
    let missing =
        Command::new(env!("CARGO_BIN_EXE_explain")).arg("/there/is/none").output().expect("it runs");
    assert_eq!(missing.status.code(), Some(1));
    let line = String::from_utf8(missing.stderr).expect("UTF-8");
    assert_eq!(line.lines().count(), 1, "{line}");
}
