//! The function on a vfio-user socket, for a machine that plugs it into its guest.
//!
//! Protocol: QEMU `docs/interop/vfio-user.rst`; the messages are the `vfio_user` crate's (rust-vmm), the meaning is here.

use std::fs::File;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pollux_mlx5_kernel::CommandQueue;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_IRQ_SET_ACTION_MASK, VFIO_IRQ_SET_ACTION_UNMASK,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

use super::config_space;
use super::function::{BAR_BYTES, Function, Health};
use super::write_combining::WriteCombining;
use crate::ModelError;
use crate::device::Device;
use crate::memory::GuestMemory;
use crate::time::worker::{self, Steps};

/// Why a function is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The socket cannot be made, or talk on it failed.
    #[error("vfio-user socket {}: {source}; is the folder there and writable?", path.display())]
    Socket {
        /// Which.
        path: PathBuf,
        /// What went wrong.
        source: vfio_user::Error,
    },
    /// No thread could be started for it.
    #[error("cannot start a thread for a device: {source}")]
    Start {
        /// Why.
        source: io::Error,
    },
    /// The devices' thread could not be started.
    #[error(transparent)]
    Thread(ModelError),
}

/// A device, and the socket on which a machine finds it.
#[derive(Debug)]
pub struct Slot {
    /// The socket; a stale one is taken over.
    pub path: PathBuf,
    /// The device; made by [`Device::in_guest`].
    pub device: Arc<Device>,
    /// Its memory.
    pub memory: Arc<GuestMemory>,
    /// Device number on the bus: which card it is to its driver.
    pub pci_device: u16,
    /// Its firmware's health.
    pub health: Health,
}

/// Frames of each direction that a device moves in one step.
const BUDGET: usize = 64;

/// Serves each slot to one machine, until all machines have ended their connections. A store to a register steps every
/// device until none has work, so that a frame sent by one is at once at the other; a thread steps them besides, for what
/// comes from elsewhere.
///
/// # Errors
/// [`ServeError`], of the first slot that failed.
pub fn serve(slots: Vec<Slot>) -> Result<(), ServeError> {
    let (functions, slots): (Vec<_>, Vec<_>) = slots
        .into_iter()
        .map(|slot| {
            let function = Function::new(Arc::clone(&slot.device), slot.pci_device).with_health(slot.health);
            (function, (slot.path, slot.memory))
        })
        .unzip();
    let devices: Arc<[Stepped]> = functions
        .iter()
        .map(|function| (Arc::clone(function.device()), Arc::clone(function.combining())))
        .collect();
    let _running = worker::run(Arc::new(All(Arc::clone(&devices))), None).map_err(ServeError::Thread)?;
    let threads: Vec<_> = functions
        .into_iter()
        .zip(slots)
        .enumerate()
        .map(|(index, (function, (path, memory)))| {
            let all = All(Arc::clone(&devices));
            std::thread::Builder::new()
                .name(format!("control-pci-{index}"))
                .spawn(move || serve_one(function, path, memory, all))
                .map_err(|source| ServeError::Start { source })
        })
        .collect::<Result<_, _>>()?;
    threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
}

/// A device, and the stores to it that wait for more.
type Stepped = (Arc<Device>, Arc<WriteCombining>);

/// Every device of the process, stepped together.
#[derive(Debug)]
struct All(Arc<[Stepped]>);

impl Steps for All {
    fn step(&self) -> bool {
        self.0.iter().fold(false, |some, (device, combining)| {
            for (page, offset, bytes) in combining.waited(false) {
                device.doorbell_store(page, offset, &bytes);
            }
            // What waits is looked at again at once.
            device.step(BUDGET) | combining.is_pending() | some
        })
    }

    fn name(&self) -> String {
        self.0.iter().map(|(device, _)| device.name()).collect::<Vec<_>>().join(", ")
    }
}

/// Steps after a store: work that makes more work is followed so far, and the thread does the rest.
const STEPS_MAX: usize = 16;

fn serve_one(
    function: Function,
    path: PathBuf,
    memory: Arc<GuestMemory>,
    all: All,
) -> Result<(), ServeError> {
    // A socket whose server is gone is in the way of the next.
    if std::os::unix::net::UnixStream::connect(&path)
        .is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused)
    {
        drop(std::fs::remove_file(&path));
    }
    let failed = |source| ServeError::Socket { path: path.clone(), source };
    let vectors = function.device().vectors();
    let server = Server::new(&path, true, interrupts(vectors), regions()).map_err(failed)?;
    let mut backend = Backend { vectors: Vectors::connect(&function, vectors), function, memory, all };
    let ended = server.run(&mut backend);
    // The guest is gone, and its memory with it.
    backend.function.reset();
    backend.memory.clear();
    ended.map_err(failed)
}

fn regions() -> Vec<ServerRegion> {
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = match index {
                VFIO_PCI_BAR0_REGION_INDEX => BAR_BYTES,
                VFIO_PCI_CONFIG_REGION_INDEX => config_space::BYTES as u64,
                _ => 0,
            };
            let flags = if size == 0 { 0 } else { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE };
            let argsz = size_of::<vfio_region_info>() as u32;
            ServerRegion {
                region_info: vfio_region_info { argsz, flags, index, cap_offset: 0, size, offset: 0 },
                sparse_areas: Vec::new(),
                mmap_fd: None,
            }
        })
        .collect()
}

fn interrupts(vectors: u32) -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| IrqInfo {
            index,
            flags: VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE,
            count: if index == VFIO_PCI_MSIX_IRQ_INDEX { vectors } else { 0 },
        })
        .collect()
}

/// Event descriptors by interrupt vector.
#[derive(Clone, Debug)]
struct Vectors(Arc<Mutex<Vec<Option<File>>>>);

impl Vectors {
    /// Has the device's interrupts signal the descriptors.
    fn connect(function: &Function, count: u32) -> Self {
        let vectors = Self(Arc::new(Mutex::new((0..count).map(|_| None).collect())));
        for vector in 0..count {
            let signalled = vectors.clone();
            function.device().on_interrupt(vector, Arc::new(move || signalled.signal(vector as usize)));
        }
        vectors
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<File>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, vector: usize) {
        tracing::trace!(target: "model.pci", vector, "interrupt");
        if let Some(Some(descriptor)) = self.lock().get(vector) {
            // A counter that is full has been signalled already.
            drop((&*descriptor).write_all(&1_u64.to_ne_bytes()));
        }
    }

    fn set(&self, flags: u32, start: u32, count: u32, descriptors: Vec<File>) -> io::Result<()> {
        tracing::debug!(target: "model.pci", flags, start, count, descriptors = descriptors.len(), "interrupts");
        let mut places = self.lock();
        let (start, count) = (start as usize, count as usize);
        if flags & (VFIO_IRQ_SET_ACTION_MASK | VFIO_IRQ_SET_ACTION_UNMASK) != 0 {
            // The machine masks vectors itself.
            return Ok(());
        }
        if count == 0 {
            places.fill_with(|| None);
            return Ok(());
        }
        let range = start..start.saturating_add(count);
        let Some(places) = places.get_mut(range) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such interrupt vector"));
        };
        if descriptors.is_empty() && flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            // None yet.
            places.fill_with(|| None);
        }
        for (place, descriptor) in places.iter_mut().zip(descriptors) {
            *place = Some(descriptor);
        }
        Ok(())
    }
}

struct Backend {
    function: Function,
    memory: Arc<GuestMemory>,
    vectors: Vectors,
    all: All,
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => self.function.bar_read(offset, data),
            VFIO_PCI_CONFIG_REGION_INDEX => self.function.config_read(offset, data),
            _ => data.fill(0),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => {
                let work = self.function.bar_write(offset, data);
                let _ = (0..STEPS_MAX).try_for_each(|_| (work && self.all.step()).then_some(()));
            }
            VFIO_PCI_CONFIG_REGION_INDEX => self.function.config_write(offset, data),
            _ => {}
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        // ROM has no descriptor, and a device has no business there.
        let Some(file) = fd else { return Ok(()) };
        self.memory.map(address, size, &file, offset, flags.contains(DmaMapFlags::WRITE))
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            self.memory.clear();
        } else {
            self.memory.unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.function.reset();
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> io::Result<()> {
        match index {
            VFIO_PCI_MSIX_IRQ_INDEX => self.vectors.set(flags, start, count, fds),
            // The others have no vectors.
            _ => Ok(()),
        }
    }
}
