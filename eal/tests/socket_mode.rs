//! Sockets are their owner's alone, whatever the umask. One test in a program of its own: the umask belongs to the process.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_eal::socket_file::SocketFile;
use rustix::fs::Mode;
use rustix::process::umask;

#[test]
fn nobody_else_may_connect_at_any_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let mode = || std::fs::symlink_metadata(&path).map(|found| found.permissions().mode() & 0o777);
    for mask in [0o000, 0o022, 0o277, 0o777] {
        let before = umask(Mode::from_raw_mode(mask));
        let datagrams = SocketFile::datagram(&path).map(|made| (made, mode()));
        let listener = {
            let listened = folder.path().join("listener");
            SocketFile::listener(&listened).map(|made| (made, std::fs::metadata(&listened)))
        };
        umask(before);
        assert_eq!(datagrams.expect("a socket").1.expect("its file"), 0o600, "umask {mask:o}");
        let found = listener.expect("a listener").1.expect("its file").permissions().mode() & 0o777;
        assert_eq!(found, 0o600, "umask {mask:o}");
    }
    // Looked at all the time while it is made again and again.
    let over = AtomicBool::new(false);
    let before = umask(Mode::empty());
    let seen = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                seen.extend(mode());
            }
            seen
        });
        for _ in 0..2000 {
            drop(SocketFile::datagram(&path).expect("a socket"));
        }
        over.store(true, Ordering::Relaxed);
        watcher.join().expect("no panic")
    });
    umask(before);
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0o600]);
}
