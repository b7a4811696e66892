//! A second port of the RDMA device, which another function of the card has: Linux's multiport mode. Queue pairs and all else are the
//! first function's; the second one's link, wire and network are its port's.
//!
//! Source: Linux `drivers/infiniband/hw/mlx5/main.c`, `mlx5_ib_bind_slave_port`, `mlx5_ib_unbind_slave_port`,
//! `mlx5_ib_get_native_port_mdev`; `drivers/net/ethernet/mellanox/mlx5/core/vport.c`, `mlx5_nic_vport_affiliate_multiport`;
//! `include/linux/mlx5/driver.h`, `mlx5_core_is_mp_master`, `mlx5_core_is_mp_slave`.

use std::sync::Arc;

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::vport::{FieldSelect, ModifyNicVportContextIn, NicVportContext};

use crate::adapter::Adapter;
use crate::capability::Caps;
use crate::error::KernelError;
use crate::firmware::{Failure, Firmware, SHORT, begin};
use crate::gid::Gids;
use crate::neighbour::Neighbours;
use crate::port::Port;
use crate::queue_counters::QueueCounters;

/// The number of the second port.
pub(crate) const SECOND: u64 = 2;

/// The second port.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The function that has it.
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) port: Arc<Port>,
    pub(crate) neighbours: Option<Arc<Neighbours>>,
    /// Entries of the first function's table.
    pub(crate) gids: Gids,
    /// Counters of the first function's for queue pairs of this port.
    pub(crate) counters: QueueCounters,
}

impl Joined {
    /// Makes the port of the function behind `adapter` the second one of `first`'s. `guid`: of the first function's card.
    pub(crate) fn join(
        first: &Adapter,
        guid: u64,
        adapter: Arc<Adapter>,
        port: Arc<Port>,
        neighbours: Option<Arc<Neighbours>>,
    ) -> Result<Self, KernelError> {
        let unfit = |what, value: u64, wanted| Err(KernelError::Unfit { what, value, wanted });
        let ports = first.caps.general(GeneralCaps::NUM_VHCA_PORTS);
        if u64::from(ports) < SECOND {
            return unfit("num_vhca_ports", ports.into(), "2");
        }
        let own = adapter.caps.general(GeneralCaps::NATIVE_PORT_NUM);
        if !adapter.caps.is_second_function() || u64::from(own) != SECOND {
            return unfit("native_port_num of the second function", own.into(), "2");
        }
        if port.system_guid != guid {
            return unfit("system_image_guid of the second function", port.system_guid, "the first one's");
        }
        let criteria = adapter.caps.general(GeneralCaps::AFFILIATE_NIC_VPORT_CRITERIA);
        affiliate(&adapter.firmware, Some(&first.caps), criteria)
            .map_err(|failure| failure.of(opcode::MODIFY_NIC_VPORT_CONTEXT))?;
        let gids = Gids::make(&first.firmware, &first.caps, SECOND as u32, port.mac, &port.addresses);
        let counters = QueueCounters::make(&first.firmware);
        Ok(Self { adapter, port, neighbours, gids, counters })
    }

    /// The reverse of [`join`](Self::join).
    pub(crate) fn end(&self, first: &Adapter) {
        self.gids.clear(&first.firmware, &first.caps);
        self.counters.end(&first.firmware);
        // Nobody is there to be told.
        let _ = affiliate(&self.adapter.firmware, None, 0);
    }
}

/// Tells a function whose second port its port is; nobody's without `first`. RoCE is enabled there since its start.
fn affiliate(firmware: &Firmware, first: Option<&Caps>, criteria: u32) -> Result<(), Failure> {
    let mut select = FieldSelect::ZERO;
    FieldSelect::AFFILIATION.set(&mut select, 1);
    let mut input: [u8; ModifyNicVportContextIn::BYTES] = begin(opcode::MODIFY_NIC_VPORT_CONTEXT, 0, 0);
    ModifyNicVportContextIn::FIELD_SELECT.set(&mut input, u32::from_be_bytes(select));
    let context = ModifyNicVportContextIn::NIC_VPORT_CONTEXT.of_mut(&mut input);
    if let Some(first) = first {
        NicVportContext::AFFILIATED_VHCA_ID.set(context, first.general(GeneralCaps::VHCA_ID));
        NicVportContext::AFFILIATION_CRITERIA.set(context, criteria);
    }
    firmware.execute(&input, &mut [0; SHORT])
}
