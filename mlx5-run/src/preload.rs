//! The files of RDMA devices, answered in the process that opens them: what `mlx5-run` loads into programs.
//!
//! ```text
//!   program ── open, stat ──► file       a path of the plan's, else the C library
//!           ── write ───────► manager     commands of /dev/infiniband/rdma_cm ──► cm, over queue pair 1 of the devices
//!           ── ioctl ───────► control ──► frame: attributes from the program's memory ──► opened ──► uverbs::Channel
//!           ── mmap, munmap ► map        pages of the device's registers
//!           ── about network interfaces ──► netdev
//!           ── fork ────────► fork       children ask their parent: service there, host here
//!           ── close ───────► file       with its last descriptor all that was made through it goes
//!   mlx5_run_... ────────► asked       of include/mlx5_run.h: steps, ends of wires, bytes of the bus
//! ```
//!
//! All functions here have names of the C library's. What is not about a device of the plan is passed on as it came; without a plan
//! in the environment, all of it. A program that makes system calls by itself, or is linked statically, is not met.
//!
//! A process that forks keeps its devices, and its children ask it: their calls are carried out where the device is,
//! with the memory and descriptors of the child, and pages of the device are the same in both. A daemon's devices are asked the same way
//! by programs that are attached to it, over a socket that has a path.
#![expect(unsafe_code, reason = "stands in for functions of the C library, whose arguments are raw")]

mod arm;
mod asked;
mod attach;
mod client;
mod control;
mod daemon;
mod descriptor;
mod errno;
mod file;
mod fork;
mod frame;
mod host;
mod inode;
mod letter;
mod manager;
mod map;
mod netdev;
mod opened;
mod pages;
mod planned;
mod service;
mod summary;
mod thread;
mod trace;

pub use attach::plan_of;
pub use daemon::Daemon;
