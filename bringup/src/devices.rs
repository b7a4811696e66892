//! Devices that come and go while the program runs.

use std::sync::Arc;

use pollux_config::{DeviceArg, PortSpec};
use pollux_mlx5_model::Model;
use pollux_port::PortId;

use crate::Bringup;
use crate::driver::{Opened, Prepared};
use crate::error::BringupError;

/// What is behind a port.
#[derive(Debug)]
pub(crate) struct Device {
    /// What was said of it.
    pub(crate) spec: PortSpec,
    /// What stands in for hardware, if anything does.
    pub(crate) model: Option<Arc<Model>>,
}

impl Bringup {
    /// Closes a port, whatever became of its device, and opens the device that was named for it again, under the same number and
    /// name: a device that was removed and is back, say. The port is to be started anew, with [`Bringup::start_ports`]. Its queues
    /// are to be dropped before: a device that is gone may reach their buffers until its file is closed, and it is closed with the
    /// last of them.
    ///
    /// # Errors
    /// [`BringupError::NoPort`] for a number that was never given; what opening says, and then the port is not there until this
    /// is called again with success.
    pub fn reopen(&mut self, id: PortId) -> Result<(), BringupError> {
        let spec = self.spec(id)?.clone();
        // A device that is gone refuses; what there was of it goes here all the same.
        drop(self.ports.remove_to_reopen(id));
        self.devices[usize::from(id.0)] = Some(Device { spec: spec.clone(), model: None });
        let prepared = self.prepare(&spec.device)?;
        self.open(Some(id), spec, prepared).map(drop)
    }

    /// Opens one more device, as `--vdev` or `-a` name them (`net_pcap1,rx_pcap=a.pcap`, `0000:03:00.1`), under the lowest number that no
    /// port has. The port is to be configured by the program, as are those that [`Bringup::start_ports`] was not told to start.
    ///
    /// # Errors
    /// [`BringupError`], one line: the text names no device, a port has that name or what only one port may have, or what opening
    /// says. Nothing has changed then.
    #[doc(alias = "rte_dev_probe")]
    pub fn attach(&mut self, device: &str) -> Result<PortId, BringupError> {
        let device: DeviceArg = device.parse()?;
        let name = device.name.as_str();
        self.line.eal.devices.check_blocked(&device)?;
        let prepared = self.prepare(&device)?;
        let present = self.devices.iter().flatten().map(|present| &present.spec.device);
        self.drivers.check_exclusive(present.chain([&device]))?;
        if let Some(taken) = self.ports.by_name(name) {
            return Err(BringupError::Usage(format!(
                "device '{name}': port {} has that name: detach it first, or choose another name",
                taken.id()
            )));
        }
        let free = (0..)
            .map(PortId)
            .zip(&self.devices)
            .find(|(id, device)| device.is_none() && self.ports.get(*id).is_none());
        self.open(free.map(|(id, _)| id), PortSpec::new(device), prepared)
    }

    /// Reads what was said of a device. It may be hardware: what is not a driver's name is, as if it had been given to `-a`.
    fn prepare(&self, device: &DeviceArg) -> Result<Prepared, BringupError> {
        let mut devices = self.line.eal.devices.clone();
        devices.allow.push(device.clone());
        self.drivers.prepare(device, &devices)
    }

    /// Opens a device under a number that had one before, or under a new one.
    pub(crate) fn open(
        &mut self,
        id: Option<PortId>,
        spec: PortSpec,
        prepared: Prepared,
    ) -> Result<PortId, BringupError> {
        let name = &spec.device.name;
        let Opened { driver, model, trace } =
            prepared.open(name, &self.eal).map_err(|error| error.named(name))?;
        let id = match id {
            Some(id) => self.ports.put_back(id, name, driver).map(|()| id)?,
            None => self.ports.add(name, driver)?,
        };
        self.modelled.put(name, model.as_ref());
        self.traces.put(name, trace);
        let place = usize::from(id.0);
        // Ports that the program itself added have no device here.
        self.devices.resize_with(self.devices.len().max(place + 1), || None);
        self.devices[place] = Some(Device { spec, model });
        Ok(id)
    }

    /// The device of a port.
    pub(crate) fn device(&self, id: PortId) -> Result<&Device, BringupError> {
        let device = self.devices.get(usize::from(id.0)).and_then(Option::as_ref);
        device.ok_or(BringupError::NoPort { port: id.0 })
    }

    /// Closes a port for good and lets go of its device; its number may be given to the next that is attached. Its queues are to be dropped
    /// before, as for [`Bringup::reopen`].
    ///
    /// # Errors
    /// [`BringupError::NoPort`].
    #[doc(alias = "rte_dev_remove")]
    pub fn detach(&mut self, id: PortId) -> Result<(), BringupError> {
        let device = self.devices.get_mut(usize::from(id.0)).and_then(Option::take);
        let device = device.ok_or(BringupError::NoPort { port: id.0 })?;
        drop(self.ports.remove(id));
        self.modelled.put(&device.spec.device.name, None);
        // Its trace goes with its context: one for RDMA of the same name may still be open.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pollux_config::CommandLine;

    use super::*;

    #[test]
    fn devices_come_and_go_under_numbers_of_their_own() {
        let line = "devices -l 0 --no-huge --no-telemetry --vdev net_null0 --vdev net_null1";
        let line = CommandLine::parse(line.split(' ')).expect("a line");
        let mut bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let names = |bringup: &Bringup| {
            bringup.ports.iter().map(|port| (port.id().0, port.name().to_owned())).collect::<Vec<_>>()
        };
        let refused = |bringup: &mut Bringup, device: &str| {
            let error = bringup.attach(device).map(|id| id.0).expect_err(device);
            error.line()
        };
        assert_eq!(bringup.attach("net_ring0").ok(), Some(PortId(2)));
        bringup.detach(PortId(0)).expect("there");
        assert!(bringup.detach(PortId(0)).is_err() && bringup.spec(PortId(0)).is_err());
        assert!(refused(&mut bringup, "net_null1").contains("port 1 has that name"));
        assert!(refused(&mut bringup, "net_nul3").contains("did you mean 'net_null'"));
        assert!(refused(&mut bringup, "net_null3,sise=1").contains("unknown key 'sise'"));
        assert!(refused(&mut bringup, "net_pcap0,rx_pcap=/nowhere/a.pcap").contains("/nowhere/a.pcap"));
        assert_eq!(names(&bringup).len(), 2, "a refusal changes nothing");
        // The lowest number that is free, and then a new one.
        assert_eq!(bringup.attach("mlx5_model0,wire=null").ok(), Some(PortId(0)));
        assert!(bringup.ledger(PortId(0)).is_some());
        assert_eq!(bringup.attach("net_null0").ok(), Some(PortId(3)));
        assert!(bringup.reopen(PortId(3)).is_ok());
        let all = [(0, "mlx5_model0"), (1, "net_null1"), (2, "net_ring0"), (3, "net_null0")];
        assert_eq!(names(&bringup), all.map(|(id, name)| (id, name.to_owned())));
    }

    #[test]
    fn the_calls_of_a_context_for_rdma_can_be_watched_without_its_port() {
        let line = "devices -l 0 --no-huge --no-telemetry --vdev mlx5_model0,wire=null";
        let line = CommandLine::parse(line.split(' ')).expect("a line");
        let mut bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let beside = bringup.rdma(PortId(0)).unwrap_or_else(|error| panic!("{}", error.line()));
        bringup.detach(PortId(0)).expect("there");
        let traces = |bringup: &Bringup| bringup.eal.telemetry().ask("/uverbs/trace");
        assert_eq!(traces(&bringup), r#"{"/uverbs/trace":{"mlx5_model0":false}}"#);
        drop(beside);
        assert_eq!(traces(&bringup), r#"{"/uverbs/trace":{}}"#);
    }

    #[test]
    fn what_a_detached_device_had_to_itself_is_free() {
        let folder = tempfile::tempdir().expect("a folder");
        let device =
            |number: u8| format!("net_pcap{number},tx_pcap={}", folder.path().join("a.pcap").display());
        let first = device(0);
        let line = ["devices", "-l", "0", "--no-huge", "--no-telemetry", "--vdev", &first];
        let line = CommandLine::parse(line).expect("a line");
        let mut bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let error = bringup.attach(&device(1)).map(|id| id.0).expect_err("the file is taken");
        assert!(error.line().contains("is also tx_pcap of 'net_pcap0'"), "{}", error.line());
        bringup.detach(PortId(0)).expect("there");
        assert_eq!(bringup.attach(&device(1)).ok(), Some(PortId(0)));
    }
}
