//! Captures that are not plain whole files: cut off inside a record, or a pipe that fills while it is read.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pollux_frame_io::pcap::{PcapFormat, PcapReader, PcapWriter, Timestamp};
use pollux_mempool::{Burst, MbufPool};
use pollux_port::layer::{LayerSpec, wrap};
use pollux_port::{Port, PortConfig, PortId, Queues};
use pollux_port_soft::pcap::{PcapOptions, PcapPort, PcapSource};
use pollux_tests::log::logged;

const LONG: Duration = Duration::from_secs(20);

fn frame(number: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([0x88, 0xb5]);
    frame.resize(60 + usize::from(number), number);
    frame
}

/// A capture of frames 0, 1, 2, as bytes.
fn capture(format: PcapFormat) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("capture");
    let writer = PcapWriter::create(&path, format).expect("a new file");
    for number in 0..3 {
        let frame = frame(number);
        writer.write(&[&frame], frame.len(), Timestamp::from_nanos(1)).expect("written");
    }
    writer.close().expect("closes");
    fs::read(&path).expect("written")
}

fn open(path: &Path, infinite_rx: bool, tee: Option<PathBuf>, pool: &MbufPool) -> (Port, Queues) {
    let options =
        PcapOptions { rx: vec![PcapSource::File(path.into())], infinite_rx, ..PcapOptions::default() };
    let driver = PcapPort::new("net_pcap0", &options).unwrap_or_else(|error| panic!("{error}"));
    let layers = LayerSpec { tee, ..LayerSpec::default() };
    let driver =
        wrap("net_pcap0", Box::new(driver), &layers, pollux_port_soft::tee::open).expect("the tee opens");
    let mut port = Port::new(PortId(0), "net_pcap0", driver);
    let queues = port.bring_up(PortConfig::queues(1, 1, pool)).expect("starts");
    (port, queues)
}

/// Receives until `count` frames are there, or nothing more comes.
fn receive(queues: &mut Queues, count: usize) -> Vec<Vec<u8>> {
    let (mut burst, mut frames) = (Burst::new(), Vec::new());
    while frames.len() < count && queues.rx[0].rx_burst(&mut burst, 32) > 0 {
        frames.extend(burst.drain(..).map(|mbuf| mbuf.data().to_vec()));
    }
    frames
}

fn fifo(folder: &Path) -> PathBuf {
    let path = folder.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    path
}

#[test]
fn a_file_that_is_cut_off_is_replayed_as_far_as_it_is_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (format, place) in [
        (PcapFormat::Pcap, "ends inside record 3 at byte 177 (70 bytes of 78)"),
        (PcapFormat::PcapNg, "ends inside record 3 at byte 248 (88 bytes of 96)"),
    ] {
        for (infinite_rx, tee) in [(false, false), (false, true), (true, false), (true, true)] {
            let path = folder.path().join("cut");
            let mut bytes = capture(format);
            bytes.truncate(bytes.len() - 8);
            fs::write(&path, bytes).expect("written");
            let copy = folder.path().join("copy.pcapng");
            let lines = logged(|| {
                let pool = MbufPool::builder("cut", 256).build_anonymous().expect("memory");
                let (mut port, mut queues) = open(&path, infinite_rx, tee.then(|| copy.clone()), &pool);
                for _period in 0..2 {
                    let wanted = if infinite_rx { 32 } else { 99 };
                    let frames = receive(&mut queues, wanted);
                    assert_eq!(frames.len(), if infinite_rx { 32 } else { 2 });
                    let repeated = frames.iter().enumerate().all(|(at, got)| *got == frame(at as u8 % 2));
                    assert!(repeated, "{format:?} {infinite_rx}");
                    port.stop().expect("stops");
                    port.start().expect("starts");
                }
                assert!(port.dropped().is_empty(), "{:?}", port.dropped());
            });
            let [line] = &lines[..] else { panic!("one line, not {lines:?}") };
            assert!(line.contains("port net_pcap0: ") && line.contains(place), "{line}");
            if tee {
                let mut reader = PcapReader::open(&copy).expect("a capture");
                let mut copied = 0;
                while reader.next().expect("sound").is_some() {
                    copied += 1;
                }
                assert_eq!(copied, if infinite_rx { 64 } else { 4 });
            }
        }
    }
}

#[test]
fn a_pipe_is_replayed_as_it_fills() {
    for format in [PcapFormat::Pcap, PcapFormat::PcapNg] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = fifo(folder.path());
        let lines = logged(|| {
            let pool = MbufPool::builder("pipe", 256).build_anonymous().expect("memory");
            let (mut port, mut queues) = open(&path, false, None, &pool);
            assert!(receive(&mut queues, 1).is_empty(), "nobody has written");
            let mut writer = File::options().write(true).open(&path).expect("the port has it open");
            let bytes = capture(format);
            let (most, rest) = bytes.split_at(bytes.len() - 8);
            writer.write_all(most).expect("room");
            assert_eq!(receive(&mut queues, 99), [frame(0), frame(1)]);
            // A second period goes on where the pipe was.
            port.stop().expect("stops");
            port.start().expect("starts");
            assert!(receive(&mut queues, 1).is_empty());
            writer.write_all(rest).expect("room");
            assert_eq!(receive(&mut queues, 99), [frame(2)]);
            writer.write_all(&bytes[bytes.len() - 70..bytes.len() - 60]).expect("room");
            drop(writer);
            assert!(receive(&mut queues, 1).is_empty() && receive(&mut queues, 1).is_empty());
            assert_eq!(pool.in_use(), 0);
        });
        assert!(lines.len() <= 1, "{lines:?}");
    }
}

#[test]
fn a_pipe_that_is_repeated_is_read_to_its_end_first() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = fifo(folder.path());
    let writer = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut pipe = File::options().write(true).open(path).expect("somebody reads");
            for piece in capture(PcapFormat::Pcap).chunks(50) {
                pipe.write_all(piece).expect("room");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let pool = MbufPool::builder("pipe", 256).build_anonymous().expect("memory");
    let begun = Instant::now();
    let (_port, mut queues) = open(&path, true, None, &pool);
    let frames = receive(&mut queues, 32);
    assert_eq!(frames.len(), 32);
    assert!(frames.iter().enumerate().all(|(at, got)| *got == frame(at as u8 % 3)));
    writer.join().expect("all was read");
    assert!(begun.elapsed() < LONG);
}
