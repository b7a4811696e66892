//! Where lines go.

use std::fmt::Display;
use std::io::{self, Write};

use pollux_bringup::BringupError;

/// Where lines go: standard output, which `--json` keeps for its one line.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    /// Standard output is for the JSON line alone.
    pub json: bool,
}

impl Console {
    /// Prints whole lines at once, so that two programs' do not mix. A reader that went away is no error.
    pub fn print(self, text: &str) {
        let _ = self.write(text);
    }

    /// As [`print`](Self::print), and says what became of it.
    pub(crate) fn write(self, text: &str) -> io::Result<()> {
        if self.json {
            return io::stderr().write_all(text.as_bytes());
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// The JSON line, if it is wanted: what `report` makes shows it, on one line, as `serde_json::Value` does.
    ///
    /// # Errors
    /// [`BringupError::Runtime`]: standard output does not take it, as on a full disk. A reader that went away is no error.
    pub fn json<D: Display>(self, report: impl FnOnce() -> D) -> Result<(), BringupError> {
        if self.json { told(line(&report().to_string())) } else { Ok(()) }
    }
}

/// One line on standard output.
pub(crate) fn line(text: &str) -> io::Result<()> {
    io::stdout().write_all(format!("{text}\n").as_bytes())
}

/// What a report came to that went to standard output.
pub(crate) fn told(written: io::Result<()>) -> Result<(), BringupError> {
    match written {
        // A reader that went away is no error of ours.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(BringupError::Runtime(format!("cannot write the report to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
