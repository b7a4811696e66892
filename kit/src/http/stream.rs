//! Streams of events: who subscribed, and what a body sends.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// Events that wait for a client; the kernel holds some more.
const WAITING_MAX: usize = 4;
/// A client that took none of so many events in a row is given up.
const MISSED_MAX: u32 = 10;

/// A body: known beforehand, or events as they come.
pub(super) enum Content {
    Whole(Option<Bytes>),
    Events(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take()),
            Self::Events(events) => events.poll_recv(context),
        };
        data.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// Resolves when the client is given up.
pub(super) type Subscription = oneshot::Receiver<Infallible>;

struct Subscriber {
    events: mpsc::Sender<Bytes>,
    missed: u32,
    /// Dropped with the subscriber.
    _end: oneshot::Sender<Infallible>,
}

/// Those who are told of samples.
#[derive(Default)]
pub(super) struct Streams(RefCell<Vec<Subscriber>>);

impl Streams {
    /// Adds a client, which is told `first` at once. `None`: there are `most` already.
    pub(super) fn subscribe(&self, first: Bytes, most: usize) -> Option<(Content, Subscription)> {
        let mut all = self.0.borrow_mut();
        all.retain(|subscriber| !subscriber.events.is_closed());
        if all.len() >= most {
            return None;
        }
        let (events, body) = mpsc::channel(WAITING_MAX);
        let (end, subscription) = oneshot::channel();
        // There is room for it.
        let _sent = events.try_send(first);
        all.push(Subscriber { events, missed: 0, _end: end });
        Some((Content::Events(body), subscription))
    }

    /// Whether nobody listens.
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Sends an event to all. Those who are gone, or do not read, are dropped.
    pub(super) fn send(&self, event: &Bytes) {
        self.0.borrow_mut().retain_mut(|subscriber| match subscriber.events.try_send(event.clone()) {
            Ok(()) => {
                subscriber.missed = 0;
                true
            }
            Err(TrySendError::Full(_)) => {
                subscriber.missed += 1;
                subscriber.missed < MISSED_MAX
            }
            Err(TrySendError::Closed(_)) => false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribe(streams: &Streams) -> Option<(Content, Subscription)> {
        streams.subscribe(Bytes::from_static(b"first"), 2)
    }

    #[test]
    fn who_does_not_read_is_given_up_and_who_reads_is_not() {
        let streams = Streams::default();
        let (Some((deaf, mut deaf_end)), Some((Content::Events(mut events), mut end))) =
            (subscribe(&streams), subscribe(&streams))
        else {
            panic!("there is room for two");
        };
        assert!(subscribe(&streams).is_none(), "and not for a third");
        for event in 0..WAITING_MAX as u32 - 1 + MISSED_MAX {
            assert!(deaf_end.try_recv() == Err(oneshot::error::TryRecvError::Empty), "event {event}");
            streams.send(&Bytes::from(vec![event as u8]));
            while events.try_recv().is_ok() {}
        }
        assert!(deaf_end.try_recv() == Err(oneshot::error::TryRecvError::Closed));
        assert!(end.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        drop(deaf);
        assert!(subscribe(&streams).is_some(), "its place is free");
    }

    #[test]
    fn who_left_makes_room_at_once() {
        let streams = Streams::default();
        let (first, second) = (subscribe(&streams), subscribe(&streams));
        drop(first);
        assert!(subscribe(&streams).is_some());
        drop(second);
        streams.send(&Bytes::new());
        assert!(streams.is_empty());
    }
}
