//! `net_null`: packets from nowhere, packets to nowhere. It measures what a burst costs when no device is behind it.
//!
//! Rx fills a burst with mbufs of a fixed length from the queue's pool; tx counts and frees. With `copy` both move the
//! bytes as well. Buffers can be recycled past the pool (`TxQueue::recycle`, `RxQueue::refill`). The names, keys and defaults are those of DPDK's null driver (guides/nics/null.rst).

use crate::mac_from_name;
use pollux_mempool::{BURST_MAX, Burst, MbufPool, PacketType, RxFlags};
use pollux_port::driver::{
    InBurst, Moved, PortDriver, RxBurst, RxDescriptor, RxSetup, TxBurst, TxDescriptor, TxSetup,
};
use pollux_port::finish::FINISHED;
use pollux_port::{Link, MacAddress, PortError, PortId, PortInfo, RxCounters, RxDrop};
use std::sync::Arc;

/// Shortest frame: an Ethernet header.
pub const SIZE_MIN: usize = 14;
/// Longest frame.
pub const SIZE_MAX: usize = 65_535;

/// The device argument's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullOptions {
    /// `size`: length of the frames received, in bytes.
    pub size: usize,
    /// `copy`: write the frames' bytes on rx, read them on tx.
    pub copy: bool,
    /// `no-rx`: never receive.
    pub no_rx: bool,
}

impl Default for NullOptions {
    fn default() -> Self {
        Self { size: 64, copy: false, no_rx: false }
    }
}

/// A null port's control half.
#[derive(Debug)]
pub struct NullPort {
    options: NullOptions,
    mac: MacAddress,
    mtu: u32,
}

impl NullPort {
    /// A port of that name; the name gives it its address.
    ///
    /// # Errors
    /// When the size is outside [`SIZE_MIN`] to [`SIZE_MAX`].
    pub fn new(name: &str, options: NullOptions) -> Result<Self, PortError> {
        if !(SIZE_MIN..=SIZE_MAX).contains(&options.size) {
            return Err(PortError::Limit {
                port: name.into(),
                what: "size",
                value: options.size as u64,
                min: SIZE_MIN as u64,
                max: SIZE_MAX as u64,
            });
        }
        Ok(Self { options, mac: mac_from_name(name), mtu: 1500 })
    }
}

impl PortDriver for NullPort {
    fn info(&self) -> PortInfo {
        PortInfo {
            driver: "net_null",
            max_rx_queues: 1024,
            max_tx_queues: 1024,
            min_rx_room: if self.options.no_rx { 0 } else { self.options.size },
            // Packets may ask for anything: nothing is filled in or cut for nobody to see.
            tx_offloads: FINISHED,
            tx_queue_offloads: FINISHED,
            max_tso_bytes: u32::MAX,
            ..PortInfo::default()
        }
    }

    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        if self.options.no_rx {
            return Ok(Box::new(SilentRx));
        }
        Ok(Box::new(NullRx {
            pool: setup.pool,
            size: self.options.size,
            port: setup.port,
            template: self.options.copy.then(|| vec![0; self.options.size].into_boxed_slice()),
            counters: setup.counters,
            spare: Burst::new(),
        }))
    }

    fn tx_queue_setup(&mut self, _setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        let sink = self.options.copy.then(|| vec![0; SIZE_MAX].into_boxed_slice());
        Ok(Box::new(NullTx { sink, kept: None }))
    }

    fn link(&mut self, started: bool) -> Link {
        Link::fixed(started, 10_000)
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        Ok(self.mtu)
    }

    // There is no wire, so any value is as good as another.
    fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        self.mtu = mtu;
        Ok(())
    }

    fn set_promiscuous(&mut self, _on: bool) -> Result<(), PortError> {
        Ok(())
    }

    fn set_all_multicast(&mut self, _on: bool) -> Result<(), PortError> {
        Ok(())
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        Ok(self.mac)
    }

    fn set_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.mac = mac;
        Ok(())
    }
}

/// The data half of an rx queue that receives.
#[repr(align(128))]
struct NullRx {
    pool: MbufPool,
    size: usize,
    port: PortId,
    template: Option<Box<[u8]>>,
    counters: Arc<RxCounters>,
    /// To be received into before the pool is asked.
    spare: Burst,
}

impl NullRx {
    /// Receives into buffers that were given back.
    fn reuse(&mut self, burst: &mut Burst, max: usize) -> usize {
        let first = burst.len();
        let got = self.spare.move_front(max, burst);
        for mbuf in &mut burst[first..] {
            // They are plain mbufs of our pool (`refill`), in which the port's frames fit (`min_rx_room`).
            let fits = mbuf.set_received(
                self.pool.headroom(),
                self.size,
                self.port.0,
                RxFlags::empty(),
                PacketType::default(),
            );
            debug_assert!(fits, "a frame fits an mbuf of the pool");
        }
        got
    }

    fn fill(&self, burst: &mut Burst, got: usize) {
        let first = burst.len() - got;
        let Some(template) = &self.template else { return };
        for mbuf in &mut burst[first..] {
            if let Some(data) = mbuf.data_mut() {
                data.copy_from_slice(template);
            }
        }
    }
}

impl RxBurst for NullRx {
    fn rx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let mut got = if self.spare.is_empty() { 0 } else { self.reuse(burst, max) };
        if got < max {
            got += self.pool.alloc_received(burst, max - got, self.size, self.port.0);
        }
        if got < max {
            // Nowhere has no end, so what the pool lacks is what was lost.
            self.counters.drop_for(RxDrop::NoMbuf, (max - got) as u64);
        }
        if self.template.is_some() {
            self.fill(burst, got);
        }
        Moved { packets: got, bytes: (got * self.size) as u64 }
    }

    fn refill(&mut self, _: &InBurst<'_>, spare: &mut Burst) -> Result<usize, PortError> {
        if spare.iter().all(|mbuf| mbuf.is_plain_of(&self.pool)) {
            return Ok(spare.move_front(BURST_MAX, &mut self.spare));
        }
        let (before, mut place) = (self.spare.len(), 0);
        while place < spare.len() && !self.spare.is_full() {
            let taken = if spare[place].is_plain_of(&self.pool) { spare.swap_remove(place) } else { None };
            match taken {
                Some(mbuf) => self.spare.push(mbuf),
                None => place += 1,
            }
        }
        Ok(self.spare.len() - before)
    }

    fn mode(&self) -> &'static str {
        if self.template.is_some() { "null, copy" } else { "null" }
    }

    fn descriptor_status(&self, _offset: usize) -> Result<RxDescriptor, PortError> {
        Ok(RxDescriptor::Done)
    }
}

/// The data half of an rx queue under `no-rx`.
struct SilentRx;

impl RxBurst for SilentRx {
    fn rx_burst(&mut self, _: &InBurst<'_>, _burst: &mut Burst, _max: usize) -> Moved {
        Moved::NONE
    }

    fn mode(&self) -> &'static str {
        "null, no rx"
    }

    fn queue_count(&self) -> Result<usize, PortError> {
        Ok(0)
    }

    fn descriptor_status(&self, _offset: usize) -> Result<RxDescriptor, PortError> {
        Ok(RxDescriptor::Available)
    }
}

/// The data half of a tx queue.
#[repr(align(128))]
struct NullTx {
    sink: Option<Box<[u8]>>,
    /// Sent and kept, once somebody has asked for it.
    kept: Option<Burst>,
}

impl NullTx {
    fn drain(sink: &mut [u8], burst: &Burst) {
        for mbuf in burst {
            let mut at = 0;
            for segment in mbuf.segments() {
                let bytes = segment.len().min(sink.len() - at);
                sink[at..at + bytes].copy_from_slice(&segment[..bytes]);
                at += bytes;
            }
        }
    }
}

impl TxBurst for NullTx {
    fn tx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst) -> Moved {
        if let Some(sink) = &mut self.sink {
            Self::drain(sink, burst);
        }
        let moved = Moved::of(burst);
        if let Some(kept) = &mut self.kept {
            burst.move_front(BURST_MAX, kept);
        }
        burst.clear();
        moved
    }

    fn recycle(&mut self, _: &InBurst<'_>, spare: &mut Burst) -> Result<usize, PortError> {
        Ok(self.kept.get_or_insert_default().move_front(BURST_MAX, spare))
    }

    fn mode(&self) -> &'static str {
        if self.sink.is_some() { "null, copy" } else { "null" }
    }

    fn done_cleanup(&mut self, max: usize) -> Result<usize, PortError> {
        let Some(kept) = &mut self.kept else { return Ok(0) };
        let count = if max == 0 { kept.len() } else { max.min(kept.len()) };
        kept.free_front(count);
        Ok(count)
    }

    fn queue_count(&self) -> Result<usize, PortError> {
        Ok(0)
    }

    fn descriptor_status(&self, _offset: usize) -> Result<TxDescriptor, PortError> {
        Ok(TxDescriptor::Done)
    }
}
