//! The keys of a model: what it is, where its frames go, what goes wrong.

use std::time::Duration;

use pollux_config::{ConfigError, DeviceArg, KeyReader, Param, nearest};
use pollux_eal::lcore::CpuSet;
use pollux_mlx5_kernel::{DoorProfile, InterfaceAddress, InterfaceAddressError};
use pollux_mlx5_model::config::Profile;
use pollux_mlx5_model::fault::FaultPlan;
use pollux_mlx5_model::wire::{Impairments, WireSpec};
use pollux_mlx5_model::{ModelError, Traits};
use pollux_pmd_mlx::devargs;
use pollux_port::driver::DriverInfo;

use crate::driver::MODEL;

/// Keys of the model that are no abilities.
const OWN: [Param; 18] = [
    Param::text("wire"),
    Param::text("wire2"),
    Param::new("mac", "xx:xx:xx:xx:xx:xx"),
    Param::new("ip", "<address>/<bits>"),
    Param::new("device", "cx4lx|cx5|cx6dx|cx7"),
    Param::number("core"),
    Param::new("mode", "threaded"),
    Param::new("loss", "<share>"),
    Param::new("reorder", "<share>"),
    Param::number("delay"),
    Param::new("dup", "<share>"),
    Param::new("corrupt", "<share>"),
    Param::number("seed"),
    Param::text("fault_plan"),
    Param::new("kernel", "newest|6.12|5.4"),
    Param::flag("pause"),
    Param::new("memlock", "none|process|<int>"),
    Param::new("cqe_version", "0|1"),
];

/// Keys that are the model's; all others are the driver's, as for a real device.
const PARAMS: [Param; OWN.len() + ABILITIES.len()] = {
    let mut params = [Param::flag(""); OWN.len() + ABILITIES.len()];
    let mut at = 0;
    while at < params.len() {
        params[at] = if at < OWN.len() { OWN[at] } else { Param::flag(ABILITIES[at - OWN.len()].0) };
        at += 1;
    }
    params
};

/// All keys of a model's port, the driver's behind its own.
const ALL: [Param; PARAMS.len() + devargs::PARAMS.len()] = {
    let mut params = [Param::flag(""); PARAMS.len() + devargs::PARAMS.len()];
    let mut at = 0;
    while at < params.len() {
        params[at] = if at < PARAMS.len() { PARAMS[at] } else { devargs::PARAMS[at - PARAMS.len()] };
        at += 1;
    }
    params
};

const INFO: DriverInfo = DriverInfo { name: MODEL, params: &ALL, kmod: "", pci_ids: &[] };
/// What programs with the model tell of it.
pub(super) static TEXT: [u8; INFO.text_bytes()] = INFO.text();

/// The names of the model's keys.
fn own() -> impl Iterator<Item = &'static str> {
    PARAMS.iter().map(|param| param.key)
}

/// What a card or its kernel has (1) or lacks (0), one by one; where a key is not given, it is as the card and the kernel are.
type Ability = (&'static str, fn(&mut Traits, &mut DoorProfile, bool));

const ABILITIES: [Ability; 25] = [
    // Every packet must have 18 bytes of header inline.
    ("inline_l2", |card, _, on| card.needs_inline_l2 = on),
    // Several packets in one send entry.
    ("has_empw", |card, _, on| card.enhanced_multi_packet = on),
    // Striding receive queues.
    ("has_mprq", |card, _, on| card.striding_rq = on),
    // Compressed completions, and those with a stride index.
    ("has_cqe_comp", |card, _, on| card.cqe_compression = on),
    ("has_stride_idx", |card, _, on| card.mini_cqe_stride_index = on),
    // Those with the flow tag or the types of headers.
    ("has_cqe_tags", |card, _, on| card.mini_cqe_tags = on),
    // And those whose arrays are completions of their own.
    ("has_enh_cqe_comp", |card, _, on| card.enhanced_cqe_compression = on),
    // Joining TCP segments, and a key of no memory for parts of packets that nobody wants.
    ("has_lro", |card, _, on| card.lro = on),
    ("has_null_key", |card, _, on| card.dump_fill_key = on),
    // Firmware commands from user space.
    ("has_devx", |card, door, on| (card.devx, door.no_devx) = (on, !on)),
    // Write-combining doorbell pages.
    ("has_bf", |card, door, on| (card.blue_flame, door.no_blue_flame) = (on, !on)),
    // Doorbell pages by call; else those that a context has from the first.
    ("has_dyn_uar", |_, door, on| door.no_uar_alloc = !on),
    // Pages of doorbells are 4 KiB whatever the system's are.
    ("has_uar_4k", |card, _, on| card.uar_4k = on),
    // Tags inserted by the card.
    ("has_vlan_insert", |card, _, on| card.vlan_insert = on),
    // Tunnels that the card looks into.
    ("has_vxlan", |card, _, on| card.vxlan = on),
    ("has_gre", |card, _, on| card.gre = on),
    ("has_geneve", |card, _, on| card.geneve = on),
    ("has_ipip", |card, _, on| card.ip_in_ip = on),
    // Rules match MPLS labels.
    ("has_mpls", |card, _, on| card.mpls = on),
    // Rules get copies of all that the port receives and sends.
    ("has_sniffer", |card, _, on| card.sniffer = on),
    // Send entries say where headers are.
    ("has_swp", |card, _, on| card.software_parsing = on),
    // Ends of a connection agree on its options.
    ("has_ece", |card, _, on| card.ece = on),
    // Memory is registered on demand.
    ("has_odp", |card, _, on| card.on_demand_paging = on),
    // Queue pairs tell that data is written in order.
    ("has_data_in_order", |card, _, on| card.data_in_order = on),
    // Of RoCE packets that are lost those alone are sent again; both ends must.
    ("selective_repeat", |card, _, on| card.selective_repeat = on),
];

/// What the `kernel` key may say.
const KERNELS: [&str; 3] = ["newest", "6.12", "5.4"];

/// Frames of the traffic that a model makes when no wire is named.
const USUAL_WIRE: WireSpec = WireSpec::Source { size: 64, rate: None };

/// What a model shall be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelKeys {
    pub(super) wire: WireSpec,
    /// Of the RDMA device's second port, if it has one.
    pub(super) second_wire: Option<WireSpec>,
    pub(super) mac: Option<[u8; 6]>,
    /// Addresses for RDMA; one is made from the wire's or the model's name where none is given.
    pub(super) addresses: Vec<InterfaceAddress>,
    pub(super) profile: Profile,
    /// What the card can do.
    pub(super) card: Traits,
    /// What the kernel in front of it lacks.
    pub(super) door: DoorProfile,
    pub(super) core: Option<u16>,
    pub(super) impairments: Impairments,
    pub(super) faults: FaultPlan,
    /// A wire that can wait is made to when there is no receive slot.
    pub(super) pause: bool,
    /// The process's limit on locked memory holds, as with a real device.
    pub(super) process_memlock: bool,
}

impl ModelKeys {
    /// Reads the model's keys; the device that is left has the driver's.
    pub(super) fn take(device: &DeviceArg) -> Result<(Self, DeviceArg), ConfigError> {
        let (own, rest) = device.args.iter().cloned().partition(|(key, _)| own().any(|own| own == key));
        let own = DeviceArg { args: own, ..device.clone() };
        let keys = Self::read(&own)?;
        Ok((keys, DeviceArg { args: rest, ..own }))
    }

    /// Whether the process may run on the model's CPU. Where the system does not say, its answer to the model's thread will.
    pub(super) fn check_core(&self, device: &DeviceArg) -> Result<(), ConfigError> {
        let (Some(core), Ok(allowed)) = (self.core, CpuSet::of_this_thread()) else { return Ok(()) };
        if allowed.as_slice().contains(&core) {
            return Ok(());
        }
        let problem = format!("is not a CPU this process may use: choose one of {allowed}, or leave it out");
        Err(device.keys().bad("core", &core.to_string(), problem))
    }

    fn read(device: &DeviceArg) -> Result<Self, ConfigError> {
        let mut keys = device.keys_of(&PARAMS);
        let wire = parsed(&mut keys, "wire")?.unwrap_or(USUAL_WIRE);
        let second_wire = parsed(&mut keys, "wire2")?;
        let mac = unicast(&mut keys)?;
        let addresses = addresses(&mut keys)?;
        let profile: Profile = parsed(&mut keys, "device")?.unwrap_or_default();
        let core = keys.number("core", 0..=u64::from(pollux_config::CPU_MAX) - 1)?;
        if let Some(1) = keys.choice("mode", &["threaded", "stepped"])? {
            let problem = "is supported only in tests: leave it out";
            return Err(keys.bad("mode", "stepped", problem));
        }
        let usual = Impairments::default();
        let impairments = Impairments {
            loss: keys.share("loss")?.unwrap_or(usual.loss),
            reorder: keys.share("reorder")?.unwrap_or(usual.reorder),
            delay: keys.number("delay", 0..=1_000_000)?.map_or(usual.delay, Duration::from_micros),
            dup: keys.share("dup")?.unwrap_or(usual.dup),
            corrupt: keys.share("corrupt")?.unwrap_or(usual.corrupt),
            seed: keys.number("seed", 0..=u64::MAX)?.unwrap_or(usual.seed),
        };
        let mut faults: FaultPlan = parsed(&mut keys, "fault_plan")?.unwrap_or_default();
        let process_memlock = match keys.text("memlock")? {
            None | Some("none") => false,
            Some("process") => true,
            Some(text) => {
                let problem = "must be 'none', 'process' (the process's own limit) or a number of bytes";
                faults.memlock = Some(text.parse().map_err(|_| keys.bad("memlock", text, problem))?);
                false
            }
        };
        let kernel = keys.choice("kernel", &KERNELS)?;
        let pause = keys.flag("pause")?.unwrap_or(true);
        let mut card = profile.traits();
        let mut door = match kernel {
            Some(1) => DoorProfile::linux_6_12(),
            Some(2) => DoorProfile::linux_5_4(),
            _ => DoorProfile::NEWEST,
        };
        for (key, set) in ABILITIES {
            if let Some(on) = keys.flag(key)? {
                set(&mut card, &mut door, on);
            }
        }
        if let Some(version) = keys.number("cqe_version", 0..=1)? {
            (card.cqe_version, door.cqe_version_max) = (version, Some(version));
        }
        keys.finish()?;
        Ok(Self {
            wire,
            second_wire,
            mac,
            addresses,
            profile,
            card,
            door,
            core,
            impairments,
            faults,
            pause,
            process_memlock,
        })
    }
}

/// A value that reads itself.
fn parsed<T>(keys: &mut KeyReader<'_>, key: &'static str) -> Result<Option<T>, ConfigError>
where
    T: std::str::FromStr<Err = ModelError>,
{
    let Some(text) = keys.text(key)? else { return Ok(None) };
    text.parse().map(Some).map_err(|error| {
        // The model says what is wrong with the value; which device and key are said here.
        let problem = match error {
            ModelError::Wire { problem, .. } => {
                format!("{problem}; wires: {}", pollux_mlx5_model::wire::FORMS)
            }
            ModelError::Setting { value, allowed, .. } if value == text => allowed,
            ModelError::Setting { value, allowed, .. } => format!("'{value}': {allowed}"),
            other => other.to_string(),
        };
        keys.bad(key, text, problem)
    })
}

/// An address that one station can have.
fn unicast(keys: &mut KeyReader<'_>) -> Result<Option<[u8; 6]>, ConfigError> {
    let mac = keys.mac("mac")?;
    // The first byte's lowest bit says that an address stands for several stations (IEEE 802).
    match mac {
        Some(mac) if mac[0] & 1 == 1 || mac == [0; 6] => {
            let text = mac.map(|byte| format!("{byte:02x}")).join(":");
            let problem = "is not a unicast address: the first byte must be even, and not all bytes zero, such as \
                           02:00:00:00:00:01";
            Err(keys.bad("mac", &text, problem))
        }
        mac => Ok(mac),
    }
}

/// `ip=ADDRESS/BITS`, as often as there are addresses.
fn addresses(keys: &mut KeyReader<'_>) -> Result<Vec<InterfaceAddress>, ConfigError> {
    let mut addresses = Vec::new();
    for text in keys.all("ip") {
        let address: InterfaceAddress =
            text.parse().map_err(|error: InterfaceAddressError| keys.bad("ip", text, error.to_string()))?;
        if addresses.contains(&address) {
            return Err(keys.bad("ip", text, "is given twice: give it once"));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// A key that the driver does not know may have been meant for the model.
pub(super) fn with_own(error: ConfigError) -> ConfigError {
    let ConfigError::UnknownKey { device, key, nearest: near, allowed } = error else { return error };
    let near = near.or_else(|| nearest(&key, own()).map(str::to_owned));
    let allowed = format!("{}, {allowed}", own().collect::<Vec<_>>().join(", "));
    ConfigError::UnknownKey { device, key, nearest: near, allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(text: &str) -> Result<(ModelKeys, DeviceArg), String> {
        ModelKeys::take(&text.parse().expect("a device")).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_are_read_and_the_drivers_are_left() {
        let (keys, rest) = take(
            "mlx5_model0,wire=cable:a,mac=02:00:00:00:00:07,device=cx4lx,core=1,mode=threaded,loss=0.1,reorder=0.2,delay=30,\
             dup=0.3,corrupt=0.4,seed=9,fault_plan=[seed:3,remove:10ms],kernel=5.4,mprq_en=1",
        )
        .expect("accepted");
        assert_eq!(rest.to_string(), "mlx5_model0,mprq_en=1");
        assert_eq!(keys.wire, WireSpec::Cable("a".into()));
        assert_eq!(
            (keys.profile, keys.core, keys.door),
            (Profile::ConnectX4Lx, Some(1), DoorProfile::linux_5_4())
        );
        assert_eq!(keys.card, Profile::ConnectX4Lx.traits());
        assert_eq!(keys.impairments.delay, Duration::from_micros(30));
        assert_eq!(keys.faults.seed, 3);
        let memlock = |text: &str| {
            let (keys, _) = take(&format!("mlx5_model0,memlock={text}")).expect(text);
            (keys.process_memlock, keys.faults.memlock)
        };
        assert_eq!(memlock("none"), (false, None));
        assert_eq!(memlock("process"), (true, None));
        assert_eq!(memlock("65536"), (false, Some(65536)));
        let (recorded, _) = take("mlx5_model0,kernel=6.12").expect("accepted");
        assert_eq!(recorded.door, DoorProfile::linux_6_12());
        let (usual, _) = take("mlx5_model0").expect("accepted");
        assert_eq!(usual.door, DoorProfile::default());
        assert_eq!(usual.wire.to_string(), "source:64");
        assert_eq!(usual.second_wire, None);
        let (two, _) = take("mlx5_model0,wire=cable:a,wire2=cable:b").expect("accepted");
        assert_eq!(two.second_wire, Some(WireSpec::Cable("b".into())));
        assert!(usual.impairments.is_none() && usual.faults == FaultPlan::default());
    }

    #[test]
    fn each_ability_is_given_and_taken_alone() {
        let key = |text: &str| take(&format!("mlx5_model0,device=cx5,{text}")).expect(text).0;
        let usual = key("seed=0");
        let changes = |keys: &ModelKeys| (keys.card != usual.card, keys.door != usual.door);
        for (name, changed) in [
            ("inline_l2=1", (true, false)),
            ("has_empw=0", (true, false)),
            ("has_mprq=0", (true, false)),
            ("has_cqe_comp=0", (true, false)),
            ("has_stride_idx=0", (true, false)),
            ("has_cqe_tags=1", (true, false)),
            ("has_enh_cqe_comp=1", (true, false)),
            ("has_lro=0", (true, false)),
            ("has_null_key=0", (true, false)),
            ("has_devx=0", (true, true)),
            ("has_bf=0", (true, true)),
            ("has_dyn_uar=0", (false, true)),
            ("has_uar_4k=0", (true, false)),
            ("has_vlan_insert=0", (true, false)),
            ("has_vxlan=0", (true, false)),
            ("has_gre=0", (true, false)),
            ("has_geneve=0", (true, false)),
            ("has_ipip=1", (true, false)),
            ("has_swp=0", (true, false)),
            ("has_ece=1", (true, false)),
            ("has_odp=1", (true, false)),
            ("has_sniffer=1", (true, false)),
            ("has_data_in_order=0", (true, false)),
            ("selective_repeat=1", (true, false)),
            ("cqe_version=0", (true, true)),
        ] {
            let (word, value) = name.split_once('=').expect("a key and its value");
            assert!(own().any(|own| own == word), "{word}");
            assert_eq!(changes(&key(name)), changed, "{name}");
            let other = if value == "0" { "1" } else { "0" };
            assert!(!changes(&key(&format!("{word}={other}"))).0, "{word}={other} is as it was");
        }
        let (both, _) = take("mlx5_model0,device=cx4lx,has_empw=1,inline_l2=0,kernel=5.4,has_dyn_uar=1")
            .expect("accepted");
        assert!(both.card.enhanced_multi_packet && !both.card.needs_inline_l2);
        assert!(!both.door.no_uar_alloc && both.door.no_qp_create);
    }

    #[test]
    fn addresses_are_given_as_often_as_there_are() {
        let (keys, _) = take("mlx5_model0,ip=192.0.2.1/24,ip=2001:db8::1/64").expect("accepted");
        let given: Vec<String> = keys.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(given, ["192.0.2.1/24", "2001:db8::1/64"]);
        for wrong in ["192.0.2.1", "192.0.2.1/24,ip=192.0.2.1/24", "224.0.0.1/24", "/8", ""] {
            let error = take(&format!("mlx5_model0,ip={wrong}")).expect_err(wrong);
            assert!(error.contains("ip="), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_one_line_with_device_and_key() {
        for (text, expected) in [
            (
                "wire=wifi",
                "wire=wifi: there is no such wire; wires: cable:NAME, source:SIZE[:RATE], null, pcap:IN:OUT, iface:NAME, unix:LOCAL:PEER",
            ),
            (
                "wire=source:1",
                "wire=source:1: frames have 60 to 16384 bytes, FCS not counted; wires: cable:NAME, source:SIZE[:RATE], null, pcap:IN:OUT, iface:NAME, unix:LOCAL:PEER",
            ),
            (
                "wire2=wifi",
                "wire2=wifi: there is no such wire; wires: cable:NAME, source:SIZE[:RATE], null, pcap:IN:OUT, iface:NAME, unix:LOCAL:PEER",
            ),
            ("device=cx3", "device=cx3: is not one of cx4lx, cx5, cx6dx, cx7"),
            ("loss=2", "loss=2: must be between 0 and 1, such as 0.01"),
            ("delay=x", "delay=x: is not a whole number from 0 to 1000000"),
            (
                "mac=01:00:00:00:00:01",
                "mac=01:00:00:00:00:01: is not a unicast address: the first byte must be even, and not all bytes zero, such as 02:00:00:00:00:01",
            ),
            ("fault_plan=[seed:x]", "fault_plan=[seed:x]: 'seed:x': write it as seed:7"),
            ("mode=stepped", "mode=stepped: is supported only in tests: leave it out"),
            ("core=99999", "core=99999: is not a whole number from 0 to 1023"),
            ("kernel=2.6", "kernel=2.6: is not one of newest, 6.12, 5.4"),
            (
                "memlock=8M",
                "memlock=8M: must be 'none', 'process' (the process's own limit) or a number of bytes",
            ),
            ("has_empw=yes", "has_empw=yes: must be 0 or 1"),
            ("cqe_version=2", "cqe_version=2: is not a whole number from 0 to 1"),
            ("seed=1,seed=2", "seed=2: is given twice: give it once"),
        ] {
            let line = take(&format!("mlx5_model0,{text}")).map(|_| ()).expect_err(text);
            assert_eq!(line, format!("device 'mlx5_model0': {expected}"));
        }
    }
}
