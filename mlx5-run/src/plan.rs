//! What a program finds: which devices there are, and where the files stand that describe them.
//!
//! The launcher makes a plan and gives it to the library in the program's environment, so that programs which the program starts find
//! the same devices.

use std::path::PathBuf;
use std::time::Duration;

use pollux_mlx5_kernel::InterfaceAddress;
use pollux_mlx5_model::config::Profile;
use pollux_mlx5_model::fault::FaultPlan;
use pollux_mlx5_model::time::Clock;
use pollux_mlx5_model::wire::{Altered, Impairments, WireSpec};
use pollux_mlx5_model::{Ability, Model, ModelError, Traits};
use serde::{Deserialize, Serialize};

/// The variable of the environment that has the plan, as JSON.
pub const VARIABLE: &str = "MLX5_RUN";

/// All devices of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The folder that stands for `/sys`.
    pub sysfs: PathBuf,
    /// The devices, by the numbers of their files.
    pub devices: Vec<DevicePlan>,
    /// Whether they work only when the program lets them.
    pub stepped: bool,
    /// What is told of them when the program ends.
    pub summary: Summary,
    /// The socket of the daemon that has them; none where each program has its own.
    #[serde(default)]
    pub daemon: Option<PathBuf>,
    /// Where traces of the devices go: a file for each, whose name has the device's behind a dot.
    #[serde(default)]
    pub trace: Option<PathBuf>,
}

/// What is told of devices when the program ends, on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Summary {
    /// The rules that the program broke.
    #[default]
    Rules,
    /// Those, and lines of what each device saw.
    Text,
    /// Those, and a line of JSON for each device.
    Json,
    /// Those, and what crossed PCIe for each packet, kind by kind.
    Pcie,
}

/// A device with one port, or two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DevicePlan {
    /// Which card, as [`Profile`] names it.
    pub card: String,
    /// The name that the port's addresses are made from, which no other port on the wire has.
    pub end: String,
    /// Where its frames go, as [`WireSpec`] writes it.
    pub wire: String,
    /// Optional capabilities, as [`Ability`] names them.
    pub with: Vec<String>,
    /// What goes wrong in it, as [`FaultPlan`] writes it; nothing if empty.
    pub faults: String,
    /// Share of the frames that it sends or receives which are lost.
    pub loss: f64,
    /// Share which the next one overtakes.
    pub reorder: f64,
    /// Share which arrive twice.
    pub duplicate: f64,
    /// How much later each arrives, in microseconds.
    pub delay_us: u64,
    /// What chance begins with.
    pub seed: u64,
    /// The port's address of IP with its prefix; made from `end` if none is given.
    #[serde(default)]
    pub ip: Option<String>,
    /// Its second port.
    #[serde(default)]
    pub second: Option<PortPlan>,
}

/// A second port of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortPlan {
    /// As [`DevicePlan::end`].
    pub end: String,
    /// As [`DevicePlan::wire`].
    pub wire: String,
    /// As [`DevicePlan::ip`].
    pub ip: Option<String>,
}

impl PortPlan {
    /// The wire, opened, with the port's addresses.
    fn open(&self) -> Result<(Altered, [u8; 6], InterfaceAddress), ModelError> {
        let mac = Model::mac_of(&self.end);
        Ok((open(&self.wire, mac)?, mac, address(self.ip.as_deref(), &self.end)))
    }
}

impl Plan {
    /// Major number of the devices' files, and the minor number of the first one. Source: Linux
    /// `drivers/infiniband/core/uverbs_main.c`, `IB_UVERBS_MAJOR`, `IB_UVERBS_BASE_MINOR`.
    pub const FIRST_FILE: (u32, u32) = (231, 192);

    /// The plan in the environment, if there is one.
    #[must_use]
    pub fn of_environment() -> Option<Self> {
        serde_json::from_str(&std::env::var(VARIABLE).ok()?).ok()
    }

    /// The file for the trace of a device, if there is to be one.
    #[must_use]
    pub fn trace_of(&self, number: usize) -> Option<PathBuf> {
        let mut path = self.trace.clone()?.into_os_string();
        path.push(".");
        path.push(device_name(number));
        Some(path.into())
    }

    /// As it stands in the environment.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The number of the device whose file has that path.
    #[must_use]
    pub fn by_file(&self, path: &str) -> Option<usize> {
        let number = path.strip_prefix("/dev/infiniband/uverbs")?.parse().ok()?;
        (number < self.devices.len()).then_some(number)
    }
}

impl DevicePlan {
    /// The card.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.card.parse().unwrap_or_default()
    }

    /// The port's address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        Model::mac_of(&self.end)
    }

    /// How many ports it has.
    #[must_use]
    pub fn ports(&self) -> usize {
        1 + usize::from(self.second.is_some())
    }

    fn abilities(&self) -> Result<Vec<Ability>, ModelError> {
        self.with.iter().map(|word| word.parse()).collect()
    }

    /// Makes the device, with a thread that steps it unless the caller will.
    ///
    /// # Errors
    /// The wire's, the fault plan's, the firmware's.
    pub fn build(&self, number: usize, stepped: bool) -> Result<Model, ModelError> {
        let impairments = Impairments {
            loss: self.loss,
            reorder: self.reorder,
            dup: self.duplicate,
            delay: Duration::from_micros(self.delay_us),
            seed: self.seed,
            ..Impairments::default()
        };
        let with = self.abilities()?;
        let mac = self.mac();
        let faults: FaultPlan =
            if self.faults.is_empty() { FaultPlan::default() } else { self.faults.parse()? };
        let mut builder = Model::builder(&device_name(number));
        if stepped {
            builder = builder.stepped();
        }
        if let Some(second) = &self.second {
            let (wire, mac, address) = second.open()?;
            builder = builder.second_plugged(wire, mac, address);
        }
        builder
            .plugged(open(&self.wire, mac)?)
            .profile(self.card.parse()?)
            // Other people's drivers ring as they like.
            .strict(false)
            .traits(|traits| adapt(traits, &with))
            .impairments(impairments)
            .mac(mac)
            .ip(address(self.ip.as_deref(), &self.end))
            .faults(faults)
            .build()
    }
}

/// Opens a wire, as behind a switch: a server that starts first finds its port up.
fn open(wire: &str, mac: [u8; 6]) -> Result<Altered, ModelError> {
    let wire: WireSpec = wire.parse()?;
    Ok(Altered::switched(wire.open(mac, Impairments::default(), &Clock::machine())?))
}

/// A port's address of IP.
fn address(given: Option<&str>, end: &str) -> InterfaceAddress {
    given.and_then(|ip| ip.parse().ok()).unwrap_or_else(|| Model::address_of(end))
}

/// Makes what a card has what this one has.
fn adapt(traits: &mut Traits, with: &[Ability]) {
    // Other people's drivers recover a send queue as Linux's network driver does.
    traits.send_record_at_ready = false;
    with.iter().for_each(|ability| ability.enable(traits));
}

/// What RDMA programs call a device.
#[must_use]
pub fn device_name(number: usize) -> String {
    format!("mlx5_{number}")
}

/// Its place on the PCI bus.
#[must_use]
pub fn pci_address(number: usize) -> String {
    format!("0000:{:02x}:00.0", 0xc1 + number)
}

#[cfg(test)]
impl Plan {
    pub(crate) fn of_a_test(sysfs: &std::path::Path, devices: Vec<DevicePlan>) -> Self {
        Self {
            sysfs: sysfs.to_owned(),
            devices,
            stepped: false,
            summary: Summary::Rules,
            daemon: None,
            trace: None,
        }
    }
}

#[cfg(test)]
impl DevicePlan {
    /// A card on no wire.
    pub(crate) fn of_a_test(card: &str) -> Self {
        Self {
            card: card.into(),
            end: "a".into(),
            wire: "null".into(),
            with: Vec::new(),
            faults: String::new(),
            loss: 0.0,
            reorder: 0.0,
            duplicate: 0.0,
            delay_us: 0,
            seed: 1,
            ip: None,
            second: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_ports_of_its_plan() {
        let second = PortPlan { end: "b".into(), wire: "null".into(), ip: Some("192.0.2.2/24".into()) };
        for second in [None, Some(second)] {
            let plan = DevicePlan { second, ..DevicePlan::of_a_test("cx5") };
            let model = plan.build(0, false).expect("a device");
            assert_eq!(usize::from(model.kernel().ports()), plan.ports());
        }
    }

    #[test]
    fn a_device_has_the_abilities_of_its_plan() {
        let described = |with: &[&str]| DevicePlan {
            with: with.iter().map(ToString::to_string).collect(),
            ..DevicePlan::of_a_test("cx7")
        };
        for with in [&[][..], &["signatures", "hairpin"]] {
            let device = described(with);
            device.build(0, false).expect("a device");
            let mut traits = device.profile().traits();
            adapt(&mut traits, &device.abilities().expect("known"));
            assert_eq!([traits.signatures, traits.hairpin], [!with.is_empty(); 2]);
            assert!(!traits.on_demand_paging && !traits.send_record_at_ready);
        }
        assert!(described(&["lasers"]).build(0, false).is_err());
    }
}
