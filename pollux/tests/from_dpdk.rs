//! `docs/from-dpdk.md` and the aliases of the documentation name the same functions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// Words between backquotes in the first column of the page's tables.
fn of_page() -> BTreeSet<String> {
    let page = fs::read_to_string(top().join("docs/from-dpdk.md")).expect("the page");
    let first = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    first.flat_map(|cell| cell.split("`, `")).map(|name| name.trim_end_matches('`').to_owned()).collect()
}

/// Names of DPDK's and rdma-core's functions in `#[doc(alias)]`.
fn of_sources(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            of_sources(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let aliases = text.lines().filter_map(|line| {
                line.trim().strip_prefix("#[doc(alias = \"")?.strip_suffix("\")]").map(str::to_owned)
            });
            names.extend(
                aliases.filter(|name| ["rte_", "RTE_", "ibv_"].iter().any(|prefix| name.starts_with(prefix))),
            );
        }
    }
}

#[test]
fn the_page_and_the_aliases_agree() {
    let mut aliases = BTreeSet::new();
    for name in ["bringup", "eal", "mempool", "port", "ring", "verbs", "wire"] {
        of_sources(&top().join(name).join("src"), &mut aliases);
    }
    let page = of_page();
    let missing: Vec<_> = page.symmetric_difference(&aliases).collect();
    assert!(missing.is_empty(), "in the page or in an alias, not in both: {missing:?}");
    assert!(page.contains("rte_eth_rx_burst") && page.contains("ibv_poll_cq"), "{page:?}");
}
