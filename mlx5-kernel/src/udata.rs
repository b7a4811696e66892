//! The driver's part of calls: structures that other kernels have shorter or longer.

use pollux_uverbs::{Errno, Output};
use zerocopy::{FromBytes, IntoBytes};

/// What is there of a structure; the rest is zero, and what is beyond it is not looked at.
pub(crate) fn lenient<T: FromBytes + IntoBytes>(bytes: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let count = bytes.len().min(size_of::<T>());
    value.as_mut_bytes()[..count].copy_from_slice(&bytes[..count]);
    value
}

/// The same, but `least` bytes must be there (`EINVAL`) and what is beyond the structure must be zero (`EOPNOTSUPP`).
/// Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, whose commands are all checked so.
pub(crate) fn strict<T: FromBytes + IntoBytes>(bytes: &[u8], least: usize) -> Result<T, Errno> {
    if bytes.len() < least {
        return Err(Errno::EINVAL);
    }
    if !is_cleared(bytes.get(size_of::<T>()..).unwrap_or_default()) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(lenient(bytes))
}

/// Whether there is nothing but zeros.
pub(crate) fn is_cleared(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Answers with a structure that says its own length in the 4 bytes at `offset`.
pub(crate) fn answer_counted(output: &mut Output<'_>, answer: &[u8], offset: usize) {
    if output.room() == 0 {
        return;
    }
    let mut answer = answer.to_vec();
    let count = answer.len().min(output.room()) as u32;
    if let Some(place) = answer.get_mut(offset..offset + 4) {
        place.copy_from_slice(&count.to_ne_bytes());
    }
    output.write(&answer);
}

/// Answers where there is room at all.
pub(crate) fn answer(output: Option<&mut Output<'_>>, answer: &[u8]) {
    if let Some(output) = output.filter(|output| output.room() > 0) {
        output.write(answer);
    }
}
