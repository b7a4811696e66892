//! The capture itself: from the ring into files, until something ends it.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pollux_capture::{CaptureRequest, Counts, Layout, Reader};
use pollux_frame_io::FrameError;
use pollux_frame_io::pcap::{PcapFormat, PcapPlace, PcapSection, PcapStatistics};

use crate::client::Client;
use crate::error::DumpcapError;
use crate::interface::Interface;
use crate::options::{Limits, Options};
use crate::output::{Form, Frames, Output, compact};
use crate::wall::WallClock;

/// Packets between two looks at a clock.
const BATCH: usize = 256;
/// How long it sleeps when nothing came, at first and at most. The buffer is for what comes meanwhile.
const SLEEP: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(5)];
/// How long the end waits for the application, which waits for bursts that are under way.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// How often the count is shown.
const SHOW: Duration = Duration::from_millis(250);

/// Why it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A signal, or the time is over: what passed until now is still written.
    Stopped,
    /// Enough packets or bytes.
    Enough,
    /// The application ended.
    Application,
}

/// Why no more is written to a file for now.
enum Filled {
    /// A batch was read, or all that there is.
    Batch,
    /// The file has as much as one may have.
    File,
    /// The capture has enough.
    Enough,
    /// The file takes no more.
    Failed(FrameError),
}

/// Captures as the options say; `stopped` is set by a signal.
pub(crate) fn capture(
    client: &Client,
    options: &Options,
    interfaces: &[Interface],
    stopped: &Arc<AtomicBool>,
) -> Result<(), DumpcapError> {
    let request = CaptureRequest {
        ring_bytes: options.ring_bytes,
        interfaces: interfaces.iter().map(Interface::request).collect(),
    };
    // A file that cannot be made is known before anything is asked of the application.
    let mut output = Output::create(form(options, interfaces))?;
    let (reply, file) = client.capture(request)?;
    let damaged = |source| DumpcapError::Map { source };
    let layout = Layout::of_bytes(reply.ring_bytes)
        .ok_or_else(|| damaged(std::io::Error::other("it has a size that cannot be")))?;
    let reader = Reader::of_file(file, layout).map_err(damaged)?;
    let names: Vec<&str> = interfaces.iter().map(|interface| interface.port.name.as_str()).collect();
    eprintln!("Capturing on '{}'", names.join("', '"));
    let mut capture = Capture {
        client,
        reader,
        wall: WallClock::new(reply.tsc, reply.hz),
        stop: options.stop,
        begun: Instant::now(),
        frame: Vec::new(),
        packets: 0,
        interfaces: interfaces.len(),
    };
    let mut shown = Shown::new(options.cli.quiet);
    let ended = capture.run(&mut output, &mut shown, stopped);
    let closed = match &ended {
        // The file has all that it takes.
        Err(DumpcapError::Write { .. }) => Ok(()),
        _ => output.close(&capture.statistics()),
    };
    shown.last(capture.packets);
    if ended.as_ref().is_ok_and(|end| *end == End::Application) {
        eprintln!("The program has ended");
    }
    capture.report(&names);
    ended.map(|_| ()).and(closed)
}

fn form(options: &Options, interfaces: &[Interface]) -> Form {
    let cli = &options.cli;
    let format = if cli.pcap { PcapFormat::Pcap } else { PcapFormat::PcapNg };
    let extension = if cli.pcap { "pcap" } else { "pcapng" };
    // The name that dpdk-dumpcap gives.
    let usual = || {
        let port = &interfaces[0].port;
        let now = compact(pollux_frame_io::pcap::Timestamp::now());
        cli.temp_dir.join(format!("pollux-dumpcap_{}_{}_{now}.{extension}", port.id, port.name))
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Form {
        path: cli.output_file.clone().unwrap_or_else(usual),
        format,
        section: PcapSection {
            comment: cli.capture_comment.clone().unwrap_or_default(),
            os: format!("Linux {}", release.trim()),
            application: concat!("pollux-dumpcap ", env!("CARGO_PKG_VERSION")).into(),
            interfaces: interfaces.iter().map(Interface::describe).collect(),
        },
        group: cli.group,
        fresh: cli.output_file.is_none(),
        next: options.next,
    }
}

struct Capture<'a> {
    client: &'a Client,
    reader: Reader,
    wall: WallClock,
    stop: Limits,
    begun: Instant,
    frame: Vec<u8>,
    /// Written so far.
    packets: u64,
    interfaces: usize,
}

impl Capture<'_> {
    fn run(
        &mut self,
        output: &mut Output,
        shown: &mut Shown,
        stopped: &AtomicBool,
    ) -> Result<End, DumpcapError> {
        let mut sleep = SLEEP[0];
        loop {
            self.wall.follow();
            let (read, enough) = self.batch(output)?;
            shown.now(self.packets);
            if enough {
                return Ok(End::Enough);
            }
            if stopped.load(Ordering::Relaxed)
                || self.stop.duration.is_some_and(|limit| self.begun.elapsed() >= limit)
            {
                return self.drain(output).map(|()| End::Stopped);
            }
            if output.has_failed() {
                // It says why.
                output.close(&[])?;
            }
            if output.is_over() && self.next_file(output)? {
                return Ok(End::Enough);
            }
            if read == BATCH {
                continue;
            }
            sleep = if read > 0 { SLEEP[0] } else { (sleep * 2).min(SLEEP[1]) };
            if self.client.ended(sleep) {
                return self.finish(output).map(|enough| if enough { End::Enough } else { End::Application });
            }
        }
    }

    /// Writes some of what is there; how many packets, and whether that is enough.
    fn batch(&mut self, output: &mut Output) -> Result<(usize, bool), DumpcapError> {
        let (mut read, mut enough) = (0, false);
        while read < BATCH && !enough {
            match self.fill(output.frames(), &mut read)? {
                Filled::Batch => break,
                Filled::File => enough = self.next_file(output)?,
                Filled::Enough => enough = true,
                Filled::Failed(error) => return Err(output.failed(error)),
            }
        }
        self.reader.release();
        Ok((read, enough))
    }

    /// Writes what is there into one file.
    fn fill(&mut self, mut frames: Frames<'_>, read: &mut usize) -> Result<Filled, DumpcapError> {
        while *read < BATCH {
            let Some(record) = self.reader.next(&mut self.frame)? else { break };
            *read += 1;
            if usize::from(record.interface) >= self.interfaces {
                continue;
            }
            let time = self.wall.time(record.passage.ticks);
            let place = PcapPlace { interface: record.interface.into(), sent: Some(record.passage.sent) };
            if let Err(error) = frames.write(place, &self.frame, record.wire_bytes as usize, time) {
                return Ok(Filled::Failed(error));
            }
            self.packets += 1;
            if self.stop.packets.is_some_and(|limit| self.packets >= limit)
                || self.stop.bytes.is_some_and(|limit| frames.bytes() >= limit)
            {
                return Ok(Filled::Enough);
            }
            if frames.is_full() {
                return Ok(Filled::File);
            }
        }
        Ok(Filled::Batch)
    }

    /// Begins the next file; true if there were enough.
    fn next_file(&mut self, output: &mut Output) -> Result<bool, DumpcapError> {
        if self.stop.files.is_some_and(|limit| output.files >= limit) {
            return Ok(true);
        }
        output.next(&self.statistics())?;
        Ok(false)
    }

    /// Ends the capture, and writes what passed until then.
    fn drain(&mut self, output: &mut Output) -> Result<(), DumpcapError> {
        self.client.stop();
        let begun = Instant::now();
        while begun.elapsed() < END_PATIENCE {
            let (read, enough) = self.batch(output)?;
            if enough {
                return Ok(());
            }
            if read < BATCH && self.client.ended(SLEEP[0]) {
                break;
            }
        }
        self.finish(output).map(|_| ())
    }

    /// Writes what an application left that is gone; true if that is enough.
    fn finish(&mut self, output: &mut Output) -> Result<bool, DumpcapError> {
        loop {
            let (read, enough) = self.batch(output)?;
            if enough {
                return Ok(true);
            }
            if read < BATCH && !self.reader.skip_unfinished() {
                return Ok(false);
            }
        }
    }

    fn statistics(&self) -> Vec<PcapStatistics> {
        let all = (0..self.interfaces).map(|interface| {
            let Counts { captured, filtered, dropped } = self.reader.counts(interface);
            PcapStatistics {
                received: captured.wrapping_add(filtered).wrapping_add(dropped),
                dropped,
                accepted: captured.wrapping_add(dropped),
                ..PcapStatistics::default()
            }
        });
        all.collect()
    }

    /// The last lines, in the words of dpdk-dumpcap.
    fn report(&self, names: &[&str]) {
        for (name, statistics) in names.iter().zip(self.statistics()) {
            let (received, dropped) =
                (statistics.received.wrapping_sub(statistics.dropped), statistics.dropped);
            let share = match statistics.received {
                0 => 0.0,
                all => 100.0 * received as f64 / all as f64,
            };
            eprintln!("Packets received/dropped on interface '{name}': {received}/{dropped} ({share:.1})");
        }
    }
}

/// The count on standard error.
struct Shown {
    quiet: bool,
    live: bool,
    last: Instant,
}

impl Shown {
    fn new(quiet: bool) -> Self {
        Self { quiet, live: !quiet && std::io::stderr().is_terminal(), last: Instant::now() }
    }

    fn now(&mut self, packets: u64) {
        if self.live && self.last.elapsed() >= SHOW {
            self.last = Instant::now();
            let mut stderr = std::io::stderr().lock();
            // A terminal that went away is no reason to end.
            let _gone = write!(stderr, "\rPackets captured: {packets}").and_then(|()| stderr.flush());
        }
    }

    fn last(&self, packets: u64) {
        if !self.quiet {
            let begin = if self.live { "\r" } else { "" };
            eprintln!("{begin}Packets captured: {packets}");
        }
    }
}

#[cfg(test)]
mod tests {
    use pollux_capture::{Passage, Writer};

    use super::*;

    /// Frames that pass before the end is seen are written, up to the limit.
    #[test]
    fn a_limit_holds_to_the_end() {
        for (limit, frames) in [(Some(5), 20), (Some(300), 1000), (None, 1000)] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("a.pcapng");
            let section = PcapSection { interfaces: vec![Default::default()], ..PcapSection::default() };
            let (format, next) = (PcapFormat::PcapNg, Limits::default());
            let form = Form { path: path.clone(), format, section, group: false, fresh: false, next };
            let mut output = Output::create(form).expect("a file");
            let layout = Layout::of_bytes(Layout::BYTES_MIN).expect("a size");
            let writer = Writer::new(layout).expect("memory");
            let file = writer.file().expect("a file").try_clone_to_owned().expect("a descriptor");
            let (client, program) = Client::pair();
            let mut capture = Capture {
                client: &client,
                reader: Reader::of_file(file, layout).expect("mapped"),
                wall: WallClock::new(false, 1_000_000_000),
                stop: Limits { packets: limit, ..Limits::default() },
                begun: Instant::now(),
                frame: Vec::new(),
                packets: 0,
                interfaces: 1,
            };
            let interface = pollux_capture::Interface { number: 0, snaplen: 100, filter: None };
            let passage = Passage { ticks: 1, queue: 0, sent: false };
            for _ in 0..frames {
                writer.reserve(&interface, passage, std::iter::once(&[7_u8; 60][..])).commit(1);
            }
            drop(program);
            capture.drain(&mut output).expect("written");
            output.close(&capture.statistics()).expect("written");
            let mut reader = pollux_frame_io::pcap::PcapReader::open(&path).expect("a capture file");
            let there = std::iter::from_fn(|| reader.next().expect("whole").map(|_| ())).count() as u64;
            let expected = limit.unwrap_or(frames);
            assert_eq!((there, capture.packets), (expected, expected));
        }
    }
}
