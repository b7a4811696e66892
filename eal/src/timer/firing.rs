//! What a timer's callback is told, and may decide.

/// What a callback sees, and may decide, of the firing it is called for.
#[derive(Debug)]
pub struct Firing {
    pub(super) now: u64,
    pub(super) deadline: u64,
    pub(super) again: Option<(u64, u64)>,
}

impl Firing {
    /// The time given to `manage`.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The time that this firing was armed for.
    #[must_use]
    pub fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Arms this timer again, once, at `deadline`; with the next `manage` at the earliest.
    pub fn arm(&mut self, deadline: u64) {
        self.again = Some((deadline, 0));
    }

    /// Arms this timer again, periodic.
    pub fn arm_periodic(&mut self, first: u64, period: u64) {
        self.again = Some((first, period.max(1)));
    }

    /// Does not arm this timer again: ends a periodic one.
    pub fn stop(&mut self) {
        self.again = None;
    }
}
