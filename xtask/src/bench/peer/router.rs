//! DPDK's l3fwd, which Debian has no package of: compiled from the source of the package that is measured.

use std::fs;
use std::process::Command;

use super::{Root, take};
use crate::debian;
use crate::run::{Outcome, must, root as tree};

/// The program, below the root.
pub(in crate::bench) const PROGRAM: &str = "/pollux/l3fwd";

/// Its files beside `l3fwd.c`, which has `main.c` in it. Source: DPDK `examples/l3fwd/Makefile`, `SRCS-y`.
const FILES: &str = "l3fwd_lpm.c l3fwd_fib.c l3fwd_em.c l3fwd_acl.c l3fwd_event.c l3fwd_event_generic.c l3fwd_event_internal_port.c";

/// Compiles it if the root does not have that of its version.
///
/// # Errors
/// One line when there is no source, or it cannot be compiled.
pub(in crate::bench) fn prepare(root: &Root) -> Outcome {
    let inside = root.path.join("pollux");
    let marked = inside.join("l3fwd.version");
    if fs::read_to_string(&marked).is_ok_and(|built| built == root.version) {
        return Ok(());
    }
    let (archive, _) = debian::source("dpdk", "sid", &debian::cache_dir()?.join("source-sid"))?;
    let source = inside.join("l3fwd-source");
    drop(fs::remove_dir_all(&source));
    fs::create_dir_all(&source).map_err(|why| format!("cannot make {}: {why}", source.display()))?;
    let unpack = ["--strip-components=1", "--wildcards", "*/examples/l3fwd", "*/examples/common", "-C"];
    must(Command::new("tar").arg("-xf").arg(archive).args(unpack).arg(&source))?;
    take(&tree().join("benches/peer/l3fwd.c"), &source.join("examples/l3fwd"))?;
    let flags = "-O3 -I../common -DALLOW_EXPERIMENTAL_API $(pkgconf --cflags libdpdk)";
    let line = format!(
        "cd /pollux/l3fwd-source/examples/l3fwd && gcc {flags} l3fwd.c {FILES} -o {PROGRAM} $(pkgconf --libs libdpdk)"
    );
    must(Command::new("chroot").arg(&root.path).args(["sh", "-c", &line]))?;
    fs::write(&marked, &root.version).map_err(|why| format!("cannot write {}: {why}", marked.display()))
}
