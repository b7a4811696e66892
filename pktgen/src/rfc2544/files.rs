//! The report in files: for people, for programs, and the plot.

use std::path::Path;

use pollux_bringup::BringupError;
use pollux_bringup::program::OutputFile;

use super::plot;
use super::report::Report;

/// The files of a report, each of which takes its place once it is whole.
#[derive(Debug)]
pub(crate) struct Files {
    markdown: OutputFile,
    json: OutputFile,
    plot: OutputFile,
}

impl Files {
    /// Sees whether they can be written, and writes nothing.
    pub(crate) fn at(path: &Path) -> Result<Self, BringupError> {
        let file = |kind: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(kind);
            OutputFile::at(Path::new(&name))
                .map_err(|why| BringupError::Usage(format!("--report {}: {why}", name.display())))
        };
        Ok(Self { markdown: file(".md")?, json: file(".json")?, plot: file(".svg")? })
    }

    /// Writes them; `json` is the whole report of the program.
    pub(crate) fn write(&self, report: &Report, json: &str) -> Result<(), BringupError> {
        let texts = [
            (&self.markdown, report.markdown()),
            (&self.json, format!("{json}\n")),
            (&self.plot, plot::svg(report)),
        ];
        for (file, text) in texts {
            file.write(text.as_bytes()).map_err(|why| {
                BringupError::Runtime(format!("cannot write {}: {why}", file.path().display()))
            })?;
        }
        Ok(())
    }
}
