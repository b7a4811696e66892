//! `mlx5-device`: models as PCI functions on vfio-user sockets, for QEMU to plug into a guest.
//!
//! ```text
//! mlx5-device --socket /tmp/a --wire cable:x --socket /tmp/b --wire cable:x
//! qemu-system-x86_64 -machine q35,memory-backend=mem -object memory-backend-memfd,id=mem,size=2G,share=on -m 2G \
//!     -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"/tmp/a"},"rombar":0}' ...
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use pollux_mlx5_model::pci::{self, Slot};
use pollux_mlx5_model::time::Clock;
use pollux_mlx5_model::wire::{Impairments, WireSpec};
use pollux_mlx5_model::{Device, DeviceConfig, GuestMemory};

/// A ConnectX adapter in software, as a PCI function that a virtual machine can have.
#[derive(Parser)]
#[command(name = "mlx5-device")]
struct Cli {
    /// Socket of a device; once for each device
    #[arg(long, required = true, value_name = "PATH")]
    socket: Vec<PathBuf>,
    /// Its wire, in the same order: cable:NAME, unix:LOCAL:PEER, iface:NAME, pcap:IN:OUT, source:SIZE or null
    #[arg(long, required = true, value_name = "WIRE")]
    wire: Vec<WireSpec>,
    /// Write every command to standard error; twice: every doorbell and interrupt too
    #[arg(long, action = clap::ArgAction::Count)]
    trace: u8,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = match cli.trace {
        0 => tracing::Level::INFO,
        1 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    tracing_subscriber::fmt().with_ansi(false).with_max_level(level).with_writer(std::io::stderr).init();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mlx5-device: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Box<dyn std::error::Error>> {
    let (sockets, wires) = (cli.socket.len(), cli.wire.len());
    if sockets != wires {
        return Err(format!("{sockets} sockets and {wires} wires: give each device one of both").into());
    }
    let mut slots = Vec::new();
    for (index, (path, wire)) in cli.socket.iter().zip(&cli.wire).enumerate() {
        let clock = Clock::machine();
        let config = DeviceConfig {
            name: format!("mlx5-device {}", path.display()),
            mac: [0x0c, 0x42, 0xa1, 0, 0, u8::try_from(index + 1)?],
            // Other people's drivers ring as they like.
            strict: false,
            clock: clock.clone(),
            ..DeviceConfig::default()
        };
        let pci_device = config.traits.pci_device;
        let wire = wire.open(config.mac, Impairments::default(), &clock)?;
        let memory = Arc::new(GuestMemory::default());
        let device = Device::in_guest(config, wire, Arc::clone(&memory))?;
        slots.push(Slot { path: path.clone(), device, memory, pci_device });
    }
    Ok(pci::serve(slots)?)
}
