//! Tables of made-up machines, and reserving on one.

use std::fs;

use crate::program::{End, doctor};
use crate::tree::Tree;

fn run(tree: &Tree, options: &[&str]) -> End {
    doctor(tree.path(), &options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
}

fn shown(tree: &Tree, what: &str) -> String {
    let end = run(tree, &["--show", what]);
    assert_eq!((end.status, end.stderr.as_str()), (0, ""), "{what}");
    end.stdout
}

fn put(tree: &Tree, file: &str, text: &str) {
    let path = tree.path().join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

#[test]
fn huge_pages_of_each_node_and_their_mounts() {
    let tree = Tree::of("healthy");
    let table = "Node Pages   Free    Size     Total\n\
                 0    512     512     2 MiB    1 GiB\n\
                 1    512     512     2 MiB    1 GiB\n\n";
    let none = "Hugepages not mounted; programs of Pollux need no mount\n";
    assert_eq!(shown(&tree, "hugepages"), format!("{table}{none}"));
    put(
        &tree,
        "proc/mounts",
        "none / ext4 rw 0 0\nhugetlbfs /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\nx\n",
    );
    let mount = "Hugepages mounted on /dev/hugepages, pages of 2M\n";
    assert_eq!(shown(&tree, "hugepages"), format!("{table}{mount}"));
    for node in 0..2 {
        put(
            &tree,
            &format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages"),
            "0",
        );
    }
    assert_eq!(shown(&tree, "hugepages"), format!("No huge pages are reserved\n\n{mount}"));
}

#[test]
fn huge_pages_of_a_kernel_without_numa() {
    let tree = Tree::of("laptop");
    assert!(tree.path().join("sys/devices/system/cpu").is_dir());
    let _ = fs::remove_dir_all(tree.path().join("sys/devices/system/node"));
    let table = "Node Pages   Free    Size     Total\n-    64      0       2 MiB    128 MiB\n\n";
    let text = shown(&tree, "hugepages");
    assert!(text.starts_with(table), "{text}");
}

#[test]
fn processors_of_each_core_and_socket() {
    let tree = Tree::of("healthy");
    let text = shown(&tree, "cpus");
    let wanted = "cores =  [0, 1, 2, 3, 4, 5, 6, 7]\nsockets =  [0, 1]\nnuma =  [0, 1]\n\n\
                  \x20      Socket 0   Socket 1\n       --------   --------\nCore 0 [0]\nCore 1 [1]\nCore 2 [2]\nCore 3 [3]\n\
                  Core 4            [4]\nCore 5            [5]\nCore 6            [6]\nCore 7            [7]\n\n\
                  NUMA node 0: [0, 1, 2, 3]\n\nNUMA node 1: [4, 5, 6, 7]\n";
    assert!(text.ends_with(wanted), "{text}");
    // Two threads a core.
    for cpu in 0..8 {
        put(&tree, &format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id"), &(cpu % 2).to_string());
    }
    let text = shown(&tree, "cpus");
    assert!(text.contains("Core 0 [0, 2]     [4, 6]\nCore 1 [1, 3]     [5, 7]\n"), "{text}");
}

#[test]
fn network_devices_by_their_drivers() {
    let tree = Tree::of("healthy");
    let card = "0000:81:00.0 [15b3:101d] if=ens1f0np0 drv=mlx5_core rdma=mlx5_0 numa_node=1";
    let kernels = "Network devices using kernel driver\n===================================\n";
    let text = shown(&tree, "devices");
    assert!(text.starts_with(&format!("{kernels}{card}")), "{text}");
    let other = "sys/bus/pci/devices/0000:02:00.0";
    for (file, value) in [("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x1572")] {
        put(&tree, &format!("{other}/{file}"), value);
    }
    put(&tree, "sys/bus/pci/devices/0000:03:00.0/class", "0x030000");
    assert!(
        shown(&tree, "devices")
            .ends_with("\nOther Network devices\n=====================\n0000:02:00.0 [8086:1572]\n")
    );
    fs::create_dir_all(tree.path().join("sys/bus/pci/drivers/vfio-pci")).expect("made");
    std::os::unix::fs::symlink("../../drivers/vfio-pci", tree.path().join(other).join("driver"))
        .expect("a link");
    let text = shown(&tree, "devices");
    let title =
        "Network devices using DPDK-compatible driver\n============================================\n";
    assert!(
        text.starts_with(&format!("{title}0000:02:00.0 [8086:1572] drv=vfio-pci\n\n{kernels}")),
        "{text}"
    );
}

#[test]
fn a_pool_becomes_as_large_as_is_asked() {
    let tree = Tree::of("healthy");
    put(&tree, "proc/meminfo", "MemTotal: 1 kB\nHugepagesize:       2048 kB\n");
    let end = run(&tree, &["--reserve", "3G"]);
    assert_eq!(
        (end.status, end.stdout.as_str()),
        (0, "1536 pages of 2 MiB, 3 GiB in all, 1024 before\n"),
        "{}",
        end.stderr
    );
    let pages = |place: &str| {
        fs::read_to_string(tree.path().join(place).join("hugepages-2048kB/nr_hugepages")).expect("there")
    };
    assert_eq!(pages("sys/kernel/mm/hugepages"), "1536\n");
    let end = run(&tree, &["--reserve", "5M", "--page-size", "2M", "--node", "1"]);
    assert_eq!(end.stdout, "3 pages of 2 MiB, 6 MiB in all, 512 before\n", "{}", end.stderr);
    assert_eq!(pages("sys/devices/system/node/node1/hugepages"), "3\n");
    let end = run(&tree, &["--reserve", "0", "--node", "1"]);
    assert_eq!(end.stdout, "0 pages of 2 MiB, 0 bytes in all, 3 before\n", "{}", end.stderr);
    assert_eq!(pages("sys/devices/system/node/node1/hugepages"), "0\n");
    for (options, why) in [
        (&["--reserve", "1G", "--node", "7"][..], "node7/hugepages is not there"),
        (&["--reserve", "1G", "--page-size", "4K"], "there are pages of 1048576kB, 2048kB"),
        (&["--reserve", "1"], "must be a number with K, M or G"),
        (&["--reserve", "99999999999999G"], "must be a number of bytes above 0"),
        (&["--reserve", "0M"], "must be a number of bytes above 0"),
        (&["--reserve", "1G", "--page-size", "0"], "must be a number with K, M or G"),
        (&["--node", "1"], "--reserve"),
    ] {
        let end = run(&tree, options);
        assert!(end.status == 2 && end.stderr.contains(why), "{options:?}: {} {}", end.status, end.stderr);
    }
}

#[test]
fn hostile_files_are_shown_or_refused() {
    let tree = Tree::of("healthy");
    for file in
        ["sys/devices/system/cpu/online", "proc/mounts", "sys/devices/system/cpu/cpu1/topology/core_id"]
    {
        put(&tree, file, "\u{1b}[2J\n-1-9999999999\n");
    }
    put(&tree, "sys/bus/pci/devices/x/class", "0x02\u{1b}");
    for what in ["hugepages", "cpus", "devices"] {
        let end = run(&tree, &["--show", what]);
        assert!(end.status == 0 || end.status == 2, "{what}: {}", end.status);
        assert!(!end.stdout.contains('\u{1b}') && !end.stderr.contains('\u{1b}'), "{what}");
    }
    let empty = tempfile::tempdir().expect("a folder");
    for what in ["hugepages", "cpus", "devices"] {
        let options = ["--show", what].map(str::to_owned);
        assert_eq!(doctor(empty.path(), &options).status, 2, "{what}");
    }
}
