//! Memory of other processes: where the device finds it, and for which process a thread calls.
//!
//! In process a device address is the process's address, which has 47 bits. Those of other processes have a number of the process above
//! them.

use std::cell::Cell;

use pollux_uverbs::Errno;

/// Bits of an address in a process. Source: Linux `Documentation/arch/x86/x86_64/mm.rst`; with pages of 5 levels the kernel gives
/// higher addresses only to those who ask for them.
const ADDRESS_BITS: u32 = 48;
/// Most processes at a time.
const OTHERS_MAX: usize = 1 << 12;

thread_local! {
    static CALLER: Cell<Option<i32>> = const { Cell::new(None) };
}

/// The process that this thread calls for, if it is another than this one.
pub(super) fn caller() -> Option<i32> {
    CALLER.get()
}

/// Makes calls of devices for another process, as a kernel carries out a process's calls: addresses and numbers of descriptors are that
/// process's.
pub fn for_process<T>(process: i32, calls: impl FnOnce() -> T) -> T {
    struct Back(Option<i32>);
    impl Drop for Back {
        fn drop(&mut self) {
            CALLER.set(self.0);
        }
    }
    let _back = Back(CALLER.replace(Some(process)));
    calls()
}

/// Whether a device address is in another process.
#[inline]
pub(super) fn is_other(at: u64) -> bool {
    at >> ADDRESS_BITS != 0
}

/// The processes, by the number above their addresses, which begins at 1; none where one has ended.
#[derive(Debug, Default)]
pub(super) struct Others(Vec<Option<i32>>);

impl Others {
    /// Where the addresses of a process begin. A place of one that has ended is taken when nothing there is `pinned` any more.
    pub(super) fn place(&mut self, process: i32, pinned: impl Fn(u64, u64) -> bool) -> Result<u64, Errno> {
        let place = |index: usize| (index as u64 + 1) << ADDRESS_BITS;
        if let Some(index) = self.0.iter().position(|other| *other == Some(process)) {
            return Ok(place(index));
        }
        let free = |index: &usize| self.0[*index].is_none() && !pinned(place(*index), place(*index + 1));
        let index = (0..self.0.len()).find(free).unwrap_or(self.0.len());
        if index == OTHERS_MAX {
            return Err(Errno::ENOMEM);
        }
        self.0.resize(self.0.len().max(index + 1), None);
        self.0[index] = Some(process);
        Ok(place(index))
    }

    pub(super) fn forget(&mut self, process: i32) {
        self.0.iter_mut().filter(|other| **other == Some(process)).for_each(|other| *other = None);
    }

    /// The process in whose memory a device address is, and the address there.
    pub(super) fn find(&self, at: u64) -> Option<(i32, usize)> {
        let index = usize::try_from(at >> ADDRESS_BITS).ok()?.checked_sub(1)?;
        let process = (*self.0.get(index)?)?;
        Some((process, (at & ((1 << ADDRESS_BITS) - 1)) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_again_when_nothing_is_pinned_there() {
        let mut others = Others::default();
        let one = others.place(11, |_, _| false).expect("room");
        let two = others.place(12, |_, _| false).expect("room");
        assert_eq!((others.place(11, |_, _| true), one == two), (Ok(one), false));
        assert_eq!(others.find(one + 0x7fff_1234_5678), Some((11, 0x7fff_1234_5678)));
        others.forget(11);
        assert_eq!((others.find(one + 8), others.find(two + 8)), (None, Some((12, 8))));
        let three = others.place(13, |from, to| (from..to).contains(&one)).expect("room");
        assert_ne!(three, one, "what has ended is still pinned");
        assert_eq!(others.place(14, |_, _| false), Ok(one));
        assert!(!is_other(0x7fff_ffff_ffff) && is_other(one));
    }
}
