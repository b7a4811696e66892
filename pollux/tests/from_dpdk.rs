//! `docs/from-dpdk.md` and the aliases of the documentation name the same functions, and lead from each to the same one of ours.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// Words between backquotes.
fn words(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The page's tables: each name of the first column, with the names in the second.
fn of_page() -> BTreeMap<String, Vec<String>> {
    let page = fs::read_to_string(top().join("docs/from-dpdk.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split_once(" | "));
    rows.flat_map(|(left, right)| words(left).into_iter().map(|name| (name, words(right)))).collect()
}

/// The name behind `fn`, `enum` or `struct`.
fn item(line: &str) -> Option<String> {
    let mut words = line.split(|at: char| !at.is_alphanumeric() && at != '_');
    words.find(|word| matches!(*word, "fn" | "enum" | "struct"))?;
    words.next().map(str::to_owned)
}

/// The type that an `impl` is of, without its parameters.
fn implemented(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix("impl")?;
    let mut depth = 0;
    let plain: String = rest
        .chars()
        .filter(|at| {
            depth += i32::from(*at == '<') - i32::from(*at == '>');
            depth == 0 && *at != '>'
        })
        .collect();
    let name = plain.split(" where ").next()?.split(" for ").last()?.trim_end_matches('{').trim();
    name.rsplit("::").next().map(str::to_owned)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Names of DPDK's and rdma-core's functions in `#[doc(alias)]`, each with what stands under it: `Port::start`, or a name alone that
/// is of no type.
fn of_sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder").filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            of_sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let lines: Vec<&str> = text.lines().collect();
            found.extend((0..lines.len()).filter_map(|at| alias(&lines, at)));
        }
    }
}

/// Names of rsockets, which have no prefix but a letter.
const RSOCKETS: &[&str] =
    &["rconnect", "rlisten", "raccept", "rsendto", "rrecvfrom", "rpoll", "rsetsockopt", "riomap", "riowrite"];

fn alias(lines: &[&str], at: usize) -> Option<(String, String)> {
    let name = lines[at].trim().strip_prefix("#[doc(alias = \"")?.strip_suffix("\")]")?;
    let is_theirs = ["rte_", "RTE_", "ibv_", "rdma_"].iter().any(|prefix| name.starts_with(prefix));
    if !is_theirs && !RSOCKETS.contains(&name) {
        return None;
    }
    let item = lines[at..].iter().find_map(|line| item(line)).expect("an item under each alias");
    let mut around = lines[..at].iter().rev().filter(|line| indent(line) < indent(lines[at]));
    let owner = around.find_map(|line| implemented(line)).map(|owner| match owner.as_str() {
        // One type for both directions, under two names.
        "Queue" if name.contains("_rx_") => "RxQueue".to_owned(),
        "Queue" => "TxQueue".to_owned(),
        _ => owner,
    });
    Some((name.to_owned(), owner.map_or(item.clone(), |owner| format!("{owner}::{item}"))))
}

#[test]
fn the_page_and_the_aliases_agree() {
    let mut aliases = Vec::new();
    for name in
        ["bringup", "cm", "eal", "fragment", "lookup", "mempool", "port", "ring", "rsocket", "verbs", "wire"]
    {
        of_sources(&top().join(name).join("src"), &mut aliases);
    }
    let page = of_page();
    let leads = |row: &[String], ours: &str| {
        row.iter().any(|name| name == ours || name.ends_with(&format!("::{ours}")))
    };
    let wrong: Vec<String> = aliases
        .iter()
        .filter(|(name, ours)| !page.get(name).is_some_and(|row| leads(row, ours)))
        .map(|(name, ours)| format!("{name} is an alias of {ours}, and the page has {:?}", page.get(name)))
        .chain(
            page.keys()
                .filter(|name| !aliases.iter().any(|(alias, _)| alias == *name))
                .map(|name| format!("{name} is in the page and no alias")),
        )
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(aliases.len() > 100 && page.contains_key("rte_eth_rx_burst"), "{page:?}");
}

#[test]
fn what_an_alias_stands_on_is_read() {
    let lines = [
        "impl<T: Copy, const N: usize> Owner<T> for path::Type<T, N> where T: Send {",
        "    /// Starts.",
        "    #[doc(alias = \"rte_start\")]",
        "    #[inline]",
        "    pub fn start<F: FnOnce()>(&self) {}",
        "}",
        "#[doc(alias = \"ibv_mode\")]",
        "pub enum Mode {",
    ];
    let found: Vec<_> = (0..lines.len()).filter_map(|at| alias(&lines, at)).collect();
    let expected = [("rte_start", "Type::start"), ("ibv_mode", "Mode")];
    assert_eq!(found, expected.map(|(name, ours)| (name.to_owned(), ours.to_owned())));
}
