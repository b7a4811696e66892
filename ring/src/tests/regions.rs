//! Rings in given memory.

use crate::{RegionSpan, RingError, hts, mpmc, region_align, region_bytes, rts, spsc};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

/// Zeroed memory, as a mapping would be.
pub(super) struct Memory {
    pub(super) base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory, owned.
unsafe impl Send for Memory {}
// SAFETY: as above; it has no methods that touch the memory.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(bytes: usize) -> Arc<Memory> {
        let layout = Layout::from_size_align(bytes, 4096).unwrap();
        // SAFETY: never of size zero in these tests.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        Arc::new(Memory { base, layout })
    }

    fn span(self: &Arc<Self>) -> RegionSpan {
        self.part(0, self.layout.size())
    }

    pub(super) fn part(self: &Arc<Self>, from: usize, bytes: usize) -> RegionSpan {
        assert!(from + bytes <= self.layout.size());
        // SAFETY: inside the memory, which lives as long as the keeper; these tests touch it through rings only, and lay
        // no ring over another that has ends.
        unsafe { RegionSpan::new(self.base.add(from), bytes, Arc::clone(self)) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[test]
fn the_keeper_lives_as_long_as_an_end() {
    let memory = Memory::new(region_bytes::<u64>(100).unwrap());
    let (mut producer, mut consumer) = spsc::in_region::<u64>(memory.span(), 100).unwrap();
    assert_eq!(Arc::strong_count(&memory), 2);
    assert_eq!(producer.enqueue_iter(0..200).count, 100);
    drop(producer);
    assert_eq!(consumer.dequeue(), Some(0));
    drop(consumer);
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn a_ring_is_found_again_at_another_address() {
    let bytes = region_bytes::<[u32; 3]>(9).unwrap();
    let (here, there) = (Memory::new(bytes), Memory::new(bytes));
    let (producer, consumer) = mpmc::in_region::<[u32; 3]>(here.span(), 9).unwrap();
    assert_eq!(producer.enqueue_bulk(&[[1, 2, 3]; 9]).count, 9);
    assert_eq!(consumer.clear(), 9);
    assert_eq!(producer.enqueue_bulk(&[[4, 5, 6]; 9]).count, 9);
    drop((producer, consumer));
    // SAFETY: both are of this size, and no ring has ends in either.
    unsafe { here.base.copy_to_nonoverlapping(there.base, bytes) };
    drop(here);
    let (producer, consumer) = mpmc::attach::<[u32; 3]>(there.span()).unwrap();
    assert_eq!((producer.capacity(), producer.free()), (9, 0));
    assert_eq!(consumer.dequeue(), Some([4, 5, 6]));
}

#[test]
fn ends_of_two_attachments_work_together() {
    let memory = Memory::new(region_bytes::<u64>(4).unwrap());
    let (mut producer, consumer) = spsc::in_region::<u64>(memory.span(), 4).unwrap();
    producer.enqueue(1).unwrap();
    drop(consumer);
    // SAFETY: the first consumer is gone.
    let mut consumer = unsafe { spsc::attach_consumer::<u64>(memory.span()) }.unwrap();
    assert_eq!(consumer.dequeue(), Some(1));
    drop(producer);
    // SAFETY: the first producer is gone.
    let mut producer = unsafe { spsc::attach_producer::<u64>(memory.span()) }.unwrap();
    assert_eq!(producer.enqueue_iter(2..9).count, 4);
    assert_eq!(consumer.clear(), 4);
    drop((producer, consumer));

    let (producer, _consumer) = hts::in_region::<u64>(memory.span(), 4).unwrap();
    producer.enqueue(5).unwrap();
    assert_eq!(hts::attach::<u64>(memory.span()).unwrap().1.dequeue(), Some(5));
}

#[test]
fn unfit_regions_are_refused() {
    let needed = region_bytes::<u64>(100).unwrap();
    let memory = Memory::new(needed);
    let error = rts::in_region::<u64>(memory.part(0, needed - 1), 100).unwrap_err();
    assert_eq!(error, RingError::RegionTooSmall { bytes: needed - 1, capacity: 100, needed });
    let error = rts::in_region::<u64>(memory.part(64, needed - 64), 1).unwrap_err();
    assert!(
        matches!(error, RingError::Misaligned { align, .. } if align == region_align::<u64>()),
        "{error}"
    );
    assert!(matches!(region_bytes::<u64>(0), Err(RingError::Capacity { capacity: 0, .. })));
}

#[test]
fn only_the_ring_that_was_laid_can_be_attached() {
    let needed = region_bytes::<u64>(100).unwrap();
    let memory = Memory::new(needed);
    let refused = |error: RingError, name: &str| {
        let RingError::Header { field, .. } = error else { panic!("{error}") };
        assert_eq!(field, name);
    };
    refused(rts::attach::<u64>(memory.span()).unwrap_err(), "magic");
    drop(rts::in_region::<u64>(memory.span(), 100).unwrap());
    refused(hts::attach::<u64>(memory.span()).unwrap_err(), "kind");
    refused(rts::attach::<u32>(memory.span()).unwrap_err(), "element size");
    refused(rts::attach::<[u32; 2]>(memory.span()).unwrap_err(), "element alignment");
    // A mapping that is shorter than the ring in it.
    for bytes in [0, 16, needed - 1] {
        let error = rts::attach::<u64>(memory.part(0, bytes)).unwrap_err();
        assert!(matches!(error, RingError::RegionTooSmall { .. }), "{error}");
    }
    // A header that lies about its capacity, the last of its fields.
    for capacity in [0, 101, 200, u32::MAX] {
        // SAFETY: inside the header, and no ring has ends there.
        unsafe { memory.base.add(20).cast::<u32>().write(capacity) };
        let attached = rts::attach::<u64>(memory.span());
        // The slots are a power of two, so up to 128 fit all the same.
        assert_eq!(attached.is_ok(), capacity == 101, "{capacity}: {attached:?}");
    }
}
