//! What a machine asks of a function, message by message.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pollux_mlx5_kernel::CommandQueue;
use serde_json::{Map, Value, json};
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_DEVICE_FLAGS_RESET, VFIO_DMA_MAP_FLAG_WRITE, VFIO_DMA_UNMAP_FLAG_ALL,
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::config_space;
use super::function::{BAR_BYTES, Function};
use super::step::All;
use super::vectors::Vectors;
use super::vfio_user::{
    Broken, Connection, DATA_MAX, DESCRIPTORS_MAX, DeviceInfo, DmaMap, DmaUnmap, IrqInfo, IrqSet,
    RegionAccess, RegionInfo, Request, Version, command, flag,
};
use crate::memory::{GuestMemory, PIECES_MAX};

/// Steps after a store: work that makes more work is followed so far, and the thread does the rest.
const STEPS_MAX: usize = 16;
/// Longest list of capabilities that is read.
const CAPABILITIES_MAX: usize = 1 << 16;

/// A function and what its machine has lent it.
pub(super) struct Session {
    pub(super) function: Function,
    pub(super) memory: Arc<GuestMemory>,
    pub(super) vectors: Vectors,
    pub(super) all: All,
    /// A store came after which no device was stepped yet.
    has_work: bool,
}

impl Session {
    pub(super) fn new(function: Function, memory: Arc<GuestMemory>, all: All) -> Self {
        let vectors = Vectors::connect(&function, function.device().vectors());
        Self { function, memory, vectors, all, has_work: false }
    }

    /// Forgets a machine: what it set up is gone.
    pub(super) fn clear(&mut self) {
        self.function.reset();
        self.vectors.clear();
        self.memory.clear();
    }

    /// Agrees with a machine on the protocol, which must come first. `false` when it only looked whether somebody is there.
    pub(super) fn meet(connection: &mut Connection) -> Result<bool, Broken> {
        let Some(request) = connection.receive()? else { return Ok(false) };
        if request.header.command != command::VERSION {
            let what = format!("command {} before the version is agreed on", request.header.command);
            return Err(Broken::Protocol(what));
        }
        match version(&request.body) {
            Ok(answer) => connection.reply(&request.header, &answer)?,
            Err(why) => {
                connection.refuse(&request.header, libc::EINVAL as u32)?;
                return Err(Broken::Protocol(format!("version: {why}")));
            }
        }
        Ok(true)
    }

    /// Does what a machine asks for until it ends the connection.
    pub(super) fn run(&mut self, connection: &mut Connection) -> Result<(), Broken> {
        while let Some(mut request) = connection.receive()? {
            match self.answer(&mut request) {
                Ok(body) => connection.reply(&request.header, &body)?,
                Err(why) => {
                    let errno = why.raw_os_error().unwrap_or(libc::EINVAL);
                    tracing::warn!(target: "model.pci", command = request.header.command, "refused: {why}");
                    connection.refuse(&request.header, errno.cast_unsigned())?;
                }
            }
            // Programs ring more often than all devices can be stepped where nobody waits for the answer: what has come is taken first, or
            // a read would wait behind it for so long that the machine gives up.
            if self.has_work && !connection.has_more() {
                self.step();
            }
        }
        Ok(())
    }

    /// Has all devices do what a store has brought.
    fn step(&mut self) {
        let work = std::mem::take(&mut self.has_work);
        let _ = (0..STEPS_MAX).try_for_each(|_| (work && self.all.step_all()).then_some(()));
    }

    /// What the reply to a command says, behind its header.
    fn answer(&mut self, request: &mut Request) -> io::Result<Vec<u8>> {
        let asks = request.header.flags & flag::NO_REPLY == 0;
        let body = &request.body;
        match request.header.command {
            command::DEVICE_GET_INFO if asks => {
                head::<DeviceInfo>(body)?;
                let (regions, interrupts) = (VFIO_PCI_NUM_REGIONS, VFIO_PCI_NUM_IRQS);
                let flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
                Ok(DeviceInfo { argsz: bytes::<DeviceInfo>(), flags, regions, interrupts }
                    .as_bytes()
                    .to_vec())
            }
            command::DEVICE_GET_REGION_INFO if asks => {
                let index = head::<RegionInfo>(body)?.0.index;
                let size = region_bytes(index).ok_or_else(|| wrong("no such region"))?;
                let flags =
                    if size == 0 { 0 } else { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE };
                let info =
                    RegionInfo { argsz: bytes::<RegionInfo>(), flags, index, size, ..RegionInfo::default() };
                Ok(info.as_bytes().to_vec())
            }
            command::DEVICE_GET_IRQ_INFO if asks => {
                let index = head::<IrqInfo>(body)?.0.index;
                if index >= VFIO_PCI_NUM_IRQS {
                    return Err(wrong("no such kind of interrupt"));
                }
                let count =
                    if index == VFIO_PCI_MSIX_IRQ_INDEX { self.function.device().vectors() } else { 0 };
                let flags = VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE;
                Ok(IrqInfo { argsz: bytes::<IrqInfo>(), flags, index, count }.as_bytes().to_vec())
            }
            command::REGION_READ if asks => self.region_read(body),
            command::REGION_WRITE => {
                let answer = self.region_write(body)?;
                if asks {
                    self.step();
                }
                Ok(answer)
            }
            command::DMA_MAP => self.dma_map(body, std::mem::take(&mut request.descriptors)),
            command::DMA_UNMAP => self.dma_unmap(body),
            command::DEVICE_SET_IRQS => {
                let (set, _) = head::<IrqSet>(body)?;
                match set.index {
                    VFIO_PCI_MSIX_IRQ_INDEX => {
                        let given = std::mem::take(&mut request.descriptors);
                        self.vectors.set(set.flags, set.start, set.count, given).map(|()| Vec::new())
                    }
                    // The others have no vectors.
                    0..VFIO_PCI_NUM_IRQS => Ok(Vec::new()),
                    _ => Err(wrong("no such kind of interrupt")),
                }
            }
            command::DEVICE_RESET => {
                self.function.reset();
                Ok(Vec::new())
            }
            command::VERSION => Err(wrong("the version is agreed on")),
            _ if !asks => Err(wrong("a question without an answer")),
            _ => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
    }

    fn region_read(&self, body: &[u8]) -> io::Result<Vec<u8>> {
        let (access, _) = access(body)?;
        let head = size_of::<RegionAccess>();
        let mut answer = vec![0; head + access.count as usize];
        let (front, data) = answer.split_at_mut(head);
        front.copy_from_slice(access.as_bytes());
        match access.region {
            VFIO_PCI_BAR0_REGION_INDEX => self.function.bar_read(access.offset, data),
            VFIO_PCI_CONFIG_REGION_INDEX => self.function.config_read(access.offset, data),
            _ => {}
        }
        Ok(answer)
    }

    fn region_write(&mut self, body: &[u8]) -> io::Result<Vec<u8>> {
        let (access, data) = access(body)?;
        if data.len() != access.count as usize {
            return Err(wrong("a write of another length than it says"));
        }
        match access.region {
            VFIO_PCI_BAR0_REGION_INDEX => {
                self.has_work |= self.function.bar_write(access.offset, data);
            }
            VFIO_PCI_CONFIG_REGION_INDEX => self.function.config_write(access.offset, data),
            _ => {}
        }
        Ok(access.as_bytes().to_vec())
    }

    fn dma_map(&self, body: &[u8], given: Vec<OwnedFd>) -> io::Result<Vec<u8>> {
        let (map, _) = head::<DmaMap>(body)?;
        let mut given = given.into_iter();
        match (given.next(), given.next()) {
            // ROM has no descriptor, and a device has no business there.
            (None, _) => {}
            (Some(file), None) => {
                let write = map.flags & VFIO_DMA_MAP_FLAG_WRITE != 0;
                self.memory.map(map.address, map.size, &File::from(file), map.offset, write)?;
            }
            (Some(_), Some(_)) => return Err(wrong("memory of more than one descriptor")),
        }
        Ok(Vec::new())
    }

    fn dma_unmap(&self, body: &[u8]) -> io::Result<Vec<u8>> {
        let (unmap, _) = head::<DmaUnmap>(body)?;
        if unmap.flags & VFIO_DMA_UNMAP_FLAG_ALL != 0 {
            self.memory.clear();
        } else {
            self.memory.unmap(unmap.address, unmap.size);
        }
        Ok(unmap.as_bytes().to_vec())
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.to_owned())
}

/// `argsz` of a structure.
fn bytes<T>() -> u32 {
    size_of::<T>() as u32
}

/// The structure that a body begins with, and what follows.
fn head<T: FromBytes + Immutable + KnownLayout>(body: &[u8]) -> io::Result<(T, &[u8])> {
    T::read_from_prefix(body).map_err(|_| wrong("the message is too short for its command"))
}

/// Bytes of a region; `None` where there is none.
fn region_bytes(index: u32) -> Option<u64> {
    match index {
        VFIO_PCI_BAR0_REGION_INDEX => Some(BAR_BYTES),
        VFIO_PCI_CONFIG_REGION_INDEX => Some(config_space::BYTES as u64),
        _ => (index < VFIO_PCI_NUM_REGIONS).then_some(0),
    }
}

/// A region's read or write that stays inside the region.
fn access(body: &[u8]) -> io::Result<(RegionAccess, &[u8])> {
    let (access, data) = head::<RegionAccess>(body)?;
    let size = region_bytes(access.region).ok_or_else(|| wrong("no such region"))?;
    let inside = access.offset.checked_add(access.count.into()).is_some_and(|end| end <= size);
    if !inside || access.count as usize > DATA_MAX {
        return Err(wrong("a region's access outside the region, or too long"));
    }
    Ok((access, data))
}

/// What answers a machine's version: that version, and of what it proposes what we set limits to.
fn version(body: &[u8]) -> io::Result<Vec<u8>> {
    let (version, text) = head::<Version>(body)?;
    if version.major != 0 {
        return Err(wrong(&format!("{}.{} is spoken by nobody here, 0.x is", version.major, version.minor)));
    }
    if text.len() > CAPABILITIES_MAX {
        return Err(wrong("the list of capabilities is too long"));
    }
    let proposed: Value = match text.split_last() {
        None => Value::Null,
        Some((0, text)) => serde_json::from_slice(text)?,
        Some(_) => return Err(wrong("the list of capabilities does not end in a zero")),
    };
    let limits = json!({
        "max_msg_fds": DESCRIPTORS_MAX,
        "max_data_xfer_size": DATA_MAX,
        "max_dma_maps": PIECES_MAX,
    });
    let proposed = proposed.get("capabilities");
    let ours: Map<String, Value> = limits
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| proposed.is_some_and(|proposed| proposed.get(name).is_some()))
        .map(|(name, limit)| (name.clone(), limit.clone()))
        .collect();
    let text = json!({ "capabilities": ours }).to_string();
    let agreed = Version { major: 0, minor: 0 };
    Ok([agreed.as_bytes(), text.as_bytes(), &[0]].concat())
}
