//! The memory of one `Eal`: regions that grow on demand, and named zones in them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::region::{Backing, Mapping, MemoryError, PAGE_BYTES, Refused, Region, THP_BYTES, Wanted, Zone};
use crate::topology::SocketId;

/// The most that one zone may have.
const BYTES_MAX: usize = 1 << 46;
/// The largest alignment.
const ALIGN_MAX: usize = 1 << 30;

/// The memory of one `Eal`. A clone is another handle; the mappings live until the last handle, region and zone are
/// dropped. Two values made apart share nothing.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Mutex<Vec<Region>>>);

impl Memory {
    /// Memory of ordinary pages, grown on demand, for tests and programs that have no `Eal`.
    #[must_use]
    pub fn ordinary() -> Self {
        Self(Arc::default())
    }

    /// Reserves `bytes` at a multiple of `align` under a name that no other living zone of this memory has.
    ///
    /// # Errors
    /// When an argument makes no sense or the kernel refuses; see [`MemoryError`].
    pub fn reserve(
        &self,
        name: &str,
        bytes: usize,
        align: usize,
        socket: Option<SocketId>,
    ) -> Result<Zone, MemoryError> {
        if bytes == 0 || bytes > BYTES_MAX {
            return Err(MemoryError::Size { name: name.to_owned(), bytes, max: BYTES_MAX });
        }
        if !align.is_power_of_two() || align > ALIGN_MAX {
            return Err(MemoryError::Align { name: name.to_owned(), align, max: ALIGN_MAX });
        }
        let mut regions = self.regions_locked();
        let old = regions.iter().find_map(|region| {
            region.free_list().taken().values().find(|taken| taken.name == name).map(|taken| taken.bytes)
        });
        if let Some(bytes) = old {
            return Err(MemoryError::NameTaken { name: name.to_owned(), bytes });
        }
        if let Some(zone) = regions.iter().find_map(|region| region.take(name, bytes, align, None)) {
            return Ok(zone);
        }
        let wanted = Wanted {
            label: name,
            backing: Backing::Anonymous,
            bytes: bytes.next_multiple_of(THP_BYTES),
            page_size: PAGE_BYTES,
            align: align.max(THP_BYTES),
            node: socket.filter(|socket| socket.0 > 0),
            lock: false,
            keep_fd: false,
        };
        let region = match Mapping::new(&wanted) {
            Ok(mapping) => Region::over(mapping, name, PAGE_BYTES, socket),
            Err(Refused::Map(source) | Refused::Bind(source) | Refused::Populate(source)) => {
                let mend = String::new();
                return Err(MemoryError::Map {
                    name: name.to_owned(),
                    bytes,
                    page_size: PAGE_BYTES,
                    mend,
                    source,
                });
            }
        };
        regions.push(region.clone());
        Ok(region.take(name, bytes, align, None).expect("the region was made to hold the zone"))
    }

    /// Every region there is, in the order they were made.
    #[must_use]
    pub fn regions(&self) -> Vec<Region> {
        self.regions_locked().clone()
    }

    fn regions_locked(&self) -> MutexGuard<'_, Vec<Region>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
