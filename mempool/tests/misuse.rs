//! What debug mode catches.
#![expect(unsafe_code, reason = "plants the misuse that is to be caught")]

use pollux_eal::slot;
use pollux_mempool::{Fault, Mbuf, MbufPool, Object, ObjectPool};

fn watched() -> MbufPool {
    MbufPool::builder("watched", 64).debug(true).build_anonymous().expect("a small pool")
}

#[test]
fn a_double_free_is_caught_and_not_taken_in() {
    let _lease = slot::lease();
    let pool = watched();
    let mbuf = pool.alloc().expect("a fresh pool");
    let raw = mbuf.into_raw();
    // SAFETY: given away above; once, and then a second time, which is the misuse.
    unsafe {
        drop(Mbuf::from_raw(raw));
        assert_eq!(pool.faults(), []);
        drop(Mbuf::from_raw(raw));
    }
    assert!(matches!(pool.faults()[..], [Fault::DoubleFree { .. }]), "{:?}", pool.faults());
    assert_eq!(pool.available(), 64);
    assert_eq!(pool.stats().faults, 1);
    let mut all: Vec<_> = std::iter::from_fn(|| pool.alloc()).map(Mbuf::into_raw).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 64, "no mbuf went out twice");
}

#[test]
fn a_write_past_the_data_room_is_caught_at_free_and_at_audit() {
    let pool = watched();
    let mbuf = pool.alloc().expect("a fresh pool");
    let end = mbuf.room_ptr().wrapping_add(mbuf.room_bytes());
    // SAFETY: inside the pool's memory, where its guard is.
    unsafe { end.add(3).write(0) };
    drop(mbuf);
    assert!(matches!(pool.faults()[..], [Fault::Overrun { offset: 3, .. }]), "{:?}", pool.faults());

    let mbuf = pool.alloc().expect("it came home");
    let end = mbuf.room_ptr().wrapping_add(mbuf.room_bytes());
    // SAFETY: as above.
    unsafe { end.write(0) };
    assert_eq!(pool.audit().len(), 2);
    drop(mbuf);
    assert_eq!(pool.faults().len(), 2, "the audit mended the guard");
    assert_eq!(pool.available(), 64);
}

#[test]
fn objects_that_are_not_the_pools_are_refused() {
    let builder = ObjectPool::builder("objects", 100, 16).debug(true);
    let pool = builder.constructor(|_, at| {
        // SAFETY: 100 bytes are the object's.
        unsafe { at.write_bytes(7, 100) }
    });
    let pool = pool.build_anonymous().expect("a small pool");
    let object = pool.get().expect("a fresh pool");
    // SAFETY: 100 bytes are the object's, written by the constructor.
    let bytes = unsafe { std::slice::from_raw_parts(object.address().as_ptr(), 100) };
    assert!(bytes.iter().all(|byte| *byte == 7));
    // SAFETY: inside the object; given back, that is the misuse.
    unsafe { pool.put(Object::at(object.address().add(1))) };
    assert!(matches!(pool.faults()[..], [Fault::Foreign { .. }]));
    // SAFETY: taken above.
    unsafe { pool.put(object) };
    assert_eq!(pool.available(), 16);
    assert_eq!((pool.stats().taken, pool.stats().given), (1, 1));
}

#[test]
fn a_header_that_was_written_over_is_caught() {
    let pool = watched();
    let mbuf = pool.alloc().expect("a fresh pool");
    let raw = mbuf.into_raw();
    // SAFETY: the second header line, before the data.
    unsafe { raw.add(64 + 24).write_bytes(0xee, 8) };
    // SAFETY: given away above.
    let mbuf = unsafe { Mbuf::from_raw(raw) };
    assert!(mbuf.check().is_err());
    drop(mbuf);
    assert!(matches!(pool.faults()[..], [Fault::HeaderOverwritten { .. }]));
    assert_eq!(pool.available(), 63, "it is not handed out any more");
}

#[test]
fn an_audit_may_mend_guards_while_mbufs_come_and_go() {
    let pool = watched();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                pool.audit();
            }
        });
        for _ in 0..2000 {
            drop(pool.alloc().expect("nobody else takes any"));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(pool.faults(), []);
}
