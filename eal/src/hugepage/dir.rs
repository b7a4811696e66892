//! `--huge-dir`: is it a hugetlbfs mount, and of which page size.
#![expect(unsafe_code, reason = "asks the kernel what a directory is")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes a page in a hugetlbfs mount; `None` if the directory is on another file system.
pub(crate) fn page_size_of_mount(path: &Path) -> io::Result<Option<usize>> {
    let c_path = CString::new(path.as_os_str().as_bytes())?;
    let mut answer = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `c_path` ends in zero and `answer` has room for what the kernel writes; both outlive the call.
    if unsafe { libc::statfs(c_path.as_ptr(), answer.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the kernel filled it in.
    let answer = unsafe { answer.assume_init() };
    // `include/uapi/linux/magic.h`: HUGETLBFS_MAGIC; its block size is its page size (`fs/hugetlbfs/inode.c`, statfs).
    if answer.f_type != libc::HUGETLBFS_MAGIC {
        return Ok(None);
    }
    Ok(usize::try_from(answer.f_bsize).ok())
}
