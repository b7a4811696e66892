use std::sync::{Arc, Mutex};

use super::*;
use crate::region::{Region, Zone};

fn page() -> (Zone, Window) {
    let zone = Region::anonymous("registers", 4096).expect("a page").into_zone();
    // SAFETY: the page lives as long as the zone, which each test holds longer than the window, and no one else has it.
    let window = unsafe { Window::new(zone.base(), 4096) };
    (zone, window)
}

fn range(zone: &Zone) -> std::ops::Range<usize> {
    let start = zone.base().as_ptr().addr();
    start..start + zone.bytes()
}

#[test]
fn values_land_where_they_should() {
    let (zone, mut window) = page();
    window.store32(0x20, 0x1122_3344_u32.to_be());
    window.store64(0x800, 0x0102_0304_0506_0708_u64.to_be());
    let block: [u8; 64] = std::array::from_fn(|index| index as u8);
    window.copy64(0xfc0, &block);
    let mut seen = [0; 4096];
    zone.copy_out(0, &mut seen);
    assert_eq!(seen[0x1c..0x28], [0, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0]);
    assert_eq!(seen[0x800..0x808], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(seen[0xfc0..], block);
    assert_eq!(window.load32(0x20), 0x1122_3344_u32.to_be());
    assert_eq!(window.load64(0x800), 0x0102_0304_0506_0708_u64.to_be());
}

#[test]
fn stores_outside_or_astride_are_our_own_mistake() {
    type Store = fn(&mut Window);
    let bad: [Store; 6] = [
        |window| window.store32(4096, 0),
        |window| window.store32(2, 0),
        |window| window.store64(4, 0),
        |window| window.store64(usize::MAX - 7, 0),
        |window| window.copy64(4064, &[0; 64]),
        |window| window.copy64(32, &[0; 64]),
    ];
    for (index, store) in bad.into_iter().enumerate() {
        let (_zone, mut window) = page();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store(&mut window)));
        assert!(result.is_err(), "store {index} was accepted");
    }
}

#[test]
fn an_observer_sees_each_store_after_it_is_made() {
    let (zone, mut window) = page();
    let base = zone.base().as_ptr().addr();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observation = {
        let seen = Arc::clone(&seen);
        trace::observe(range(&zone), move |store| {
            // The model reads the register when it is rung: the value must be there already.
            // SAFETY: the zone of this test holds the page, and its only writer is the thread that runs this.
            let there = unsafe { (store.address as *const u8).read_volatile() };
            assert_eq!(there, store.bytes[0]);
            seen.lock().expect("no panic").push((store.address - base, store.bytes.to_vec()));
        })
    };
    let (_other_zone, mut other) = page();
    window.store32(0x20, u32::from_ne_bytes(*b"abcd"));
    other.store32(0x20, 7);
    // A queue that was moved to another thread is observed as well.
    let mut window = std::thread::spawn(move || {
        window.store64(0x808, u64::from_ne_bytes(*b"12345678"));
        window
    })
    .join()
    .expect("the thread ends well");
    window.copy64(0x40, &[9; 64]);
    drop(observation);
    window.store32(0x20, 1);
    let seen = seen.lock().expect("no panic");
    assert_eq!(*seen, [(0x20, b"abcd".to_vec()), (0x808, b"12345678".to_vec()), (0x40, vec![9; 64])]);
}

#[test]
fn an_observer_may_store_and_observe() {
    let (zone, mut window) = page();
    let (inner_zone, inner) = page();
    let inner = Mutex::new(inner);
    let inner_range = range(&inner_zone);
    let _observation = trace::observe(range(&zone), move |_| {
        let _nested = trace::observe(inner_range.clone(), |_| {});
        inner.lock().expect("no panic").store32(0, 1);
    });
    window.store32(0, 1);
    let mut seen = [0; 4];
    inner_zone.copy_out(0, &mut seen);
    assert_eq!(u32::from_ne_bytes(seen), 1);
}

#[test]
#[should_panic(expected = "is observed already")]
fn a_register_has_one_observer() {
    let (zone, _window) = page();
    let _first = trace::observe(range(&zone), |_| {});
    let middle = zone.base().as_ptr().addr() + 64;
    let _second = trace::observe(middle..middle + 1, |_| {});
}

/// Stores to another page whenever it is told of something, as an interrupt handler that a device's step calls.
struct Busy {
    page: Mutex<Window>,
    fences: Arc<Mutex<Vec<(&'static str, trace::Fence)>>>,
}

impl Busy {
    fn store(&self) {
        self.page.lock().expect("no panic").store32(0, 1);
    }
}

impl trace::Observer for Busy {
    fn register(&self, store: trace::Store<'_>) {
        self.fences.lock().expect("no panic").push(("register", store.fence));
        self.store();
    }

    fn record(&self, store: trace::Store<'_>) -> bool {
        self.fences.lock().expect("no panic").push(("record", store.fence));
        self.store();
        true
    }

    fn flushed(&self) {
        self.store();
    }
}

#[test]
fn an_observer_is_told_of_the_barriers_of_the_thread_and_not_of_its_own() {
    use crate::barrier::{to_device, wc_flush};
    use trace::Fence;
    let ((zone, mut window), (_other, page), (record, _)) = (page(), page(), page());
    let fences = Arc::new(Mutex::new(Vec::new()));
    let busy = Busy { page: Mutex::new(page), fences: Arc::clone(&fences) };
    let _observation = trace::watch(range(&zone), busy);
    // SAFETY: the page is this test's, and the record its first word.
    let store = |value| unsafe { store_record(record.base().cast(), value) };
    for _ in 0..2 {
        to_device();
        store(1);
        wc_flush();
        window.store64(0, 2);
        wc_flush();
        window.store32(8, 3);
        window.store32(8, 4);
    }
    let mut seen = fences.lock().expect("no panic").clone();
    // Other tests of this process have records of their own.
    seen.dedup();
    let once = [("record", Fence::ToDevice), ("register", Fence::Flush), ("register", Fence::None)];
    assert_eq!(seen, [once, once].concat());
}
