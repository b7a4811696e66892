//! Many packets in one buffer.

use super::*;

#[test]
fn striding_copies_the_short_and_lends_the_long() {
    let pool = pool(256);
    let (mut queue, mut device, _) = rig(&striding(128), &pool);
    let mut held = Vec::new();
    for round in 0..400 {
        let bytes = [60, 128, 129, 300, 700, 1518][round % 6];
        let whole = frame(round, bytes);
        device.receive(&whole, say(round));
        let mut burst = Burst::new();
        assert_eq!(queue.rx_burst(&mut burst, 8).packets, 1, "{:?}", queue.control().health().trouble());
        assert_eq!(got(&burst), [expected(&whole, say(round))]);
        let lent = burst[0].room_bytes() != pool.data_room();
        assert!(!lent || bytes > 128, "{bytes} bytes lent");
        assert!(lent || bytes <= 128 || held.len() > 20, "{bytes} bytes copied in round {round}");
        held.push((whole, burst));
        if held.len() > 24 {
            // What was kept is what it was, although buffers were used again meanwhile.
            for (whole, burst) in held.drain(..12) {
                assert_eq!(burst[0].data(), whole);
            }
        }
    }
    drop(queue);
    for (whole, burst) in held.drain(..) {
        assert_eq!(burst[0].data(), whole);
    }
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn an_application_that_keeps_all_gets_copies_and_the_device_goes_on() {
    let pool = pool(512);
    let (mut queue, mut device, counters) = rig(&striding(64), &pool);
    let mut held = Vec::new();
    for round in 0..200 {
        device.receive(&frame(round, 1000), say(round));
        let mut burst = Burst::new();
        assert_eq!(queue.rx_burst(&mut burst, 8).packets, 1);
        held.push(burst);
        assert!(device.posted() >= 3, "entries stay posted");
    }
    let lent = held.iter().filter(|burst| burst[0].room_bytes() != pool.data_room()).count();
    assert!((16..=24).contains(&lent), "{lent} packets in the 12 buffers");
    for (round, burst) in held.iter().enumerate() {
        assert_eq!(burst[0].data(), frame(round, 1000));
    }
    held.clear();
    device.receive(&frame(1, 1000), say(1));
    let mut burst = Burst::new();
    queue.rx_burst(&mut burst, 8);
    device.receive(&frame(2, 1000), say(1));
    device.receive(&frame(3, 1000), say(1));
    queue.rx_burst(&mut burst, 8);
    assert!(burst.iter().any(|mbuf| mbuf.room_bytes() != pool.data_room()), "buffers came home");
    assert_eq!(counters.dropped(RxDrop::NoMbuf), 0);
    drop((burst, queue));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn striding_compressed() {
    for format in
        [MiniFormat::Checksum, MiniFormat::Hash, MiniFormat::ChecksumStride, MiniFormat::FlowTagStride]
    {
        let pool = pool(256);
        let plan = Plan { compressed: Some(format), ..striding(128) };
        let (mut queue, mut device, _) = rig(&plan, &pool);
        for round in 0..100 {
            if device.strides_left() < 7 {
                device.fill();
            }
            let common = Say { tag: 3, hash: 4, ..say(round) };
            let frames: Vec<_> = [60, 300, 200, 90, 256].map(|bytes| (frame(round, bytes), common)).into();
            device.receive_compressed(&frames, format);
            let want: Vec<_> = frames.iter().map(|(bytes, say)| expected(bytes, *say)).collect();
            assert_eq!(receive_all(&mut queue), want, "{format:?}");
        }
        drop(queue);
        assert_eq!(pool.in_use(), 0);
    }
}
