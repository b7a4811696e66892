//! Addresses and groups, and the modes that let in more.
//!
//! Rules decide what of a frame that came in reaches the queues. Of a virtual function the embedded switch decides first, by the
//! lists and modes of the function's interface: so these are told to it too, and taken back when the port closes. Source: DPDK
//! `drivers/net/mlx5/mlx5_mac.c`, `mlx5_set_mc_addr_list`; `drivers/net/mlx5/linux/mlx5_os.c`, `mlx5_os_mac_addr_add`,
//! `mlx5_os_mac_addr_flush`.

use pollux_port::{MacAddress, PortError};

use super::Mlx5Port;

impl Mlx5Port {
    /// Whether the interface is to be told.
    fn tells_netdev(&self) -> bool {
        self.arguments.netlink && self.netdev.is_virtual_function()
    }

    /// Tells the interface of an address, and remembers it if it was new there.
    fn tell(&mut self, mac: MacAddress) -> Result<(), PortError> {
        if self.tells_netdev() && !self.told.contains(&mac) {
            let told = self.netdev.set_further_mac(mac, true);
            if told.map_err(self.netdev_error("add an address"))? {
                self.told.push(mac);
            }
        }
        Ok(())
    }

    /// Takes back what was told of an address.
    fn untell(&mut self, mac: MacAddress) -> Result<(), PortError> {
        if self.told.contains(&mac) {
            let told = self.netdev.set_further_mac(mac, false);
            told.map_err(self.netdev_error("remove an address"))?;
            self.told.retain(|other| *other != mac);
        }
        Ok(())
    }

    pub(super) fn wants_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        if self.tells_netdev() {
            self.netdev.set_promiscuous(on).map_err(self.netdev_error("change promiscuous mode"))?;
        }
        self.want(|wanted| wanted.promiscuous = on)
    }

    pub(super) fn wants_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        if self.tells_netdev() {
            self.netdev.set_all_multicast(on).map_err(self.netdev_error("change all-multicast mode"))?;
        }
        self.want(|wanted| wanted.all_multicast = on)
    }

    pub(super) fn add_further(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.tell(mac)?;
        let done = self.want(|wanted| wanted.further.push(mac));
        if done.is_err() {
            let _why_it_failed_matters_more = self.untell(mac);
        }
        done
    }

    pub(super) fn remove_further(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.want(|wanted| wanted.further.retain(|other| *other != mac))?;
        self.untell(mac)
    }

    /// The groups that are let in from now on. What is new is told before rules are made for it, what goes is taken back after
    /// its rules are gone.
    pub(super) fn set_groups(&mut self, groups: &[MacAddress]) -> Result<(), PortError> {
        let before = self.wanted.groups.clone();
        let done = groups
            .iter()
            .try_for_each(|group| self.tell(*group))
            .and_then(|()| self.want(|wanted| wanted.groups = groups.to_vec()));
        let (kept, gone) = if done.is_ok() { (groups, &before[..]) } else { (&before[..], groups) };
        for group in gone.iter().filter(|group| !kept.contains(group)) {
            let taken = self.untell(*group);
            if done.is_ok() {
                taken?;
            }
        }
        done
    }

    /// Leaves the interface as it was before the port.
    pub(super) fn withdraw(&mut self) {
        if !self.tells_netdev() {
            return;
        }
        let gone = self.device.as_ref().is_none_or(|device| device.is_gone());
        for mac in std::mem::take(&mut self.told) {
            self.left_behind(gone, self.netdev.set_further_mac(mac, false).map(drop));
        }
        if std::mem::take(&mut self.wanted.promiscuous) {
            self.left_behind(gone, self.netdev.set_promiscuous(false));
        }
        if std::mem::take(&mut self.wanted.all_multicast) {
            self.left_behind(gone, self.netdev.set_all_multicast(false));
        }
    }

    /// An interface that goes with its device keeps nothing.
    fn left_behind(&self, gone: bool, taken: std::io::Result<()>) {
        if let Err(error) = taken
            && !gone
        {
            tracing::warn!(
                target: "pmd.net.mlx5", "{}: an address or mode of the port stays with it: {error}",
                self.netdev.name()
            );
        }
    }
}
