//! The control handle's statistics.

use super::Port;
use crate::PortError;
use crate::stats::{self, Dropped, PortStats, Xstat};
use std::borrow::Cow;

impl Port {
    /// Returns the basic statistics since the last reset.
    #[doc(alias = "rte_eth_stats_get")]
    pub fn stats(&self) -> PortStats {
        let (rx, tx) = (self.shown.rx.len(), self.shown.tx.len());
        stats::basic(&self.xstats(), rx, tx)
    }

    /// Returns the extended statistics since the last reset. The ID of an xstat is its index in this list.
    #[doc(alias = "rte_eth_xstats_get")]
    pub fn xstats(&self) -> Vec<Xstat> {
        let raw = self.raw_stats();
        self.shown.baseline.apply(raw)
    }

    /// Returns the names of the xstats, indexed by ID.
    pub fn xstat_names(&self) -> Vec<String> {
        self.raw_stats().into_iter().map(|(name, _)| name.into_owned()).collect()
    }

    /// Returns the xstat with this name.
    pub fn xstat(&self, name: &str) -> Option<Xstat> {
        self.xstats().into_iter().find(|xstat| xstat.name == name)
    }

    /// Returns the xstats with these IDs, in order; `None` for an unknown ID.
    #[doc(alias = "rte_eth_xstats_get_by_id")]
    pub fn xstats_by_id(&self, ids: &[usize]) -> Vec<Option<Xstat>> {
        let all = self.xstats();
        ids.iter().map(|id| all.get(*id).cloned()).collect()
    }

    /// Disables an xstat (its value freezes) or enables it again. A device that has few counters may use the
    /// one that is freed for another. What happens while a number is off is never counted.
    ///
    /// The numbers of [`PortStats`] are always on: counting them costs nothing.
    ///
    /// # Errors
    /// [`PortError::Limit`] when there is no such id; [`PortError::Unsupported`] for a number that is always on; when gone
    /// or closed; when the driver refuses.
    pub fn set_xstat_enabled(&mut self, id: usize, on: bool) -> Result<(), PortError> {
        self.must_be_there("switch a counter")?;
        let raw = self.raw_stats();
        self.within("xstat id", id as u64, 0, (raw.len() as u64).saturating_sub(1))?;
        let Some((name, value)) = raw.into_iter().nth(id) else { return Ok(()) };
        if stats::is_basic(&name) {
            let reason = format!("{name} is one of the numbers that are always on");
            return Err(PortError::unsupported("switching a counter", reason).named(&self.name));
        }
        if self.shown.baseline.is_on(&name) != on {
            self.driver.lock().set_xstat_enabled(&name, on).map_err(|error| error.named(&self.name))?;
            self.shown.edit().baseline.switch(name, value, on);
        }
        Ok(())
    }

    /// Returns whether an xstat is enabled; `None` for an unknown ID.
    pub fn xstat_enabled(&self, id: usize) -> Option<bool> {
        let raw = self.raw_stats();
        raw.get(id).map(|(name, _)| self.shown.baseline.is_on(name))
    }

    /// Returns the packets dropped since the last reset, by reason; reasons that never occurred are left out.
    pub fn dropped(&self) -> Vec<Dropped> {
        stats::dropped(&self.xstats())
    }

    /// Resets all statistics to zero.
    #[doc(alias = "rte_eth_stats_reset")]
    pub fn reset_stats(&mut self) {
        let raw = self.raw_stats();
        self.shown.edit().baseline.set(raw);
    }

    fn raw_stats(&self) -> Vec<(Cow<'static, str>, u64)> {
        self.shown.raw_stats(&*self.driver.lock())
    }
}
