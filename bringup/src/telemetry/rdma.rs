//! `/rdma/*`: queues, memory and counters of RDMA devices. DPDK has nothing of the kind; keys are those of iproute2's `rdma resource`
//! (`rdma/res-qp.c`, `res-cq.c`, `res-mr.c`) where it has them. Keys of memory are told to nobody.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pollux_eal::EalError;
use pollux_eal::telemetry::{Telemetry, Value, json};
use pollux_mlx5_model::Model;
use pollux_verbs::{Armed, ContextView, CqView, Level, MrKind, MrView, ObjectKind, QpView, RqView, WcStatus};

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

/// A kind of object: what commands call it, what help does, the key of its number, and how one is told.
struct Kind {
    name: &'static str,
    what: &'static str,
    number: &'static str,
    kind: ObjectKind,
    one: fn(&ContextView, u64) -> Option<Value>,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "qp",
        what: "queue pair",
        number: "qpn",
        kind: ObjectKind::QueuePair,
        one: |view, number| view.queue_pair(number).map(|qp| queue_pair(&qp)),
    },
    Kind {
        name: "cq",
        what: "completion queue",
        number: "cqn",
        kind: ObjectKind::CompletionQueue,
        one: |view, number| view.completion_queue(number).map(|cq| completion_queue(&cq)),
    },
    Kind {
        name: "srq",
        what: "shared receive queue",
        number: "srqn",
        kind: ObjectKind::SharedReceiveQueue,
        one: |view, number| view.shared_receive_queue(number).map(|queue| receive_queue("srqn", &queue)),
    },
    Kind {
        name: "wq",
        what: "receive work queue",
        number: "wqn",
        kind: ObjectKind::WorkQueue,
        one: |view, number| view.work_queue(number).map(|queue| receive_queue("wqn", &queue)),
    },
    Kind {
        name: "mr",
        what: "memory region",
        number: "mrn",
        kind: ObjectKind::Memory,
        one: |view, number| view.region(number).map(|region| memory(&region)),
    },
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
    for Kind { name, what, number, kind, one } in KINDS {
        let all = devices.clone();
        let help = format!("Returns the numbers of an RDMA device's {what}s. Parameters: string device");
        telemetry.register(&format!("/rdma/{name}_list"), &help, move |device| {
            let Some(source) = all.find(device) else { return Value::Null };
            source.view.numbers(kind).into_iter().map(Value::from).collect()
        })?;
        let all = devices.clone();
        let help = format!("Returns a {what} of an RDMA device. Parameters: string device, int {number}");
        telemetry.register(&format!("/rdma/{name}"), &help, move |parameters| {
            let asked = object(&all, parameters);
            asked.and_then(|(source, number)| one(&source.view, number)).unwrap_or(Value::Null)
        })?;
    }
    Ok(())
}

/// A device and the number of an object, which may be hexadecimal, as perftest and the pingpongs print it.
fn object(devices: &RdmaDevices, parameters: &str) -> Option<(Source, u64)> {
    let (name, number) = parameters.split_once(',')?;
    let number = match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => number.parse().ok()?,
    };
    Some((devices.find(name)?, number))
}

fn info(source: &Source) -> Value {
    let view = &source.view;
    let mut info = json!({ "name": source.name });
    for Kind { name, kind, .. } in KINDS {
        info[name] = view.count(kind).into();
    }
    info["mr_bytes"] = view.memory().iter().map(|region| region.bytes).sum::<u64>().into();
    info
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

/// Of a device of the kernel's: the folders of sysfs. Of a model: the same counters, as its firmware has them.
fn device_counters(source: &Source, port: u32) -> Vec<(&'static str, Value)> {
    let model = source.model.as_ref().and_then(Weak::upgrade);
    if let (Some(model), Ok(port)) = (model, u8::try_from(port)) {
        let Ok(counters) = model.kernel().hw_counters(port) else { return Vec::new() };
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

fn queue_pair(qp: &QpView) -> Value {
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
    value
}

fn completion_queue(cq: &CqView) -> Value {
    let armed = match cq.armed {
        Armed::No => "no",
        Armed::Next => "next",
        Armed::Solicited => "solicited",
    };
    json!({
        "cqn": cq.number,
        "cqe": cq.level.places,
        "used": cq.level.used,
        "comp_vector": cq.vector,
        "comp_channel": cq.has_channel,
        "armed": armed,
    })
}

fn receive_queue(key: &str, queue: &RqView) -> Value {
    json!({
        key: queue.number,
        "depth": queue.depth,
        "max_sge": queue.pieces,
        "used": queue.level.used,
        "posted": queue.level.posted,
        "completed": queue.level.completed,
        "errors": errors(&queue.errors),
    })
}

fn memory(region: &MrView) -> Value {
    let kind = match region.kind {
        MrKind::Region => "region",
        MrKind::Buffers => "buffers",
        MrKind::Packets => "mempool",
    };
    let access: Value =
        region.access.iter_names().map(|(name, _)| Value::from(name.to_lowercase())).collect();
    json!({ "mrn": region.number, "mrlen": region.bytes, "type": kind, "access": access })
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
