use std::os::unix::fs::symlink;

use super::*;

/// A made-up root with one process.
fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    let proc = root.path().join("proc/7");
    fs::create_dir_all(proc.join("fd")).expect("made");
    fs::create_dir_all(proc.join("net")).expect("made");
    let sys = root.path().join("sys/class/infiniband_verbs/uverbs3");
    fs::create_dir_all(&sys).expect("made");
    fs::write(sys.join("ibdev"), "mlx5_1\n").expect("written");
    fs::write(proc.join("cmdline"), "l2fwd\0-l\x001\x1b\0").expect("written");
    for (number, to) in [
        ("0", "/dev/null"),
        ("5", "/dev/infiniband/uverbs3"),
        ("6", EVENTS),
        ("7", "socket:[4242]"),
        ("x", "/dev/infiniband/uverbs3"),
    ] {
        symlink(to, proc.join("fd").join(number)).expect("a link");
    }
    let maps = "7f0000000000-7f0000001000 -w-s 00000000 00:06 437 /dev/infiniband/uverbs3\n\
                7f0000001000-7f0000002000 r--s 00500000 00:06 437 /dev/infiniband/uverbs3\n\
                7f0000200000-7f0000600000 rw-s 00000000 00:0f 12 /dev/hugepages/rtemap_0 (deleted)\n\
                7f0000600000-7f0000800000 rw-s 00000000 00:0f 12 /dev/hugepages/rtemap_0 (deleted)\n\
                7f0001000000-7f0001002000 rw-s 00000000 00:01 13 /memfd:rings (deleted)\n\
                7f0002000000-7f0002002000 rw-p 00000000 00:00 0 [heap]\n\
                nonsense\nffff-0 x y\n";
    fs::write(proc.join("maps"), maps).expect("written");
    let sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                   0: 00000002 00000000 00010000 0005 01 4241 /run/dpdk/a/dpdk_telemetry.v2\n\
                   0: 00000002 00000000 00010000 0005 01 4242 /run/dpdk/b/dpdk_telemetry.v2:1\n\
                   0: 00000002 00000000 00010000 0005 01 4242\n";
    fs::write(proc.join("net/unix"), sockets).expect("written");
    root
}

#[test]
fn what_proc_tells_is_told() {
    let root = root();
    let process = Process::read(root.path(), 7).expect("there");
    assert_eq!(process.telemetry(), Some(Path::new("/run/dpdk/b/dpdk_telemetry.v2:1")));
    let wanted = "process 7: l2fwd -l 1?\n\
                  files of RDMA devices:\n\
                  \x20 descriptor 5: /dev/infiniband/uverbs3 (mlx5_1)\n\
                  \x20 descriptor 6: events of an RDMA device\n\
                  pages of devices:\n\
                  \x20 0x7f0000000000: UAR page of the context 0 (offset 0x0) of uverbs3, 4096 bytes, -w-s\n\
                  \x20 0x7f0000001000: page of the adapter's clock 0 (offset 0x500000) of uverbs3, 4096 bytes, r--s\n\
                  memory:\n\
                  \x20 /dev/hugepages/rtemap_0: 6291456 bytes (maps: 2)\n\
                  \x20 /memfd:rings: 8192 bytes (maps: 1)\n\
                  telemetry: /run/dpdk/b/dpdk_telemetry.v2:1\n\
                  not seen here: ";
    let text = process.text();
    assert!(text.starts_with(wanted), "{text}");
    assert!(text.ends_with("`rdma resource show qp pid 7`\n"), "{text}");
}

#[test]
fn names_that_are_no_text_hide_nothing() {
    let root = root();
    let proc = root.path().join("proc/7");
    let wanted = Process::read(root.path(), 7).expect("there");
    let (maps, sockets) = (
        &b"7f0003000000-7f0003001000 r--p 00000000 00:06 437 /tmp/\xff\n"[..],
        &b"0: 00000002 00000000 00010000 0005 01 99 /tmp/\xff\n"[..],
    );
    for (file, line) in [("maps", maps), ("net/unix", sockets)] {
        let text = fs::read(proc.join(file)).expect("there");
        fs::write(proc.join(file), [line, &text].concat()).expect("written");
    }
    assert_eq!(Process::read(root.path(), 7).ok(), Some(wanted));
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    let root = root();
    assert_eq!(Process::read(root.path(), 8).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    fs::remove_file(root.path().join("proc/7/net/unix")).expect("gone");
    fs::write(root.path().join("proc/7/maps"), "").expect("written");
    let process = Process::read(root.path(), 7).expect("there");
    assert!(process.text().contains("telemetry: none"), "{}", process.text());
}
