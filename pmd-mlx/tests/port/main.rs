//! The driver on the device model: opening, queues, frames, rules, errors.

mod compressed;
mod data;
mod fault;
mod harness;
mod interrupt;
mod ledger;
mod mangled;
mod outside;
mod run;
mod traffic;
mod trouble;
