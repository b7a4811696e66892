use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::*;
use crate::topology::tests::tree;

const MIB: usize = 1 << 20;

fn under(root: &Path, spec: MemorySpec) -> MemoryOptions {
    MemoryOptions { spec, lock: PageLock::Never, root: root.to_owned(), ..MemoryOptions::default() }
}

fn no_huge() -> MemorySpec {
    MemorySpec { no_huge: true, ..MemorySpec::default() }
}

fn message(result: Result<impl std::fmt::Debug, MemoryError>) -> String {
    result.expect_err("it must be refused").to_string()
}

/// What a closure logs, one line an event.
fn logged<R>(body: impl FnOnce() -> R) -> (R, String) {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let result = tracing::subscriber::with_default(subscriber, body);
    let text = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("the log is text");
    (result, text)
}

#[test]
fn zones_are_apart_aligned_and_zero() {
    let memory = Memory::ordinary();
    let mut zones: Vec<Zone> = Vec::new();
    for (index, align) in [1, 64, 4096, 1 << 16, 4 * MIB, 64 * MIB].into_iter().enumerate() {
        let zone = memory.reserve(&format!("zone {index}"), 1000 + index, align, None).expect("memory");
        assert!(zone.base().as_ptr().addr().is_multiple_of(align.max(64)), "{align}");
        let mut bytes = vec![1; zone.bytes()];
        zone.copy_out(0, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0));
        zones.push(zone);
    }
    for zone in &mut zones {
        let bytes = vec![0xff; zone.bytes()];
        zone.copy_in(0, &bytes);
    }
    let mut ranges: Vec<_> = zones
        .iter()
        .map(|zone| {
            let start = zone.base().as_ptr().addr();
            (start, start + zone.bytes())
        })
        .collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ranges:x?}");
    let mut names = Vec::new();
    memory.walk(|zone| names.push(zone.name.clone()));
    assert_eq!(names.len(), zones.len());
}

#[test]
fn freed_bytes_are_joined_used_again_and_zero_again() {
    let memory = Memory::ordinary();
    let reserve = |name: &str, bytes| memory.reserve(name, bytes, 64, None).expect("memory");
    let mut zones: Vec<Zone> = (0..4).map(|index| reserve(&format!("quarter {index}"), MIB / 2)).collect();
    assert_eq!(memory.regions().len(), 1);
    assert_eq!(memory.stats().free, 0);
    for zone in &mut zones {
        zone.copy_in(0, &[7; 100]);
    }
    for index in [2, 0, 1, 0] {
        drop(zones.remove(index.min(zones.len() - 1)));
    }
    let whole = reserve("whole", 2 * MIB);
    assert_eq!(memory.regions().len(), 1, "no new mapping");
    let (start, id) = (whole.base().as_ptr().addr(), memory.regions()[0].id());
    let known = |address| memory.region_of(address).map(|region| region.id());
    assert_eq!([start, start + 2 * MIB - 1].map(known), [Some(id); 2]);
    assert_eq!([0, start - 1, start + 2 * MIB, usize::MAX].map(known), [None; 4]);
    let mut bytes = vec![1; 2 * MIB];
    whole.copy_out(0, &mut bytes);
    assert!(bytes.iter().all(|&byte| byte == 0), "a zone begins as zero");
}

#[test]
fn a_bounded_zone_crosses_no_multiple() {
    let memory = Memory::ordinary();
    let mut held = Vec::new();
    for index in 0..60 {
        let (bytes, bound) = (100 + index * 700, 65_536);
        let request = ZoneRequest { bytes, align: 64, bound: Some(bound), socket: None, huge: false };
        let zone = memory.reserve_as(&format!("zone {index}"), &request).expect("memory");
        let first = zone.base().as_ptr().addr();
        assert_eq!(first / bound, (first + bytes - 1) / bound);
        held.push(zone);
    }
    let large = ZoneRequest { bytes: 3 * MIB, align: 64, bound: Some(4 * MIB), socket: None, huge: false };
    let zone = memory.reserve_as("large", &large).expect("memory");
    let first = zone.base().as_ptr().addr();
    assert_eq!(first / (4 * MIB), (first + 3 * MIB - 1) / (4 * MIB));
}

#[test]
fn a_name_has_one_zone_at_a_time() {
    let memory = Memory::ordinary();
    let zone = memory.reserve("table", 100, 64, None).expect("memory");
    let text = message(memory.reserve("table", 200, 64, None));
    assert_eq!(
        text,
        "cannot reserve table: a zone of that name exists (100 bytes); drop it first or choose another name"
    );
    assert_eq!(zone.name(), "table");
    let info = memory.lookup("table").expect("it lives");
    assert_eq!((info.address, info.bytes), (zone.base().as_ptr().addr(), 100));
    drop(zone);
    assert_eq!(memory.lookup("table"), None);
    memory.reserve("table", 200, 64, None).expect("the name is free again");

    let winners = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| memory.reserve("one", 64, 64, None))).collect();
        let zones: Vec<_> = asked.into_iter().map(|thread| thread.join().expect("it ends well")).collect();
        zones.into_iter().filter(Result::is_ok).count()
    });
    assert!(winners >= 1);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let memory = Memory::ordinary();
    for bytes in [0, BYTES_MAX + 1, usize::MAX] {
        let error = memory.reserve("size", bytes, 64, None).expect_err("refused");
        assert!(matches!(error, MemoryError::Size { .. }), "{error}");
    }
    for align in [0, 3, 96, ALIGN_MAX << 1, usize::MAX] {
        let error = memory.reserve("align", 64, align, None).expect_err("refused");
        assert!(matches!(error, MemoryError::Align { .. }), "{error}");
    }
    for bound in [0, 64, 100, 129] {
        let request = ZoneRequest { bytes: 100, align: 64, bound: Some(bound), socket: None, huge: false };
        let error = memory.reserve_as("bound", &request).expect_err("refused");
        assert!(matches!(error, MemoryError::Bound { .. }), "{error}");
    }
    let text = message(memory.reserve("far", 64, 64, Some(SocketId(999))));
    assert!(
        text.starts_with("cannot reserve memory for far on NUMA node 999: this machine has node"),
        "{text}"
    );
    assert!(memory.regions().is_empty(), "nothing was mapped");
}

#[test]
fn more_than_there_is_is_an_error_with_the_numbers() {
    let memory = Memory::ordinary();
    let text = message(memory.reserve("everything", BYTES_MAX, 64, None));
    assert!(text.contains("for everything") && text.contains("MemAvailable"), "{text}");
    assert!(memory.regions().is_empty());

    let root = tree(&[("proc/meminfo", "MemAvailable: 4096 kB\n")]);
    let memory = Memory::new(under(root.path(), no_huge())).expect("nothing to map yet");
    memory.reserve("small", MIB, 64, None).expect("room");
    let text = message(memory.reserve("large", 6 * MIB, 64, None));
    assert!(text.starts_with("cannot populate 6 MiB for large: 4 MiB are available"), "{text}");

    let spec = MemorySpec { initial_mib: Some(5), ..no_huge() };
    assert!(message(Memory::new(under(root.path(), spec))).contains("5 MiB"));
    let spec = MemorySpec { initial_mib: Some(u64::MAX), ..MemorySpec::default() };
    assert!(matches!(
        Memory::new(under(Path::new("/"), spec)),
        Err(MemoryError::NotEnough { .. } | MemoryError::Map { .. })
    ));
}

/// The huge pages alone would be there, so that mapping could begin.
#[test]
fn what_cannot_be_set_aside_in_full_is_not_begun() {
    let pages = tree(&[
        ("proc/meminfo", "MemAvailable: 4096 kB\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "8\n"),
    ]);
    let asked = |spec| message(Memory::new(under(pages.path(), spec)));
    let line = "cannot populate 100 MiB for the memory reserved at startup: 20 MiB are available (free huge pages, and \
                MemAvailable in /proc/meminfo); ask for less or free some";
    assert_eq!(asked(MemorySpec { initial_mib: Some(100), ..MemorySpec::default() }), line);
    assert_eq!(asked(MemorySpec { numa_mib: vec![100], ..MemorySpec::default() }), line);
    let text = asked(MemorySpec { initial_mib: Some(5), numa_limit_mib: vec![4], ..no_huge() });
    assert!(text.ends_with("of the limit of 4 MiB are mapped; raise --numa-limit"), "{text}");

    let limited = tree(&[
        ("proc/meminfo", "MemAvailable: 999999999 kB\n"),
        ("proc/self/status", "VmSize: 1024 kB\n"),
        ("proc/self/limits", "Max address space  8388608  8388608  bytes\n"),
    ]);
    let text = message(Memory::new(under(limited.path(), MemorySpec { initial_mib: Some(8), ..no_huge() })));
    assert!(text.contains("7 MiB are available (RLIMIT_AS"), "{text}");
}

/// Terabytes, against this machine as it is.
#[test]
fn far_too_much_is_refused_at_once() {
    // Not the time that has passed: other tests run beside this one.
    let spent = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let begun = spent();
    let spec = MemorySpec { initial_mib: Some(100_000_000), ..MemorySpec::default() };
    let error = Memory::new(under(Path::new("/"), spec)).expect_err("100 TB");
    assert!(matches!(error, MemoryError::NotEnough { .. }), "{error}");
    assert!(spent() - begun < std::time::Duration::from_millis(50), "{:?}", spent() - begun);
}

#[test]
fn what_is_asked_for_at_start_is_there() {
    let spec = MemorySpec { initial_mib: Some(6), ..no_huge() };
    let memory = Memory::new(under(Path::new("/"), spec)).expect("memory");
    let nodes = memory.topology().nodes().len();
    assert_eq!(memory.stats().free, 6 * MIB);
    assert_eq!(memory.regions().len(), nodes);
    memory.reserve("part", 2 * MIB, 64, None).expect("memory");
    assert_eq!(memory.regions().len(), nodes, "it came from what was there");

    let spec = MemorySpec { numa_mib: vec![4], ..no_huge() };
    let memory = Memory::new(under(Path::new("/"), spec)).expect("memory");
    assert_eq!(memory.regions()[0].socket(), Some(SocketId(0)));
    assert_eq!(memory.regions()[0].bytes(), 4 * MIB);
    let spec = MemorySpec { numa_mib: [vec![0; 500], vec![4]].concat(), ..no_huge() };
    assert!(matches!(Memory::new(under(Path::new("/"), spec)), Err(MemoryError::NoSocket { .. })));
}

#[test]
fn a_limit_on_a_node_holds() {
    let spec = MemorySpec { numa_limit_mib: vec![4], ..no_huge() };
    let root = tree(&[]);
    let memory = Memory::new(under(root.path(), spec)).expect("nothing to map yet");
    let zone = memory.reserve("first", 3 * MIB, 64, None).expect("within the limit");
    let text = message(memory.reserve("second", MIB + 1, 64, None));
    assert_eq!(
        text,
        "cannot reserve 2 MiB for second: 4 MiB of the limit of 4 MiB are mapped; raise --numa-limit"
    );
    drop(zone);
    memory.reserve("second", 4 * MIB, 64, None).expect("what was given back is used again");
}

#[test]
fn a_zone_is_on_the_node_that_was_asked_for() {
    if crate::region::skipped_without_mbind() {
        return;
    }
    // A second node that no kernel has: to bind to it fails.
    let root = tree(&[
        ("sys/devices/system/node/online", "0,900\n"),
        ("sys/devices/system/node/node0/cpulist", "0-9999\n"),
        ("sys/devices/system/node/node900/cpulist", "\n"),
    ]);
    let memory = Memory::new(under(root.path(), no_huge())).expect("nothing to map yet");
    let zone = memory.reserve("near", 100, 64, Some(SocketId(0))).expect("node 0 exists");
    assert_eq!(zone.region().socket(), Some(SocketId(0)));
    let text = message(memory.reserve("far", 100, 64, Some(SocketId(900))));
    assert_eq!(text, "cannot bind 2 MiB for far to NUMA node 900");
    let zone = memory.reserve("anywhere", 8 * MIB, 64, None).expect("one of the nodes has room");
    assert_eq!(zone.region().socket(), Some(SocketId(0)));
    let spec = MemorySpec { numa_mib: vec![2, 2], ..no_huge() };
    let text = message(Memory::new(under(root.path(), spec)));
    assert_eq!(text, "cannot reserve memory for --numa-mem on NUMA node 1: this machine has nodes 0, 900");
}

#[test]
fn a_zone_outlives_its_memory() {
    let memory = Memory::ordinary();
    let mut zone = memory.reserve("long", 5000, 64, None).expect("memory");
    drop(memory);
    zone.copy_in(4990, b"0123456789");
    let mut bytes = [0; 10];
    zone.copy_out(4990, &mut bytes);
    assert_eq!(&bytes, b"0123456789");
}

#[test]
fn two_memories_share_nothing() {
    let (one, two) = (Memory::ordinary(), Memory::ordinary());
    let first = one.reserve("same name", 100, 64, None).expect("memory");
    let second = two.reserve("same name", 100, 64, None).expect("another memory, another name space");
    assert_ne!(first.region().id(), second.region().id());
    assert_ne!(first.base(), second.base());
    assert_eq!((one.stats().zones.len(), two.stats().zones.len()), (1, 1));
}

#[test]
fn who_wants_huge_pages_alone_gets_no_others() {
    let request = |bytes| ZoneRequest { bytes, align: 64, bound: None, socket: None, huge: true };
    let root = tree(&[
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n"),
    ]);
    let memory = Memory::new(under(root.path(), MemorySpec::default())).expect("nothing to map yet");
    let (_ordinary, _log) =
        logged(|| memory.reserve("ordinary", MIB, 64, None).expect("ordinary pages serve"));
    let (refused, log) = logged(|| memory.reserve_as("buffers", &request(3 * MIB)));
    assert_eq!(
        message(refused),
        "cannot allocate 3 MiB of hugepages for buffers: 0 of 1 pages of 2 MiB free; as root, `echo 3 > \
         /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`"
    );
    assert_eq!(log, "", "the error says it all");
    // Not in what is free of ordinary pages either.
    let text = message(memory.reserve_as("small", &request(64)));
    assert!(text.starts_with("cannot allocate 2 MiB of hugepages for small"), "{text}");
    assert_eq!(memory.regions().len(), 1, "nothing was mapped");

    let memory = Memory::new(under(Path::new("/"), no_huge())).expect("nothing to map yet");
    let text = message(memory.reserve_as("buffers", &request(64)));
    assert!(text.ends_with("for buffers: --no-huge forbids them; leave --no-huge out"), "{text}");
}

#[test]
fn ordinary_pages_are_told_of_once_with_the_command() {
    // Pools of a size that no processor has: to map them fails, as on a machine where somebody else was faster.
    let root = tree(&[
        ("sys/kernel/mm/hugepages/hugepages-16777216kB/nr_hugepages", "3\n"),
        ("sys/kernel/mm/hugepages/hugepages-16777216kB/free_hugepages", "3\n"),
    ]);
    let (_, log) = logged(|| {
        let memory = Memory::new(under(root.path(), MemorySpec::default())).expect("nothing to map yet");
        memory.reserve("first", MIB, 64, None).expect("ordinary pages serve");
        memory.reserve("second", 8 * MIB, 64, None).expect("ordinary pages serve");
    });
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("lib.eal") && log.contains("cannot map 16 GiB"), "{log}");

    let root = tree(&[
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n"),
    ]);
    let (_, log) = logged(|| {
        let spec = MemorySpec { initial_mib: Some(4), ..MemorySpec::default() };
        Memory::new(under(root.path(), spec)).expect("ordinary pages serve")
    });
    assert_eq!(log.lines().count(), 1, "{log}");
    let mend = "as root, `echo 2 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`, or --no-huge\n";
    assert!(log.ends_with(&format!("too few huge pages are free; {mend}")), "{log}");
    assert!(log.rsplit("lib.eal: ").next().is_some_and(|text| text.len() < 150), "one short line: {log}");

    let (_, log) = logged(|| {
        let memory = Memory::new(under(root.path(), no_huge())).expect("nothing to map yet");
        memory.reserve("first", MIB, 64, None).expect("memory");
    });
    assert_eq!(log, "", "who asks for ordinary pages need not be told");
}

#[test]
fn a_directory_without_huge_pages_is_refused() {
    let directory = tree(&[]);
    let spec = MemorySpec { huge_dir: Some(directory.path().into()), ..MemorySpec::default() };
    let text = message(Memory::new(under(Path::new("/"), spec.clone())));
    assert!(text.contains("not a hugetlbfs mount; run `mount -t hugetlbfs"), "{text}");
    let absent = MemorySpec { huge_dir: Some(directory.path().join("absent")), ..MemorySpec::default() };
    assert!(matches!(Memory::new(under(Path::new("/"), absent)), Err(MemoryError::HugeDir { .. })));
    let unused = MemorySpec { in_memory: true, ..spec };
    Memory::new(under(Path::new("/"), unused)).expect("--in-memory uses no directory");
}

#[test]
fn the_table_names_every_zone() {
    let memory = Memory::ordinary();
    let _zone = memory.reserve("flow table", 100, 64, None).expect("memory");
    let stats = memory.stats();
    assert_eq!((stats.bytes, stats.used, stats.free), (2 * MIB, 128, 2 * MIB - 128));
    assert_eq!(stats.regions[0].free_run_max, stats.free);
    let text = stats.to_string();
    assert!(text.contains("zone flow table: ") && text.contains("100 bytes"), "{text}");
    assert!(text.contains("memory: 2 MiB mapped"), "{text}");
}
