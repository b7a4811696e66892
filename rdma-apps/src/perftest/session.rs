//! A test from the first word to the last: the two ends in step. What they run between meeting and parting is `measure`.
//!
//! Source of the steps and of their order, by which an original can be the other end: linux-rdma/perftest
//! `src/{send,write,read,atomic}_{bw,lat}.c`.

mod measure;

use std::io::ErrorKind;

use pollux_bringup::{BringupError, RdmaDevice, program};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_kit::Console;
use pollux_verbs::Mtu;

use super::bandwidth::Progress;
use super::by_address::{ByAddress, QueuePairs};
use super::counters::Counters;
use super::end::{self, End, Place, Places};
use super::format::{self, Facts};
use super::options::{Connection, Options, Output};
use super::report::Report;
use super::settings::{Kind, Settings, Test, Verb};
use crate::cm::manager::gid_of;
use crate::exchange::perftest::{Keys, Met, Results, VERSION};
use crate::exchange::{Line, Side};
use crate::rdma::{Appointment, Failure, device};

/// The other port of `-O`.
const SECOND_PORT: u8 = 2;

/// Small messages go round in this many bytes, as perftest's do in a page.
const CYCLE: u32 = 4096;

/// Runs one of the tests.
///
/// # Errors
/// One line.
pub fn run(test: Test, line: &CommandLine, options: Options) -> Result<(), BringupError> {
    if options.version {
        program::tell(format_args!("Version: {VERSION}"));
        return Ok(());
    }
    let mut line = line.clone();
    place(&mut line, &options)?;
    let settings = Settings::new(test, options).map_err(BringupError::Usage)?;
    let wanted = settings.options.ib_dev.clone();
    let console = Console { json: settings.options.json };
    let appointment = appointment(&settings);
    appointment.check().or_else(Failure::end)?;
    check_file(&settings.options)?;
    if settings.by_address() {
        return crate::cm::manager::run_on(&line, wanted.as_deref(), move |lcore, device, manager| {
            let meeting = ByAddress::new(manager.clone(), &settings)?;
            Session::met(lcore, device, &settings, Meeting::ByAddress(&meeting), console)?.run()
        });
    }
    crate::rdma::program::run(&line, wanted.as_deref(), move |lcore, device| {
        device::check_wire(device)?;
        Session::met(lcore, device, &settings, Meeting::ByTcp(&appointment), console)?.run()
    })
}

/// Where the ends of a test meet.
#[derive(Clone, Copy)]
enum Meeting<'a> {
    ByTcp(&'a Appointment),
    ByAddress(&'a ByAddress),
}

impl Meeting<'_> {
    fn meet<T>(self, attempt: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        match self {
            Self::ByTcp(appointment) => appointment.meet(attempt),
            Self::ByAddress(meeting) => meeting.meet(attempt),
        }
    }

    fn line(
        self,
        lcore: &LcoreContext,
        device: &RdmaDevice,
        settings: &Settings,
    ) -> Result<(Line, Option<QueuePairs>), Failure> {
        match self {
            Self::ByTcp(appointment) => Ok((appointment.line(lcore)?, None)),
            Self::ByAddress(meeting) => {
                let (line, queue_pairs) = meeting.line(lcore, device, settings)?;
                Ok((line, Some(queue_pairs)))
            }
        }
    }
}

/// Where the ends of a test meet over TCP.
#[must_use]
pub fn appointment(settings: &Settings) -> Appointment {
    let options = &settings.options;
    Appointment::new(options.host.as_deref(), options.port, settings.patience())
}

/// A test may take long: that its report cannot be saved is told before it. A file that is there stays as it is until then, and
/// none is left behind by a test that fails.
///
/// # Errors
/// It cannot be written.
pub fn check_file(options: &Options) -> Result<(), BringupError> {
    let Some(name) = options.report_file() else { return Ok(()) };
    let opened = match std::fs::File::options().append(true).open(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            std::fs::File::create_new(name).and_then(|_| std::fs::remove_file(name))
        }
        other => other.map(drop),
    };
    opened.map_err(|error| {
        BringupError::Usage(format!("--out_json_file {name}: cannot write the file: {error}"))
    })
}

/// What both ends' options ask of the device and its port, as far as it is known before the other end is.
fn check(device: &RdmaDevice, settings: &Settings) -> Result<(), Failure> {
    let options = &settings.options;
    let (port, attributes) = device::port(device, options.ib_port)?;
    if options.dualport && device.context.device()?.base.phys_port_cnt < SECOND_PORT {
        return Err(Failure::Usage(format!("-O requires a device with two ports; {} has one", device.name)));
    }
    if let Some(mtu) = settings.mtu {
        device::check_mtu(device, port, &attributes, mtu)?;
        if options.dualport {
            device::check_mtu(device, SECOND_PORT, &device.context.port(SECOND_PORT)?, mtu)?;
        }
    }
    let most = u64::from(settings.mtu.unwrap_or(Mtu::active(&attributes)).bytes());
    if settings.connection == Connection::Ud && settings.size_chosen && settings.size > most {
        return Err(too_long(settings.size, most));
    }
    end::check(device, settings)
}

fn too_long(size: u64, mtu: u64) -> Failure {
    Failure::Usage(format!("-s {size}: a UD message is at most one MTU ({mtu}): give at most {mtu}"))
}

/// Waits for one client of a test whose server does nothing, and serves it; tells what the client found. Nothing is printed.
///
/// # Errors
/// [`Failure`].
pub fn serve(
    lcore: &LcoreContext,
    device: &RdmaDevice,
    mut settings: Settings,
    appointment: &Appointment,
) -> Result<Results, Failure> {
    settings.options.output = Some(Output::Latency);
    let meeting = Meeting::ByTcp(appointment);
    let mut session = Session::met(lcore, device, &settings, meeting, Console { json: true })?;
    session.measure()?;
    session.step(true)?;
    Ok(session.report.last)
}

/// `--pin_cores` and `--numa_node` say in the app's half what `-l` says in the other one.
fn place(line: &mut CommandLine, options: &Options) -> Result<(), BringupError> {
    let (option, cpus) = match (&options.pin_cores, options.numa_node) {
        (Some(cpus), _) => (format!("--pin_cores {cpus}"), cpus.replace(' ', "")),
        (None, Some(node)) => {
            let path = format!("/sys/devices/system/node/node{node}/cpulist");
            let cpus = std::fs::read_to_string(path).map_err(|_| {
                BringupError::Usage(format!("--numa_node {node}: no such NUMA node; `lscpu` lists them"))
            })?;
            (format!("--numa_node {node}"), cpus.trim().to_owned())
        }
        (None, None) => return Ok(()),
    };
    if line.eal.lcores.is_some() {
        return Err(BringupError::Usage(format!(
            "{option} and -l both choose the CPUs: give only one of them"
        )));
    }
    line.eal.lcores =
        Some(cpus.parse().map_err(|problem| BringupError::Usage(format!("{option}: {problem}")))?);
    Ok(())
}

struct Session<'a> {
    lcore: &'a LcoreContext,
    device: &'a RdmaDevice,
    console: Console,
    line: Line,
    /// With `-R` or `-z`.
    queue_pairs: Option<QueuePairs>,
    end: End,
    /// This end sends.
    sends: bool,
    /// This end receives messages.
    receives: bool,
    mtu: Mtu,
    places: Places,
    /// Where the period before left off, of a run without an end.
    progress: Progress,
    report: Report,
}

impl<'a> Session<'a> {
    /// The ends find each other and are connected; a server goes on until an end is there that comes so far.
    fn met(
        lcore: &'a LcoreContext,
        device: &'a RdmaDevice,
        settings: &Settings,
        meeting: Meeting<'_>,
        console: Console,
    ) -> Result<Self, Failure> {
        let options = &settings.options;
        let mut waiting = options.host.is_none() && options.output.is_none();
        check(device, settings)?;
        meeting.meet(|| {
            let waiting = std::mem::take(&mut waiting);
            let mut session = Self::meet(lcore, device, settings.clone(), (meeting, waiting), console)?;
            session.connect()?;
            Ok(session)
        })
    }

    fn run(&mut self) -> Result<(), Failure> {
        let begin = std::time::Instant::now();
        self.measure()?;
        let seconds = begin.elapsed().as_secs_f64();
        self.finish(seconds)
    }

    /// The ends find each other and make what the test needs.
    fn meet(
        lcore: &'a LcoreContext,
        device: &'a RdmaDevice,
        mut settings: Settings,
        (meeting, waiting): (Meeting<'_>, bool),
        console: Console,
    ) -> Result<Self, Failure> {
        let options = settings.options.clone();
        let stop = || lcore.stop_requested();
        let (port, attributes) = device::port(device, options.ib_port)?;
        let counters = Counters::open(device, port, &options.counters)?;
        let at = |port| {
            let (gid_index, gid) = match options.gid_index {
                // A group's address is IPv6's, and so is the sender's: that of the link, as the original has it.
                None if options.mcg => device::gid(device, port, Some(0), "-x")?,
                Some(_) => device::gid(device, port, options.gid_index, "-x")?,
                None => device::best_gid(device, port, options.ipv6)?,
            };
            Ok::<_, Failure>(Place { port, gid_index, gid })
        };
        let first = at(port)?;
        let mut places = [first, if options.dualport { at(SECOND_PORT)? } else { first }];
        if !settings.all {
            device::check_size(device, &attributes, settings.size)?;
        }
        if waiting {
            let stars = "*".repeat(36);
            console.print(&format!("\n{stars}\n* Waiting for client to connect... *\n{stars}\n"));
        }
        let (mut line, queue_pairs) = meeting.line(lcore, device, &settings)?;
        if let Some(pairs) = queue_pairs.as_ref().filter(|_| options.rdma_cm) {
            let (gid_index, gid) = gid_of(&device.context, port, pairs.local())?;
            places = [Place { gid_index, gid, ..first }; 2];
        }
        let met = if options.dont_xchg_versions {
            Met { version: String::new(), cycle_buffer: CYCLE, cache_line: 64 }
        } else {
            line.meet(&options.peer_version, &settings.shared(), CYCLE, &stop)?
        };
        if line.packs_keys() && met.packs_otherwise() {
            return Err(Failure::Peer(format!(
                "{}: perftest {} exchanges its keys in another layout with -R and -z: run 6.27 or older there, or leave both out at both ends",
                line.peer(),
                met.version
            )));
        }
        let active = |place: &Place| {
            let wired = device::wait_active(device, place.port, Some(device::PATIENCE), &stop);
            Ok::<_, Failure>(Mtu::active(&wired.map_err(|failure| failure.of_peer(line.peer()))?))
        };
        let active = active(&places[0])?.min(active(&places[1])?);
        let own = settings.mtu.unwrap_or(active);
        if own > active {
            // It was more before: see `check`.
            for Place { port, .. } in &places {
                device::check_mtu(device, *port, &device.context.port(*port)?, own)?;
            }
        }
        let mtu = if options.dont_xchg_versions { own } else { line.agree_mtu(own, &stop)? };
        let longest = u64::from(mtu.bytes());
        if settings.connection == Connection::Ud && settings.size > longest {
            if settings.size_chosen {
                return Err(too_long(settings.size, longest));
            }
            if options.output.is_none() {
                program::say(format_args!(" Max msg size in UD is MTU {longest}\n Changing to this MTU"));
            }
            settings.size = longest;
        }
        // A server of a one-way test receives; --reversed turns the test round, not the meeting.
        let client = (line.side() == Side::Client) != options.reversed;
        let latency = settings.test.kind == Kind::Latency;
        let sends = client
            || settings.bidirectional
            || latency && matches!(settings.test.verb, Verb::Send | Verb::Write);
        let receives = settings.takes_receives() && (!client || settings.bidirectional || latency);
        let mut end = End::new(device, settings, places, &met, sends)?;
        if let Some(group) = end.settings.group(client).filter(|_| receives) {
            end.join(group)?;
        }
        if end.settings.options.data_validation && !sends {
            end.resize(end.settings.size);
            end.fill_for_reads();
        }
        let report = Report::new(console, counters);
        let progress = Progress::default();
        Ok(Self {
            lcore,
            device,
            console,
            line,
            queue_pairs,
            end,
            sends,
            receives,
            mtu,
            places,
            progress,
            report,
        })
    }

    fn settings(&self) -> &Settings {
        &self.end.settings
    }

    fn full(&self) -> bool {
        self.settings().options.output.is_none()
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            device: &self.device.name,
            sends: self.sends,
            receives: self.receives,
            mtu: self.mtu.bytes(),
            gid_indices: self.places.map(|place| place.gid_index.into()),
            outs: self.end.outs,
            forwarded: None,
        }
    }

    /// A point where both ends have arrived. `soon` is whether the other end must come soon.
    fn step(&mut self, soon: bool) -> Result<(), Failure> {
        self.trade(0, soon).map(drop)
    }

    fn trade(&mut self, number: usize, soon: bool) -> Result<Keys, Failure> {
        let own = self.end.own[number];
        let lcore = self.lcore;
        Ok(self.line.trade_keys(&own, soon, &|| lcore.stop_requested())?)
    }

    /// Keys are told, queue pairs connected, both printed.
    fn connect(&mut self) -> Result<(), Failure> {
        let verb = self.settings().test.verb;
        // As the original, which shows no memory of WRITEs with immediate data.
        let shown = if self.settings().imm { Verb::Send } else { verb };
        let (full, connection) = (self.full(), self.settings().connection);
        let managed = self.settings().options.rdma_cm;
        if managed {
            self.step(true)?;
            if let Some(pairs) = &mut self.queue_pairs {
                pairs.connect(self.lcore, &mut self.end)?;
            }
            self.step(true)?;
        }
        if full {
            self.console.print(&format::test_info(self.settings(), &self.facts()));
        }
        if self.end.is_latency() && verb != Verb::Send {
            self.step(true)?;
        }
        let count = self.end.own.len();
        self.end.other = (0..count).map(|number| self.trade(number, true)).collect::<Result<_, _>>()?;
        let group = self.settings().options.mcg;
        if !group && !managed {
            let gid = |keys: &Keys| keys.gid.unwrap_or_default();
            // With two ports the last queue pair is at the second one.
            for (own, other) in
                [(self.end.own.first(), self.end.other.first()), (self.end.own.last(), self.end.other.last())]
            {
                let (Some(own), Some(other)) = (own, other) else { continue };
                device::check_kinds(gid(own), gid(other), self.line.peer(), "-x")?;
            }
        }
        if group && self.sends && self.receives && self.end.own[0].gid == self.end.other[0].gid {
            // Each would take its own messages for the other one's.
            return Err(Failure::Peer(
                "both ends use the same multicast group: give each a different -M, or leave it out at both"
                    .into(),
            ));
        }
        if !managed {
            let connected = self.end.connect(self.mtu);
            connected.map_err(|failure| failure.of_peer(self.line.peer()))?;
        }
        if verb == Verb::Send {
            self.step(true)?;
        }
        if full {
            let text: String =
                self.end.own.iter().map(|keys| format::address("local", shown, connection, keys)).collect();
            self.console.print(&text);
        }
        for number in 0..count {
            let other = self.trade(number, true)?;
            if full {
                self.console.print(&format::address("remote", shown, connection, &other));
            }
        }
        if verb != Verb::Send {
            self.step(true)?;
        }
        if full {
            let (rule, columns) = (format::rule(self.settings()), format::columns(self.settings()));
            self.console.print(&format!("{rule}{columns}"));
        }
        Ok(())
    }

    /// The last words.
    fn finish(&mut self, seconds: f64) -> Result<(), Failure> {
        if self.full() {
            self.console.print(format::rule(self.settings()));
        }
        if self.end.is_latency() && self.settings().test.verb == Verb::Write {
            // The original takes no leave here: it hangs up.
            let lcore = self.lcore;
            self.line.part(&|| lcore.stop_requested());
        } else {
            // The end of a READ test whose other end does it all waits here.
            let waits = self.end.is_latency() && !self.sends;
            self.step(!waits)?;
        }
        if let Some(pairs) = &mut self.queue_pairs {
            pairs.part(&mut self.end)?;
        }
        self.report.end(&self.end.settings, &self.facts(), self.device, seconds)
    }
}
