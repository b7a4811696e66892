//! DPDK built for this machine's processor: Debian's package is built for every x86-64.
//!
//! The same version as the package, from Debian's source, in a root of its own that has what builds it; what it installs is taken into
//! the peer's root. Only what the figures of the mlx5 driver need is built.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Root, compile};
use crate::bench::processor;
use crate::debian::{self, Recipe, Source};
use crate::run::{Outcome, must};

/// The peer's program of the mlx5 figures, linked with the native build.
pub(in crate::bench) const PROGRAM: &str = "/pollux/mlx5-native";

/// Where it is installed, below a root.
const PREFIX: &str = "opt/dpdk-native";

/// DPDK's requirements and those of its mlx5 driver. Source: DPDK `doc/guides/linux_gsg/sys_reqs.rst`, `doc/guides/platform/mlx5.rst`.
const PACKAGES: &str =
    "gcc,libc6-dev,meson,ninja-build,pkgconf,python3,python3-pyelftools,libibverbs-dev,libnuma-dev,xz-utils";

/// Source: DPDK `meson_options.txt`.
const OPTIONS: &str = "--libdir=lib --buildtype=release -Dplatform=native -Dtests=false -Denable_docs=false \
    -Denable_apps=test-pmd -Denable_drivers=bus/auxiliary,bus/pci,bus/vdev,common/mlx5,mempool/ring,net/mlx5";

/// Builds it if the cache has none of this version for this processor, and links the peer's program with it.
///
/// # Errors
/// One line when there is no source, or it cannot be built.
pub(in crate::bench) fn prepare(root: &Root) -> Outcome {
    let mark = format!("{}, {}\n", root.version, processor::full_name(&processor::cpuinfo()));
    let marked = root.path.join(PREFIX).join("built");
    if fs::read_to_string(&marked).is_ok_and(|built| built == mark) {
        return link(&root.path);
    }
    let cache = debian::cache_dir()?;
    let workshop = cache.join("native-sid");
    if !workshop.join("usr/bin/meson").exists() {
        debian::bootstrap(&workshop, &Recipe { suites: &["sid"], packages: PACKAGES })?;
    }
    let source = Source::fetch_of("dpdk", "sid", root.package_version())??;
    let built = build(&source, &workshop)?;
    let installed = root.path.join("opt");
    fs::create_dir_all(&installed).map_err(|why| format!("cannot make {}: {why}", installed.display()))?;
    must(Command::new("cp").arg("-a").arg(built).arg(&installed))?;
    link(&root.path)?;
    fs::write(&marked, mark).map_err(|why| format!("cannot write {}: {why}", marked.display()))
}

/// From the archive to what is installed in the workshop: where that is.
fn build(from: &Source, workshop: &Path) -> Outcome<std::path::PathBuf> {
    let (source, built) = (workshop.join("source"), workshop.join(PREFIX));
    drop(fs::remove_dir_all(&built));
    from.unpack(&[], &source)?;
    let line = format!(
        "cd /source && meson setup build --prefix=/{PREFIX} {OPTIONS} >/dev/null && ninja -C build --quiet && meson install -C build --quiet"
    );
    must(Command::new("chroot").arg(workshop).args(["sh", "-c", &line]))?;
    Ok(built)
}

fn link(root: &Path) -> Outcome {
    let config = format!("PKG_CONFIG_PATH=/{PREFIX}/lib/pkgconfig pkgconf");
    let flags = format!("-march=native -DALLOW_EXPERIMENTAL_API $({config} --cflags libdpdk)");
    let libraries = format!("$({config} --libs libdpdk) -Wl,-rpath,/{PREFIX}/lib");
    compile(root, &format!("{flags} mlx5.c -o mlx5-native {libraries}"))
}
