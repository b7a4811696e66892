//! Capture files: known bytes, both ways round, and files made to hurt.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pollux_frame_io::FrameError;
use pollux_frame_io::pcap::{
    LostFrames, PcapFormat, PcapReader, PcapSection, PcapWriter, Timestamp, Truncation,
};
use pollux_tests::disk::SmallDisk;
use pollux_tests::require::{Need, require};
use proptest::prelude::*;

fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("capture");
    fs::write(&path, bytes).expect("a small file");
    (dir, path)
}

type Read = (Vec<u8>, u32, u64, u32);

/// Everything up to the end or the first error.
fn read(path: &Path) -> (Vec<Read>, Option<FrameError>) {
    let mut frames = Vec::new();
    let mut reader = match PcapReader::open(path) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(frame)) => {
                frames.push((frame.data.to_vec(), frame.wire_bytes, frame.timestamp.nanos(), frame.interface))
            }
            Ok(None) => return (frames, None),
            Err(error) => {
                assert!(matches!(reader.next(), Ok(None)), "after an error the file has ended");
                return (frames, Some(error));
            }
        }
    }
}

fn read_bytes(bytes: &[u8]) -> (Vec<Read>, Option<FrameError>) {
    let (_dir, path) = file(bytes);
    read(&path)
}

/// Fields of a file in a chosen byte order.
struct Bytes {
    big_endian: bool,
    bytes: Vec<u8>,
}

impl Bytes {
    fn new(big_endian: bool) -> Self {
        Self { big_endian, bytes: Vec::new() }
    }
    fn u16(mut self, value: u16) -> Self {
        let bytes = if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend(bytes);
        self
    }
    fn u32(mut self, value: u32) -> Self {
        let bytes = if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend(bytes);
        self
    }
    fn u64(mut self, value: u64) -> Self {
        let bytes = if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend(bytes);
        self
    }
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }
    fn pcap(self, magic: u32, link_type: u32) -> Self {
        self.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65535).u32(link_type)
    }
    fn section(self) -> Self {
        self.u32(0x0a0d_0d0a).u32(28).u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX).u32(28)
    }
    fn interface(self, link_type: u16, snaplen: u32, options: &[u8]) -> Self {
        let bytes = 20 + options.len() as u32;
        self.u32(1).u32(bytes).u16(link_type).u16(0).u32(snaplen).raw(options).u32(bytes)
    }
    fn packet(self, interface: u16, ticks: u64, data: &[u8], wire: u32) -> Self {
        let padding = data.len().next_multiple_of(4) - data.len();
        let bytes = (32 + data.len() + padding) as u32;
        self.u32(2)
            .u32(bytes)
            .u16(interface)
            .u16(7)
            .u32((ticks >> 32) as u32)
            .u32(ticks as u32)
            .u32(data.len() as u32)
            .u32(wire)
            .raw(data)
            .raw(&[0; 4][..padding])
            .u32(bytes)
    }
    fn enhanced(self, interface: u32, ticks: u64, data: &[u8], wire: u32) -> Self {
        let padding = data.len().next_multiple_of(4) - data.len();
        let bytes = (32 + data.len() + padding) as u32;
        self.u32(6)
            .u32(bytes)
            .u32(interface)
            .u32((ticks >> 32) as u32)
            .u32(ticks as u32)
            .u32(data.len() as u32)
            .u32(wire)
            .raw(data)
            .raw(&[0; 4][..padding])
            .u32(bytes)
    }
}

#[test]
fn pcap_in_all_four_forms() {
    for big_endian in [false, true] {
        for (magic, nanos_per_tick) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            let capture = Bytes::new(big_endian)
                .pcap(magic, 1)
                .u32(7)
                .u32(9)
                .u32(3)
                .u32(60)
                .raw(&[1, 2, 3])
                .u32(8)
                .u32(0)
                .u32(0)
                .u32(0);
            let (frames, error) = read_bytes(&capture.bytes);
            assert!(error.is_none(), "{error:?}");
            let expected = vec![
                (vec![1, 2, 3], 60, 7_000_000_000 + 9 * nanos_per_tick, 0),
                (vec![], 0, 8_000_000_000, 0),
            ];
            assert_eq!(frames, expected, "big endian {big_endian}, magic {magic:#x}");
        }
    }
}

#[test]
fn pcapng_with_several_interfaces_resolutions_and_sections() {
    for big_endian in [false, true] {
        let option = |code: u16, value: &[u8]| {
            Bytes::new(big_endian)
                .u16(code)
                .u16(value.len() as u16)
                .raw(value)
                .raw(&[0; 3][..(4 - value.len() % 4) % 4])
                .bytes
        };
        let seconds = if big_endian { 100i64.to_be_bytes() } else { 100i64.to_le_bytes() };
        let nanos = [option(9, &[9]), option(14, &seconds), option(0, &[])].concat();
        let binary = [option(2, b"eth0"), option(9, &[0x80 | 10])].concat();
        let capture = Bytes::new(big_endian)
            .section()
            .interface(1, 0, &[])
            .interface(1, 0, &nanos)
            .interface(1, 0, &binary)
            // A block of a kind that nobody knows.
            .u32(0x0bad_cafe)
            .u32(16)
            .u32(0)
            .u32(16)
            .enhanced(0, 5_000_001, &[0xaa; 5], 5)
            .enhanced(1, 7, &[0xbb; 4], 1500)
            .enhanced(2, 1024 + 512, &[0xcc; 1], 1)
            .section()
            .interface(1, 6, &[])
            // Simple packets: the second longer than the interface's snaplen, so 6 bytes of it are kept.
            .u32(3)
            .u32(20)
            .u32(4)
            .raw(&[1, 2, 3, 4])
            .u32(20)
            .u32(3)
            .u32(24)
            .u32(64)
            .raw(&[9; 8])
            .u32(24);
        let (frames, error) = read_bytes(&capture.bytes);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(
            frames,
            vec![
                (vec![0xaa; 5], 5, 5_000_001_000, 0),
                (vec![0xbb; 4], 1500, 100_000_000_007, 1),
                (vec![0xcc; 1], 1, 1_500_000_000, 2),
                (vec![1, 2, 3, 4], 4, 0, 0),
                (vec![9; 6], 64, 0, 0),
            ],
            "big endian {big_endian}"
        );
    }
}

#[test]
fn golden_bytes_of_what_is_written() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let time = Timestamp::from_nanos(0x0002_0000_0003_0405);
    let expectations = [
        (
            PcapFormat::Pcap,
            Bytes::new(false)
                .raw(&[0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0])
                .u32((time.nanos() / 1_000_000_000) as u32)
                .u32((time.nanos() % 1_000_000_000) as u32)
                .u32(5)
                .u32(9)
                .raw(&[1, 2, 3, 4, 5]),
        ),
        (
            PcapFormat::PcapNg,
            Bytes::new(false)
                .section()
                .interface(1, 0x4_0000, &[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0])
                .enhanced(0, time.nanos(), &[1, 2, 3, 4, 5], 9),
        ),
    ];
    for (format, expected) in expectations {
        let path = dir.path().join(format!("{format:?}"));
        let writer = PcapWriter::create(&path, format).expect("a new file");
        writer.write(&[&[1, 2], &[], &[3, 4, 5]], 9, time).expect("a frame");
        writer.close().expect("closes");
        assert_eq!(fs::read(&path).expect("the file"), expected.bytes, "{format:?}");
    }
}

#[test]
fn a_pause_finds_every_frame_in_the_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for format in [PcapFormat::Pcap, PcapFormat::PcapNg] {
        let path = dir.path().join(format!("{format:?}"));
        let writer = PcapWriter::create(&path, format).expect("a new file");
        for pause in 1..=3 {
            for _ in 0..40 {
                writer.write(&[&[pause; 60]], 60, Timestamp::default()).expect("a frame");
            }
            // Nobody calls the writer from here on.
            std::thread::sleep(Duration::from_secs(1));
            let (frames, error) = read(&path);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(frames.len(), 40 * usize::from(pause), "{format:?}");
        }
        assert_eq!(writer.take_lost(), LostFrames::default());
    }
}

#[test]
fn many_threads_write_whole_records() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for format in [PcapFormat::Pcap, PcapFormat::PcapNg] {
        let path = dir.path().join(format!("{format:?}"));
        let writer = PcapWriter::create(&path, format).expect("a new file");
        std::thread::scope(|scope| {
            for thread in 0..3u8 {
                let writer = &writer;
                scope.spawn(move || {
                    for number in 0..2000u16 {
                        let data = [&[thread][..], &number.to_be_bytes(), &[thread; 997]].concat();
                        writer.write(&[&data], 1000, Timestamp::default()).expect("a frame");
                    }
                });
            }
        });
        writer.close().expect("closes");
        let (frames, error) = read(&path);
        assert!(error.is_none(), "{error:?}");
        let mut next = [0u16; 3];
        for (data, ..) in &frames {
            let thread = usize::from(data[0]);
            assert_eq!(u16::from_be_bytes([data[1], data[2]]), next[thread], "in the order of its thread");
            assert!(data[3..].iter().all(|byte| *byte == data[0]));
            next[thread] += 1;
        }
        assert_eq!(next, [2000; 3]);
    }
}

#[test]
fn a_disk_that_fills_up_costs_the_frames_that_do_not_fit() {
    if !require(&[Need::Root]) {
        return;
    }
    // The disk fills within a batch of records that is handed over because the buffer is full, and within one after a pause.
    for (format, frames) in [
        (PcapFormat::Pcap, 1000u64),
        (PcapFormat::PcapNg, 1000),
        (PcapFormat::Pcap, 100),
        (PcapFormat::PcapNg, 100),
    ] {
        let disk = SmallDisk::new(if frames == 1000 { 600 } else { 64 });
        let path = disk.file("capture");
        let writer = PcapWriter::create(&path, format).expect("the header fits");
        let refused = (0..frames)
            .filter(|_| writer.write(&[&[7; 1000]], 1000, Timestamp::default()).is_err())
            .count() as u64;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !writer.has_failed() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let late = writer.write(&[&[7; 1000]], 1000, Timestamp::default()).expect_err("full");
        let cause = std::error::Error::source(&late).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("No space left on device (os error 28)"));
        writer.flush().expect_err("still full");
        let lost = writer.take_lost();
        assert_eq!(lost.bytes, lost.frames * 1000);
        let (whole, error) = read(&path);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(whole.len() as u64 + lost.frames + refused, frames, "{format:?}: each is here or there");
        assert!(!whole.is_empty() && lost.frames > 0, "{} {lost:?}", whole.len());
        assert_eq!(PcapReader::open(&path).map(|mut reader| drain(&mut reader)).expect("opens"), None);
        drop(writer);
    }
}

/// As standard output is that goes behind what a file has already.
#[test]
fn a_disk_that_fills_up_costs_nothing_of_what_stood_before() {
    if !require(&[Need::Root]) {
        return;
    }
    for append in [true, false] {
        let disk = SmallDisk::new(64);
        let path = disk.file("capture");
        std::fs::write(&path, [9; 10_000]).expect("there is room");
        let mut file = OpenOptions::new().write(true).append(append).open(&path).expect("there");
        file.seek(SeekFrom::End(0)).expect("a plain file");
        let writer = PcapWriter::over(file, &path, PcapFormat::PcapNg, &PcapSection::default());
        let writer = writer.expect("the header fits");
        let refused = (0..100)
            .filter(|_| writer.write(&[&[7; 1000]], 1000, Timestamp::default()).is_err())
            .count() as u64;
        writer.flush().expect_err("full");
        let lost = writer.take_lost().frames + refused;
        let all = std::fs::read(&path).expect("there");
        let (before, capture) = all.split_at(10_000);
        assert!(before.iter().all(|byte| *byte == 9));
        let (whole, error) = read_bytes(capture);
        assert!(error.is_none(), "{error:?}");
        assert!(lost > 0 && whole.len() as u64 + lost == 100, "{} {lost}", whole.len());
    }
}

fn drain(reader: &mut PcapReader) -> Option<Truncation> {
    while reader.next().expect("sound").is_some() {}
    reader.truncation().cloned()
}

#[test]
fn format_follows_the_name() {
    assert_eq!(PcapFormat::of(Path::new("a.pcapng")), PcapFormat::PcapNg);
    assert_eq!(PcapFormat::of(Path::new("a.pcap")), PcapFormat::Pcap);
    assert_eq!(PcapFormat::of(Path::new("a")), PcapFormat::Pcap);
}

/// The message of the one error, and how many frames came before it.
fn complaint(bytes: &[u8]) -> (usize, String) {
    let (frames, error) = read_bytes(bytes);
    let text = error.expect("an error").to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    (frames.len(), text.split_once("is damaged ").expect("says what").1.to_owned())
}

#[test]
fn damage_is_named_with_its_place() {
    let capture = || Bytes::new(false).pcap(0xa1b2_c3d4, 1).u32(0).u32(0).u32(2).u32(2).raw(&[1, 2]);
    assert_eq!(complaint(b""), (0, "at byte 0: too short to be a pcap or pcapng file".into()));
    assert_eq!(
        complaint(b"hello, world, how are you?"),
        (0, "at byte 0: neither a pcap nor a pcapng file".into())
    );
    assert_eq!(complaint(&capture().bytes[..20]), (0, "at byte 0: the file ends inside its header".into()));
    assert_eq!(
        complaint(&Bytes::new(true).pcap(0xa1b2_c3d4, 113).bytes),
        (0, "at byte 0: link type 113 (only 1, Ethernet, can be used)".into())
    );
    assert_eq!(
        complaint(&capture().u32(0).u32(0).u32(u32::MAX).u32(0).bytes),
        (1, "at byte 42: a frame of 4294967295 bytes (at most 262144 are possible)".into())
    );
    let section = || Bytes::new(false).section();
    assert_eq!(
        complaint(&section().enhanced(0, 0, &[1], 1).bytes),
        (0, "at byte 28: a frame of interface 0, but 0 interfaces are described".into())
    );
    assert_eq!(
        complaint(&section().interface(101, 0, &[]).enhanced(0, 0, &[1], 1).bytes),
        (0, "at byte 48: a frame of interface 0, whose link type is not Ethernet (1)".into())
    );
    assert_eq!(
        complaint(&section().u32(9).u32(13).u32(0).bytes),
        (0, "at byte 28: a block of 13 bytes (a multiple of 4, at least 12)".into())
    );
    assert_eq!(
        complaint(&section().u32(1).u32(20).u32(0).u32(0).u32(24).bytes),
        (0, "at byte 28: a block whose two lengths differ".into())
    );
    assert_eq!(
        complaint(&section().interface(1, 0, &[]).u32(2).u32(28).raw(&[0; 16]).u32(28).bytes),
        (0, "at byte 48: a packet block of 28 bytes (at least 32)".into())
    );
}

/// The frames of a file that is cut off, and what is said of its end.
fn cut_off(bytes: &[u8]) -> (usize, Option<String>) {
    let (_dir, path) = file(bytes);
    let mut reader = PcapReader::open(&path).expect("a whole header");
    let mut first = None;
    for _ in 0..2 {
        let mut frames = 0;
        while reader.next().expect("no damage").is_some() {
            frames += 1;
        }
        assert!(reader.has_ended());
        let told = reader.truncation().map(|end| {
            assert_eq!(end.frames, frames as u64);
            end.to_string().strip_prefix(&format!("{} ", path.display())).expect("names the file").to_owned()
        });
        let seen = (frames, told);
        assert_eq!(first.get_or_insert_with(|| seen.clone()), &seen, "the same after a rewind");
        reader.rewind().expect("a file can be read twice");
    }
    first.expect("read")
}

#[test]
fn what_is_whole_of_a_file_that_is_cut_off_is_read() {
    let capture = || Bytes::new(false).pcap(0xa1b2_c3d4, 1).u32(0).u32(0).u32(2).u32(2).raw(&[1, 2]);
    let table = [
        (capture(), 1, None),
        (
            capture().raw(&[0; 10]),
            1,
            Some("ends inside record 2 at byte 42 (10 bytes of 16); whole frames before it: 1"),
        ),
        (
            capture().u32(0).u32(0).u32(100).u32(100).raw(&[0; 10]),
            1,
            Some("ends inside record 2 at byte 42 (26 bytes of 116); whole frames before it: 1"),
        ),
        // A skipped block that claims 4 GiB costs no memory.
        (
            Bytes::new(false).section().u32(99).u32(0xffff_fff0).u32(0),
            0,
            Some("ends inside record 1 at byte 28 (12 bytes of 4294967280); whole frames before it: 0"),
        ),
    ];
    for (capture, frames, told) in table {
        assert_eq!(cut_off(&capture.bytes), (frames, told.map(str::to_owned)));
    }
    // Wherever the knife falls: each whole frame is there, and the end is told unless it falls between records.
    for (ng, big_endian) in [(false, false), (false, true), (true, false), (true, true)] {
        let whole = sound_capture(ng, big_endian);
        let header = if ng { 28 } else { 24 };
        let (total, told) = cut_off(&whole);
        assert_eq!((total, told), (if ng { 4 } else { 2 }, None));
        let (mut between, mut frames_before) = (0, 0);
        for end in header..whole.len() {
            let (frames, told) = cut_off(&whole[..end]);
            assert!(frames >= frames_before && frames < total);
            frames_before = frames;
            between += usize::from(told.is_none());
        }
        assert_eq!(between, if ng { 5 } else { 2 }, "at the ends of whole records alone");
    }
}

#[test]
fn packet_blocks_are_read_as_the_others() {
    for big_endian in [false, true] {
        let milli = if big_endian { [0, 9, 0, 1, 3, 0, 0, 0] } else { [9, 0, 1, 0, 3, 0, 0, 0] };
        let capture = Bytes::new(big_endian)
            .section()
            .interface(1, 0, &[])
            .interface(1, 0, &milli)
            .packet(0, 5_000_001, &[0xaa; 5], 5)
            .packet(1, 1 << 33, &[0xbb; 4], 1500)
            .section()
            .interface(1, 0, &[])
            .packet(0, 0, &[], 0);
        let (frames, error) = read_bytes(&capture.bytes);
        assert!(error.is_none(), "{error:?}");
        let expected = vec![
            (vec![0xaa; 5], 5, 5_000_001_000, 0),
            (vec![0xbb; 4], 1500, (1 << 33) * 1_000_000, 1),
            (vec![], 0, 0, 0),
        ];
        assert_eq!(frames, expected, "big endian {big_endian}");
    }
}

#[test]
fn a_pipe_is_read_as_it_fills() {
    for (ng, big_endian) in [(false, false), (false, true), (true, false), (true, true)] {
        let whole = sound_capture(ng, big_endian);
        let (expected, _) = read_bytes(&whole);
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        let mut reader = PcapReader::open(&path).expect("no writer is needed to open it");
        assert!(reader.is_pipe());
        assert!(reader.next().expect("nothing is wrong").is_none() && !reader.has_ended(), "no writer yet");
        let mut writer = fs::File::options().write(true).open(&path).expect("the reader is there");
        let mut got = Vec::new();
        for byte in &whole {
            writer.write_all(&[*byte]).expect("the reader is there");
            while let Some(frame) = reader.next().expect("sound") {
                got.push((frame.data.to_vec(), frame.wire_bytes, frame.timestamp.nanos(), frame.interface));
            }
            assert!(!reader.has_ended());
        }
        assert_eq!(got, expected, "ng {ng}, big endian {big_endian}");
        writer.write_all(&[whole[whole.len() - 8]]).expect("the reader is there");
        drop(writer);
        let deadline = Instant::now() + Duration::from_secs(10);
        // A process that a test beside this one is about to start has the writer's end for a moment.
        while !reader.has_ended() {
            reader.wait(Duration::from_secs(10)).expect("no error");
            assert!(Instant::now() < deadline, "the end wakes");
            assert!(reader.next().expect("cut off is no damage").is_none());
        }
        assert!(reader.truncation().is_some());
        assert!(reader.rewind().is_err());
    }
}

#[test]
fn unreadable_files_are_named() {
    let error = PcapReader::open("/nonexistent/a.pcap").expect_err("no such file");
    assert_eq!(error.to_string(), "cannot open /nonexistent/a.pcap");
    assert!(PcapReader::open("/").is_err(), "a directory");
    let error = PcapWriter::create("/nonexistent/b.pcap", PcapFormat::Pcap).expect_err("no such directory");
    assert_eq!(error.to_string(), "cannot create /nonexistent/b.pcap");
}

#[test]
fn a_full_disk_is_an_error_and_stays_one() {
    let error = PcapWriter::create("/dev/full", PcapFormat::Pcap).expect_err("the header does not fit");
    assert_eq!(error.to_string(), "cannot write /dev/full");
}

#[test]
fn rewinding_reads_the_same_again() {
    let capture = Bytes::new(false).section().interface(1, 0, &[]).enhanced(0, 1, &[1; 70], 70);
    let (_dir, path) = file(&capture.bytes);
    let mut reader = PcapReader::open(&path).expect("opens");
    for _ in 0..3 {
        assert_eq!(reader.next().expect("reads").expect("one frame").data, [1; 70]);
        assert!(reader.next().expect("reads").is_none());
        reader.rewind().expect("a file can be read twice");
    }
}

fn frames() -> impl Strategy<Value = Vec<(Vec<u8>, u16, u32)>> {
    let sizes = prop_oneof![0..200usize, 1400..1600usize, Just(66_000), Just(262_144)];
    prop::collection::vec(
        (sizes, any::<u8>(), any::<u16>(), any::<u32>()).prop_map(|(size, seed, beyond, time)| {
            ((0..size).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect(), beyond, time)
        }),
        0..20,
    )
}

/// A capture of a few frames in either format, to be damaged.
fn sound_capture(ng: bool, big_endian: bool) -> Vec<u8> {
    if ng {
        let names = [2, 0, 4, 0, b'e', b't', b'h', b'0'];
        let options: &[u8] = if big_endian { &[] } else { &names };
        Bytes::new(big_endian)
            .section()
            .interface(1, 0, options)
            .enhanced(0, 1, &[1; 70], 70)
            .u32(3)
            .u32(20)
            .u32(4)
            .raw(&[1, 2, 3, 4])
            .u32(20)
            .packet(0, 1, &[1; 9], 70)
            .enhanced(0, 1, &[1; 7], 70)
            .bytes
    } else {
        Bytes::new(big_endian)
            .pcap(0xa1b2_c3d4, 1)
            .u32(0)
            .u32(0)
            .u32(2)
            .u32(2)
            .raw(&[1, 2])
            .u32(0)
            .u32(0)
            .u32(5)
            .u32(5)
            .raw(&[1; 5])
            .bytes
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(frames in frames(), ng: bool) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("capture");
        let format = if ng { PcapFormat::PcapNg } else { PcapFormat::Pcap };
        let writer = PcapWriter::create(&path, format).expect("a new file");
        for (data, beyond, time) in &frames {
            let (head, tail) = data.split_at(data.len() / 3);
            let time = Timestamp::from_nanos(u64::from(*time) * 1_234_567);
            writer.write(&[head, tail], data.len() + usize::from(*beyond), time).expect("a frame");
        }
        drop(writer);
        let (got, error) = read(&path);
        prop_assert!(error.is_none(), "{error:?}");
        prop_assert_eq!(got.len(), frames.len());
        for (got, (data, beyond, time)) in got.iter().zip(&frames) {
            prop_assert!(&got.0 == data);
            prop_assert_eq!(got.1 as usize, data.len() + usize::from(*beyond));
            prop_assert_eq!(got.2, u64::from(*time) * 1_234_567);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Bytes changed, words put to extremes, the end cut off: an error or frames, never a panic.
    #[test]
    fn damaged_captures_do_no_harm(
        ng: bool,
        big_endian: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        words in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![
                Just(0u32), Just(u32::MAX), Just(u32::MAX - 3), Just(u32::MAX - 4), Just(0x8000_0000), Just(12), Just(16),
                Just(28), Just(32), Just(36), Just(262_144), Just(262_148), any::<u32>(),
            ]),
            0..4,
        ),
        cut in any::<prop::sample::Index>(),
        cut_off: bool,
    ) {
        let mut bytes = sound_capture(ng, big_endian);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for (at, value) in words {
            let at = at.index(bytes.len() / 4) * 4;
            let value = if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
            bytes[at..at + 4].copy_from_slice(&value);
        }
        if cut_off {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        let (frames, error) = read_bytes(&bytes);
        prop_assert!(frames.len() <= bytes.len() / 12);
        if let Some(error) = error {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    /// Any bytes behind a sound beginning.
    #[test]
    fn noise_does_no_harm(ng: bool, big_endian: bool, noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = sound_capture(ng, big_endian);
        bytes.extend(noise);
        let (frames, _) = read_bytes(&bytes);
        let sound = if ng { 4 } else { 2 };
        prop_assert!(frames.len() >= sound);
    }
}
