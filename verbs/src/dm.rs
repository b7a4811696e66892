//! Memory on the device.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::provider::mlx5::dm::DeviceMemory;
use pollux_uverbs::DmHandle;

use crate::provider::Side;
use crate::{Context, VerbsError};

/// Memory on the device: copied to and from here, and, once [registered](crate::Mr::of_device), named by requests. Clones are
/// handles; it is freed with the last one, regions counted.
#[derive(Clone, Debug)]
pub struct Dm(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    memory: Mutex<DeviceMemory>,
    handle: DmHandle,
    bytes: usize,
}

impl Dm {
    /// Allocates device memory of at least so many bytes, at a multiple of `1 << log_align`.
    ///
    /// # Errors
    /// The device has none left, or what the kernel says.
    #[doc(alias = "ibv_alloc_dm")]
    pub fn new(context: &Context, bytes: usize, log_align: u32) -> Result<Self, VerbsError> {
        let Side::Mlx5(hca) = context.driver() else {
            let why = "rxe has no device memory; use host memory".into();
            return Err(VerbsError::Unsupported { what: "device memory", why });
        };
        let memory = hca.device_memory(bytes, log_align)?;
        let (handle, bytes) = (memory.handle(), memory.bytes());
        Ok(Self(Arc::new(Inner { context: context.clone(), memory: Mutex::new(memory), handle, bytes })))
    }

    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }

    pub(crate) fn handle(&self) -> DmHandle {
        self.0.handle
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    fn refused(at: usize, bytes: usize) -> VerbsError {
        let allowed = format!("{bytes} bytes at this offset must be inside it and a multiple of 4");
        VerbsError::Range { what: "device memory at", value: at as u64, allowed }
    }

    /// Makes a dma-buf of its pages, for other devices to reach it, or for a region ([`Mr::of_dmabuf`](crate::Mr::of_dmabuf)). It
    /// is of no use any more once the memory was freed. Source: rdma-core `libibverbs/man/ibv_dm_export_dmabuf_fd.3.md`;
    /// `providers/mlx5/verbs.c`, `mlx5_dm_export_dmabuf_fd`.
    ///
    /// # Errors
    /// A kernel that has it not, or what it says.
    pub fn export(&self) -> Result<OwnedFd, VerbsError> {
        let offset = self.0.memory.lock().unwrap_or_else(PoisonError::into_inner).offset();
        self.0.context.uverbs().export_dmabuf(offset).map_err(|error| {
            if !error.says_unsupported() {
                return VerbsError::kernel("export device memory as a dma-buf")(error);
            }
            let why = format!("it takes Linux 7.0, built with CONFIG_PCI_P2PDMA; this one says: {error}");
            VerbsError::Unsupported { what: "dma-buf of device memory", why }
        })
    }

    /// Copies in, in words of 4 bytes.
    ///
    /// # Errors
    /// Not words inside it.
    pub fn write(&self, at: usize, source: &[u8]) -> Result<(), VerbsError> {
        let mut memory = self.0.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.write(at, source) { Ok(()) } else { Err(Self::refused(at, source.len())) }
    }

    /// Copies out, in words of 4 bytes. Slow: each word crosses the bus and back.
    ///
    /// # Errors
    /// Not words inside it.
    pub fn read(&self, at: usize, target: &mut [u8]) -> Result<(), VerbsError> {
        let memory = self.0.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.read(at, target) { Ok(()) } else { Err(Self::refused(at, target.len())) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.context.uverbs().free_dm(self.handle) {
            tracing::warn!(target: "lib.verbs", "{}: {error}", self.context.name());
        }
    }
}
