//! The side of a queue pair that sends requests.

/// Sequence numbers have so many bits.
pub(crate) const PSN_MASK: u32 = 0xff_ffff;

/// What a queue pair has asked for and what became of it.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    next_psn: u32,
    acked: u32,
    retries: u8,
    rnr_retries: u8,
}

impl Requester {
    /// Sending begins.
    pub(crate) fn begin(&mut self, psn: u32, retries: u8, rnr_retries: u8) {
        self.next_psn = psn;
        self.acked = psn.wrapping_sub(1) & PSN_MASK;
        (self.retries, self.rnr_retries) = (retries, rnr_retries);
    }

    pub(crate) fn next_psn(&self) -> u32 {
        self.next_psn
    }

    pub(crate) fn last_acked(&self) -> u32 {
        self.acked
    }
}
