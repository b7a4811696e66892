//! `/uverbs/trace`: calls to devices, written down while somebody watches: `explain --pid`.
//!
//! The program itself makes the file, in the directory of its telemetry, and for its user alone; a client chooses nothing but the device. It
//! ends at a limit, so that a client that went away leaves no disk full.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pollux_eal::telemetry::{Value, json};
use pollux_eal::{Eal, EalError, prefix_socket};
use pollux_mlx5_model::{FastPath, Model};
use pollux_uverbs::trace::Switch;

/// Bytes that a trace may have, of each of its contexts and of the fast path.
const BYTES_MAX: usize = 64 << 20;

/// The calls of one context, which can be watched.
#[derive(Clone, Debug)]
pub(crate) struct LiveTrace {
    pub(crate) switch: Switch,
    /// What passes without a call can be watched of a model.
    pub(crate) model: Option<Weak<Model>>,
}

/// The contexts of a program by the name of their device. It keeps none of them open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Arc<Mutex<Vec<(String, LiveTrace)>>>);

impl Traces {
    /// Adds a context that was just opened.
    pub(crate) fn put(&self, device: &str, trace: Option<LiveTrace>) {
        self.locked().extend(trace.map(|trace| (device.to_owned(), trace)));
    }

    /// Forgets the contexts of a device.
    pub(crate) fn remove(&self, device: &str) {
        self.locked().retain(|(name, _)| name != device);
    }

    /// Those whose contexts are still open.
    fn locked(&self) -> MutexGuard<'_, Vec<(String, LiveTrace)>> {
        let mut traces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        traces.retain(|(_, trace)| trace.switch.is_shared());
        traces
    }

    /// Which devices there are, and whether they are being watched.
    fn list(&self) -> Value {
        self.locked().iter().map(|(name, trace)| (name.clone(), json!(trace.switch.is_on()))).collect()
    }

    /// Has all contexts of a device write to a new file; with `fast` a model also what passes without a call.
    fn on(&self, device: &str, path: &Path, fast: bool) -> io::Result<()> {
        let file = new_file(path)?;
        let open = || file.try_clone().map(|file| Box::new(file) as Box<dyn io::Write + Send>);
        for (_, trace) in self.locked().iter().filter(|(name, _)| name == device) {
            trace.switch.on(open()?, BYTES_MAX);
            if let Some(model) = trace.model.as_ref().and_then(Weak::upgrade).filter(|_| fast) {
                let bounded = Switch::default();
                bounded.on(open()?, BYTES_MAX);
                model.device().write_fast_path(Some(FastPath::new(Box::new(bounded))));
            }
        }
        Ok(())
    }

    fn off(&self, device: &str, path: &Path) {
        for (_, trace) in self.locked().iter().filter(|(name, _)| name == device) {
            trace.switch.off();
            if let Some(model) = trace.model.as_ref().and_then(Weak::upgrade) {
                model.device().write_fast_path(None);
            }
        }
        // Whoever reads it has it open.
        let _gone = std::fs::remove_file(path);
    }

    fn has(&self, device: &str) -> bool {
        self.locked().iter().any(|(name, _)| name == device)
    }
}

/// A file of this process, in place of one that an earlier watcher left. Lines of several writers stay whole.
fn new_file(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

fn file_of(directory: &Path, device: &str) -> PathBuf {
    // A device's name is the command line's.
    let plain: String = device.chars().map(|c| if c == '/' { '_' } else { c }).collect();
    directory.join(format!("uverbs_trace.{}.{plain}", std::process::id()))
}

pub(crate) fn register(eal: &Eal, traces: &Traces) -> Result<(), EalError> {
    let traces = traces.clone();
    let directory = prefix_socket::directory(&eal.spec().process.file_prefix);
    let help = "Writes the calls to a device into a file, or no more, and returns its path. Parameters: string device, on, off or \
                fast (a model's doorbells and entries too); none for the devices and whether they are traced";
    eal.telemetry().register("/uverbs/trace", help, move |parameters| {
        let Some((device, wanted)) = parameters.rsplit_once(',') else {
            return if parameters.is_empty() { traces.list() } else { Value::Null };
        };
        let path = file_of(&directory, device);
        match wanted {
            _ if !traces.has(device) => Value::Null,
            "on" | "fast" => match traces.on(device, &path, wanted == "fast") {
                Ok(()) => json!({ "path": path }),
                Err(error) => json!({ "error": format!("{}: {error}", path.display()) }),
            },
            "off" => {
                traces.off(device, &path);
                json!({ "path": null })
            }
            _ => Value::Null,
        }
    })
}
