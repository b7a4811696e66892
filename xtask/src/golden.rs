//! `golden`: what a C compiler makes of the headers that mlx5-abi and uverbs speak of, compared with the committed files.
//!
//! Four small programs in `mlx5-abi/golden/` print sizes, places and values. Which ones is said by the names in the
//! golden files themselves: a new line there may be a name alone, and is completed. A fifth in `uverbs/golden/` prints what
//! the `names.h` beside it lists, for much of it is numbers under names of our own. A file that comes out differently is
//! written anew and the task fails, so that the change is looked at.
//!
//! Needs a C compiler, tar with xz, and Debian's `linux-libc-dev`, `libibverbs-dev` and `linux-source-6.1`; DPDK's source,
//! which has what Linux's header leaves out, is fetched by `apt-get source`. The headers of a later release may have grown
//! structures; the golden files name what they were made from.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian;
use crate::run::{Outcome, must, output, root};

/// The files of Linux's source that are read, and which types of each.
const HEADERS: &[(&str, &[&str])] = &[
    ("include/linux/mlx5/device.h", TYPES),
    ("include/linux/mlx5/qp.h", TYPES),
    ("include/linux/mlx5/cq.h", TYPES),
    ("include/linux/mlx5/doorbell.h", TYPES),
    ("include/linux/mlx5/driver.h", &["enum"]),
    ("include/linux/mlx5/port.h", &["enum"]),
    ("include/linux/mlx5/fs.h", &["enum"]),
    ("include/linux/mlx5/vport.h", &["enum"]),
    ("drivers/net/ethernet/mellanox/mlx5/core/cmd.c", &["enum"]),
    ("drivers/net/ethernet/mellanox/mlx5/core/pagealloc.c", &["enum"]),
    ("drivers/net/ethernet/mellanox/mlx5/core/fs_core.h", &["enum"]),
];

/// The file of DPDK's source that is read: it names what stands in a umem, which Linux never uses.
const DPDK_HEADERS: &[(&str, &[&str])] =
    &[("drivers/common/mlx5/mlx5_prm.h", &["struct mlx5_ifc_", "union mlx5_ifc_", "struct regexp_"])];

const TYPES: &[&str] = &["enum", "struct", "union"];

/// Makes the golden files again.
pub(crate) fn golden() -> Outcome {
    let mlx5 = root().join("mlx5-abi/golden");
    let work = crate::run::target_dir().join("golden");
    let source = Source::newest()?;
    let unpacked = source.unpack(&work)?;
    let include = unpacked.join("include");
    write(&work.join("mlx5-abi/types.h"), &types(&unpacked, HEADERS)?)?;
    let dpdk_version = dpdk(&work)?;
    let compiler = output(Command::new("cc").arg("-dumpfullversion"))?;
    let compiler = format!("gcc {}", compiler.trim());
    let linux = format!("{compiler}, {} {}", source.package, version(&source.package)?);
    let user = format!(
        "{compiler}, linux-libc-dev {}, libibverbs-dev {}",
        version("linux-libc-dev")?,
        version("libibverbs-dev")?
    );
    let dpdk = format!("{compiler}, dpdk {dpdk_version}");
    let rdma = format!("{compiler}, linux-libc-dev {}", version("linux-libc-dev")?);
    let mut changed = Vec::new();
    for (folder, name, made_from, include) in [
        ("mlx5-abi", "layout", &user, None),
        ("mlx5-abi", "linux", &linux, Some(&include)),
        ("mlx5-abi", "ifc", &linux, Some(&include)),
        ("mlx5-abi", "dpdk", &dpdk, None),
        ("uverbs", "layout", &rdma, None),
    ] {
        let place = root().join(folder).join("golden");
        let file = place.join(name).with_extension("txt");
        let before = read(&file)?;
        // Where the names are not listed by hand, they are those of the golden file.
        let work = work.join(folder);
        if !place.join("names.h").exists() {
            write(&work.join("names.h"), &names(&before)?)?;
        }
        let mut folders = vec![&work, &place, &mlx5];
        folders.extend(include);
        let facts = print(&place.join(name).with_extension("c"), &work.join(name), &folders)?;
        if facts == body(&before) {
            eprintln!("xtask: golden: {} agrees with {made_from}", file.display());
            continue;
        }
        let head = format!("# Printed by {folder}/golden/{name}.c: {made_from}.\n");
        write(&file, &(head + &facts))?;
        changed.push(file.display().to_string());
    }
    if changed.is_empty() {
        Ok(())
    } else {
        Err(format!("golden: written anew, look at it: {}", changed.join(", ")))
    }
}

/// Compiles one of the programs, with headers from `folders`, and runs it.
fn print(source: &Path, program: &Path, folders: &[&PathBuf]) -> Outcome<String> {
    if let Some(folder) = program.parent() {
        fs::create_dir_all(folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
    }
    let mut compile = Command::new("cc");
    compile.arg("-w");
    for folder in folders {
        compile.arg("-I").arg(folder);
    }
    must(compile.arg(source).arg("-o").arg(program))?;
    output(&mut Command::new(program))
}

/// The facts in a golden file, without its head.
fn body(golden: &str) -> String {
    golden.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

/// What the program is to print: one macro call for each line of the golden file.
fn names(golden: &str) -> Outcome<String> {
    let mut calls = String::new();
    for line in golden.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let (kind, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let call = match (kind, name.split_once('.')) {
            (_, None) if name.is_empty() => return Err(format!("golden: `{line}` has no name")),
            ("struct", None) => format!("STRUCT({name})"),
            ("const", None) => format!("CONST({name})"),
            ("field", Some((whole, member))) => match member.split_once("..") {
                Some((first, last)) => format!("SPAN({whole}, {first}, {last})"),
                None => format!("FIELD({whole}, {member})"),
            },
            _ => return Err(format!("golden: `{line}` is no struct, field or const with a name")),
        };
        let _ = writeln!(calls, "{call}");
    }
    Ok(calls)
}

/// Cuts the structures out of DPDK's header, which does not compile without DPDK; answers DPDK's version.
fn dpdk(work: &Path) -> Outcome<String> {
    let source = debian::Source::fetch("dpdk", &debian::release()?)??;
    let into = work.join(format!("dpdk-{}", source.version));
    let [(header, _)] = DPDK_HEADERS else { return Err("golden: one header of DPDK is read".to_owned()) };
    if !into.join(header).exists() {
        source.unpack(&[&format!("*/{header}")], &into)?;
    }
    write(&work.join("mlx5-abi/prm.h"), &types(&into, DPDK_HEADERS)?)?;
    Ok(source.version)
}

/// The types and plain numbers that headers declare, without the code between them.
fn types(source: &Path, headers: &[(&str, &[&str])]) -> Outcome<String> {
    let mut cut = String::new();
    for (header, kinds) in headers {
        let text = read(&source.join(header))?;
        let mut inside = false;
        for line in text.lines() {
            let opens = kinds.iter().any(|kind| line.starts_with(kind))
                && line.contains('{')
                && !line.contains(['(', ';', '=']);
            if inside || opens || is_number(line) {
                let _ = writeln!(cut, "{line}");
            }
            inside = (inside || opens) && !line.starts_with('}');
        }
    }
    Ok(cut)
}

/// Whether a line is `#define MLX5_NAME NUMBER`.
fn is_number(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let (define, name, value, end) = (words.next(), words.next(), words.next(), words.next());
    define == Some("#define")
        && name.is_some_and(|name| name.starts_with("MLX5_") && !name.contains('('))
        && value.is_some_and(|value| value.starts_with(|first: char| first.is_ascii_digit()))
        && end.is_none()
}

/// Debian's package of the kernel's source.
struct Source {
    package: String,
    archive: PathBuf,
}

impl Source {
    fn newest() -> Outcome<Self> {
        let packages = fs::read_dir("/usr/src").map_err(|why| format!("cannot read /usr/src: {why}"))?;
        packages
            .filter_map(|entry| {
                let archive = entry.ok()?.path();
                let package =
                    archive.file_name().and_then(OsStr::to_str)?.strip_suffix(".tar.xz")?.to_owned();
                package.starts_with("linux-source-").then_some(Self { package, archive })
            })
            .max_by_key(|source| release(&source.package))
            .ok_or_else(|| "no /usr/src/linux-source-*.tar.xz: apt-get install linux-source-6.1".to_owned())
    }

    /// Unpacks what is read, once for each archive, and answers the top of the source.
    fn unpack(&self, work: &Path) -> Outcome<PathBuf> {
        let into = work.join(&self.package);
        let stamp = into.join("unpacked");
        let whole = version(&self.package)?;
        if fs::read_to_string(&stamp).is_ok_and(|was| was == whole) {
            return Ok(into);
        }
        fs::create_dir_all(&into).map_err(|why| format!("cannot make {}: {why}", into.display()))?;
        let mut tar = Command::new("tar");
        tar.arg("-xJf").arg(&self.archive).arg("-C").arg(&into);
        tar.args(["--strip-components=1", "--wildcards", "*/include/linux/mlx5/*.h"]);
        tar.args([
            "*/mellanox/mlx5/core/cmd.c",
            "*/mellanox/mlx5/core/pagealloc.c",
            "*/mellanox/mlx5/core/fs_core.h",
        ]);
        must(&mut tar)?;
        write(&stamp, &whole)?;
        Ok(into)
    }
}

/// The numbers of a release, to compare: 6.12 comes after 6.1.
fn release(package: &str) -> Vec<u32> {
    package.rsplit('-').next().unwrap_or_default().split('.').filter_map(|part| part.parse().ok()).collect()
}

fn version(package: &str) -> Outcome<String> {
    output(Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]))
        .map_err(|why| format!("{why}; apt-get install {package}"))
}

fn read(file: &Path) -> Outcome<String> {
    fs::read_to_string(file).map_err(|why| format!("cannot read {}: {why}", file.display()))
}

fn write(file: &Path, text: &str) -> Outcome {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
    }
    fs::write(file, text).map_err(|why| format!("cannot write {}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::{is_number, names, release};

    #[test]
    fn names_become_calls_and_anything_else_is_refused() {
        let golden = "# head\nstruct a\nfield a.b 0 4\nfield a.b.c\nfield a.b..c\nconst D 0x1\n";
        assert_eq!(
            names(golden).unwrap(),
            "STRUCT(a)\nFIELD(a, b)\nFIELD(a, b.c)\nSPAN(a, b, c)\nCONST(D)\n"
        );
        for wrong in ["struct a.b", "field a", "union a", "const", "const a.b"] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn plain_numbers_are_told_from_code() {
        assert!(is_number("#define MLX5_BF_OFFSET\t      0x800"));
        assert!(!is_number("#define MLX5_GET(typ, p, fld) 1"));
        assert!(!is_number("#define MLX5_SIZE (1 << 2)"));
        assert!(!is_number("#define MLX5_LONG 0x1 \\"));
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        assert!(release("linux-source-6.12") > release("linux-source-6.1"));
        assert!(release("linux-source-7.2") > release("linux-source-6.12"));
    }
}
