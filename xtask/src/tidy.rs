//! The layout rules that a compiler does not check: who may depend on whom, where unsafe code may stand, what a
//! source file must not be, that files do not need each other in circles, and which words were replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

mod circle;
mod words;

use crate::mutant::{table, tree};
use crate::run::{Outcome, root};

/// Which workspace crates a crate may depend on. ARCHITECTURE.md draws it; this table is the one that is enforced.
const MAY_DEPEND: &[(&str, &[&str])] = &[
    ("config", &[]),
    ("atomic", &[]),
    ("ring", &["atomic"]),
    ("wire", &[]),
    ("lookup", &["atomic"]),
    ("mlx5-abi", &[]),
    ("eal", &["atomic", "config"]),
    ("mempool", &["atomic", "eal", "ring", "wire"]),
    ("capture", &["atomic", "eal"]),
    ("dumpcap", &["capture", "config", "eal", "frame-io", "wire"]),
    // Datagrams that are not whole are flows with deadlines: `lookup` has the table of them.
    ("fragment", &["lookup", "mempool", "wire"]),
    ("frame-io", &["eal"]),
    ("uverbs", &["eal"]),
    ("explain", &["eal", "mlx5-abi", "uverbs"]),
    (
        "doctor",
        &[
            "bringup",
            "config",
            "eal",
            "explain",
            "mempool",
            "mlx5-abi",
            "mlx5-common",
            "pmd-mlx",
            "port",
            "uverbs",
            "verbs",
            // The hash by which cards spread flows.
            "wire",
        ],
    ),
    ("port", &["atomic", "capture", "config", "eal", "mempool", "wire"]),
    ("port-soft", &["config", "port", "mempool", "ring", "frame-io", "eal", "wire"]),
    ("mlx5-kernel", &["uverbs", "mlx5-abi", "eal", "wire"]),
    ("mlx5-model", &["mlx5-kernel", "uverbs", "mlx5-abi", "eal", "wire", "frame-io"]),
    ("preload", &["eal"]),
    ("mlx5-run", &["cm", "eal", "mlx5-abi", "mlx5-kernel", "mlx5-model", "preload", "uverbs", "verbs"]),
    ("mlx5-common", &["uverbs", "mlx5-abi", "mempool", "eal"]),
    ("pmd-mlx", &["config", "port", "mlx5-common", "uverbs", "mlx5-abi", "mempool", "eal", "frame-io"]),
    ("verbs", &["mlx5-common", "uverbs", "mlx5-abi", "mempool", "eal"]),
    ("cm", &["uverbs", "verbs"]),
    ("rsocket", &["cm", "verbs"]),
    ("rsock-run", &["bringup", "cm", "config", "eal", "preload", "rsocket", "verbs"]),
    (
        "bringup",
        &[
            "capture",
            "config",
            "eal",
            "mempool",
            "port",
            "port-soft",
            "frame-io",
            "uverbs",
            "pmd-mlx",
            "mlx5-kernel",
            "mlx5-model",
            "verbs",
            "wire",
        ],
    ),
    ("kit", &["bringup", "config", "eal", "mempool", "port"]),
    (
        "pollux",
        &[
            "bringup",
            "cm",
            "config",
            "eal",
            "fragment",
            "kit",
            "lookup",
            "mempool",
            "port",
            "port-soft",
            "ring",
            "rsocket",
            "verbs",
            "wire",
        ],
    ),
    ("rdma-apps", &["bringup", "cm", "config", "eal", "kit", "port", "rsocket", "wire", "verbs"]),
    ("skeleton", &["pollux"]),
    ("apps", &["bringup", "config", "eal", "kit", "lookup", "mempool", "port", "wire"]),
    ("pktgen", &["bringup", "config", "eal", "frame-io", "kit", "mempool", "port", "ring", "wire"]),
    ("testpmd", &["bringup", "config", "eal", "fragment", "kit", "mempool", "port", "wire"]),
    (
        "benches",
        &[
            "bringup",
            "capture",
            "config",
            "eal",
            "kit",
            "lookup",
            "mempool",
            "mlx5-model",
            "pmd-mlx",
            "port",
            "port-soft",
            "ring",
            "uverbs",
            "verbs",
            "wire",
        ],
    ),
    ("tests", &[]),
    ("xtask", &[]),
];

/// The crates that are of use in this workspace alone.
pub(crate) const UNPUBLISHED: &[&str] = &["benches", "tests", "xtask"];

/// What a registry shows of a package, or asks for.
const PUBLISHED: &[&str] = &["description", "license", "readme", "keywords", "categories", "rust-version"];

/// Where `unsafe` may stand: a crate, and the files in its `src` (by stem, with everything below). Each of them has some.
const MAY_BE_UNSAFE: &[(&str, &[&str])] = &[
    ("ring", &[""]),
    ("mempool", &[""]),
    ("eal", &["region", "mmio", "barrier", "hugepage", "lcore", "clock", "ptrace", "signal"]),
    ("lookup", &["memory", "simd"]),
    ("frame-io", &[""]),
    ("uverbs", &["channel", "ioctl", "mr", "page", "routes", "trace"]),
    ("mlx5-kernel", &["uverbs_channel"]),
    ("mlx5-common", &["context", "cq", "dbrec", "mr", "send_ring"]),
    // Mbufs' memory is given to the kernel there.
    ("port-soft", &["af_xdp/pair"]),
    ("pmd-mlx", &["eth/parking", "eth/port/open", "eth/sq", "eth/rq", "eth/rx", "eth/tx"]),
    ("verbs", &["context", "mr", "pd", "provider/mlx5/poll", "provider/mlx5/post", "provider/rxe"]),
    // The kernel writes its answers to where commands point.
    ("cm", &["kernel/file"]),
    ("mlx5-model", &["memory"]),
    ("preload", &["errno", "real"]),
    ("mlx5-run", &["preload"]),
    ("rsock-run", &["preload"]),
    ("wire", &["checksum/simd"]),
    ("benches", &[""]),
    ("tests", &[""]),
];

/// The crates that hold unsafe code and that others stand on, as folders.
pub(crate) fn unsafe_libraries() -> Vec<&'static str> {
    let is_one = |name: &&str| !matches!(*name, "benches" | "tests" | "mlx5-run" | "rsock-run");
    MAY_BE_UNSAFE.iter().map(|(name, _)| *name).filter(is_one).collect()
}

/// How a block of unsafe code begins, in two pieces so that this line is not one.
const UNSAFE_BLOCK: &str = concat!("unsafe", " {");

/// No source file may grow past this: long before it, a second idea has moved in.
const LINES_MAX: usize = 900;

/// Checks every rule and reports all that is wrong, not only the first.
pub(crate) fn tidy() -> Outcome {
    let mut wrong = Vec::new();
    for (name, allowed) in MAY_DEPEND {
        dependencies(name, allowed, &mut wrong)?;
        let manifest = manifest(name)?;
        wrong.extend(unfit(name, &manifest));
        silenced(&root().join(name), &manifest, &mut wrong)?;
        sources(name, &mut wrong)?;
        circle::check(name, &mut wrong)?;
    }
    unused(&mut wrong)?;
    words::check(&mut wrong)?;
    // The table of broken rules speaks of the code as it is.
    wrong.extend(tree::faults(&table::read()?));
    if wrong.is_empty() {
        eprintln!("xtask: tidy: {} crates, no fault", MAY_DEPEND.len());
        return Ok(());
    }
    for fault in &wrong {
        eprintln!("tidy: {fault}");
    }
    Err(format!("tidy found {} faults", wrong.len()))
}

fn manifest(folder: &str) -> Outcome<toml::Table> {
    let path = root().join(folder).join("Cargo.toml");
    let text = fs::read_to_string(&path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
    text.parse().map_err(|why| format!("{}: {why}", path.display()))
}

/// Dependencies that are declared and used nowhere: of the workspace by a crate, of a crate by its code.
fn unused(wrong: &mut Vec<String>) -> Outcome {
    let mut taken = BTreeSet::new();
    for (name, _) in MAY_DEPEND {
        let (mut src, mut all) = (Vec::new(), Vec::new());
        rust_files(&root().join(name).join("src"), &mut src)?;
        rust_files(&root().join(name), &mut all)?;
        let read = |files: &[PathBuf]| -> String {
            files.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect()
        };
        let manifest = manifest(name)?;
        for (table, code) in [("dependencies", read(&src)), ("dev-dependencies", read(&all))] {
            let declared = declared(&manifest, table);
            wrong.extend(declared.iter().filter(|dependency| !names(&code, dependency)).map(|dependency| {
                format!("{name}/Cargo.toml: {dependency} is declared ({table}) and used nowhere; take it out")
            }));
            taken.extend(declared);
        }
    }
    let workspace = manifest(".")?;
    let declared = workspace.get("workspace").and_then(toml::Value::as_table);
    let declared = declared.map(|workspace| declared_here(workspace, "dependencies")).unwrap_or_default();
    wrong.extend(declared.difference(&taken).map(|dependency| {
        format!("Cargo.toml: {dependency} is declared and no crate takes it; take it out")
    }));
    Ok(())
}

/// What a manifest declares in `table`, for every target.
fn declared(manifest: &toml::Table, table: &str) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table);
    targets.chain([manifest]).flat_map(|manifest| declared_here(manifest, table)).collect()
}

fn declared_here(manifest: &toml::Table, table: &str) -> BTreeSet<String> {
    let entries = manifest.get(table).and_then(toml::Value::as_table);
    entries.into_iter().flat_map(toml::Table::keys).cloned().collect()
}

/// Whether code, comments left out, has the name of a crate in it.
fn names(code: &str, dependency: &str) -> bool {
    let name = dependency.replace('-', "_");
    let words = |line: &str| {
        let line = line.split("//").next().unwrap_or_default();
        line.split(|at: char| !at.is_alphanumeric() && at != '_').any(|word| word == name)
    };
    code.lines().any(words)
}

/// The folder of a crate of ours; none for others'.
fn folder_of(dependency: &str) -> Option<&str> {
    if dependency == "pollux" { Some(dependency) } else { dependency.strip_prefix("pollux-") }
}

fn dependencies(name: &str, allowed: &[&str], wrong: &mut Vec<String>) -> Outcome {
    let manifest = manifest(name)?;
    let named = manifest.get("dependencies").and_then(toml::Value::as_table).into_iter().flatten();
    for (dependency, _) in named {
        if let Some(other) = folder_of(dependency)
            && !allowed.contains(&other)
        {
            wrong.push(format!("{name} depends on {other}; the dependency table allows it {allowed:?}"));
        }
    }
    if manifest.get("lints").is_none() {
        wrong.push(format!("{name}/Cargo.toml does not take the workspace's lints"));
    }
    Ok(())
}

/// What keeps a package from being published, or from being kept here.
fn unfit(name: &str, manifest: &toml::Table) -> Vec<String> {
    let package = manifest.get("package").and_then(toml::Value::as_table);
    let has = |key: &str| package.is_some_and(|package| package.contains_key(key));
    if UNPUBLISHED.contains(&name) {
        let stays = package.and_then(|package| package.get("publish")) == Some(&toml::Value::Boolean(false));
        return if stays { Vec::new() } else { vec![format!("{name}/Cargo.toml lacks `publish = false`")] };
    }
    let missing = PUBLISHED.iter().filter(|key| !has(key));
    missing.map(|key| format!("{name}/Cargo.toml: a package that is published has `{key}`")).collect()
}

/// Tests in programs whose manifest says that they have none: they would never run.
fn silenced(folder: &Path, manifest: &toml::Table, wrong: &mut Vec<String>) -> Outcome {
    let programs = manifest.get("bin").and_then(toml::Value::as_array).into_iter().flatten();
    for program in programs.filter(|program| program.get("test") == Some(&toml::Value::Boolean(false))) {
        let text = |key: &str| program.get(key).and_then(toml::Value::as_str);
        let name = text("name").unwrap_or_default();
        let mut files = Vec::new();
        match text("path") {
            Some(path) => files.push(folder.join(path)),
            None => {
                rust_files(&folder.join("src/bin").join(name), &mut files)?;
                files.push(folder.join("src/bin").join(name).with_extension("rs"));
            }
        }
        let has_tests = |file: &&PathBuf| {
            let text = fs::read_to_string(file).unwrap_or_default();
            ["#[test]", "cfg(test)"].iter().any(|mark| text.contains(mark))
        };
        wrong.extend(files.iter().filter(has_tests).map(|file| {
            format!("{}: has tests, and {name} has `test = false` in its manifest", file.display())
        }));
    }
    Ok(())
}

fn sources(name: &str, wrong: &mut Vec<String>) -> Outcome {
    let src = root().join(name).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files)?;
    let mut modules: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    let mut with_unsafe = Vec::new();
    for file in &files {
        let text =
            fs::read_to_string(file).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
        let shown = file.strip_prefix(root()).unwrap_or(file).display().to_string();
        if file.file_name().is_some_and(|file_name| file_name == "mod.rs") {
            wrong.push(format!("{shown}: a module is named after its idea, not mod.rs"));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{shown}: {lines} lines, {LINES_MAX} at most; move the second idea out"));
        }
        if has_unsafe_code(&text) {
            with_unsafe.push(file.strip_prefix(&src).unwrap_or(file).to_path_buf());
        }
        let declared = text
            .lines()
            .filter_map(|line| {
                let line = line.trim();
                let shown =
                    ["pub ", "pub(crate) ", "pub(super) "].iter().find_map(|pub_| line.strip_prefix(pub_));
                shown.unwrap_or(line).strip_prefix("mod ")
            })
            .filter_map(|rest| rest.strip_suffix(';'))
            .map(str::to_owned);
        modules.entry(module_dir(file)).or_default().extend(declared);
    }
    let listed = MAY_BE_UNSAFE.iter().find(|(crate_name, _)| *crate_name == name);
    unsafe_code(name, listed.map_or(&[], |(_, stems)| stems), &with_unsafe, wrong);
    for file in &files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let dir = file.parent().unwrap_or(&src).to_path_buf();
        let is_root = matches!(stem.as_str(), "lib" | "main") || dir.ends_with("bin");
        if !is_root && !modules.get(&dir).is_some_and(|declared| declared.contains(&stem)) {
            wrong.push(format!(
                "{}: no module declares it",
                file.strip_prefix(root()).unwrap_or(file).display()
            ));
        }
    }
    Ok(())
}

/// The folder in which the modules that `file` declares stand.
fn module_dir(file: &Path) -> PathBuf {
    let dir = file.parent().unwrap_or(file).to_path_buf();
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main") | None => dir,
        Some(stem) => dir.join(stem),
    }
}

fn has_unsafe_code(text: &str) -> bool {
    text.lines().any(|line| {
        let code = line.split("//").next().unwrap_or_default();
        code.trim_start().starts_with("unsafe ") || code.contains(UNSAFE_BLOCK)
    })
}

/// Holds the files with unsafe code, as paths in the crate's `src`, against the places that are listed for it.
fn unsafe_code(name: &str, listed: &[&str], files: &[PathBuf], wrong: &mut Vec<String>) {
    let stands = |file: &Path, stem: &str| stem.is_empty() || file.with_extension("").starts_with(stem);
    for file in files.iter().filter(|file| !listed.iter().any(|stem| stands(file, stem))) {
        wrong.push(format!("{name}/src/{}: unsafe code has no place here", file.display()));
    }
    for stem in listed.iter().filter(|stem| !files.iter().any(|file| stands(file, stem))) {
        wrong
            .push(format!("{name}/src/{stem}: is listed for unsafe code and has none; take it off the list"));
    }
}

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) -> Outcome {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(format!("cannot read {}: {why}", dir.display())),
    };
    for entry in entries {
        let path = entry.map_err(|why| format!("cannot read {}: {why}", dir.display()))?.path();
        if path.is_dir() {
            rust_files(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_are_told_from_others() {
        assert_eq!(
            ["pollux", "pollux-mlx5-abi", "polluxes", "libc"].map(folder_of),
            [Some("pollux"), Some("mlx5-abi"), None, None]
        );
    }

    #[test]
    fn what_is_published_says_what_it_is() {
        let unfit = |name, text: &str| unfit(name, &text.parse().expect("a manifest")).len();
        let bare = "[package]\nname = \"pollux-wire\"\ndescription = \"Headers\"\n";
        assert_eq!(unfit("wire", bare), PUBLISHED.len() - 1);
        let rest = PUBLISHED[1..].iter().map(|key| format!("{key}.workspace = true\n"));
        assert_eq!(unfit("wire", &format!("{bare}{}", rest.collect::<String>())), 0);
        assert_eq!((unfit("tests", bare), unfit("tests", &format!("{bare}publish = false\n"))), (1, 0));
    }

    #[test]
    fn programs_that_say_so_have_no_tests() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |file: &str, text: &str| {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(file, text).expect("a file");
        };
        put("src/main.rs", "fn main() {}\n");
        put("src/bin/one.rs", "#[cfg(test)]\nmod tests {}\n");
        put("src/bin/two/main.rs", "mod rest;\n");
        put("src/bin/two/rest.rs", "#[test]\nfn test() {}\n");
        let wrong = |bins: &str| {
            let mut wrong = Vec::new();
            silenced(folder.path(), &bins.parse().expect("a manifest"), &mut wrong).expect("files");
            wrong.len()
        };
        assert_eq!(wrong("[[bin]]\nname = \"none\"\npath = \"src/main.rs\"\ntest = false\n"), 0);
        assert_eq!(
            wrong("[[bin]]\nname = \"one\"\ntest = false\n[[bin]]\nname = \"two\"\ntest = false\n"),
            2
        );
        assert_eq!(wrong("[[bin]]\nname = \"one\"\n"), 0, "they run");
    }

    #[test]
    fn a_dependency_is_used_where_code_names_it() {
        let code = "use signal_hook::flag; // with memmap2\n/// memmap2::Mmap\nlet libcx = 1;\n";
        assert!(names(code, "signal-hook") && !names(code, "memmap2") && !names(code, "libc"));
        let manifest = "[dependencies]\na.workspace = true\n[target.'cfg(loom)'.dependencies]\nb = \"1\"\n";
        let manifest = manifest.parse().expect("a manifest");
        assert_eq!(declared(&manifest, "dependencies").into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(declared(&manifest, "dev-dependencies").is_empty());
    }

    #[test]
    fn unsafe_code_stands_where_it_is_listed_and_every_place_has_some() {
        let files = ["sys.rs", "rx/vector.rs", "rx.rs", "tx.rs"].map(PathBuf::from);
        let wrong = |listed: &[&str]| {
            let mut wrong = Vec::new();
            unsafe_code("pmd", listed, &files, &mut wrong);
            wrong
        };
        assert!(wrong(&[""]).is_empty() && wrong(&["sys", "rx", "tx"]).is_empty());
        assert_eq!(wrong(&["sys", "rx"]), ["pmd/src/tx.rs: unsafe code has no place here"]);
        let why = ["pmd/src/uar: is listed for unsafe code and has none; take it off the list"];
        assert_eq!(wrong(&["sys", "rx", "tx", "uar"]), why);
    }
}
