//! What both ends of `udpong` say to each other. Source: rdma-core `librdmacm/examples/udpong.c`, `struct message`.
//!
//! ```text
//!   operation 1 | client 1 | sequence number 1 | 0 1 | count 4 in network byte order | data
//! ```

/// Bytes of the fields.
pub const HEADER: usize = 8;
/// Bytes of a message without data. Source: `CTRL_MSG_SIZE`.
pub const CONTROL: usize = 16;
/// Bytes of the longest message. Source: the size of `struct message`.
pub const LONGEST: usize = HEADER + 2048;

/// What a message is for. Source: `msg_op_login` and those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// A client is there, and asks for its number.
    Login,
    /// A test begins.
    Start,
    /// Counted.
    Data,
    /// Counted and sent back.
    Echo,
    /// A test is over: how many were counted?
    End,
}

impl Operation {
    /// What a byte says. As in the original, what is no other is data.
    #[must_use]
    pub const fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Login,
            1 => Self::Start,
            3 => Self::Echo,
            4 => Self::End,
            _ => Self::Data,
        }
    }
}

/// The fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is for.
    pub operation: Operation,
    /// Which client it is of, by the server's numbers.
    pub client: u8,
    /// By which a client knows an answer.
    pub sequence: u8,
    /// How many the server counted.
    pub count: u32,
}

impl Message {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let [first, second, third, fourth] = self.count.to_be_bytes();
        [self.operation as u8, self.client, self.sequence, 0, first, second, third, fourth]
    }

    /// The fields of a datagram; `None`: it is too short.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let &[operation, client, sequence, _, first, second, third, fourth] = bytes.first_chunk()?;
        let count = u32::from_be_bytes([first, second, third, fourth]);
        Some(Self { operation: Operation::of(operation), client, sequence, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand from the C struct.
    #[test]
    fn messages_are_the_originals_bytes() {
        let message = Message { operation: Operation::End, client: 7, sequence: 250, count: 0x0102_0304 };
        let bytes = [4, 7, 250, 0, 1, 2, 3, 4];
        assert_eq!((message.encode(), Message::decode(&bytes)), (bytes, Some(message)));
        assert!((0..HEADER).all(|cut| Message::decode(&bytes[..cut]).is_none()));
        let all = [Operation::Login, Operation::Start, Operation::Data, Operation::Echo, Operation::End];
        assert_eq!(all.map(|operation| operation as u8), [0, 1, 2, 3, 4]);
        assert_eq!([0, 1, 2, 3, 4].map(Operation::of), all);
        assert_eq!([5, 255].map(Operation::of), [Operation::Data; 2]);
    }
}
