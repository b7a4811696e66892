//! Memory on demand: regions whose pages the device reaches from the moment at which it asks for them.
//!
//! ```text
//!   device ── event ──► Paging::asked ── channel ──► pager ── Region::answer ──► pages reached, entries written
//!     ▲                 (device's thread)           (a thread)                              │
//!     └────────────────────── PAGE_FAULT_RESUME ◄───────────────────────────────────────────┘
//! ```
//!
//! An event comes on the device's thread, which may execute no command; a thread of its own does. Source:
//! Linux `drivers/infiniband/hw/mlx5/odp.c`, `mlx5_ib_mr_memory_pfault_handler`, `pagefault_mr`, `mlx5_ib_advise_mr_prefetch`. The
//! kernel there hears of every page that a process loses, and takes it from the device. Here a page stays the device's once it was
//! asked for: what the process has at that address when the device goes there is what it reaches ([`DmaMemory::reach`]).
//!
//! [`DmaMemory::reach`]: crate::DmaMemory::reach

mod implicit;
mod key;
mod pages;
pub(crate) mod region;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};

use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::eqe::{Eqe, event};
use pollux_mlx5_abi::paging::{
    Fault, LAST, LOG_PAGE, RESUME_ERROR, RESUME_TOKEN_31_0, RESUME_TOKEN_47_32, SUB_TYPE,
};
use pollux_uverbs::Errno;
use zerocopy::FromBytes;

use crate::adapter::Adapter;
use crate::firmware::{SHORT, begin};

/// Who brings the pages behind a key.
trait Answers: fmt::Debug + Send + Sync {
    /// Brings what the device asks for: whole pages, by its own addresses, as far as they are the region's.
    fn answer(self: Arc<Self>, at: u64, bytes: u64) -> Result<(), Errno>;
    /// Whether they are another process's, which has this number.
    fn is_of(&self, process: u32) -> bool;
    /// They are brought no more.
    fn end(&self) -> Result<(), Errno>;
}

/// The regions of a device, and who answers for them.
#[derive(Debug)]
pub(crate) struct Paging {
    adapter: Arc<Adapter>,
    state: Mutex<State>,
    /// Questions that were answered with pages.
    faults: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// By index of each key that may be asked for.
    regions: HashMap<u32, Arc<dyn Answers>>,
    pager: Option<Pager>,
}

#[derive(Debug)]
struct Pager {
    questions: Sender<Fault>,
    thread: JoinHandle<()>,
}

impl Paging {
    /// No regions yet, of a device that may have some.
    pub(crate) fn new(adapter: Arc<Adapter>) -> Self {
        Self { adapter, state: Mutex::default(), faults: AtomicU64::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Never half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the pager, on the thread that makes the device: an lcore's CPUs, which later threads would inherit, are busy. Without one
    /// no region is added.
    pub(crate) fn start(self: &Arc<Self>) {
        let (questions, asked) = channel();
        let (begun, masked) = channel();
        let paging = Arc::downgrade(self);
        let run = move || {
            // A program's signals are its own threads' alone.
            let kept_off = pollux_eal::signal::keep_off_this_thread();
            let _ = begun.send(kept_off.is_ok());
            if kept_off.is_ok() {
                answer(&paging, &asked);
            }
        };
        if let Ok(thread) = Builder::new().name("mlx5 pager".into()).spawn(run)
            && masked.recv() == Ok(true)
        {
            self.state().pager = Some(Pager { questions, thread });
        }
    }

    /// Questions for the key with this index go to `region` from now on.
    ///
    /// # Errors
    /// `EAGAIN` where there is no pager.
    fn add(&self, index: u32, region: &Arc<dyn Answers>) -> Result<(), Errno> {
        let mut state = self.state();
        if state.pager.is_none() {
            return Err(Errno::EAGAIN);
        }
        state.regions.insert(index, Arc::clone(region));
        Ok(())
    }

    /// They go to this region no more. Where the key has ended, its index may be another region's by now.
    fn remove(&self, index: u32, region: &dyn Answers) {
        let mut state = self.state();
        if state.regions.get(&index).is_some_and(|known| std::ptr::addr_eq(Arc::as_ptr(known), region)) {
            state.regions.remove(&index);
        }
    }

    fn find(&self, key: u32) -> Option<Arc<dyn Answers>> {
        self.state().regions.get(&(key >> 8)).cloned()
    }

    /// The device told something; if it asked for pages they will be brought. Called on the device's thread.
    pub(crate) fn asked(&self, entry: &Eqe) {
        if entry.kind != event::PAGE_FAULT || entry.sub_type != SUB_TYPE {
            return;
        }
        if let (Ok((fault, _)), Some(pager)) = (Fault::read_from_prefix(&entry.data), &self.state().pager) {
            // The pager ends when the device does, which waits for no answer then.
            let _ = pager.questions.send(fault);
        }
    }

    /// Another process has ended, or runs another program: whatever has its number now is not what was registered.
    pub(crate) fn forget_process(&self, process: u32) {
        let all: Vec<_> = self.state().regions.values().cloned().collect();
        for region in all.iter().filter(|region| region.is_of(process)) {
            // One of several keys is there as often, and ends once. A device that is gone reaches nothing.
            let _ = region.end();
        }
    }

    /// Questions that were answered with pages so far.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Ends the pager.
    pub(crate) fn end(&self) {
        let State { regions, pager } = std::mem::take(&mut *self.state());
        if let Some(Pager { questions, thread }) = pager {
            drop(questions);
            let _ = thread.join();
        }
        // Those whose keys a device that is gone did not end: they keep this, and this keeps them.
        drop(regions);
    }
}

/// Answers questions until nobody can ask any more.
fn answer(paging: &Weak<Paging>, asked: &Receiver<Fault>) {
    for fault in asked {
        let Some(paging) = paging.upgrade() else { return };
        let region = paging.find(fault.mkey.get()).ok_or(Errno::ENOENT);
        let bytes = u64::from(fault.demand_fault_pages.get() & !((1 << LOG_PAGE) - 1));
        let brought = region.and_then(|region| region.answer(fault.va.get(), bytes));
        if brought.is_ok() {
            paging.faults.fetch_add(1, Ordering::Relaxed);
        }
        if brought.is_err() || fault.flags & LAST != 0 {
            let mut input: [u8; SHORT] = begin(opcode::PAGE_FAULT_RESUME, 0, 0);
            RESUME_ERROR.set(&mut input, brought.is_err().into());
            RESUME_TOKEN_47_32.set(&mut input, fault.token47_32.get().into());
            RESUME_TOKEN_31_0.set(&mut input, fault.token31_0.get());
            // A device that is gone waits for nothing.
            let _ = paging.adapter.execute(&input, &mut [0; SHORT]);
        }
    }
}
