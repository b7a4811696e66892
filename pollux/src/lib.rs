//! A poll-mode dataplane framework: one dependency for a program on it.
//!
//! ```text
//!   your program ─► pollux::prelude     what nearly every program names
//!                   pollux::bringup     command line and profile to a running EAL, ports, RDMA devices
//!                   pollux::kit         options, waiting for the end, counts, table and JSON report
//!                   pollux::eal         lcores, memory, clock, timers, alarms, services, rcu, pacer, meter, histogram
//!                   pollux::port        ports, queues, offloads, flow rules; `port::driver` for a driver of your own
//!                   pollux::mempool     pools, mbufs, bursts
//!                   pollux::ring        lock-free rings
//!                   pollux::wire        headers: read, built, changed in place with their checksums
//!                   pollux::lookup      routes, exact match, flows with ageing, classification; they change while lcores read
//!                   pollux::fragment    IP fragmentation and reassembly, GSO, GRO
//!                   pollux::verbs       RDMA: protection domains, memory regions, queue pairs, completion queues
//!                   pollux::cm          RDMA connections by address, as librdmacm makes them
//!                   pollux::config      what a command line or a profile says, as data
//!                   pollux::soft        the software ports
//! ```
//!
//! The guide in `docs/guide` goes from `cargo new` to a firewall, a driver and an RDMA program, step by step.
//!
//! Whoever knows DPDK or rdma-core finds its functions by their names in the search of these pages (`rte_eth_rx_burst`,
//! `ibv_post_send`), and side by side in `docs/from-dpdk.md`.
//!
//! A forwarder between the ports of its command line, two modelled ConnectX ports if it names none:
//!
//! ```
//! use pollux::prelude::*;
//!
//! fn forward(lcore: &LcoreContext, mut ports: Vec<Queues>) -> u64 {
//!     let (mut burst, mut sent) = (Burst::new(), 0);
//!     while !lcore.stop_requested() {
//!         for port in 0..ports.len() {
//!             let peer = port ^ 1;
//!             ports[port].rx[0].rx_burst(&mut burst, 32);
//!             sent += ports[peer].tx[0].tx_burst(&mut burst) as u64;
//!             burst.clear();
//!         }
//!     }
//!     sent
//! }
//!
//! # let arguments = ["forwarder", "-l", "0", "--no-huge", "--vdev", "net_null0", "--vdev", "net_null1"];
//! # let line = CommandLine::parse(arguments.map(std::ffi::OsString::from))?;
//! # #[cfg(any())]
//! let line = CommandLine::parse(std::env::args_os())?;
//! let mut bringup = Bringup::new(&line)?;
//! let ids: Vec<PortId> = bringup.ports.iter().map(|port| port.id()).collect();
//! let (queues, _pool) = bringup.start_ports(&ids, &PortRequest::new().lcores(1))?;
//! let main = bringup.eal.lcores().main();
//! let forwarding = bringup.eal.launch(main, move |lcore| forward(lcore, queues))?;
//! std::thread::sleep(std::time::Duration::from_millis(10));
//! bringup.eal.stop_flag().set();
//! assert!(forwarding.wait()? > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub use clap;
pub use pollux_bringup as bringup;
pub use pollux_cm as cm;
pub use pollux_config as config;
pub use pollux_eal as eal;
pub use pollux_fragment as fragment;
pub use pollux_kit as kit;
pub use pollux_lookup as lookup;
pub use pollux_mempool as mempool;
pub use pollux_port as port;
pub use pollux_port_soft as soft;
pub use pollux_ring as ring;
pub use pollux_rsocket as rsocket;
pub use pollux_verbs as verbs;
pub use pollux_wire as wire;

/// What nearly every program names.
pub mod prelude {
    pub use clap;
    pub use pollux_bringup::{Bringup, BringupError, Drivers, PortRequest, RdmaBringup, RdmaDevice, program};
    pub use pollux_config::CommandLine;
    pub use pollux_eal::clock::{Clock, Cycles, Nanos};
    pub use pollux_eal::pacer::Pacer;
    pub use pollux_eal::rcu::{Publisher, Reader};
    pub use pollux_eal::{Eal, LcoreContext, LcoreId, StopFlag, rcu};
    pub use pollux_mempool::{Burst, Mbuf, MbufPool};
    pub use pollux_port::{
        FrameSource, HashFields, MacAddress, PacketMut, Port, PortId, Queues, RssConfig, RxOffloads, RxQueue,
        TxOffloads, TxQueue,
    };
    pub use pollux_verbs::{Endpoint, Mr, Pd};
    pub use pollux_wire::build::Frame;
}

/// The programs of the guide that stand alone are compiled by `cargo test`; `tests/tests/guide.rs` runs all of them.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../docs/guide/src/skeleton.md")]
    mod skeleton {}
    #[doc = include_str!("../../docs/guide/src/firewall.md")]
    mod firewall {}
    #[doc = include_str!("../../docs/guide/src/port.md")]
    mod port {}
    #[doc = include_str!("../../docs/guide/src/rdma.md")]
    mod rdma {}
}
