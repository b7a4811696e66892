//! `net_tap`: a port whose other end is an interface of this machine's kernel.
//!
//! The interface is made when the port is opened and ends with the process. It may be moved into another network
//! namespace while the port runs. A persistent interface that nobody uses is taken over as it is, and stays; its owner needs no
//! rights for that. What the kernel drops because the queues are full counts as missed by the first rx queue: its count is the
//! interface's. Large frames and open checksums pass as they are (`offload`). Names and defaults follow
//! DPDK's driver (guides/nics/tap.rst): `iface`, `mac`; `remote` and `persist` do not exist here.

mod rx;
mod tx;

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use pollux_frame_io::interface::InterfaceState;
use pollux_frame_io::tap::{Tap, TapControl, TapRx, TapTx};
use pollux_port::driver::{PortDriver, RxBurst, RxSetup, TxBurst, TxSetup};
use pollux_port::finish::CUT_BYTES_MAX;
use pollux_port::{Gate, Link, MacAddress, PortConfig, PortError, PortInfo, RxCounters, RxDrop, RxOffloads};

use crate::af_packet::{JOINED_MAX, refused};
use crate::lend::Shelf;
use crate::offload;
use rx::TapQueueRx;
use tx::TapQueueTx;

/// Most queues, as in DPDK's driver (`TAP_MAX_QUEUES`).
const QUEUES_MAX: u16 = 16;

/// The device argument's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapOptions {
    /// `iface`: the interface's name. With `%d` in it the kernel puts in the first free number.
    pub interface: String,
    /// `mac`: the interface's address; else the kernel makes one up.
    pub mac: Option<[u8; 6]>,
}

impl Default for TapOptions {
    fn default() -> Self {
        Self { interface: "dtap%d".into(), mac: None }
    }
}

struct Pair {
    rx: Shelf<TapRx>,
    tx: TapTx,
}

impl From<(TapRx, TapTx)> for Pair {
    fn from((rx, tx): (TapRx, TapTx)) -> Self {
        Self { rx: Shelf::new(rx), tx }
    }
}

/// A tap port's control half.
pub struct TapPort {
    control: Option<TapControl>,
    pairs: Vec<Pair>,
    name: String,
    gate: Option<Gate>,
    /// Where the kernel's drops are counted, and how many of them are.
    counters: Option<(Arc<RxCounters>, Cell<u64>)>,
    carrier: bool,
}

impl TapPort {
    /// Makes the interface, in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the process may not, or the name is taken or cannot be used.
    pub fn new(options: &TapOptions) -> Result<Self, PortError> {
        let wanted = &options.interface;
        let Tap { control, queues } = Tap::open(wanted, 1, options.mac)
            .map_err(|error| refused(format!("make interface {}", wanted.replace("%d", "N")), error))?;
        let name = control.name().unwrap_or_else(|_| wanted.clone());
        Ok(Self {
            control: Some(control),
            pairs: queues.into_iter().map(Pair::from).collect(),
            name,
            gate: None,
            counters: None,
            carrier: false,
        })
    }

    /// The interface's name, as it was made.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.name
    }

    /// Does something to the interface; an answer that it is gone reaches the queues as well.
    fn ask<T>(
        &self,
        operation: &str,
        ask: impl FnOnce(&TapControl) -> io::Result<T>,
    ) -> Result<T, PortError> {
        let gone = || io::Error::from_raw_os_error(libc::EBADFD);
        self.control.as_ref().ok_or_else(gone).and_then(ask).map_err(|error| {
            if let (Some(libc::EBADFD), Some(gate)) = (error.raw_os_error(), &self.gate) {
                gate.set_gone();
            }
            PortError::device(format!("{operation} interface {}", self.name), error)
        })
    }

    fn state(&self) -> Result<InterfaceState, PortError> {
        self.ask("look at", TapControl::state)
    }

    fn pair(&self, queue: u16) -> Result<&Pair, PortError> {
        let missing = || PortError::device("set up the queue", "the port is closed");
        self.pairs.get(usize::from(queue)).ok_or_else(missing)
    }
}

impl PortDriver for TapPort {
    fn info(&self) -> PortInfo {
        PortInfo {
            driver: "net_tap",
            device: Some(self.name.clone()),
            max_rx_queues: QUEUES_MAX,
            max_tx_queues: QUEUES_MAX,
            // drivers/net/tun.c: MAX_TAP_MTU less the Ethernet header.
            max_mtu: 65_521,
            // The kernel joins, unasked, what it can.
            rx_offloads: RxOffloads::SCATTER | RxOffloads::TCP_LRO,
            rx_queue_offloads: RxOffloads::SCATTER,
            tx_offloads: offload::OFFERED,
            tx_queue_offloads: offload::OFFERED,
            // What is in tunnels the kernel cuts before it hands it over.
            rx_open: offload::OPEN,
            max_tso_bytes: CUT_BYTES_MAX,
            max_lro_bytes: JOINED_MAX,
            tx_pseudo_sums: true,
            rx_interrupts: true,
            ..PortInfo::default()
        }
    }

    fn configure(&mut self, config: &PortConfig) -> Result<(), PortError> {
        // The kernel spreads what it sends over all queues there are, so there are as many as are polled, and one for the
        // interface to live on. A queue that only sends shares a descriptor, which the kernel allows from any thread.
        let wanted = config.rx_queues.len().max(1);
        self.pairs.truncate(wanted);
        while self.pairs.len() < wanted {
            let control = self.control.as_ref().ok_or_else(|| {
                PortError::device("add a queue", io::Error::from_raw_os_error(libc::EBADFD))
            })?;
            let added = control.add_queue().map_err(|error| refused("add a queue", error))?;
            self.pairs.push(added.into());
        }
        Ok(())
    }

    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        self.gate.get_or_insert_with(|| setup.gate.clone());
        if setup.queue.0 == 0 {
            // What was dropped while nobody listened is not missed.
            let seen = self.ask("read the counts of", TapControl::dropped)?;
            self.counters = Some((setup.counters.clone(), Cell::new(seen)));
        }
        let rx = self.pair(setup.queue.0)?.rx.lend();
        let rx = rx.ok_or_else(|| PortError::device("set up the queue", "it is in use"))?;
        Ok(Box::new(TapQueueRx::new(rx, setup, &self.name)))
    }

    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        self.gate.get_or_insert_with(|| setup.gate.clone());
        let shared = self.pair(setup.queue.0 % self.pairs.len().max(1) as u16)?.tx.clone();
        Ok(Box::new(TapQueueTx::new(shared, setup, &self.name)))
    }

    fn start(&mut self) -> Result<(), PortError> {
        self.ask("start", |control| {
            control.set_up(true)?;
            control.set_carrier(true)
        })?;
        self.carrier = true;
        Ok(())
    }

    fn stop(&mut self) -> Result<(), PortError> {
        match self.ask("stop", |control| control.set_carrier(false)) {
            // What is gone has stopped.
            Err(_) if self.gate.as_ref().is_some_and(Gate::is_gone) => Ok(()),
            other => other,
        }
    }

    fn close(&mut self) -> Result<(), PortError> {
        // The interface ends with its last descriptor: here, or when the queues are dropped.
        self.pairs.clear();
        self.control = None;
        Ok(())
    }

    fn update_counters(&self) {
        let Some(Ok(dropped)) = self.control.as_ref().map(TapControl::dropped) else { return };
        if let Some((counters, seen)) = &self.counters
            && dropped > seen.get()
        {
            counters.drop_for(RxDrop::Missed, dropped - seen.replace(dropped));
        }
    }

    fn link(&mut self, started: bool) -> Link {
        // The kernel's own word on the carrier lags behind.
        let up = started && self.carrier && self.state().is_ok_and(|state| state.up);
        Link { up, speed_mbps: None, ..Link::default() }
    }

    fn set_link_up(&mut self, up: bool) -> Result<(), PortError> {
        self.ask("switch", |control| control.set_carrier(up))?;
        self.carrier = up;
        Ok(())
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        Ok(self.state()?.mtu)
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        self.ask("set the MTU of", |control| control.set_mtu(mtu))
    }

    // Whatever the kernel sends through the interface comes here: there is nothing to filter.
    fn set_promiscuous(&mut self, _on: bool) -> Result<(), PortError> {
        Ok(())
    }

    fn set_all_multicast(&mut self, _on: bool) -> Result<(), PortError> {
        Ok(())
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        self.ask("read the address of", TapControl::mac).map(MacAddress)
    }

    fn set_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.ask("set the address of", |control| control.set_mac(mac.0))
    }
}
