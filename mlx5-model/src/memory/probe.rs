//! Whether memory is mapped with the rights that a device needs, asked of the kernel.
#![expect(unsafe_code, reason = "madvise(2)")]

use std::fs;

use pollux_mlx5_kernel::Rights;
use pollux_uverbs::Errno;

const PAGE: u64 = 4096;

/// Whether all pages from `start` up to `end` are mapped with `rights`.
///
/// The pages are faulted in as a kernel that pins them would do (`MADV_POPULATE_*`, Linux 5.14); on older kernels the
/// process's map is read. Source: madvise(2).
pub(super) fn mapped(start: u64, end: u64, rights: Rights) -> Result<(), Errno> {
    let first = start / PAGE * PAGE;
    let last = end.checked_next_multiple_of(PAGE).ok_or(Errno::EFAULT)?;
    let advice = match rights {
        Rights::Read => libc::MADV_POPULATE_READ,
        Rights::ReadWrite => libc::MADV_POPULATE_WRITE,
    };
    loop {
        let page = std::ptr::with_exposed_provenance_mut(first as usize);
        // SAFETY: it only faults pages in; addresses that are not mapped are refused.
        if unsafe { libc::madvise(page, (last - first) as usize, advice) } == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => {}
            // Either the advice is not known or a page does not have the right: the map tells.
            Some(libc::EINVAL) => return in_map("self", first, last, rights),
            _ => return Err(Errno::EFAULT),
        }
    }
}

/// The same for another process, whose pages are faulted in as they are copied.
pub(super) fn mapped_in(process: i32, start: u64, end: u64, rights: Rights) -> Result<(), Errno> {
    let last = end.checked_next_multiple_of(PAGE).ok_or(Errno::EFAULT)?;
    in_map(&process.to_string(), start / PAGE * PAGE, last, rights)
}

/// The same by `/proc/PID/maps`. Source: proc_pid_maps(5).
fn in_map(process: &str, first: u64, last: u64, rights: Rights) -> Result<(), Errno> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).map_err(|_| Errno::EFAULT)?;
    let mut from = first;
    for line in maps.lines() {
        let mut words = line.split(' ');
        let (Some(range), Some(mode)) = (words.next(), words.next()) else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else {
            continue;
        };
        if start <= from && from < end {
            let allowed = mode.contains('r') && (rights == Rights::Read || mode.contains('w'));
            if !allowed {
                return Err(Errno::EFAULT);
            }
            from = end;
            if from >= last {
                return Ok(());
            }
        }
    }
    Err(Errno::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_agrees_with_the_kernel() {
        let page = vec![0_u8; 3 * PAGE as usize];
        let at = page.as_ptr().expose_provenance() as u64;
        for rights in [Rights::Read, Rights::ReadWrite] {
            assert_eq!(mapped(at, at + 8192, rights), Ok(()));
            assert_eq!(in_map("self", at, at + 8192, rights), Ok(()));
            assert_eq!(mapped(0, 8192, rights), Err(Errno::EFAULT));
            assert_eq!(in_map("self", 0, 8192, rights), Err(Errno::EFAULT));
            assert_eq!(mapped(u64::MAX - 4096, u64::MAX, rights), Err(Errno::EFAULT));
        }
        let text = b"text".as_ptr().expose_provenance() as u64;
        assert_eq!(mapped(text, text + 4, Rights::Read), Ok(()));
        assert_eq!(mapped(text, text + 4, Rights::ReadWrite), Err(Errno::EFAULT));
    }
}
