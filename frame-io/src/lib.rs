//! Raw frames without mbufs: packet sockets with mapped rings, AF_XDP sockets, pcap and pcapng files, tap descriptors, unix
//! datagrams.
//!
//! ```text
//!   port-soft, device model        borrow frames, hand frames over; never see a system call
//!          |
//!   packet_socket   xdp   tap   pcap   unix     rings and descriptors   (vnet: what travels beside a frame)
//!          |         |     |      |      |      (interface: index, MAC, MTU, up or down; mode: promiscuous)
//!       AF_PACKET AF_XDP /dev/net/tun files another process
//! ```
//!
//! Nothing here blocks on the data path: each call takes what is there and returns. Memory that the kernel writes
//! is borrowed out only while its status word says that it is ours. Set-up reports a [`FrameError`], one line that
//! names the thing, the value and the way out; data paths report a [`Trouble`], which costs nothing to make.
//!
//! ```
//! use pollux_frame_io::pcap::{PcapFormat, PcapReader, PcapWriter, Timestamp};
//!
//! let file = std::env::temp_dir().join(format!("frame-io-{}.pcap", std::process::id()));
//! let writer = PcapWriter::create(&file, PcapFormat::Pcap)?;
//! writer.write(&[&[0xff; 12], &[0x08, 0x06], &[0; 46]], 60, Timestamp::from_nanos(1))?;
//! writer.close()?;
//! let mut reader = PcapReader::open(&file)?;
//! assert_eq!(reader.next()?.map(|frame| frame.data.len()), Some(60));
//! assert!(reader.next()?.is_none());
//! # std::fs::remove_file(&file)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
pub mod interface;
pub mod mode;
pub mod packet_socket;
pub mod pcap;
mod sys;
pub mod tap;
pub mod unix;
pub mod vnet;
pub mod xdp;

pub use error::{FrameError, Trouble};
