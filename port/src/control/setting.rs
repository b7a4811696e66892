//! What can be set on a port at any time: link, MTU, filters, addresses.

use super::Port;
use crate::{Fec, FecModes, Link, MacAddress, PortError, PortState, SpeedFec, SpeedLanes};

impl Port {
    /// Returns the link status.
    #[doc(alias = "rte_eth_link_get_nowait")]
    pub fn link(&mut self) -> Link {
        if matches!(self.state(), PortState::Gone | PortState::Closed) {
            return Link::default();
        }
        self.driver.lock().link(self.shown.state == PortState::Started)
    }

    /// Sets the link up or down.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; when the device refuses.
    #[doc(alias = "rte_eth_dev_set_link_up")]
    pub fn set_link_up(&mut self, up: bool) -> Result<(), PortError> {
        self.must_be_there("set the link")?;
        self.driver.lock().set_link_up(up).map_err(|error| error.named(&self.name))
    }

    /// Returns the supported numbers of lanes, by speed. [`Link::lanes`] is the current number.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; when the device refuses.
    pub fn lane_capabilities(&mut self) -> Result<Vec<SpeedLanes>, PortError> {
        self.must_be_there("read the lane capabilities")?;
        self.driver.lock().lane_capabilities().map_err(|error| error.named(&self.name))
    }

    /// Sets the number of lanes.
    ///
    /// # Errors
    /// When gone or closed; for 0 lanes; [`PortError::Unsupported`]; when the device refuses.
    pub fn set_lanes(&mut self, lanes: u16) -> Result<(), PortError> {
        self.must_be_there("set the lanes")?;
        self.within("number of lanes", lanes.into(), 1, u16::MAX.into())?;
        self.driver.lock().set_lanes(lanes).map_err(|error| error.named(&self.name))
    }

    /// Returns the supported FEC modes, by speed.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; when the device refuses.
    pub fn fec_capabilities(&mut self) -> Result<Vec<SpeedFec>, PortError> {
        self.must_be_there("read the FEC capabilities")?;
        self.driver.lock().fec_capabilities().map_err(|error| error.named(&self.name))
    }

    /// Returns the configured FEC modes and the active one.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; when the device refuses.
    pub fn fec(&mut self) -> Result<Fec, PortError> {
        self.must_be_there("read the FEC mode")?;
        self.driver.lock().fec().map_err(|error| error.named(&self.name))
    }

    /// Sets the FEC modes to choose from; [`FecModes::AUTO`] allows any mode that both link partners support.
    ///
    /// # Errors
    /// When gone or closed; for no mode, and for [`FecModes::OFF`] among others; [`PortError::Unsupported`]; when the
    /// device refuses.
    pub fn set_fec(&mut self, modes: FecModes) -> Result<(), PortError> {
        self.must_be_there("set the FEC mode")?;
        let wrong = |expected: &str| PortError::Argument {
            port: self.name.to_string(),
            key: "FEC".into(),
            value: modes.to_string(),
            expected: expected.into(),
        };
        if modes.is_empty() {
            return Err(wrong("name at least one of off, auto, baser, rs, llrs"));
        }
        if modes.contains(FecModes::OFF) && modes != FecModes::OFF {
            return Err(wrong("off stands alone"));
        }
        self.driver.lock().set_fec(modes).map_err(|error| error.named(&self.name))
    }

    /// Returns the MTU in bytes.
    ///
    /// # Errors
    /// When gone or closed; when the device does not tell.
    #[doc(alias = "rte_eth_dev_get_mtu")]
    pub fn mtu(&mut self) -> Result<u32, PortError> {
        self.must_be_there("read the MTU")?;
        self.driver.lock().mtu().map_err(|error| error.named(&self.name))
    }

    /// Sets the MTU.
    ///
    /// # Errors
    /// When gone or closed; outside the limits of [`Port::info`]; [`PortError::Unsupported`]; when the device refuses.
    #[doc(alias = "rte_eth_dev_set_mtu")]
    pub fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        self.must_be_there("set the MTU")?;
        self.within("MTU", mtu.into(), self.info.min_mtu.into(), self.info.max_mtu.into())?;
        self.driver.lock().set_mtu(mtu).map_err(|error| error.named(&self.name))
    }

    /// Returns whether promiscuous mode is enabled.
    #[must_use]
    pub fn promiscuous(&self) -> bool {
        self.shown.promiscuous
    }

    /// Enables or disables promiscuous mode.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; when the device refuses.
    #[doc(alias = "rte_eth_promiscuous_enable")]
    pub fn set_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        self.must_be_there("set promiscuous mode")?;
        self.driver.lock().set_promiscuous(on).map_err(|error| error.named(&self.name))?;
        self.shown.edit().promiscuous = on;
        Ok(())
    }

    /// Returns whether all-multicast mode is enabled.
    #[must_use]
    pub fn all_multicast(&self) -> bool {
        self.shown.all_multicast
    }

    /// Enables or disables all-multicast mode.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; when the device refuses.
    #[doc(alias = "rte_eth_allmulticast_enable")]
    pub fn set_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        self.must_be_there("set all-multicast mode")?;
        self.driver.lock().set_all_multicast(on).map_err(|error| error.named(&self.name))?;
        self.shown.edit().all_multicast = on;
        Ok(())
    }

    /// Returns the port's MAC address.
    ///
    /// # Errors
    /// When gone or closed; when the device does not tell.
    #[doc(alias = "rte_eth_macaddr_get")]
    pub fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        self.must_be_there("read the address")?;
        self.driver.lock().mac_address().map_err(|error| error.named(&self.name))
    }

    /// Sets the MAC address of the port.
    ///
    /// # Errors
    /// When gone or closed; when it is no unicast address; [`PortError::Unsupported`]; when the device refuses.
    #[doc(alias = "rte_eth_dev_default_mac_addr_set")]
    pub fn set_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.must_be_there("set the address")?;
        self.must_be_unicast(mac)?;
        self.driver.lock().set_mac_address(mac).map_err(|error| error.named(&self.name))
    }

    /// Returns the additional MAC addresses.
    #[must_use]
    pub fn further_mac_addresses(&self) -> &[MacAddress] {
        &self.shown.addresses.further
    }

    /// Adds a MAC address. Adding it again has no effect.
    ///
    /// # Errors
    /// When gone or closed; when it is no unicast address; past the limit; [`PortError::Unsupported`].
    #[doc(alias = "rte_eth_dev_mac_addr_add")]
    pub fn add_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.must_be_there("add an address")?;
        self.must_be_unicast(mac)?;
        if self.shown.addresses.further.contains(&mac) {
            return Ok(());
        }
        // A port that has no filter at all says so itself, with its reason.
        if self.info.max_mac_addresses > 1 {
            let count = self.shown.addresses.further.len() as u64 + 2;
            self.within("number of addresses", count, 1, self.info.max_mac_addresses as u64)?;
        }
        self.driver.lock().add_mac_address(mac).map_err(|error| error.named(&self.name))?;
        self.shown.edit().addresses.further.push(mac);
        Ok(())
    }

    /// Removes an additional MAC address.
    ///
    /// # Errors
    /// When gone or closed; when it was not added; when the device refuses.
    pub fn remove_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.must_be_there("remove an address")?;
        let Some(place) = self.shown.addresses.further.iter().position(|known| *known == mac) else {
            return Err(self.bad_address(mac, "one of the added addresses"));
        };
        self.driver.lock().remove_mac_address(mac).map_err(|error| error.named(&self.name))?;
        self.shown.edit().addresses.further.remove(place);
        Ok(())
    }

    /// Returns the multicast address list.
    #[must_use]
    pub fn multicast_list(&self) -> &[MacAddress] {
        &self.shown.addresses.multicast
    }

    /// Replaces the multicast address list.
    ///
    /// # Errors
    /// When gone or closed; when one is no group address; past the limit; [`PortError::Unsupported`].
    #[doc(alias = "rte_eth_dev_set_mc_addr_list")]
    pub fn set_multicast_list(&mut self, groups: &[MacAddress]) -> Result<(), PortError> {
        self.must_be_there("set the multicast list")?;
        if let Some(mac) = groups.iter().find(|mac| !mac.is_multicast()) {
            return Err(self.bad_address(*mac, "a multicast address"));
        }
        if self.info.max_multicast_addresses > 0 {
            self.within(
                "length of the multicast list",
                groups.len() as u64,
                0,
                self.info.max_multicast_addresses as u64,
            )?;
        }
        self.driver.lock().set_multicast_list(groups).map_err(|error| error.named(&self.name))?;
        self.shown.edit().addresses.multicast = groups.to_vec();
        Ok(())
    }
}
