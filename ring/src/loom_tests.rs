//! Every interleaving of small scenes, explored by loom: `cargo xtask loom`. Which of them finds which weakened ordering:
//! `order.rs`, held to its word by `cargo xtask relaxations`.
//!
//! Positions start just before the wrap. The slots are tracked cells here, so an element that is moved without the
//! acquire and release that hand it over is found as a race.

use crate::header::{Kind, Plan};
use crate::index::Seq;
use crate::shared::{self, Consumer, Discipline, Producer};
use crate::{hts, mpmc, rts, spsc};
use loom::thread;
use pollux_atomic::explore;

fn plan(kind: Kind, capacity: usize) -> Plan {
    Plan { start: Seq::new(u32::MAX), ..Plan::new(kind, capacity) }
}

#[test]
fn spsc_in_order_through_a_full_ring() {
    explore(8, || {
        let (mut producer, mut consumer) = spsc::ring_from(plan(Kind::Spsc, 2)).unwrap();
        let sender = thread::spawn(move || {
            for value in 0..3 {
                while producer.enqueue(value).is_err() {
                    thread::yield_now();
                }
            }
            producer
        });
        for expected in 0..3 {
            let value = loop {
                match consumer.dequeue() {
                    Some(value) => break value,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(value, expected);
        }
        assert!(sender.join().unwrap().is_empty());
    });
}

#[test]
fn spsc_spans() {
    explore(8, || {
        let (mut producer, mut consumer) = spsc::ring_from(plan(Kind::Spsc, 2)).unwrap();
        let sender = thread::spawn(move || {
            let mut room = producer.reserve_bulk(2).unwrap();
            assert_eq!(room.push_slice(&[1, 2]), 2);
            assert_eq!(room.finish().count, 2);
            producer
        });
        let mut seen = consumer.peek_burst(2);
        // Published together, so seen together.
        assert!(seen.is_empty() || seen.iter().eq(&[1, 2]));
        seen.discard(1);
        let taken = seen.finish().count;
        assert_eq!(sender.join().unwrap().count(), 2 - taken);
    });
}

/// As above, the other way: the ring is full, so the producer writes where the guard has read.
#[test]
fn spsc_spans_through_a_full_ring() {
    explore(8, || {
        let (mut producer, mut consumer) = spsc::ring_from(plan(Kind::Spsc, 1)).unwrap();
        producer.enqueue(1).unwrap();
        let sender = thread::spawn(move || {
            while producer.enqueue(2).is_err() {
                thread::yield_now();
            }
            producer
        });
        assert_eq!(consumer.peek_burst(1).take(), Some(1));
        drop(sender.join().unwrap());
        assert_eq!(consumer.dequeue(), Some(2));
    });
}

/// Who counts while another puts and takes. The one who counts is made last, as below.
#[test]
fn a_count_is_never_more_than_was_put() {
    explore(4, || {
        let (producer, consumer) = ends::<mpmc::Mpmc>(2);
        let observer = producer.clone();
        let other = thread::spawn(move || {
            producer.enqueue(1).unwrap();
            assert_eq!(consumer.dequeue(), Some(1));
            drop((producer, consumer));
        });
        let observer = thread::spawn(move || {
            assert!(observer.count() <= 1);
            drop(observer);
        });
        other.join().unwrap();
        observer.join().unwrap();
    });
}

/// A consumer that loses the head to one who has seen a later tail, and must see that tail by the head that it finds.
fn head_that_was_lost<D: Discipline>() {
    explore(3, || {
        let (producer, consumer) = ends::<D>(2);
        producer.enqueue(1).unwrap();
        let quick = consumer.clone();
        let sender = thread::spawn(move || {
            let first = quick.dequeue();
            producer.enqueue(2).unwrap();
            let second = quick.dequeue();
            drop((producer, quick));
            [first, second]
        });
        let slow = thread::spawn(move || {
            let got = consumer.dequeue();
            assert!(got.is_none() || got == Some(1) || got == Some(2), "{got:?}");
            drop(consumer);
            got
        });
        let mut got: Vec<u32> = sender.join().unwrap().into_iter().flatten().collect();
        got.extend(slow.join().unwrap());
        got.sort_unstable();
        assert!(got.is_empty() || got == [1] || got == [2] || got == [1, 2], "{got:?}");
    });
}

#[test]
fn mpmc_head_that_was_lost() {
    head_that_was_lost::<mpmc::Mpmc>();
}

#[test]
fn rts_head_that_was_lost() {
    head_that_was_lost::<rts::Rts>();
}

#[test]
fn hts_head_that_was_lost() {
    head_that_was_lost::<hts::Hts>();
}

/// Three claims, of which the second is held up for ever: whoever finishes must not publish past it, by whatever head it sees.
#[test]
fn rts_claim_that_is_held_up() {
    explore(4, || {
        use crate::index::Want;
        use crate::storage::Core;
        let core: std::sync::Arc<Core<u32>> =
            std::sync::Arc::new(Core::heap(&Plan { distance_max: 4, ..plan(Kind::Rts, 4) }).unwrap());
        let claim = |core: &Core<u32>| {
            let (mine, peer) = (&core.header().producer, &core.header().consumer);
            rts::Rts::claim(mine, peer, core.capacity(), 1, Want::Bulk)
        };
        let first = claim(&core);
        let _held_up = claim(&core);
        let third = {
            let core = std::sync::Arc::clone(&core);
            thread::spawn(move || {
                let third = claim(&core);
                rts::Rts::publish(&core.header().producer, third);
            })
        };
        let last = {
            let core = std::sync::Arc::clone(&core);
            thread::spawn(move || rts::Rts::publish(&core.header().producer, first))
        };
        third.join().unwrap();
        last.join().unwrap();
        assert_eq!(core.count(), 0, "published past a claim that is not finished");
    });
}

/// A reservation that is given up leaves the word as it was; who claims next must have what it did in the slots behind it.
#[test]
fn hts_reservation_given_up() {
    explore(4, || {
        let (producer, consumer) = ends::<hts::Hts>(1);
        let other = producer.clone();
        let gives_up = thread::spawn(move || {
            if let Some(room) = other.reserve_bulk(1) {
                room.abort();
            }
            drop(other);
        });
        let sender = thread::spawn(move || {
            producer.enqueue(2).unwrap();
            drop(producer);
        });
        gives_up.join().unwrap();
        sender.join().unwrap();
        assert_eq!(consumer.dequeue(), Some(2));
    });
}

#[test]
fn relaxations() {
    pollux_atomic::print(crate::order::RELAXATIONS);
}

fn ends<D: Discipline>(capacity: usize) -> (Producer<u32, D>, Consumer<u32, D>) {
    shared::ring_from(plan(D::KIND, capacity)).unwrap()
}

/// Two producers and one consumer. On a ring of one, one of them may find it full; on a ring of two, the consumer may
/// take what one producer put by the tail that the other published.
fn producers_race<D: Discipline>(capacity: usize) {
    let (producer, consumer) = ends::<D>(capacity);
    let senders = [1, 2].map(|value| {
        let producer = producer.clone();
        thread::spawn(move || {
            let sent = producer.enqueue(value).is_ok();
            drop(producer);
            sent
        })
    });
    let early = consumer.dequeue();
    let sent = senders.map(|sender| sender.join().unwrap());
    let got: Vec<u32> = early.into_iter().chain(std::iter::from_fn(|| consumer.dequeue())).collect();
    assert_eq!(got.len(), sent.iter().filter(|sent| **sent).count());
    assert!(!got.is_empty() && got.iter().sum::<u32>() <= 3 && consumer.is_empty());
}

/// Two producers, and a consumer that takes what both put or nothing: it has seen the tail of the second only, and must have
/// the first one's element by it.
///
/// The consumer is the thread that loom runs last by itself, and so sees any of the tails. Were it to run first, loom would not
/// find that a store matters to it: of those who touched the tail before a store it knows the last one only, and
/// that is the storing thread itself, as it waits for its turn.
fn second_tail_brings_first_element<D: Discipline>() {
    let (producer, consumer) = ends::<D>(2);
    let senders = [1, 2].map(|value| {
        let producer = producer.clone();
        thread::spawn(move || {
            producer.enqueue(value).unwrap();
            drop(producer);
        })
    });
    let receiver = thread::spawn(move || {
        let mut out = [0; 2];
        let count = consumer.dequeue_bulk(&mut out, 2).count;
        assert!(count == 0 || out == [1, 2] || out == [2, 1], "{out:?}");
        drop(consumer);
    });
    for sender in senders {
        sender.join().unwrap();
    }
    receiver.join().unwrap();
}

/// The same the other way: a producer that finds the room of two consumers or none overwrites what the first one read.
fn second_tail_brings_first_room<D: Discipline>() {
    let (producer, consumer) = ends::<D>(2);
    assert_eq!(producer.enqueue_bulk(&[1, 2]).count, 2);
    let receivers = [(); 2].map(|()| {
        let consumer = consumer.clone();
        thread::spawn(move || {
            let got = consumer.dequeue().unwrap();
            drop(consumer);
            got
        })
    });
    let sender = thread::spawn(move || {
        let _ = producer.enqueue_bulk(&[3, 4]);
        drop(producer);
    });
    assert_eq!(receivers.map(|receiver| receiver.join().unwrap()).iter().sum::<u32>(), 3);
    sender.join().unwrap();
}

/// One element and two consumers. What one of them saw of the producer it notes for the other, who may take the element by
/// that note; and who finds that the other has taken it must not believe in an older tail.
fn one_element_for_two<D: Discipline>() {
    let (producer, consumer) = ends::<D>(2);
    let sender = thread::spawn(move || {
        producer.enqueue(1).unwrap();
        drop(producer);
    });
    let receivers = [(); 2].map(|()| {
        let consumer = consumer.clone();
        thread::spawn(move || {
            let got = consumer.dequeue();
            drop(consumer);
            got
        })
    });
    sender.join().unwrap();
    let mut got: Vec<u32> = receivers.into_iter().filter_map(|receiver| receiver.join().unwrap()).collect();
    got.extend(consumer.dequeue());
    assert_eq!(got, [1]);
}

/// Two consumers take from what one producer put, and puts.
fn consumers_race<D: Discipline>() {
    let (producer, consumer) = ends::<D>(2);
    assert_eq!(producer.enqueue_bulk(&[1]).count, 1);
    let receivers = [(); 2].map(|()| {
        let consumer = consumer.clone();
        thread::spawn(move || {
            let got = consumer.dequeue();
            drop(consumer);
            got
        })
    });
    producer.enqueue(2).unwrap();
    let mut got: Vec<u32> = receivers.into_iter().filter_map(|receiver| receiver.join().unwrap()).collect();
    got.extend(consumer.dequeue());
    got.extend(consumer.dequeue());
    got.sort_unstable();
    assert_eq!(got, [1, 2]);
}

/// Bulks of two by two producers stay together, each visible as a whole.
fn bulks_stay_together<D: Discipline>() {
    let (producer, consumer) = ends::<D>(4);
    let sender = {
        let producer = producer.clone();
        thread::spawn(move || {
            assert_eq!(producer.enqueue_bulk(&[1, 2]).count, 2);
            drop(producer);
        })
    };
    assert_eq!(producer.enqueue_bulk(&[3, 4]).count, 2);
    sender.join().unwrap();
    let mut out = [0; 4];
    assert_eq!(consumer.dequeue_bulk(&mut out, 4).count, 4);
    assert!(out == [1, 2, 3, 4] || out == [3, 4, 1, 2], "{out:?}");
}

#[test]
fn mpmc_producers() {
    explore(6, || producers_race::<mpmc::Mpmc>(1));
    explore(6, || producers_race::<mpmc::Mpmc>(2));
}

#[test]
fn mpmc_consumers() {
    explore(6, consumers_race::<mpmc::Mpmc>);
    explore(4, one_element_for_two::<mpmc::Mpmc>);
}

#[test]
fn mpmc_second_tail() {
    explore(4, second_tail_brings_first_element::<mpmc::Mpmc>);
    explore(4, second_tail_brings_first_room::<mpmc::Mpmc>);
}

#[test]
fn mpmc_bulks() {
    explore(8, bulks_stay_together::<mpmc::Mpmc>);
}

#[test]
fn rts_producers() {
    explore(6, || producers_race::<rts::Rts>(1));
    explore(6, || producers_race::<rts::Rts>(2));
}

#[test]
fn rts_consumers() {
    explore(6, consumers_race::<rts::Rts>);
    explore(4, one_element_for_two::<rts::Rts>);
}

#[test]
fn rts_second_tail() {
    explore(4, second_tail_brings_first_element::<rts::Rts>);
    explore(4, second_tail_brings_first_room::<rts::Rts>);
}

#[test]
fn rts_bulks() {
    explore(8, bulks_stay_together::<rts::Rts>);
}

#[test]
fn hts_producers() {
    explore(6, || producers_race::<hts::Hts>(1));
    explore(6, || producers_race::<hts::Hts>(2));
}

#[test]
fn hts_consumers() {
    explore(6, consumers_race::<hts::Hts>);
    explore(4, one_element_for_two::<hts::Hts>);
}

#[test]
fn hts_second_tail() {
    explore(4, second_tail_brings_first_element::<hts::Hts>);
    explore(4, second_tail_brings_first_room::<hts::Hts>);
}

#[test]
fn hts_bulks() {
    explore(8, bulks_stay_together::<hts::Hts>);
}

/// Who resets a ring when another's clone is gone must have what that one did behind it.
fn reset_after_the_last_clone<D: Discipline>() {
    let (mut producer, mut consumer) = ends::<D>(1);
    let clone = producer.clone();
    let sender = thread::spawn(move || {
        clone.enqueue(1).unwrap();
        drop(clone);
    });
    while shared::reset(&mut producer, &mut consumer).is_err() {
        thread::yield_now();
    }
    producer.enqueue(2).unwrap();
    assert_eq!(consumer.dequeue(), Some(2));
    sender.join().unwrap();
}

#[test]
fn reset() {
    explore(4, reset_after_the_last_clone::<mpmc::Mpmc>);
    explore(4, reset_after_the_last_clone::<rts::Rts>);
    explore(4, reset_after_the_last_clone::<hts::Hts>);
}

/// One consumer peeks and takes a part while another dequeues.
#[test]
fn hts_peek() {
    explore(6, || {
        let (producer, consumer) = ends::<hts::Hts>(2);
        assert_eq!(producer.enqueue_bulk(&[1, 2]).count, 2);
        let other = {
            let consumer = consumer.clone();
            thread::spawn(move || {
                let got = consumer.dequeue().unwrap();
                drop(consumer);
                got
            })
        };
        let mut seen = consumer.peek_burst(2).unwrap();
        let front = *seen.iter().next().unwrap();
        let mine = seen.take().unwrap();
        assert_eq!(front, mine);
        drop(seen);
        assert_eq!(other.join().unwrap() + mine, 3);
        assert!(consumer.is_empty());
    });
}
