//! Traces of uverbs calls, as `pollux_uverbs::trace` writes them: explained line by line, and made comparable.
//!
//! ```text
//!   line ── parse ──► Line ── names and layouts (uverbs::abi, mlx5_abi::kernel) ──► text: Explainer
//!   trace ── normal ──► the same text for runs that ask and answer the same
//!   process ── /proc, its telemetry ──► files, pages, queues and their states: Process, Told; its calls as it makes them: Live, Tracer
//! ```
//!
//! The tables by which calls are told by name stand beside the layouts that drivers write by: in `pollux-uverbs` what is the kernel's,
//! in `pollux-mlx5-abi` what is mlx5_ib's and the device's. Called by the program `explain`, by `doctor` for reports of cards, and by
//! tests that hold a driver's calls against Linux'.
//!
//! ```
//! let mut explainer = pollux_explain::Explainer::new(true);
//! let said = explainer.line("map 0x500000 4096 Read -> ok");
//! assert!(said.contains("page of the adapter's clock"));
//! ```
#![forbid(unsafe_code)]

mod entry;
mod event;
pub mod line;
mod names;
pub mod normal;
mod part;
mod process;
mod queues;
mod text;

pub use process::{Live, Process, Told, Tracer, Watch, refusal};
pub use text::{Explainer, title};
