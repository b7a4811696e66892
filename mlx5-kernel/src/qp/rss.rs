//! Queue pairs that spread packets over a table by hash: a TIR and nothing more.

use std::mem::offset_of;

use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::tir::{
    CreateTirIn, HashFields, TirContext, dispatch, hash, hash_field as selected, protocol,
};
use pollux_mlx5_abi::kernel::queue_pair::{
    CreateQpAnswer, CreateRssQp, hash_field, hash_function, qp_answer, qp_flag,
};
use pollux_uverbs::Errno;

use super::raw::{OwnFrames, self_loopback};
use super::{Body, Parts, Wanted};
use crate::core::Core;
use crate::firmware::begin;
use crate::pd::Pd;
use crate::pieces::Pieces;
use crate::ring::tunnels;
use crate::rwq_table::RwqTable;
use crate::session::Session;
use crate::udata;

/// The TIR of a hash queue pair.
#[derive(Debug)]
pub(crate) struct RssQp {
    pub(crate) tirn: u32,
    pieces: Pieces,
    takes_own: OwnFrames,
}

impl RssQp {
    pub(super) fn end(&mut self, core: &Core) -> Result<(), Errno> {
        self.pieces.end(core)?;
        self.takes_own.end(core);
        Ok(())
    }
}

impl Session {
    /// Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `create_rss_raw_qp_tir`.
    pub(super) fn make_rss(&mut self, core: &Core, wanted: &Wanted<'_>, table: u32) -> Result<Parts, Errno> {
        if !wanted.flags.is_empty() || wanted.send_cq.is_some() {
            return Err(Errno::EINVAL);
        }
        if wanted.driver_room < offset_of!(CreateQpAnswer, bfreg_index) + 4 {
            return Err(Errno::EINVAL);
        }
        let driver: CreateRssQp = udata::strict(wanted.driver, size_of::<CreateRssQp>())?;
        let known = qp_flag::TUNNEL_OFFLOADS | qp_flag::TIR_ALLOW_SELF_LB_UC | qp_flag::TIR_ALLOW_SELF_LB_MC;
        if driver.comp_mask != 0 || driver.flags & !known != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let tunnel = driver.flags & qp_flag::TUNNEL_OFFLOADS != 0;
        let inner = driver.rx_hash_fields_mask & hash_field::INNER != 0;
        if tunnel && !tunnels(core) || inner && !tunnel {
            return Err(Errno::EOPNOTSUPP);
        }
        if driver.rx_hash_function != hash_function::TOEPLITZ {
            return Err(Errno::EOPNOTSUPP);
        }
        let key = driver.rx_hash_key.first_chunk::<40>().ok_or(Errno::EINVAL)?;
        if usize::from(driver.rx_key_len) != key.len() {
            return Err(Errno::EINVAL);
        }
        let pd = wanted.pd.ok_or(Errno::EINVAL)?;
        self.handles.get::<Pd>(pd)?;
        let table_object = self.handles.get::<RwqTable>(table)?;
        let granted = self.granted()?;
        let mut input: [u8; CreateTirIn::BYTES] = begin(opcode::CREATE_TIR, granted.uid, 0);
        let context = CreateTirIn::CTX.of_mut(&mut input);
        TirContext::DISP_TYPE.set(context, dispatch::INDIRECT);
        TirContext::INDIRECT_TABLE.set(context, table_object.rqtn);
        TirContext::TRANSPORT_DOMAIN.set(context, granted.domain);
        TirContext::TUNNELED_OFFLOAD_EN.set(context, tunnel.into());
        TirContext::SELF_LB_BLOCK.set(context, self_loopback(driver.flags));
        TirContext::RX_HASH_FN.set(context, hash::TOEPLITZ);
        TirContext::RX_HASH_TOEPLITZ_KEY.set(context, *key);
        let fields = driver.rx_hash_fields_mask & !hash_field::INNER;
        let selector = if driver.rx_hash_fields_mask == 0 {
            // No hash at all: a way to name one queue in a rule.
            if table_object.log_size != 0 {
                return Err(Errno::EINVAL);
            }
            0
        } else {
            selector(fields)?
        };
        let place = if inner {
            TirContext::RX_HASH_FIELD_SELECTOR_INNER
        } else {
            TirContext::RX_HASH_FIELD_SELECTOR_OUTER
        };
        place.set(context, selector);
        let uid = granted.uid;
        let mut pieces = Pieces::default();
        let tirn = pieces.make(core, &input, opcode::DESTROY_TIR, uid)?;
        let mut takes_own = OwnFrames::default();
        if let Err(errno) = takes_own.begin(core, driver.flags) {
            pieces.abandon(core);
            return Err(errno);
        }
        let mut answer = CreateQpAnswer::default();
        if uid != 0 {
            (answer.comp_mask, answer.tirn) = (qp_answer::TIRN, tirn);
        }
        let body = Body::Rss(RssQp { tirn, pieces, takes_own });
        let parents = vec![pd, table];
        Ok(Parts { body, qpn: 0, cap: wanted.cap, answer, register: None, parents })
    }
}

/// The hash fields as the firmware reads them. One TIR is for one kind of packet: IPv4 with IPv6, or two protocols above
/// them, are refused.
pub(crate) fn selector(fields: u64) -> Result<u32, Errno> {
    use hash_field as f;
    let any = |bits: u64| fields & bits != 0;
    let (ipv4, ipv6) = (any(f::SRC_IPV4 | f::DST_IPV4), any(f::SRC_IPV6 | f::DST_IPV6));
    let tcp = any(f::SRC_PORT_TCP | f::DST_PORT_TCP);
    let udp = any(f::SRC_PORT_UDP | f::DST_PORT_UDP);
    let ipsec = any(f::IPSEC_SPI);
    if ipv4 && ipv6 || u8::from(tcp) + u8::from(udp) + u8::from(ipsec) > 1 {
        return Err(Errno::EINVAL);
    }
    let mut block = HashFields::ZERO;
    HashFields::L3_PROT_TYPE.set(&mut block, if ipv6 { protocol::IPV6 } else { protocol::IPV4 });
    HashFields::L4_PROT_TYPE.set(&mut block, if udp { protocol::UDP } else { protocol::TCP });
    let bits = [
        (f::SRC_IPV4 | f::SRC_IPV6, selected::SRC_IP),
        (f::DST_IPV4 | f::DST_IPV6, selected::DST_IP),
        (f::SRC_PORT_TCP | f::SRC_PORT_UDP, selected::L4_SPORT),
        (f::DST_PORT_TCP | f::DST_PORT_UDP, selected::L4_DPORT),
        (f::IPSEC_SPI, selected::IPSEC_SPI),
    ];
    let chosen = bits.iter().filter(|(which, _)| any(*which)).fold(0, |all, (_, bit)| all | bit);
    HashFields::SELECTED_FIELDS.set(&mut block, chosen);
    Ok(u32::from_be_bytes(block))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_of_packet_is_hashed() {
        use hash_field as f;
        assert_eq!(selector(f::SRC_IPV4 | f::DST_IPV4), Ok(0b11));
        assert_eq!(selector(f::SRC_IPV6), Ok(1 << 31 | 1));
        assert_eq!(selector(f::SRC_IPV4 | f::DST_PORT_UDP), Ok(1 << 30 | 0b1001));
        assert_eq!(selector(f::SRC_IPV4 | f::SRC_PORT_TCP | f::DST_PORT_TCP), Ok(0b1101));
        for mixed in
            [f::SRC_IPV4 | f::DST_IPV6, f::SRC_PORT_TCP | f::DST_PORT_UDP, f::IPSEC_SPI | f::SRC_PORT_TCP]
        {
            assert_eq!(selector(mixed), Err(Errno::EINVAL), "{mixed:#x}");
        }
    }
}
