//! The program's memory, by addresses that it may have wrong: copied by the kernel, which answers `EFAULT` where there is none.

use pollux_uverbs::Errno;

fn copied(count: isize, bytes: usize) -> Result<(), Errno> {
    if usize::try_from(count) == Ok(bytes) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies from the program's memory.
pub(crate) fn read(address: u64, into: &mut [u8]) -> Result<(), Errno> {
    if into.is_empty() {
        return Ok(());
    }
    let at = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at), iov_len: into.len() };
    // SAFETY: the local part is a slice; the other is read by the kernel, which looks whether it is there.
    let count =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    copied(count, into.len())
}

/// Copies to the program's memory.
pub(crate) fn write(address: u64, from: &[u8]) -> Result<(), Errno> {
    if from.is_empty() {
        return Ok(());
    }
    let at = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
    let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at), iov_len: from.len() };
    // SAFETY: the local part is a slice, which is only read; the other is written by the kernel, where the program said that an
    // answer goes.
    let count =
        unsafe { libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    copied(count, from.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_a_fault() {
        let mut bytes = [0; 8];
        assert_eq!(read(8, &mut bytes), Err(Errno::EFAULT));
        assert_eq!(write(8, &bytes), Err(Errno::EFAULT));
        let there = [1_u8, 2, 3, 4, 5, 6, 7, 8];
        read(there.as_ptr().expose_provenance() as u64, &mut bytes).expect("there");
        assert_eq!(bytes, there);
    }
}
