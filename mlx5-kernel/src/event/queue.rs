//! The kernel's own event queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, PoisonError, TryLockError};

use pollux_eal::region::{Region, Zone};
use pollux_mlx5_abi::command::eq::{CreateEqIn, CreateEqOut, EqContext};
use pollux_mlx5_abi::command::object::AllocUarOut;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::doorbell::{eq_register, uar};
use pollux_mlx5_abi::eqe::{self, Eqe, event};
use pollux_uverbs::Registers;
use zerocopy::{FromZeros, IntoBytes};

use crate::device::{DmaMemory, Pinned, Rights};
use crate::error::KernelError;
use crate::firmware::{Firmware, SHORT, begin, naming};

/// Entries of a queue, as a logarithm. A full one loses no completion event: each of its completion queues has one at most,
/// and fires once until it is armed again.
const LOG_ENTRIES: u8 = 10;

/// What the first queue takes: everything but completions. Source: Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/eq.c`, `gather_async_events_mask`.
pub(crate) const ASYNC_EVENTS: &[u8] = &[
    event::PATH_MIG,
    event::COMM_EST,
    event::SQ_DRAINED,
    event::CQ_ERROR,
    event::WQ_CATAS_ERROR,
    event::PATH_MIG_FAILED,
    event::INTERNAL_ERROR,
    event::PORT_CHANGE,
    event::PAGE_REQUEST,
    event::WQ_INVAL_REQ_ERROR,
    event::WQ_ACCESS_ERROR,
    event::SRQ_CATAS_ERROR,
    event::SRQ_LAST_WQE,
    event::SRQ_RQ_LIMIT,
];

/// An event queue. It has a UAR of its own: a register holds one value, and two queues that were armed in a row through
/// the same one would lose an arm where a model looks at registers from time to time.
#[derive(Debug)]
pub(crate) struct EventQueue {
    pub(crate) eqn: u8,
    pub(crate) vector: u32,
    uar: u32,
    state: Mutex<State>,
    again: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// Keeps the ring in reach of the device; goes before the ring does.
    _pinned: Pinned,
    ring: Zone,
    registers: Registers,
    consumer: u32,
}

impl EventQueue {
    /// Makes a queue that raises `vector`: for these events, or for completions alone where there are none.
    pub(crate) fn create(
        firmware: &Firmware,
        memory: &dyn DmaMemory,
        vector: u32,
        events: &[u8],
    ) -> Result<Self, KernelError> {
        let bytes = size_of::<Eqe>() << LOG_ENTRIES;
        let (ring, pinned) = fresh_ring(memory, bytes)?;
        let (uar, registers) = own_uar(firmware)?;
        let mut input = begin::<{ CreateEqIn::BYTES }>(opcode::CREATE_EQ, 0, 0).to_vec();
        if let Some(head) = input.first_chunk_mut() {
            let context = CreateEqIn::EQ_CONTEXT_ENTRY.of_mut(head);
            EqContext::LOG_EQ_SIZE.set(context, LOG_ENTRIES.into());
            EqContext::UAR_PAGE.set(context, uar);
            EqContext::INTR.set(context, vector);
            let mask = CreateEqIn::EVENT_BITMASK.of_mut(head);
            let bits = events.iter().fold(0_u64, |bits, kind| bits | 1 << (kind & 63));
            mask[..8].copy_from_slice(&bits.to_be_bytes());
        }
        for page in 0..bytes / 4096 {
            input.extend_from_slice(&(pinned.dma + page as u64 * 4096).to_be_bytes());
        }
        let mut output = CreateEqOut::ZERO;
        firmware.must(&input, &mut output).inspect_err(|_| give_back(firmware, uar))?;
        let eqn = CreateEqOut::EQ_NUMBER.get(&output) as u8;
        let state = Mutex::new(State { _pinned: pinned, ring, registers, consumer: 0 });
        let queue = Self { eqn, vector, uar, state, again: AtomicBool::new(false) };
        queue.state.lock().unwrap_or_else(PoisonError::into_inner).arm(eqn);
        Ok(queue)
    }

    /// Its UAR.
    pub(crate) fn uar(&self) -> u32 {
        self.uar
    }

    /// Takes what is there, gives it to `handle`, and arms the queue again. May be called from several threads, and out of
    /// itself: then the call that is under way does it once more.
    pub(crate) fn service(&self, mut handle: impl FnMut(&Eqe)) {
        self.again.store(true, Ordering::SeqCst);
        while self.again.load(Ordering::SeqCst) {
            let mut entries = Vec::new();
            {
                let mut state = match self.state.try_lock() {
                    Ok(state) => state,
                    Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                    Err(TryLockError::WouldBlock) => return,
                };
                self.again.store(false, Ordering::SeqCst);
                // A ring's worth at most: of what is there then, the device tells at once when it is armed.
                while entries.len() < 1 << LOG_ENTRIES
                    && let Some(entry) = state.next()
                {
                    entries.push(entry);
                }
                state.arm(self.eqn);
            }
            entries.iter().for_each(&mut handle);
        }
    }

    /// Ends the queue.
    pub(crate) fn destroy(&self, firmware: &Firmware) {
        let destroy = naming(opcode::DESTROY_EQ, 0, self.eqn.into());
        let _ = firmware.execute(&destroy, &mut [0; SHORT]);
        give_back(firmware, self.uar);
    }
}

impl State {
    fn next(&mut self) -> Option<Eqe> {
        let at = (self.consumer as usize & ((1 << LOG_ENTRIES) - 1)) * size_of::<Eqe>();
        let mut owner = [0];
        self.ring.copy_out(at + size_of::<Eqe>() - 1, &mut owner);
        if !eqe::is_ready(owner[0], self.consumer, LOG_ENTRIES) {
            return None;
        }
        // Pairs with the device's last store of an entry, the one to its owner byte.
        fence(Ordering::Acquire);
        let mut entry = Eqe::new_zeroed();
        self.ring.copy_out(at, entry.as_mut_bytes());
        self.consumer = self.consumer.wrapping_add(1);
        Some(entry)
    }

    fn arm(&mut self, eqn: u8) {
        let word = u32::from_ne_bytes(eq_register(eqn, self.consumer));
        // The window begins at the register.
        self.registers.store32(0, word);
    }
}

/// A ring whose entries all belong to the device.
fn fresh_ring(memory: &dyn DmaMemory, bytes: usize) -> Result<(Zone, Pinned), KernelError> {
    const WHAT: &str = "the ring of an event queue";
    let region = Region::anonymous("mlx5 event queue", bytes)
        .map_err(|source| KernelError::Memory { what: WHAT, source })?;
    let mut ring = region.into_zone();
    for entry in 0..1 << LOG_ENTRIES {
        ring.copy_in((entry + 1) * size_of::<Eqe>() - 1, &[eqe::FRESH]);
    }
    let address = ring.base().as_ptr().expose_provenance() as u64;
    let pinned = memory.pin(address, bytes as u64, Rights::ReadWrite).map_err(|source| KernelError::Pin {
        what: WHAT,
        bytes,
        source,
    })?;
    Ok((ring, pinned))
}

fn give_back(firmware: &Firmware, uar: u32) {
    let _ = firmware.execute(&naming(opcode::DEALLOC_UAR, 0, uar), &mut [0; SHORT]);
}

fn own_uar(firmware: &Firmware) -> Result<(u32, Registers), KernelError> {
    let input: [u8; SHORT] = begin(opcode::ALLOC_UAR, 0, 0);
    let mut output = AllocUarOut::ZERO;
    firmware.must(&input, &mut output)?;
    let number = AllocUarOut::UAR.get(&output);
    let page = firmware.queue.uar(number, false).ok_or(KernelError::NoUar { number });
    let registers = page.and_then(|page| Ok(Arc::new(page).registers(uar::EQ_ARM..uar::EQ_ARM + 64)?));
    let registers = registers.inspect_err(|_| give_back(firmware, number))?;
    Ok((number, registers))
}
