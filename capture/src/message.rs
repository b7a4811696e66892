//! What a capture and an application say to each other: one JSON object a message, one answer a request.
//!
//! The socket is a `SOCK_SEQPACKET` of the file prefix, beside telemetry's. A capture lasts until its client closes the connection; an
//! application that ends closes it too.

use serde::{Deserialize, Serialize};

use crate::bpf::Instruction;

/// The socket's name in the runtime directory of the file prefix.
pub const SOCKET: &str = "pollux_capture";

/// Of the messages and of the ring. A client of another revision is refused.
pub const REVISION: u32 = 1;

/// Longest message.
pub const MESSAGE_BYTES_MAX: usize = 160 * 1024;

/// What a client asks, and in which revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// [`REVISION`].
    pub revision: u32,
    /// What.
    pub request: Request,
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Which ports there are.
    Ports,
    /// To capture, until the connection is closed.
    Capture(CaptureRequest),
}

/// What is to be captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureRequest {
    /// Size of the ring, as [`Layout::of_bytes`](crate::Layout::of_bytes) takes it.
    pub ring_bytes: usize,
    /// From where, each port once.
    pub interfaces: Vec<InterfaceRequest>,
}

/// One port to capture from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceRequest {
    /// Its number.
    pub port: u16,
    /// Bytes of a frame that are kept, 1 to [`SNAPLEN_MAX`](crate::SNAPLEN_MAX).
    pub snaplen: u32,
    /// Which frames.
    pub filter: Option<Vec<Instruction>>,
}

/// What an application answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Response {
    /// Its ports.
    Ports(Vec<Port>),
    /// The capture runs; the file of its ring comes with the message.
    Capture(CaptureReply),
    /// No, and why: one line.
    Error(String),
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its number.
    pub id: u16,
    /// Its name: `net_null0`.
    pub name: String,
    /// Its driver: `net_null`.
    pub driver: String,
    /// What it is on: `0000:03:00.0`, `veth0`.
    pub device: Option<String>,
    /// Its address.
    pub mac: Option<[u8; 6]>,
    /// Speed of its link in Mbit/s, 0 where that is not known.
    pub mbps: u32,
    /// Packets received and dropped so far.
    pub received: u64,
    /// Packets that it could not receive.
    pub missed: u64,
}

/// How to read what is captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureReply {
    /// Size of the ring.
    pub ring_bytes: usize,
    /// Ticks of the clock in a second.
    pub hz: u64,
    /// The clock is the processor's counter; else `CLOCK_MONOTONIC`, in nanoseconds.
    pub tsc: bool,
}

impl From<Instruction> for (u16, u8, u8, u32) {
    fn from(one: Instruction) -> Self {
        (one.code, one.jt, one.jf, one.k)
    }
}

impl From<(u16, u8, u8, u32)> for Instruction {
    fn from((code, jt, jf, k): (u16, u8, u8, u32)) -> Self {
        Self { code, jt, jf, k }
    }
}

impl Asked {
    /// A request of this revision, as bytes.
    #[must_use]
    pub fn encode(request: Request) -> Vec<u8> {
        serde_json::to_vec(&Self { revision: REVISION, request }).unwrap_or_default()
    }

    /// The request of a message.
    ///
    /// # Errors
    /// One line: it is no request, or of another revision.
    pub fn decode(message: &[u8]) -> Result<Request, String> {
        #[derive(Deserialize)]
        struct Revision {
            revision: u32,
        }
        let wrong = |error: serde_json::Error| format!("not a capture request: {error}");
        let Revision { revision } = serde_json::from_slice(message).map_err(wrong)?;
        if revision != REVISION {
            let problem = "use the capture tool that came with the application";
            return Err(format!(
                "the request has revision {revision}, this application {REVISION}: {problem}"
            ));
        }
        serde_json::from_slice(message).map(|Self { request, .. }| request).map_err(wrong)
    }
}

impl Response {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The response of a message.
    ///
    /// # Errors
    /// One line: it is none.
    pub fn decode(message: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(message)
            .map_err(|error| format!("not an answer to a capture request: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_responses_come_back_as_they_were() {
        let filter = Some(vec![Instruction { code: 0x28, jt: 0, jf: 0, k: 12 }]);
        let interfaces = vec![InterfaceRequest { port: 1, snaplen: 96, filter }];
        let request = Request::Capture(CaptureRequest { ring_bytes: 1 << 20, interfaces });
        let message = Asked::encode(request.clone());
        let expected = r#"{"revision":1,"request":{"capture":{"ring_bytes":1048576,"interfaces":[{"port":1,"snaplen":96,"filter":[[40,0,0,12]]}]}}}"#;
        assert_eq!(String::from_utf8_lossy(&message), expected);
        assert_eq!(Asked::decode(&message), Ok(request));
        assert_eq!(Asked::decode(&Asked::encode(Request::Ports)), Ok(Request::Ports));
        let response = Response::Capture(CaptureReply { ring_bytes: 1 << 20, hz: 3_000_000_000, tsc: true });
        assert_eq!(Response::decode(&response.encode()), Ok(response));
    }

    #[test]
    fn what_is_no_request_is_told_in_one_line() {
        for (message, part) in [
            (&b""[..], "not a capture request: EOF"),
            (b"\xff\0", "not a capture request: expected value"),
            (b"{\"revision\":1}", "missing field `request`"),
            (b"{\"revision\":2,\"request\":\"everything\"}", "has revision 2, this application 1"),
            (b"{\"revision\":1,\"request\":\"everything\"}", "unknown variant `everything`"),
        ] {
            let error = Asked::decode(message).expect_err("refused");
            assert!(error.contains(part) && error.lines().count() == 1, "{error}");
        }
        let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
        assert!(Asked::decode(&deep).is_err());
    }
}
