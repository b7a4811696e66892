//! Whole-program tests over real kernel interfaces, and what such tests share.
//!
//! [`require`] decides whether a test can run here; [`netns`] makes hosts out of network namespaces; [`program`] runs
//! the apps as a user does; [`frame`] sends and sees raw frames by other people's means;
//! [`patience`] lengthens limits where the machine is slow; [`amount`](mod@amount) is how much a test does that has a long form; [`capture`] makes and reads capture files; [`disk`] fills up; [`log`] is what is logged; [`telemetry`] asks running programs; [`terminal`] shows what a
//! terminal is sent; [`thread`] tells what a program's threads cost; [`misuse!`] makes
//! doc tests of programs that must not compile. The tests themselves stand in
//! `tests/`, one file a subject. Other crates use this one in their own tests, never in their code.

pub mod amount;
pub mod capture;
pub mod disk;
pub mod frame;
pub mod log;
mod misuse;
pub mod netns;
pub mod patience;
pub mod program;
pub mod require;
pub mod telemetry;
pub mod terminal;
pub mod thread;
