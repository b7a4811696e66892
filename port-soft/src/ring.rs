//! `net_ring`: ports made of SP/SC rings. What goes into a tx queue comes out of the rx queue at the ring's other end.
//!
//! ```text
//!   looped("net_ring0")            pair("a", "b")                  from_rings(..)
//!   tx 0 --ring--> rx 0            a tx 0 --ring--> b rx 0         rx 0 <--ring-- whoever made the ring
//!   tx 1 --ring--> rx 1            a rx 0 <--ring-- b tx 0         tx 0 --ring--> whoever made the ring
//! ```
//!
//! A tx queue makes its ring when it is set up, as deep as its descriptor count; the rx queue of the same number takes
//! the other end. Mbufs pass as they are: no copy, and the receiver sees the sender's pool and port number.

use crate::mac_from_name;
use pollux_mempool::{Burst, Mbuf};
use pollux_port::driver::{
    InBurst, Moved, PortDriver, RxBurst, RxDescriptor, RxSetup, TxBurst, TxDescriptor, TxSetup,
};
use pollux_port::finish::FINISHED;
use pollux_port::{DescriptorLimits, Link, MacAddress, PortError, PortInfo, RxCounters, RxDrop, RxOffloads};
use pollux_ring::spsc::{Consumer, Producer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most queues in each direction, as in DPDK (drivers/net/ring/rte_eth_ring.h).
pub const QUEUES_MAX: u16 = 16;

/// A place where a queue's end of a ring lies while no queue value holds it.
#[derive(Debug)]
struct Slot<E> {
    /// Something was put here since the holder last looked.
    fresh: AtomicBool,
    end: Mutex<Option<E>>,
}

impl<E> Default for Slot<E> {
    fn default() -> Self {
        Self { fresh: AtomicBool::new(false), end: Mutex::new(None) }
    }
}

impl<E> Slot<E> {
    fn put(&self, end: E) {
        let old = self.end.lock().unwrap_or_else(PoisonError::into_inner).replace(end);
        self.fresh.store(true, Ordering::Release);
        // What is left in the old ring is freed here, with the lock released.
        drop(old);
    }

    /// Puts an end back unless there is a newer one.
    fn give_back(&self, end: E) {
        let mut place = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() {
            *place = Some(end);
            self.fresh.store(true, Ordering::Release);
        }
    }

    fn take(&self) -> Option<E> {
        self.fresh.store(false, Ordering::Relaxed);
        self.end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    #[inline]
    fn is_fresh(&self) -> bool {
        self.fresh.load(Ordering::Relaxed)
    }
}

/// The receiving ends of rings, by queue.
type RxSlots = Arc<[Slot<Consumer<Mbuf>>]>;

/// The sending ends of rings that were given, by queue.
type TxSlots = Arc<[Slot<Producer<Mbuf>>]>;

/// Where a tx queue's ring comes from.
#[derive(Debug)]
enum TxEnds {
    /// Made at set-up; the other ends go here.
    Made(RxSlots),
    /// Given, of the size they have.
    Given(TxSlots),
}

/// A ring port's control half.
#[derive(Debug)]
pub struct RingPort {
    mac: MacAddress,
    mtu: u32,
    rx: RxSlots,
    tx: TxEnds,
}

fn slots<E>(count: u16) -> Arc<[Slot<E>]> {
    (0..count).map(|_| Slot::default()).collect()
}

/// A port whose every tx queue leads to its own rx queue of the same number: `net_ring0`.
#[must_use]
pub fn looped(name: &str) -> RingPort {
    let own = slots(QUEUES_MAX);
    RingPort::new(name, Arc::clone(&own), TxEnds::Made(own))
}

/// Two ports that are each other's far end.
#[must_use]
pub fn pair(first: &str, second: &str) -> (RingPort, RingPort) {
    let (to_first, to_second) = (slots(QUEUES_MAX), slots(QUEUES_MAX));
    (
        RingPort::new(first, Arc::clone(&to_first), TxEnds::Made(Arc::clone(&to_second))),
        RingPort::new(second, to_second, TxEnds::Made(to_first)),
    )
}

/// A port made of rings that exist: it receives from `rx` and sends to `tx`, one queue a ring. Descriptor counts mean
/// nothing to it: the rings have their size.
///
/// # Errors
/// When there are more than [`QUEUES_MAX`] rings in a direction.
pub fn from_rings(
    name: &str,
    rx: Vec<Consumer<Mbuf>>,
    tx: Vec<Producer<Mbuf>>,
) -> Result<RingPort, PortError> {
    for (what, count) in [("number of rx rings", rx.len()), ("number of tx rings", tx.len())] {
        if count > usize::from(QUEUES_MAX) {
            let (port, value, max) = (name.into(), count as u64, QUEUES_MAX.into());
            return Err(PortError::Limit { port, what, value, min: 0, max });
        }
    }
    fn filled<E>(ends: Vec<E>) -> Arc<[Slot<E>]> {
        let full = |end| Slot { fresh: AtomicBool::new(true), end: Mutex::new(Some(end)) };
        ends.into_iter().map(full).collect()
    }
    Ok(RingPort::new(name, filled(rx), TxEnds::Given(filled(tx))))
}

impl RingPort {
    fn new(name: &str, rx: RxSlots, tx: TxEnds) -> Self {
        Self { mac: mac_from_name(name), mtu: 1500, rx, tx }
    }
}

impl PortDriver for RingPort {
    fn info(&self) -> PortInfo {
        let tx_queues = match &self.tx {
            TxEnds::Made(slots) => slots.len(),
            TxEnds::Given(slots) => slots.len(),
        };
        PortInfo {
            driver: "net_ring",
            max_rx_queues: self.rx.len() as u16,
            max_tx_queues: tx_queues as u16,
            tx_descriptors: DescriptorLimits { max: 32_768, ..DescriptorLimits::default() },
            // Mbufs pass as they are: what they ask for, the receiver finds in their flags, not done, and hands it to who sends
            // it on. So a packet may ask for anything here, and nothing is open that was not sent in.
            rx_offloads: RxOffloads::SCATTER,
            rx_queue_offloads: RxOffloads::SCATTER,
            tx_offloads: FINISHED,
            tx_queue_offloads: FINISHED,
            max_tso_bytes: u32::MAX,
            // Whoever sends it on may count on them.
            tx_pseudo_sums: true,
            ..PortInfo::default()
        }
    }

    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        let slots = Arc::clone(&self.rx);
        let at = usize::from(setup.queue.0);
        let whole_only = (!setup.scatter).then_some(setup.counters);
        Ok(Box::new(RingRx { end: slots[at].take(), slots, at, whole_only }))
    }

    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        let at = usize::from(setup.queue.0);
        match &self.tx {
            TxEnds::Made(far) => {
                let (end, far_end) = pollux_ring::spsc::ring(setup.descriptors.into())
                    .map_err(|error| PortError::device(format!("make the ring of tx queue {at}"), error))?;
                far[at].put(far_end);
                Ok(Box::new(RingTx { end: Some(end), home: None }))
            }
            TxEnds::Given(slots) => {
                let home = Some((Arc::clone(slots), at));
                Ok(Box::new(RingTx { end: slots[at].take(), home }))
            }
        }
    }

    fn close(&mut self) -> Result<(), PortError> {
        // What waits in rings that nobody will read goes home.
        self.rx.iter().for_each(|slot| drop(slot.take()));
        Ok(())
    }

    fn link(&mut self, started: bool) -> Link {
        Link::fixed(started, 10_000)
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        Ok(self.mtu)
    }

    // Mbufs of any length pass.
    fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        self.mtu = mtu;
        Ok(())
    }

    // A ring filters nothing, so both modes are always on.
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

/// The data half of an rx queue. Without an end as long as the tx queue at the other side is not set up.
#[repr(align(128))]
struct RingRx {
    end: Option<Consumer<Mbuf>>,
    slots: RxSlots,
    at: usize,
    /// Without scatter: where to count the chains that are dropped.
    whole_only: Option<Arc<RxCounters>>,
}

impl RingRx {
    #[inline(always)]
    fn dequeue(&mut self, burst: &mut Burst, max: usize) -> Moved {
        let before = burst.len();
        let Some(end) = &mut self.end else { return Moved::NONE };
        let _ = end.dequeue_burst(&mut *burst, max);
        if let Some(counters) = &self.whole_only {
            Self::drop_chains(counters, burst, before);
        }
        Moved::of(&burst[before..])
    }

    #[cold]
    fn drop_chains(counters: &RxCounters, burst: &mut Burst, first: usize) {
        let mut place = first;
        while place < burst.len() {
            if burst[place].is_contiguous() {
                place += 1;
            } else {
                drop(burst.remove(place));
                counters.drop_for(RxDrop::TooLong, 1);
            }
        }
    }

    /// The tx queue at the other side was set up, perhaps anew with a new ring.
    #[cold]
    fn renew(&mut self, burst: &mut Burst, max: usize) -> Moved {
        if let Some(end) = self.slots[self.at].take() {
            self.end = Some(end);
        }
        self.dequeue(burst, max)
    }
}

impl RxBurst for RingRx {
    fn rx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let moved = self.dequeue(burst, max);
        if moved.packets == 0 && self.slots[self.at].is_fresh() {
            return self.renew(burst, max);
        }
        moved
    }

    fn refill(&mut self, _: &InBurst<'_>, _spare: &mut Burst) -> Result<usize, PortError> {
        Err(PortError::unsupported("refill", "what is received are the sender's own mbufs"))
    }

    fn mode(&self) -> &'static str {
        "ring, single consumer"
    }

    fn queue_count(&self) -> Result<usize, PortError> {
        Ok(self.end.as_ref().map_or(0, Consumer::count))
    }

    fn descriptor_status(&self, offset: usize) -> Result<RxDescriptor, PortError> {
        let (used, capacity) = self.end.as_ref().map_or((0, 0), |end| (end.count(), end.capacity()));
        Ok(match offset {
            _ if offset < used => RxDescriptor::Done,
            _ if offset < capacity => RxDescriptor::Available,
            _ => RxDescriptor::Unavailable,
        })
    }
}

impl Drop for RingRx {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.slots[self.at].give_back(end);
        }
    }
}

/// The data half of a tx queue.
#[repr(align(128))]
struct RingTx {
    /// `None` only for a given ring whose end another queue value still holds.
    end: Option<Producer<Mbuf>>,
    /// Where a given end goes back to.
    home: Option<(TxSlots, usize)>,
}

impl TxBurst for RingTx {
    fn tx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let Some(end) = &mut self.end else { return Moved::NONE };
        // Afterwards they are the receiver's.
        let all = Moved::of(burst);
        let packets = end.enqueue_burst(&mut *burst).count;
        if packets == all.packets {
            return all;
        }
        Moved { packets, bytes: all.bytes - Moved::of(burst).bytes }
    }

    fn recycle(&mut self, _: &InBurst<'_>, _spare: &mut Burst) -> Result<usize, PortError> {
        Err(PortError::unsupported("recycle", "what is sent is the receiver's from then on"))
    }

    fn mode(&self) -> &'static str {
        "ring, single producer"
    }

    fn queue_count(&self) -> Result<usize, PortError> {
        Ok(self.end.as_ref().map_or(0, Producer::count))
    }

    fn descriptor_status(&self, offset: usize) -> Result<TxDescriptor, PortError> {
        let (free, capacity) = self.end.as_ref().map_or((0, 0), |end| (end.free(), end.capacity()));
        Ok(match offset {
            _ if offset < free => TxDescriptor::Done,
            _ if offset < capacity => TxDescriptor::Full,
            _ => TxDescriptor::Unavailable,
        })
    }
}

impl Drop for RingTx {
    fn drop(&mut self) {
        if let (Some(end), Some((slots, at))) = (self.end.take(), &self.home) {
            slots[*at].give_back(end);
        }
    }
}
