//! DPDK's l3fwd, of which Debian packages the source alone, among the examples of its documentation.

use std::fs;
use std::process::Command;

use super::{Root, take};
use crate::run::{Outcome, must, root as tree};

/// The program, below the root.
pub(in crate::bench) const PROGRAM: &str = "/pollux/l3fwd";

/// Its files beside `l3fwd.c`, which has `main.c` in it. Source: DPDK `examples/l3fwd/Makefile`, `SRCS-y`.
const FILES: &str = "l3fwd_lpm.c l3fwd_fib.c l3fwd_em.c l3fwd_acl.c l3fwd_event.c l3fwd_event_generic.c l3fwd_event_internal_port.c";

/// Compiles it if the root does not have that of its version.
///
/// # Errors
/// One line when it cannot be compiled.
pub(in crate::bench) fn prepare(root: &Root) -> Outcome {
    let inside = root.path.join("pollux");
    let marked = inside.join("l3fwd.version");
    if fs::read_to_string(&marked).is_ok_and(|built| built == root.version) {
        return Ok(());
    }
    take(&tree().join("benches/peer/l3fwd.c"), &inside)?;
    let flags = "-O3 -I. -I../common -DALLOW_EXPERIMENTAL_API $(pkgconf --cflags libdpdk)";
    let line = format!(
        "cd /usr/share/dpdk/examples/l3fwd && gcc {flags} /pollux/l3fwd.c {FILES} -o {PROGRAM} $(pkgconf --libs libdpdk)"
    );
    must(Command::new("chroot").arg(&root.path).args(["sh", "-c", &line]))?;
    fs::write(&marked, &root.version).map_err(|why| format!("cannot write {}: {why}", marked.display()))
}
