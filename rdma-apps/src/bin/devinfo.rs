//! devinfo: rdma-core's `ibv_devinfo`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::{BringupError, RdmaBringup, RdmaDevice, present, program};
use pollux_config::CommandLine;
use pollux_rdma_apps::number::within;
use pollux_rdma_apps::rdma::info::Info;

/// devinfo: prints the attributes of RDMA devices, like rdma-core's ibv_devinfo. Without a device name it prints all devices
/// of the kernel.
#[derive(Parser)]
struct Options {
    /// RDMA device to query [default: those named by --vdev and -a, else all devices of the kernel]
    #[arg(short = 'd', long, value_name = "DEV")]
    ib_dev: Option<String>,
    /// Device port to query [default: all]
    #[arg(short = 'i', long, value_name = "PORT", value_parser = |text: &str| within(text, 1, 255))]
    ib_port: Option<u64>,
    /// List device names only
    #[arg(short = 'l', long)]
    list: bool,
    /// Print all attributes
    #[arg(short = 'v', long)]
    verbose: bool,
}

fn main() -> ExitCode {
    program::main(run)
}

fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    let mut line = line.clone();
    let named = !line.ports.is_empty();
    let here: Vec<String> = present().into_iter().map(|device| device.ibdev).collect();
    if options.list {
        let mut names = here;
        let more = line.ports.iter().map(|port| port.device.name.clone());
        names.extend(more.filter(|name| !names.contains(name)).collect::<Vec<_>>());
        let plural = if names.len() == 1 { "" } else { "s" };
        let rows: String = names.iter().map(|name| format!("\t{name}\n")).collect();
        program::print(&format!("{} HCA{plural} found:\n{rows}\n", names.len()));
        return Ok(());
    }
    if !named && options.ib_dev.is_none() {
        for name in &here {
            line.ports.push(pollux_config::PortSpec::new(name.parse()?));
        }
    }
    let devices = RdmaBringup::new(&line, options.ib_dev.as_deref())?.devices;
    // `-d` chooses one of several.
    let wanted = |device: &&RdmaDevice| options.ib_dev.as_ref().is_none_or(|name| device.name == *name);
    for device in devices.iter().filter(wanted) {
        show(device, &options)?;
    }
    Ok(())
}

fn show(device: &RdmaDevice, options: &Options) -> Result<(), BringupError> {
    let attributes = device.context.device()?;
    let count = attributes.base.phys_port_cnt;
    let only = options.ib_port.and_then(|port| u8::try_from(port).ok());
    if let Some(port) = only.filter(|port| *port > count) {
        let has = if count == 1 { "one port, -i 1".to_owned() } else { format!("ports 1 to {count}") };
        return Err(BringupError::Usage(format!("-i {port}: {} has {has}", device.name)));
    }
    let ports = (1..=count).map(|port| Ok((port, device.context.port(port)?)));
    // As in the original, a port whose speed cannot be had is shown without it.
    let speed = |port| Some((port, device.context.port_speed_mbps(port).ok()??));
    let info = Info {
        name: device.name.clone(),
        device: attributes,
        frames: device.context.frame_limits(),
        ports: ports.collect::<Result<_, BringupError>>()?,
        speeds_mbps: (1..=count).filter_map(speed).collect(),
        gids: device.context.gids()?,
        board: device.sysfs().and_then(|folder| std::fs::read_to_string(folder.join("board_id")).ok()),
        vectors: device.context.comp_vectors(),
    };
    let board = info.board.as_ref().map(|board| board.trim().to_owned());
    program::print(&Info { board, ..info }.lines(options.verbose, only));
    Ok(())
}
