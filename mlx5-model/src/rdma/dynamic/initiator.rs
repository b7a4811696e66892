//! The end that sends.

use std::collections::BTreeSet;

use pollux_mlx5_abi::command::qp::context::QpContext;

use super::{Header, Peer};
use crate::rdma::request::Request;

/// Streams at once, and streams that fail before the whole initiator does, as logarithms.
pub(crate) const STREAMS_MAX_LOG: u32 = 6;
pub(crate) const FAILED_MAX_LOG: u32 = 6;

/// What a queue pair has that is one.
#[derive(Debug)]
pub(crate) struct Initiator {
    /// Whether entries name streams; without them all are of one.
    pub(crate) has_streams: bool,
    /// So many streams that failed are too many.
    failed_max: usize,
    failed: BTreeSet<u16>,
    /// Of what is under way: stream, target, connection.
    stream: u16,
    peer: Option<Peer>,
    session: u64,
    first: u32,
}

impl Initiator {
    pub(crate) fn new(context: &[u8; 232]) -> Self {
        let (streams, failed) = (
            QpContext::LOG_NUM_DCI_STREAM_CHANNELS.get(context),
            QpContext::LOG_NUM_DCI_ERRORED_STREAMS.get(context),
        );
        Self {
            has_streams: streams > 0 || failed > 0,
            failed_max: 1 << failed.min(FAILED_MAX_LOG),
            failed: BTreeSet::new(),
            stream: 0,
            peer: None,
            session: 0,
            first: 0,
        }
    }

    /// Back in RESET.
    pub(crate) fn reset(&mut self) {
        self.failed.clear();
        self.peer = None;
    }

    /// Whether a request has to wait until nothing is under way any more: it is of another stream, or for another target.
    pub(crate) fn waits(&self, request: &Request, idle: bool) -> bool {
        let elsewhere = request.peer.is_some() && self.peer.is_some() && request.peer != self.peer;
        !idle && (request.stream != self.stream || elsewhere)
    }

    /// A request is begun whose first packet has this number. The new peer, if it needs a new connection.
    pub(crate) fn begin(
        &mut self,
        request: &Request,
        idle: bool,
        psn: u32,
        session: impl FnOnce() -> u64,
    ) -> Option<Peer> {
        self.stream = request.stream;
        if idle {
            self.peer = None;
        }
        let peer = request.peer.filter(|_| self.peer.is_none())?;
        (self.peer, self.session, self.first) = (Some(peer), session(), psn);
        Some(peer)
    }

    /// Whether requests of a stream are flushed.
    pub(crate) fn has_failed(&self, stream: u16) -> bool {
        self.failed.contains(&stream)
    }

    /// The stream at work failed; whether the initiator goes on without it.
    pub(crate) fn fail(&mut self) -> bool {
        self.failed.insert(self.stream);
        self.failed.len() < self.failed_max
    }

    /// A stream that failed takes requests again; false of one that did not.
    pub(crate) fn mend(&mut self, stream: u16) -> bool {
        self.failed.remove(&stream)
    }

    /// What stands in front of each request of the connection.
    pub(crate) fn header(&self, number: u32) -> Header {
        Header {
            key: self.peer.map_or(0, |peer| peer.key).into(),
            session: self.session.into(),
            source: number.into(),
            first: self.first.into(),
        }
    }
}
