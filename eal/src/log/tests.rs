use super::*;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Somewhere to log to.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn take(&self) -> String {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8(bytes).expect("text")
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn spec(filters: &[&str]) -> LogSpec {
    let filters = filters.iter().map(|filter| filter.parse().expect("a filter")).collect();
    LogSpec { filters, color: pollux_config::LogColor::Never, ..LogSpec::default() }
}

fn page(spec: &LogSpec) -> (Logs, Page) {
    let page = Page::default();
    let writer = page.clone();
    (Logs::to(spec, move || writer.clone()).expect("a log"), page)
}

fn say_all() {
    tracing::error!(target: "lib.eal", "one");
    tracing::warn!(target: "lib.eal", "two");
    tracing::info!(target: "lib.eal", "three");
    tracing::debug!(target: "lib.eal", "four");
    tracing::trace!(target: "lib.eal", "five");
    tracing::info!(target: "pmd.net.null", port = 3, "six");
    tracing::info!(target: "lib.mempool", "seven");
}

#[test]
fn a_line_names_its_component() {
    let (logs, page) = page(&spec(&[]));
    let guard = logs.enter();
    say_all();
    drop(guard);
    tracing::error!(target: "lib.eal", "nobody hears this");
    let wanted = "lib.eal: error: one\nlib.eal: warning: two\nlib.eal: three\npmd.net.null: six port=3\nlib.mempool: seven\n";
    assert_eq!(page.take(), wanted);
}

#[test]
fn thresholds_pick_components() {
    for (filters, lines) in [
        (&["debug"][..], &["one", "two", "three", "four", "five", "six", "seven"][..]),
        (&["8"], &["one", "two", "three", "four", "five", "six", "seven"]),
        (&["lib.*:error"], &["one", "six"]),
        (&["lib.eal:debug", "pmd.net.*:5"], &["one", "two", "three", "four", "five", "seven"]),
        (&["pmd.net:3"], &["one", "two", "three", "six", "seven"]),
        (&["pmd.net,3"], &["one", "two", "three", "seven"]),
        (&["^lib\\.(eal|mempool)$,warning"], &["one", "two", "six"]),
        (&["debug", "lib.eal:notice"], &["one", "two", "six", "seven"]),
        (&["emerg"], &[]),
        (&["lib.ea?:4", "[a-o]ib.[!x]al:7"], &["one", "two", "three", "six", "seven"]),
    ] {
        let (logs, page) = page(&spec(filters));
        let _guard = logs.enter();
        say_all();
        let text = page.take();
        let said: Vec<&str> = text.lines().map(|line| line.split(": ").last().unwrap_or(line)).collect();
        let said: Vec<&str> = said.iter().map(|line| line.split(' ').next().unwrap_or(line)).collect();
        assert_eq!(said, lines, "{filters:?}");
    }
}

#[test]
fn two_logs_on_two_threads_do_not_mix() {
    let (quiet, quiet_page) = page(&spec(&["error"]));
    let (loud, loud_page) = page(&spec(&["debug"]));
    std::thread::scope(|scope| {
        for logs in [&quiet, &loud] {
            scope.spawn(move || {
                let _guard = logs.enter();
                (0..100).for_each(|_| say_all());
            });
        }
    });
    assert_eq!(quiet_page.take().lines().count(), 100);
    assert_eq!(loud_page.take().lines().count(), 700);
}

#[test]
fn a_threshold_changes_while_running() {
    let (logs, page) = page(&spec(&[]));
    let _guard = logs.enter();
    let say = || tracing::debug!(target: "lib.changing", "now");
    say();
    assert_eq!(page.take(), "");
    assert_eq!(logs.level("lib.changing"), LogLevel::Info);
    logs.set_level(&"lib.ch*:debug".parse().expect("a filter")).expect("set");
    assert_eq!(logs.level("lib.changing"), LogLevel::Debug);
    say();
    assert_eq!(page.take(), "lib.changing: now\n");
    logs.set_level(&"lib.ch*:info".parse().expect("a filter")).expect("set");
    say();
    assert_eq!(page.take(), "");
}

#[test]
fn colours_and_times() {
    use pollux_config::{LogColor, LogTimestamp};
    let mut wanted = spec(&[]);
    wanted.color = LogColor::Always;
    let (logs, lines) = page(&wanted);
    let guard = logs.enter();
    tracing::error!(target: "lib.eal", "red");
    assert_eq!(lines.take(), "\x1b[33mlib.eal:\x1b[0m \x1b[31merror: red\x1b[0m\n");
    drop(guard);
    wanted.color = LogColor::Never;
    for (timestamp, shape) in [
        (LogTimestamp::Seconds, "[     0.000000] lib.eal: x\n"),
        (LogTimestamp::Delta, "[<     0.000000>] lib.eal: x\n"),
        (LogTimestamp::Iso, "[0000-00-00T00:00:00,000000+00:00] lib.eal: x\n"),
    ] {
        wanted.timestamp = timestamp;
        let (logs, lines) = page(&wanted);
        let _guard = logs.enter();
        tracing::info!(target: "lib.eal", "x");
        let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
        assert_eq!(lines.take().chars().map(digits).collect::<String>(), shape);
    }
    wanted.timestamp = LogTimestamp::Reltime;
    let (logs, lines) = page(&wanted);
    let _guard = logs.enter();
    tracing::info!(target: "lib.eal", "first");
    tracing::info!(target: "lib.eal", "second");
    let text = lines.take();
    assert!(
        text.starts_with('[') && text.contains("] lib.eal: first\n[") && !text.starts_with("[+"),
        "{text}"
    );
}

#[test]
fn a_broken_pattern_is_one_clear_line() {
    let refused = Logs::new(&spec(&["lib.(eal,debug"])).expect_err("a parenthesis is open");
    let line = refused.to_string();
    assert!(
        line.starts_with("option '--log-level': 'lib.(eal' is not a valid pattern: ") && !line.contains('\n'),
        "{line}"
    );
}

#[test]
fn help_lists_levels_and_components() {
    let text = help(&spec(&["pmd.*:debug"]), &["pmd.net.null", "lib.eal"]).expect("help");
    assert!(text.contains("  1 emergency\n") && text.contains("  8 debug\n"), "{text}");
    assert!(text.contains("  pmd.net.null: debug\n"), "{text}");
    assert_eq!(text.matches("  lib.eal: info\n").count(), 1, "{text}");
}

#[test]
fn what_is_switched_off_is_not_even_put_together() {
    let (logs, page) = page(&spec(&[]));
    let _guard = logs.enter();
    let mut made = 0;
    let mut costly = || {
        made += 1;
        "text"
    };
    tracing::debug!(target: "lib.off", "{}", costly());
    tracing::info!(target: "lib.off", "{}", costly());
    assert_eq!(made, 1);
    assert_eq!(page.take(), "lib.off: text\n");
}
