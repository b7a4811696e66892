//! What rdma-core's pingpongs tell each other.
//!
//! Source: rdma-core `libibverbs/examples/{pingpong,rc_pingpong,srq_pingpong,xsrq_pingpong}.c`. Numbers are hexadecimal text
//! of fixed width; a GID is its 32 digits in order; each message ends in a zero byte. RC, UC and UD send one address each way,
//! client first, and then the client says `done`; SRQ sends 256 of them whatever the number of queue pairs; XSRQ has one more
//! queue pair and a receive queue in its address, says nothing when done, and `END` both ways when all is over.
//!
//! Two of our own ends compare their options when they have traded addresses. They know each other by the digits of the first
//! GID: ours are capital letters, which the originals read as well and never write. Where either's GID has no letters neither
//! compares, for that one is not known.

use super::{ExchangeError, Line, Side, line::Stop};

/// Addresses that SRQ ends send, most of them zero.
pub const SRQ_ADDRESSES: usize = 256;

/// Where the GID stands in an address.
const GID_AT: usize = 19;

/// Where a queue pair is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// First packet sequence number, 24 bits.
    pub psn: u32,
    /// Global identifier; zero when none was chosen.
    pub gid: [u8; 16],
}

impl Address {
    /// Its message, marked as one of ours.
    fn encode_marked(&self) -> [u8; 52] {
        let mut message = self.encode();
        message[GID_AT..].make_ascii_uppercase();
        message
    }

    /// Whether its marked message differs from an original's: the GID has letters.
    fn is_marked(&self) -> bool {
        self.encode_marked() != self.encode()
    }

    /// Its message.
    #[must_use]
    pub fn encode(&self) -> [u8; 52] {
        text(&format!("{:04x}:{:06x}:{:06x}:{}", self.lid, self.qpn, self.psn, hex(&self.gid)))
    }

    /// Reads a message; none: it is no such message.
    #[must_use]
    pub fn decode(message: &[u8; 52]) -> Option<Self> {
        let [lid, qpn, psn, gid] = fields(message)?;
        Some(Self {
            lid: number(lid)?.try_into().ok()?,
            qpn: number24(qpn)?,
            psn: number24(psn)?,
            gid: unhex(gid)?,
        })
    }
}

/// Where an XSRQ end is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XsrqAddress {
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The queue pair that receives.
    pub receive_qpn: u32,
    /// The queue pair that sends.
    pub send_qpn: u32,
    /// First packet sequence number of both.
    pub psn: u32,
    /// The shared receive queue.
    pub srqn: u32,
    /// Global identifier; zero when none was chosen.
    pub gid: [u8; 16],
}

impl XsrqAddress {
    /// Its message.
    #[must_use]
    pub fn encode(&self) -> [u8; 66] {
        let Self { lid, receive_qpn, send_qpn, psn, srqn, gid } = self;
        text(&format!("{lid:04x}:{receive_qpn:06x}:{send_qpn:06x}:{psn:06x}:{srqn:06x}:{}", hex(gid)))
    }

    /// Reads a message; none: it is no such message.
    #[must_use]
    pub fn decode(message: &[u8; 66]) -> Option<Self> {
        let [lid, receive, send, psn, srqn, gid] = fields(message)?;
        Some(Self {
            lid: number(lid)?.try_into().ok()?,
            receive_qpn: number24(receive)?,
            send_qpn: number24(send)?,
            psn: number24(psn)?,
            srqn: number24(srqn)?,
            gid: unhex(gid)?,
        })
    }
}

/// The text and a zero behind it; the formats' widths make it fit.
fn text<const LENGTH: usize>(text: &str) -> [u8; LENGTH] {
    let mut message = [0; LENGTH];
    message[..text.len()].copy_from_slice(text.as_bytes());
    message
}

fn fields<const COUNT: usize>(message: &[u8]) -> Option<[&str; COUNT]> {
    let end = message.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&message[..end]).ok()?;
    text.split(':').collect::<Vec<_>>().try_into().ok()
}

fn number(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}

fn number24(text: &str) -> Option<u32> {
    number(text).filter(|number| *number < 1 << 24)
}

fn hex(gid: &[u8; 16]) -> String {
    gid.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    let digits = (text.len() == 32).then_some(text)?;
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

const TOLD: &str = "exchanging addresses";

impl Line {
    /// An address, and whether an end of ours wrote it.
    fn told(&mut self, stop: Stop<'_>) -> Result<(Address, bool), ExchangeError> {
        let mut message = [0; 52];
        self.receive(&mut message, TOLD, self.patience().due, stop)?;
        let marked = message[GID_AT..].iter().any(u8::is_ascii_uppercase);
        match Address::decode(&message) {
            Some(address) => Ok((address, marked)),
            None => Err(self.strange(&message, "the address of a queue pair")),
        }
    }

    /// Trades addresses. A server calls `connect` with what the client said before it answers, so that it is ready when the
    /// client begins; a client connects afterwards. SRQ ends trade 256 of them, the others one. `options` are compared when the
    /// other end is one of ours.
    ///
    /// # Errors
    /// [`ExchangeError`], or what `connect` says.
    pub fn trade_addresses<E: From<ExchangeError>>(
        &mut self,
        own: &[Address],
        options: &[(&str, String)],
        stop: Stop<'_>,
        connect: impl FnOnce(&[Address]) -> Result<(), E>,
    ) -> Result<Vec<Address>, E> {
        let say = |line: &mut Self| {
            // In one piece, as the originals' reader of a single one wants it.
            let all: Vec<u8> = own.iter().flat_map(Address::encode_marked).collect();
            line.send(&all, TOLD)
        };
        if self.side() == Side::Client {
            say(self)?;
        }
        let told = own.iter().map(|_| self.told(stop)).collect::<Result<Vec<_>, _>>()?;
        let (other, marks): (Vec<_>, Vec<_>) = told.into_iter().unzip();
        // Each knows the other: both compare, or neither does.
        let is_ours = marks.first() == Some(&true) && own.first().is_some_and(Address::is_marked);
        if self.side() == Side::Client {
            self.send(b"done\0", TOLD)?;
            if is_ours {
                self.compare(options, stop)?;
            }
            connect(&other)?;
        } else {
            connect(&other)?;
            say(self)?;
            let mut done = [0; 5];
            self.receive(&mut done, "waiting for the client to finish", self.patience().due, stop)?;
            if &done != b"done\0" {
                return Err(self.strange(&done, "'done'").into());
            }
            if is_ours {
                self.compare(options, stop)?;
            }
        }
        Ok(other)
    }

    /// Trades XSRQ addresses, client first. The server's own may depend on which client it is.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn trade_xsrq(&mut self, own: &XsrqAddress, stop: Stop<'_>) -> Result<XsrqAddress, ExchangeError> {
        let other = self.swap(&own.encode(), TOLD, stop)?;
        XsrqAddress::decode(&other).ok_or_else(|| self.strange(&other, "the address of an XRC queue"))
    }

    /// Says that all is over at this end of an XSRQ run.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn say_end(&mut self) -> Result<(), ExchangeError> {
        self.send(b"END\0", "announcing the end of the test")
    }

    /// Waits until all is over at the other end of an XSRQ run.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn hear_end(&mut self, stop: Stop<'_>) -> Result<(), ExchangeError> {
        let mut end = [0; 4];
        self.receive(&mut end, "waiting for the peer to finish", self.patience().due, stop)?;
        if &end == b"END\0" { Ok(()) } else { Err(self.strange(&end, "'END'")) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::tests::{NEVER, pair};
    use super::*;

    const GID: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0x12, 0x34, 0x56];

    /// What C's printf makes of the originals' formats.
    const RC: &[u8; 52] = b"0000:000011:a3c9f0:fe80000000000000505400fffe123456\0";
    const XSRQ: &[u8; 66] = b"0000:000012:000011:00beef:000009:fe80000000000000505400fffe123456\0";

    #[test]
    fn messages_are_the_originals_bytes() {
        let address = Address { lid: 0, qpn: 0x11, psn: 0xa3_c9f0, gid: GID };
        assert_eq!(&address.encode(), RC);
        assert_eq!(Address::decode(RC), Some(address));
        let xsrq = XsrqAddress { lid: 0, receive_qpn: 0x12, send_qpn: 0x11, psn: 0xbeef, srqn: 9, gid: GID };
        assert_eq!(&xsrq.encode(), XSRQ);
        assert_eq!(XsrqAddress::decode(XSRQ), Some(xsrq));
    }

    #[test]
    fn anything_else_is_refused() {
        let with = |at: usize, byte: u8| {
            let mut message = *RC;
            message[at] = byte;
            Address::decode(&message)
        };
        assert!(with(0, b'0').is_some());
        for (at, byte) in [(0, b'x'), (4, b'-'), (51, b'0'), (20, 0xff), (12, 0)] {
            assert_eq!(with(at, byte), None, "{at}");
        }
        assert_eq!(Address::decode(&text("0000:1000011:a3c9f0:fe80000000000000505400fffe1234")), None);
        assert_eq!(XsrqAddress::decode(&[b'1'; 66]), None);
    }

    #[test]
    fn two_of_ours_compare_and_an_original_is_not_asked() {
        let address = Address { qpn: 1, gid: GID, ..Address::default() };
        let options = |iterations: &str| vec![("-n", iterations.to_owned())];
        let (mut client, mut server) = pair();
        std::thread::scope(|scope| {
            let heard = scope.spawn(move || {
                server
                    .trade_addresses::<ExchangeError>(&[address], &options("10"), NEVER, |_| Ok(()))
                    .unwrap_err()
            });
            let said = client
                .trade_addresses::<ExchangeError>(&[address], &options("20"), NEVER, |_| Ok(()))
                .unwrap_err();
            assert!(said.to_string().starts_with("-n differs: 20 here, 10 at"), "{said}");
            let heard = heard.join().unwrap();
            assert!(heard.to_string().starts_with("-n differs: 10 here, 20 at"), "{heard}");
        });
        // An original: small letters, and nothing but `done` behind.
        let (mut client, mut server) = pair();
        client.send(&address.encode(), "").unwrap();
        client.send(b"done\0", "").unwrap();
        let other =
            server.trade_addresses::<ExchangeError>(&[address], &options("10"), NEVER, |_| Ok(())).unwrap();
        assert_eq!(other, [address]);
    }

    #[test]
    fn an_end_whose_address_cannot_be_marked_compares_with_nobody() {
        let lettered = Address { qpn: 1, gid: GID, ..Address::default() };
        let plain =
            Address { qpn: 2, gid: 0x2001_4860_0000_0000_0000_0000_0000_0001_u128.to_be_bytes(), ..lettered };
        for (here, there) in [(lettered, plain), (plain, lettered), (plain, plain)] {
            let (mut client, mut server) = pair();
            std::thread::scope(|scope| {
                let heard = scope.spawn(move || {
                    let options = [("-n", "10".to_owned())];
                    server.trade_addresses::<ExchangeError>(&[there], &options, NEVER, |_| Ok(()))
                });
                let options = [("-n", "20".to_owned())];
                let said = client.trade_addresses::<ExchangeError>(&[here], &options, NEVER, |_| Ok(()));
                assert_eq!((said.unwrap(), heard.join().unwrap().unwrap()), (vec![there], vec![here]));
            });
        }
    }

    #[test]
    fn two_ends_trade() {
        let (mut client, mut server) = pair();
        let (a, b) = (Address { qpn: 1, ..Address::default() }, Address { qpn: 2, ..Address::default() });
        std::thread::scope(|scope| {
            let heard = scope.spawn(move || {
                let mut told = Vec::new();
                let other =
                    server.trade_addresses::<ExchangeError>(&[b; SRQ_ADDRESSES], &[], NEVER, |other| {
                        told.extend_from_slice(other);
                        Ok(())
                    });
                assert_eq!(other.unwrap(), told);
                told
            });
            let other =
                client.trade_addresses::<ExchangeError>(&[a; SRQ_ADDRESSES], &[], NEVER, |_| Ok(())).unwrap();
            assert_eq!(other, [b; SRQ_ADDRESSES]);
            assert_eq!(heard.join().unwrap(), [a; SRQ_ADDRESSES]);
        });
    }

    #[test]
    fn another_program_is_noticed() {
        let (mut client, mut server) = pair();
        client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: somebody\r\n\r\n", "testing").unwrap();
        let error = server
            .trade_addresses::<ExchangeError>(&[Address::default()], &[], NEVER, |_| Ok(()))
            .unwrap_err();
        let line = error.to_string();
        assert!(line.contains(r#"unexpected message "GET / HTTP/1.1\r\nHost: localhost"#), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
