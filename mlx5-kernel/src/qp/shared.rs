//! A queue pair of a transport on the device, behind one handle or several.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_mlx5_abi::command::opcode;
use pollux_uverbs::Errno;
use pollux_uverbs::abi::flags::{Access, QpState, QpType};

use crate::adapter::Adapter;
use crate::firmware::{SHORT, naming};
use crate::umem::{Record, Umem};

/// A queue pair on the device. Receivers of XRC are shared by all who opened them.
#[derive(Debug)]
pub(crate) struct TransportQp {
    pub(crate) kind: QpType,
    pub(crate) qpn: u32,
    pub(super) uid: u16,
    pub(super) state: QpState,
    /// The port that it was given in INIT.
    pub(super) port: u8,
    /// Rights of the other side, and how many of its READs and atomics are served at once.
    pub(super) access: Access,
    pub(super) serves: u8,
    pub(super) pdn: u32,
    pub(super) send_cqn: u32,
    pub(super) recv_cqn: u32,
    pub(super) record: u64,
    pub(super) receive_entries: u32,
    pub(super) receive_pieces: u32,
    /// Handles that it has.
    pub(super) handles: u32,
    pub(super) _rings: Option<Umem>,
    pub(super) _record: Option<Record>,
}

/// The queue pair behind a lock: no change of it is left half done.
pub(crate) fn locked(qp: &Arc<Mutex<TransportQp>>) -> MutexGuard<'_, TransportQp> {
    qp.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TransportQp {
    /// A handle less; with the last one it ends on the device.
    pub(super) fn end(&mut self, adapter: &Adapter) -> Result<(), Errno> {
        if self.handles == 1 {
            if self.state != QpState::RESET {
                // What it refuses here it refuses there too.
                let _ = adapter.execute(&naming(opcode::TO_RST_QP, self.uid, self.qpn), &mut [0; SHORT]);
                self.state = QpState::RESET;
            }
            adapter.execute(&naming(opcode::DESTROY_QP, self.uid, self.qpn), &mut [0; SHORT])?;
            if self.kind == QpType::GSI {
                adapter.management.store(false, Ordering::Relaxed);
            }
        }
        self.handles = self.handles.saturating_sub(1);
        Ok(())
    }
}
