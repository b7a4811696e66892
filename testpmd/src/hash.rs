//! Names of the fields that RSS hashes.

use pollux_port::HashFields;

/// testpmd's names of hash fields (`app/test-pmd/config.c`, `rss_type_table`).
pub const NAMES: [(&str, HashFields); 29] = [
    ("ipv4", HashFields::IPV4),
    ("ipv4-frag", HashFields::FRAG_IPV4),
    ("ipv4-tcp", HashFields::NONFRAG_IPV4_TCP),
    ("ipv4-udp", HashFields::NONFRAG_IPV4_UDP),
    ("ipv4-sctp", HashFields::NONFRAG_IPV4_SCTP),
    ("ipv4-other", HashFields::NONFRAG_IPV4_OTHER),
    ("ipv6", HashFields::IPV6),
    ("ipv6-frag", HashFields::FRAG_IPV6),
    ("ipv6-tcp", HashFields::NONFRAG_IPV6_TCP),
    ("ipv6-udp", HashFields::NONFRAG_IPV6_UDP),
    ("ipv6-sctp", HashFields::NONFRAG_IPV6_SCTP),
    ("ipv6-other", HashFields::NONFRAG_IPV6_OTHER),
    ("l2-payload", HashFields::L2_PAYLOAD),
    ("ipv6-ex", HashFields::IPV6_EX),
    ("ipv6-tcp-ex", HashFields::IPV6_TCP_EX),
    ("ipv6-udp-ex", HashFields::IPV6_UDP_EX),
    ("port", HashFields::PORT),
    ("vxlan", HashFields::VXLAN),
    ("geneve", HashFields::GENEVE),
    ("nvgre", HashFields::NVGRE),
    ("gtpu", HashFields::GTPU),
    ("eth", HashFields::ETH),
    ("s-vlan", HashFields::S_VLAN),
    ("c-vlan", HashFields::C_VLAN),
    ("esp", HashFields::ESP),
    ("l4-dst-only", HashFields::L4_DST_ONLY),
    ("l4-src-only", HashFields::L4_SRC_ONLY),
    ("l3-dst-only", HashFields::L3_DST_ONLY),
    ("l3-src-only", HashFields::L3_SRC_ONLY),
];

/// Names of groups of them.
pub const GROUPS: [(&str, HashFields); 6] = [
    (
        "all",
        HashFields::IP
            .union(HashFields::TCP)
            .union(HashFields::UDP)
            .union(HashFields::NONFRAG_IPV4_SCTP)
            .union(HashFields::NONFRAG_IPV6_SCTP)
            .union(HashFields::L2_PAYLOAD)
            .union(HashFields::ETH)
            .union(HashFields::ESP)
            .union(HashFields::GTPU)
            .union(HashFields::S_VLAN)
            .union(HashFields::C_VLAN),
    ),
    ("none", HashFields::empty()),
    ("ip", HashFields::IP),
    ("udp", HashFields::UDP),
    ("tcp", HashFields::TCP),
    ("sctp", HashFields::NONFRAG_IPV4_SCTP.union(HashFields::NONFRAG_IPV6_SCTP)),
];

/// The fields of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<HashFields> {
    GROUPS.iter().chain(&NAMES).find(|(known, _)| *known == name).map(|(_, fields)| *fields)
}

/// Names of hash fields, a few a line, two spaces before each.
#[must_use]
pub fn names(fields: HashFields) -> String {
    const WIDTH: usize = 60;
    let (mut text, mut line) = (String::new(), String::new());
    for (name, _) in NAMES.iter().filter(|(_, bits)| fields.contains(*bits)) {
        if line.len() + name.len() + 2 > WIDTH {
            text += &line;
            text.push('\n');
            line.clear();
        }
        line += "  ";
        line += name;
    }
    text + &line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hash_fields_fit_their_lines() {
        let names = names(by_name("all").expect("a group"));
        assert!(names.lines().all(|line| line.starts_with("  ") && line.len() <= 62), "{names}");
        assert_eq!(by_name("ipv4-udp"), Some(HashFields::NONFRAG_IPV4_UDP));
    }
}
