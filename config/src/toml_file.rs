//! A file in TOML, whose mistakes are told with their places.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::ConfigError;

/// Bytes; what people write is a thousandth of it.
const LARGEST: u64 = 1 << 20;

/// The text of a file.
#[derive(Debug)]
pub struct TomlFile {
    path: PathBuf,
    text: String,
}

impl TomlFile {
    /// Reads a file of at most 1 MiB.
    ///
    /// # Errors
    /// [`ConfigError::ProfileRead`]: it cannot be read, is no text, or is larger.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::ProfileRead { path: path.into(), source };
        let file = File::open(path).map_err(unreadable)?;
        let mut text = String::new();
        // A device or a pipe may never end.
        file.take(LARGEST + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > LARGEST {
            let problem = format!("the file is larger than the limit of {} MiB", LARGEST >> 20);
            return Err(unreadable(std::io::Error::other(problem)));
        }
        Ok(Self::new(path, text))
    }

    /// A file of that text, which was read already.
    #[must_use]
    pub fn new(path: &Path, text: String) -> Self {
        Self { path: path.into(), text }
    }

    /// Reads what the text says.
    ///
    /// # Errors
    /// [`ConfigError::Profile`], with the place of the first mistake.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        toml::from_str(&self.text).map_err(|error| {
            self.error(error.span().map_or(self.text.len(), |span| span.start), error.message())
        })
    }

    /// A mistake at that byte of the text.
    #[must_use]
    pub fn error(&self, offset: usize, problem: &str) -> ConfigError {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ConfigError::Profile {
            path: self.path.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            problem: problem
                .lines()
                .map(str::trim)
                .collect::<Vec<_>>()
                .join(", ")
                .replace("expected u16", "expected a number from 0 to 65535")
                .replace("expected u32", "expected a number from 0 to 4294967295"),
        }
    }
}
