//! A region whose pages come on demand.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_uverbs::Errno;
use pollux_uverbs::abi::flags::Access;

use super::implicit::Implicit;
use super::key::{self, Grant};
use super::pages::{Pages, Reach};
use super::{Answers, Paging};
use crate::mkey::destroy_key;
use crate::umem::{PAGE, Umem};

/// Address and length of a region of all memory of a program. Source: Linux `drivers/infiniband/hw/mlx5/mr.c`, `create_user_odp_mr`.
pub(crate) const ALL: (u64, u64) = (0, u64::MAX);

/// What a region is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) pdn: u32,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) iova: u64,
    pub(crate) access: Access,
}

/// A region, with its keys.
#[derive(Debug)]
pub(crate) struct Region {
    paging: Arc<Paging>,
    wanted: Wanted,
    /// Whose memory it is, if it is another process's.
    process: Option<u32>,
    /// None once it has ended.
    keys: Mutex<Option<Keys>>,
}

#[derive(Debug)]
enum Keys {
    Explicit(Pages),
    Implicit(Implicit),
}

impl Region {
    /// Makes a region: it, the index of its key, and that key.
    ///
    /// # Errors
    /// `EINVAL` for a range that is none, or where the device cannot have all memory under one key; `EOVERFLOW` for one that wraps;
    /// `ENOMEM` past 16 GiB; `EAGAIN` where nobody would answer; or what the firmware says. Source: Linux
    /// `drivers/infiniband/core/umem_odp.c`, `ib_init_umem_odp`, `ib_umem_odp_alloc_implicit`.
    pub(crate) fn make(paging: &Arc<Paging>, wanted: Wanted) -> Result<(Arc<Self>, u32, u32), Errno> {
        let adapter = &paging.adapter;
        let grant = Grant { pdn: wanted.pdn, access: wanted.access };
        let process = adapter.memory.caller();
        let reach = Reach { process, rights: Umem::rights(wanted.access) };
        let (keys, index, key) = if (wanted.start, wanted.bytes) == ALL {
            let huge = wanted.access.contains(Access::HUGETLB);
            if wanted.iova != 0 || huge || !adapter.caps.pages_all_memory() {
                return Err(Errno::EINVAL);
            }
            let (implicit, key) = Implicit::new(adapter, grant, reach)?;
            (Keys::Implicit(implicit), key >> 8, key)
        } else {
            if wanted.bytes == 0 {
                return Err(Errno::EINVAL);
            }
            let end = wanted.start.checked_add(wanted.bytes).ok_or(Errno::EOVERFLOW)?;
            end.checked_next_multiple_of(PAGE).ok_or(Errno::EOVERFLOW)?;
            let (index, key) = key::of_pages(adapter, grant, wanted.iova, wanted.bytes)?;
            (Keys::Explicit(Pages::new(index, reach, &(wanted.start..end))), index, key)
        };
        let indexes: Vec<u32> = match &keys {
            Keys::Explicit(pages) => vec![pages.index],
            Keys::Implicit(implicit) => implicit.indexes().collect(),
        };
        let region =
            Arc::new(Self { paging: Arc::clone(paging), wanted, process, keys: Mutex::new(Some(keys)) });
        for index in indexes {
            if let Err(errno) = paging.add(index, &(Arc::clone(&region) as Arc<dyn Answers>)) {
                let _ = region.end();
                return Err(errno);
            }
        }
        Ok((region, index, key))
    }

    fn keys(&self) -> MutexGuard<'_, Option<Keys>> {
        // Never half changed.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it was made of.
    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Whether the device may write there.
    pub(crate) fn is_writable(&self) -> bool {
        Umem::rights(self.wanted.access) == crate::device::Rights::ReadWrite
    }

    /// Where the process has `bytes` bytes from `at` on, which are the device's addresses.
    ///
    /// # Errors
    /// `EFAULT` where they are not in the region.
    pub(crate) fn range(&self, at: u64, bytes: u64) -> Result<Range<u64>, Errno> {
        let Wanted { start, iova, bytes: all, .. } = self.wanted;
        let offset = at.checked_sub(iova).ok_or(Errno::EFAULT)?;
        let end = offset.checked_add(bytes).filter(|end| *end <= all).ok_or(Errno::EFAULT)?;
        Ok(start + offset..start + end)
    }

    /// Brings those.
    ///
    /// # Errors
    /// As [`range`](Self::range), or `EFAULT` where they are not mapped as the region's rights need it.
    pub(crate) fn fetch(self: &Arc<Self>, at: u64, bytes: u64) -> Result<(), Errno> {
        let range = self.range(at, bytes)?;
        if range.is_empty() { Ok(()) } else { self.bring(&range) }
    }

    fn bring(self: &Arc<Self>, bytes: &Range<u64>) -> Result<(), Errno> {
        let adapter = &self.paging.adapter;
        match self.keys().as_mut() {
            Some(Keys::Explicit(pages)) => pages.bring(adapter, bytes),
            Some(Keys::Implicit(implicit)) => {
                let region = Arc::clone(self) as Arc<dyn Answers>;
                implicit.bring(&self.paging, &region, bytes)
            }
            None => Err(Errno::EFAULT),
        }
    }

    /// Ends its keys; the device reaches nothing of it afterwards. After a refusal it is still there.
    pub(crate) fn end(&self) -> Result<(), Errno> {
        let mut place = self.keys();
        let indexes: Vec<u32> = match place.as_ref() {
            Some(Keys::Explicit(pages)) => {
                destroy_key(&self.paging.adapter, pages.index)?;
                vec![pages.index]
            }
            Some(Keys::Implicit(implicit)) => {
                implicit.end(&self.paging.adapter)?;
                implicit.indexes().collect()
            }
            None => return Ok(()),
        };
        indexes.into_iter().for_each(|index| self.paging.remove(index, self));
        *place = None;
        Ok(())
    }
}

impl Answers for Region {
    fn is_of(&self, process: u32) -> bool {
        self.process == Some(process)
    }

    fn end(&self) -> Result<(), Errno> {
        Self::end(self)
    }

    fn answer(self: Arc<Self>, at: u64, bytes: u64) -> Result<(), Errno> {
        let Wanted { start, iova, .. } = self.wanted;
        // A page begins at the same place in both.
        let from = start.saturating_add(at.saturating_sub(iova));
        let end = start.saturating_add(at.saturating_add(bytes).saturating_sub(iova));
        self.bring(&(from..end))
    }
}
