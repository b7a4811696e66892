//! What is told of a device when its program ends: what that did against the rules, and what the device saw.

use pollux_mlx5_model::ledger::Crossing;
use pollux_mlx5_model::{Model, Traffic};
use serde::Serialize;

use crate::plan::{Summary, device_name};

/// What a device saw.
#[derive(Debug, Serialize)]
struct Seen {
    device: String,
    process: u32,
    frames_sent: u64,
    bytes_sent: u64,
    frames_received: u64,
    bytes_received: u64,
    /// Objects that the program made, and those that it left: to the end of their file, or of the program.
    objects_made: u64,
    objects_left: u64,
    doorbells: u64,
    /// Doorbells that brought their work entry along.
    blue_flame: u64,
    completions: u64,
    interrupts: u64,
    /// What PCIe would have carried, with its overhead.
    pcie_bytes_to_device: u64,
    pcie_bytes_from_device: u64,
    rules_broken: u64,
}

/// Tells it on standard error.
pub(super) fn tell(number: usize, model: &Model, form: Summary) {
    let name = device_name(number);
    let (first, count) = model.device().violations();
    for violation in first.iter().take(3) {
        eprintln!("mlx5-run: {name}: the program broke a rule: {violation}");
    }
    if count > 3 {
        eprintln!("mlx5-run: {name}: {count} broken rules in all");
    }
    let seen = || Seen::of(name.clone(), model, count);
    match form {
        Summary::Rules => {}
        Summary::Text => seen().lines().iter().for_each(|line| eprintln!("mlx5-run: {line}")),
        Summary::Pcie => eprintln!("mlx5-run: {name}: {}", model.ledger()),
        Summary::Json => eprintln!("{}", serde_json::to_string(&seen()).unwrap_or_default()),
    }
}

impl Seen {
    fn of(device: String, model: &Model, rules_broken: u64) -> Self {
        let ports = std::iter::once(model.device()).chain(model.second_device());
        let (mut sent, mut received) = (Traffic::default(), Traffic::default());
        for counters in ports.map(|device| device.port_counters()) {
            (sent, received) = (sent + counters.sent.all(), received + counters.received.all());
        }
        let bus = model.ledger();
        let (objects_made, living) = model.kernel().objects();
        Self {
            device,
            process: std::process::id(),
            frames_sent: sent.packets,
            bytes_sent: sent.bytes,
            frames_received: received.packets,
            bytes_received: received.bytes,
            objects_made,
            objects_left: living + model.kernel().abandoned() as u64,
            doorbells: bus.of(Crossing::Doorbell).transfers,
            blue_flame: bus.of(Crossing::BlueFlame).transfers,
            completions: bus.of(Crossing::Completion).transfers,
            interrupts: bus.of(Crossing::Interrupt).transfers,
            pcie_bytes_to_device: bus.bytes_to_device(),
            pcie_bytes_from_device: bus.bytes_from_device(),
            rules_broken,
        }
    }

    fn lines(&self) -> [String; 4] {
        let name = &self.device;
        [
            format!(
                "{name}: sent {} frames, {} bytes; received {} frames, {} bytes",
                self.frames_sent, self.bytes_sent, self.frames_received, self.bytes_received
            ),
            format!("{name}: {} objects made, {} left behind", self.objects_made, self.objects_left),
            format!(
                "{name}: {} doorbells and {} with their entry, {} completions, {} interrupts",
                self.doorbells, self.blue_flame, self.completions, self.interrupts
            ),
            format!(
                "{name}: PCIe {} bytes to the device, {} from it; {} rules broken",
                self.pcie_bytes_to_device, self.pcie_bytes_from_device, self.rules_broken
            ),
        ]
    }
}
