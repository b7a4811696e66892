//! Locked memory: what is pinned, what will be, and the limit.
//!
//! A kernel counts the pages of all devices of a process together, so this driver does as well. Where a device has a limit of
//! its own (a model may) that device's sum is told.

use std::sync::atomic::{AtomicU64, Ordering};

/// What pinned memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Packets.
    Pool,
    /// Rings and doorbell records.
    Queue,
}

/// Bytes that are pinned.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pools: AtomicU64,
    queues: AtomicU64,
}

/// What pools lack that were refused when they were made, of all devices of the process: their queues will ask again.
static LACKING: AtomicU64 = AtomicU64::new(0);

/// Of all devices of the process.
static PROCESS: Account = Account { pools: AtomicU64::new(0), queues: AtomicU64::new(0) };

impl Account {
    fn of(&self, kind: Pinning) -> &AtomicU64 {
        match kind {
            Pinning::Pool => &self.pools,
            Pinning::Queue => &self.queues,
        }
    }

    /// What there is for packets, and for queues.
    pub(crate) fn both(&self) -> (u64, u64) {
        (self.pools.load(Ordering::Relaxed), self.queues.load(Ordering::Relaxed))
    }
}

/// A device's share of the account.
#[derive(Debug, Default)]
pub struct Share {
    own: Account,
    /// What its queues will take in all, those included that there are.
    planned: AtomicU64,
    /// Its part of what pools lack.
    lacking: AtomicU64,
}

/// What is short, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Pinned for packets.
    pub pools: u64,
    /// Pinned for rings and doorbell records.
    pub queues: u64,
    /// What was to be pinned now.
    pub wanted: u64,
    /// What the device's other queues will need, and pools of the process that were refused before.
    pub to_come: u64,
    /// The limit.
    pub limit: u64,
}

impl Shortage {
    /// What is needed in all.
    #[must_use]
    pub fn needed(&self) -> u64 {
        self.pools + self.queues + self.wanted + self.to_come
    }
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Each rounded up, so that a limit set to what is said is enough.
        let kib = |bytes: u64| bytes.div_ceil(1024);
        write!(
            f,
            "{} KiB of locked memory are needed ({} KiB in pools, {} KiB in queues and doorbell records, {} KiB now, {} KiB to \
             come), the limit is {} KiB; `ulimit -l {}` in the shell before, or LimitMEMLOCK={}K in the unit, raises it, \
             and CAP_IPC_LOCK lifts it{}",
            kib(self.needed()),
            kib(self.pools),
            kib(self.queues),
            kib(self.wanted),
            kib(self.to_come),
            self.limit / 1024,
            kib(self.needed()),
            kib(self.needed()),
            // The kernel says ENOMEM of a limit of the device's as well.
            if self.needed() <= self.limit {
                "; as that fits, other code of this process has locked memory too, or the device has reached a limit of its \
                 own (`dmesg`)"
            } else {
                ""
            },
        )
    }
}

impl Share {
    /// So much more is pinned.
    pub fn add(&self, kind: Pinning, bytes: u64) {
        for account in [&self.own, &PROCESS] {
            account.of(kind).fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// So much less.
    pub(crate) fn sub(&self, kind: Pinning, bytes: u64) {
        for account in [&self.own, &PROCESS] {
            account.of(kind).fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Its queues will take `bytes` beside what is pinned for queues now.
    pub fn plan(&self, bytes: u64) {
        self.planned.store(self.own.both().1 + bytes, Ordering::Relaxed);
    }

    /// A pool was refused `bytes`: a queue that needs it will ask again, and then nothing is lacking (`asked_again`).
    pub fn lack(&self, bytes: u64) {
        self.lacking.fetch_add(bytes, Ordering::Relaxed);
        LACKING.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What was lacking is asked for now.
    pub(crate) fn asked_again(&self) {
        LACKING.fetch_sub(self.lacking.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// `wanted` more of a kind are not to be had: under `limit`, which is the device's own or the process's.
    pub(crate) fn shortage(&self, kind: Pinning, wanted: u64, limit: u64, own: bool) -> Shortage {
        let (pools, queues) = if own { self.own.both() } else { PROCESS.both() };
        let now = if kind == Pinning::Pool { 0 } else { wanted };
        let queues_to_come = self.planned.load(Ordering::Relaxed).saturating_sub(self.own.both().1 + now);
        let lacking = if own { &self.lacking } else { &LACKING };
        let to_come = queues_to_come + lacking.load(Ordering::Relaxed);
        Shortage { pools, queues, wanted, to_come, limit }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.asked_again();
        // What a device did not give back goes with its file.
        let (pools, queues) = self.own.both();
        self.sub(Pinning::Pool, pools);
        self.sub(Pinning::Queue, queues);
    }
}

/// The limit in bytes; `None` when there is none, or nobody tells.
pub fn limit() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

/// Source: proc(5), `/proc/pid/limits`.
fn parse(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Pinning, Share};

    #[test]
    fn the_sum_has_what_is_to_come() {
        let share = Share::default();
        share.add(Pinning::Queue, 4096);
        share.plan(20_000);
        share.add(Pinning::Pool, 100_000);
        share.add(Pinning::Queue, 8000);
        let queue = share.shortage(Pinning::Queue, 2000, 1 << 20, true);
        assert_eq!((queue.pools, queue.queues, queue.to_come), (100_000, 12_096, 10_000));
        assert_eq!(queue.needed(), 124_096);
        let pool = share.shortage(Pinning::Pool, 2000, 1 << 20, true);
        assert_eq!(pool.to_come, 12_000, "a pool is none of the queues that were planned");
        let said = pool.to_string();
        assert!(
            said.contains("124 KiB of locked memory are needed (98 KiB in pools, 12 KiB in queues"),
            "{said}"
        );
        assert!(said.contains("12 KiB to come), the limit is 1024 KiB; `ulimit -l 124`"), "{said}");
        assert!(said.contains("lifts it; as that fits, other code of this process"), "{said}");
        let short = super::Shortage { limit: pool.needed() - 1, ..pool }.to_string();
        assert!(short.ends_with("and CAP_IPC_LOCK lifts it"), "{short}");
        share.lack(1000);
        assert_eq!(share.shortage(Pinning::Pool, 2000, 1 << 20, true).to_come, 13_000);
        share.asked_again();
        share.sub(Pinning::Queue, 12_096);
        assert_eq!(share.shortage(Pinning::Queue, 0, 0, true).to_come, 24_096);
    }

    #[test]
    fn the_soft_limit_is_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             1                    2                    processes \n\
                    Max locked memory         8388608              unlimited            bytes     \n";
        assert_eq!(super::parse(text), Some(8_388_608));
        assert_eq!(super::parse(&text.replace("8388608", "unlimited")), None);
        assert_eq!(super::parse(""), None);
    }
}
