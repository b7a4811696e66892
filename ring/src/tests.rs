//! What every kind of ring must do, checked on each.

macro_rules! on_each_kind {
    ($($kind:ident)*) => { $(
        mod $kind {
            use crate::$kind::ring;

            #[test]
            #[allow(unused_mut, reason = "the shared kinds need none")]
            fn exact_capacity_in_order() {
                let (mut producer, mut consumer) = ring::<u64>(1000).unwrap();
                let input: Vec<u64> = (0..1200).collect();
                let sent = producer.enqueue_burst(&input[..]);
                assert_eq!((sent.count, sent.free), (1000, 0));
                assert!(producer.is_full());
                let mut out = Vec::with_capacity(2000);
                let got = consumer.dequeue_burst(&mut out, 600);
                assert_eq!((got.count, got.used), (600, 400));
                let sent = producer.enqueue_bulk(&input[1000..]);
                assert_eq!((sent.count, sent.free), (200, 400));
                assert_eq!(consumer.dequeue_bulk(&mut out, 601).count, 0);
                assert_eq!(consumer.dequeue_bulk(&mut out, 600).count, 600);
                assert_eq!(out, input);
                assert!(consumer.is_empty());
            }
        }
    )* };
}
on_each_kind!(spsc mpmc rts hts);
