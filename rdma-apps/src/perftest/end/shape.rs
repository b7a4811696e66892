//! What the queues of an end are to be: the settings held against the device.

use pollux_bringup::{BringupError, RdmaDevice};
use pollux_verbs::{DeviceCaps, OdpService, Pd, Qp, QpKind, QpOptions};

use super::{ROUND, area, without_huge_pages};
use crate::perftest::options::Connection;
use crate::perftest::settings::{Settings, Verb};
use crate::rdma::queue::Queue;
use crate::rdma::{Failure, device, paging};

/// Types and sizes of queues, as far as the device has them.
pub(super) struct Shape {
    pub(super) kind: QpKind,
    /// READs and atomics under way at once.
    pub(super) outs: u32,
    pub(super) options: QpOptions,
    /// Completions of all sends.
    pub(super) sends: usize,
    /// Completions of all receives.
    pub(super) receives: usize,
}

impl Shape {
    /// Holds the settings against the device. Receives that nobody chose are as many as it has.
    pub(super) fn of(device: &RdmaDevice, settings: &mut Settings, spreads: bool) -> Result<Self, Failure> {
        let verb = settings.test.verb;
        let limits = device.context.device()?.base;
        let beyond = |option: &str, wanted: u64, most: u32| {
            let name = &device.name;
            Err(Failure::Usage(format!(
                "{option} {wanted} exceeds the limit of {name} ({most}): give at most {most}"
            )))
        };
        let most = limits.max_qp_rd_atom.min(255);
        let outs = match (verb, settings.options.outs) {
            (Verb::Send | Verb::Write, _) => 1,
            (_, None) => most,
            (_, Some(outs)) if outs <= u64::from(most) => outs as u32,
            (_, Some(outs)) => return beyond("-o", outs, most),
        };
        let kind = match settings.connection {
            Connection::Rc => QpKind::Rc,
            Connection::Uc => QpKind::Uc,
            Connection::Ud => QpKind::Ud,
            // Of those that send; the others have no sizes.
            Connection::Xrc => QpKind::XrcSend,
            Connection::RawEth => QpKind::Raw,
        };
        let caps = DeviceCaps::from_bits_retain(limits.device_cap_flags.into());
        if kind == QpKind::XrcSend && !caps.contains(DeviceCaps::XRC) {
            let name = &device.name;
            return Err(Failure::Usage(format!("-c XRC is not supported by {name}: use -c RC")));
        }
        if settings.options.rx_depth.is_none() {
            settings.rx_depth = settings.rx_depth.min(limits.max_qp_wr as usize);
        }
        let shared = settings.options.use_srq;
        if shared && settings.rx_depth as u64 > u64::from(limits.max_srq_wr) {
            return beyond("-r", settings.rx_depth as u64, limits.max_srq_wr);
        }
        let own_receives =
            if settings.takes_receives() && !shared && !spreads { settings.rx_depth as u32 } else { 0 };
        let options =
            QpOptions::new(kind).depth(settings.tx_depth as u32, own_receives).inline(settings.inline as u32);
        let sends = settings.tx_depth * settings.qps;
        let receives = if shared { settings.rx_depth } else { settings.rx_depth * settings.qps };
        device::check_depth(device, &options, sends.max(receives) as u64, ("-t", "-r"))?;
        // Those of XRC that send have as many beside them that receive.
        let most = limits.max_qp / if settings.has_halves() { 2 } else { 1 };
        if !spreads && settings.qps as u64 > u64::from(most) {
            let option = if settings.options.dualport { "-q with -O, QPs of both ports," } else { "-q" };
            return beyond(option, settings.qps as u64, most);
        }
        Ok(Self { kind, outs, options, sends, receives })
    }
}

/// Whether the device has what the settings ask for, before anybody is waited for. One queue pair is made and goes again: only the
/// device knows how much it takes inline.
///
/// # Errors
/// It has not.
pub fn check(device: &RdmaDevice, settings: &Settings) -> Result<(), Failure> {
    let shape = Shape::of(device, &mut settings.clone(), false)?;
    if settings.options.odp {
        paging::check(device, "--odp", shape.kind, paged(settings))?;
    }
    if settings.options.use_hugepages {
        // They stay this process's, and are taken again for the buffers, whose places the other end may make larger yet.
        let bytes = area(settings, None, ROUND) * settings.qps * 2;
        let zone = device.context.reserve_huge(bytes);
        drop(zone.map_err(|error| without_huge_pages(error, bytes))?);
    }
    if let Some(rate) = settings.device_rate() {
        let limits = device.context.frame_limits();
        let (name, wanted) = (&device.name, settings.options.rate_limit.unwrap_or_default());
        if !limits.limits_rates() {
            return Err(Failure::Usage(format!("--rate_limit_type PP is not supported by {name}: use SW")));
        }
        if !(limits.rate_min..=limits.rate_max).contains(&rate) {
            let megabytes = |kilobits: u32| f64::from(kilobits) / 8.0 / 1024.0;
            return Err(Failure::Usage(format!(
                "--rate_limit {wanted}: {name} limits QPs to rates from {:.4} to {:.0} MB/s",
                megabytes(limits.rate_min),
                megabytes(limits.rate_max)
            )));
        }
    }
    let pd = Pd::new(&device.context)?;
    let queue = Queue::new(&device.context, (settings.tx_depth + settings.rx_depth) as u32, false)?;
    match (Qp::new(&pd, &queue.cq, &queue.cq, &shape.options), settings.options.inline) {
        (Ok(_), _) => Ok(()),
        (Err(error), Some(inline)) if inline > 0 => {
            let options = shape.options.inline(0);
            // Without it all is well: so it is that.
            Qp::new(&pd, &queue.cq, &queue.cq, &options)?;
            Err(Failure::Usage(format!("-I {inline}: {}", BringupError::from(error).line())))
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// What is done with memory on demand. Source: linux-rdma/perftest `src/perftest_resources.c`, `check_odp_support`, which asks for sends
/// and receives alone.
fn paged(settings: &Settings) -> OdpService {
    match settings.test.verb {
        Verb::Send if settings.options.use_srq || settings.connection == Connection::Xrc => {
            OdpService::SEND | OdpService::SRQ_RECV
        }
        Verb::Send => OdpService::SEND | OdpService::RECV,
        Verb::Write => OdpService::SEND | OdpService::WRITE,
        Verb::Read => OdpService::READ,
        Verb::Atomic => OdpService::ATOMIC,
    }
}
