//! What a program needs besides its loop: options, waiting, counting, reports.
//!
//! ```text
//!   RunOptions --port_request--> Bringup::start_ports --> queues --> the loop, on its lcores
//!       |                                                              |  Retry: a destination that is full
//!       '--> Watch::until_end, on the main thread                      '--> counters of ports, queues, lcores
//!                 |  events of ports, the duration, a signal                     |
//!                 '--> table, JSON report,  <-- Counts <-- Meter::read ----------'
//!                      screen, HTTP
//! ```
//!
//! Called by the apps, and by programs outside of this workspace; calls `bringup`, `port` and `eal`, and no app.
//!
//! - [`RunOptions`]: the options that all forwarders have; [`number`], [`pairs`]: what other options are made of.
//! - [`Watch`]: the control thread, until the end and the report.
//! - [`Meter`] and [`Counts`]: what ports, streams, lcores and pools counted; [`table()`] and [`json()`] show it.
//!   [`mod@table`] has what other tables are made of, too.
//! - [`Listener`] serves it over HTTP (`--metrics`), [`Screen`] draws it (`--screen`): both by a [`Sampler`].
//! - [`Retry`]: a burst that a destination did not take, tried again with patience; [`Lost`] counts what was let go.
//! - [`IdleOptions`] and [`Idle`]: what an lcore does while no packet arrives: it polls on, pauses, or sleeps until one does.
//! - [`rounds`]: the loop of a forwarding lcore, for what it does in a round: busy and idle cycles, `--idle`.
//! - [`l2fwd`]: the whole of a forwarder, for programs that only add drivers; [`forward`]: its loop, one page.
//! - [`WatchedFile`]: a file that is read again when it changes.
//! - [`Noise`]: numbers that look random.
//! - [`Console`]: where lines go when `--json` keeps standard output for itself.
//!
//! A whole program, between two ports without devices, for a tenth of a second:
//!
//! ```
//! use pollux_bringup::{Bringup, BringupError};
//! use pollux_config::CommandLine;
//! use pollux_kit::{Meter, RunOptions, Watch};
//! use pollux_mempool::Burst;
//! use pollux_port::PortId;
//!
//! let line = CommandLine::parse(["app", "-l", "0", "--vdev", "net_null0", "--vdev", "net_null1"])?;
//! let options = RunOptions { duration: Some(0.1), ..RunOptions::default() };
//! let mut watch = Watch::new("app", &options)?;
//! let mut bringup = Bringup::new(&line)?;
//! let ids = [PortId(0), PortId(1)];
//! let (mut queues, _pool) = bringup.start_ports(&ids, &options.port_request(1))?;
//! let main = bringup.eal.lcores().main();
//! let forwarding = bringup.eal.launch(main, move |lcore| {
//!     let mut burst = Burst::new();
//!     while !lcore.stop_requested() {
//!         queues[0].rx[0].rx_burst(&mut burst, 32);
//!         queues[1].tx[0].tx_burst(&mut burst);
//!         burst.clear();
//!     }
//! })?;
//! let meter = Meter::of_ports(&ids);
//! watch.until_end(&mut bringup, &meter)?;
//! bringup.eal.stop_flag().set();
//! forwarding.wait()?;
//! let counts = meter.read(&bringup.view());
//! assert!(counts.ports[1].tx_packets > 0);
//! watch.report(&counts)?;
//! # Ok::<(), BringupError>(())
//! ```

#![forbid(unsafe_code)]

mod console;
mod counts;
pub mod forward;
mod http;
pub mod idle;
pub mod l2fwd;
mod meter;
mod noise;
pub mod number;
mod options;
pub mod pairs;
mod prometheus;
mod report;
mod retry;
pub mod rounds;
mod sample;
mod screen;
pub mod table;
mod watch;
mod watched_file;

pub use console::Console;
pub use counts::{Counts, Latency, LcoreCounts, PoolCounts, PortCounts, QueueCounts, Reasons, StreamCounts};
pub use http::{Listener, Served};
pub use idle::{Idle, IdleMode, IdleOptions, IdlePolicy, Polled};
pub use meter::{Counted, Meter, StreamCounters};
pub use noise::Noise;
pub use options::{RunOptions, WatchOptions};
pub use report::{Report, json};
pub use retry::{Lost, Retry};
pub use sample::{Sample, Sampler};
pub use screen::Screen;
pub use table::table;
pub use watch::Watch;
pub use watched_file::WatchedFile;
