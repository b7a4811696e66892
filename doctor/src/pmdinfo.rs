//! What programs and libraries tell of the drivers in them: name, keys of device arguments, kernel modules, PCI functions.
//!
//! Pollux's programs and DPDK's carry strings for it in the section `.rodata` ([`DriverInfo`]). A program of DPDK's has its drivers in
//! libraries that it names, or in a folder of plugins that its EAL names; they are looked for as the dynamic loader does, and nothing
//! is run. Source: DPDK `usertools/dpdk-pmdinfo.py`; ld.so(8).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH};
use object::read::elf::{ElfFile, FileHeader};
use object::{Architecture, Object, ObjectSection, ReadCache, ReadRef};
use pollux_port::driver::{DriverInfo, PCI_ANY};
use serde_json::{Map, Value};

/// What a text on the folder of plugins begins with. Source: DPDK `lib/eal/common/eal_common_options.c`, `dpdk_solib_path`.
const PLUGINS_PREFIX: &str = "DPDK_PLUGIN_PATH=";
/// Libraries of DPDK; others have no drivers.
const LIBRARIES: &str = "librte_";
/// Files that are read at most.
const FILES_MAX: usize = 4096;
/// How deep folders of plugins are searched.
const DEPTH_MAX: usize = 8;

/// Why there is nothing to tell of a file.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}; give a program or a shared library", path = .path.display())]
pub struct PmdInfoError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drivers {
    /// One object for each driver, in the order of files and places in them: `name`, `params`, `kmod`, `pci_ids`, as far as there are.
    pub drivers: Vec<Map<String, Value>>,
    /// What could not be read beside the files that were named.
    pub warnings: Vec<String>,
}

/// Looks into programs and libraries, those of DPDK's that they need, and with `plugins` those in the folder of plugins.
///
/// # Errors
/// A file that was named is none, or not of ELF.
pub fn read(files: &[PathBuf], plugins: bool) -> Result<Drivers, PmdInfoError> {
    let mut found = Drivers::default();
    let mut seen = BTreeSet::new();
    let mut binaries = Vec::new();
    for file in files {
        let binary = Binary::read(file)?;
        if seen.insert(real(file)) {
            binaries.push(binary);
        }
    }
    needed(&mut binaries, &mut seen, &mut found.warnings);
    if plugins && let Some(folder) = binaries.iter().find_map(Binary::plugins) {
        let mut paths = Vec::new();
        files_below(&folder, DEPTH_MAX, &mut paths);
        paths.sort();
        for path in paths.into_iter().filter(|path| seen.insert(real(path))) {
            match Binary::read(&path) {
                Ok(binary) => binaries.push(binary),
                Err(error) => found.warnings.push(error.to_string()),
            }
        }
    }
    for binary in &binaries {
        for text in &binary.drivers {
            match driver(text) {
                Ok(driver) => found.drivers.push(driver),
                Err(problem) => found.warnings.push(format!("{}: {problem}", binary.path.display())),
            }
        }
    }
    Ok(found)
}

/// The file itself, whatever links lead to it.
fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Adds the libraries of DPDK's that the binaries need, and those that these need.
fn needed(binaries: &mut Vec<Binary>, seen: &mut BTreeSet<PathBuf>, warnings: &mut Vec<String>) {
    let system = system_folders();
    let mut at = 0;
    while at < binaries.len() {
        let mut more = Vec::new();
        let binary = &binaries[at];
        for name in binary.needed.iter().filter(|name| name.starts_with(LIBRARIES) && !name.contains('/')) {
            let folders = binary.folders.iter().chain(&system);
            let library = folders.map(|folder| folder.join(name)).find_map(|path| {
                // Of another machine's libraries none is meant.
                Binary::read(&path).ok().filter(|library| library.machine == binary.machine)
            });
            match library {
                Some(library) => more.push(library),
                None => warnings.push(format!("{}: needs {name}, which is not found", binary.path.display())),
            }
        }
        binaries.extend(more.into_iter().filter(|library| seen.insert(real(&library.path))));
        at += 1;
        if binaries.len() > FILES_MAX {
            warnings.push(format!("more than {FILES_MAX} files: the rest is left out"));
            return;
        }
    }
}

/// Where the dynamic loader looks for libraries of any program.
fn system_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .map(|list| std::env::split_paths(&list).collect())
        .unwrap_or_default();
    let mut files = vec![PathBuf::from("/etc/ld.so.conf")];
    let listed = fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten().map(|entry| entry.path());
    files.extend(listed.filter(|file| file.extension().is_some_and(|extension| extension == "conf")));
    files.sort();
    for file in files {
        let text = fs::read_to_string(file).unwrap_or_default();
        folders.extend(text.lines().map(str::trim).filter(|line| line.starts_with('/')).map(PathBuf::from));
    }
    folders.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
    folders
}

/// Files of a folder and of those in it; links to folders are not followed.
fn files_below(folder: &Path, depth: usize, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if into.len() >= FILES_MAX {
            return;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => files_below(&entry.path(), depth - 1, into),
            _ if entry.path().is_file() => into.push(entry.path()),
            _ => {}
        }
    }
}

/// What is of interest in a file.
struct Binary {
    path: PathBuf,
    machine: (Architecture, bool, bool),
    /// The texts on drivers, without their prefix.
    drivers: Vec<String>,
    /// The folder of plugins, if it names one.
    plugins: Option<String>,
    /// Libraries by name.
    needed: Vec<String>,
    /// Where it wants them looked for.
    folders: Vec<PathBuf>,
}

impl Binary {
    fn read(path: &Path) -> Result<Self, PmdInfoError> {
        let fail = |problem: String| PmdInfoError { path: path.to_owned(), problem };
        let kind = fs::metadata(path).map_err(|why| fail(format!("cannot be read: {why}")))?;
        if kind.is_dir() {
            return Err(fail("is a directory".into()));
        }
        // Reading another kind may wait forever, or never end.
        if !kind.is_file() {
            return Err(fail("is no regular file".into()));
        }
        let file = File::open(path).map_err(|why| fail(format!("cannot be opened: {why}")))?;
        let cache = ReadCache::new(file);
        let parsed = object::File::parse(&cache)
            .map_err(|why| fail(format!("is no ELF file that can be read ({why})")))?;
        let section = parsed.section_by_name(".rodata").map(|section| section.data()).transpose();
        let data = section
            .map_err(|why| fail(format!("its section .rodata cannot be read ({why})")))?
            .unwrap_or_default();
        let mut binary = Self {
            path: path.to_owned(),
            machine: (parsed.architecture(), parsed.is_64(), parsed.is_little_endian()),
            drivers: strings(data, DriverInfo::PREFIX.trim_end()).map(str::to_owned).collect(),
            plugins: strings(data, PLUGINS_PREFIX).next().map(|path| path.trim().to_owned()),
            needed: Vec::new(),
            folders: Vec::new(),
        };
        match &parsed {
            object::File::Elf32(file) => binary.link(file),
            object::File::Elf64(file) => binary.link(file),
            _ => return Err(fail("is no ELF file".into())),
        }
        Ok(binary)
    }

    /// Reads what the dynamic loader is told. Of a table that is broken there is no more to learn.
    fn link<'data, Elf: FileHeader, R: ReadRef<'data>>(&mut self, file: &ElfFile<'data, Elf, R>) {
        let Ok(table) = file.elf_dynamic_table() else { return };
        let origin = real(&self.path).parent().map(|folder| folder.display().to_string()).unwrap_or_default();
        for entry in table.iter().filter(|entry| [DT_NEEDED, DT_RPATH, DT_RUNPATH].contains(&entry.tag)) {
            let Some(text) = table.string(entry).ok().and_then(|text| std::str::from_utf8(text).ok()) else {
                continue;
            };
            if entry.tag == DT_NEEDED {
                self.needed.push(text.to_owned());
            } else {
                let text = text.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
                self.folders.extend(text.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from));
            }
        }
    }

    fn plugins(&self) -> Option<PathBuf> {
        self.plugins.as_ref().map(PathBuf::from)
    }
}

/// The texts that begin with `prefix`, without it: each is a run of printable bytes that ends with a zero.
fn strings<'data>(data: &'data [u8], prefix: &'data str) -> impl Iterator<Item = &'data str> {
    let printable = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t'..=b'\r');
    let runs = data.split_inclusive(move |byte| !printable(byte)).filter_map(|run| run.strip_suffix(&[0]));
    runs.filter_map(move |run| std::str::from_utf8(run.strip_prefix(prefix.as_bytes())?).ok())
}

/// The names of the parts of a PCI function's identity.
const PCI_PARTS: [&str; 4] = ["vendor", "device", "subsystem_vendor", "subsystem_device"];

/// A driver of its text: PCI functions by hexadecimal numbers, and what stands for any is left out.
fn driver(text: &str) -> Result<Map<String, Value>, String> {
    let mut driver: Map<String, Value> =
        serde_json::from_str(text).map_err(|why| format!("a text on a driver is no JSON object ({why})"))?;
    // In place of the numbers, and behind all else.
    let functions = match driver.shift_remove("pci_ids") {
        None => Vec::new(),
        Some(Value::Array(functions)) => functions,
        Some(_) => return Err("a driver's pci_ids are no list".into()),
    };
    let mut ids = Vec::new();
    for function in functions {
        let numbers: Option<Vec<u64>> =
            function.as_array().and_then(|parts| parts.iter().map(Value::as_u64).collect());
        let numbers = numbers.ok_or("one of a driver's pci_ids is no list of numbers")?;
        let parts = PCI_PARTS.iter().zip(numbers).filter(|(_, number)| *number != u64::from(PCI_ANY));
        let id: Map<String, Value> =
            parts.map(|(part, number)| ((*part).to_owned(), format!("{number:04x}").into())).collect();
        if !id.is_empty() {
            ids.push(Value::Object(id));
        }
    }
    if !ids.is_empty() {
        driver.insert("pci_ids".into(), ids.into());
    }
    Ok(driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_whole() {
        let data = b"x\0A=1\0\x01A=2\0xA=3\0A=4\x01A=5\0\0A=\xff\0A=6\t\0A=7";
        assert_eq!(strings(data, "A=").collect::<Vec<_>>(), ["1", "2", "5", "6\t"]);
    }

    #[test]
    fn functions_are_told_in_hexadecimal() {
        let told = |text: &str| driver(text).map(|driver| Value::Object(driver).to_string());
        let card =
            r#" {"name": "a", "pci_ids": [[5555, 4115, 65535, 65535], [1, 2, 3, 4], [65535]], "kmod": "b"}"#;
        let expected = r#"{"name":"a","kmod":"b","pci_ids":[{"vendor":"15b3","device":"1013"},{"vendor":"0001","device":"0002","subsystem_vendor":"0003","subsystem_device":"0004"}]}"#;
        assert_eq!(told(card).as_deref(), Ok(expected));
        assert_eq!(told(r#"{"name":"a","pci_ids":[]}"#).as_deref(), Ok(r#"{"name":"a"}"#));
        assert_eq!(told("{}").as_deref(), Ok("{}"));
        for wrong in ["", "[]", "{", r#"{"pci_ids":1}"#, r#"{"pci_ids":[1]}"#, r#"{"pci_ids":[[-1]]}"#] {
            assert!(told(wrong).is_err(), "{wrong}");
        }
    }
}
