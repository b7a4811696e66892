//! device_list: rdma-core's `ibv_devices`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::{BringupError, RdmaBringup, present, program};

/// device_list: lists the RDMA devices of this host and those named by --vdev, like rdma-core's ibv_devices.
#[derive(Parser)]
struct Options {}

fn main() -> ExitCode {
    program::main(|line, Options {}| {
        let here = present().into_iter().map(|device| (device.ibdev, device.node_guid.unwrap_or(0)));
        let mut all: Vec<(String, u64)> = here.collect();
        if !line.ports.is_empty() {
            for device in &RdmaBringup::new(line, None)?.devices {
                if !all.iter().any(|(name, _)| *name == device.name) {
                    all.push((device.name.clone(), device.context.device()?.base.node_guid.get()));
                }
            }
        }
        let rows: String = all.iter().map(|(name, guid)| format!("    {name:<16}\t{guid:016x}\n")).collect();
        program::print(&format!(
            "    {:<16}\t   node GUID\n    {:<16}\t----------------\n{rows}",
            "device", "------"
        ));
        Ok::<(), BringupError>(())
    })
}
