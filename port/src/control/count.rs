//! The control handle's statistics.
use super::Port;
use crate::PortState;
use crate::stats::{self, Dropped, PortStats, Xstat};
use std::borrow::Cow;

impl Port {
    /// The basic numbers since the last reset.
    pub fn stats(&mut self) -> PortStats {
        let (rx, tx) = (self.rx.len(), self.tx.len());
        stats::basic(&self.xstats(), rx, tx)
    }

    /// All numbers since the last reset. A number's id is its place in this list.
    pub fn xstats(&mut self) -> Vec<Xstat> {
        let raw = self.raw_stats();
        self.baseline.apply(raw)
    }

    /// The names of the xstats, by id.
    pub fn xstat_names(&mut self) -> Vec<String> {
        self.raw_stats().into_iter().map(|(name, _)| name.into_owned()).collect()
    }

    /// The number of that name.
    pub fn xstat(&mut self, name: &str) -> Option<Xstat> {
        self.xstats().into_iter().find(|xstat| xstat.name == name)
    }

    /// The numbers of those ids, in that order; `None` for one that is not there.
    pub fn xstats_by_id(&mut self, ids: &[usize]) -> Vec<Option<Xstat>> {
        let all = self.xstats();
        ids.iter().map(|id| all.get(*id).cloned()).collect()
    }

    /// What the port dropped since the last reset, by reason; reasons that never occurred are left out.
    pub fn dropped(&mut self) -> Vec<Dropped> {
        stats::dropped(&self.xstats())
    }

    /// Numbers count from here.
    pub fn reset_stats(&mut self) {
        let raw = self.raw_stats();
        self.baseline.set(raw);
    }

    fn raw_stats(&mut self) -> Vec<(Cow<'static, str>, u64)> {
        if self.state != PortState::Closed {
            self.driver.update_counters();
        }
        let own = self.driver.xstats();
        stats::raw(
            self.rx.iter().map(|slot| &*slot.counters),
            self.tx.iter().map(|slot| &*slot.counters),
            own,
        )
    }
}
