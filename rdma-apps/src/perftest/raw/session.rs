//! A raw Ethernet test from its queue pairs to its report.

use std::time::Duration;

use pollux_bringup::{BringupError, RdmaDevice, program};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_eal::clock::Clock;
use pollux_kit::Console;
use pollux_verbs::{FlowType, Rule, VerbsError};

use super::burst;
use super::forward::Forwarder;
use super::frame::{self, CHECK_BYTES};
use super::options::RawOptions;
use super::plan::{Plan, Role};
use super::rule;
use crate::exchange::perftest::VERSION;
use crate::perftest::bandwidth::Progress;
use crate::perftest::counters::Counters;
use crate::perftest::end::{self, End};
use crate::perftest::format::{self, Facts, RULE};
use crate::perftest::load::Load;
use crate::perftest::report::Report;
use crate::perftest::settings::{Extent, Kind};
use crate::perftest::{bandwidth, latency, session, statistic};
use crate::rdma::endless::Watch;
use crate::rdma::{Failure, device};

/// Runs one of the tests.
///
/// # Errors
/// One line.
pub fn run(kind: Kind, line: &CommandLine, options: RawOptions) -> Result<(), BringupError> {
    if options.base.version {
        program::tell(format_args!("Version: {VERSION}"));
        return Ok(());
    }
    let wanted = options.base.ib_dev.clone();
    let plan = Plan::new(kind, options).map_err(BringupError::Usage)?;
    session::check_file(&plan.settings.options)?;
    crate::rdma::program::run(line, wanted.as_deref(), move |lcore, device| test(lcore, device, &plan))
}

/// What works: the loops of the family, or the one that forwards.
enum Worker {
    Loops(Box<End>),
    Forwarder(Box<Forwarder>),
}

fn test(lcore: &LcoreContext, device: &RdmaDevice, plan: &Plan) -> Result<(), Failure> {
    let settings = &plan.settings;
    let console = Console { json: settings.options.json };
    let full = settings.options.output.is_none();
    let (port, _) = device::port(device, settings.options.ib_port)?;
    let counters = Counters::open(device, port, &settings.options.counters)?;
    if !settings.forwards {
        end::check(device, settings)?;
    }
    // Who receives waits for whoever comes; who begins should find the other end, before anything is printed.
    let client = plan.role == Role::Client;
    let wired = |patience| device::wait_active(device, port, patience, &|| lcore.stop_requested());
    if client {
        wired(Some(device::PATIENCE))?;
    }
    if full {
        plan.changes.iter().for_each(|change| program::say(format_args!("{change}")));
    }
    let mut worker = if settings.forwards {
        Worker::Forwarder(Box::new(Forwarder::new(device, settings, port)?))
    } else {
        Worker::Loops(Box::new(End::raw(device, settings.clone(), port, plan.flows, plan.spread)?))
    };
    let forwarded = match &worker {
        Worker::Forwarder(forwarder) => Some(forwarder.bytes(settings)),
        Worker::Loops(_) => None,
    };
    let facts = Facts {
        device: &device.name,
        sends: plan.sends(),
        receives: plan.receives(),
        mtu: plan.mtu as u32,
        gid_indices: [0; 2],
        outs: 0,
        forwarded,
    };
    let mut text = format::test_info(settings, &facts);
    match &mut worker {
        Worker::Forwarder(forwarder) => {
            let qp = forwarder.qp();
            text.push_str(&steer(device, plan, port, 1, |_, rule| qp.steer(rule).map(drop))?);
            forwarder.qp().ready_frames()?;
        }
        Worker::Loops(end) => {
            if plan.receives() {
                let count = end.targets();
                text.push_str(&steer(device, plan, port, count, |target, rule| end.steer(target, rule))?);
            }
            end.resize(settings.size - CHECK_BYTES);
            end.answers = settings.bidirectional && plan.role == Role::Server;
            if plan.sends() {
                let (headers, flows) = (&plan.headers, plan.flows.count);
                end.write_frames(|frame, qp, flow, number| {
                    let flow_of_all = (qp as u64 * flows + flow) as u16;
                    headers
                        .write(frame, flow_of_all, number)
                        .map_err(|error| Failure::Error(format!("cannot build a frame: {error}")))?;
                    if qp == 0 && number == 0 {
                        text.push_str(&frame::text(frame));
                    }
                    Ok(())
                })?;
            }
            if plan.receives() {
                end.fill_receives()?;
            }
            end.ready()?;
        }
    }
    text.push_str(&format!("{RULE}{}", format::columns(settings)));
    if full {
        console.print(&text);
    }
    if !client {
        wired(None)?;
    }

    let begin = std::time::Instant::now();
    let mut report = Report::new(console, counters);
    let limit = settings.options.peer_timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let mut watch = Watch::new(lcore, None, Duration::ZERO).within(limit);
    let gigabits = settings.options.report_gbits;
    let hz = Clock::get().hz() as f64;
    let mut progress = Progress::default();
    loop {
        let before = settings.options.cpu_util.then(Load::now);
        let load = |before: Option<Load>| before.map(|before| Load::now().since(before));
        match (&mut worker, settings.test.kind) {
            (Worker::Loops(end), Kind::Latency) => {
                let run = latency::run(end, client, &mut watch)?;
                report.latency(settings, settings.size, &run, load(before));
            }
            // Only the client measures.
            (Worker::Loops(end), Kind::LatencyUnderLoad) if client => {
                let run = burst::ask(end, &mut watch)?;
                report.latency(settings, settings.size, &run, load(before));
            }
            (Worker::Loops(end), Kind::LatencyUnderLoad) => burst::answer(end, &mut watch)?,
            (worker, _) => {
                let run = match worker {
                    Worker::Loops(end) => {
                        bandwidth::run(end, settings.size, plan.sends(), &mut progress, &mut watch)?
                    }
                    Worker::Forwarder(forwarder) => forwarder.run(settings, &mut watch)?,
                };
                let found = statistic::bandwidth(&run.moments, settings.size, run.messages, gigabits, hz);
                report.bandwidth(settings, &found, load(before));
                if plan.spread.is_some() {
                    if full {
                        console.print(&format!(" Frames by queue : {:?}\n", run.by_queue));
                    }
                    report.note("frames_by_queue", run.by_queue.into());
                }
            }
        }
        if !matches!(settings.extent, Extent::Forever { .. }) {
            break;
        }
    }
    if full {
        console.print(RULE);
    }
    report.end(settings, &facts, device, begin.elapsed().as_secs_f64())
}

/// Gives each target its rules; what they are, as the original prints it.
fn steer(
    device: &RdmaDevice,
    plan: &Plan,
    port: u8,
    targets: usize,
    mut give: impl FnMut(usize, &Rule<'_>) -> Result<(), VerbsError>,
) -> Result<String, Failure> {
    let mut text = String::new();
    // One rule has all that is spread.
    let flows = if plan.spread.is_some() { 1 } else { plan.flows.count };
    for number in 0..targets {
        let mut add = |option: &str, rule: &Rule<'_>| {
            give(number, rule).map_err(|error| refused(device, option, error))
        };
        for (wanted, option, kind) in [
            (plan.sniffer, "--sniffer", FlowType::SNIFFER),
            (plan.promiscuous, "--promiscuous", FlowType::ALL_DEFAULT),
        ] {
            if wanted {
                add(option, &Rule { port, priority: 0, kind, specs: &[] })?;
            }
        }
        for flow in 0..flows {
            let specs = rule::specs(plan, (number as u64 * plan.flows.count + flow) as u16);
            add("a rule", &Rule { port, priority: 0, kind: FlowType::NORMAL, specs: &specs })?;
            text.push_str(&rule::text(&specs));
        }
    }
    if let Some(group) = plan.multicast {
        // As the original names it: the group's MAC address at the end of a GID.
        let mac: Vec<String> = group.0.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!(" MGID: {}{}\n", "00:".repeat(10), mac.join(":")));
    }
    Ok(text)
}

fn refused(device: &RdmaDevice, option: &str, error: VerbsError) -> Failure {
    let name = &device.name;
    match error.errno() {
        Some(pollux_verbs::Errno::EPERM) => {
            Failure::Error(format!("{option}: {name} requires CAP_NET_RAW to steer raw frames: run as root"))
        }
        Some(pollux_verbs::Errno::EOPNOTSUPP) => {
            Failure::Error(format!("{option}: {name} does not support this steering rule; leave it out"))
        }
        _ => Failure::Error(format!("{option}: {}", BringupError::from(error).line())),
    }
}
