//! Where datagrams go. Source: rdma-core `providers/mlx5/verbs.c`, `mlx5_create_ah`.

use pollux_mlx5_abi::kernel::context::{AhAnswer, uhw};
use pollux_mlx5_abi::wqe::AddressVector;
use pollux_uverbs::abi::flags::GidType;
use pollux_uverbs::abi::memory::AhAttr;
use pollux_uverbs::{AhHandle, Driver, PdHandle};
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromZeros, IntoBytes};

use super::hca::Hca;
use super::post::Address;
use pollux_mlx5_common::MlxError;

/// First UDP port that RoCE sends from. Source: rdma-core `libibverbs/verbs.h`, `IB_ROCE_UDP_ENCAP_VALID_PORT_MIN`.
const UDP_PORT_MIN: u16 = 0xc000;

/// The UDP port for a flow label. Source: rdma-core `libibverbs/verbs.h`, `ibv_flow_label_to_udp_sport`.
#[must_use]
pub(crate) const fn udp_port(flow_label: u32) -> u16 {
    let (low, high) = (flow_label & 0x3fff, flow_label & 0xf_c000);
    (low ^ high >> 14) as u16 | UDP_PORT_MIN
}

impl Hca {
    /// Makes an address, with the MAC that the kernel resolves. What the kernel keeps of it is to be destroyed by whoever
    /// asked.
    ///
    /// # Errors
    /// A GID index without an entry, a destination that nobody has, or what the kernel says.
    pub(crate) fn address(
        &self,
        pd: PdHandle,
        attributes: &AhAttr,
    ) -> Result<(Address, Option<AhHandle>), MlxError> {
        let what = "create an address handle";
        let device = &self.device;
        let grh = &attributes.grh;
        let gid = device
            .context()
            .query_gid(attributes.port_num.into(), grh.sgid_index.into())
            .map_err(|error| device.failed(what, error))?;
        let refuse = |problem: String| MlxError::Queue { queue: "address handle".into(), problem };
        let Some(gid) = gid.filter(|_| attributes.is_global != 0) else {
            return Err(refuse(format!(
                "GID index {} has no entry, or none was given; RoCE needs one",
                grh.sgid_index
            )));
        };
        let mut vector = AddressVector {
            // Rates as the device counts them are 5 up from the ABI's; 0 is the port's.
            stat_rate_sl: if attributes.static_rate == 0 { 0 } else { (attributes.static_rate + 5) << 4 }
                | (attributes.sl & 7) << 1,
            tclass: grh.traffic_class,
            hop_limit: grh.hop_limit,
            grh_gid_fl: U32::new(u32::from(grh.sgid_index) << 20 | grh.flow_label & 0xf_ffff),
            rgid: grh.dgid,
            ..AddressVector::default()
        };
        if gid.kind == GidType::ROCE_V2 {
            let spread = u32::from_be_bytes([0, grh.dgid[13], grh.dgid[14], grh.dgid[15]]);
            let label = if grh.flow_label == 0 { spread & 0x3fff } else { grh.flow_label };
            vector.rlid = U16::new(udp_port(label));
        }
        if device.answer.cmds_supp_uhw & uhw::CREATE_AH == 0 {
            vector.rmac = mac_of(&grh.dgid).ok_or_else(|| {
                refuse("this kernel does not tell the MAC of a GID that is not link-local".into())
            })?;
            return Ok((Address { vector }, None));
        }
        let mut answer = AhAnswer::new_zeroed();
        let handle = device
            .context()
            .create_ah(pd, attributes, Driver::new(&[], answer.as_mut_bytes()))
            .map_err(|error| device.failed(what, error))?;
        vector.rmac = answer.dmac;
        Ok((Address { vector }, Some(handle)))
    }
}

/// The MAC inside a link-local GID.
fn mac_of(gid: &[u8; 16]) -> Option<[u8; 6]> {
    let inside = gid[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0] && gid[11..13] == [0xff, 0xfe];
    inside.then(|| [gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15]])
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_link_local_gid_has_its_mac_inside() {
        let gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x52, 0x54, 0, 0xff, 0xfe, 0x12, 0x34, 0x56];
        assert_eq!(super::mac_of(&gid), Some([0x50, 0x54, 0, 0x12, 0x34, 0x56]));
        assert_eq!(super::mac_of(&[0; 16]), None);
    }

    #[test]
    fn ports_of_flow_labels_are_above_the_first() {
        assert_eq!(
            [0, 1, 0x3fff, 0x4000, 0xf_ffff].map(super::udp_port),
            [0xc000, 0xc001, 0xffff, 0xc001, 0xffc0]
        );
    }
}
