use std::path::Path;

use super::*;
use crate::topology::tests::tree;

#[test]
fn pools_come_largest_first_and_count_what_can_be_had() {
    let root = tree(&[
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "10\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "8\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "3\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages", "1\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages", "5\n"),
        ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "1\n"),
        ("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "1\n"),
        ("sys/kernel/mm/hugepages/junk/nr_hugepages", "1\n"),
        ("sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "4\n"),
        ("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "2\n"),
    ]);
    let pools = HugePool::all(root.path(), None);
    assert_eq!(
        pools,
        [
            HugePool { page_size: 1 << 30, total: 1, free: 1 },
            HugePool { page_size: 2 << 20, total: 10, free: 8 - 3 + 4 },
        ]
    );
    assert_eq!(
        HugePool::all(root.path(), Some(SocketId(1))),
        [HugePool { page_size: 2 << 20, total: 4, free: 2 }]
    );
    assert_eq!(describe(&pools), "1 of 1 pages of 1 GiB free, 9 of 10 pages of 2 MiB free");
    assert_eq!(
        command_for(&pools, 64 << 20, None),
        "as root, `echo 33 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`"
    );
    assert!(HugePool::all(Path::new("/nonexistent"), None).is_empty());
}

#[test]
fn the_least_of_machine_and_groups_is_available() {
    let meminfo = ("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable:    3000 kB\n");
    let root = tree(&[meminfo]);
    assert_eq!(available(root.path()).expect("told").bytes, 3000 * 1024);

    let root = tree(&[
        meminfo,
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/memory.max", "1000000\n"),
        ("sys/fs/cgroup/a/memory.current", "900000\n"),
        ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 200000\nactive_file 100000\n"),
        ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("sys/fs/cgroup/a/b/memory.current", "900000\n"),
    ]);
    let least = available(root.path()).expect("told");
    assert_eq!(least.bytes, 400_000, "page cache can be dropped: {least:?}");
    assert!(least.told_by.ends_with("sys/fs/cgroup/a/memory.max"), "{least:?}");

    let root = tree(&[
        meminfo,
        ("proc/self/cgroup", "4:cpu:/z\n3:blkio,memory:/c\n"),
        ("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "500000\n"),
        ("sys/fs/cgroup/memory/c/memory.usage_in_bytes", "600000\n"),
    ]);
    assert_eq!(available(root.path()).expect("told").bytes, 0);
    assert_eq!(available(Path::new("/nonexistent")), None);
}

#[test]
fn a_limit_on_the_address_space_is_read() {
    let status = ("proc/self/status", "Name:\tx\nVmSize:\t    1000 kB\n");
    let limits = |soft: &str| {
        format!("Limit  Soft Limit  Hard Limit  Units\nMax address space         {soft} unlimited bytes\n")
    };
    let left = |soft: &str| {
        let root = tree(&[status, ("proc/self/limits", &limits(soft))]);
        address_space(root.path()).map(|left| left.bytes)
    };
    assert_eq!(left("3000000"), Some(3_000_000 - 1_024_000));
    assert_eq!(left("1000"), Some(0));
    assert_eq!(left("unlimited"), None);
    assert_eq!(address_space(Path::new("/nonexistent")), None);
}

#[test]
fn bytes_read_well() {
    for (bytes, text) in
        [(0, "0 bytes"), (1000, "1000 bytes"), (4096, "4 KiB"), (3 << 20, "3 MiB"), (1 << 30, "1 GiB")]
    {
        assert_eq!(Bytes(bytes).to_string(), text);
    }
}

#[test]
fn what_was_wanted_and_what_there_is_are_told_in_one_unit() {
    for (wanted, had, text) in [
        (512 << 20, 314_572_805, ("512 MiB", "300 MiB")),
        (1 << 30, 7, ("1024 MiB", "0 MiB")),
        ((2 << 20) + 1, 2 << 20, ("3 MiB", "2 MiB")),
        (7992 << 10, (7 << 20) + 5, ("8 MiB", "7 MiB")),
        (4096, 1000, ("4 KiB", "0 KiB")),
        (100, 99, ("100 bytes", "99 bytes")),
    ] {
        let (wanted, had) = wanted_and_had(wanted, had);
        assert_eq!((wanted.as_str(), had.as_str()), text);
    }
}
