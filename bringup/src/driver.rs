//! Every driver by its name.

mod mlx5;
mod soft;

pub use mlx5::ModelNetdev;

use std::sync::Arc;

use pollux_config::{ConfigError, DeviceArg, DeviceSpec, PortSpec, nearest};
use pollux_eal::Eal;
use pollux_mlx5_model::Model;
use pollux_port::driver::PortDriver;
use pollux_port::layer::{self, LayerSpec};
use pollux_port::{PortError, PortInfo};

use crate::{BringupError, RdmaDevice};

pub(crate) use mlx5::OpenRdma;
pub(crate) use mlx5::openable as mlx5_openable;

/// Opens the device under the given name; its keys are read by then.
type Open = Box<dyn FnOnce(&str, &Eal) -> Result<Opened, PortError>>;

/// An open device.
pub(crate) struct Opened {
    pub(crate) driver: Box<dyn PortDriver>,
    /// What stands in for hardware, if anything does.
    pub(crate) model: Option<Arc<Model>>,
}

/// A driver: the beginning of its devices' names, and what reads their keys.
struct Driver {
    name: &'static str,
    read: fn(&DeviceArg) -> Result<Open, ConfigError>,
}

/// What reads the keys of hardware, which has no driver's name in its own.
const HARDWARE: fn(&DeviceArg) -> Result<Open, ConfigError> = mlx5::real;

/// The device model's driver.
const MODEL: &str = "mlx5_model";

const DRIVERS: &[Driver] = &[
    Driver { name: "net_null", read: soft::null },
    Driver { name: "net_ring", read: soft::ring },
    Driver { name: "net_pcap", read: soft::pcap },
    Driver { name: "net_af_packet", read: soft::af_packet },
    Driver { name: "net_tap", read: soft::tap },
    Driver { name: MODEL, read: mlx5::model },
];

/// Drivers whose ports have as many queues as an argument says, that argument, and the most that it takes.
const QUEUE_KEYS: &[(&str, &str, u16)] = &[("net_af_packet", "qpairs", 256)];

/// A device whose arguments are in order and that is not open yet.
pub(crate) struct Prepared {
    open: Open,
    layers: LayerSpec,
}

impl Prepared {
    pub(crate) fn open(self, name: &str, eal: &Eal) -> Result<Opened, PortError> {
        let Opened { driver, model } = (self.open)(name, eal)?;
        let driver = layer::wrap(name, driver, &self.layers, pollux_port_soft::tee::open)?;
        Ok(Opened { driver, model })
    }
}

/// What is opened when nothing is named.
pub(crate) fn usual_ports() -> Result<Vec<PortSpec>, ConfigError> {
    ["mlx5_model0,wire=source:64", "mlx5_model1,wire=source:64"]
        .into_iter()
        .map(|text| Ok(PortSpec::new(text.parse()?)))
        .collect()
}

/// Finds the device's driver and reads its keys. What was named by `-a` has a name of hardware's.
pub(crate) fn prepare(device: &DeviceArg, devices: &DeviceSpec) -> Result<Prepared, BringupError> {
    let allowed = devices.allow.contains(device);
    // As in DPDK, a device's name begins with its driver's.
    let named = DRIVERS.iter().find(|driver| device.name.starts_with(driver.name)).map(|driver| driver.read);
    let names = || DRIVERS.iter().map(|driver| driver.name);
    let nearest = nearest(&device.driver, names());
    // Systems call RDMA devices as they like (`rocep3s0f0`), and interfaces.
    let hardware = device.driver == "pci" || device.name.starts_with("mlx5_") || allowed && nearest.is_none();
    let Some(read) = named.or(hardware.then_some(HARDWARE)) else {
        return Err(BringupError::UnknownDriver {
            device: device.name.clone(),
            nearest: nearest.map(str::to_owned),
            drivers: names().collect::<Vec<_>>().join(", "),
        });
    };
    if named.is_none() {
        check_hardware(device, devices)?;
    }
    // Layers go round any driver, so their keys are not the driver's business.
    let (layers, device) = LayerSpec::take(device)?;
    let open = read(&device).map_err(with_layers)?;
    Ok(Prepared { open, layers })
}

/// Whether no driver of software's has the device.
pub(crate) fn is_hardware(device: &DeviceArg) -> bool {
    DRIVERS.iter().all(|driver| !device.name.starts_with(driver.name))
}

/// Refuses more queues than the port has, before memory is made for them, and says where an argument gives it more.
pub(crate) fn check_queues(spec: &PortSpec, info: &PortInfo) -> Result<(), BringupError> {
    let (queues, name) = (&spec.queues, &spec.device.name);
    let ways = [("rx", queues.rx_queues, info.max_rx_queues), ("tx", queues.tx_queues, info.max_tx_queues)];
    match ways.into_iter().find(|(_, wanted, most)| wanted > most) {
        None => Ok(()),
        Some((way, wanted, most)) => {
            let key = QUEUE_KEYS.iter().find(|(driver, _, most)| *driver == info.driver && wanted <= *most);
            let mend = match key {
                Some((_, key, _)) => format!("write {key}={wanted} in its device argument"),
                None => format!("ask for at most {most}"),
            };
            Err(BringupError::Usage(format!(
                "port {name}: {wanted} {way} queues are asked for and it has {most}: {mend}"
            )))
        }
    }
}

/// Refuses hardware under `--no-pci`.
fn check_hardware(device: &DeviceArg, devices: &DeviceSpec) -> Result<(), ConfigError> {
    if !devices.no_pci {
        return Ok(());
    }
    let problem = "is hardware, and --no-pci opens none: leave one of them out".into();
    Err(ConfigError::Device { text: device.name.clone(), problem })
}

/// Finds what opens the device as one of RDMA and reads its keys.
pub(crate) fn prepare_rdma(device: &DeviceArg, devices: &DeviceSpec) -> Result<OpenRdma, BringupError> {
    if device.name.starts_with(MODEL) {
        return Ok(mlx5::model_rdma(device)?);
    }
    if DRIVERS.iter().any(|driver| device.name.starts_with(driver.name)) {
        return Err(BringupError::Usage(format!(
            "device '{}' is a port of frames alone: RDMA runs on mlx5_model0 and its like, or on a device of the kernel's, by -a",
            device.name
        )));
    }
    check_hardware(device, devices)?;
    Ok(mlx5::real_rdma(device)?)
}

/// The RDMA side of a device whose port is open.
pub(crate) fn rdma_beside(
    device: &DeviceArg,
    model: Option<&Arc<Model>>,
    eal: &Eal,
) -> Result<RdmaDevice, BringupError> {
    match model {
        Some(model) => mlx5::rdma_of_model(&device.name, model, eal),
        None => prepare_rdma(device, &eal.spec().devices)?(&device.name, eal),
    }
}

/// A key that a driver does not know may have been meant for a layer.
fn with_layers(error: ConfigError) -> ConfigError {
    let ConfigError::UnknownKey { device, key, nearest: near, allowed } = error else { return error };
    let near = near.or_else(|| nearest(&key, layer::KEYS).map(str::to_owned));
    let allowed = format!("{allowed}; with any driver: {}", layer::KEYS.join(", "));
    ConfigError::UnknownKey { device, key, nearest: near, allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        prepare(&text.parse().unwrap(), &DeviceSpec::default())
            .err()
            .map(|error| error.line())
            .unwrap_or_else(|| "accepted".into())
    }

    #[test]
    fn what_is_allowed_is_hardware_unless_it_looks_like_a_driver() {
        let allowed = |text: &str| {
            let device: DeviceArg = text.parse().expect("a device");
            let devices = DeviceSpec { allow: vec![device.clone()], ..DeviceSpec::default() };
            prepare(&device, &devices).is_ok()
        };
        assert!(allowed("rocep3s0f0,mprq_en=1") && allowed("ens3f0np0") && allowed("net_null0"));
        assert!(!allowed("net_nul0"));
        assert!(refusal("rocep3s0f0").contains("no such driver"), "by --vdev");
    }

    #[test]
    fn a_wrong_device_gives_one_line() {
        let table = [
            ("net_null0,size=64,copy=1,no-rx=0", "accepted"),
            ("net_null", "accepted"),
            ("net_null0,copy=1,trace=summary,tee=a.pcapng,fault=[drop:0.01,seed:7]", "accepted"),
            ("net_ring0", "accepted"),
            ("net_pcap0,rx_pcap=a.pcap,rx_pcap=b.pcap,tx_pcap=c.pcap,infinite_rx=1", "accepted"),
            ("net_pcap0,iface=eth0,phy_mac=1", "accepted"),
            (
                "net_af_packet0,iface=a,qpairs=2,blocksz=4096,framesz=2048,framecnt=512,qdisc_bypass=0,fanout_mode=lb",
                "accepted",
            ),
            ("net_tap0,iface=tap0,mac=02:00:00:00:00:01", "accepted"),
            ("net_tap", "accepted"),
            ("mlx5_model0,wire=cable:a,device=cx5,loss=0.1,dv_flow_en=0,trace=summary", "accepted"),
            ("mlx5_0,mprq_en=1", "accepted"),
            ("0000:03:00.0", "accepted"),
            (
                "mlx5_model0,wires=null",
                "device 'mlx5_model0': unknown key 'wires', did you mean 'wire'?; allowed: wire, ",
            ),
            ("mlx5_0,wire=null", "device 'mlx5_0': unknown key 'wire'"),
            (
                "net_nul0",
                "device 'net_nul0': no such driver, did you mean 'net_null'?; drivers: net_null, net_ring, net_pcap, \
                 net_af_packet, net_tap, mlx5_model",
            ),
            (
                "net_pcap0",
                "device 'net_pcap0': needs rx_pcap=: such as rx_pcap=in.pcap, tx_pcap=out.pcap or iface=eth0",
            ),
            (
                "net_pcap0,iface=eth0,rx_pcap=a",
                "device 'net_pcap0': iface=eth0: stands for both directions: leave out the other keys or use rx_iface and \
                 tx_iface",
            ),
            ("net_pcap0,rx_pcap=", "device 'net_pcap0': rx_pcap=: has no value: write rx_pcap=VALUE"),
            ("net_af_packet0", "device 'net_af_packet0': needs iface=: such as iface=eth0"),
            (
                "net_af_packet0,iface=a,fanout_mode=x",
                "device 'net_af_packet0': fanout_mode=x: is not one of hash, lb, cpu, rollover, rnd, qm",
            ),
            (
                "net_af_packet0,iface=a,framesz=100",
                "device 'net_af_packet0': framesz=100: is not a multiple of 16",
            ),
            (
                "net_tap0,iface=a-name-that-is-too-long",
                "device 'net_tap0': iface=a-name-that-is-too-long: is no interface name: up to 15 bytes without '/' and \
                 blanks",
            ),
            (
                "net_ring0,size=3",
                "device 'net_ring0': unknown key 'size'; allowed: none; with any driver: fault, tee, trace",
            ),
        ];
        for (text, expected) in table {
            // The driver's own list of keys is long, and its own business.
            let said = refusal(text);
            let same = if text.starts_with("mlx5_") { said.starts_with(expected) } else { said == expected };
            assert!(same, "{text}: {said}");
        }
    }

    #[test]
    fn more_queues_than_were_opened_name_the_argument() {
        let mut spec = PortSpec::new("net_af_packet0,iface=eth0".parse().expect("a device"));
        let info = |driver| PortInfo { driver, max_rx_queues: 1, max_tx_queues: 1, ..PortInfo::default() };
        assert!(check_queues(&spec, &info("net_af_packet")).is_ok());
        spec.queues.rx_queues = 2;
        let line = check_queues(&spec, &info("net_af_packet")).expect_err("one queue").line();
        assert_eq!(
            line,
            "port net_af_packet0: 2 rx queues are asked for and it has 1: write qpairs=2 in its device argument"
        );
        let line = check_queues(&spec, &info("net_null")).expect_err("one queue").line();
        assert!(line.ends_with("2 rx queues are asked for and it has 1: ask for at most 1"), "{line}");
        spec.queues.rx_queues = 300;
        let line = check_queues(&spec, &info("net_af_packet")).expect_err("no argument gives as many").line();
        assert!(line.ends_with("it has 1: ask for at most 1"), "{line}");
    }
}
