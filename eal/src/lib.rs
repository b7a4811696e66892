//! The environment that a dataplane runs in: memory, lcores, clock, alarms, interrupts, services, logs and an orderly end.
//!
//! An [`Eal`] is a value. What belongs to it is reached through it, and two of them in one process share no state; what is
//! the process's by nature (cache slots, signal handlers) knows of several.
//!
//! ```text
//!                EalSpec (config)
//!                   │ Eal::init
//!                   ▼
//!   ┌───────────── Eal ───────────────────────────────────────────────────────────────────────────┐
//!   │ control thread      lcores                 services          alarms            interrupts   │
//!   │ (the caller)        lcore-0, lcore-1, ..   lcore-N of -S     control-alarm     control-intr │
//!   │      │ launch ───────► f(&LcoreContext)                                                     │
//!   │      │                 slot, timers, cycles                                                 │
//!   │      ▼                      ▼                  ▼                 ▼                 ▼        │
//!   │   StopFlag ◄── code, SIGINT, SIGTERM, SIGHUP, a panic of any of these threads                    │
//!   │   memory ─► regions ─► zones           clock           logs                                 │
//!   └─────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! `bringup` makes an `Eal` and gives the apps its lcores; `mempool` takes zones and cache slots; `port` and the drivers take
//! zones, interrupts and barriers. It calls `config` for what the user asked for, and the kernel.
//!
//! The life of a thread: `Eal::init` makes one for each lcore, pins it, leases it a [`slot`] and lets it sleep. `launch` wakes
//! it; its loop looks at [`LcoreContext::stop_requested`], lets its [`timer`]s run if it has any, and returns; its result or panic goes to who launched it. At the
//! end ([`Eal::shutdown`], or drop) all are told, waited for and joined, in an order that is written there.
//!
//! ```
//! use pollux_config::EalSpec;
//! use pollux_eal::Eal;
//! use pollux_eal::lcore::Main;
//!
//! let eal = Eal::init(EalSpec::default())?; // an lcore for each CPU that this process may use
//! let rounds = eal.launch_all(Main::Call, |lcore| {
//!     let mut rounds = 0u64;
//!     while !lcore.stop_requested() {
//!         rounds += 1;
//!     }
//!     (lcore.id(), rounds)
//! })?;
//! eal.stop_flag().set();
//! for launched in rounds {
//!     let (lcore, rounds) = launched.wait()?;
//!     println!("lcore {lcore}: {rounds} rounds");
//! }
//! assert_eq!(eal.shutdown().code(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bucket;
mod control;
mod error;
mod order;
mod panic;
mod runtime;
mod stop;

pub mod alarm;
pub mod barrier;
pub mod clock;
pub mod counter;
pub mod event;
pub mod histogram;
pub mod hugepage;
pub mod interrupt;
pub mod iova;
pub mod lcore;
pub mod log;
pub mod memory;
pub mod meter;
pub mod mmio;
pub mod pacer;
pub mod prefix_socket;
pub mod processor;
pub mod ptrace;
pub mod rcu;
pub mod region;
pub mod service;
pub mod signal;
pub mod simd;
pub mod slot;
pub mod socket_file;
pub mod sysfs;
pub mod telemetry;
pub mod timer;
pub mod topology;

pub use control::ControlThread;
pub use error::{EalError, with_causes};
pub use lcore::{LcoreContext, LcoreId};
pub use panic::Panicked;
pub use runtime::{Eal, Exit};
pub use stop::{StopFlag, StopReason};
pub use topology::SocketId;
