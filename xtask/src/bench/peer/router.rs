//! DPDK's l3fwd, which Debian has no package of: compiled from the source of the package that is measured.

use std::fs;
use std::process::Command;

use super::{Root, take};
use crate::debian::Source;
use crate::run::{Outcome, must, root as tree};

/// The program, below the root.
pub(in crate::bench) const PROGRAM: &str = "/pollux/l3fwd";

/// Its files beside `l3fwd.c`, which has `main.c` in it. Source: DPDK `examples/l3fwd/Makefile`, `SRCS-y`.
const FILES: &str = "l3fwd_lpm.c l3fwd_fib.c l3fwd_em.c l3fwd_acl.c l3fwd_event.c l3fwd_event_generic.c l3fwd_event_internal_port.c";

/// Compiles it if the root does not have that of its version. `Err` within: its source is not to be had.
///
/// # Errors
/// One line when it cannot be compiled.
pub(in crate::bench) fn prepare(root: &Root) -> Outcome<Result<(), String>> {
    let inside = root.path.join("pollux");
    let marked = inside.join("l3fwd.version");
    if fs::read_to_string(&marked).is_ok_and(|built| built == root.version) {
        return Ok(Ok(()));
    }
    let fetched = match Source::fetch_of("dpdk", "sid", root.package_version())? {
        Ok(fetched) => fetched,
        Err(why) => return Ok(Err(why)),
    };
    let source = inside.join("l3fwd-source");
    fetched.unpack(&["*/examples/l3fwd", "*/examples/common"], &source)?;
    take(&tree().join("benches/peer/l3fwd.c"), &source.join("examples/l3fwd"))?;
    let flags = "-O3 -I../common -DALLOW_EXPERIMENTAL_API $(pkgconf --cflags libdpdk)";
    let line = format!(
        "cd /pollux/l3fwd-source/examples/l3fwd && gcc {flags} l3fwd.c {FILES} -o {PROGRAM} $(pkgconf --libs libdpdk)"
    );
    must(Command::new("chroot").arg(&root.path).args(["sh", "-c", &line]))?;
    let written = fs::write(&marked, &root.version);
    written.map(Ok).map_err(|why| format!("cannot write {}: {why}", marked.display()))
}
