//! Copies by words. The host's side is touched by atomic loads and stores of 8 bytes where it is aligned, by single bytes
//! at the ends.
#![expect(unsafe_code, reason = "copies to and from memory that a driver shares with the device")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Copies from `at`.
///
/// # Safety
/// `into.len()` bytes at `at` are mapped and readable.
#[inline]
pub(super) unsafe fn from_host(at: usize, into: &mut [u8]) {
    let head = (at.wrapping_neg() & 7).min(into.len());
    let (first, rest) = into.split_at_mut(head);
    let (words, last) = rest.as_chunks_mut::<8>();
    let tail = at + head + words.len() * 8;
    for (index, byte) in first.iter_mut().enumerate() {
        // SAFETY: inside the range, by the caller.
        *byte = unsafe { std::ptr::with_exposed_provenance::<u8>(at + index).read_volatile() };
    }
    let from = std::ptr::with_exposed_provenance_mut::<u64>(at + head);
    for (index, word) in words.iter_mut().enumerate() {
        // SAFETY: inside the range, by the caller; `head` made it aligned; others only store to it meanwhile.
        let value = unsafe { AtomicU64::from_ptr(from.add(index)).load(Ordering::Relaxed) };
        *word = value.to_ne_bytes();
    }
    for (index, byte) in last.iter_mut().enumerate() {
        // SAFETY: inside the range, by the caller.
        *byte = unsafe { std::ptr::with_exposed_provenance::<u8>(tail + index).read_volatile() };
    }
}

/// Copies to `at`.
///
/// # Safety
/// `from.len()` bytes at `at` are mapped and writable, and no Rust reference covers them.
#[inline]
pub(super) unsafe fn to_host(at: usize, from: &[u8]) {
    let head = (at.wrapping_neg() & 7).min(from.len());
    let (first, rest) = from.split_at(head);
    let (words, last) = rest.as_chunks::<8>();
    let tail = at + head + words.len() * 8;
    for (index, byte) in first.iter().enumerate() {
        // SAFETY: inside the range, by the caller.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(at + index).write_volatile(*byte) };
    }
    let to = std::ptr::with_exposed_provenance_mut::<u64>(at + head);
    for (index, word) in words.iter().enumerate() {
        // SAFETY: inside the range, by the caller; `head` made it aligned.
        unsafe { AtomicU64::from_ptr(to.add(index)).store(u64::from_ne_bytes(*word), Ordering::Relaxed) };
    }
    for (index, byte) in last.iter().enumerate() {
        // SAFETY: inside the range, by the caller.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(tail + index).write_volatile(*byte) };
    }
}

/// Stores 8 bytes after all stores before it.
///
/// # Safety
/// As [`to_host`], and `at` is a multiple of 8.
#[inline]
pub(super) unsafe fn release64(at: usize, word: [u8; 8]) {
    let to = std::ptr::with_exposed_provenance_mut::<u64>(at);
    // SAFETY: mapped, writable and aligned, by the caller.
    unsafe { AtomicU64::from_ptr(to).store(u64::from_ne_bytes(word), Ordering::Release) };
}

/// Loads 4 bytes before all loads after it.
///
/// # Safety
/// As [`from_host`], and `at` is a multiple of 4.
#[inline]
pub(super) unsafe fn acquire32(at: usize) -> [u8; 4] {
    let from = std::ptr::with_exposed_provenance_mut::<u32>(at);
    // SAFETY: mapped, readable and aligned, by the caller.
    unsafe { AtomicU32::from_ptr(from).load(Ordering::Acquire) }.to_ne_bytes()
}
