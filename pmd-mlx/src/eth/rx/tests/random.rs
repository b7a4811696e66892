//! Any traffic and any completions.

use proptest::prelude::*;

use super::*;

/// What a device may do in a property test.
#[derive(Clone, Debug)]
enum Act {
    Receive(usize, usize),
    Session(usize, usize),
    Poll(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..1000_usize, 1..1400_usize).prop_map(|(seed, bytes)| Act::Receive(seed, bytes)),
        1 => (0..1000_usize, 2..20_usize).prop_map(|(seed, count)| Act::Session(seed, count)),
        2 => (0..40_usize).prop_map(Act::Poll),
    ]
}

/// Runs a queue through acts; all packets that came out.
fn run(plan: &Plan, pool: &MbufPool, acts: &[Act], start: u32) -> Vec<Got> {
    let (mut queue, mut device, _) = rig(plan, pool);
    let control = queue.control();
    if start != 0 {
        let mut halted = control.halt(std::time::Duration::ZERO).expect("nobody polls it");
        assert_eq!(queue.rx_burst(&mut Burst::new(), 1), Moved::NONE);
        halted.start_at(start);
        halted.run();
        device.start_at(start, start);
    }
    let mut all = Vec::new();
    let poll = |queue: &mut Alone<RxQueue>, all: &mut Vec<Got>, max| {
        let mut burst = Burst::new();
        queue.rx_burst(&mut burst, max);
        all.extend(got(&burst));
    };
    for act in acts {
        match act {
            Act::Receive(seed, bytes) => {
                if device.posted() < 2 || device.room() < 2 {
                    poll(&mut queue, &mut all, 64);
                }
                device.receive(&frame(*seed, *bytes), say(*seed));
            }
            Act::Session(seed, count) => {
                while device.posted() < *count as u32 || (device.room() as usize) < *count {
                    let before = all.len();
                    poll(&mut queue, &mut all, 64);
                    assert!(all.len() > before, "{:?}", control.health().trouble());
                }
                let frames: Vec<_> = (0..*count).map(|at| (frame(seed + at, 60 + at), say(*seed))).collect();
                device.receive_compressed(&frames, MiniFormat::Hash);
            }
            Act::Poll(max) => poll(&mut queue, &mut all, *max),
        }
    }
    all.extend(receive_all(&mut queue));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Every way of receiving gives what the scalar one gives, wherever the indices start.
    #[test]
    fn all_ways_of_receiving_agree(acts in proptest::collection::vec(act(), 1..120), start in any::<u32>()) {
        let pool = pool(1024);
        let compressed = Some(MiniFormat::Hash);
        let scalar = run(&Plan { compressed, ..Plan::default() }, &pool, &acts, 0);
        for (simd, enhanced) in WIDTHS.into_iter().flat_map(|simd| [(simd, false), (simd, true)]) {
            let plan = Plan { compressed, enhanced, simd, ..Plan::default() };
            // The 24 bits of the completion queue's index wrap inside.
            for start in [0, start, 0xff_ffe0, u32::MAX - 31] {
                prop_assert_eq!(&run(&plan, &pool, &acts, start), &scalar);
            }
        }
        let scatter = Plan { compressed, segments_log2: 1, ..Plan::default() };
        prop_assert_eq!(&run(&scatter, &pool, &acts, start), &scalar);
        prop_assert_eq!(&run(&Plan { enhanced: true, ..scatter }, &pool, &acts, start), &scalar);
        // A queue that may get joined packets, and gets none.
        let joining = Plan { compressed, features: RxFeatures::all(), ..Plan::default() };
        prop_assert_eq!(&run(&joining, &pool, &acts, start), &scalar);
        // Buffers that many packets share: without sessions, whose short forms say other things there.
        let plain: Vec<Act> = acts.iter().filter(|act| !matches!(act, Act::Session(..))).cloned().collect();
        let scalar = run(&Plan::default(), &pool, &plain, 0);
        for copied in [0, 128, 4096] {
            for start in [0, start, 0xff_ffe0, u32::MAX - 31] {
                prop_assert_eq!(&run(&striding(copied), &pool, &plain, start), &scalar);
            }
        }
        prop_assert_eq!(pool.in_use(), 0);
    }

    /// Whatever a device writes: no panic, nothing out of bounds, all mbufs home.
    #[test]
    fn any_bytes_in_the_completion_ring(
        entries in proptest::collection::vec((any::<[u8; 64]>(), 0..6_u8, any::<bool>()), 1..80),
        kind in 0..6_usize,
        max in 1..64_usize,
    ) {
        let pool = pool(512);
        let compressed = Some(MiniFormat::FlowTagStride);
        let plan = match kind {
            0 => Plan { compressed, ..Plan::default() },
            1 => Plan { compressed, segments_log2: 2, ..Plan::default() },
            2 => Plan { compressed, simd: SimdWidth::detect(), ..Plan::default() },
            3 => Plan { compressed, enhanced: true, simd: SimdWidth::detect(), ..Plan::default() },
            4 => Plan { enhanced: true, ..striding(100) },
            _ => striding(100),
        };
        let (mut queue, mut device, _) = rig(&plan, &pool);
        let control = queue.control();
        for (bytes, mend, poll) in entries {
            let mut entry = Cqe64::read_from_bytes(&bytes).expect("64 bytes");
            let mut op = bytes[63] & 0xfe;
            // Half right, so that it goes further than the first check.
            if mend > 0 {
                op = 0x20;
                entry.wqe_counter.set(device.taken as u16);
                entry.wqe_id.set(device.taken as u16);
            }
            if mend > 1 {
                entry.byte_cnt.set(entry.byte_cnt.get() & 0x1ff);
            }
            if mend > 2 {
                op |= if mend == 3 { 0xc } else { 0 };
            }
            if mend == 5 {
                entry.byte_cnt.set(1 << 16 | entry.byte_cnt.get());
                entry.wqe_counter.set(0);
            }
            device.complete_at(0, entry, op);
            device.completed = device.completed.wrapping_add(1);
            device.taken = device.taken.wrapping_add(1);
            if poll {
                let mut burst = Burst::new();
                queue.rx_burst(&mut burst, max);
                for mbuf in burst.iter() {
                    prop_assert_eq!(mbuf.check(), Ok(()));
                }
            }
            if let Some(mut parked) = control.take() {
                parked.drain();
                parked.reset();
                parked.refill();
                device.taken = 0;
                let consumed = parked.cq().consumer();
                device.completed = consumed;
                parked.resume();
            }
        }
        drop(queue);
        prop_assert_eq!(pool.in_use(), 0);
    }
}
