//! The verbs on two models of a card and the cable between them.

mod channel;
mod control;
mod data;
mod errors;
mod foreign;
mod ledger;
mod linked;
mod memory;
mod pages;
mod paging;
mod pair;
mod ports;
mod raw;
mod rig;
mod shared;
mod sniffer;
mod spread;
mod tso;
mod variants;
mod view;
