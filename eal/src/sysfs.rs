//! Reading files of sysfs and procfs, wherever a root has them.
//!
//! A root may be a copy of another machine's files, or what a container mounts, so that anything can stand where a kernel has a
//! few bytes: no read here waits or takes more than [`BYTES_MAX`].

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Longest file that is read. An attribute of sysfs has at most a page; source: Linux `Documentation/filesystems/sysfs.rst`.
pub const BYTES_MAX: u64 = 64 << 10;

/// The text of a file.
///
/// # Errors
/// What the file system says; `InvalidData` for a file that is longer than [`BYTES_MAX`] or is not UTF-8, `WouldBlock` for a pipe
/// whose writer has said nothing yet.
pub fn read(path: &Path) -> io::Result<String> {
    let bytes = read_head(path, BYTES_MAX + 1)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(invalid("it is longer than 64 KiB"));
    }
    String::from_utf8(bytes).map_err(|_| invalid("it is not text"))
}

/// The first `bytes_max` bytes of a file, fewer if it has fewer.
///
/// # Errors
/// What the file system says, and `WouldBlock` as [`read`].
pub fn read_head(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // A named pipe without a writer makes an opener wait, unless it says that it does not want to.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_short_text_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let with = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("a file");
            read(&path).map_err(|error| error.kind())
        };
        assert_eq!(with(b"-1\n"), Ok("-1\n".into()));
        assert_eq!(with(b"\xff\xfe"), Err(io::ErrorKind::InvalidData));
        assert_eq!(with(&vec![b'1'; 64 << 10]).map(|text| text.len()), Ok(64 << 10));
        assert_eq!(with(&vec![b'1'; (64 << 10) + 1]), Err(io::ErrorKind::InvalidData));
        assert_eq!(read_head(&path, 3).expect("it is there"), b"111");
    }

    #[test]
    fn no_file_makes_the_reader_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).expect("a named pipe");
        assert_eq!(read(&pipe).expect("it is empty"), "");
        assert!(read(Path::new("/dev/zero")).is_err(), "without end");
        assert!(read(folder.path()).is_err(), "a folder");
    }
}
