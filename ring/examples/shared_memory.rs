//! A ring in memory that is given: one side lays it there, the other finds it. Here both sides are threads; two processes that
//! map the same file or memfd do the same.
//!
//! `cargo run -p pollux-ring --example shared_memory`
#![expect(unsafe_code, reason = "says where the memory is and that nothing else uses it")]

use pollux_ring::{RegionSpan, RingError, region_align, region_bytes, spsc};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

const SLOTS: usize = 64;

/// The memory, where a program would have a mapping.
struct Mapping(NonNull<u8>, Layout);

// SAFETY: it is only a place, which the ring's ends use by their own rules.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new() -> Result<Arc<Self>, RingError> {
        let bytes = region_bytes::<u64>(SLOTS)?;
        let layout = Layout::from_size_align(bytes, region_align::<u64>()).expect("a size that a ring has");
        // SAFETY: a ring is larger than nothing.
        let base = unsafe { alloc_zeroed(layout) };
        Ok(Arc::new(Self(NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout)), layout)))
    }

    /// What an end of the ring is given. The memory stays as long as the end does.
    fn span(self: &Arc<Self>) -> RegionSpan {
        // SAFETY: it is zeroed and used for this one ring alone, which is laid once.
        unsafe { RegionSpan::new(self.0, self.1.size(), Arc::clone(self)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: allocated so; the ends, which kept it, are gone.
        unsafe { dealloc(self.0.as_ptr(), self.1) }
    }
}

fn main() -> Result<(), RingError> {
    let mapping = Mapping::new()?;
    let (mut producer, consumer) = spsc::in_region::<u64>(mapping.span(), SLOTS)?;
    // The other side has the consumer, and a ring has one.
    drop(consumer);
    let other = thread::spawn(move || {
        // SAFETY: no other consumer lives.
        let mut consumer = unsafe { spsc::attach_consumer::<u64>(mapping.span()) }?;
        let mut sum = 0;
        while sum < (1..=100).sum() {
            match consumer.dequeue() {
                Some(number) => sum += number,
                None => thread::yield_now(),
            }
        }
        Ok::<_, RingError>(sum)
    });
    for mut number in 1..=100 {
        // What does not fit comes back.
        while let Err(full) = producer.enqueue(number) {
            number = full;
            thread::yield_now();
        }
    }
    println!("the other side added up {}", other.join().expect("no panic")?);
    Ok(())
}

#[test]
fn runs() {
    main().expect("runs");
}
