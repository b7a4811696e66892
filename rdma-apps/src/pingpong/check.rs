//! What a pingpong sends and whether it came back: `-c`.
//!
//! The originals look at one byte a page, which is zero (rdma-core `libibverbs/examples/rc_pingpong.c`). Ours keep those bytes
//! zero and make all others differ by place and by message, so that an old, a torn or a displaced message is found. The client
//! compares what comes back with what it sent; whoever the other end is, it sends back what it got. The server knows our client's
//! messages, and the originals' by those bytes alone.

/// Where the originals look.
const PAGE: usize = 4096;

/// Byte `place` of message `number`.
#[inline]
fn byte(number: u64, place: usize) -> u8 {
    if place.is_multiple_of(PAGE) {
        return 0;
    }
    let mixed =
        (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 56) as u8
}

/// Writes message `number`.
pub fn fill(message: &mut [u8], number: u64) {
    for (place, target) in message.iter_mut().enumerate() {
        *target = byte(number, place);
    }
}

/// Compares messages; remembers the pages that were wrong.
#[derive(Debug, Default)]
pub struct Checker {
    /// What the client's messages are.
    kind: Option<Client>,
    bad_pages: std::collections::BTreeSet<usize>,
    bad_messages: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// One of ours, which compares too.
    Ours,
    /// Anything that at least the originals would take.
    Other,
}

impl Checker {
    /// Looks at what came back of message `number`; at the client.
    pub fn returned(&mut self, message: &[u8], number: u64) {
        self.compare(message, |place| Some(byte(number, place)));
    }

    /// Looks at message `number`; at the server. The first one tells who the client is.
    pub fn received(&mut self, message: &[u8], number: u64) {
        let ours = || message.iter().enumerate().all(|(place, got)| *got == byte(number, place));
        let kind = *self.kind.get_or_insert_with(|| if ours() { Client::Ours } else { Client::Other });
        self.compare(message, |place| match kind {
            Client::Ours => Some(byte(number, place)),
            Client::Other => place.is_multiple_of(PAGE).then_some(0),
        });
    }

    fn compare(&mut self, message: &[u8], expected: impl Fn(usize) -> Option<u8>) {
        let before = self.bad_messages;
        for (place, got) in message.iter().enumerate() {
            if expected(place).is_some_and(|expected| expected != *got) {
                self.bad_pages.insert(place / PAGE);
                self.bad_messages = before + 1;
            }
        }
    }

    /// The originals' lines about pages that were wrong; none when all was right.
    #[must_use]
    pub fn lines(&self) -> Option<String> {
        (self.bad_messages > 0)
            .then(|| self.bad_pages.iter().map(|page| format!("invalid data in page {page}\n")).collect())
    }

    /// How many messages were wrong.
    #[must_use]
    pub fn bad(&self) -> u64 {
        self.bad_messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_found_wherever_it_is() {
        let mut message = vec![0; 3 * PAGE + 100];
        fill(&mut message, 7);
        let mut checker = Checker::default();
        checker.returned(&message, 7);
        assert_eq!(checker.lines(), None);
        for place in [0, 1, PAGE - 1, 2 * PAGE + 5, 3 * PAGE + 99] {
            let mut wrong = message.clone();
            wrong[place] ^= 1;
            let mut checker = Checker::default();
            checker.returned(&wrong, 7);
            assert_eq!(checker.lines(), Some(format!("invalid data in page {}\n", place / PAGE)), "{place}");
        }
        let mut checker = Checker::default();
        checker.returned(&message, 8);
        assert_eq!(checker.bad(), 1, "the message before");
        assert!((0..=3 * PAGE).step_by(PAGE).all(|place| message[place] == 0), "what the originals look at");
    }

    #[test]
    fn a_server_knows_its_client() {
        let mut ours = vec![0; 100];
        fill(&mut ours, 0);
        let mut checker = Checker::default();
        checker.received(&ours, 0);
        checker.received(&ours, 1);
        assert_eq!(checker.bad(), 1);
        let mut original = vec![0x7b; 2 * PAGE];
        (original[0], original[PAGE]) = (0, 0);
        let mut checker = Checker::default();
        checker.received(&original, 0);
        checker.received(&original, 1);
        assert_eq!(checker.bad(), 0);
        original[PAGE] = 1;
        checker.received(&original, 2);
        assert_eq!(checker.lines().as_deref(), Some("invalid data in page 1\n"));
    }
}
