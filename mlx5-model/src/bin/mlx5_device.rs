//! `mlx5-device`: models as PCI functions on vfio-user sockets, for QEMU to plug into a guest.
//!
//! ```text
//! mlx5-device --socket /tmp/a --wire cable:x --socket /tmp/b --wire cable:x
//! qemu-system-x86_64 -machine q35,memory-backend=mem -object memory-backend-memfd,id=mem,size=2G,share=on -m 2G \
//!     -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"/tmp/a"},"rombar":0}' ...
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Weak};

use clap::Parser;
use pollux_eal::signal::EndSignals;
use pollux_eal::with_causes;
use pollux_mlx5_model::pci::{self, Health, Slot, Stop};
use pollux_mlx5_model::time::Clock;
use pollux_mlx5_model::wire::{Impairments, WireSpec};
use pollux_mlx5_model::{Ability, Device, DeviceConfig, GuestMemory, Joint, Traits};

/// Software model of a ConnectX adapter, served as a PCI function over vfio-user for a virtual machine.
#[derive(Parser)]
#[command(name = "mlx5-device")]
struct Cli {
    /// vfio-user socket of a device, once per device; a stale socket is replaced, and all are removed at exit
    #[arg(long, required = true, value_name = "PATH")]
    socket: Vec<PathBuf>,
    /// Link of each device, in the order of --socket: cable:NAME, unix:LOCAL:PEER, iface:NAME, pcap:IN:OUT, source:SIZE or null
    #[arg(long, required = true, value_name = "WIRE")]
    wire: Vec<WireSpec>,
    /// Join the devices in twos, the first with the second and so on: functions of a card, of which Linux makes one RDMA device with two
    /// ports
    #[arg(long)]
    dual_port: bool,
    /// Optional capabilities to enable on all devices, separated by commas: on-demand-paging, padded-completions, hairpin,
    /// dynamic-connections, signatures, mpls or sniffer
    #[arg(long, value_name = "ABILITY", value_delimiter = ',')]
    with: Vec<Ability>,
    /// Read commands from standard input, one per line: `fatal N [SYNDROME]` makes the firmware of device N fail (N from 0);
    /// `remove N` unplugs device N
    #[arg(long)]
    console: bool,
    /// Log every command to standard error; given twice, also every doorbell and interrupt
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
            eprintln!("mlx5-device: {}", with_causes(&*why));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Box<dyn Error>> {
    let stop = Stop::default();
    let ends = stop.clone();
    EndSignals::catch()?.call(move || ends.stop())?;
    let (sockets, wires) = (cli.socket.len(), cli.wire.len());
    if sockets != wires {
        return Err(format!("{sockets} sockets and {wires} wires: give each device one of both").into());
    }
    if cli.dual_port && !sockets.is_multiple_of(2) {
        return Err(format!(
            "--dual-port joins devices in twos, and there are {sockets}: give one more or less"
        )
        .into());
    }
    let mut slots = Vec::new();
    let mut second = None;
    for (index, (path, wire)) in cli.socket.iter().zip(&cli.wire).enumerate() {
        let clock = Clock::machine();
        // Other people's drivers recover a send queue as Linux's network driver does.
        let mut traits = Traits { send_record_at_ready: false, ..Traits::default() };
        cli.with.iter().for_each(|ability| ability.enable(&mut traits));
        let mac = [0x0c, 0x42, 0xa1, 0, 0, u8::try_from(index + 1)?];
        let joint = match second.take() {
            None if cli.dual_port => {
                let (first, other) = Joint::pair(mac);
                second = Some(other);
                Some(first)
            }
            joint => joint,
        };
        let config = DeviceConfig {
            name: format!("mlx5-device {}", path.display()),
            mac,
            joint,
            // Other people's drivers ring as they like.
            strict: false,
            traits,
            clock: clock.clone(),
            ..DeviceConfig::default()
        };
        let pci_device = config.traits.pci_device;
        let wire = wire.open(config.mac, Impairments::default(), &clock)?;
        let memory = Arc::new(GuestMemory::default());
        let device = Device::in_guest(config, wire, Arc::clone(&memory))?;
        slots.push(Slot { path: path.clone(), device, memory, pci_device, health: Health::default() });
    }
    if cli.console {
        let devices: Vec<_> =
            slots.iter().map(|slot| (Arc::downgrade(&slot.device), slot.health.clone())).collect();
        // It ends with the process.
        std::thread::Builder::new().name("console".into()).spawn(move || console(&devices))?;
    }
    let devices: Vec<_> = slots.iter().map(|slot| Arc::clone(&slot.device)).collect();
    let outcome = pci::serve(slots, &stop);
    for device in devices {
        let (first, count) = device.violations();
        if count > first.len() as u64 {
            let more = count - first.len() as u64;
            tracing::warn!(target: "model.rule", "{}: {more} more violations", device.name());
        }
    }
    Ok(outcome?)
}

/// Carries out orders until there are no more.
fn console(devices: &[(Weak<Device>, Health)]) {
    for line in std::io::stdin().lines().map_while(Result::ok).filter(|line| !line.trim().is_empty()) {
        if let Err(why) = order(devices, &line) {
            eprintln!("mlx5-device: '{line}': {why}");
        }
    }
}

/// What a firmware that is said to fail says, if nothing else is asked for: an error of its own. Source: Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/health.c`.
const FIRMWARE_ERROR: u8 = 1;

fn order(devices: &[(Weak<Device>, Health)], line: &str) -> Result<(), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let device = |index: &str| {
        let device = index.parse().ok().and_then(|index: usize| devices.get(index));
        device.ok_or_else(|| format!("there are devices 0 to {}", devices.len().saturating_sub(1)))
    };
    match words.as_slice() {
        ["fatal", index, rest @ ..] => {
            let syndrome = match rest {
                [] => FIRMWARE_ERROR,
                [syndrome] => syndrome.parse().map_err(|_| "a syndrome is a number from 0 to 255")?,
                _ => return Err("fatal takes a device and a syndrome".into()),
            };
            device(index)?.1.fail(syndrome);
        }
        ["remove", index] => {
            if let Some(device) = device(index)?.0.upgrade() {
                device.remove();
            }
        }
        _ => return Err("orders are: fatal N [SYNDROME], remove N".into()),
    }
    tracing::info!(target: "model.pci", line, "ordered");
    Ok(())
}
