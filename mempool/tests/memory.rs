//! Where pools and their data lie: zones, data apart, external buffers; private areas and dynamic fields.
#![expect(unsafe_code, reason = "plays a device, and gives memory of its own")]

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollux_eal::memory::Memory;
use pollux_eal::region::Region;
use pollux_eal::slot;
use pollux_mempool::dynamic::{Field, Flag};
use pollux_mempool::{
    Area, BURST_MAX, Backend, Burst, External, Mbuf, MbufPool, Object, ObjectPool, PacketType, PoolError,
    PoolEvent, RxFlags, TxFlags, TxOffload, subscribe,
};

#[test]
fn a_pool_is_made_in_an_eals_memory() {
    let memory = Memory::ordinary();
    let pool = MbufPool::builder("in memory", 100).build(&memory).expect("ordinary pages");
    let regions = pool.regions();
    assert_eq!(regions.len(), 1);
    assert!(regions[0].data && regions[0].bytes >= 100 * (128 + 2176));
    let region = regions[0].region.as_ref().expect("the EAL's");
    assert!(memory.regions().iter().any(|known| known.id() == region.id()));
    let mbuf = pool.alloc().expect("a fresh pool");
    let start = regions[0].base.as_ptr().addr();
    assert!((start..start + regions[0].bytes).contains(&mbuf.data_ptr().addr()));
    assert!(matches!(MbufPool::builder("in memory", 100).build(&memory), Err(PoolError::Memory { .. })));
}

#[test]
fn a_pool_is_spread_over_several_zones() {
    let zone = |pages: usize| Region::anonymous("zone", pages * 4096).expect("pages").into_zone();
    let builder = || MbufPool::builder("spread", 10).data_room(1024).headroom(0);
    let short = builder().build_in(vec![zone(1), zone(1)]);
    assert!(matches!(short, Err(PoolError::AreasTooSmall { fit: 6, count: 10, .. })), "{short:?}");
    let pool = builder().build_in(vec![zone(1), zone(3)]).expect("room for ten");
    assert_eq!(pool.regions().len(), 2);
    let mut raw: Vec<_> = std::iter::from_fn(|| pool.alloc()).map(Mbuf::into_raw).collect();
    assert_eq!(raw.len(), 10);
    for raw in &raw {
        // SAFETY: given away above, and looked at only.
        let mbuf = std::mem::ManuallyDrop::new(unsafe { Mbuf::from_raw(*raw) });
        assert_eq!(pool.address_of(raw.as_ptr().addr()), Some(*raw));
        assert_eq!(pool.address_of(mbuf.data_ptr().addr() + 1023), Some(*raw));
    }
    raw.sort();
    let mut all: Vec<_> = pool.addresses().map(|(raw, _)| raw).collect();
    all.sort();
    assert_eq!(raw, all);
    // SAFETY: given away above.
    raw.into_iter().for_each(|raw| drop(unsafe { Mbuf::from_raw(raw) }));
    assert_eq!(pool.available(), 10);
}

#[test]
fn data_may_lie_apart_from_the_headers() {
    let umem = Region::anonymous("umem", 64 * 4096).expect("pages");
    let base = umem.base().as_ptr().addr();
    let pool = MbufPool::builder("apart", 64)
        .headroom(256)
        .data_apart(vec![Area::from(umem.into_zone())], 4096)
        .build_anonymous()
        .expect("a piece for each");
    let mut mbuf = pool.alloc().expect("a fresh pool");
    assert_eq!((mbuf.room_bytes(), mbuf.headroom()), (4096, 256));
    assert_eq!((mbuf.room_ptr().addr() - base) % 4096, 0);
    assert!(mbuf.append_slice(b"apart"));
    let clone = mbuf.clone_indirect(&pool).expect("a second");
    let address = mbuf.data_ptr().addr() + 3;
    let raw = mbuf.into_raw();
    assert_eq!(pool.address_of(address), Some(raw));
    // SAFETY: given away above.
    drop(unsafe { Mbuf::from_raw(raw) });
    assert_eq!(clone.data(), b"apart");
    drop(clone);
    assert_eq!(pool.available(), 64);
    let data: Vec<_> = pool.regions().into_iter().filter(|region| region.data).collect();
    assert_eq!(data.len(), 1);
    assert_eq!((data[0].base.as_ptr().addr(), data[0].bytes), (base, 64 * 4096));
    // A clone that went home shows its own data again.
    let held: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    let mut rooms: Vec<_> = held.iter().map(|mbuf| mbuf.room_ptr().addr()).collect();
    rooms.sort_unstable();
    assert_eq!(rooms, (0..64).map(|piece| base + piece * 4096).collect::<Vec<_>>());
}

#[test]
fn memory_of_another_origin_is_kept_as_long_as_mbufs_are_out() {
    struct Keeper(Arc<AtomicUsize>, Vec<u64>);
    impl Drop for Keeper {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut keeper = Keeper(Arc::clone(&dropped), vec![0_u64; 8 * 1024]);
    let base = NonNull::new(keeper.1.as_mut_ptr().cast::<u8>()).expect("not null");
    // SAFETY: the keeper's vector, which is not moved or used until it is dropped.
    let area = unsafe { Area::new(base, 64 * 1024, keeper) };
    let pool =
        MbufPool::builder("foreign", 16).data_apart(vec![area], 2048).build_anonymous().expect("a pool");
    let mut mbuf = pool.alloc().expect("a fresh pool");
    drop(pool);
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    assert!(mbuf.append_slice(&[1; 100]));
    drop(mbuf);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn external_buffers_are_shown_shared_and_freed_once() {
    let pool = MbufPool::builder("external", 16).build_anonymous().expect("a small pool");
    let freed = Arc::new(AtomicUsize::new(0));
    let bytes: &'static mut [u8] = Box::leak((0..=255_u8).collect::<Vec<u8>>().into_boxed_slice());
    let base = NonNull::from(&mut *bytes).cast::<u8>();
    let on_free = {
        let freed = Arc::clone(&freed);
        move |base: NonNull<u8>, bytes: usize| {
            freed.fetch_add(1, Ordering::SeqCst);
            // SAFETY: leaked above.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(base.as_ptr(), bytes)) });
        }
    };
    // SAFETY: leaked above and used by nobody else until it is freed.
    let mut stride = unsafe { External::new(base, 256, on_free) };
    let mut first = pool.alloc().expect("a fresh pool");
    let mut second = pool.alloc().expect("the pool has more");
    assert!(first.attach_external(stride.split_to(100).expect("of 256")).is_ok());
    assert!(second.attach_external(stride).is_ok());
    assert!(first.set_data(10, 20) && !first.set_data(90, 11) && second.set_data(0, 156));
    assert_eq!(first.data()[0], 10);
    assert_eq!(second.data()[0], 100);
    first.data_mut().expect("a part is its mbuf's own")[0] = 77;
    let clone = first.clone_indirect(&pool).expect("the pool has more");
    assert!(first.data_mut().is_none());
    let refused =
        first.attach_external(External::from(vec![0; 8])).expect_err("shared, and external already");
    assert_eq!((refused.bytes(), refused.shares()), (8, 1));
    drop(first);
    drop(second);
    assert_eq!((clone.data()[0], freed.load(Ordering::SeqCst)), (77, 0));
    drop(clone);
    assert_eq!((pool.available(), freed.load(Ordering::SeqCst)), (16, 1));
    // Each shows its own data room again.
    for mbuf in std::iter::from_fn(|| pool.alloc()).collect::<Vec<_>>() {
        assert_eq!(mbuf.room_bytes(), 2176);
        assert!(pool.address_of(mbuf.data_ptr().addr()).is_some());
    }
}

#[test]
fn private_areas_are_apart_and_kept() {
    let pool = MbufPool::builder("private", 16).private_bytes(40).build_anonymous().expect("a small pool");
    let mut held: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    for (number, mbuf) in held.iter_mut().enumerate() {
        mbuf.private_mut().fill(number as u8);
        let room = mbuf.tailroom();
        mbuf.append(room).expect("all of it").fill(0xff);
    }
    for (number, mbuf) in held.iter().enumerate() {
        assert_eq!(mbuf.private(), [number as u8; 40]);
    }
}

#[test]
fn dynamic_fields_and_flags_are_found_by_name() {
    let time = Field::<u64>::register("test_time").expect("room");
    let level = Field::<u8>::register("test_level").expect("room");
    assert!(matches!(Field::<u32>::register("test_time"), Err(PoolError::FieldSize { registered: 8, .. })));
    let again = Field::<u64>::register("test_time").expect("known");
    let flag = Flag::register("test_has_time").expect("a bit");
    assert_eq!(flag, Flag::register("test_has_time").expect("known"));
    let pool = MbufPool::builder("dynamic", 4).build_anonymous().expect("a small pool");
    let mut mbuf = pool.alloc().expect("a fresh pool");
    mbuf.set_field(time, u64::MAX - 1);
    mbuf.set_field(level, 3);
    mbuf.set_flag(flag, true);
    assert_eq!((mbuf.field(again), mbuf.field(level), mbuf.flag(flag)), (u64::MAX - 1, 3, true));
    let clone = mbuf.clone_indirect(&pool).expect("the pool has more");
    assert_eq!((clone.field(time), clone.flag(flag)), (u64::MAX - 1, true));
    mbuf.set_flag(flag, false);
    assert!(!mbuf.flag(flag));
    drop((mbuf, clone));
    for mbuf in std::iter::from_fn(|| pool.alloc()).collect::<Vec<_>>() {
        assert!(!mbuf.flag(flag), "a fresh mbuf has no flags");
    }
    let full = (0..40).map(|n| Flag::register(&format!("test_many_{n}"))).find_map(Result::err);
    assert!(matches!(full, Some(PoolError::NoDynamicRoom { .. })));
    let full = (0..9).map(|n| Field::<u32>::register(&format!("test_many_{n}"))).find_map(Result::err);
    assert!(matches!(full, Some(PoolError::NoDynamicRoom { .. })));
}

#[test]
fn a_fresh_mbuf_tells_nothing_of_the_last_packet() {
    let pool = MbufPool::builder("fresh", 1).build_anonymous().expect("a pool of one");
    let mut mbuf = pool.alloc().expect("a fresh pool");
    assert!(mbuf.set_received(0, 60, 3, RxFlags::VLAN | RxFlags::RSS_HASH, PacketType(0x11)));
    assert_eq!(
        (mbuf.port(), mbuf.data_len(), mbuf.headroom(), mbuf.packet_type()),
        (3, 60, 0, PacketType(0x11))
    );
    mbuf.set_packet_type(PacketType(0x21));
    assert_eq!((mbuf.packet_type(), mbuf.data_len()), (PacketType(0x21), 60));
    let offload = TxOffload {
        l2_len: 14,
        l3_len: 20,
        l4_len: 20,
        tso_segment_bytes: 1448,
        outer_l2_len: 18,
        outer_l3_len: 40,
    };
    mbuf.set_tx_flags(TxFlags::TCP_SEGMENTATION | TxFlags::TUNNEL_VXLAN);
    mbuf.set_tx_offload(offload);
    assert_eq!(mbuf.tx_offload(), offload);
    assert!(!mbuf.set_received(2000, 177, 0, RxFlags::empty(), PacketType::UNKNOWN), "past the room");
    drop(mbuf);
    let mbuf = pool.alloc().expect("it came home");
    assert_eq!((mbuf.port(), mbuf.pkt_len(), mbuf.headroom(), mbuf.segment_count()), (u16::MAX, 0, 128, 1));
    assert_eq!((mbuf.rx_flags(), mbuf.tx_flags()), (RxFlags::empty(), TxFlags::empty()));
    assert_eq!((mbuf.packet_type(), mbuf.tx_offload()), (PacketType::UNKNOWN, TxOffload::default()));
}

#[test]
fn bursts_of_several_pools_and_kinds_all_go_home() {
    for backend in [Backend::RingMpMc, Backend::RingRts, Backend::RingHts, Backend::RingSpSc, Backend::Stack]
    {
        assert_eq!(Backend::by_name(backend.name()), Some(backend));
        let _lease = slot::lease();
        let pools: Vec<_> = (0..2)
            .map(|_| {
                let builder = MbufPool::builder("several", 128).cache(16).backend(backend);
                builder.build_anonymous().expect("a small pool")
            })
            .collect();
        let mut burst = Burst::new();
        for round in 0..BURST_MAX {
            let pool = &pools[round / 5 % 2];
            let mut mbuf = pool.alloc().expect("enough");
            if round % 7 == 0 {
                mbuf.chain(pool.alloc().expect("enough")).expect("two segments");
            }
            burst.push(mbuf);
        }
        let extra = pools[0].alloc().expect("enough");
        let extra = burst.try_push(extra).expect_err("the burst is full");
        let mut front = burst.take_front(20);
        assert_eq!((front.len(), burst.len()), (20, BURST_MAX - 20));
        front.retain(|mbuf| mbuf.is_contiguous());
        front.free_front(3);
        drop((extra, front));
        burst.clear();
        for pool in &pools {
            assert_eq!(pool.available(), 128, "{backend:?}");
        }
    }
}

#[test]
fn a_users_own_cache_takes_and_brings_home() {
    let pool = MbufPool::builder("own", 256).cache(0).build_anonymous().expect("a small pool");
    let mut cache = pool.user_cache(32);
    let mut bursts: Vec<Burst> = (0..4).map(|_| Burst::new()).collect();
    for burst in &mut bursts {
        assert!(cache.alloc_burst(burst, 60));
    }
    assert!(!cache.alloc_burst(&mut Burst::new(), 64), "there are 16 left");
    let mut last = Burst::new();
    assert!(cache.alloc_burst(&mut last, 16));
    bursts[0][0].append(4).expect("room");
    for burst in bursts.iter_mut().chain([&mut last]) {
        cache.free_burst(burst);
        assert!(burst.is_empty());
    }
    assert!(cache.len() <= 48);
    drop(cache);
    assert_eq!(pool.available(), 256);
}

#[test]
fn objects_go_out_in_bulk_and_come_home() {
    let pool = ObjectPool::builder("bulk", 24, 1000).align(8).build_anonymous().expect("a small pool");
    let _lease = slot::lease();
    let mut places = [const { MaybeUninit::uninit() }; 600];
    let mut own = pool.user_cache(64);
    for count in [1, 32, 100, 600] {
        for _ in 0..50 {
            let objects: &mut [Object] = pool.get_bulk(&mut places[..count]).expect("enough");
            let mut sorted: Vec<_> = objects.iter().map(|object| object.address()).collect();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), count);
            assert!(objects.iter().all(|object| pool.index_of(object.address().as_ptr().addr()).is_some()));
            // SAFETY: taken above.
            unsafe { pool.put_bulk(objects) };
            let objects = own.get_bulk(&mut places[..count]).expect("enough");
            // SAFETY: taken above.
            unsafe { own.put_bulk(objects) };
        }
    }
    drop(own);
    assert_eq!(pool.available(), 1000);
    assert!(pool.get_bulk(&mut vec![MaybeUninit::uninit(); 1001]).is_none());
    assert_eq!(pool.stats().failures, 1);
    assert_eq!(pool.objects().len(), 1000);
}

#[test]
fn raw_mbufs_wait_in_a_devices_ring_and_come_back() {
    let pool = MbufPool::builder("raw", 64).build_anonymous().expect("a small pool");
    let mut ring = [MaybeUninit::uninit(); 32];
    assert!(pool.alloc_raw(&mut ring));
    assert_eq!(pool.in_use(), 32);
    for raw in ring {
        // SAFETY: written by `alloc_raw`, which gave the mbuf out.
        let mut mbuf = unsafe { Mbuf::adopt(raw.assume_init()) };
        assert_eq!((mbuf.check(), mbuf.headroom()), (Ok(()), 128));
        assert!(mbuf.set_received(128, 64, 0, RxFlags::empty(), PacketType::UNKNOWN));
    }
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    for builder in [
        MbufPool::builder("none", 0),
        MbufPool::builder("headroom", 8).data_room(64),
        MbufPool::builder("cache", 100).cache(67),
        MbufPool::builder("cache", 10_000).cache(513),
        MbufPool::builder("private", 8).private_bytes(1 << 17),
        MbufPool::builder("room", 8).data_room(usize::MAX),
    ] {
        let refused = builder.build_anonymous();
        assert!(matches!(refused, Err(PoolError::OutOfRange { .. })), "{refused:?}");
    }
    let refused = ObjectPool::builder("align", 8, 8).align(48).build_anonymous();
    assert!(matches!(refused, Err(PoolError::OutOfRange { .. })));
}

#[test]
fn a_driver_learns_of_each_pool_once() {
    let early = MbufPool::builder("early", 8).build_anonymous().expect("a small pool");
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let subscription = subscribe({
        let seen = Arc::clone(&seen);
        move |event| {
            let (what, info) = match event {
                PoolEvent::Created(info) => ("created", info),
                PoolEvent::Destroyed(info) => ("destroyed", info),
                _ => return,
            };
            if info.name == "early" || info.name == "late" {
                assert!(info.mbufs && info.regions[0].id().is_some());
                seen.lock().expect("no panic").push((what, info.name.clone()));
            }
            let refused = MbufPool::builder("inside", 8).build_anonymous();
            assert!(matches!(refused, Err(PoolError::InsideEvent { .. })));
        }
    });
    let late = MbufPool::builder("late", 8).build_anonymous().expect("a small pool");
    let mbuf = early.alloc().expect("a fresh pool");
    drop(late);
    drop(early);
    assert_eq!(seen.lock().expect("no panic").len(), 3, "one of early is out");
    drop(mbuf);
    let expected = [("created", "early"), ("created", "late"), ("destroyed", "late"), ("destroyed", "early")];
    let found = seen.lock().expect("no panic").clone();
    assert!(found.iter().map(|(what, name)| (*what, name.as_str())).eq(expected), "{found:?}");
    drop(subscription);
    drop(MbufPool::builder("late", 8).build_anonymous());
    assert_eq!(seen.lock().expect("no panic").len(), 4);
}

#[test]
fn a_users_own_cache_of_absurd_size_holds_no_more_than_there_is() {
    let pool = ObjectPool::builder("absurd", 64, 100).build_anonymous().expect("pages");
    // With half as many again, the first is 2^64, so nothing at all to whoever lets it overflow.
    for size in [usize::MAX / 3 * 2 + 1, usize::MAX, 1 << 40] {
        let mut cache = pool.user_cache(size);
        let mut space = [MaybeUninit::uninit(); 60];
        let objects = cache.get_bulk(&mut space).expect("the pool is full");
        assert_eq!(cache.len(), 40);
        // SAFETY: taken above.
        unsafe { cache.put_bulk(objects) };
        assert_eq!(cache.len(), 100);
        assert!(cache.get_bulk(&mut [MaybeUninit::uninit(); 101]).is_none());
        drop(cache);
        assert_eq!(pool.available(), 100);
    }
}

#[test]
fn absurd_sizes_are_reckoned_without_overflow() {
    let builder = || MbufPool::builder("absurd", usize::MAX).private_bytes(usize::MAX).data_room(usize::MAX);
    assert_eq!(builder().bytes(), usize::MAX);
    assert_eq!(builder().debug(true).bytes(), usize::MAX);
}

#[test]
fn a_packet_does_not_grow_past_4_gib() {
    const PIECE: usize = 1 << 20;
    let pool = MbufPool::builder("long", 4100).data_room(256).build_anonymous().expect("pages");
    let mut piece = pool.alloc().expect("a fresh pool");
    piece.attach_external(External::from(vec![0; PIECE])).expect("a fresh mbuf");
    // As many clones of one buffer as make 4 GiB less 100 bytes, between mbufs that have room at both ends.
    let mut packet = pool.alloc().expect("a fresh pool");
    for at in 0..4096 {
        assert!(piece.set_len(if at == 0 { PIECE - 100 } else { PIECE }));
        packet.chain(piece.clone_indirect(&pool).expect("room")).expect("less than 4 GiB");
    }
    packet.chain(pool.alloc().expect("room")).expect("nothing added");
    assert_eq!(packet.pkt_len(), u32::MAX - 99);
    assert!(packet.append(100).is_none() && packet.prepend(100).is_none());
    assert_eq!(packet.check(), Ok(()));
    assert!(packet.append(50).is_some() && packet.prepend(49).is_some());
    assert_eq!((packet.pkt_len(), packet.check()), (u32::MAX, Ok(())));
    assert!(packet.append(1).is_none() && packet.prepend(1).is_none());
    drop((packet, piece));
    assert_eq!(pool.available(), 4100);
}
