//! Replaced words: private or puzzling phrases, each with the term of the field that stands in its place.
//!
//! They stay out of sources, documents and help texts. The words of this project that are needed are in the glossary of
//! ARCHITECTURE.md. A phrase belongs here once it is gone everywhere.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{Outcome, root};

/// Each phrase and its replacement. A phrase matches whole words, across line breaks of a comment too.
const REPLACED: &[(&str, &str)] = &[
    ("First number of packets that come", "Initial PSN expected from the peer"),
    ("First number of packets that go", "Initial PSN of the send queue"),
    ("Repetitions because the peer had no receive", "RNR retry count"),
    ("Time until a request is repeated", "ACK timeout, 4.096 us x 2^n"),
    ("Reads and atomics at once", "Outstanding RDMA reads and atomics"),
    ("It makes a completion", "Requests a CQE"),
    ("Every send makes a completion", "Every send generates a CQE"),
    ("Pieces of memory of a send", "SGEs per send"),
    ("hear a multicast group", "attach to a multicast group"),
    ("queue pair that spreads packets", "RSS queue pair"),
    ("Ends a completion queue", "Destroys a completion queue"),
    ("Ends an event queue", "Destroys an event queue"),
    ("Ends a receive queue", "Destroys a receive queue"),
    ("Ends a send queue", "Destroys a send queue"),
    ("One end waits, the other names it", "Start the server, then the client with the server's address"),
    ("how much, of", "bandwidth test"),
    ("how soon, of", "latency test"),
    ("to and fro", "ping-pong"),
    ("telling each other", "exchanging"),
    ("do not understand each other", "are incompatible"),
    ("has hung up", "closed the connection"),
    ("is not a share", "must be between 0 and 1"),
    ("belongs to no option", "is not an option"),
    ("exclude each other", "cannot be combined"),
    ("is no MTU", "is not an MTU"),
    ("is no vector width", "is not a SIMD bitwidth"),
    ("pages memory in on demand", "on-demand paging"),
    ("connection management is absent", "RDMA CM is not supported"),
    ("the EAL half", "the EAL options"),
    ("whomever they are for", "in promiscuous mode"),
    ("How far into its mbuf's room", "data offset"),
    ("as a moment saw it", "a snapshot"),
    ("slip of the pen", "typo"),
    ("unsafe door", "unsafe API"),
    ("Takes home mbufs", "Frees mbufs"),
    ("Wishes", "PortRequest"),
    ("shines", "carrier"),
    ("its light is on", "it has carrier"),
    ("door to a context", "uverbs channel"),
    ("Nonsense", "MalformedCqe"),
    ("rouse", "kick"),
    ("roused", "kicked"),
];

/// Adds a fault for each replaced phrase in a source or document of the workspace.
pub(super) fn check(wrong: &mut Vec<String>) -> Outcome {
    let mut files = Vec::new();
    collect(&root(), &mut files)?;
    for path in files {
        let text =
            fs::read_to_string(&path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
        let shown = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let found = faults(&text).into_iter();
        wrong.extend(found.map(|(line, old, new)| format!("{shown}:{line}: \"{old}\"; write \"{new}\"")));
    }
    Ok(())
}

/// The sources and documents below a folder. The history of changes keeps its words, and this file has all of them.
fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Outcome {
    let failed = |why| format!("cannot read {}: {why}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(&path, into)?;
            }
        } else if (name.ends_with(".rs") || name.ends_with(".md"))
            && name != "CHANGELOG.md"
            && !path.ends_with("xtask/src/tidy/words.rs")
        {
            into.push(path);
        }
    }
    Ok(())
}

/// The replaced phrases in a text: the line where each begins, the phrase and its replacement.
fn faults(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let (flat, lines) = flatten(text);
    let mut found = Vec::new();
    for &(old, new) in REPLACED {
        for (at, _) in flat.match_indices(old) {
            let before = flat[..at].chars().next_back();
            let after = flat[at + old.len()..].chars().next();
            let inside = |neighbour: Option<char>| neighbour.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if !inside(before) && !inside(after) {
                let line = lines.partition_point(|&start| start <= at);
                found.push((line, old, new));
            }
        }
    }
    found.sort_unstable();
    found
}

/// A text on one line, without the marks of comments, and where each of its lines begins there.
fn flatten(text: &str) -> (String, Vec<usize>) {
    let (mut flat, mut lines) = (String::with_capacity(text.len()), Vec::new());
    for line in text.lines() {
        lines.push(flat.len());
        let line = line.trim();
        let line = ["///", "//!", "//"].iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line);
        flat.push_str(line.trim());
        flat.push(' ');
    }
    (flat, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_phrase_is_found_across_lines_with_its_replacement() {
        let text = "fn a() {}\n/// This is a slip\n/// of the pen.\nlet why = \"is not a share\";\n";
        let expected = [(2, "slip of the pen", "typo"), (4, "is not a share", "must be between 0 and 1")];
        assert_eq!(faults(text), expected);
    }

    #[test]
    fn a_phrase_matches_whole_words() {
        assert!(faults("copied to and from; PortWishes; carrier_shines").is_empty());
        assert_eq!(faults("messages to and fro").len(), 1);
        assert_eq!(faults("Wishes::new(); self.shines").len(), 2);
    }

    #[test]
    fn no_replacement_is_itself_replaced() {
        for (old, new) in REPLACED {
            assert!(faults(new).is_empty(), "{new:?}, which replaces {old:?}, is replaced too");
        }
    }
}
