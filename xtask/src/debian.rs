//! Roots of other Debian releases, cached outside the tree.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Outcome, must, output};

/// What a root is made of.
pub(crate) struct Recipe<'a> {
    /// The release; further suites of the same archive behind it.
    pub(crate) suites: &'a [&'a str],
    /// Packages, by name.
    pub(crate) packages: &'a str,
}

/// Whether this user may make roots and mount.
pub(crate) fn needs_root(task: &str) -> Outcome {
    match output(Command::new("id").arg("-u"))?.trim() {
        "0" => Ok(()),
        _ => Err(format!("{task} makes a Debian root and mounts: it needs root")),
    }
}

/// Where roots and packages are kept between runs.
pub(crate) fn cache_dir() -> Outcome<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(base.join("pollux"))
}

/// Makes a root at `path`, whole or not at all.
///
/// # Errors
/// One line when there is no `mmdebstrap` or no package registry.
pub(crate) fn bootstrap(path: &Path, recipe: &Recipe<'_>) -> Outcome {
    let parent = path.parent().ok_or("the cache has no parent folder")?;
    std::fs::create_dir_all(parent).map_err(|why| format!("cannot write {}: {why}", parent.display()))?;
    let half = path.with_extension("half");
    drop(std::fs::remove_dir_all(&half));
    let archive = archive()?;
    let [release, ..] = recipe.suites else { return Err("a root needs a release".into()) };
    // A mirror may lag behind the date until which its index is signed; the signature itself is still checked.
    must(
        Command::new("mmdebstrap")
            .args(["--variant=apt", "--mode=root", "--quiet"])
            .args(["--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Languages \"none\""])
            .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
            .arg(format!("--include={}", recipe.packages))
            .arg(release)
            .arg(&half)
            .args(recipe.suites.iter().map(|suite| format!("deb {archive} {suite} main"))),
    )?;
    std::fs::rename(&half, path).map_err(|why| format!("cannot rename {}: {why}", half.display()))
}

/// A root of Debian sid with the newest DPDK, its examples and a compiler for it; it is made if the cache has none.
///
/// # Errors
/// Those of [`bootstrap`], and one line for a user who may not make it.
pub(crate) fn newest_dpdk() -> Outcome<PathBuf> {
    const PACKAGES: &str = "dpdk,dpdk-dev,dpdk-doc,libdpdk-dev,gcc,libc6-dev,pkgconf";
    let path = cache_dir()?.join("peers-sid");
    // The examples are of `dpdk-doc`, which earlier roots do not have.
    if !path.join("usr/share/dpdk/examples/l3fwd/main.c").exists() {
        needs_root("DPDK of another release")?;
        drop(std::fs::remove_dir_all(&path));
        bootstrap(&path, &Recipe { suites: &["sid"], packages: PACKAGES })?;
    }
    Ok(path)
}

/// A package's source as Debian has it.
pub(crate) struct Source {
    archive: PathBuf,
    /// Of upstream.
    pub(crate) version: String,
}

impl Source {
    /// Fetches the source of `package` as `release` has it, once for each version. `Err` within: there is none, since the archive cannot be
    /// reached or has it no more, and nothing was fetched before.
    ///
    /// # Errors
    /// One line when the cache cannot be written.
    pub(crate) fn fetch(package: &str, release: &str) -> Outcome<Result<Self, String>> {
        let folder = cache_dir()?.join(format!("source-{release}"));
        let fetched = fetch_source(package, release, &folder);
        // Without a network, what an earlier run fetched serves.
        Ok(match (fetched_source(package, &folder), fetched) {
            (Some((archive, version)), _) => Ok(Self { archive, version }),
            (None, Err(why)) => Err(format!("no source of {package}: {why}")),
            (None, Ok(())) => Err(format!("no upstream archive of {package} in {}", folder.display())),
        })
    }

    /// Fetches that of the package whose version is `of`, such as `25.11.4-1`.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch); the `Err` within also where the archive has another version by now.
    pub(crate) fn fetch_of(package: &str, release: &str, of: &str) -> Outcome<Result<Self, String>> {
        let upstream = upstream(of);
        Ok(Self::fetch(package, release)?.and_then(|source| {
            let other =
                || format!("the archive has the source of {package} {}, not of {upstream}", source.version);
            if source.version == upstream { Ok(source) } else { Err(other()) }
        }))
    }

    /// Unpacks the files whose paths match one of `patterns`, all if there is none, into `folder`, which is made anew; without the folder that
    /// they are in.
    ///
    /// # Errors
    /// tar's.
    pub(crate) fn unpack(&self, patterns: &[&str], folder: &Path) -> Outcome {
        drop(std::fs::remove_dir_all(folder));
        std::fs::create_dir_all(folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(&self.archive).arg("-C").arg(folder).args(["--strip-components=1", "--wildcards"]);
        must(tar.args(patterns))
    }
}

/// The upstream part of a package's version: no epoch before, no revision behind. Source: Debian Policy, section 5.6.12.
fn upstream(version: &str) -> &str {
    let behind = version.split_once(':').map_or(version, |(_, behind)| behind);
    behind.rsplit_once('-').map_or(behind, |(upstream, _)| upstream)
}

/// Unpacks `package`, the libraries that it and libibverbs name, and `beside` into `folder`, whose file `version` then has the
/// package's. Nothing is installed.
///
/// # Errors
/// One line when the archive cannot be reached, or has no such package.
pub(crate) fn unpack(package: &str, beside: &[&str], folder: &Path) -> Outcome {
    let apt = Apt::new(&folder.join("apt"), "deb", &release()?)?;
    must(apt.command("apt-get").arg("update"))?;
    let mut names = vec![package.to_owned(), "libibverbs1".into()];
    names.extend(beside.iter().map(|name| (*name).to_owned()));
    let named = output(apt.command("apt-cache").args(["depends", "--important", package, "libibverbs1"]))?;
    let wanted = |name: &&str| (name.starts_with("lib") || *name == "ibverbs-providers") && *name != "libc6";
    names.extend(named.split_whitespace().filter(wanted).map(str::to_owned));
    names.sort();
    names.dedup();
    must(apt.command("apt-get").arg("download").args(&names))?;
    let archives = std::fs::read_dir(&apt.folder);
    let archives = archives.map_err(|why| format!("cannot read {}: {why}", apt.folder.display()))?;
    for archive in
        archives.flatten().map(|entry| entry.path()).filter(|path| path.extension() == Some("deb".as_ref()))
    {
        must(Command::new("dpkg").arg("-x").arg(&archive).arg(folder))?;
        let says = |field: &str| output(Command::new("dpkg-deb").arg("--field").arg(&archive).arg(field));
        if says("Package")?.trim() == package {
            let path = folder.join("version");
            std::fs::write(&path, says("Version")?)
                .map_err(|why| format!("cannot write {}: {why}", path.display()))?;
        }
    }
    std::fs::remove_dir_all(&apt.folder)
        .map_err(|why| format!("cannot remove {}: {why}", apt.folder.display()))
}

/// This machine's release, by its name.
pub(crate) fn release() -> Outcome<String> {
    std::fs::read_to_string("/etc/os-release")
        .ok()
        .and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=").map(str::to_owned))
        })
        .ok_or_else(|| "no VERSION_CODENAME in /etc/os-release".into())
}

/// apt with lists, sources and a cache of our own, which no right of root is needed for: those of the machine need not name what we want.
struct Apt {
    folder: PathBuf,
    sources: PathBuf,
}

impl Apt {
    /// `kind` is `deb` or `deb-src`.
    fn new(folder: &Path, kind: &str, release: &str) -> Outcome<Self> {
        let (lists, sources) = (folder.join("lists"), folder.join("sources.list"));
        std::fs::create_dir_all(lists.join("partial"))
            .map_err(|why| format!("cannot make {}: {why}", lists.display()))?;
        std::fs::write(&sources, format!("{kind} {} {release} main\n", archive()?))
            .map_err(|why| format!("cannot write {}: {why}", sources.display()))?;
        Ok(Self { folder: folder.to_owned(), sources })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("--quiet=2").current_dir(&self.folder);
        command.arg("-o").arg(format!("Dir::Etc::SourceList={}", self.sources.display()));
        command.args(["-o", "Dir::Etc::SourceParts=/dev/null", "-o", "APT::Sandbox::User=root"]);
        command.args(["-o", "Acquire::Check-Valid-Until=false"]);
        command.arg("-o").arg(format!("Dir::State::Lists={}", self.folder.join("lists").display()));
        command.arg("-o").arg(format!("Dir::Cache={}", self.folder.join("cache").display()));
        command
    }
}

/// Has apt fetch it.
fn fetch_source(package: &str, release: &str, folder: &Path) -> Outcome {
    let apt = Apt::new(folder, "deb-src", release)?;
    must(apt.command("apt-get").arg("update"))?;
    must(apt.command("apt-get").args(["source", "--download-only", package]))
}

/// The upstream archive in `folder` that was fetched last.
fn fetched_source(package: &str, folder: &Path) -> Option<(PathBuf, String)> {
    std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?.strip_prefix(package)?.strip_prefix('_')?;
            let version = name.split_once(".orig.tar.")?.0.to_owned();
            Some((entry.metadata().ok()?.modified().ok()?, path, version))
        })
        .max_by_key(|(when, ..)| *when)
        .map(|(_, path, version)| (path, version))
}

/// The archive this machine installs from, as its own apt configuration names it.
fn archive() -> Outcome<String> {
    let mut sources = vec![PathBuf::from("/etc/apt/sources.list")];
    sources.extend(
        std::fs::read_dir("/etc/apt/sources.list.d")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path()),
    );
    sources
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .map(|word| word.trim_end_matches('/').to_owned())
        .find(|word| word.starts_with("http") && word.ends_with("/debian"))
        .ok_or_else(|| "no Debian archive is named in /etc/apt/sources.list or sources.list.d".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_epoch_upstream_and_revision() {
        for (version, part) in
            [("25.11.4-1", "25.11.4"), ("1:2.0-rc1-3+b1", "2.0-rc1"), ("6.12", "6.12"), ("2:6.12", "6.12")]
        {
            assert_eq!(upstream(version), part, "{version}");
        }
    }
}
