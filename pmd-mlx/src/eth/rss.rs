//! How packets are spread over queues: the port's words in the device's.
//!
//! Each kind of packet has its own fields (see [`spread`](super::port::spread)): `NONFRAG_IPV4_TCP` hashes TCP over IPv4 by
//! addresses and ports, `IPV4`, `FRAG_IPV4` or `NONFRAG_IPV4_OTHER` any IPv4 that no narrower kind takes by addresses; the
//! same for UDP and IPv6. As in DPDK `drivers/net/mlx5/mlx5_flow.h`, `MLX5_IPV4_LAYER_TYPES` and its like, the three bits of
//! a version mean one thing: the device does not tell fragments apart.
//!
//! The hash is Toeplitz over source address, destination address, source port, destination port, as far as they are
//! selected, by verbs and by DevX alike: since Linux 5.3 (and its stable releases of then) mlx5_ib no longer asks for the
//! symmetric form, which older kernels have in every hash queue that verbs make (`drivers/infiniband/hw/mlx5/qp.c`,
//! `create_rss_raw_qp_tir`). Both directions of a flow meet in one queue with `pollux_wire::toeplitz::SYMMETRIC_KEY`.

use pollux_mlx5_abi::kernel::queue_pair::hash_field as field;
use pollux_port::{HashAlgorithm, HashFields, PortError, RssConfig, RssInfo};

use super::port::spread::{DEFAULT_KEY, Kind, SpreadSpec, TABLE_ENTRIES};
use pollux_mlx5_abi::kernel::queue_pair::HASH_KEY_BYTES;

/// What is hashed where nobody says otherwise.
pub const DEFAULT_FIELDS: HashFields = HashFields::IP.union(HashFields::TCP).union(HashFields::UDP);

/// What can be hashed.
pub const INFO: RssInfo = RssInfo {
    fields: DEFAULT_FIELDS.union(HashFields::L3_SIDES).union(HashFields::L4_SIDES),
    key_bytes: HASH_KEY_BYTES,
    table_entries: TABLE_ENTRIES,
    algorithms: &[HashAlgorithm::Toeplitz],
};

/// The kinds of packets that `fields` name, narrowest first, each with the device's fields.
///
/// # Errors
/// When the fields of one side of a layer are wanted and that layer is not hashed.
pub(super) fn kinds(fields: HashFields) -> Result<Vec<(Kind, u64)>, PortError> {
    use HashFields as F;
    let v4 = fields.intersects(F::IPV4 | F::FRAG_IPV4 | F::NONFRAG_IPV4_OTHER);
    let v6 = fields.intersects(F::IPV6 | F::FRAG_IPV6 | F::NONFRAG_IPV6_OTHER | F::IPV6_EX);
    let l4 = F::TCP | F::UDP;
    let mixture = |wanted: &str, lacking: &str| PortError::Argument {
        port: String::new(),
        key: "rss fields".into(),
        value: wanted.into(),
        expected: format!("{lacking} must stand beside it: alone it names no packets"),
    };
    if fields.intersects(F::L3_SIDES) && !v4 && !v6 && !fields.intersects(l4) {
        return Err(mixture("one side of layer 3", "a kind of IP, TCP or UDP"));
    }
    if fields.intersects(F::L4_SIDES) && !fields.intersects(l4) {
        return Err(mixture("one side of layer 4", "a kind of TCP or UDP"));
    }
    let selected = side(fields, F::L3_SRC_ONLY, F::L3_DST_ONLY, (L3_SOURCES, L3_DESTINATIONS))
        | side(fields, F::L4_SRC_ONLY, F::L4_DST_ONLY, (L4_SOURCES, L4_DESTINATIONS));
    let hashed = |kind: Kind| match kind {
        Kind::Any => false,
        Kind::Ipv4 => v4,
        Kind::Ipv6 => v6,
        Kind::Ipv4Tcp => fields.contains(F::NONFRAG_IPV4_TCP),
        Kind::Ipv4Udp => fields.contains(F::NONFRAG_IPV4_UDP),
        Kind::Ipv6Tcp => fields.intersects(F::NONFRAG_IPV6_TCP | F::IPV6_TCP_EX),
        Kind::Ipv6Udp => fields.intersects(F::NONFRAG_IPV6_UDP | F::IPV6_UDP_EX),
    };
    let all = Kind::ALL.into_iter().filter(|kind| hashed(*kind));
    Ok(all.map(|kind| (kind, kind.fields() & selected)).collect())
}

const L3_SOURCES: u64 = field::SRC_IPV4 | field::SRC_IPV6;
const L3_DESTINATIONS: u64 = field::DST_IPV4 | field::DST_IPV6;
const L4_SOURCES: u64 = field::SRC_PORT_TCP | field::SRC_PORT_UDP;
const L4_DESTINATIONS: u64 = field::DST_PORT_TCP | field::DST_PORT_UDP;

/// One side of a layer, or both: none asked for, and both asked for, is the same. Source: DPDK `lib/ethdev/rte_ethdev.h`,
/// `rte_eth_rss_hf_refine`.
fn side(fields: HashFields, source: HashFields, destination: HashFields, of: (u64, u64)) -> u64 {
    match (fields.contains(source), fields.contains(destination)) {
        (true, false) => of.0,
        (false, true) => of.1,
        _ => of.0 | of.1,
    }
}

/// The settings of a port's hash, beside the [`SpreadSpec`] that is made of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Hashing {
    pub(super) fields: HashFields,
}

impl Hashing {
    /// The settings that a port is configured with. Without any, packets are spread when there is more than one queue, and
    /// hashed when somebody wants to see the hash.
    pub(super) fn configured(
        config: Option<&RssConfig>,
        queues: usize,
        hash_wanted: bool,
    ) -> Result<(Self, SpreadSpec), PortError> {
        let fields = match config {
            Some(config) => config.fields,
            None if queues > 1 || hash_wanted => DEFAULT_FIELDS,
            None => HashFields::empty(),
        };
        let count = u16::try_from(queues.max(1)).unwrap_or(u16::MAX);
        let table = INFO.even_table(count).iter().map(|queue| queue.0).collect();
        let key = config.and_then(|config| config.key.as_deref()).and_then(|key| key.try_into().ok());
        let spec = SpreadSpec { table, key: key.unwrap_or(DEFAULT_KEY), kinds: kinds(fields)?, merge: None };
        Ok((Self { fields }, spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: HashFields, kind: Kind) -> Option<u64> {
        let all = kinds(fields).expect("a mixture that can be");
        all.into_iter().find(|(known, _)| *known == kind).map(|(_, fields)| fields)
    }

    #[test]
    fn each_kind_has_the_fields_that_were_asked_for() {
        use HashFields as F;
        let v4 = field::SRC_IPV4 | field::DST_IPV4;
        assert_eq!(kinds(F::empty()).expect("nothing"), []);
        assert_eq!(kinds(F::IPV4).expect("one"), [(Kind::Ipv4, v4)]);
        assert_eq!(of(F::FRAG_IPV4, Kind::Ipv4), Some(v4), "fragments are IPv4 to this device");
        assert_eq!(of(F::IPV4, Kind::Ipv4Tcp), None, "TCP goes with IPv4 then");
        let tcp = field::SRC_PORT_TCP | field::DST_PORT_TCP;
        assert_eq!(kinds(F::NONFRAG_IPV4_TCP).expect("one"), [(Kind::Ipv4Tcp, v4 | tcp)]);
        assert_eq!(of(F::IPV6_UDP_EX, Kind::Ipv6Udp), Some(Kind::Ipv6Udp.fields()));
        assert_eq!(kinds(DEFAULT_FIELDS).expect("all").len(), 6);
        // Narrower kinds are looked at first, so they stand first.
        let levels: Vec<u16> =
            kinds(DEFAULT_FIELDS).expect("all").iter().map(|(kind, _)| kind.level()).collect();
        assert!(levels.is_sorted(), "{levels:?}");
    }

    #[test]
    fn one_side_of_a_layer_narrows_it() {
        use HashFields as F;
        let udp = F::NONFRAG_IPV4_UDP;
        assert_eq!(of(udp | F::L3_SRC_ONLY, Kind::Ipv4Udp), Some(field::SRC_IPV4 | L4_UDP));
        assert_eq!(
            of(udp | F::L4_DST_ONLY, Kind::Ipv4Udp),
            Some(field::SRC_IPV4 | field::DST_IPV4 | field::DST_PORT_UDP)
        );
        assert_eq!(
            of(udp | F::L3_DST_ONLY | F::L4_SRC_ONLY, Kind::Ipv4Udp),
            Some(field::DST_IPV4 | field::SRC_PORT_UDP)
        );
        assert_eq!(of(udp | F::L3_SIDES, Kind::Ipv4Udp), Some(Kind::Ipv4Udp.fields()), "both sides are all");
        assert_eq!(of(F::IPV6 | F::L3_DST_ONLY, Kind::Ipv6), Some(field::DST_IPV6));
    }
    const L4_UDP: u64 = field::SRC_PORT_UDP | field::DST_PORT_UDP;

    #[test]
    fn mixtures_that_name_no_packets_are_refused() {
        let said = |fields| kinds(fields).expect_err("refused").named("p0").to_string();
        assert_eq!(
            said(HashFields::L3_SRC_ONLY),
            "port p0: rss fields=one side of layer 3: a kind of IP, TCP or UDP must stand beside it: alone it names no packets"
        );
        assert!(
            said(HashFields::IPV4 | HashFields::L4_DST_ONLY)
                .contains("one side of layer 4: a kind of TCP or UDP")
        );
    }

    #[test]
    fn a_port_is_spread_as_far_as_it_has_queues() {
        let (one, spec) = Hashing::configured(None, 1, false).expect("fine");
        assert!(one.fields.is_empty() && spec.kinds.is_empty() && spec.table.iter().all(|queue| *queue == 0));
        let (seen, _) = Hashing::configured(None, 1, true).expect("fine");
        assert_eq!(seen.fields, DEFAULT_FIELDS);
        let (_, spec) = Hashing::configured(None, 3, false).expect("fine");
        assert_eq!((spec.table.len(), &spec.table[..4]), (TABLE_ENTRIES, &[0, 1, 2, 0][..]));
        let own = RssConfig { key: Some(vec![7; 40]), ..RssConfig::new(HashFields::IPV4) };
        let (_, spec) = Hashing::configured(Some(&own), 2, false).expect("fine");
        assert_eq!((spec.key, spec.kinds.len()), ([7; 40], 1));
        let none = RssConfig::default();
        assert_eq!(Hashing::configured(Some(&none), 4, true).expect("fine").1.kinds, []);
    }
}
