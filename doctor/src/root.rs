//! The directory under which a machine's `sys`, `proc` and `dev` stand: `/`, or a copy of another machine's files.
//!
//! Whatever stands there, a read ends soon and takes little memory; what cannot be read is a [`Gap`], not a guess.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use pollux_eal::sysfs;
use pollux_eal::topology::parse_list;

/// Most entries of a folder that are looked at. `/proc` of a busy machine has tens of thousands.
const ENTRIES_MAX: usize = 65_536;

/// Longest part of a file that is repeated in a message.
const QUOTED_MAX: usize = 40;

/// Why something is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The file, as on the machine itself: `/proc/self/status`.
    pub(crate) file: String,
    /// What is wrong with it.
    pub(crate) why: Why,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is not there.
    Missing,
    /// It is there and cannot be read.
    Unreadable(String),
    /// It does not hold what it should: what that is, and what it holds.
    Malformed(&'static str, String),
}

impl Gap {
    /// Whether there is no such file, which often is an answer.
    #[must_use]
    pub(crate) fn is_missing(&self) -> bool {
        self.why == Why::Missing
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Missing => write!(f, "{} is not there", self.file),
            Why::Unreadable(why) => write!(f, "{} cannot be read: {why}", self.file),
            Why::Malformed(wanted, found) => write!(f, "{} holds {found:?}, not {wanted}", self.file),
        }
    }
}

/// The directory.
#[derive(Clone, Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// A root at `path`, which need not exist.
    #[must_use]
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The directory itself.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Whether it is this machine's own.
    #[must_use]
    pub(crate) fn is_own(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where `file` (`sys/class/net`) stands.
    #[must_use]
    pub(crate) fn join(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Whether there is such a file or folder.
    #[must_use]
    pub(crate) fn has(&self, file: &str) -> bool {
        self.join(file).exists()
    }

    /// The text of a file, without the white space at its end.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn text(&self, file: &str) -> Result<String, Gap> {
        let text = sysfs::read(&self.join(file)).map_err(|error| gap(file, &error))?;
        Ok(text.trim_end().to_owned())
    }

    /// The first `bytes_max` bytes of a file as text, for files that grow with the machine; what is no text is replaced.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn head(&self, file: &str, bytes_max: u64) -> Result<String, Gap> {
        self.bytes(file, bytes_max).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first `bytes_max` bytes of a file.
    ///
    /// # Errors
    /// Why they are not known.
    pub(crate) fn bytes(&self, file: &str, bytes_max: u64) -> Result<Vec<u8>, Gap> {
        sysfs::read_head(&self.join(file), bytes_max).map_err(|error| gap(file, &error))
    }

    /// The number in a file.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn number<T: FromStr>(&self, file: &str) -> Result<T, Gap> {
        let text = self.text(file)?;
        text.parse().map_err(|_| malformed(file, "a number", &text))
    }

    /// The processors in a file in Linux's list format.
    ///
    /// # Errors
    /// Why they are not known.
    pub(crate) fn cpus(&self, file: &str) -> Result<Vec<u16>, Gap> {
        let text = self.text(file)?;
        parse_list(&text).ok_or_else(|| malformed(file, "a list of processors", &text))
    }

    /// The names in a folder, sorted.
    ///
    /// # Errors
    /// Why they are not known.
    pub(crate) fn names(&self, folder: &str) -> Result<Vec<String>, Gap> {
        let entries = fs::read_dir(self.join(folder)).map_err(|error| gap(folder, &error))?;
        let names = entries.take(ENTRIES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(names)
    }

    /// The name of what a link leads to.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn link(&self, file: &str) -> Result<String, Gap> {
        let target = fs::canonicalize(self.join(file)).map_err(|error| gap(file, &error))?;
        let name = target.file_name().and_then(|name| name.to_str());
        name.map(str::to_owned).ok_or_else(|| malformed(file, "a link", ""))
    }
}

/// A file that does not hold what is `wanted`.
pub(crate) fn malformed(file: &str, wanted: &'static str, found: &str) -> Gap {
    let found = found.chars().take(QUOTED_MAX).collect();
    Gap { file: format!("/{file}"), why: Why::Malformed(wanted, found) }
}

fn gap(file: &str, error: &io::Error) -> Gap {
    let why = match error.kind() {
        io::ErrorKind::NotFound => Why::Missing,
        io::ErrorKind::InvalidData => Why::Unreadable(error.to_string()),
        kind => Why::Unreadable(kind.to_string()),
    };
    Gap { file: format!("/{file}"), why }
}
