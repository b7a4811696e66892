//! Whether the port's own frames come back to it: off from the start, on while two contexts are open or a queue pair asks
//! for its own frames. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/main.c`, `mlx5_core_set_hca_defaults`;
//! `drivers/infiniband/hw/mlx5/main.c`, `mlx5_ib_enable_lb`, `mlx5_ib_alloc_transport_domain`.

use std::sync::{Mutex, PoisonError};

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::vport::{FieldSelect, ModifyNicVportContextIn, NicVportContext};
use pollux_uverbs::Errno;

use crate::adapter::Adapter;
use crate::capability::Caps;
use crate::firmware::{Failure, Firmware, SHORT, begin};

/// Who counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// A context, which has a transport domain.
    Context,
    /// A queue pair that takes its own domain's frames.
    Pair,
}

/// Who there is.
#[derive(Debug, Default)]
pub(crate) struct LocalLoopback(Mutex<Users>);

#[derive(Debug, Default)]
struct Users {
    contexts: usize,
    pairs: usize,
    is_on: bool,
}

impl Users {
    fn count(&mut self, user: User) -> &mut usize {
        match user {
            User::Context => &mut self.contexts,
            User::Pair => &mut self.pairs,
        }
    }
}

impl LocalLoopback {
    /// One more.
    pub(crate) fn enter(&self, adapter: &Adapter, user: User) -> Result<(), Errno> {
        if user == User::Context && !can_turn(&adapter.caps) {
            return Ok(());
        }
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *users.count(user) += 1;
        if !users.is_on && (users.contexts == 2 || users.pairs == 1) {
            if let Err(failure) = turn(&adapter.firmware, &adapter.caps, true) {
                *users.count(user) -= 1;
                return Err(failure.into());
            }
            users.is_on = true;
        }
        Ok(())
    }

    /// One less.
    pub(crate) fn leave(&self, adapter: &Adapter, user: User) {
        if user == User::Context && !can_turn(&adapter.caps) {
            return;
        }
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *users.count(user) -= 1;
        if users.is_on && users.contexts == 1 && users.pairs == 0 {
            // Nobody is there to be told.
            let _ = turn(&adapter.firmware, &adapter.caps, false);
            users.is_on = false;
        }
    }
}

fn can_turn(caps: &Caps) -> bool {
    caps.has(GeneralCaps::DISABLE_LOCAL_LB_UC) || caps.has(GeneralCaps::DISABLE_LOCAL_LB_MC)
}

/// Turns both kinds on or off, as far as the device can.
pub(crate) fn turn(firmware: &Firmware, caps: &Caps, on: bool) -> Result<(), Failure> {
    if !can_turn(caps) {
        return Ok(());
    }
    let mut select = FieldSelect::ZERO;
    FieldSelect::DISABLE_UC_LOCAL_LB.set(&mut select, caps.general(GeneralCaps::DISABLE_LOCAL_LB_UC));
    FieldSelect::DISABLE_MC_LOCAL_LB.set(&mut select, caps.general(GeneralCaps::DISABLE_LOCAL_LB_MC));
    let mut input: [u8; ModifyNicVportContextIn::BYTES] = begin(opcode::MODIFY_NIC_VPORT_CONTEXT, 0, 0);
    ModifyNicVportContextIn::FIELD_SELECT.set(&mut input, u32::from_be_bytes(select));
    let context = ModifyNicVportContextIn::NIC_VPORT_CONTEXT.of_mut(&mut input);
    NicVportContext::DISABLE_UC_LOCAL_LB.set(context, (!on).into());
    NicVportContext::DISABLE_MC_LOCAL_LB.set(context, (!on).into());
    firmware.execute(&input, &mut [0; SHORT])
}
