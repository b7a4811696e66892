//! `rss-flows` and `pmdinfo`, beside DPDK's scripts that they stand for where these are installed, and on the device model.

mod pmdinfo;
mod program;
mod rss_flows;
