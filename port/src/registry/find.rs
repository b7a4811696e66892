//! Ports by name, and by what a device argument says of them.

use super::Ports;
use crate::{MacAddress, Port, PortError, PortId};
use pollux_config::DeviceArg;

/// The keys of [`Ports::matching`].
const KEYS: [&str; 3] = ["driver", "mac", "name"];

impl Ports {
    /// The port of that name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Port> {
        self.iter_all().find(|port| port.name() == name)
    }

    /// The port that `text` means: a name, or else a number.
    ///
    /// # Errors
    /// [`PortError::NoPort`], with the names there are.
    pub fn find(&self, text: &str) -> Result<PortId, PortError> {
        let by_number = || text.parse().ok().and_then(|number| self.get(PortId(number)));
        let found = self.by_name(text).or_else(by_number).map(Port::id);
        found.ok_or_else(|| self.no_port(text))
    }

    /// All ports, whoever owns them, that `text` means, in order of creation: a device argument as it was given to open
    /// them (`net_null0,size=64`: the port of that name), or conditions that all must hold, of `name=`, `driver=` and
    /// `mac=` (`driver=net_null`; `class=eth` before them, as in DPDK, says nothing more).
    ///
    /// # Errors
    /// [`PortError::Argument`] for a condition that is none.
    pub fn matching(&mut self, text: &str) -> Result<Vec<PortId>, PortError> {
        let first = text.split([',', '/']).next().unwrap_or_default();
        if !first.contains('=') {
            let wrong = |problem: String| wrong("device", text, problem);
            let device: DeviceArg = text.parse().map_err(|error| wrong(format!("{error}")))?;
            return Ok(self.by_name(&device.name).map(Port::id).into_iter().collect());
        }
        let mut wanted = Wanted::default();
        for condition in text.split([',', '/']) {
            wanted.read(condition)?;
        }
        Ok(self.iter_all_mut().filter_map(|port| wanted.holds(port).then_some(port.id())).collect())
    }
}

/// What must hold of a port.
#[derive(Default)]
struct Wanted<'a> {
    name: Option<&'a str>,
    driver: Option<&'a str>,
    mac: Option<MacAddress>,
}

impl<'a> Wanted<'a> {
    fn read(&mut self, condition: &'a str) -> Result<(), PortError> {
        let (key, value) = condition.split_once('=').unwrap_or((condition, ""));
        match key {
            "name" => self.name = Some(value),
            "driver" => self.driver = Some(value),
            "mac" => {
                let mac = value.parse().map_err(|error| wrong("mac", value, format!("{error}")))?;
                self.mac = Some(mac);
            }
            "class" if value == "eth" => {}
            _ => {
                let problem = format!("unknown condition; conditions: {}", KEYS.join(", "));
                return Err(wrong(key, value, problem));
            }
        }
        Ok(())
    }

    fn holds(&self, port: &mut Port) -> bool {
        self.name.is_none_or(|name| port.name() == name)
            && self.driver.is_none_or(|driver| port.info().driver == driver)
            // One that does not tell its address has none that could be meant.
            && self.mac.is_none_or(|mac| port.mac_address().is_ok_and(|own| own == mac))
    }
}

fn wrong(key: &str, value: &str, expected: String) -> PortError {
    PortError::Argument { port: "any".into(), key: key.into(), value: value.into(), expected }
}
