//! The pages of docs/guide that make a package, each done once as it is written, in a fresh folder outside of the workspace.
//!
//! What a page asks of its reader is done in its order:
//!
//! ```text
//!   ```sh                       each line runs in the folder that `cd` chose; `&` at its end leaves it running until the block ends,
//!                               and one whose comment names Ctrl-C is ended by that
//!   **`FILE`**, then a fence    the file is written
//!   **`FILE`**, then ```diff    lines of it are replaced
//!   ```text                     after commands: each line was printed by them, numbers and spaces aside; `...` at its end stands for more
//! ```
//!
//! `cargo xtask examples` runs this, with crates that it has built by then and without the network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pollux_tests::patience::patient;
use pollux_tests::program::{Finished, Running, with_default_signals};
use pollux_tests::require::{Need, require};

/// A build of a package, and what it runs.
const LIMIT: Duration = Duration::from_secs(600);

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().expect("this crate").join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// A fenced block: its language, the file that the line above it names, its lines.
#[derive(Debug, PartialEq)]
struct Block<'a> {
    language: &'a str,
    file: Option<&'a str>,
    lines: Vec<&'a str>,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut above) = (Vec::new(), "");
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let language = language.split(',').next().unwrap_or_default();
            let file = above.strip_prefix("**`").and_then(|rest| rest.strip_suffix("`**"));
            blocks.push(Block {
                language,
                file,
                lines: lines.by_ref().take_while(|line| *line != "```").collect(),
            });
            above = "";
        } else if !line.is_empty() {
            above = line;
        }
    }
    blocks
}

/// The text with each hunk's lines replaced: those that stay (` `) and go (`-`) stand in it once.
fn patched(text: &str, hunks: &[&str]) -> String {
    hunks.split(|line| *line == "@@").fold(text.to_owned(), |text, hunk| {
        let side = |gone: char| -> String {
            let lines = hunk.iter().filter(|line| !line.starts_with(gone));
            lines.map(|line| format!("{}\n", line.get(1..).unwrap_or_default())).collect()
        };
        let (old, new) = (side('+'), side('-'));
        // Only whole lines.
        let (text, old, new) = (format!("\n{text}"), format!("\n{old}"), format!("\n{new}"));
        assert_eq!(text.matches(&old).count(), 1, "these lines stand once in the file:{old}\n---{text}");
        text.replacen(&old, &new, 1)[1..].to_owned()
    })
}

/// A line without its numbers and the width of its columns.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for word in line.split_whitespace() {
        let mut is_number = false;
        for at in word.chars() {
            let goes_on = is_number && matches!(at, '.' | ',' | ':');
            if at.is_ascii_digit() && !is_number {
                shape.push('#');
            } else if !at.is_ascii_digit() && !goes_on {
                shape.push(at);
            }
            is_number = at.is_ascii_digit() || goes_on;
        }
        shape.push(' ');
    }
    shape
}

/// What a reader of a page has.
struct Reader {
    /// Everything is below.
    folder: tempfile::TempDir,
    /// Where the reader is.
    here: PathBuf,
    target: PathBuf,
    /// What the commands of the last block printed.
    printed: String,
}

impl Reader {
    fn new(target: PathBuf) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path().to_owned();
        Self { folder, here, target, printed: String::new() }
    }

    /// A command of the page, as a shell runs it there. Cargo has the versions of the workspace's lock file, and what it builds is kept.
    fn command(&self, line: &str) -> Command {
        let lock = self.here.join("Cargo.lock");
        if self.here.join("Cargo.toml").exists() && !lock.exists() {
            fs::copy(top().join("Cargo.lock"), lock).expect("a copy");
        }
        let line = line.replace("../pollux/", &format!("{}/", top().display()));
        let line = line.replace("/tmp/", &format!("{}/", self.folder.path().display()));
        let mut command = Command::new("bash");
        command.args(["-c", &line]);
        command.env("CARGO_TARGET_DIR", &self.target).env("CARGO_NET_OFFLINE", "true");
        command.env("RUNTIME_DIRECTORY", self.folder.path());
        let mut fresh = with_default_signals(&command);
        fresh.current_dir(&self.here);
        fresh
    }

    /// The program of the page's package is built, so that it starts at once.
    fn build(&self) {
        let built = Running::start(self.command("cargo build --release")).finish(LIMIT);
        assert!(built.status.success(), "{}", built.stderr.join("\n"));
    }

    fn ran(&mut self, line: &str, end: &Finished) {
        assert!(end.status.success(), "{line}: {}\n{}\n{}", end.status, end.stdout, end.stderr.join("\n"));
        self.printed += &format!("{}\n{}\n", end.stdout, end.stderr.join("\n"));
    }

    /// Starts the program and waits until it says that it is at work.
    fn start(&self, line: &str) -> Running {
        self.build();
        let mut running = Running::start(self.command(&format!("exec {line}")));
        running.wait_for(if line.contains("--listen") { "waiting at" } else { "forwarding" });
        running
    }

    fn commands(&mut self, lines: &[&str]) {
        self.printed.clear();
        let mut behind = Vec::new();
        for line in lines {
            let (line, comment) = line.split_once(" # ").unwrap_or((line, ""));
            let line = line.trim();
            if let Some(folder) = line.strip_prefix("cd ") {
                self.here.push(folder);
            } else if comment.contains("Ctrl-C") {
                let running = self.start(line);
                // Long enough for packets, and for a table.
                std::thread::sleep(Duration::from_secs(2));
                self.ran(line, &running.interrupt());
            } else if let Some(line) = line.strip_suffix(" &") {
                behind.push((line, self.start(line)));
            } else if !line.starts_with("tcpdump") || require(&[Need::Net]) {
                let end = Running::start(self.command(line)).finish(LIMIT);
                self.ran(line, &end);
            } else {
                self.printed.clear();
            }
        }
        for (line, running) in behind {
            self.ran(line, &running.finish(patient(Duration::from_secs(30))));
        }
    }

    fn printed(&self, lines: &[&str]) {
        let printed: Vec<String> = self.printed.lines().map(shape).collect();
        for line in lines {
            let is_there = match line.strip_suffix("...") {
                Some(beginning) => printed.iter().any(|printed| printed.starts_with(&shape(beginning))),
                None => printed.contains(&shape(line)),
            };
            assert!(is_there || self.printed.is_empty(), "nobody printed {line:?} but\n{}", self.printed);
        }
    }

    /// The clone is elsewhere than the page has it.
    fn has_in_manifest(&self, lines: &[&str]) {
        let manifest = read(&self.here.join("Cargo.toml"));
        for line in lines {
            let (before, behind) = line.split_once("../pollux/").unwrap_or((line, ""));
            let is_it = |there: &str| there.starts_with(before) && there.ends_with(behind);
            assert!(manifest.lines().any(is_it), "no {line:?} in\n{manifest}");
        }
    }

    fn page(&mut self, page: &str) {
        let mut after_commands = false;
        for block in blocks(page) {
            match (block.language, block.file) {
                ("diff", Some(file)) => {
                    let path = self.here.join(file);
                    fs::write(&path, patched(&read(&path), &block.lines)).expect("the file");
                }
                (_, Some(file)) => {
                    let text: String = block.lines.iter().map(|line| format!("{line}\n")).collect();
                    fs::write(self.here.join(file), text).expect("a file");
                }
                ("sh", None) => self.commands(&block.lines),
                ("text", None) if after_commands => self.printed(&block.lines),
                ("toml", None) => self.has_in_manifest(&block.lines),
                ("text", None) => {}
                _ => panic!("nothing is done with this block: {block:?}"),
            }
            after_commands = block.language == "sh";
        }
    }
}

/// One reader at a time: they build into one folder.
static TURN: Mutex<()> = Mutex::new(());

/// Does what the pages say. `cargo xtask examples` says where programs outside of the workspace are built.
fn done(pages: &[&str]) {
    let Some(release) = std::env::var_os("POLLUX_EXAMPLES").map(PathBuf::from) else {
        println!(
            "skipped: the packages of the guide are not built: `cargo xtask examples` builds and runs them"
        );
        return;
    };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let target = release.parent().expect("a target folder").to_owned();
    let mut reader = Reader::new(target);
    for page in pages {
        reader.page(&read(&top().join("docs/guide/src").join(page)));
    }
}

#[test]
fn a_forwarder() {
    done(&["skeleton.md"]);
}

#[test]
fn a_firewall_and_its_tests() {
    done(&["firewall.md", "testing.md"]);
}

#[test]
fn a_port_of_its_own() {
    done(&["port.md"]);
}

#[test]
fn an_rdma_program() {
    done(&["rdma.md"]);
}

#[test]
fn each_page_that_makes_or_changes_a_package_is_done_here() {
    let this = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guide.rs"));
    let mut pages = 0;
    for entry in fs::read_dir(top().join("docs/guide/src")).expect("the guide") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        if blocks(&read(&path)).iter().any(|block| block.file.is_some()) {
            assert!(this.contains(&format!("\"{name}\"")), "{name} is not in this file");
            pages += 1;
        }
    }
    assert!(pages >= 5, "{pages} pages");
}

#[test]
fn a_page_is_read_as_it_is_meant() {
    let page = "Text\n\n**`a.rs`**\n\n```rust,no_run\nfn main() {}\n```\n\n```sh\nls\n```\n";
    let rust = Block { language: "rust", file: Some("a.rs"), lines: vec!["fn main() {}"] };
    assert_eq!(blocks(page), [rust, Block { language: "sh", file: None, lines: vec!["ls"] }]);
    let text = "one\ntwo\nthree\nfour\n";
    assert_eq!(patched(text, &[" one", "+1.5", " two", "@@", "-four", "+4"]), "one\n1.5\ntwo\nthree\n4\n");
    assert_eq!(shape("0 net_null0  -  61,003,744  30.50"), shape("1 net_null1 - 5  1.1"));
    assert_ne!(shape("request 7: success"), shape("request 7: failed"));
}
