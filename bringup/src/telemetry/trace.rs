//! `/uverbs/trace`: calls to devices, written down while somebody watches: `explain --pid`.
//!
//! The program itself makes the file, in the directory of its telemetry, and for its user alone; a client chooses nothing but the device. It
//! ends at a limit and with its watcher, so that one that went away leaves no disk full.

mod file;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pollux_eal::telemetry::{Value, json};
use pollux_eal::{Eal, EalError, prefix_socket};
use pollux_mlx5_model::{FastPath, Model};
use pollux_uverbs::trace::Switch;

use file::{Lines, TraceFile};

/// Bytes that the trace of a device may have, of all of its contexts and of the fast path.
const BYTES_MAX: usize = 64 << 20;

/// The calls of one context, which can be watched.
#[derive(Clone, Debug)]
pub(crate) struct LiveTrace {
    pub(crate) switch: Switch,
    /// What passes without a call can be watched of a model.
    pub(crate) model: Option<Weak<Model>>,
}

impl LiveTrace {
    fn on(&self, lines: &Lines, fast: bool) {
        self.switch.on(Box::new(lines.clone()));
        self.write_fast_path(fast.then(|| FastPath::new(Box::new(lines.clone()))));
    }

    fn off(&self) {
        self.switch.off();
        self.write_fast_path(None);
    }

    fn write_fast_path(&self, to: Option<FastPath>) {
        if let Some(model) = self.model.as_ref().and_then(Weak::upgrade) {
            model.device().write_fast_path(to);
        }
    }
}

/// The contexts of a program by the name of their device. It keeps none of them open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Arc<Mutex<Contexts>>);

#[derive(Debug, Default)]
struct Contexts {
    open: Vec<(String, LiveTrace)>,
    /// The traces that are written, by device.
    files: BTreeMap<String, Watched>,
}

/// A trace that is written.
#[derive(Debug)]
struct Watched {
    file: TraceFile,
    /// Of a model also what passes without a call.
    fast: bool,
}

impl Contexts {
    fn of<'a>(&'a self, device: &'a str) -> impl Iterator<Item = &'a LiveTrace> {
        self.open.iter().filter(move |(name, _)| name == device).map(|(_, trace)| trace)
    }
}

impl Drop for Contexts {
    /// A program that ends leaves no file: nobody is told of it any more.
    fn drop(&mut self) {
        self.open.iter().for_each(|(_, trace)| trace.off());
    }
}

impl Traces {
    /// Adds a context that was just opened. Whoever watches its device watches it too.
    pub(crate) fn put(&self, device: &str, trace: Option<LiveTrace>) {
        let Some(trace) = trace else { return };
        let mut contexts = self.locked();
        if let Some(watched) = contexts.files.get(device) {
            trace.on(&watched.file.lines(), watched.fast);
        }
        contexts.open.push((device.to_owned(), trace));
    }

    /// Those whose contexts are still open, and their files.
    fn locked(&self) -> MutexGuard<'_, Contexts> {
        let mut contexts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Contexts { open, files } = &mut *contexts;
        open.retain(|(_, trace)| trace.switch.is_shared());
        files.retain(|device, _| open.iter().any(|(name, _)| name == device));
        contexts
    }

    /// Which devices there are, and whether they are being watched.
    fn list(&self) -> Value {
        let mut devices = BTreeMap::<String, bool>::new();
        for (name, trace) in &self.locked().open {
            *devices.entry(name.clone()).or_default() |= trace.switch.is_on();
        }
        devices.into_iter().map(|(name, on)| (name, json!(on))).collect()
    }

    /// Has all contexts of a device write to a new file in `directory`, in place of that of an earlier watcher; with `fast` a model also what
    /// passes without a call. Tells the file and the number of the trace.
    fn on(&self, device: &str, directory: &Path, fast: bool) -> io::Result<Value> {
        let file = TraceFile::new(directory, device, BYTES_MAX)?;
        let answer = json!({ "path": file.path, "number": file.number });
        let mut contexts = self.locked();
        contexts.of(device).for_each(|trace| trace.on(&file.lines(), fast));
        contexts.files.insert(device.to_owned(), Watched { file, fast });
        Ok(answer)
    }

    /// Ends the trace of a device; with a number that trace, and no later one. Tells the file that is still written.
    fn off(&self, device: &str, number: Option<u64>) -> Value {
        let mut contexts = self.locked();
        if let Some(Watched { file, .. }) = contexts.files.get(device)
            && number.is_some_and(|number| number != file.number)
        {
            return json!({ "path": file.path });
        }
        contexts.of(device).for_each(LiveTrace::off);
        contexts.files.remove(device);
        json!({ "path": null })
    }

    fn has(&self, device: &str) -> bool {
        self.locked().of(device).next().is_some()
    }

    /// Answers a client.
    fn answer(&self, parameters: &str, directory: &Path) -> Value {
        let words: Vec<&str> = parameters.split(',').collect();
        match words[..] {
            [""] => self.list(),
            [device, ..] if !self.has(device) => Value::Null,
            [device, wanted @ ("on" | "fast")] => self
                .on(device, directory, wanted == "fast")
                .unwrap_or_else(|error| json!({ "error": format!("{}: {error}", directory.display()) })),
            [device, "off"] => self.off(device, None),
            [device, "off", number] => {
                number.parse().map_or(Value::Null, |number| self.off(device, Some(number)))
            }
            _ => Value::Null,
        }
    }
}

pub(crate) fn register(eal: &Eal, traces: &Traces) -> Result<(), EalError> {
    let traces = traces.clone();
    let directory = prefix_socket::directory(&eal.spec().process.file_prefix);
    let help = "Writes the calls to a device into a file, or no more, and returns its path and the number of the trace. Parameters: string \
                device, on, off or fast (a model's doorbells and entries too), behind off perhaps the number: a later trace goes on; none for \
                the devices and whether they are traced";
    eal.telemetry().register("/uverbs/trace", help, move |parameters| traces.answer(parameters, &directory))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use super::*;

    /// Two contexts of one device, and what their channels hold.
    fn traces() -> (Traces, [Switch; 2]) {
        let (traces, switches) = (Traces::default(), [Switch::default(), Switch::default()]);
        for switch in &switches {
            traces.put("a0", Some(LiveTrace { switch: switch.clone(), model: None }));
        }
        (traces, switches)
    }

    fn path(answer: &Value) -> PathBuf {
        answer["path"].as_str().unwrap_or_else(|| panic!("{answer}")).into()
    }

    #[test]
    fn a_new_watcher_takes_the_place_of_the_earlier_one_and_keeps_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (traces, [mut one, mut two]) = traces();
        let ask = |parameters: &str| traces.answer(parameters, folder.path());
        let first = ask("a0,on");
        one.write_all(b"1\n").expect("written");
        let second = ask("a0,fast");
        assert_ne!(path(&first), path(&second));
        assert!(!path(&first).exists() && path(&second).exists());
        // The earlier one ends; the later one's trace goes on.
        let later = ask(&format!("a0,off,{}", first["number"]));
        assert_eq!(later["path"], second["path"]);
        one.write_all(b"2\n").expect("written");
        two.write_all(b"3\n").expect("written");
        assert_eq!(std::fs::read_to_string(path(&second)).expect("text"), "2\n3\n");
        assert_eq!(ask(""), json!({ "a0": true }));
        assert_eq!(ask(&format!("a0,off,{}", second["number"])), json!({ "path": null }));
        assert!(!path(&second).exists() && !one.is_on() && !two.is_on());
        // Without a number whichever it is.
        let third = ask("a0,on");
        assert_eq!(ask("a0,off"), json!({ "path": null }));
        assert!(!path(&third).exists());
        for nothing in ["a0", "a0,", "a0,off,x", "a0,on,1", "b0,on", ",", "a0,off,1,2"] {
            assert_eq!(ask(nothing), Value::Null, "{nothing}");
        }
    }

    #[test]
    fn a_context_that_is_opened_while_its_device_is_watched_is_watched_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let (traces, _switches) = traces();
        let answer = traces.answer("a0,on", folder.path());
        let mut later = Switch::default();
        traces.put("a0", Some(LiveTrace { switch: later.clone(), model: None }));
        let other = Switch::default();
        traces.put("b0", Some(LiveTrace { switch: other.clone(), model: None }));
        later.write_all(b"4\n").expect("written");
        assert_eq!(std::fs::read_to_string(path(&answer)).expect("text"), "4\n");
        assert!(!other.is_on());
        traces.answer("a0,off", folder.path());
        assert!(!later.is_on());
    }

    #[test]
    fn a_program_that_ends_leaves_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (traces, [one, _two]) = traces();
        let answer = traces.answer("a0,on", folder.path());
        assert!(path(&answer).exists() && one.is_on());
        drop(traces);
        assert!(!path(&answer).exists() && !one.is_on());
    }

    #[test]
    fn where_no_file_can_be_made_nothing_is_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let (traces, [one, _two]) = traces();
        let answer = traces.answer("a0,on", &folder.path().join("none"));
        assert!(answer["error"].is_string() && !one.is_on(), "{answer}");
    }

    #[test]
    fn a_context_that_stays_open_beside_one_that_closed_is_watched_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let (traces, [one, two]) = traces();
        let answer = traces.answer("a0,on", folder.path());
        drop(one);
        assert_eq!(traces.list(), json!({ "a0": true }));
        assert!(path(&answer).exists());
        drop(two);
        assert_eq!(traces.list(), json!({}));
        assert!(!path(&answer).exists());
    }
}
