//! Memory by number, for DevX commands.

use std::sync::Arc;

use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::user::{CreateUmemIn, CreateUmemOut, DestroyUmemIn, UmemContext};
use pollux_mlx5_abi::kernel::attribute::{devx_umem_dereg, devx_umem_reg as a};
use pollux_uverbs::abi::flags::Access;
use pollux_uverbs::{Call, Errno};

use crate::core::Core;
use crate::device::Rights;
use crate::firmware::{SHORT, begin};
use crate::handle::{Object, ObjectKind};
use crate::session::Session;
use crate::umem::{Umem, entry};

/// A piece of memory.
#[derive(Debug)]
pub(crate) struct DevxUmem {
    number: Option<u32>,
    _memory: Umem,
}

impl Object for DevxUmem {
    fn kind(&self) -> ObjectKind {
        ObjectKind::DevxUmem
    }

    fn end(&mut self, core: &Core, uid: u16) -> Result<(), Errno> {
        if let Some(number) = self.number {
            let mut input: [u8; DestroyUmemIn::BYTES] = begin(opcode::DESTROY_UMEM, uid, 0);
            DestroyUmemIn::UMEM_ID.set(&mut input, number);
            core.execute(&input, &mut [0; SHORT])?;
            self.number = None;
        }
        Ok(())
    }
}

impl Session {
    /// `DEVX_UMEM/REG`.
    pub(crate) fn devx_register(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let uid = self.granted()?.uid;
        if uid == 0 {
            return Err(Errno::EINVAL);
        }
        if call.find(a::DMABUF_FD).is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        let access = if call.find(a::ACCESS).is_some() { call.number(a::ACCESS)? } else { 0 };
        let known = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let access =
            u32::try_from(access).ok().filter(|bits| bits & !known.bits() == 0).ok_or(Errno::EINVAL)?;
        let access = Access::from_bits_retain(access);
        if access.contains(Access::REMOTE_WRITE) && !access.contains(Access::LOCAL_WRITE) {
            return Err(Errno::EINVAL);
        }
        // Pages of 4 KiB and more; without a word from the program all of them.
        let sizes = if call.find(a::PGSZ_BITMAP).is_some() { call.number(a::PGSZ_BITMAP)? } else { !0xfff };
        if sizes & 1 << 12 == 0 {
            // Larger ones alone need memory that is contiguous as far as that, and a range that is made of them.
            return Err(Errno::EINVAL);
        }
        let core = Arc::clone(&self.core);
        let rights = Umem::rights(access);
        let memory = Umem::pin(core.memory.as_ref(), call.number(a::ADDR)?, call.number(a::LEN)?, rights)?;
        let mut head: [u8; CreateUmemIn::BYTES] = begin(opcode::CREATE_UMEM, uid, 0);
        let context = CreateUmemIn::UMEM.of_mut(&mut head);
        UmemContext::NUM_OF_MTT.set(context, memory.count(12));
        // Pages of 4 KiB: a logarithm above that of 0.
        UmemContext::LOG_PAGE_SIZE.set(context, 0);
        UmemContext::PAGE_OFFSET.set(context, (memory.dma() & 0xfff) as u32);
        let bits = entry::READ | if rights == Rights::ReadWrite { entry::WRITE } else { 0 };
        let mut input = head.to_vec();
        input.extend_from_slice(&memory.pages(12, bits));
        let mut output = CreateUmemOut::ZERO;
        core.execute(&input, &mut output)?;
        let number = CreateUmemOut::UMEM_ID.get(&output);
        let umem = DevxUmem { number: Some(number), _memory: memory };
        let handle = self.handles.add(umem, &[]);
        call.create(a::HANDLE, handle)?;
        call.reply(a::OUT_ID, &number)
    }

    /// `DEVX_UMEM/DEREG`.
    pub(crate) fn devx_deregister(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        self.destroy::<DevxUmem>(call.handle(devx_umem_dereg::HANDLE)?).map(drop)
    }
}
