//! `mlx5-run`: runs a program on RDMA devices in software.

mod lease;
mod link;
mod serve;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Args, Parser};
use pollux_eal::signal::PassedOn;
use pollux_eal::with_causes;
use pollux_mlx5_kernel::InterfaceAddress;
use pollux_mlx5_model::Ability;
use pollux_mlx5_model::config::Profile;
use pollux_mlx5_model::fault::FaultPlan;
use pollux_mlx5_model::wire::WireSpec;
use pollux_mlx5_run::plan::{DevicePlan, Plan, PortPlan, Summary, VARIABLE};
use pollux_mlx5_run::{plan_of, sysfs};
use pollux_preload::library;
use pollux_preload::program::{self, Refusal};
use pollux_preload::running::{self, Program};

use lease::Folder;
use link::Link;

const LIBRARY: &str = "libpollux_mlx5_run.so";

/// Most devices of a program.
const PORTS_MAX: usize = 8;

/// Run a program on ConnectX devices in software: each process that opens one gets a device of its own, unless it is attached to a
/// daemon.
///
/// The port of a program that names no wire is one end of the link "default": the next program that is run so has the other end.
#[derive(Parser)]
#[command(name = "mlx5-run", version)]
struct Cli {
    #[command(flatten)]
    devices: Devices,
    /// Run no program, but a daemon with the devices, which programs share that are attached to SOCKET; SIGTERM ends it
    #[arg(long, value_name = "SOCKET")]
    serve: Option<PathBuf>,
    /// Run the program on the devices of the daemon at SOCKET
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["serve", Devices::GROUP])]
    attach: Option<PathBuf>,
    /// Program to run, with its arguments
    #[arg(last = true, required_unless_present = "serve", conflicts_with = "serve", value_name = "PROGRAM")]
    program: Vec<String>,
}

/// What the devices are; those of a daemon have it from the daemon's own command line.
#[derive(Args)]
#[group(id = Devices::GROUP, multiple = true)]
struct Devices {
    /// Card of the devices: cx4lx, cx5, cx6dx or cx7
    #[arg(long, value_name = "CARD", default_value_t)]
    device: Profile,
    /// Number of devices, each with one port, or with two by --dual-port
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=PORTS_MAX as i64))]
    ports: u8,
    /// Give each device a second port, for RDMA alone: wires, links and addresses are then given for the first and the second port of each
    /// device in turn
    #[arg(long)]
    dual_port: bool,
    /// Wire of a port, given once for each, as of mlx5-device: cable:NAME, unix:LOCAL:PEER, null, ...
    #[arg(long, value_name = "WIRE")]
    wire: Vec<WireSpec>,
    /// Link that the port is one end of, given once for each port; its two ends find each other by NAME
    #[arg(long, value_name = "NAME", conflicts_with = "wire")]
    link: Vec<String>,
    /// Address of a port's interface, such as 10.0.0.1/24, given once for each; made from the link's name and end if not given
    #[arg(long, value_name = "ADDRESS")]
    ip: Vec<InterfaceAddress>,
    /// Share of the frames sent, and of those received, that are lost, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    loss: f64,
    /// Share that the next one overtakes
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    reorder: f64,
    /// Share that arrives twice
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    duplicate: f64,
    /// How much later each frame arrives, such as 200us or 5ms
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = time)]
    delay: Duration,
    /// Where chance begins: the same seed gives the same losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Optional capabilities to enable on all devices, separated by commas, as of mlx5-device: on-demand-paging,
    /// padded-completions, hairpin, dynamic-connections, signatures, mpls or sniffer
    #[arg(long, value_name = "ABILITY", value_delimiter = ',')]
    with: Vec<Ability>,
    /// What goes wrong in the devices, such as send-error:100/0x04 or flap:10ms/5ms
    #[arg(long, value_name = "PLAN", value_parser = fault_plan)]
    fault_plan: Option<String>,
    /// Tell at the program's end what the devices saw: as text, as a line of JSON for each device, or what crossed PCIe
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_value = "rules", default_missing_value = "text")]
    summary: Summary,
    /// Write what the program asks of each device, its send entries, doorbells and completions to FILE.mlx5_0 and so on, for `explain`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Let the devices work only when the program says so, by the functions of mlx5_run.h
    #[arg(long)]
    stepped: bool,
}

impl Devices {
    /// Their options, together.
    const GROUP: &str = "devices";
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "must be between 0 and 1".into())
}

fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" => 1,
        "ms" => 1000,
        "s" => 1_000_000,
        _ => 0,
    };
    let most = Duration::from_secs(1);
    let time = digits.parse().ok().and_then(|count: u64| count.checked_mul(unit)).map(Duration::from_micros);
    time.filter(|time| unit != 0 && *time <= most)
        .ok_or_else(|| "must be a time up to 1s, such as 200us or 5ms".into())
}

fn fault_plan(text: &str) -> Result<String, String> {
    text.parse::<FaultPlan>().map(|_| text.to_owned()).map_err(|why| why.to_string())
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => ExitCode::from(code),
        Err((why, code)) => {
            eprintln!("mlx5-run: {why}");
            ExitCode::from(code)
        }
    }
}

fn run(cli: &Cli) -> Result<u8, Refusal> {
    let failed = |why: String| (why, 1);
    if let Some(socket) = &cli.serve {
        let (plan, links) = plan(&cli.devices).map_err(failed)?;
        serve::run(socket, plan).map_err(failed)?;
        drop(links);
        return Ok(0);
    }
    let path = program::find(&cli.program[0])?;
    program::takes_libraries(&path)?;
    let library = library::find(LIBRARY, "pollux-mlx5-run").map_err(failed)?;
    let (plan, links) = match &cli.attach {
        // The daemon writes its devices' traces.
        Some(socket) => (Plan { trace: None, ..attached(socket).map_err(failed)? }, Vec::new()),
        None => plan(&cli.devices).map_err(failed)?,
    };
    // In front of all that is to be removed at the end.
    let signals = PassedOn::catch().map_err(|why| failed(with_causes(&why)))?;
    // It goes with this process, and with it what it describes.
    let folder = Folder::make();
    let folder = folder.map_err(|why| failed(format!("cannot make a folder for the devices: {why}")))?;
    let plan = Plan { sysfs: folder.path().join("sys"), ..plan };
    sysfs::write(&plan)
        .map_err(|why| failed(format!("cannot describe the devices in {}: {why}", plan.sysfs.display())))?;
    let mut command = Command::new(&path);
    command.args(&cli.program[1..]).env(VARIABLE, plan.text()).env("SYSFS_PATH", &plan.sysfs);
    command.env("LD_PRELOAD", library::preloaded(&library));
    let status = Program::new(running::start(&mut command)?, signals).wait();
    drop(links);
    Ok(status)
}

/// Where traces go, wherever the program goes.
fn trace(asked: &Devices) -> Result<Option<PathBuf>, String> {
    let Some(path) = &asked.trace else { return Ok(None) };
    std::path::absolute(path).map(Some).map_err(|why| format!("--trace '{}': {why}", path.display()))
}

/// Makes the files of traces, empty.
fn begin_traces(plan: &Plan) -> Result<(), String> {
    for path in (0..plan.devices.len()).filter_map(|number| plan.trace_of(number)) {
        std::fs::File::create(&path)
            .map_err(|why| format!("--trace: cannot write {}: {why}", path.display()))?;
    }
    Ok(())
}

/// The plan of a daemon's devices.
fn attached(socket: &Path) -> Result<Plan, String> {
    // Programs change their folder.
    let socket =
        std::path::absolute(socket).map_err(|why| format!("--attach '{}': {why}", socket.display()))?;
    plan_of(&socket).map_err(|why| format!("cannot attach to {why}"))
}

/// What only so many ports can have: a socket or an interface one of them, a cable two.
fn check_wires(wires: &[WireSpec]) -> Result<(), String> {
    for (port, wire) in wires.iter().enumerate() {
        let (most, what) = match wire {
            WireSpec::Datagrams { local, .. } => (1, format!("the socket {}", local.display())),
            WireSpec::Interface(name) => (1, format!("the interface {name}")),
            WireSpec::Cable(_) => (2, "both ends of it".to_owned()),
            _ => continue,
        };
        let same = |other: &&WireSpec| match (wire, other) {
            (WireSpec::Datagrams { local: one, .. }, WireSpec::Datagrams { local: other, .. }) => {
                one == other
            }
            (one, other) => one == *other,
        };
        if wires[..port].iter().filter(same).count() >= most {
            return Err(format!(
                "--wire '{wire}' of port {port}: ports before it have {what}: name another one"
            ));
        }
    }
    Ok(())
}

/// What the program shall find, and the ends of links that it holds meanwhile.
fn plan(asked: &Devices) -> Result<(Plan, Vec<Link>), String> {
    let each = if asked.dual_port { 2 } else { 1 };
    let ports = usize::from(asked.ports) * each;
    let given = [("--wire", asked.wire.len()), ("--link", asked.link.len()), ("--ip", asked.ip.len())];
    if let Some((option, count)) = given.into_iter().find(|(_, count)| ![0, ports].contains(count)) {
        return Err(format!("{count} of {option} for {ports} ports: give one for each, or none"));
    }
    check_wires(&asked.wire)?;
    let mut links = Vec::new();
    let mut places = Vec::new();
    for port in 0..ports {
        let usual = if port == 0 { "default".to_owned() } else { format!("default{port}") };
        let (wire, end) = match asked.wire.get(port) {
            // Other programs may have the same wire.
            Some(wire) => (wire.to_string(), format!("{wire} {port} {}", std::process::id())),
            None => {
                let link = Link::take(asked.link.get(port).unwrap_or(&usual))?;
                let wire = link.wire();
                links.push(link);
                (wire.clone(), wire)
            }
        };
        places.push(PortPlan { end, wire, ip: asked.ip.get(port).map(ToString::to_string) });
    }
    let mut devices = Vec::new();
    let mut places = places.into_iter();
    while let Some(PortPlan { end, wire, ip }) = places.next() {
        devices.push(DevicePlan {
            card: asked.device.to_string(),
            end,
            wire,
            with: asked.with.iter().map(ToString::to_string).collect(),
            faults: asked.fault_plan.clone().unwrap_or_default(),
            loss: asked.loss,
            reorder: asked.reorder,
            duplicate: asked.duplicate,
            // A second at most.
            delay_us: asked.delay.as_micros() as u64,
            seed: asked.seed,
            ip,
            second: if asked.dual_port { places.next() } else { None },
        });
    }
    let (sysfs, stepped, summary) = (PathBuf::from("/sys"), asked.stepped, asked.summary);
    let plan = Plan { sysfs, devices, stepped, summary, daemon: None, trace: trace(asked)? };
    begin_traces(&plan)?;
    Ok((plan, links))
}
