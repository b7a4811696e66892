//! A pool, a burst of packets, a clone of one, and how all come home.

use pollux_eal::memory::Memory;
use pollux_eal::slot;
use pollux_mempool::{Burst, MbufPool};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // An lcore has a slot, and so a cache in each pool; this thread takes one for itself.
    let _lease = slot::lease();
    let memory = Memory::ordinary();
    let pool = MbufPool::builder("echo", 1024).build(&memory)?;

    let mut burst = Burst::new();
    if !pool.alloc_burst(&mut burst, 32) {
        return Err("the pool is empty".into());
    }
    for (number, mbuf) in burst.iter_mut().enumerate() {
        let text = format!("packet {number}");
        if !mbuf.append_slice(text.as_bytes()) {
            return Err("no room in a fresh mbuf".into());
        }
    }

    // A header of its own before data that both share.
    let body = burst[0].clone_indirect(&pool).ok_or("the pool is empty")?;
    let mut framed = pool.alloc().ok_or("the pool is empty")?;
    framed.append(4).ok_or("no room")?.copy_from_slice(b"--> ");
    framed.chain(body).map_err(|_| "too many segments")?;
    print!("{}", framed.dump(16));
    println!("in use: {} of {}", pool.in_use(), pool.capacity());

    burst.clear();
    println!("the first packet's data is still there: {}", framed.segments().count() == 2);
    drop(framed);
    println!("in use: {}", pool.in_use());
    Ok(())
}

#[test]
fn runs() {
    main().expect("runs");
}
