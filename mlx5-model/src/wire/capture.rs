//! Capture files: one to receive from, one to send to.

use std::path::{Path, PathBuf};

use pollux_frame_io::FrameError;
use pollux_frame_io::pcap::{PcapFormat, PcapReader, PcapWriter, Timestamp};

use super::{Sent, Wire, deliver};
use crate::ModelError;
use crate::port::Traffic;
use crate::time::Clock;

/// `pcap:IN:OUT`. Frames of the one file come in once, as fast as they are taken; what is sent goes to the other, with the
/// model's clock as its time stamps. A file that turns out to be damaged, or a disk that is full, is logged once.
#[derive(Debug)]
pub struct Capture {
    reader: Option<PcapReader>,
    writer: Option<PcapWriter>,
    /// The file to write takes no more.
    full: bool,
    /// Whether frames may stand in memory, and none came since the last look.
    unwritten: bool,
    rested: bool,
    /// Frames that were in memory when the file took no more.
    lost: Traffic,
    names: (PathBuf, PathBuf),
    clock: Clock,
    /// Time of day when the model's clock stood at zero; zero for a stepped clock.
    start_ns: u64,
}

impl Capture {
    /// Opens what is to be read and makes what is to be written (pcapng if its name ends so).
    ///
    /// # Errors
    /// [`ModelError::Frames`] when a file cannot be opened or made, or is none with Ethernet frames.
    pub fn open(input: Option<&Path>, output: Option<&Path>, clock: &Clock) -> Result<Self, ModelError> {
        let reader = input.map(PcapReader::open).transpose()?;
        let writer = output.map(|path| PcapWriter::create(path, PcapFormat::of(path))).transpose()?;
        let now = u64::try_from(clock.now().as_nanos()).unwrap_or(0);
        Ok(Self {
            reader,
            writer,
            full: false,
            unwritten: false,
            rested: false,
            lost: Traffic::default(),
            names: (input.unwrap_or(Path::new("")).into(), output.unwrap_or(Path::new("")).into()),
            clock: clock.clone(),
            start_ns: if clock.is_stepped() { 0 } else { Timestamp::now().nanos().saturating_sub(now) },
        })
    }
}

impl Capture {
    /// The file to write takes no more, and what stood in memory for it is lost, too.
    fn fill_up(&mut self, error: &FrameError) {
        let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
        tracing::error!(target: "model.wire", "{error}{cause}; frames to this file are dropped from here on");
        let lost = self.writer.take().map(|writer| writer.take_lost()).unwrap_or_default();
        self.lost.packets += lost.frames;
        self.lost.bytes += lost.bytes;
        (self.full, self.unwritten) = (true, false);
    }
}

impl Wire for Capture {
    /// Writes out what stands in memory once nothing was sent between two looks.
    fn poll(&mut self) {
        if std::mem::replace(&mut self.rested, true) && std::mem::take(&mut self.unwritten) {
            let written = self.writer.as_ref().map_or(Ok(()), PcapWriter::flush);
            if let Err(error) = written {
                self.fill_up(&error);
            }
        }
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        let Some(writer) = &self.writer else { return if self.full { Sent::Lost } else { Sent::Yes } };
        let since = u64::try_from(self.clock.now().as_nanos()).unwrap_or(u64::MAX);
        let time = Timestamp::from_nanos(self.start_ns.saturating_add(since));
        if let Err(error) = writer.write(&[frame], frame.len(), time) {
            self.fill_up(&error);
            return Sent::Lost;
        }
        (self.unwritten, self.rested) = (true, false);
        Sent::Yes
    }

    fn take_lost(&mut self) -> Traffic {
        std::mem::take(&mut self.lost)
    }

    fn is_pending(&self) -> bool {
        self.unwritten
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        let reader = self.reader.as_mut()?;
        if reader.has_ended() {
            if let Some(end) = reader.truncation() {
                tracing::warn!(target: "model.wire", "wire: {end}");
            }
            self.reader = None;
            return None;
        }
        match reader.next() {
            Ok(Some(frame)) => Some(deliver(frame.data, room)),
            // The end, as the next call finds, or a pipe that has no frame now.
            Ok(None) => None,
            Err(error) => {
                tracing::error!(target: "model.wire", %error, "the wire's file gives no more frames");
                self.reader = None;
                None
            }
        }
    }

    fn is_up(&self) -> bool {
        true
    }

    fn waits(&self) -> bool {
        true
    }

    fn is_stored(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("pcap:{}:{}", self.names.0.display(), self.names.1.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::STEP;

    #[test]
    fn what_goes_out_of_one_comes_in_by_the_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::stepped();
        for name in ["a.pcap", "a.pcapng"] {
            let file = folder.path().join(name);
            let mut out = Capture::open(None, Some(&file), &clock).expect("made");
            let mut room = [0; 128];
            assert_eq!(out.receive(&mut room), None);
            for number in 0..5_u8 {
                clock.advance(STEP);
                assert_eq!(out.send(&[number; 60]), Sent::Yes);
            }
            drop(out);
            let mut back = Capture::open(Some(&file), None, &clock).expect("opened");
            assert_eq!(back.describe(), format!("pcap:{}:", file.display()));
            assert_eq!(back.send(&[9; 60]), Sent::Yes);
            for number in 0..5_u8 {
                assert_eq!(back.receive(&mut room), Some(60));
                assert_eq!(room[..60], [number; 60]);
            }
            assert_eq!(back.receive(&mut room), None);
            assert_eq!(back.receive(&mut room), None);
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error =
            Capture::open(Some(Path::new("/nowhere/a.pcap")), None, &Clock::stepped()).expect_err("missing");
        assert!(error.to_string().contains("/nowhere/a.pcap"), "{error}");
    }
}
