//! Where a tee around a port writes: a capture file.

use pollux_frame_io::FrameError;
use pollux_frame_io::pcap::{PcapFormat, PcapWriter, Timestamp};
use pollux_port::layer::tee::{FrameSink, SeenFrame, SharedSink};
use std::io::{Error, Result};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Creates a pcapng file (`.pcap`: the old format) for [`pollux_port::layer::wrap`].
///
/// # Errors
/// When it cannot be created.
pub fn open(path: &Path) -> Result<SharedSink> {
    let format =
        if path.extension().is_some_and(|end| end == "pcap") { PcapFormat::Pcap } else { PcapFormat::PcapNg };
    let writer = PcapWriter::create(path, format).map_err(|error| told(&error))?;
    Ok(Arc::new(Mutex::new(Capture(writer))))
}

struct Capture(PcapWriter);

impl FrameSink for Capture {
    fn frame(&mut self, frame: SeenFrame<'_>) -> Result<()> {
        let nanos = u64::try_from(frame.time.as_nanos()).unwrap_or(u64::MAX);
        let done = self.0.write(&[frame.data], frame.data.len(), Timestamp::from_nanos(nanos));
        done.map_err(|error| told(&error))
    }

    fn lost(&mut self) -> u64 {
        self.0.take_lost().frames
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush().map_err(|error| told(&error))
    }
}

/// With its cause, which the layer would not look for.
fn told(error: &FrameError) -> Error {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    Error::other(format!("{error}{}", cause.unwrap_or_default()))
}
