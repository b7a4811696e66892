//! Frames of a capture file, sent again at the times at which they were captured, or faster, or slower.
//!
//! ```text
//!   file ─► feeder, a thread of its own ─ frames and moments ─► ring ─► Replay, on the lcore ─► tx queue
//! ```
//!
//! The file is read while it is sent, so that it may be larger than memory, and the lcore neither reads nor copies.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pollux_eal::{Eal, StopFlag, with_causes};
use pollux_frame_io::pcap::{PcapReader, Timestamp};
use pollux_mempool::{Burst, Mbuf, MbufPool};
use pollux_ring::spsc::{self, Consumer, Producer};

/// Frames that are ready before their time.
const READY: usize = 1024;
/// Mbufs of a replay: those that are ready, and those in tx queues.
pub(crate) const MBUFS: usize = 2048;
/// How long the feeder sleeps while there is no room, or nothing to read.
const NAP: Duration = Duration::from_micros(200);

/// What is replayed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReplaySpec {
    pub(crate) path: PathBuf,
    /// How many times as fast as it was captured.
    pub(crate) speed: f64,
    /// How often; 0: until the end.
    pub(crate) loops: u64,
}

impl ReplaySpec {
    /// Whether there is such a file, of Ethernet frames.
    pub(crate) fn check(&self) -> Result<(), String> {
        let reader =
            PcapReader::open(&self.path).map_err(|error| format!("pcap: {}", with_causes(&error)))?;
        if reader.is_pipe() && self.loops != 1 {
            return Err(format!(
                "pcap: {} is a pipe, which is read once: leave loops out",
                self.path.display()
            ));
        }
        Ok(())
    }
}

/// A frame and when it is due, in ticks from the begin.
#[derive(Debug)]
struct Timed {
    mbuf: Mbuf,
    at: u64,
}

/// What the feeder and others tell each other.
#[derive(Debug, Default)]
struct Told {
    ended: AtomicBool,
    /// Frames that no mbuf holds.
    skipped: AtomicU64,
    /// Frames of which the file has only a part.
    cut: AtomicU64,
    problem: Mutex<Option<String>>,
}

/// The lcore's end.
#[derive(Debug)]
pub(crate) struct Replay {
    frames: Consumer<Timed>,
    next: Option<Timed>,
    told: Arc<Told>,
    /// When it began.
    begun: u64,
}

impl Replay {
    /// Times count from `now` on.
    pub(crate) fn begin(&mut self, now: u64) {
        self.begun = now;
    }

    /// Adds up to `wanted` frames to a burst: those that are due at `now`, or whichever come next; their number. Hot.
    pub(crate) fn take(&mut self, burst: &mut Burst, wanted: usize, now: Option<u64>) -> usize {
        let mut taken = 0;
        while taken < wanted && !burst.is_full() {
            let Some(frame) = self.next.take().or_else(|| self.frames.dequeue()) else { break };
            if now.is_some_and(|now| frame.at > now.wrapping_sub(self.begun)) {
                self.next = Some(frame);
                break;
            }
            burst.push(frame.mbuf);
            taken += 1;
        }
        taken
    }

    /// Whether all frames were taken.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.next.is_none() && self.told.ended.load(Ordering::Acquire) {
            self.next = self.frames.dequeue();
            return self.next.is_none();
        }
        false
    }
}

/// What the reading of a file came to. Its thread ends with the file, or with the program.
#[derive(Debug)]
pub(crate) struct Feeder {
    name: String,
    told: Arc<Told>,
}

impl Feeder {
    /// What is to be said of the file of stream `name` at the end, and whether that is an error.
    pub(crate) fn notices(&self) -> (Vec<String>, Option<String>) {
        let mut lines = Vec::new();
        for (count, what) in [
            (&self.told.skipped, "frames that are empty or longer than an mbuf were left out"),
            (&self.told.cut, "frames were sent as short as the file has them"),
        ] {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                lines.push(format!("stream '{}': {count} {what}", self.name));
            }
        }
        let problem = self.told.problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (lines, problem.map(|why| format!("stream '{}': {why}", self.name)))
    }
}

/// Begins to read, into mbufs of `pool`.
pub(crate) fn start(
    spec: &ReplaySpec,
    name: &str,
    pool: MbufPool,
    eal: &Eal,
) -> Result<(Replay, Feeder), String> {
    let reader = PcapReader::open(&spec.path).map_err(|error| with_causes(&error))?;
    let (producer, frames) = spsc::ring(READY).map_err(|error| error.to_string())?;
    let told: Arc<Told> = Arc::default();
    let timeline = Timeline::new(eal.clock().hz() as f64 / 1e9 / spec.speed);
    let mut work = Reading { reader, producer, pool, told: Arc::clone(&told), timeline, loops: spec.loops };
    let thread = eal.control_thread("replay", move |stop| {
        if let Err(why) = work.run(stop) {
            *work.told.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
        work.told.ended.store(true, Ordering::Release);
    });
    thread.map_err(|error| with_causes(&error))?;
    let feeder = Feeder { name: name.into(), told: Arc::clone(&told) };
    Ok((Replay { frames, next: None, told, begun: 0 }, feeder))
}

/// What the feeder works with.
struct Reading {
    reader: PcapReader,
    producer: Producer<Timed>,
    pool: MbufPool,
    told: Arc<Told>,
    timeline: Timeline,
    loops: u64,
}

impl Reading {
    fn run(&mut self, stop: &StopFlag) -> Result<(), String> {
        let mut round = 0;
        loop {
            let frames = self.read_through(stop)?;
            round += 1;
            if frames == 0 || round == self.loops || stop.is_set() {
                return Ok(());
            }
            self.timeline.come_round();
            self.reader.rewind().map_err(|error| with_causes(&error))?;
        }
    }

    /// Reads the file once; how many frames it has.
    fn read_through(&mut self, stop: &StopFlag) -> Result<u64, String> {
        let mut frames = 0;
        while !stop.is_set() {
            let Some(frame) = self.reader.next().map_err(|error| with_causes(&error))? else {
                if self.reader.has_ended() {
                    break;
                }
                self.reader.wait(100 * NAP).map_err(|error| with_causes(&error))?;
                continue;
            };
            frames += 1;
            let at = self.timeline.ticks(frame.timestamp);
            if frame.data.len() > self.pool.data_room() - self.pool.headroom() || frame.data.is_empty() {
                self.told.skipped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if frame.wire_bytes as usize > frame.data.len() {
                self.told.cut.fetch_add(1, Ordering::Relaxed);
            }
            let mut mbuf = loop {
                match self.pool.alloc() {
                    Some(mbuf) => break mbuf,
                    None if stop.is_set() => return Ok(frames),
                    None => std::thread::sleep(NAP),
                }
            };
            mbuf.append_slice(frame.data);
            let mut ready = Timed { mbuf, at };
            while let Err(full) = self.producer.enqueue(ready) {
                if stop.is_set() {
                    return Ok(frames);
                }
                ready = full;
                std::thread::sleep(NAP);
            }
        }
        match self.reader.truncation() {
            Some(truncation) => Err(truncation.to_string()),
            None => Ok(frames),
        }
    }
}

/// From the times of a file to ticks from the begin, that never go back.
#[derive(Debug)]
struct Timeline {
    ticks_per_nano: f64,
    first: Option<u64>,
    latest: u64,
    frames: u64,
    /// Where the file's begin lies, in nanoseconds.
    offset: u64,
}

impl Timeline {
    fn new(ticks_per_nano: f64) -> Self {
        Self { ticks_per_nano, first: None, latest: 0, frames: 0, offset: 0 }
    }

    fn ticks(&mut self, time: Timestamp) -> u64 {
        let first = *self.first.get_or_insert(time.nanos());
        self.frames += 1;
        let nanos = self.offset.saturating_add(time.nanos().saturating_sub(first));
        self.latest = self.latest.max(nanos);
        (self.latest as f64 * self.ticks_per_nano) as u64
    }

    /// The file begins again, as long after its last frame as its frames are apart on average.
    fn come_round(&mut self) {
        let length = self.latest - self.offset;
        let apart = length / self.frames.saturating_sub(1).max(1);
        (self.offset, self.first, self.frames) = (self.latest.saturating_add(apart), None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_first_frame_and_never_go_back() {
        let mut line = Timeline::new(2.0);
        let mut ticks = |nanos: u64| line.ticks(Timestamp::from_nanos(nanos));
        assert_eq!([ticks(1000), ticks(1100), ticks(1050), ticks(0), ticks(1300)], [0, 200, 200, 200, 600]);
        line.come_round();
        // 300 ns in 4 steps.
        let mut ticks = |nanos: u64| line.ticks(Timestamp::from_nanos(nanos));
        assert_eq!([ticks(1000), ticks(1100)], [750, 950]);
        assert_eq!(ticks(u64::MAX), u64::MAX, "no time overflows");
    }

    #[test]
    fn a_file_of_one_frame_comes_round() {
        let mut line = Timeline::new(1.0);
        assert_eq!(line.ticks(Timestamp::from_nanos(77)), 0);
        line.come_round();
        assert_eq!(line.ticks(Timestamp::from_nanos(77)), 0);
    }
}
