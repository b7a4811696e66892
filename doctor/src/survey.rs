//! What a card answers, call by call, and what comes of a fixed list of checks on it: a report that others can hold their model of the
//! card against.
//!
//! ```text
//!   Mlx5Card ── Subject: each file that it opens is traced
//!      │ STEPS: queries, memory, RC and raw frames over its own port, each way of a driver, errors and recovery
//!      ▼
//!   Step: calls (scrub: no address, no name), facts, cycles ──► Document: the file ──► differences from the model's
//! ```
//!
//! The checks read, or act on objects of their own; what they change is gone with the file that they opened. Frames are from and to an
//! address that nobody has (`frames.rs`).

mod compare;
mod connection;
mod document;
mod frames;
mod memory;
mod query;
mod scrub;
mod step;
mod subject;

use std::collections::BTreeMap;
use std::path::Path;

use pollux_bringup::Mlx5Card;
use pollux_config::DeviceArg;
use pollux_eal::clock::Clock;
use pollux_eal::with_causes;
use pollux_explain::normal;

use crate::DoctorError;
use crate::card::{model_name, profile};
use document::Document;
use step::{Refusal, Step};
use subject::Subject;

/// What a check does.
type Check = fn(&Subject, &mut Step) -> Result<(), Refusal>;

/// Checks that make nothing but a context.
const ASKS: [(&str, Check); 2] = [("device", query::device), ("capabilities", query::capabilities)];

/// Checks that make objects of their own.
const MAKES: [(&str, Check); 6] = [
    ("memory", memory::memory),
    ("queues", connection::queues),
    ("rc", connection::operations),
    ("doorbells", connection::doorbells),
    ("errors", connection::errors),
    ("frames", frames::raw),
];

/// The checks of a card.
pub struct Survey {
    subject: Subject,
}

impl std::fmt::Debug for Survey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survey").field("subject", &self.subject).finish()
    }
}

/// A report, ready to be written.
#[derive(Clone, Debug)]
pub struct CardReport {
    document: Document,
}

impl CardReport {
    /// The file's text.
    #[must_use]
    pub fn text(&self) -> String {
        self.document.text()
    }

    /// Reads a file that [`text`](Self::text) was written to.
    ///
    /// # Errors
    /// [`DoctorError::Report`] for what is no whole report of this version.
    pub fn read(path: &Path) -> Result<Self, DoctorError> {
        Document::read(path).map(|document| Self { document })
    }

    /// The model of the card that it is of, as a device argument.
    #[must_use]
    pub fn model(&self) -> String {
        let about = |key: &str| self.document.about.get(key).map(String::as_str).unwrap_or_default();
        let device =
            about("pci").rsplit_once(':').and_then(|(_, device)| u16::from_str_radix(device, 16).ok());
        model_of(device, about("kernel"))
    }

    /// Checks the model of the card, and tells where it differs: a line each.
    ///
    /// # Errors
    /// The model cannot be made.
    pub fn differences(&self) -> Result<Vec<String>, DoctorError> {
        let model = Survey::of(&self.model())?.run(|_| {});
        Ok(compare::differences(&self.document, &model.document))
    }
}

/// The device argument of the model of a card behind a kernel.
fn model_of(pci_device: Option<u16>, kernel: &str) -> String {
    let card = profile(pci_device);
    let kernel = if kernel.starts_with("5.") && !kernel.starts_with("5.1") {
        ",kernel=5.4"
    } else if kernel.starts_with("6.") {
        ",kernel=6.12"
    } else {
        ""
    };
    format!("mlx5_model0,wire=null,device={card}{kernel}")
}

impl Survey {
    /// The card that is named: an RDMA device, PCI address or interface of this machine, or a device argument of a model.
    ///
    /// # Errors
    /// [`DoctorError::Device`]: no such card, or one that cannot be opened.
    pub fn of(device: &str) -> Result<Self, DoctorError> {
        let refuse = |problem: String| DoctorError::Device { device: device.to_owned(), problem };
        let mut argument: DeviceArg =
            device.parse().map_err(|error: pollux_config::ConfigError| refuse(with_causes(&error)))?;
        // Nothing is to come that the checks did not send.
        if Mlx5Card::is_model(&argument) && !argument.args.iter().any(|(key, _)| key == "wire") {
            argument.args.push(("wire".into(), "null".into()));
        }
        let card = Mlx5Card::find(&argument).map_err(|error| refuse(with_causes(&error)))?;
        Self::new(card).map_err(|error| refuse(with_causes(&error)))
    }

    /// A card that somebody else found.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new(card: Mlx5Card) -> Result<Self, pollux_bringup::BringupError> {
        Ok(Self { subject: Subject::new(card)? })
    }

    /// Makes all checks, some ten seconds; `told` is given the name of each before it begins. A check that fails is noted, and the
    /// next one is made.
    pub fn run(&self, mut told: impl FnMut(&str)) -> CardReport {
        let mut steps = Vec::new();
        for (name, check) in ASKS.into_iter().chain(MAKES) {
            told(name);
            steps.push(self.step(name, check));
        }
        for (mode, keys) in frames::MODES {
            let name = format!("port_{mode}");
            told(&name);
            steps.push(self.step(&name, |subject, step| frames::mode(subject, step, keys)));
        }
        CardReport { document: Document { about: self.about(), steps } }
    }

    /// What a [`run`](Self::run) would ask of the card, in order, as text. The card itself is asked only what makes nothing but a context;
    /// all else is tried on its model.
    ///
    /// # Errors
    /// The model cannot be made.
    pub fn dry_run(&self) -> Result<String, DoctorError> {
        let about = self.about();
        let kernel = about.get("kernel").map(String::as_str).unwrap_or_default();
        let model = model_of(self.subject.card().pci_device(), kernel);
        let rehearsed = Self::of(&model)?.run(|_| {}).document;
        let mut out = format!(
            "dry run: the card is asked what follows up to the step {}; from there on the calls are those that its model\n\
             ({model}) was asked, and the card would be\n",
            MAKES[0].0
        );
        let asked = ASKS.into_iter().map(|(name, check)| self.step(name, check));
        for step in asked.chain(rehearsed.steps.into_iter().skip(ASKS.len())) {
            out.push_str(&format!("step {}\n", step.name));
            for call in &step.calls {
                let asked = call.split(" -> ").next().unwrap_or(call);
                let title = pollux_explain::title(call).unwrap_or_else(|| "call".into());
                out.push_str(&format!("  {title}: {asked}\n"));
            }
        }
        Ok(out)
    }

    fn step(&self, name: &str, check: impl FnOnce(&Subject, &mut Step) -> Result<(), Refusal>) -> Step {
        let mut step = Step::new(name);
        let before = self.hardware_counters();
        if let Err(why) = check(&self.subject, &mut step) {
            step.refusal("ended", why);
        }
        for (counter, value) in self.hardware_counters() {
            let passed = value.saturating_sub(before.get(&counter).copied().unwrap_or(value));
            if passed > 0 {
                step.counter(format!("hw.{counter}"), passed);
            }
        }
        let secrets = &self.subject.secrets;
        let calls =
            normal::normal(&secrets.of_trace(&self.subject.take_calls(), &scrub::own_memory()), normal::MLX5);
        step.calls = calls.lines().map(str::to_owned).collect();
        step.facts
            .values_mut()
            .chain(step.said.values_mut())
            .for_each(|value| *value = secrets.of_text(value));
        step
    }

    /// The card's own counters, as the kernel tells them; none of a model.
    fn hardware_counters(&self) -> BTreeMap<String, u64> {
        let Some(device) = self.subject.card().device() else { return BTreeMap::new() };
        let files = std::fs::read_dir(device.sysfs.join("ports/1/hw_counters"));
        let read = |file: std::fs::DirEntry| {
            let value = std::fs::read_to_string(file.path()).ok()?.trim().parse().ok()?;
            Some((file.file_name().into_string().ok()?, value))
        };
        files.into_iter().flatten().flatten().filter_map(read).collect()
    }

    fn about(&self) -> BTreeMap<String, String> {
        let card = self.subject.card();
        let read = |path: &Path| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let mut about = BTreeMap::new();
        let mut tell = |key: &str, value: Option<String>| {
            let value = value.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "));
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                let _ = about.insert(key.to_owned(), self.subject.secrets.of_text(&value));
            }
        };
        tell("doctor", Some(env!("CARGO_PKG_VERSION").into()));
        tell("card", card.pci_device().and_then(model_name).map(str::to_owned));
        tell("pci", card.pci_device().map(|device| format!("15b3:{device:04x}")));
        match (card.device(), card.model()) {
            (Some(device), _) => {
                tell("firmware", device.firmware.clone());
                tell("board", read(&device.sysfs.join("board_id")));
                tell("driver", device.driver.clone());
                tell("kernel", read(Path::new("/proc/sys/kernel/osrelease")));
                tell("rate", device.ports.first().and_then(|port| port.rate.clone()));
            }
            (None, Some(model)) => {
                let (major, minor, patch) = model.profile().firmware();
                tell("firmware", Some(format!("{major}.{minor}.{patch:04}")));
                tell("board", Some(model.profile().board().into()));
                tell("driver", Some("the device model".into()));
                tell("kernel", Some("the device model's".into()));
            }
            (None, None) => {}
        }
        let processor = read(Path::new("/proc/cpuinfo")).and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
            Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
        });
        tell("processor", processor);
        tell("cycles_hz", Some(Clock::get().hz().to_string()));
        about
    }

    /// A secret that a report tells after all: nothing, or this program has a mistake and the report is not to be written.
    #[must_use]
    pub fn told_by(&self, report: &CardReport) -> Option<String> {
        self.subject.secrets.told_by(&report.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_has_the_model_of_its_number_and_kernel() {
        assert_eq!(model_of(Some(0x1015), "5.4.0-42"), "mlx5_model0,wire=null,device=cx4lx,kernel=5.4");
        assert_eq!(model_of(Some(0x101d), "6.12.57"), "mlx5_model0,wire=null,device=cx6dx,kernel=6.12");
        assert_eq!(model_of(None, ""), "mlx5_model0,wire=null,device=cx6dx");
        assert_eq!(model_of(Some(0x1021), "5.15.0"), "mlx5_model0,wire=null,device=cx7");
    }
}
