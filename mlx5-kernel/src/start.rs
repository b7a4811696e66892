//! Bringing the device up and down.
//!
//! The order is that of Linux `drivers/net/ethernet/mellanox/mlx5/core/main.c`, `mlx5_function_setup` and `mlx5_load`.

use pollux_eal::region::{Region, Zone};
use pollux_mlx5_abi::command::start::{
    DisableHcaIn, EnableHcaIn, InitHcaIn, ManagePagesIn, QueryIssiOut, QueryPagesIn, QueryPagesOut,
    QuerySpecialContextsOut, SetIssiIn, TeardownHcaIn, TeardownHcaOut, page_phase, page_request,
};
use pollux_mlx5_abi::command::user::{CreateUctxIn, CreateUctxOut};
use pollux_mlx5_abi::command::{opcode, user};
use pollux_mlx5_abi::eqe::{self, Eqe, event};
use pollux_uverbs::Errno;
use zerocopy::FromBytes;

use crate::device::{DmaMemory, Pinned, Rights};
use crate::error::KernelError;
use crate::firmware::{Firmware, SHORT, begin};
use crate::umem::PAGE;

/// Most pages lent in one command.
const PAGES_AT_ONCE: usize = 512;

/// Most pages that the firmware may have: 1 GiB. More is a device gone mad.
const PAGES_MAX: usize = 1 << 18;

/// Pages that the firmware has.
#[derive(Debug, Default)]
pub(crate) struct LentPages(Vec<(Pinned, Zone)>);

impl LentPages {
    fn count(&self) -> usize {
        self.0.iter().map(|(_, zone)| zone.bytes() / PAGE as usize).sum()
    }

    /// Lends `count` more.
    pub(crate) fn lend(
        &mut self,
        firmware: &Firmware,
        memory: &dyn DmaMemory,
        count: usize,
    ) -> Result<(), KernelError> {
        const WHAT: &str = "the firmware's pages";
        if count > PAGES_MAX.saturating_sub(self.count()) {
            return Err(KernelError::Unfit {
                what: "pages wanted",
                value: count as u64,
                wanted: "at most 2^18 in all",
            });
        }
        let mut left = count;
        while left > 0 {
            let now = left.min(PAGES_AT_ONCE);
            let bytes = now * PAGE as usize;
            let zone = Region::anonymous("mlx5 firmware pages", bytes)
                .map_err(|source| KernelError::Memory { what: WHAT, source })?
                .into_zone();
            let address = zone.base().as_ptr().expose_provenance() as u64;
            let pinned = memory
                .pin(address, bytes as u64, Rights::ReadWrite)
                .map_err(|source| KernelError::Pin { what: WHAT, bytes, source })?;
            let mut head: [u8; ManagePagesIn::BYTES] = begin(opcode::MANAGE_PAGES, 0, page_request::GIVE);
            ManagePagesIn::INPUT_NUM_ENTRIES.set(&mut head, now as u32);
            let mut input = head.to_vec();
            for page in 0..now as u64 {
                input.extend_from_slice(&(pinned.dma + page * PAGE).to_be_bytes());
            }
            firmware.must(&input, &mut [0; SHORT])?;
            self.0.push((pinned, zone));
            left -= now;
        }
        Ok(())
    }

    /// Asks how many pages a phase wants, and lends them.
    fn lend_for(
        &mut self,
        firmware: &Firmware,
        memory: &dyn DmaMemory,
        phase: u16,
    ) -> Result<(), KernelError> {
        let input: [u8; QueryPagesIn::BYTES] = begin(opcode::QUERY_PAGES, 0, phase);
        let mut output = QueryPagesOut::ZERO;
        firmware.must(&input, &mut output)?;
        let count = QueryPagesOut::NUM_PAGES.get(&output).cast_signed();
        self.lend(firmware, memory, usize::try_from(count).unwrap_or(0))
    }
}

/// Brings the function up to where objects can be made.
pub(crate) fn enable(firmware: &Firmware, memory: &dyn DmaMemory) -> Result<LentPages, KernelError> {
    let mut pages = LentPages::default();
    let enable: [u8; EnableHcaIn::BYTES] = begin(opcode::ENABLE_HCA, 0, 0);
    firmware.must(&enable, &mut [0; SHORT])?;
    let mut issi = QueryIssiOut::ZERO;
    let query: [u8; SHORT] = begin(opcode::QUERY_ISSI, 0, 0);
    firmware.must(&query, &mut issi)?;
    let supported = QueryIssiOut::SUPPORTED_ISSI_DW0.get(&issi);
    if supported & 0b10 == 0 {
        return Err(KernelError::Unfit {
            what: "supported_issi",
            value: supported.into(),
            wanted: "interface revision 1 (bit 1)",
        });
    }
    let mut set: [u8; SetIssiIn::BYTES] = begin(opcode::SET_ISSI, 0, 0);
    SetIssiIn::CURRENT_ISSI.set(&mut set, 1);
    firmware.must(&set, &mut [0; SHORT])?;
    pages.lend_for(firmware, memory, page_phase::BOOT)?;
    crate::capability::settle(firmware)?;
    pages.lend_for(firmware, memory, page_phase::INIT)?;
    let init: [u8; InitHcaIn::BYTES] = begin(opcode::INIT_HCA, 0, 0);
    firmware.must(&init, &mut [0; SHORT])?;
    Ok(pages)
}

/// The key for reads that nobody wants.
pub(crate) fn dump_fill_mkey(firmware: &Firmware) -> Result<u32, KernelError> {
    let input: [u8; SHORT] = begin(opcode::QUERY_SPECIAL_CONTEXTS, 0, 0);
    let mut output = QuerySpecialContextsOut::ZERO;
    firmware.must(&input, &mut output)?;
    Ok(QuerySpecialContextsOut::DUMP_FILL_MKEY.get(&output))
}

/// Makes a user context with these capabilities.
pub(crate) fn create_user_context(firmware: &Firmware, capabilities: u32) -> Result<u16, Errno> {
    let mut input: [u8; CreateUctxIn::BYTES] = begin(opcode::CREATE_UCTX, 0, 0);
    CreateUctxIn::CAP.set(&mut input, capabilities);
    let mut output = CreateUctxOut::ZERO;
    firmware.execute(&input, &mut output).map_err(Errno::from)?;
    Ok(CreateUctxOut::UID.get(&output) as u16)
}

/// Ends a user context.
pub(crate) fn destroy_user_context(firmware: &Firmware, uid: u16) {
    let mut input: [u8; user::DestroyUctxIn::BYTES] = begin(opcode::DESTROY_UCTX, 0, 0);
    user::DestroyUctxIn::UID.set(&mut input, uid.into());
    let _ = firmware.execute(&input, &mut [0; SHORT]);
}

/// How many pages an event asks for.
pub(crate) fn pages_requested(entry: &Eqe) -> Option<u32> {
    if entry.kind != event::PAGE_REQUEST {
        return None;
    }
    let (request, _) = eqe::PageRequest::read_from_prefix(&entry.data).ok()?;
    u32::try_from(request.num_pages.get().cast_signed()).ok()
}

/// The end of what [`enable`] began.
pub(crate) fn shut_down(firmware: &Firmware, pages: &mut LentPages) {
    let teardown: [u8; TeardownHcaIn::BYTES] = begin(opcode::TEARDOWN_HCA, 0, 0);
    let mut answer = TeardownHcaOut::ZERO;
    let _ = firmware.execute(&teardown, &mut answer);
    let mut left = pages.count();
    while left > 0 {
        let now = left.min(PAGES_AT_ONCE);
        let mut take: [u8; ManagePagesIn::BYTES] = begin(opcode::MANAGE_PAGES, 0, page_request::TAKE);
        ManagePagesIn::INPUT_NUM_ENTRIES.set(&mut take, now as u32);
        if firmware.execute(&take, &mut vec![0; SHORT + now * 8]).is_err() {
            break;
        }
        left -= now;
    }
    let disable: [u8; DisableHcaIn::BYTES] = begin(opcode::DISABLE_HCA, 0, 0);
    let _ = firmware.execute(&disable, &mut [0; SHORT]);
    pages.0.clear();
}
