//! What a user asks for, as plain data: EAL options under DPDK's names, device arguments, ports and queues,
//! and TOML profiles.
//!
//! ```text
//!  argv ──► CommandLine ──► EalSpec ──► eal
//!              │  ▲            ├─ LcoreMap, MemorySpec, LogSpec
//!              │  profile.toml └─ DeviceSpec ─► DeviceArg ─► KeyReader ──► a driver
//!              └────────────► the app's own options
//! ```
//!
//! Nothing here touches the machine: an lcore list is checked against the machine by `eal`, a device argument by
//! the driver that it names. Called by `bringup` and the apps; read by `eal`, `port` and the drivers.
//!
//! ```
//! use pollux_config::CommandLine;
//!
//! let line = CommandLine::parse(["l2fwd", "-l", "0-1", "--vdev", "net_null0,size=64", "--", "-p", "3"])?;
//! assert_eq!(line.eal.lcores.unwrap().to_string(), "0-1");
//! assert_eq!(line.eal.devices.vdevs[0].driver, "net_null");
//! assert_eq!(line.app, ["-p", "3"]);
//! # Ok::<(), pollux_config::ConfigError>(())
//! ```

#![forbid(unsafe_code)]

mod command_line;
mod device;
mod eal;
mod error;
mod lcore;
mod log;
mod param;
mod port;
mod profile;
mod toml_file;

pub use command_line::{Arguments, CommandLine, Parsed};
pub use device::{DeviceArg, DeviceSpec, KeyReader, nearest};
pub use eal::{EalSpec, HugeUnlink, IovaMode, MemorySpec, PoolSpec, ProcessSpec, ProcessType};
pub use error::ConfigError;
pub use lcore::{CPU_MAX, LCORE_MAX, LcoreEntry, LcoreMap, LcoreSet};
pub use log::{LogColor, LogFilter, LogLevel, LogPattern, LogSpec, LogTimestamp};
pub use param::Param;
pub use port::{PortSpec, QueueSpec};
pub use toml_file::TomlFile;
