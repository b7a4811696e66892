//! What the kernel's half stands on: a device that executes firmware commands, and memory that it may reach.

use std::fmt;
use std::sync::Arc;

use pollux_uverbs::{Errno, Page};

/// The device is gone, or was declared dead: no command is answered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device is gone and answers no command; open it again when it is back")]
pub struct Gone;

/// Called when an event queue's interrupt fires, on the device's thread: it may execute no command and must not block.
pub type InterruptHandler = Arc<dyn Fn() + Send + Sync>;

/// A device that executes firmware commands: the model, or a function behind VFIO.
pub trait CommandQueue: Send + Sync + fmt::Debug {
    /// Executes one command. `input` is the whole input block, mailboxes joined; `output` comes in zeroed and is as long as
    /// the command's output block. The device's status and syndrome stand in the output's head, as on hardware.
    ///
    /// # Errors
    /// [`Gone`] when the device answers no more.
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), Gone>;

    /// Gives a key that this side has made the rights and the protection domain of `context`, a key's context as `CREATE_MKEY` has it.
    /// No command does that: Linux posts a work entry to a queue of its own (`drivers/infiniband/hw/mlx5/umr.c`,
    /// `mlx5r_umr_rereg_pd_access`), and a device in process does it without. `false` where there is no such way: then a key is
    /// made anew.
    fn set_key_rights(&self, _index: u32, _context: &[u8; 64]) -> bool {
        false
    }

    /// The same, and other memory behind the key: start, length and size of pages of `context`, and `entries` for all of its pages (Linux
    /// `drivers/infiniband/hw/mlx5/mr.c`, `umr_rereg_pas`). `false` where there is no such way, or no room for so many.
    fn set_key_memory(&self, _index: u32, _context: &[u8; 64], _entries: &[u8]) -> bool {
        false
    }

    /// Writes entries of a translation into a key that this side has made with room for them, from the unit of 16 bytes at `unit` on:
    /// two pages to a unit, or one piece. As above no command does that (`drivers/infiniband/hw/mlx5/umr.c`, `mlx5r_umr_update_xlt`).
    /// `false` where there is no such way, or no such key.
    fn set_key_entries(&self, _index: u32, _unit: u64, _entries: &[u8]) -> bool {
        false
    }

    /// Whether [`set_key_entries`](Self::set_key_entries) works, without which no memory is registered on demand.
    fn sets_key_entries(&self) -> bool {
        false
    }

    /// The 4096 bytes of registers of a UAR that `ALLOC_UAR` gave out, to be mapped. `None` when there is no such UAR, or
    /// when it shall be write-combining and the device's bus cannot do that.
    fn uar(&self, number: u32, write_combining: bool) -> Option<Page>;

    /// Memory of the device that `ALLOC_MEMIC` gave out: `bytes` bytes at that address of the device's bus, whole pages, to be
    /// mapped. In process the bus has BAR 0 at 0, so that the address is also the place in the BAR that keys want. `None` where
    /// there is none.
    fn device_memory(&self, _address: u64, _bytes: usize) -> Option<Page> {
        None
    }

    /// The page that holds the device's free-running clock (8 bytes big-endian at the offset where the initialization
    /// segment has its internal timer).
    fn clock(&self) -> Option<Page>;

    /// Sets what is called when interrupt `vector` fires.
    fn on_interrupt(&self, vector: u32, handler: InterruptHandler);

    /// How many interrupt vectors there are.
    fn vectors(&self) -> u32;

    /// What the function's PCI configuration and the head of its initialization segment tell.
    fn identity(&self) -> Identity {
        Identity::default()
    }

    /// Whether the device is known to be gone. Asked at every interrupt, so that a device that is taken away and fires its
    /// interrupts is found gone without a command.
    fn is_gone(&self) -> bool {
        false
    }
}

/// Which part it is, and which firmware runs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PCI device: 0x1015 is a ConnectX-4 Lx, 0x1017 a ConnectX-5, 0x101d a ConnectX-6 Dx, 0x1021 a ConnectX-7.
    pub device: u16,
    /// PCI revision.
    pub revision: u8,
    /// Firmware: major, minor, sub-minor.
    pub firmware: (u16, u16, u16),
}

impl Default for Identity {
    /// A ConnectX-6 Dx.
    fn default() -> Self {
        Self { device: 0x101d, revision: 0, firmware: (22, 36, 1010) }
    }
}

/// What a device may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Read it.
    Read,
    /// Read and write it.
    ReadWrite,
}

/// Memory that a device is allowed to reach.
pub trait DmaMemory: Send + Sync + fmt::Debug {
    /// Pins a range of this process's memory and lets the device reach it until the answer is dropped.
    ///
    /// # Errors
    /// `EFAULT` when some of it is not mapped with these rights, `ENOMEM` past the limit of locked memory, `EPERM` where that is 0.
    fn pin(&self, address: u64, bytes: u64, rights: Rights) -> Result<Pinned, Errno>;

    /// The same for memory that a call names, which is the [caller's](Self::caller).
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    fn pin_of_caller(&self, address: u64, bytes: u64, rights: Rights) -> Result<Pinned, Errno> {
        self.pin(address, bytes, rights)
    }

    /// Lets the device reach memory of a process, this one or another, that is not kept there for it and counts as locked memory of
    /// nobody. The process may take it away and map something else there, at any time: the device reaches what is there when it
    /// looks, and nothing where nothing is. Called from a thread of the kernel's own, which carries out nobody's call.
    ///
    /// # Errors
    /// `EFAULT` when some of it is not mapped with these rights, `EINVAL` for no bytes, `ENOMEM` for more processes than are told apart,
    /// `EOPNOTSUPP` where devices reach pinned memory alone.
    fn reach(
        &self,
        _process: Option<u32>,
        _address: u64,
        _bytes: u64,
        _rights: Rights,
    ) -> Result<Pinned, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// The process whose addresses and descriptors this thread's calls name, if it is another one than this.
    fn caller(&self) -> Option<u32> {
        None
    }

    /// The folder of `/proc` that describes the [caller](Self::caller).
    fn caller_folder(&self) -> String {
        self.caller().map_or_else(|| "/proc/self".into(), |process| format!("/proc/{process}"))
    }
}

/// A pinned range. Dropping it takes the device's access away.
pub struct Pinned {
    /// Where the device finds the byte at `address`; contiguous for the device as far as it is for the process.
    pub dma: u64,
    /// First byte, as the process has it.
    pub address: u64,
    /// Length.
    pub bytes: u64,
    /// What undoes it.
    pub hold: Box<dyn Send + Sync>,
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("dma", &self.dma)
            .field("address", &self.address)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
