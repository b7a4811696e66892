//! Capture files: one, or a row of them of which the last are kept.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pollux_eal::clock::Date;
use pollux_frame_io::FrameError;
use pollux_frame_io::pcap::{
    PcapBatch, PcapFormat, PcapPlace, PcapSection, PcapStatistics, PcapWriter, Timestamp,
};

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
    /// Of the capture.
    start: Timestamp,
    /// In this file.
    packets: u64,
    /// By interface, since the capture began.
    delivered: Vec<u64>,
    /// Files so far.
    pub(crate) files: u64,
    /// Those that are kept, in a row.
    kept: VecDeque<PathBuf>,
}

impl Output {
    /// Makes the first file.
    pub(crate) fn create(form: Form) -> Result<Self, DumpcapError> {
        let (writer, path) = open(&form, 1)?;
        let delivered = vec![0; form.section.interfaces.len()];
        let (begun, start, kept) = (Instant::now(), Timestamp::now(), VecDeque::from([path]));
        Ok(Self { form, writer, begun, start, packets: 0, delivered, files: 1, kept })
    }

    /// The file, for frames one after another.
    pub(crate) fn frames(&mut self) -> Frames<'_> {
        Frames {
            batch: self.writer.batch(),
            next: &self.form.next,
            packets: &mut self.packets,
            delivered: &mut self.delivered,
        }
    }

    /// Whether the time of the file that is written now is over.
    pub(crate) fn is_over(&self) -> bool {
        self.form.next.duration.is_some_and(|limit| self.begun.elapsed() >= limit)
    }

    /// Ends the file, and begins the next one.
    pub(crate) fn next(&mut self, statistics: &[PcapStatistics]) -> Result<(), DumpcapError> {
        self.close(statistics)?;
        let (writer, path) = open(&self.form, self.files + 1)?;
        self.writer = writer;
        self.files += 1;
        self.begun = Instant::now();
        self.packets = 0;
        self.kept.push_back(path);
        if let Some(most) = self.form.next.files
            && self.kept.len() as u64 > most
            && let Some(oldest) = self.kept.pop_front()
            && let Err(error) = std::fs::remove_file(&oldest)
            && error.kind() != io::ErrorKind::NotFound
        {
            // The capture goes on: it has lost nothing.
            eprintln!("pollux-dumpcap: cannot remove {}: {error}", oldest.display());
        }
        Ok(())
    }

    /// Whether the file takes no more.
    pub(crate) fn has_failed(&self) -> bool {
        self.writer.has_failed()
    }

    /// Writes what is left, statistics of the interfaces last: of the capture since its beginning, whichever file they stand in. Source:
    /// draft-ietf-opsawg-pcapng, section 4.6, "starting from the beginning of the capture" of each count.
    pub(crate) fn close(&mut self, statistics: &[PcapStatistics]) -> Result<(), DumpcapError> {
        for (interface, statistics) in statistics.iter().enumerate() {
            let own = PcapStatistics {
                start: self.start,
                end: Timestamp::now(),
                delivered: self.delivered[interface],
                ..*statistics
            };
            // At most 64.
            let written = self.writer.write_statistics(interface as u32, &own);
            written.map_err(|error| self.failed(error))?;
        }
        self.writer.flush().map_err(|error| self.failed(error))
    }

    /// The file took no more.
    pub(crate) fn failed(&mut self, error: FrameError) -> DumpcapError {
        let lost = self.writer.take_lost().frames;
        DumpcapError::Write { packets: self.packets.saturating_sub(lost), source: error }
    }
}

/// The file that is written now, locked once for many frames.
pub(crate) struct Frames<'a> {
    batch: PcapBatch<'a>,
    next: &'a Limits,
    packets: &'a mut u64,
    delivered: &'a mut [u64],
}

impl Frames<'_> {
    /// Writes a frame.
    pub(crate) fn write(
        &mut self,
        place: PcapPlace,
        frame: &[u8],
        wire_bytes: usize,
        time: Timestamp,
    ) -> Result<(), FrameError> {
        self.batch.write_at(place, &[frame], wire_bytes, time)?;
        *self.packets += 1;
        if let Some(count) = self.delivered.get_mut(place.interface as usize) {
            *count += 1;
        }
        Ok(())
    }

    /// Whether the file has as many packets or bytes as one may have.
    pub(crate) fn is_full(&self) -> bool {
        self.next.packets.is_some_and(|limit| *self.packets >= limit)
            || self.next.bytes.is_some_and(|limit| self.bytes() >= limit)
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.batch.bytes()
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
    Date::new(Duration::from_nanos(time.nanos())).compact()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(path: PathBuf, next: Limits) -> Form {
        let section = PcapSection { interfaces: vec![Default::default()], ..PcapSection::default() };
        Form { path, format: PcapFormat::PcapNg, section, group: false, fresh: false, next }
    }

    #[test]
    fn a_file_that_cannot_be_removed_does_not_end_the_capture() {
        let folder = tempfile::tempdir().expect("a folder");
        let next = Limits { packets: Some(1), files: Some(1), ..Limits::default() };
        let mut output = Output::create(form(folder.path().join("a.pcapng"), next)).expect("a file");
        // A folder is none, whoever the user is; and one that is gone is gone.
        std::fs::remove_file(&output.kept[0]).expect("there");
        std::fs::create_dir(&output.kept[0]).expect("a folder");
        output.next(&[]).expect("the next file");
        std::fs::remove_file(&output.kept[0]).expect("there");
        output.next(&[]).expect("the next file");
        assert_eq!((output.files, output.kept.len()), (3, 1));
        assert!(output.kept[0].exists());
    }

    #[test]
    fn statistics_are_of_the_capture_and_limits_of_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let next = Limits { packets: Some(2), ..Limits::default() };
        let mut output = Output::create(form(folder.path().join("a.pcapng"), next)).expect("a file");
        let start = output.start;
        for _ in 0..3 {
            for full in [false, true] {
                let mut frames = output.frames();
                frames.write(PcapPlace::default(), &[7; 60], 60, start).expect("written");
                assert_eq!(frames.is_full(), full);
            }
            output.next(&[PcapStatistics::default()]).expect("the next file");
        }
        assert_eq!((output.start, output.packets, &output.delivered[..]), (start, 0, &[6][..]));
    }

    #[test]
    fn files_in_a_row_are_named_as_wireshark_names_them() {
        let time = Timestamp::from_nanos(1_704_164_645_999_999_999);
        let name = |path: &str| numbered(Path::new(path), 7, time).display().to_string();
        assert_eq!(name("/a.b/c.pcapng"), "/a.b/c_00007_20240102030405.pcapng");
        assert_eq!(name("plain"), "plain_00007_20240102030405");
    }
}
