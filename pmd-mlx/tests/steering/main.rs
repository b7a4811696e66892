//! What reaches which queue: hash, flow rules, VLAN list, checked packet by packet on the device model, through the kernel's
//! rules and through the firmware's.

mod flow;
mod neighbours;
mod packet;
mod rig;
mod rss;
mod tunnel;
