//! Packets cut to a length and joined again, over mbufs, for IPv4 and IPv6: IP fragments, and segments of TCP (GSO, GRO).
//!
//! ```text
//!   rx burst ─► Reassembler::push ──► whole packets: what was no fragment, and chains of what was
//!                    │  ▲
//!              datagrams by addresses, protocol and identification, until whole, refused or too old
//!
//!   a packet longer than the MTU ─► fragment ──► mbufs of a pool, a fragment each ─► tx burst
//!
//!   rx burst ─► Gro::push ──► what follows from each other in a TCP connection, as one chain
//!   a packet longer than wanted ─► Gso::plan ──► segments, an mbuf each ─► tx burst
//! ```
//!
//! Whatever fragments are sent, memory is bounded by what [`Reassembler::new`] was told, nothing is allocated afterwards, each packet costs a
//! bounded number of steps and none makes it panic. A datagram of which two fragments overlap is dropped with all of its fragments, those
//! that come later included, for IPv6 by RFC 5722 and for IPv4 in the same way; the same fragment twice is dropped once. Sources: RFC 791,
//! RFC 8200 section 4.5, RFC 5722, RFC 6946 (atomic fragments); DPDK's `lib/ip_frag` does the same job.
//!
//! [`Gso`] and [`Gro`] are what DPDK's `lib/gso` and `lib/gro` are, after Linux' rules where those two differ: `net/ipv4/tcp_offload.c`,
//! `tcp_gro_receive` and `tcp_gso_segment`. What DPDK's GRO does to UDP, joining IP fragments, is [`Reassembler`]'s.
//!
//! Uses `mempool` for packets, `lookup` for the datagrams, `wire` for the headers. Checksums of TCP and UDP are the receiver's to look at: they are
//! of the whole.
//!
//! ```
//! use pollux_fragment::{Reassembler, fragment};
//! use pollux_mempool::{Burst, MbufPool};
//! use pollux_wire::build::Frame;
//!
//! let pool = MbufPool::builder("doc", 64).build_anonymous()?;
//! let frame = Frame::ether([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(7, 7).payload(&[5; 1400]);
//! let mut packet = pool.alloc().ok_or("no mbuf")?;
//! packet.append_slice(&frame);
//!
//! let mut fragments = Burst::new();
//! assert_eq!(fragment(&packet, 576, 1, &pool, &mut fragments)?, 3);
//!
//! // Time in milliseconds: 100 datagrams, 400 fragments of them, for two seconds.
//! let mut reassembler = Reassembler::new(100, 400, 2000)?;
//! let now = 0;
//! let whole: Vec<_> = fragments.drain(..).filter_map(|fragment| reassembler.push(fragment, now)).collect();
//! assert_eq!(whole.len(), 1);
//! assert_eq!(whole[0].segments().collect::<Vec<_>>().concat(), &frame[..]);
//! reassembler.expire(now, 16); // once a burst
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod cut;
mod error;
mod gro;
mod gso;
mod header;
mod reassembly;
mod tunnel;

pub use cut::fragment;
pub use error::FragmentError;
pub use gro::{Gro, GroKinds};
pub use gso::Gso;
pub use reassembly::{Counts, PIECES_MAX, Reassembler};

#[cfg(test)]
mod tests;
