//! The driver on the device model: opening, queues, frames, rules, errors.

mod address;
mod card;
mod compressed;
mod data;
mod drought;
mod fault;
mod harness;
mod interrupt;
mod joined;
mod ledger;
mod lent;
mod mangled;
mod modes;
mod outside;
mod pages;
mod run;
mod split;
mod traffic;
mod trouble;
mod tunnels;
