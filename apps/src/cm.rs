//! Programs that connect by address, through a connection manager; the originals are librdmacm's.
//!
//! ```text
//!   address   addresses as they are typed
//!   manager   which manager: the kernel's, or one of this process over device models
//!   rping     ping-pong by READs and WRITEs
//!   rstream   streams, over sockets of the crate rsocket
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
pub mod rdma_client;
pub mod rdma_server;
pub mod rping;
pub mod rstream;
pub mod ucmatose;
pub mod udaddy;
