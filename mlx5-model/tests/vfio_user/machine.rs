//! A machine's end of the socket. Source of the layouts: QEMU `docs/interop/vfio-user.rst`.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::program::LIMIT;

pub(crate) const VERSION: u16 = 1;
pub(crate) const DMA_MAP: u16 = 2;
pub(crate) const DMA_UNMAP: u16 = 3;
pub(crate) const GET_INFO: u16 = 4;
pub(crate) const GET_REGION_INFO: u16 = 5;
pub(crate) const GET_IRQ_INFO: u16 = 7;
pub(crate) const SET_IRQS: u16 = 8;
pub(crate) const REGION_READ: u16 = 9;
pub(crate) const REGION_WRITE: u16 = 10;
pub(crate) const RESET: u16 = 13;

pub(crate) const BAR: u32 = 0;
pub(crate) const CONFIG: u32 = 7;
pub(crate) const MSIX: u32 = 2;

/// Flags of a reply, and of one that is an error.
pub(crate) const REPLY: u32 = 1;
pub(crate) const NO_REPLY: u32 = 1 << 4;
pub(crate) const ERROR: u32 = 1 << 5;

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) command: u16,
    pub(crate) flags: u32,
    pub(crate) errno: u32,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) stream: UnixStream,
}

/// A message with any header.
pub(crate) fn message(command: u16, bytes: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut message = 0x77_u16.to_ne_bytes().to_vec();
    message.extend(command.to_ne_bytes());
    for word in [bytes, flags, 0] {
        message.extend(word.to_ne_bytes());
    }
    message.extend(body);
    message
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

pub(crate) fn version(text: &str) -> Vec<u8> {
    [&words(&[1 << 16])[..], text.as_bytes(), &[0]].concat()
}

pub(crate) fn dma_map(flags: u32, offset: u64, address: u64, size: u64) -> Vec<u8> {
    let numbers = [offset, address, size].into_iter().flat_map(u64::to_ne_bytes);
    words(&[32, flags]).into_iter().chain(numbers).collect()
}

pub(crate) fn access(region: u32, offset: u64, count: u32) -> Vec<u8> {
    [&offset.to_ne_bytes()[..], &words(&[region, count])].concat()
}

impl Machine {
    /// A socket on which nothing was said yet.
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        Self { stream }
    }

    /// One that has agreed on the protocol.
    pub(crate) fn meet(path: &Path) -> Self {
        let mut machine = Self::connect(path);
        let text = r#"{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576,"pgsizes":4096}}"#;
        let reply = machine.ask(VERSION, &version(text), &[]);
        assert_eq!((reply.flags, reply.errno), (REPLY, 0));
        let said = std::str::from_utf8(&reply.body[4..reply.body.len() - 1]).expect("text");
        let said: serde_json::Value = serde_json::from_str(said).expect("JSON");
        let expected = serde_json::json!({"capabilities": {"max_msg_fds": 8, "max_data_xfer_size": 1 << 20}});
        assert_eq!(said, expected, "of what was proposed");
        machine
    }

    pub(crate) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "room");
        }
        Ok(sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
    }

    pub(crate) fn receive(&mut self) -> std::io::Result<Reply> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header)?;
        let word = |at: usize| u32::from_ne_bytes(*header[at..].first_chunk().expect("4 bytes"));
        let mut body = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut body)?;
        assert_eq!(header[..2], 0x77_u16.to_ne_bytes());
        let command = u16::from_ne_bytes([header[2], header[3]]);
        Ok(Reply { command, flags: word(8), errno: word(12), body })
    }

    pub(crate) fn ask(&mut self, command: u16, body: &[u8], descriptors: &[BorrowedFd<'_>]) -> Reply {
        let sent = message(command, 16 + body.len() as u32, 0, body);
        assert_eq!(self.send(&sent, descriptors).expect("sent"), sent.len());
        let reply = self.receive().expect("a reply");
        assert_eq!(reply.command, command);
        reply
    }

    /// Vendor and device, of configuration space.
    pub(crate) fn identity(&mut self) -> u32 {
        let reply = self.ask(REGION_READ, &access(CONFIG, 0, 4), &[]);
        assert_eq!((reply.flags, reply.body.len()), (REPLY, 20));
        u32::from_ne_bytes(*reply.body[16..].first_chunk().expect("4 bytes"))
    }
}
