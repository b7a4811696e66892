//! A machine's files, described by one text file and unpacked into a folder.
//!
//! Lines, in this order of their effect; later ones win:
//!
//! ```text
//! # a comment
//! include NAME              the machine NAME, under what follows
//! run OPTIONS               options that doctor is run with
//! word NAME TEXT            {NAME} stands for TEXT from here on; {other} is a user who is not the one of the tests
//! each 0-3 LINE             LINE for each number, which {n} stands for
//! PATH = TEXT               a file with TEXT and a line's end; \n and \t are escapes
//! PATH x HEX                a file of bytes; `00*44` repeats
//! PATH -> TARGET            a link
//! PATH/                     a folder
//! mode OCTAL PATH           its mode
//! - PATH                    there is no such file or folder
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use pollux_eal::topology::parse_list;
use tempfile::TempDir;

/// Where machines are described.
pub(crate) fn machines() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines")
}

/// A machine.
pub(crate) struct Tree {
    folder: TempDir,
    /// Options of the line `run`.
    pub(crate) options: Vec<String>,
    words: BTreeMap<String, String>,
}

impl Tree {
    /// Unpacks the machine of that name.
    pub(crate) fn of(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let me = fs::metadata(folder.path()).expect("it is there").uid();
        let words = BTreeMap::from([("other".to_owned(), (me + 1).to_string())]);
        let mut tree = Self { folder, options: Vec::new(), words };
        tree.include(name);
        tree
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn include(&mut self, name: &str) {
        let path = machines().join(format!("{name}.txt"));
        let text = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            self.line(line);
        }
    }

    fn line(&mut self, line: &str) {
        let mut line = line.to_owned();
        for (word, text) in &self.words {
            line = line.replace(&format!("{{{word}}}"), text);
        }
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["include", name] => self.include(name),
            ["run", ..] => self.options = words[1..].iter().map(|word| (*word).to_owned()).collect(),
            ["word", name, ..] => {
                self.words.insert((*name).to_owned(), words[2..].join(" "));
            }
            ["each", numbers, ..] => {
                for number in parse_list(numbers).expect("a list of numbers") {
                    self.line(&words[2..].join(" ").replace("{n}", &number.to_string()));
                }
            }
            ["mode", mode, path] => {
                let mode = u32::from_str_radix(mode, 8).expect("an octal number");
                fs::set_permissions(self.path().join(path), fs::Permissions::from_mode(mode))
                    .expect("a mode");
            }
            ["-", path] => self.remove(path),
            [path, "->", target] => {
                self.remove(path);
                symlink(target, self.place(path)).expect("a link");
            }
            [path, "x", ..] => fs::write(self.place(path), bytes(&words[2..])).expect("a file"),
            [path, "=", ..] => {
                let text = words[2..].join(" ").replace("\\n", "\n").replace("\\t", "\t");
                fs::write(self.place(path), format!("{text}\n")).expect("a file");
            }
            [path] if path.ends_with('/') => fs::create_dir_all(self.path().join(path)).expect("a folder"),
            _ => panic!("no such line: {line}"),
        }
    }

    /// The path of something whose folder is there.
    pub(crate) fn place(&self, path: &str) -> PathBuf {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("folders");
        path
    }

    fn remove(&self, path: &str) {
        let path = self.path().join(path);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&path).expect("a folder"),
            Ok(_) => fs::remove_file(&path).expect("a file"),
            Err(_) => {}
        }
    }
}

fn bytes(words: &[&str]) -> Vec<u8> {
    let hex = |text: &str| -> Vec<u8> {
        text.as_bytes()
            .chunks(2)
            .map(|pair| {
                u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal")
            })
            .collect()
    };
    words
        .iter()
        .flat_map(|word| match word.split_once('*') {
            Some((one, count)) => hex(one).repeat(count.parse().expect("a number")),
            None => hex(word),
        })
        .collect()
}
