//! The side of a queue pair that answers requests.

/// What came from the peer, and what it is still to be told.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    expected: u32,
    messages: u32,
}

impl Responder {
    /// Receiving begins.
    pub(crate) fn begin(&mut self, psn: u32) {
        self.expected = psn;
        self.messages = 0;
    }

    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    /// Messages taken so far.
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }
}
