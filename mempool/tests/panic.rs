//! What users hand in may panic: constructors, event callbacks, free callbacks. Nothing is lost or locked by it.
#![expect(unsafe_code, reason = "gives memory of its own")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pollux_mempool::{Area, BURST_MAX, Burst, External, Mbuf, MbufPool, ObjectPool, PoolEvent, subscribe};

/// Tells when it is dropped, as the keeper of an area is when the pool lets go of it.
struct Tell(Arc<AtomicUsize>);

impl Drop for Tell {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn area(bytes: usize, keeper: impl Send + Sync + 'static) -> Area {
    let memory = vec![0_u64; bytes / 8].leak();
    // SAFETY: leaked, so it lives on; nobody else has it.
    unsafe { Area::new(NonNull::from(memory).cast(), bytes, keeper) }
}

#[test]
fn a_constructor_that_panics_leaves_no_pool_behind() {
    let gone = Arc::new(AtomicUsize::new(0));
    let builder = ObjectPool::builder("half made", 64, 10)
        .constructor(|index, _| assert!(index < 5, "the constructor's own panic"));
    let areas = vec![area(4096, Tell(Arc::clone(&gone)))];
    assert!(catch_unwind(AssertUnwindSafe(|| builder.build_over(areas))).is_err());
    assert_eq!(gone.load(Ordering::Relaxed), 1);
}

#[test]
fn a_free_callback_that_panics_has_let_the_mbuf_go_home() {
    let pool = MbufPool::builder("freeing", 4).build_anonymous().expect("pages");
    let mut mbuf = pool.alloc().expect("a fresh pool");
    let memory = vec![0_u8; 64].leak();
    // SAFETY: leaked, so it lives on; nobody else has it.
    let buffer =
        unsafe { External::new(NonNull::from(memory).cast(), 64, |_, _| panic!("the callback's own")) };
    mbuf.attach_external(buffer).expect("a fresh mbuf");
    assert!(catch_unwind(AssertUnwindSafe(|| drop(mbuf))).is_err());
    assert_eq!(pool.available(), 4);
}

#[test]
fn an_event_callback_that_panics_harms_neither_pools_nor_other_callbacks() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let bad = subscribe(|event| match event {
        PoolEvent::Created(info) => assert_ne!(info.name, "ill born", "the callback's own panic"),
        PoolEvent::Destroyed(info) => assert_ne!(info.name, "ill ended", "the callback's own panic"),
        _ => (),
    });
    let log = Arc::clone(&seen);
    let good = subscribe(move |event| {
        let (what, info) = match event {
            PoolEvent::Created(info) => ("made", info),
            PoolEvent::Destroyed(info) => ("gone", info),
            _ => return,
        };
        if info.name.starts_with("ill") {
            log.lock().expect("nobody panics with it").push((what, info.name.clone()));
        }
    });
    let take = || std::mem::take(&mut *seen.lock().expect("nobody panics with it"));

    let gone = Arc::new(AtomicUsize::new(0));
    let areas = vec![area(1 << 16, Tell(Arc::clone(&gone)))];
    let builder = MbufPool::builder("ill born", 4);
    assert!(catch_unwind(AssertUnwindSafe(|| builder.build_over(areas))).is_err());
    assert_eq!(take(), [("made", "ill born".into()), ("gone", "ill born".into())]);
    assert_eq!(gone.load(Ordering::Relaxed), 1, "the pool that nobody got is gone");

    // The memory of the pool is kept by the last mbuf of another, whose end is told once the first one's has been.
    let other = MbufPool::builder("ill kept", 4).build_anonymous().expect("pages");
    let kept: Mbuf = other.alloc().expect("a fresh pool");
    drop(other);
    let pool =
        MbufPool::builder("ill ended", 4).build_over(vec![area(1 << 16, kept)]).expect("room for four");
    take();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(pool))).is_err());
    assert_eq!(take(), [("gone", "ill ended".into()), ("gone", "ill kept".into())]);
    drop((bad, good));
}

#[test]
fn a_push_into_a_full_burst_tells_who_pushed() {
    let pool = MbufPool::builder("full", 2 * BURST_MAX).build_anonymous().expect("pages");
    let mut burst = Burst::new();
    pool.alloc_up_to(&mut burst, BURST_MAX);
    let place = Arc::new(Mutex::new(None));
    let (told, own) = (Arc::clone(&place), std::thread::current().id());
    let usual = Arc::new(std::panic::take_hook());
    let others = Arc::clone(&usual);
    std::panic::set_hook(Box::new(move |panic| {
        // Other tests panic, too, meanwhile.
        if std::thread::current().id() != own {
            return others(panic);
        }
        *told.lock().expect("nobody panics with it") =
            panic.location().map(|place| (place.file().to_owned(), place.line()));
    }));
    let one = pool.alloc().expect("some are left");
    let line = line!() + 1;
    let pushed = catch_unwind(AssertUnwindSafe(|| burst.push(one)));
    drop(std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| usual(panic)));
    assert!(pushed.is_err());
    assert_eq!(*place.lock().expect("nobody panics with it"), Some((file!().to_owned(), line)));
    drop(burst);
    assert_eq!(pool.in_use(), 0);
}
