//! Files of `/sys` whose content changes: written anew when they are looked at, once their device is there.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::letter::ask;
use super::super::{host, opened};
use super::Netdev;
use crate::interface::{self, mac_text};
use crate::plan::Plan;

/// Brings a file of the folder that stands for `/sys` up to date, if it is one that changes.
pub(crate) fn bring(plan: &Plan, path: &Path) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some((number, name)) = which(plan, path) else { return };
    let place = [number as u64, name.as_ptr().expose_provenance() as u64, name.len() as u64];
    let content = match host::ask_for_bytes(ask::SYSFS, &place) {
        Some(told) => told.ok().and_then(|told| String::from_utf8(told).ok()),
        None => content(number, &name),
    };
    let Some(content) = content else { return };
    // Whoever reads it at the same time finds one or the other.
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    let fresh = path.with_file_name(format!(".fresh-{}-{count}", std::process::id()));
    if fs::write(&fresh, format!("{content}\n")).is_ok() {
        let _replaced = fs::rename(&fresh, path);
    }
}

/// Which device a path is of, and what comes behind the folder of its interface, or of its port's counters.
fn which(plan: &Plan, path: &Path) -> Option<(usize, String)> {
    let below = path.strip_prefix(&plan.sysfs).ok()?.to_str()?;
    if let Some((front, counter)) = below.split_once("/ports/1/hw_counters/") {
        let number = front.rsplit('/').next()?.strip_prefix("mlx5_")?.parse().ok()?;
        return Some((number, format!("hw_counters/{counter}")));
    }
    let (_, behind) = below.split_once("net/")?;
    let (name, file) = behind.split_once('/')?;
    Some((interface::by_name(plan, name)?, file.to_owned()))
}

/// What a file of a device of this process's says, once that is there.
pub(crate) fn content(number: usize, file: &str) -> Option<String> {
    opened::made(number)?;
    let netdev = Netdev::of(number).ok()?;
    let device = netdev.model.device();
    let port = || device.port_counters();
    Some(match file {
        "address" => mac_text(device.mac()),
        "mtu" => device.mtu().to_string(),
        "flags" => format!("{:#x}", netdev.flags()),
        "carrier" => u8::from(netdev.is_running()).to_string(),
        "operstate" => (if netdev.is_running() { "up" } else { "down" }).into(),
        "statistics/rx_packets" => port().received.all().packets.to_string(),
        "statistics/rx_bytes" => port().received.all().bytes.to_string(),
        "statistics/tx_packets" => port().sent.all().packets.to_string(),
        "statistics/tx_bytes" => port().sent.all().bytes.to_string(),
        "hw_counters/out_of_buffer" => netdev.model.kernel().out_of_buffer().ok()?.to_string(),
        _ => return None,
    })
}
