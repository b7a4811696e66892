//! Pools: what goes out comes home, whoever takes it there.
#![expect(unsafe_code, reason = "plays the device")]

use pollux_eal::slot;
use pollux_mempool::{Burst, Mbuf, MbufPool};

fn pool(count: usize) -> MbufPool {
    MbufPool::builder("test", count).build_anonymous().expect("a small pool")
}

#[test]
fn a_burst_goes_out_and_comes_home() {
    let pool = pool(1024);
    for leased in [false, true] {
        let lease = leased.then(|| slot::lease().expect("a slot is free"));
        for round in 0..100 {
            let mut burst = Burst::new();
            assert!(pool.alloc_burst(&mut burst, 32));
            assert!(burst.iter().all(|mbuf| mbuf.data_len() == 0 && mbuf.headroom() == 128), "{round}");
            assert_eq!(pool.in_use(), 32);
            let single = pool.alloc().expect("the pool has more");
            assert_eq!(pool.in_use(), 33);
            drop(single);
        }
        drop(lease);
        assert_eq!(pool.available(), 1024);
    }
}

#[test]
fn an_empty_pool_says_so_and_takes_nothing() {
    let pool = pool(40);
    let mut burst = Burst::new();
    assert!(pool.alloc_burst(&mut burst, 32));
    assert!(!pool.alloc_burst(&mut burst, 9));
    assert_eq!(burst.len(), 32);
    assert_eq!(pool.alloc_up_to(&mut burst, 9), 8);
    assert!(pool.alloc().is_none());
    burst.clear();
    assert_eq!(pool.available(), 40);
}

#[test]
fn mbufs_outlive_the_pools_handles() {
    let pool = pool(64);
    let mut mbuf = pool.alloc().expect("a fresh pool");
    drop(pool);
    assert!(mbuf.append_slice(b"still here"));
    assert!(mbuf.pool().is_none());
    assert_eq!(mbuf.data(), b"still here");
}

#[test]
fn clones_share_data_and_the_last_takes_it_home() {
    let pool = pool(64);
    let mut mbuf = pool.alloc().expect("a fresh pool");
    assert!(mbuf.append_slice(b"shared"));
    let clone = mbuf.clone_indirect(&pool).expect("the pool has more");
    assert!(mbuf.data_mut().is_none());
    assert!(mbuf.append(1).is_none());
    drop(mbuf);
    assert_eq!(pool.in_use(), 2);
    assert_eq!(clone.data(), b"shared");
    assert!(clone.is_sole());
    drop(clone);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_device_gets_an_address_and_gives_it_back() {
    let pool = pool(64);
    let mbuf = pool.alloc().expect("a fresh pool");
    let inside = mbuf.data_ptr().addr() + 7;
    let raw = mbuf.into_raw();
    assert_eq!(pool.address_of(inside), Some(raw));
    assert_eq!(pool.in_use(), 1);
    // SAFETY: given away above.
    drop(unsafe { Mbuf::from_raw(raw) });
    assert_eq!(pool.in_use(), 0);
}
