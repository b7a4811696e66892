//! Capture files: one, or a row of them of which the last are kept.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pollux_frame_io::FrameError;
use pollux_frame_io::pcap::{PcapFormat, PcapPlace, PcapSection, PcapStatistics, PcapWriter, Timestamp};

use crate::error::DumpcapError;
use crate::options::Limits;

/// What is the same for all files.
#[derive(Debug)]
pub(crate) struct Form {
    /// As named; `-` is standard output.
    pub(crate) path: PathBuf,
    pub(crate) format: PcapFormat,
    pub(crate) section: PcapSection,
    pub(crate) group: bool,
    /// The name is ours, in a folder that others may write to: nothing that stands there is written to.
    pub(crate) fresh: bool,
    /// When the next file begins, and how many are kept.
    pub(crate) next: Limits,
}

/// The file that is written now, and those before it.
#[derive(Debug)]
pub(crate) struct Output {
    form: Form,
    writer: PcapWriter,
    begun: Instant,
    start: Timestamp,
    /// In this file, by interface.
    written: Vec<u64>,
    /// Files so far.
    pub(crate) files: u64,
    /// Those that are kept, in a row.
    kept: VecDeque<PathBuf>,
}

impl Output {
    /// Makes the first file.
    pub(crate) fn create(form: Form) -> Result<Self, DumpcapError> {
        let (writer, path) = open(&form, 1)?;
        let written = vec![0; form.section.interfaces.len()];
        let (begun, start) = (Instant::now(), Timestamp::now());
        Ok(Self { form, writer, begun, start, written, files: 1, kept: VecDeque::from([path]) })
    }

    /// Writes a frame.
    pub(crate) fn write(
        &mut self,
        place: PcapPlace,
        frame: &[u8],
        wire_bytes: usize,
        time: Timestamp,
    ) -> Result<(), DumpcapError> {
        let written = self.writer.batch().write_at(place, &[frame], wire_bytes, time);
        written.map_err(|error| self.failed(error))?;
        if let Some(count) = self.written.get_mut(place.interface as usize) {
            *count += 1;
        }
        Ok(())
    }

    /// Whether the file that is written now has reached what ends it.
    pub(crate) fn is_full(&self) -> bool {
        let next = &self.form.next;
        let packets: u64 = self.written.iter().sum();
        next.packets.is_some_and(|limit| packets >= limit)
            || next.bytes.is_some_and(|limit| self.writer.bytes() >= limit)
            || next.duration.is_some_and(|limit| self.begun.elapsed() >= limit)
    }

    /// Ends the file, and begins the next one.
    pub(crate) fn next(&mut self, statistics: &[PcapStatistics]) -> Result<(), DumpcapError> {
        self.close(statistics)?;
        let (writer, path) = open(&self.form, self.files + 1)?;
        self.writer = writer;
        self.files += 1;
        self.begun = Instant::now();
        self.start = Timestamp::now();
        self.written.fill(0);
        self.kept.push_back(path);
        if let Some(most) = self.form.next.files
            && self.kept.len() as u64 > most
            && let Some(oldest) = self.kept.pop_front()
        {
            std::fs::remove_file(&oldest).map_err(|source| DumpcapError::File {
                operation: "remove",
                path: oldest,
                source,
            })?;
        }
        Ok(())
    }

    /// Bytes of the file that is written now.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// Whether the file takes no more.
    pub(crate) fn has_failed(&self) -> bool {
        self.writer.has_failed()
    }

    /// Writes what is left, statistics of the interfaces last.
    pub(crate) fn close(&mut self, statistics: &[PcapStatistics]) -> Result<(), DumpcapError> {
        for (interface, statistics) in statistics.iter().enumerate() {
            let own = PcapStatistics {
                start: self.start,
                end: Timestamp::now(),
                delivered: self.written[interface],
                ..*statistics
            };
            // At most 64.
            let written = self.writer.write_statistics(interface as u32, &own);
            written.map_err(|error| self.failed(error))?;
        }
        self.writer.flush().map_err(|error| self.failed(error))
    }

    fn failed(&mut self, error: FrameError) -> DumpcapError {
        let lost = self.writer.take_lost().frames;
        let packets: u64 = self.written.iter().sum();
        DumpcapError::Write { packets: packets.saturating_sub(lost), source: error }
    }
}

/// Makes the file of this number.
fn open(form: &Form, number: u64) -> Result<(PcapWriter, PathBuf), DumpcapError> {
    if form.path.as_os_str() == "-" {
        let path = PathBuf::from("standard output");
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        let file =
            stdout.map_err(|source| DumpcapError::File { operation: "open", path: path.clone(), source })?;
        return Ok((writer(File::from(file), &path, form)?, path));
    }
    let path =
        if form.next.switches() { numbered(&form.path, number, Timestamp::now()) } else { form.path.clone() };
    let mode = if form.group { 0o640 } else { 0o600 };
    let mut options = OpenOptions::new();
    options.write(true).mode(mode);
    let file =
        if form.fresh { options.create_new(true) } else { options.create(true).truncate(true) }.open(&path);
    let file =
        file.map_err(|source| DumpcapError::File { operation: "create", path: path.clone(), source })?;
    eprintln!("File: {}", path.display());
    Ok((writer(file, &path, form)?, path))
}

fn writer(file: File, path: &Path, form: &Form) -> Result<PcapWriter, DumpcapError> {
    PcapWriter::over(file, path, form.format, &form.section)
        .map_err(|source| DumpcapError::Write { packets: 0, source })
}

/// `a.pcapng` becomes `a_00001_20240102030405.pcapng`, as Wireshark names files in a row; the time is UTC.
fn numbered(path: &Path, number: u64, time: Timestamp) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut name = format!("{stem}_{number:05}_{}", compact(time));
    if let Some(extension) = path.extension() {
        name = format!("{name}.{}", extension.to_string_lossy());
    }
    path.with_file_name(name)
}

/// `20240102030405`, UTC.
pub(crate) fn compact(time: Timestamp) -> String {
    let seconds = time.nanos() / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The civil calendar, in years that begin in March, of eras of 400 years (146,097 days) since March of year 0.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_a_row_are_named_as_wireshark_names_them() {
        for (seconds, text) in [
            (0, "19700101000000"),
            (951_782_399, "20000228235959"),
            (951_782_400, "20000229000000"),
            (1_704_164_645, "20240102030405"),
            (4_107_542_399, "21000228235959"),
            (4_107_542_400, "21000301000000"),
        ] {
            assert_eq!(compact(Timestamp::from_nanos(seconds * 1_000_000_000)), text);
        }
        let time = Timestamp::from_nanos(1_704_164_645_999_999_999);
        let name = |path: &str| numbered(Path::new(path), 7, time).display().to_string();
        assert_eq!(name("/a.b/c.pcapng"), "/a.b/c_00007_20240102030405.pcapng");
        assert_eq!(name("plain"), "plain_00007_20240102030405");
    }
}
