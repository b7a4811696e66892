//! Rates that send queues are held to (packet pacing).

use crate::layout::layouts;

layouts! {
    /// Sets a rate of the table; a rate of 0 takes it out.
    SetPpRateLimitIn = "set_pp_rate_limit_in" [64] {
        /// 0 is no limit, and cannot be set.
        RATE_LIMIT_INDEX: field(0x08, 15, 0),
        CTX: run(0x10, 48),
    }

    /// A rate.
    RateContext = "set_pp_rate_limit_context" [48] {
        /// In kbit/s.
        RATE_LIMIT: field(0x00, 31, 0),
        /// Bytes that may go out at once; 0 leaves it to the card.
        BURST_UPPER_BOUND: field(0x04, 31, 0),
        TYPICAL_PACKET_SIZE: field(0x08, 15, 0),
    }
}
