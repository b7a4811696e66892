//! Objects of the kernel's own that queue pairs of XRC stand on: a domain, a completion queue where nothing completes, a
//! shared receive queue where nothing is posted. Source: Linux `drivers/infiniband/hw/mlx5/main.c`,
//! `mlx5_ib_dev_res_cq_init`, `mlx5_ib_dev_res_srq_init`.

use pollux_eal::region::{Region, Zone};
use pollux_mlx5_abi::command::cq::{CqContext, CreateCqIn};
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::srq::{CreateXrcSrqIn, XrcSrqContext};
use pollux_uverbs::Errno;

use crate::adapter::Adapter;
use crate::device::{DmaMemory, Pinned, Rights};
use crate::firmware::{SHORT, begin};
use crate::pieces::Pieces;
use crate::ring::DEFAULT_USER_INDEX;
use crate::umem::PAGE;

/// Entries of the two rings, as a logarithm.
const LOG_ENTRIES: u32 = 1;

/// Where things stand in the one page of memory that they have.
const RECORDS: u64 = 1024;
/// See [`RECORDS`].
const SHARED_RING: u64 = 2048;

/// The objects.
#[derive(Debug)]
pub(crate) struct OwnObjects {
    pub(crate) numbers: OwnNumbers,
    pieces: Pieces,
    /// Goes before the page does.
    _pinned: Pinned,
    _page: Zone,
}

/// Their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnNumbers {
    pub(crate) pdn: u32,
    pub(crate) cqn: u32,
    /// A domain in which nobody receives.
    pub(crate) xrcd: u32,
    pub(crate) srqn: u32,
}

impl OwnObjects {
    /// Makes them. `uar` and `eqn` are for the completion queue: a doorbell page, and where its events would go.
    pub(crate) fn make(adapter: &Adapter, uar: u32, eqn: u8) -> Result<Self, Errno> {
        let region = Region::anonymous("mlx5 own objects", PAGE as usize).map_err(|_| Errno::ENOMEM)?;
        let mut page = region.into_zone();
        for entry in 0..1 << LOG_ENTRIES {
            page.copy_in(entry * 64 + 63, &[pollux_mlx5_abi::cqe::FRESH]);
        }
        let address = page.base().as_ptr().expose_provenance() as u64;
        let memory: &dyn DmaMemory = adapter.memory.as_ref();
        let pinned = memory.pin(address, PAGE, Rights::ReadWrite)?;
        let mut pieces = Pieces::default();
        let numbers = Self::make_pieces(adapter, &mut pieces, pinned.dma, (uar, eqn))
            .inspect_err(|_| pieces.abandon(adapter))?;
        Ok(Self { numbers, pieces, _pinned: pinned, _page: page })
    }

    fn make_pieces(
        adapter: &Adapter,
        pieces: &mut Pieces,
        page: u64,
        (uar, eqn): (u32, u8),
    ) -> Result<OwnNumbers, Errno> {
        let plain = |code| begin::<SHORT>(code, 0, 0);
        let pdn = pieces.make(adapter, &plain(opcode::ALLOC_PD), opcode::DEALLOC_PD, 0)?;
        let receives = pieces.make(adapter, &plain(opcode::ALLOC_XRCD), opcode::DEALLOC_XRCD, 0)?;
        let xrcd = pieces.make(adapter, &plain(opcode::ALLOC_XRCD), opcode::DEALLOC_XRCD, 0)?;
        let mut head: [u8; CreateCqIn::BYTES] = begin(opcode::CREATE_CQ, 0, 0);
        let context = CreateCqIn::CQ_CONTEXT.of_mut(&mut head);
        CqContext::LOG_CQ_SIZE.set(context, LOG_ENTRIES);
        CqContext::UAR_PAGE.set(context, uar);
        CqContext::C_EQN_OR_APU_ELEMENT.set(context, eqn.into());
        CqContext::DBR_ADDR.set(context, page + RECORDS);
        let mut input = head.to_vec();
        input.extend_from_slice(&page.to_be_bytes());
        let cqn = pieces.make(adapter, &input, opcode::DESTROY_CQ, 0)?;
        let mut head: [u8; CreateXrcSrqIn::BYTES] = begin(opcode::CREATE_XRC_SRQ, 0, 0);
        let context = CreateXrcSrqIn::XRC_SRQ_CONTEXT_ENTRY.of_mut(&mut head);
        XrcSrqContext::LOG_XRC_SRQ_SIZE.set(context, LOG_ENTRIES);
        // Entries of 32 bytes, in units of 16.
        XrcSrqContext::LOG_RQ_STRIDE.set(context, 1);
        XrcSrqContext::XRCD.set(context, receives);
        XrcSrqContext::PAGE_OFFSET.set(context, (SHARED_RING / 64) as u32);
        XrcSrqContext::CQN.set(context, cqn);
        XrcSrqContext::USER_INDEX.set(context, DEFAULT_USER_INDEX);
        XrcSrqContext::PD.set(context, pdn);
        XrcSrqContext::DBR_ADDR_4.set(context, (page + RECORDS + 64) >> 2);
        let mut input = head.to_vec();
        input.extend_from_slice(&page.to_be_bytes());
        let srqn = pieces.make(adapter, &input, opcode::DESTROY_XRC_SRQ, 0)?;
        Ok(OwnNumbers { pdn, cqn, xrcd, srqn })
    }

    pub(crate) fn end(mut self, adapter: &Adapter) {
        self.pieces.abandon(adapter);
    }
}
