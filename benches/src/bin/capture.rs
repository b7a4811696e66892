//! What a capture costs an lcore: a packet received from and sent to a null port, with nobody who captures and with one.
//!
//! Cycles of the time-stamp counter a packet, medians of trials that alternate. The ring is read by a thread of its own, which needs a
//! processor of its own. Both trials of a capture fit into the ring, so that every packet is copied; that none was dropped is checked.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_capture::bpf::Instruction;
use pollux_capture::{Interface, Layout, Program, Reader, Writer};
use pollux_eal::clock::{Clock, cycles};
use pollux_mempool::{Burst, MbufPool};
use pollux_port::capture::{Captures, Tap};
use pollux_port::{Port, PortConfig, PortId, Ports, Queues};
use pollux_port_soft::null::{NullOptions, NullPort};

/// A filter and a snap length.
type Wanted = (Option<Program>, u32);

const BURST: usize = 32;
/// 32,768 packets, each seen twice: 96 MiB of records of 1,500 bytes.
const ROUNDS: usize = 1 << 10;
const TRIALS: usize = 41;

/// `ip6`, of which a null port has none.
const NONE: [(u16, u8, u8, u32); 4] = [(40, 0, 0, 12), (21, 0, 1, 34525), (6, 0, 0, 262_144), (6, 0, 0, 0)];

fn main() -> Result<(), Box<dyn Error>> {
    let _slot = pollux_eal::slot::lease();
    println!("{:<44} {:>8}", "a packet received and sent", "cycles");
    for bytes in [64, 1500] {
        let pool = MbufPool::builder("capture", 1023).cache(256).build_anonymous()?;
        let mut ports = Ports::new();
        let id = ports.add("net_null0", Box::new(null(bytes)?))?;
        let mut queues = ports.get_mut(id).ok_or("no port")?.bring_up(PortConfig::queues(1, 1, &pool))?;
        let mut alone = Port::new(PortId(9), "net_null9", Box::new(null(bytes)?));
        let mut plain = alone.bring_up(PortConfig::queues(1, 1, &pool))?;
        let captures = ports.captures();
        let filter = Program::verify(&NONE.map(Instruction::from))?;
        let kinds: [(&str, Option<Wanted>); 4] = [
            ("capture off", None),
            ("capture on, filter refuses all", Some((Some(filter), 1 << 18))),
            ("capture on, 64 bytes of each, both ways", Some((None, 64))),
            ("capture on, all of each, both ways", Some((None, 1 << 18))),
        ];
        let mut without = Vec::new();
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..TRIALS {
            without.push(trial(&mut plain));
            for ((_, wanted), times) in kinds.iter().zip(&mut times) {
                let capture =
                    wanted.clone().map(|(filter, snaplen)| Capture::begin(&captures, id, filter, snaplen));
                let capture = capture.transpose()?;
                trial(&mut queues);
                times.push(trial(&mut queues));
                drop(capture);
            }
        }
        println!(
            "{:<44} {:>8.2}",
            format!("{bytes} bytes: port that cannot be captured"),
            median(&mut without)
        );
        for ((name, _), times) in kinds.iter().zip(&mut times) {
            println!("{:<44} {:>8.2}", format!("{bytes} bytes: {name}"), median(times));
        }
    }
    Ok(())
}

fn null(bytes: usize) -> Result<NullPort, Box<dyn Error>> {
    let options = NullOptions { size: bytes, ..NullOptions::default() };
    Ok(NullPort::new("net_null0", options)?)
}

/// Cycles a packet.
fn trial(Queues { rx, tx }: &mut Queues) -> f64 {
    let mut burst = Burst::new();
    let start = cycles::now_precise();
    for _ in 0..ROUNDS {
        assert_eq!(rx[0].rx_burst(&mut burst, BURST), BURST);
        assert_eq!(tx[0].tx_burst(&mut burst), BURST);
    }
    (cycles::now_precise() - start) as f64 / (ROUNDS * BURST) as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A capture, and the thread that reads it.
struct Capture {
    attached: Option<pollux_port::capture::Attached>,
    stop: Arc<AtomicBool>,
    reader: Option<std::thread::JoinHandle<Reader>>,
}

impl Capture {
    fn begin(
        captures: &Captures,
        port: PortId,
        filter: Option<Program>,
        snaplen: u32,
    ) -> Result<Self, Box<dyn Error>> {
        let layout = Layout::of_bytes(256 << 20).ok_or("a size")?;
        let writer = Writer::new(layout)?;
        let file: OwnedFd = writer.file().ok_or("a file")?.try_clone_to_owned()?;
        let mut reader = Reader::of_file(file, layout)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let read = move || {
            let mut frame = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                // As the tool does: in batches.
                for _ in 0..256 {
                    if !reader.next(&mut frame).is_ok_and(|record| record.is_some()) {
                        break;
                    }
                }
                reader.release();
            }
            reader
        };
        let interface = Interface { number: 0, snaplen, filter };
        let tap = Tap { port, interface, writer: Arc::new(writer), clock: Clock::get() };
        let attached = Some(captures.attach(vec![tap])?);
        Ok(Self { attached, stop, reader: Some(std::thread::spawn(read)) })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        drop(self.attached.take());
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let reader = reader.join().unwrap_or_else(|_| panic!("the reader panicked"));
            assert_eq!(reader.counts(0).dropped, 0, "packets that were not copied");
        }
    }
}
