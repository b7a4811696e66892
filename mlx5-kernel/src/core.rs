//! What all contexts of a device share.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pollux_uverbs::Errno;
use pollux_uverbs::abi::flags::QpMask;
use pollux_uverbs::abi::ioctl_verbs::GidEntry;
use pollux_uverbs::abi::memory::CreateAh;
use pollux_uverbs::abi::queue_pair::{ModifyQp, QpDest};
use pollux_uverbs::abi::write;
use zerocopy::FromBytes;

use crate::adapter::Adapter;
use crate::clock::Clock;
use crate::dm::page::DevicePages;
use crate::event::queue::EventQueue;
use crate::firmware::note_unanswered;
use crate::gid::Gids;
use crate::joined::{Joined, SECOND};
use crate::loopback::LocalLoopback;
use crate::neighbour::{Neighbours, ip, named_mac};
use crate::object_counts::ObjectCounts;
use crate::own::{OwnNumbers, OwnObjects};
use crate::paging::Paging;
use crate::port::{PORT, Port};
use crate::profile::DoorProfile;
use crate::queue_counters::QueueCounters;
use crate::rate::Rates;
use crate::start::{self, LentPages};
use crate::steering::Steering;
use crate::xrcd::domain::XrcDomains;

/// The device, its event queues and tables.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) profile: DoorProfile,
    pub(crate) port: Arc<Port>,
    /// The kernel's own network at the port, where there is one.
    pub(crate) neighbours: Option<Arc<Neighbours>>,
    /// A second port.
    pub(crate) joined: OnceLock<Joined>,
    pub(crate) xrc: XrcDomains,
    pub(crate) device_pages: DevicePages,
    /// What queue pairs of XRC need beside their own parts; made with the first one.
    pub(crate) own: Mutex<Option<OwnObjects>>,
    pub(crate) loopback: LocalLoopback,
    pub(crate) steering: Mutex<Steering>,
    pub(crate) clock: Option<Clock>,
    /// The first takes asynchronous events, the others completions.
    pub(crate) queues: Vec<EventQueue>,
    /// Whether pages can be mapped with write combining.
    pub(crate) write_combining: bool,
    /// The user context under which contexts without DevX may ask for capabilities; 0 for none.
    pub(crate) general_uid: u16,
    /// The key for reads that nobody wants.
    pub(crate) dump_fill_mkey: Option<u32>,
    /// Pages that the firmware asked for while it runs and that it gets with the next call.
    pub(crate) pages_wanted: AtomicU32,
    pub(crate) pages: Mutex<LentPages>,
    /// Regions of which pages come on demand.
    pub(crate) paging: Arc<Paging>,
    /// Rates that queues are held to.
    pub(crate) rates: Rates,
    /// Objects that were still there when their context was closed.
    pub(crate) abandoned: AtomicUsize,
    /// What all contexts made.
    pub(crate) objects: Arc<ObjectCounts>,
}

impl Deref for Core {
    type Target = Adapter;

    fn deref(&self) -> &Adapter {
        &self.adapter
    }
}

impl Core {
    /// Interrupt `vector` fired. Called on the device's thread.
    pub(crate) fn interrupt(&self, vector: u32) {
        if self.firmware.queue.is_gone() {
            self.fail();
        }
        for queue in self.queues.iter().filter(|queue| queue.vector == vector) {
            queue.service(|entry| {
                if let Some(count) = start::pages_requested(entry) {
                    self.pages_wanted.store(count, Ordering::Relaxed);
                }
                self.paging.asked(entry);
                if self.events.dispatch(entry) {
                    self.fail();
                }
            });
        }
    }

    /// How many ports the RDMA device has.
    pub(crate) fn ports(&self) -> u8 {
        if self.joined.get().is_some() { 2 } else { 1 }
    }

    /// Whether there is a port of that number.
    pub(crate) fn is_port(&self, number: u8) -> bool {
        (1..=self.ports()).contains(&number)
    }

    /// The port of that number, with all that is its own; `EINVAL` where there is none.
    pub(crate) fn outlet(&self, number: u64) -> Result<Outlet<'_>, Errno> {
        match (number, self.joined.get()) {
            (PORT, _) => Ok(Outlet {
                adapter: &self.adapter,
                port: &self.port,
                gids: &self.port.gids,
                neighbours: self.neighbours.as_ref(),
                counters: &self.port.counters,
            }),
            (SECOND, Some(joined)) => Ok(Outlet {
                adapter: &joined.adapter,
                port: &joined.port,
                gids: &joined.gids,
                neighbours: joined.neighbours.as_ref(),
                counters: &joined.counters,
            }),
            _ => Err(Errno::EINVAL),
        }
    }

    /// An entry of a port's GID table; `ENODATA` when it is empty.
    pub(crate) fn gid(&self, port: u64, index: u64) -> Result<GidEntry, Errno> {
        let Outlet { port, gids, .. } = self.outlet(port)?;
        gids.get(port.gid_table_len(&self.caps), index)
    }

    /// The MAC to which packets go from the GID at a port's `index` to the GID `destination`, as far as it is known.
    pub(crate) fn destination(&self, port: u8, index: u8, destination: &[u8; 16]) -> Result<[u8; 6], Errno> {
        let source = self.gid(port.into(), index.into()).map_err(|_| Errno::EINVAL)?;
        if let Some(mac) = named_mac(destination) {
            return Ok(mac);
        }
        let source: [u8; 16] = zerocopy::transmute!(source.gid);
        let neighbours = self.outlet(port.into())?.neighbours.ok_or(Errno::ENETUNREACH)?;
        neighbours.lookup(&source, destination).inspect_err(|errno| {
            if *errno == Errno::ETIMEDOUT {
                note_unanswered(ip(destination));
            }
        })
    }

    /// Finds out to whom the paths of a command lead, which may take seconds: before the command is carried out, so that nothing
    /// of its context waits meanwhile. What is wrong with it the command itself will say. Address handles of queue pair 1's domain are
    /// not waited for.
    pub(crate) fn find_destinations(
        &self,
        command: u32,
        request: &[u8],
        management_domain: impl FnOnce() -> Option<u32>,
    ) {
        if self.firmware.is_gone() {
            return;
        }
        let mut waits = true;
        let paths = match command {
            write::CREATE_AH => match CreateAh::read_from_prefix(request) {
                Ok((CreateAh { attr, pd_handle, .. }, _)) => {
                    let has_management = self.management.load(Ordering::Relaxed);
                    waits = !has_management || management_domain() != Some(pd_handle);
                    let path = (attr.port_num, attr.grh.sgid_index, attr.grh.dgid);
                    [(attr.is_global != 0).then_some(path), None]
                }
                Err(_) => return,
            },
            write::MODIFY_QP | write::EX_MODIFY_QP => match ModifyQp::read_from_prefix(request) {
                Ok((ModifyQp { attr_mask, dest, alt_dest, .. }, _)) => {
                    let mask = QpMask::from_bits_retain(attr_mask);
                    let path = |bit, dest: QpDest| {
                        let path = (dest.port_num, dest.sgid_index, dest.dgid);
                        (mask.contains(bit) && dest.is_global != 0).then_some(path)
                    };
                    [path(QpMask::AV, dest), path(QpMask::ALT_PATH, alt_dest)]
                }
                Err(_) => return,
            },
            _ => return,
        };
        for (port, index, destination) in paths.into_iter().flatten() {
            if named_mac(&destination).is_none()
                && let Ok(source) = self.gid(port.into(), index.into())
                && let Ok(Outlet { neighbours: Some(neighbours), .. }) = self.outlet(port.into())
            {
                let source: [u8; 16] = zerocopy::transmute!(source.gid);
                if waits {
                    let _ = neighbours.resolve(&source, &destination);
                } else {
                    neighbours.ask_once(&source, &destination);
                }
            }
        }
    }

    /// Whether memory can be registered on demand.
    pub(crate) fn pages_on_demand(&self) -> bool {
        self.caps.pages_on_demand() && self.firmware.queue.sets_key_entries()
    }

    /// Completion vectors.
    pub(crate) fn vectors(&self) -> u32 {
        self.queues.len().saturating_sub(1) as u32
    }

    /// The event queue behind a completion vector.
    pub(crate) fn eqn(&self, vector: u32) -> Result<u8, Errno> {
        let index = usize::try_from(vector).ok().and_then(|vector| vector.checked_add(1));
        index.and_then(|index| self.queues.get(index)).map(|queue| queue.eqn).ok_or(Errno::EINVAL)
    }

    /// The numbers of the kernel's own objects, made now where nobody needed them before.
    pub(crate) fn own_numbers(&self) -> Result<OwnNumbers, Errno> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = own.as_ref() {
            return Ok(own.numbers);
        }
        let uar = self.queues.first().map_or(0, |queue| queue.uar());
        let made = OwnObjects::make(self, uar, self.eqn(0)?)?;
        let numbers = made.numbers;
        *own = Some(made);
        Ok(numbers)
    }

    /// Lends the pages that the firmware asked for meanwhile.
    pub(crate) fn lend_requested(&self) {
        let wanted = self.pages_wanted.swap(0, Ordering::Relaxed);
        if wanted > 0 {
            let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
            // What cannot be given is not given: the firmware refuses what it lacks the pages for.
            let _ = pages.lend(&self.firmware, self.memory.as_ref(), wanted as usize);
        }
    }

    /// Brings the function down; afterwards its pages can go.
    fn stop(&self) {
        let firmware = &self.firmware;
        for vector in 0..firmware.queue.vectors() {
            firmware.queue.on_interrupt(vector, Arc::new(|| {}));
        }
        self.paging.end();
        self.xrc.end(self);
        if let Some(own) = self.own.lock().unwrap_or_else(PoisonError::into_inner).take() {
            own.end(self);
        }
        if let Some(joined) = self.joined.get() {
            joined.end(self);
        }
        self.port.end(firmware, &self.caps);
        if self.general_uid != 0 {
            start::destroy_user_context(firmware, self.general_uid);
        }
        for queue in self.queues.iter().rev() {
            queue.destroy(firmware);
        }
        start::shut_down(firmware, &mut self.pages.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A port of the RDMA device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlet<'a> {
    /// The function whose port it is.
    pub(crate) adapter: &'a Arc<Adapter>,
    pub(crate) port: &'a Arc<Port>,
    pub(crate) gids: &'a Gids,
    pub(crate) neighbours: Option<&'a Arc<Neighbours>>,
    /// Of the first function, whichever has the port.
    pub(crate) counters: &'a QueueCounters,
}

/// What keeps the device up. Interrupts hold the [`Core`] alone, so that none of them brings the device down.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) core: Arc<Core>,
    /// Of the function that has the second port: it goes down after this one.
    pub(crate) second: OnceLock<Arc<Life>>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.core.stop();
    }
}
