//! Programs that connect by address, through a connection manager; the originals are librdmacm's.
//!
//! ```text
//!   address   addresses as they are typed
//!   manager   which manager: the kernel's, or one of this process over device models
//!   rping     ping-pong by READs and WRITEs
//!   rstream   streams, over sockets of the crate rsocket
//!   riostream the same past the peer's program, into memory that it maps
//!   stream    what both have in common
//!   table     numbers as their tables have them
//!   udpong    datagrams over sockets of that crate, and its `udpong/{message,socket}`
//!   node      a queue pair with all messages of a run: of the next three
//!   ucmatose  many connections at once
//!   udaddy    datagrams
//!   mckey     datagrams to a multicast group
//!   cmtime    how fast connections are made
//!   rdma_server, rdma_client   one message in each direction, over `message`
//! ```

pub mod address;
pub mod cmtime;
pub mod manager;
pub mod mckey;
pub mod message;
pub mod node;
pub mod rdma_client;
pub mod rdma_server;
pub mod riostream;
pub mod rping;
pub mod rstream;
pub mod stream;
pub mod table;
pub mod ucmatose;
pub mod udaddy;
pub mod udpong;
