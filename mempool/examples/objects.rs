//! A pool of objects that are no packets: sessions, of which each has a place from the start.
#![expect(unsafe_code, reason = "the pool hands out memory; what is in it is the program's")]

use pollux_eal::memory::Memory;
use pollux_mempool::{Object, ObjectPool};

#[repr(C)]
struct Session {
    number: u64,
    packets: u64,
}

/// The session in an object that is out.
///
/// # Safety
/// The object is of a pool of sessions, and the caller's alone.
unsafe fn session<'a>(object: Object) -> &'a mut Session {
    // SAFETY: the constructor wrote a session there, which nobody else refers to (caller).
    unsafe { object.address().cast::<Session>().as_mut() }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = ObjectPool::builder("sessions", size_of::<Session>(), 100)
        // Runs once on each object; what it writes stays while the object is at home.
        .constructor(|index, place| {
            // SAFETY: the place is a cache line's, large enough, and nobody's yet.
            unsafe { place.cast::<Session>().write(Session { number: index as u64, packets: 0 }) }
        })
        .build(&Memory::ordinary())?;

    let object = pool.get().ok_or("the pool is empty")?;
    // SAFETY: of the pool above, and taken just now.
    let session = unsafe { session(object) };
    session.packets += 32;
    println!("session {}: {} packets", session.number, session.packets);
    println!("in use: {} of {}", pool.in_use(), pool.capacity());
    // SAFETY: taken from this pool and used no more.
    unsafe { pool.put(object) };
    println!("in use: {}", pool.in_use());
    Ok(())
}

#[test]
fn runs() {
    main().expect("runs");
}
