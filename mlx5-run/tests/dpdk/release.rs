//! Which DPDK is run: this machine's own, or one that is unpacked elsewhere.

use std::path::{Path, PathBuf};

use pollux_tests::require::{Need, require};

/// A folder with another Debian release, whose DPDK is run by that release's own loader and libraries: no right of root is needed.
const ROOT: &str = "POLLUX_DPDK_ROOT";
/// Where Debian has libraries.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

fn root() -> Option<PathBuf> {
    std::env::var_os(ROOT).map(PathBuf::from)
}

/// Whether there is one; where it must be and is not, the test fails.
pub(crate) fn is_there() -> bool {
    root().is_some() || require(&[Need::Dpdk])
}

/// Whether it is newer than Debian 12's.
pub(crate) fn is_new() -> bool {
    root().is_some()
}

/// What starts a program of it, up to the program's own arguments.
pub(crate) fn program(name: &str) -> Vec<String> {
    let Some(root) = root() else { return vec![name.into()] };
    let within = |path: &str| text(&root.join(path));
    // Its drivers stand where it would not look for them.
    let drivers = std::fs::read_dir(root.join(LIBRARIES).join("dpdk")).expect("DPDK's drivers");
    let drivers = drivers.flatten().next().expect("drivers").path();
    vec![
        within("lib64/ld-linux-x86-64.so.2"),
        "--library-path".into(),
        within(LIBRARIES),
        within(&format!("usr/bin/{name}")),
        "-d".into(),
        text(&drivers),
    ]
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of letters").into()
}
