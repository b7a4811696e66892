//! `/rdma/*`: queues, memory and counters of RDMA devices. DPDK has nothing of the kind; keys are those of iproute2's `rdma resource`
//! (`rdma/res-qp.c`, `res-cq.c`, `res-mr.c`) where it has them. Keys of memory are told to nobody.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pollux_eal::EalError;
use pollux_eal::telemetry::{Telemetry, Value, json};
use pollux_mlx5_model::Model;
use pollux_verbs::{Armed, ContextView, CqView, Level, MrKind, MrView, QpView, RqView, WcStatus};

use crate::RdmaDevice;

/// An open device.
#[derive(Clone, Debug)]
struct Source {
    name: String,
    view: ContextView,
    model: Option<Weak<Model>>,
    sysfs: Option<PathBuf>,
}

/// The open RDMA devices of a program. It keeps none of them open.
#[derive(Clone, Debug, Default)]
pub(crate) struct RdmaDevices(Arc<Mutex<Vec<Source>>>);

impl RdmaDevices {
    /// Adds a device that was just opened.
    pub(crate) fn put(&self, device: &RdmaDevice) {
        let source = Source {
            name: device.name.clone(),
            view: device.context.view(),
            model: device.model.as_ref().map(Arc::downgrade),
            sysfs: device.sysfs.clone(),
        };
        self.open().push(source);
    }

    /// Those that are still open.
    fn open(&self) -> MutexGuard<'_, Vec<Source>> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|source| source.view.is_open());
        sources
    }

    fn find(&self, name: &str) -> Option<Source> {
        self.open().iter().find(|source| source.name == name).cloned()
    }
}

/// A list of a device's objects, by their numbers, or one of them.
type Objects = fn(&ContextView) -> Vec<(u64, Value)>;

/// Kinds of objects: the command's name, what its help calls them, and how they are told.
const OBJECTS: [(&str, &str, &str, Objects); 5] = [
    ("qp", "queue pair", "qpn", |view| view.queue_pairs().iter().map(queue_pair).collect()),
    ("cq", "completion queue", "cqn", |view| view.completion_queues().iter().map(completion_queue).collect()),
    ("srq", "shared receive queue", "srqn", |view| {
        view.shared_receive_queues().iter().map(|queue| receive_queue("srqn", queue)).collect()
    }),
    ("wq", "receive work queue", "wqn", |view| {
        view.work_queues().iter().map(|queue| receive_queue("wqn", queue)).collect()
    }),
    ("mr", "memory region", "mrn", |view| view.memory().iter().map(memory).collect()),
];

pub(crate) fn register(telemetry: &Telemetry, devices: &RdmaDevices) -> Result<(), EalError> {
    let all = devices.clone();
    telemetry.register("/rdma/list", "Returns the open RDMA devices. Takes no parameters", move |_| {
        all.open().iter().map(|source| Value::from(source.name.as_str())).collect()
    })?;
    let all = devices.clone();
    let help = "Returns how many objects an RDMA device has. Parameters: string device";
    telemetry.register("/rdma/info", help, move |name| all.find(name).map_or(Value::Null, |it| info(&it)))?;
    let all = devices.clone();
    let help = "Returns the counters of an RDMA device. Parameters: string device, int port (optional, 1)";
    telemetry.register("/rdma/stats", help, move |parameters| {
        let (name, port) = parameters.split_once(',').unwrap_or((parameters, "1"));
        let port = port.parse().ok().filter(|port| *port > 0);
        all.find(name).zip(port).map_or(Value::Null, |(source, port)| stats(&source, port))
    })?;
    for (kind, what, number, objects) in OBJECTS {
        let all = devices.clone();
        let help = format!("Returns the numbers of an RDMA device's {what}s. Parameters: string device");
        telemetry.register(&format!("/rdma/{kind}_list"), &help, move |name| {
            let Some(source) = all.find(name) else { return Value::Null };
            objects(&source.view).into_iter().map(|(number, _)| Value::from(number)).collect()
        })?;
        let all = devices.clone();
        let help = format!("Returns a {what} of an RDMA device. Parameters: string device, int {number}");
        telemetry.register(&format!("/rdma/{kind}"), &help, move |parameters| {
            one(&all, parameters, objects).unwrap_or(Value::Null)
        })?;
    }
    Ok(())
}

/// The object of a device and a number, which may be hexadecimal, as perftest and the pingpongs print it.
fn one(devices: &RdmaDevices, parameters: &str, objects: Objects) -> Option<Value> {
    let (name, number) = parameters.split_once(',')?;
    let number = match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => number.parse().ok()?,
    };
    let source = devices.find(name)?;
    objects(&source.view).into_iter().find_map(|(known, value)| (known == number).then_some(value))
}

fn info(source: &Source) -> Value {
    let view = &source.view;
    let memory = view.memory();
    json!({
        "name": source.name,
        "qp": view.queue_pairs().len(),
        "cq": view.completion_queues().len(),
        "srq": view.shared_receive_queues().len(),
        "wq": view.work_queues().len(),
        "mr": memory.len(),
        "mr_bytes": memory.iter().map(|region| region.bytes).sum::<u64>(),
    })
}

/// What queues did, and what the device counts by itself.
fn stats(source: &Source, port: u32) -> Value {
    let done = source.view.operations();
    let mut stats = json!({
        "sends_posted": done.sent,
        "receives_completed": done.received,
        "errors": errors(&done.errors),
    });
    for (group, counters) in device_counters(source, port) {
        stats[group] = counters;
    }
    stats
}

/// Of a device of the kernel's: the folders of sysfs. Of a model: the same counters of its first port, as its firmware has them.
fn device_counters(source: &Source, port: u32) -> Vec<(&'static str, Value)> {
    let model = source.model.as_ref().filter(|_| port == 1).and_then(Weak::upgrade);
    if let Some(model) = model {
        let counters = model.kernel().hw_counters().unwrap_or_default();
        let counters = counters.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value)));
        return vec![("hw_counters", counters.collect())];
    }
    let Some(sysfs) = &source.sysfs else { return Vec::new() };
    let folder = sysfs.join(format!("ports/{port}"));
    ["counters", "hw_counters"].map(|group| (group, read_counters(&folder.join(group)))).into()
}

/// Files with a number each, by their names. Others, such as the one that sets how long numbers are kept, are left out.
fn read_counters(folder: &Path) -> Value {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let counters = files.filter_map(|file| {
        let name = file.file_name().into_string().ok().filter(|name| name != "lifespan")?;
        let value: u64 = std::fs::read_to_string(file.path()).ok()?.trim().parse().ok()?;
        Some((name, Value::from(value)))
    });
    counters.collect()
}

fn errors(errors: &[(WcStatus, u64)]) -> Value {
    errors.iter().map(|(status, count)| (status.to_string(), Value::from(*count))).collect()
}

fn queue_pair(qp: &QpView) -> (u64, Value) {
    let mut value = json!({
        "lqpn": qp.qpn,
        "type": qp.kind.to_string(),
        "state": qp.state.to_string(),
        "errors": errors(&qp.errors),
    });
    if let Some(peer) = qp.peer {
        value["rqpn"] = peer.into();
    }
    if let Some(Level { places, used, posted, .. }) = qp.send {
        value["sq_depth"] = qp.sizes.sends.into();
        value["sq_places"] = places.into();
        value["sq_used"] = used.into();
        value["sq_posted"] = posted.into();
    }
    if let Some(Level { used, posted, completed, .. }) = qp.receive {
        value["rq_depth"] = qp.sizes.receives.into();
        value["rq_used"] = used.into();
        value["rq_posted"] = posted.into();
        value["rq_completed"] = completed.into();
    }
    (qp.qpn.into(), value)
}

fn completion_queue(cq: &CqView) -> (u64, Value) {
    let armed = match cq.armed {
        Armed::No => "no",
        Armed::Next => "next",
        Armed::Solicited => "solicited",
    };
    let value = json!({
        "cqn": cq.number,
        "cqe": cq.level.places,
        "used": cq.level.used,
        "comp_vector": cq.vector,
        "comp_channel": cq.has_channel,
        "armed": armed,
    });
    (cq.number.into(), value)
}

fn receive_queue(key: &str, queue: &RqView) -> (u64, Value) {
    let value = json!({
        key: queue.number,
        "depth": queue.depth,
        "max_sge": queue.pieces,
        "used": queue.level.used,
        "posted": queue.level.posted,
        "completed": queue.level.completed,
        "errors": errors(&queue.errors),
    });
    (queue.number.into(), value)
}

fn memory(region: &MrView) -> (u64, Value) {
    let kind = match region.kind {
        MrKind::Region => "region",
        MrKind::Buffers => "buffers",
        MrKind::Packets => "mempool",
    };
    let access: Value =
        region.access.iter_names().map(|(name, _)| Value::from(name.to_lowercase())).collect();
    let value = json!({ "mrn": region.number, "mrlen": region.bytes, "type": kind, "access": access });
    (region.number, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_kernel_are_its_files_with_a_number() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [("out_of_sequence", "7\n"), ("lifespan", "10\n"), ("odd", "n/a\n")] {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        assert_eq!(read_counters(folder.path()), json!({ "out_of_sequence": 7 }));
        assert_eq!(read_counters(&folder.path().join("absent")), json!({}));
    }
}
