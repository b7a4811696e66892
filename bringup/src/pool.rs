//! How many packet buffers a set of queues needs.

use pollux_config::{ConfigError, PoolSpec, QueueSpec};
use pollux_eal::memory::Memory;
use pollux_eal::region::MemoryError;
use pollux_mempool::{BURST_MAX, Backend, MbufPool};
use pollux_port::PortInfo;

use crate::BringupError;

/// Mbufs that one lcore's cache holds nominally: DPDK's examples take 256.
const CACHE: usize = 256;

/// A frame that the kernel has not cut up yet, in mbufs of the usual size: 64 KiB.
const MBUFS_OF_A_LARGE_FRAME: usize = 32;

/// Packets that apps take from a queue at once.
const BURST: usize = 32;

/// How pools are made, as the command line has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// What holds the mbufs that are in no cache.
    pub backend: Backend,
    /// Watch for double frees and overruns.
    pub debug: bool,
}

impl PoolOptions {
    /// What `spec` asks for, and a warning where something else serves.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: there is no such back end.
    pub fn new(spec: &PoolSpec) -> Result<(Self, Option<String>), ConfigError> {
        const OPTION: &str = "--mbuf-pool-ops-name";
        let with = |backend| Self { backend, debug: spec.debug };
        match spec.backend.as_deref() {
            None => Ok((with(Backend::default()), None)),
            // The other name that DPDK has for a stack (`drivers/mempool/stack`).
            Some("lf_stack") => {
                let warning = format!("option '{OPTION}': there is no lock-free stack; 'stack' is used");
                Ok((with(Backend::Stack), Some(warning)))
            }
            Some(name) => match Backend::by_name(name) {
                Some(backend) => Ok((with(backend), None)),
                None => Err(ConfigError::Value {
                    option: OPTION.into(),
                    value: name.into(),
                    problem: format!("is not one of {}", Backend::ALL.map(Backend::name).join(", ")),
                }),
            },
        }
    }
}

/// The mbufs that queues, caches and bursts may hold at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    rx: usize,
    tx: usize,
    lcores: usize,
    rx_queues: usize,
    /// Of these, queues whose frames may be larger than an mbuf.
    large: usize,
    tx_queues: usize,
    /// A port receives frames that are cut before they leave.
    cuts: bool,
    /// Room for the longest frame that a port must take in one mbuf.
    room: usize,
    /// Mbufs that one lcore's cache holds nominally.
    cache: usize,
}

impl Needs {
    /// Nothing yet, for that many polling lcores.
    #[must_use]
    pub fn for_lcores(lcores: usize) -> Self {
        Self {
            rx: 0,
            tx: 0,
            lcores: lcores.max(1),
            rx_queues: 0,
            large: 0,
            tx_queues: 0,
            cuts: false,
            room: 0,
            cache: CACHE,
        }
    }

    /// Sets the mbufs that one lcore's cache holds nominally, 0 for none. 256 otherwise.
    #[must_use]
    pub fn cache(self, count: usize) -> Self {
        Self { cache: count, ..self }
    }

    /// Adds a port: all descriptors of all its queues may hold an mbuf.
    pub fn add_port(&mut self, info: &PortInfo, queues: &QueueSpec) {
        let all = |queues: u16, descriptors: u16| usize::from(queues) * usize::from(descriptors);
        if info.rx_holds_mbufs {
            self.rx += all(queues.rx_queues, info.rx_descriptors.adjust(queues.rx_descriptors));
        }
        self.tx += all(queues.tx_queues, info.tx_descriptors.adjust(queues.tx_descriptors));
        self.rx_queues += usize::from(queues.rx_queues);
        self.tx_queues += usize::from(queues.tx_queues);
        self.cuts |= queues.rx_queues > 0 && !info.rx_open.is_empty();
        // Interfaces and files give what they have, whatever the MTU.
        self.large += if info.device.is_some() { usize::from(queues.rx_queues) } else { 0 };
        self.room = self.room.max(info.min_rx_room);
    }

    /// All of them.
    #[must_use]
    pub fn mbufs(&self) -> usize {
        self.rx + self.tx + self.in_caches() + self.in_bursts()
    }

    /// A cache holds up to half as many again as its nominal size; the control thread may have one too.
    fn in_caches(&self) -> usize {
        (self.lcores + 1) * self.cache * 3 / 2
    }

    /// One burst is held back for each queue while its destination is full, and one is on its way; where frames may have to be
    /// cut, a tx queue has a burst of the segments that it cuts one into.
    fn in_bursts(&self) -> usize {
        let segments = if self.cuts { BURST_MAX * self.tx_queues } else { 0 };
        2 * BURST_MAX * self.rx_queues + BURST * MBUFS_OF_A_LARGE_FRAME * self.large + segments
    }

    /// A pool of `wanted` mbufs, or of as many as are needed if that is 0.
    ///
    /// # Errors
    /// [`BringupError::PoolTooSmall`], or what the pool says.
    pub fn pool(
        &self,
        memory: &Memory,
        wanted: usize,
        options: PoolOptions,
    ) -> Result<MbufPool, BringupError> {
        let needs = self.mbufs();
        if wanted != 0 && wanted < needs {
            let parts = format!(
                "rx queues {}, tx queues {}, caches {}, bursts {}",
                self.rx,
                self.tx,
                self.in_caches(),
                self.in_bursts()
            );
            return Err(BringupError::PoolTooSmall { has: wanted, needs, parts });
        }
        let count = if wanted == 0 { needs } else { wanted };
        self.pool_of(memory, count, 0, options)
    }

    /// A pool of exactly `count` mbufs, be they too few, of `bytes` bytes each, headroom included; 0: as many as the ports need.
    ///
    /// # Errors
    /// What the pool says.
    pub fn pool_of(
        &self,
        memory: &Memory,
        count: usize,
        bytes: u16,
        options: PoolOptions,
    ) -> Result<MbufPool, BringupError> {
        let room = pollux_mempool::DATA_ROOM.max(pollux_mempool::HEADROOM + self.room);
        let room = if bytes == 0 { room } else { bytes.into() };
        fresh(memory, "mbufs", count, room, self.cache, options)
    }
}

/// A pool of `count` mbufs of `size` bytes, headroom included.
pub(crate) fn of_size(
    memory: &Memory,
    count: usize,
    size: u16,
    options: PoolOptions,
) -> Result<MbufPool, BringupError> {
    fresh(memory, &format!("{size}-byte mbufs"), count, size.into(), CACHE, options)
}

/// A pool under that name or, where it is taken, under it with a number: ports that are started anew get another pool while
/// packets of the last one may still be about, and other ports may still be set up with it.
fn fresh(
    memory: &Memory,
    name: &str,
    count: usize,
    room: usize,
    cache: usize,
    options: PoolOptions,
) -> Result<MbufPool, BringupError> {
    let names = std::iter::once(name.to_owned()).chain((2..).map(|number| format!("{name}{number}")));
    for name in names {
        let builder = MbufPool::builder(&name, count).data_room(room).cache(cache);
        let builder = builder.backend(options.backend).debug(options.debug);
        match memory.reserve(&name, builder.bytes(), 64, None) {
            Ok(zone) => return Ok(builder.build_in(vec![zone])?),
            Err(MemoryError::NameTaken { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    unreachable!("the names do not end")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollux_port::{DescriptorLimits, TxOffloads};

    fn info(rx_holds_mbufs: bool) -> PortInfo {
        let limits = |default| DescriptorLimits { default, ..DescriptorLimits::default() };
        PortInfo {
            rx_holds_mbufs,
            rx_descriptors: limits(128),
            tx_descriptors: limits(512),
            ..PortInfo::default()
        }
    }

    #[test]
    fn every_descriptor_counts() {
        let mut needs = Needs::for_lcores(1);
        let idle = needs.mbufs();
        needs.add_port(&info(false), &QueueSpec::default());
        assert_eq!(needs.mbufs(), idle + 512 + 2 * BURST_MAX);
        needs.add_port(&info(true), &QueueSpec { rx_queues: 2, rx_descriptors: 64, ..QueueSpec::default() });
        assert_eq!(needs.mbufs(), idle + 2 * 512 + 2 * 64 + 6 * BURST_MAX);
        let before = needs.mbufs();
        let rounds = DescriptorLimits { power_of_two: true, ..info(true).rx_descriptors };
        let rounding = PortInfo { rx_descriptors: rounds, ..info(true) };
        needs.add_port(&rounding, &QueueSpec { rx_descriptors: 300, ..QueueSpec::default() });
        assert_eq!(needs.mbufs(), before + 512 + 512 + 2 * BURST_MAX);
        let before = needs.mbufs();
        let open = TxOffloads::CHECKSUM;
        let interface = PortInfo { device: Some("eth0".into()), rx_open: open, ..info(false) };
        needs.add_port(&interface, &QueueSpec::default());
        // And what the four tx queues cut its large frames into.
        assert_eq!(needs.mbufs(), before + 512 + 2 * BURST_MAX + 32 * 32 + 4 * BURST_MAX);
    }

    #[test]
    fn smaller_caches_need_fewer_mbufs() {
        let needs = |cache| Needs::for_lcores(1).cache(cache);
        assert_eq!(needs(256).mbufs() - needs(0).mbufs(), 768);
        assert_eq!(needs(256).mbufs(), Needs::for_lcores(1).mbufs());
        assert!(needs(0).pool(&Memory::ordinary(), 64, PoolOptions::default()).is_ok());
    }

    #[test]
    fn a_pool_too_small_for_the_queues_is_refused_with_the_number_that_is_enough() {
        let mut needs = Needs::for_lcores(1);
        needs.add_port(&info(true), &QueueSpec::default());
        let enough = needs.mbufs();
        let error = needs.pool(&Memory::ordinary(), enough - 1, PoolOptions::default()).unwrap_err();
        assert_eq!(
            error.line(),
            format!(
                "mbuf pool is too small ({} mbufs): the queues need up to {enough} (rx queues 128, tx queues 512, \
                 caches 768, bursts 128); give --mbufs {enough} or leave it out",
                enough - 1
            )
        );
        let memory = Memory::ordinary();
        let pools = [(); 3].map(|()| needs.pool(&memory, enough, PoolOptions::default()).unwrap());
        assert!(pools.iter().all(|pool| pool.capacity() >= enough));
        assert_eq!(pools.each_ref().map(MbufPool::name), ["mbufs", "mbufs2", "mbufs3"]);
    }

    #[test]
    fn options_make_the_pool() {
        let mut needs = Needs::for_lcores(1);
        needs.add_port(&info(true), &QueueSpec::default());
        let spec = |name: Option<&str>, debug| PoolSpec { backend: name.map(str::to_owned), debug };
        let names = Backend::ALL.map(|backend| (backend.name(), backend));
        for (name, backend) in names.into_iter().chain([("lf_stack", Backend::Stack)]) {
            for debug in [false, true] {
                let (options, warning) = PoolOptions::new(&spec(Some(name), debug)).expect(name);
                assert_eq!(warning.is_some(), name == "lf_stack", "{warning:?}");
                let pool = needs.pool(&Memory::ordinary(), 0, options).expect(name);
                assert_eq!(pool.backend(), backend);
                drop(pool.alloc());
                // Debug mode counts what goes out.
                assert_eq!(pool.stats().taken, u64::from(debug), "{name}");
            }
        }
        assert_eq!(PoolOptions::new(&spec(None, false)).expect("the usual").0, PoolOptions::default());
        let refused = PoolOptions::new(&spec(Some("bucket"), false)).expect_err("there is none").to_string();
        assert_eq!(
            refused,
            "option '--mbuf-pool-ops-name': 'bucket' is not one of ring_mp_mc, ring_mt_rts, ring_mt_hts, ring_sp_sc, stack"
        );
    }
}
