use std::sync::Arc;

use super::*;

/// Posts an entry of `places` with `count` handles of `token`.
fn post(producer: &mut Producer<Arc<()>>, id: u64, places: u32, count: u32, token: &Arc<()>) {
    let (at, before) = (producer.posted(), producer.kept());
    assert!(has_room(producer, places));
    (0..count).for_each(|_| producer.keep(Arc::clone(token)));
    let end = at.wrapping_add(places);
    producer.note(id, at, end, before);
    producer.commit(end, 1);
}

/// Takes back what was leaked as it should be, so that a search for leaks finds those alone that should not.
fn recover(token: &Arc<()>) {
    while Arc::strong_count(token) > 1 {
        // SAFETY: the count says that a handle was forgotten, and nobody else has one.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(token)) };
    }
}

fn has_room(producer: &mut Producer<Arc<()>>, places: u32) -> bool {
    producer.is_free(producer.posted(), producer.places() - places)
}

#[test]
fn a_later_entry_gives_back_what_those_before_it_took() {
    let (mut producer, mut consumer) = track(3, 3);
    let token = Arc::new(());
    post(&mut producer, 7, 2, 2, &token);
    post(&mut producer, 8, 1, 0, &token);
    post(&mut producer, 9, 4, 3, &token);
    assert!(!has_room(&mut producer, 2));
    assert!(consumer.find(1).is_none() && consumer.find(4).is_none(), "inside an entry");
    assert!(consumer.find(7).is_none() && consumer.find(0xffff).is_none(), "not posted");
    let found = consumer.find(3).expect("posted");
    assert_eq!((found.id, found.extra, found.tokens), (9, 2, 5));
    let mut taken = consumer.take(&found);
    assert_eq!(taken.next().map(|(index, _)| index), Some(0));
    drop(taken);
    assert_eq!(Arc::strong_count(&token), 1);
    assert!(has_room(&mut producer, 8) && consumer.find(3).is_none());
}

#[test]
fn tokens_are_told_apart_by_their_entries() {
    let (mut producer, mut consumer) = track(3, 4);
    let token = Arc::new(());
    for (places, tokens) in [(1, 0), (2, 3), (1, 0), (1, 1), (1, 0)] {
        post(&mut producer, 1, places, tokens, &token);
    }
    let found = consumer.find(5).expect("posted");
    let mut taken = consumer.take(&found);
    assert_eq!(taken.left_of_entry(), 3);
    assert!(taken.next().is_some());
    assert_eq!((taken.left_of_entry(), taken.left_of_entry()), (2, 2));
    assert!(taken.next().is_some() && taken.next().is_some());
    assert_eq!((taken.left_of_entry(), taken.left_from(1), taken.left_from(4)), (1, 1, 0));
    assert!(taken.next().is_some());
    assert_eq!(taken.left_of_entry(), 0);
    drop(taken);
    assert!(consumer.find(5).is_none());
}

#[test]
fn what_the_device_let_go_is_dropped_and_what_it_did_not_is_not() {
    for let_go in [true, false] {
        let (mut producer, consumer) = track(3, 3);
        let token = Arc::new(());
        post(&mut producer, 1, 1, 2, &token);
        if let_go {
            producer.let_go();
        }
        drop(consumer);
        assert_eq!(Arc::strong_count(&token), 3, "the other side is there");
        drop(producer);
        assert_eq!(Arc::strong_count(&token), if let_go { 1 } else { 3 });
        recover(&token);
    }
}

#[test]
fn indices_wrap() {
    let (mut producer, mut consumer) = track(2, 2);
    let token = Arc::new(());
    producer.posted = u32::MAX - 1;
    (producer.tokens, producer.kept) = (u32::MAX, u32::MAX);
    producer.done = u32::MAX - 1;
    producer.track.done.places.store(u32::MAX - 1, Ordering::Relaxed);
    producer.track.done.tokens.store(u32::MAX, Ordering::Relaxed);
    for round in 0..16 {
        let start = producer.posted();
        post(&mut producer, round, 2, 2, &token);
        let found = consumer.find(start as u16).expect("posted");
        assert_eq!(found.id, round);
        drop(consumer.take(&found));
        assert_eq!((producer.pending(), Arc::strong_count(&token)), (0, 1));
    }
}

#[test]
fn what_was_kept_and_not_posted_comes_back_or_is_dropped() {
    let (mut producer, consumer) = track(3, 3);
    let token = Arc::new(());
    post(&mut producer, 1, 1, 1, &token);
    (0..3).for_each(|_| producer.keep(Arc::clone(&token)));
    assert!(producer.has_kept() && producer.take_back().is_some());
    assert_eq!(Arc::strong_count(&token), 4);
    drop((producer, consumer));
    assert_eq!(Arc::strong_count(&token), 2, "the device was told of one, and nobody said that it let go");
    recover(&token);
}
