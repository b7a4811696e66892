//! Every driver by its name: those of this workspace, and those that a program adds.

mod entry;
mod mlx5;
mod soft;

pub use mlx5::{Mlx5Card, ModelNetdev};

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use pollux_config::{ConfigError, DeviceArg, DeviceSpec, KeyReader, PortSpec, nearest};
use pollux_eal::Eal;
use pollux_mlx5_model::Model;
use pollux_port::driver::PortDriver;
use pollux_port::layer::{self, LayerSpec};
use pollux_port::{PortError, PortInfo};

use crate::error::BringupError;
use crate::exclusive::{Exclusive, Keys};
use crate::openable::{self, Openable};
use crate::rdma::device::RdmaDevice;
use crate::{file, interface};
use entry::{Entry, Open, OpenRdma, Origin};

pub(crate) use entry::Opened;

/// The drivers that a program opens ports with: those of this workspace, and its own beside them.
///
/// A device is opened by the driver with whose name its own begins; if there are several, by that of the longest name.
///
/// ```
/// use pollux_bringup::{Bringup, BringupError, Drivers};
/// use pollux_config::CommandLine;
/// use pollux_port_soft::null::{NullOptions, NullPort};
///
/// let mut drivers = Drivers::new();
/// drivers.add(
///     "net_fixed",
///     |keys| Ok(keys.number("size", 64..=1518)?.unwrap_or(64)),
///     |name, size, _| NullPort::new(name, NullOptions { size, ..NullOptions::default() }),
/// )?;
/// let line = CommandLine::parse(["app", "-l", "0", "--vdev", "net_fixed0,size=128"])?;
/// let bringup = Bringup::with_drivers(&line, drivers)?;
/// assert_eq!(bringup.ports.iter().next().map(|port| port.name()), Some("net_fixed0"));
/// # Ok::<(), BringupError>(())
/// ```
#[derive(Clone)]
pub struct Drivers {
    built_in: Vec<Entry>,
    own: Vec<Entry>,
}

/// The device model's driver.
const MODEL: &str = "mlx5_model";

/// Drivers whose ports have as many queues as an argument says, that argument, and the most that it takes.
const QUEUE_KEYS: &[(&str, &str, u16)] =
    &[("net_af_packet", "qpairs", 256), ("net_af_xdp", "queue_count", 256)];

/// Looks for the devices of one driver. `root` is `/` but for tests. It opens nothing for good and cannot fail: what it may
/// not look at is not there.
type Finder = fn(root: &Path) -> Vec<Openable>;

/// Hardware first, for it is what `-a` opens.
const FINDERS: &[Finder] = &[mlx5::openable, openable::interfaces];

/// The devices of this machine that some driver opens.
pub(crate) fn openable() -> Vec<Openable> {
    FINDERS.iter().flat_map(|find| find(Path::new("/"))).collect()
}

/// A device whose arguments are in order and that is not open yet.
pub(crate) struct Prepared {
    open: Open,
    layers: LayerSpec,
}

impl Prepared {
    pub(crate) fn open(self, name: &str, eal: &Eal) -> Result<Opened, PortError> {
        let Opened { driver, model, trace } = (self.open)(name, eal)?;
        let driver = layer::wrap(name, driver, &self.layers, pollux_port_soft::tee::open)?;
        Ok(Opened { driver, model, trace })
    }
}

/// What is opened when nothing is named.
pub(crate) fn usual_ports() -> Result<Vec<PortSpec>, ConfigError> {
    ["mlx5_model0,wire=source:64", "mlx5_model1,wire=source:64"]
        .into_iter()
        .map(|text| Ok(PortSpec::new(text.parse()?)))
        .collect()
}

impl Default for Drivers {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Drivers {
    /// Those of this workspace.
    #[must_use]
    pub fn new() -> Self {
        let mut built_in = soft::entries();
        let exclusive = &[("wire", Exclusive::WIRE), ("wire2", Exclusive::WIRE)];
        mlx5::carry();
        built_in.push(Entry { name: MODEL.into(), read: Arc::new(mlx5::model), exclusive });
        Self { built_in, own: Vec::new() }
    }

    /// Adds a driver by its name, `net_udp`: devices whose names begin so, `net_udp0`, are opened by it, whether `--vdev`, a profile or
    /// [`Bringup::reopen`](crate::Bringup::reopen) names them.
    ///
    /// `read` takes the device's keys before any memory or thread is made, so that a mistake is one line; a key that it did not ask
    /// for is refused by name. `open` opens the device under its name, with what `read` made of the keys. The layers' keys (`fault`,
    /// `tee`, `trace`) go to the layers and never come to `read`.
    ///
    /// # Errors
    /// [`BringupError::Driver`]: the name is none, is added twice, or its devices would be taken for those of a built-in driver.
    pub fn add<O, D>(
        &mut self,
        name: &str,
        read: impl Fn(&mut KeyReader<'_>) -> Result<O, ConfigError> + Send + Sync + 'static,
        open: impl Fn(&str, O, &Eal) -> Result<D, PortError> + Send + Sync + 'static,
    ) -> Result<&mut Self, BringupError>
    where
        O: 'static,
        D: PortDriver + 'static,
    {
        self.check_name(name).map_err(|problem| BringupError::Driver { name: name.into(), problem })?;
        self.own.push(Entry::of_port(Origin::Program(name), read, open));
        Ok(self)
    }

    /// Says which keys of a driver that was added name what two ports cannot share: an interface, a file. Two devices that name the same
    /// one, be it by another driver's key, are refused before either is opened. Without this, keys name nothing of the kind, and two ports
    /// may, say, have a queue each of one interface.
    ///
    /// ```
    /// # use pollux_bringup::{BringupError, Drivers, Exclusive};
    /// # use pollux_port_soft::null::{NullOptions, NullPort};
    /// # let mut drivers = Drivers::new();
    /// drivers
    ///     .add("net_own", |keys| keys.text("iface").map(drop), |name, (), _| NullPort::new(name, NullOptions::default()))?
    ///     .exclusive("net_own", &[("iface", Exclusive::INTERFACE)])?;
    /// # Ok::<(), BringupError>(())
    /// ```
    ///
    /// # Errors
    /// [`BringupError::Driver`]: no driver of that name was added.
    pub fn exclusive(
        &mut self,
        name: &str,
        keys: &'static [(&'static str, Exclusive)],
    ) -> Result<&mut Self, BringupError> {
        let added = self.own.iter_mut().find(|entry| entry.name == name);
        let Some(entry) = added else {
            let problem = "is not added: add it before its exclusive keys are named".into();
            return Err(BringupError::Driver { name: name.into(), problem });
        };
        entry.exclusive = keys;
        Ok(self)
    }

    /// All names, built-in ones first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries().map(|entry| &*entry.name)
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.built_in.iter().chain(&self.own)
    }

    /// Whether a driver of a program's own may be called so.
    fn check_name(&self, name: &str) -> Result<(), String> {
        // Hardware is called mlx5_0, 0000:03:00.0, ens3f0; a device's number ends its name.
        let plain = |rest: &str| {
            let letters = rest.bytes().all(|one| matches!(one, b'a'..=b'z' | b'0'..=b'9' | b'_'));
            letters && rest.bytes().next_back().is_some_and(|last| !last.is_ascii_digit())
        };
        if !name.strip_prefix("net_").is_some_and(plain) {
            let allowed = "is no driver's name: net_, then lowercase letters, digits and '_', no digit at the end, such as net_udp";
            return Err(allowed.into());
        }
        let hides = |entry: &&Entry| entry.name.starts_with(name) || name.starts_with(&entry.name);
        if let Some(entry) = self.built_in.iter().find(hides) {
            return Err(format!(
                "hides the built-in driver '{}', with which its devices' names would begin, too: choose another name",
                entry.name
            ));
        }
        if self.names().any(|other| other == name) {
            return Err("is added twice: give each driver a name of its own".into());
        }
        Ok(())
    }

    /// The driver of a device. As in DPDK, a device's name begins with its driver's.
    fn find(&self, device: &DeviceArg) -> Option<&Entry> {
        let named = self.entries().filter(|entry| device.name.starts_with(&entry.name));
        named.max_by_key(|entry| entry.name.len())
    }

    /// Finds the device's driver and reads its keys. What was named by `-a` has a name of hardware's.
    pub(crate) fn prepare(&self, device: &DeviceArg, devices: &DeviceSpec) -> Result<Prepared, BringupError> {
        let allowed = devices.allow.contains(device);
        let named = self.find(device);
        let nearest = nearest(&device.driver, self.names());
        // Systems call RDMA devices as they like (`rocep3s0f0`), and interfaces.
        let hardware =
            device.driver == "pci" || device.name.starts_with("mlx5_") || allowed && nearest.is_none();
        if named.is_none() && !hardware {
            return Err(BringupError::UnknownDriver {
                device: device.name.clone(),
                nearest: nearest.map(str::to_owned),
                drivers: self.names().collect::<Vec<_>>().join(", "),
            });
        }
        if named.is_none() {
            check_hardware(device, devices)?;
        }
        // Layers go round any driver, so their keys are not the driver's business.
        let (layers, device) = LayerSpec::take(device)?;
        let open = match named {
            Some(entry) => (entry.read)(&device),
            None => mlx5::real(&device),
        };
        Ok(Prepared { open: open.map_err(with_layers)?, layers })
    }

    /// Whether no driver of software's has the device.
    pub(crate) fn is_hardware(&self, device: &DeviceArg) -> bool {
        self.find(device).is_none()
    }

    /// The keys of the device's driver that name what two ports cannot share; none where no driver of software's has the device.
    pub(crate) fn exclusive_keys(&self, device: &DeviceArg) -> Option<Keys> {
        self.find(device).map(|entry| entry.exclusive)
    }

    /// Refuses devices that name what only one may have, before any of them is opened.
    pub(crate) fn check_exclusive<'a>(
        &self,
        devices: impl Iterator<Item = &'a DeviceArg> + Clone,
    ) -> Result<(), ConfigError> {
        file::check(devices.clone(), |device| self.exclusive_keys(device))?;
        interface::check(devices, |device| self.exclusive_keys(device))
    }

    /// Finds what opens the device as one of RDMA and reads its keys.
    pub(crate) fn prepare_rdma(
        &self,
        device: &DeviceArg,
        devices: &DeviceSpec,
    ) -> Result<OpenRdma, BringupError> {
        match self.find(device) {
            Some(entry) if entry.name == MODEL => Ok(mlx5::model_rdma(device)?),
            Some(_) => Err(BringupError::Usage(format!(
                "device '{}' does not support RDMA: use --vdev mlx5_model0, or an RDMA device of the kernel with -a",
                device.name
            ))),
            None => {
                check_hardware(device, devices)?;
                Ok(mlx5::real_rdma(device)?)
            }
        }
    }

    /// The RDMA side of a device whose port is open.
    pub(crate) fn rdma_beside(
        &self,
        device: &DeviceArg,
        model: Option<&Arc<Model>>,
        eal: &Eal,
    ) -> Result<RdmaDevice, BringupError> {
        match model {
            Some(model) => mlx5::rdma_of_model(&device.name, model, eal),
            None => self.prepare_rdma(device, &eal.spec().devices)?(&device.name, eal),
        }
    }
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
                "port {name}: {wanted} {way} queues requested, but it has {most}: {mend}"
            )))
        }
    }
}

/// Refuses hardware under `--no-pci`.
fn check_hardware(device: &DeviceArg, devices: &DeviceSpec) -> Result<(), ConfigError> {
    if !devices.no_pci {
        return Ok(());
    }
    let problem = "is hardware, which --no-pci disables: leave one of them out".into();
    Err(ConfigError::Device { text: device.name.clone(), problem })
}

/// A key that a driver does not know may have been meant for a layer.
fn with_layers(error: ConfigError) -> ConfigError {
    let ConfigError::UnknownKey { device, key, nearest: near, allowed } = error else { return error };
    let near = near.or_else(|| nearest(&key, layer::KEYS).map(str::to_owned));
    let allowed = format!("{allowed}; with all drivers: {}", layer::KEYS.join(", "));
    ConfigError::UnknownKey { device, key, nearest: near, allowed }
}

#[cfg(test)]
mod tests {
    use pollux_config::CommandLine;
    use pollux_port_soft::null::{NullOptions, NullPort};

    use super::*;
    use crate::Bringup;

    fn refusal(text: &str) -> String {
        Drivers::new()
            .prepare(&text.parse().unwrap(), &DeviceSpec::default())
            .err()
            .map(|error| error.line())
            .unwrap_or_else(|| "accepted".into())
    }

    #[test]
    fn what_is_allowed_is_hardware_unless_it_looks_like_a_driver() {
        let allowed = |text: &str| {
            let device: DeviceArg = text.parse().expect("a device");
            let devices = DeviceSpec { allow: vec![device.clone()], ..DeviceSpec::default() };
            Drivers::new().prepare(&device, &devices).is_ok()
        };
        assert!(allowed("rocep3s0f0,mprq_en=1") && allowed("ens3f0np0") && allowed("net_null0"));
        assert!(!allowed("net_nul0"));
        assert!(refusal("rocep3s0f0").contains("unknown driver"), "by --vdev");
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
            (
                "net_af_xdp0,iface=a,start_queue=1,queue_count=2,busy_budget=0,force_copy=1,use_cni=0,shared_umem=0",
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
                "device 'net_nul0': unknown driver, did you mean 'net_null'?; drivers: net_null, net_ring, net_pcap, \
                 net_af_packet, net_af_xdp, net_tap, mlx5_model",
            ),
            (
                "net_pcap0",
                "device 'net_pcap0': needs rx_pcap=: such as rx_pcap=in.pcap, tx_pcap=out.pcap or iface=eth0",
            ),
            (
                "net_pcap0,iface=eth0,rx_pcap=a",
                "device 'net_pcap0': iface=eth0: sets both directions: leave out the other keys, or use rx_iface and \
                 tx_iface",
            ),
            (
                "net_pcap0,rx_pacp=a",
                "device 'net_pcap0': unknown key 'rx_pacp', did you mean 'rx_pcap'?; allowed: rx_pcap, rx_iface, rx_iface_in, \
                 tx_pcap, tx_iface, iface, infinite_rx, phy_mac; with all drivers: fault, tee, trace",
            ),
            ("net_pcap0,rx_pcap=", "device 'net_pcap0': rx_pcap=: has no value: write rx_pcap=VALUE"),
            ("net_af_packet0", "device 'net_af_packet0': needs iface=: such as iface=eth0"),
            ("net_af_xdp0", "device 'net_af_xdp0': needs iface=: such as iface=eth0"),
            (
                "net_af_xdp0,iface=a,xdp_prog=x.o",
                "device 'net_af_xdp0': xdp_prog=x.o: is not supported: the port brings its own XDP program; leave the key out",
            ),
            (
                "net_af_xdp0,iface=a,use_cni=1",
                "device 'net_af_xdp0': use_cni=1: is not supported: the port brings its own XDP program; leave the key out",
            ),
            (
                "net_af_xdp0,iface=a,queue_count=0",
                "device 'net_af_xdp0': queue_count=0: is not a whole number from 1 to 256",
            ),
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
                "device 'net_tap0': iface=a-name-that-is-too-long: is not an interface name: give up to 15 bytes without '/' and \
                 spaces",
            ),
            (
                "net_ring0,size=3",
                "device 'net_ring0': unknown key 'size'; allowed: none; with all drivers: fault, tee, trace",
            ),
        ];
        for (text, expected) in table {
            // The driver's own list of keys is long, and its own business.
            let said = refusal(text);
            let same = if text.starts_with("mlx5_") { said.starts_with(expected) } else { said == expected };
            assert!(same, "{text}: {said}");
        }
    }

    /// A driver whose devices have one key.
    fn add<'a>(drivers: &'a mut Drivers, name: &str) -> Result<&'a mut Drivers, BringupError> {
        let open = |name: &str, _: Option<bool>, _: &Eal| NullPort::new(name, NullOptions::default());
        drivers.add(name, |keys| keys.flag("loud"), open)
    }

    #[test]
    fn a_driver_that_is_added_reads_its_own_keys() {
        let mut drivers = Drivers::new();
        add(&mut drivers, "net_own").and_then(|drivers| add(drivers, "net_own_fast")).expect("two names");
        let said = |text: &str| {
            let prepared = drivers.prepare(&text.parse().expect("a device"), &DeviceSpec::default());
            prepared.err().map(|error| error.line()).unwrap_or_else(|| "accepted".into())
        };
        for accepted in
            ["net_own0", "net_own", "net_own1,loud=1,trace=summary", "net_own_fast0,loud=0", "net_null0"]
        {
            assert_eq!(said(accepted), "accepted", "{accepted}");
        }
        assert_eq!(
            said("net_own0,laud=1"),
            "device 'net_own0': unknown key 'laud', did you mean 'loud'?; allowed: loud; with all drivers: fault, tee, trace"
        );
        assert_eq!(said("net_own0,loud=2"), "device 'net_own0': loud=2: must be 0 or 1");
        assert_eq!(
            said("net_onw0"),
            "device 'net_onw0': unknown driver, did you mean 'net_own'?; drivers: net_null, net_ring, net_pcap, net_af_packet, \
             net_af_xdp, net_tap, mlx5_model, net_own, net_own_fast"
        );
        let device: DeviceArg = "net_own0".parse().expect("a device");
        assert!(!drivers.is_hardware(&device) && Drivers::new().is_hardware(&device));
        let refused = drivers.prepare_rdma(&device, &DeviceSpec::default()).err().expect("frames alone");
        assert!(refused.line().starts_with("device 'net_own0' does not support RDMA"), "{}", refused.line());
    }

    #[test]
    fn a_driver_of_ones_own_says_which_keys_are_exclusive() {
        let mut drivers = Drivers::new();
        let open = |name: &str, (), _: &Eal| NullPort::new(name, NullOptions::default());
        let read = |keys: &mut KeyReader<'_>| {
            ["iface", "queue", "tx_pcap"].into_iter().try_for_each(|key| keys.text(key).map(drop))
        };
        drivers.add("net_xdp", read, open).expect("a name");
        let said = |drivers: &Drivers, devices: [&str; 2]| {
            let [one, other] = devices.map(|device| format!("--vdev {device}"));
            let line = format!("own -l 0 --no-huge {one} {other}");
            let line = CommandLine::parse(line.split(' ')).expect("a line");
            let opened = Bringup::with_drivers(&line, drivers.clone());
            opened.err().map(|error| error.line()).unwrap_or_else(|| "accepted".into())
        };
        let queues = ["net_xdp0,iface=lo,queue=0,tx_pcap=h6same", "net_xdp1,iface=lo,queue=1,tx_pcap=h6same"];
        let packets = ["net_xdp0,iface=lo", "net_pcap1,iface=lo"];
        let files = ["net_xdp0,tx_pcap=h6same", "net_xdp1,tx_pcap=h6same"];
        assert_eq!(said(&drivers, queues), "accepted", "its keys are its own business");

        let keys = &[("iface", Exclusive::INTERFACE), ("tx_pcap", Exclusive::WRITTEN_FILE)];
        drivers.exclusive("net_xdp", keys).expect("an added driver");
        for (devices, refusal) in [
            (queues, "device 'net_xdp1': tx_pcap=h6same: is also tx_pcap of 'net_xdp0', "),
            (
                ["net_xdp0,iface=lo", "net_xdp1,iface=lo"],
                "device 'net_xdp1': iface=lo: is also used by 'net_xdp0': ",
            ),
            (packets, "device 'net_pcap1': iface=lo: is also used by 'net_xdp0': "),
            (files, "device 'net_xdp1': tx_pcap=h6same: is also tx_pcap of 'net_xdp0', "),
        ] {
            let line = said(&drivers, devices);
            assert!(line.starts_with(refusal), "{devices:?}: {line}");
        }
        let refused = drivers.exclusive("net_pcap", &[]).expect_err("a built-in driver").line();
        assert!(refused.starts_with("driver 'net_pcap': is not added"), "{refused}");
    }

    #[test]
    fn the_longest_name_has_the_device() {
        let mut drivers = Drivers::new();
        let open = |name: &str, (), _: &Eal| NullPort::new(name, NullOptions::default());
        drivers.add("net_own", |keys| keys.flag("a").map(drop), open).expect("a name");
        drivers.add("net_own_b", |keys| keys.flag("b").map(drop), open).expect("a name");
        let takes =
            |text: &str| drivers.prepare(&text.parse().expect("a device"), &DeviceSpec::default()).is_ok();
        assert!(takes("net_own0,a=1") && takes("net_own_b0,b=1") && takes("net_own_a0,a=1"));
        assert!(!takes("net_own0,b=1") && !takes("net_own_b0,a=1"));
    }

    #[test]
    fn names_of_drivers_are_plain_and_their_own() {
        let mut drivers = Drivers::new();
        let before = drivers.names().count();
        add(&mut drivers, "net_own").expect("a name");
        let mut said =
            |name: &str| add(&mut drivers, name).err().map(|error| error.line()).unwrap_or_default();
        assert_eq!(said("net_own"), "driver 'net_own': is added twice: give each driver a name of its own");
        for (name, hidden) in [
            ("net_null", "net_null"),
            ("net_null_fast", "net_null"),
            ("net_ta", "net_tap"),
            ("net_n", "net_null"),
        ] {
            assert_eq!(
                said(name),
                format!(
                    "driver '{name}': hides the built-in driver '{hidden}', with which its devices' names would begin, too: \
                     choose another name"
                )
            );
        }
        for name in ["", "udp", "net_", "net_udp6", "net_Udp", "net_u-p", "mlx5", "mlx5_model"] {
            assert!(
                said(name).starts_with(&format!("driver '{name}': is no driver's name: net_, then")),
                "{name}"
            );
        }
        assert_eq!(drivers.names().count(), before + 1, "what is refused is not added");
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
            "port net_af_packet0: 2 rx queues requested, but it has 1: write qpairs=2 in its device argument"
        );
        let line = check_queues(&spec, &info("net_null")).expect_err("one queue").line();
        assert!(line.ends_with("2 rx queues requested, but it has 1: ask for at most 1"), "{line}");
        spec.queues.rx_queues = 300;
        let line = check_queues(&spec, &info("net_af_packet")).expect_err("no argument gives as many").line();
        assert!(line.ends_with("it has 1: ask for at most 1"), "{line}");
    }
}
