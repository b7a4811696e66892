//! The files of RDMA devices, answered in the process that opens them: what `mlx5-run` loads into programs.
//!
//! ```text
//!   program ── open, stat ──► file       a path of the plan's, else the C library
//!           ── ioctl ───────► control ──► frame: attributes from the program's memory ──► opened ──► uverbs::Channel
//!           ── mmap, munmap ► map        pages of the device's registers
//!           ── about network interfaces ──► netdev
//!           ── close ───────► file       with its last descriptor all that was made through it goes
//!   mlx5_run_... ────────► asked       of include/mlx5_run.h: steps, ends of wires, bytes of the bus
//!                             real       what the C library has under these names
//! ```
//!
//! All functions here have names of the C library's. What is not about a device of the plan is passed on as it came; without a plan
//! in the environment, all of it. A program that makes system calls by itself, or is linked statically, is not met.
//!
//! A process that forks keeps its device; in the child, what it had open answers `EIO`, and what it opens anew is a device of its own.
#![expect(unsafe_code, reason = "stands in for functions of the C library, whose arguments are raw")]

mod arm;
mod asked;
mod client;
mod control;
mod errno;
mod file;
mod frame;
mod inode;
mod map;
mod netdev;
mod opened;
mod real;
