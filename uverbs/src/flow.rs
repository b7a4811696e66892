//! Flow rules: which packets go to a queue pair, and what else happens to them.

use zerocopy::IntoBytes;

use crate::abi::flags::{FlowFlags, FlowType};
use crate::abi::flow::{
    ACTION_COUNT, ACTION_DROP, ACTION_TAG, CountSpec, CreateFlow, CreateFlowResp, DestroyFlow, DropSpec, ESP,
    ETH, EspFilter, EspSpec, EthFilter, EthSpec, FlowAttr, GRE, GreFilter, GreSpec, INNER, IPV4, IPV6,
    Ipv4Filter, Ipv4Spec, Ipv6Filter, Ipv6Spec, MPLS, MplsSpec, TCP, TagSpec, TcpUdpFilter, TcpUdpSpec,
    TunnelSpec, UDP, VXLAN,
};
use crate::abi::{id, write};
use crate::handle::{CountersHandle, FlowHandle, QpHandle};
use crate::{Context, Driver, Operation, UverbsError};

/// Most specs of a rule. Source: Linux `drivers/infiniband/core/uverbs_cmd.c` (`ib_uverbs_ex_create_flow`) with
/// `include/rdma/ib_verbs.h`, `IB_FLOW_SPEC_SUPPORT_LAYERS`.
pub const SPECS_MAX: usize = 10;

/// What to match, or to do with what matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowSpec {
    /// An Ethernet header.
    Eth {
        /// Values.
        value: EthFilter,
        /// Bits that count.
        mask: EthFilter,
        /// The header inside a tunnel.
        inner: bool,
    },
    /// An IPv4 header.
    Ipv4 {
        /// Values.
        value: Ipv4Filter,
        /// Bits that count.
        mask: Ipv4Filter,
        /// The header inside a tunnel.
        inner: bool,
    },
    /// An IPv6 header.
    Ipv6 {
        /// Values.
        value: Ipv6Filter,
        /// Bits that count.
        mask: Ipv6Filter,
        /// The header inside a tunnel.
        inner: bool,
    },
    /// A TCP header.
    Tcp {
        /// Values.
        value: TcpUdpFilter,
        /// Bits that count.
        mask: TcpUdpFilter,
        /// The header inside a tunnel.
        inner: bool,
    },
    /// A UDP header.
    Udp {
        /// Values.
        value: TcpUdpFilter,
        /// Bits that count.
        mask: TcpUdpFilter,
        /// The header inside a tunnel.
        inner: bool,
    },
    /// A VXLAN header.
    Vxlan {
        /// Network identifier.
        value: u32,
        /// Bits of it that count.
        mask: u32,
    },
    /// An ESP header. mlx5's driver of Linux 6.1 matches none: `EOPNOTSUPP`.
    Esp {
        /// Values.
        value: EspFilter,
        /// Bits that count.
        mask: EspFilter,
    },
    /// A GRE header. mlx5 matches protocol and key: `EOPNOTSUPP` for flags.
    Gre {
        /// Values.
        value: GreFilter,
        /// Bits that count.
        mask: GreFilter,
    },
    /// The first entry of an MPLS label stack: behind the spec of a UDP or GRE header that of the packet in it, else that behind the
    /// Ethernet header. mlx5: `EOPNOTSUPP` where the card is not set up for it (`FLEX_PARSER_PROFILE_ENABLE=1`).
    Mpls {
        /// Label in the upper 20 bits, then traffic class (3), bottom of stack (1), time to live (8).
        value: u32,
        /// Bits of it that count.
        mask: u32,
        /// The one inside a tunnel.
        inner: bool,
    },
    /// Completions carry this mark.
    Tag(u32),
    /// It goes nowhere.
    Drop,
    /// It is counted.
    Count(CountersHandle),
}

/// A rule.
#[derive(Clone, Copy, Debug)]
pub struct FlowRule<'a> {
    /// Queue pair that takes what matches.
    pub qp: QpHandle,
    /// The port, from 1.
    pub port: u8,
    /// 0 is looked at first.
    pub priority: u16,
    /// Its kind.
    pub kind: FlowType,
    /// Options.
    pub flags: FlowFlags,
    /// What it matches, outermost header first, and then what it does.
    pub specs: &'a [FlowSpec],
}

impl FlowSpec {
    fn append(&self, to: &mut Vec<u8>) {
        let kind = |kind: u32, inner: bool| if inner { kind | INNER } else { kind };
        macro_rules! spec {
            ($spec:ident, $type:expr $(, $field:ident: $value:expr)*) => {
                // No layout of this module is longer than 88 bytes.
                to.extend_from_slice($spec {
                    type_: $type, size: size_of::<$spec>() as u16, $($field: $value,)* ..$spec::default()
                }.as_bytes())
            };
        }
        match *self {
            Self::Eth { value, mask, inner } => spec!(EthSpec, kind(ETH, inner), val: value, mask: mask),
            Self::Ipv4 { value, mask, inner } => spec!(Ipv4Spec, kind(IPV4, inner), val: value, mask: mask),
            Self::Ipv6 { value, mask, inner } => spec!(Ipv6Spec, kind(IPV6, inner), val: value, mask: mask),
            Self::Tcp { value, mask, inner } => spec!(TcpUdpSpec, kind(TCP, inner), val: value, mask: mask),
            Self::Udp { value, mask, inner } => spec!(TcpUdpSpec, kind(UDP, inner), val: value, mask: mask),
            Self::Vxlan { value, mask } => spec!(TunnelSpec, VXLAN, val: value.into(), mask: mask.into()),
            Self::Esp { value, mask } => spec!(EspSpec, ESP, val: value, mask: mask),
            Self::Gre { value, mask } => spec!(GreSpec, GRE, val: value, mask: mask),
            Self::Mpls { value, mask, inner } => {
                spec!(MplsSpec, kind(MPLS, inner), val: value.into(), mask: mask.into());
            }
            Self::Tag(tag) => spec!(TagSpec, ACTION_TAG, tag_id: tag),
            Self::Drop => spec!(DropSpec, ACTION_DROP),
            Self::Count(counters) => spec!(CountSpec, ACTION_COUNT, handle: counters.0),
        }
    }
}

impl FlowRule<'_> {
    /// The command's bytes.
    fn request(&self) -> Result<Vec<u8>, UverbsError> {
        let count = self.specs.len();
        if count > SPECS_MAX {
            return Err(UverbsError::TooLarge {
                operation: Operation::Write { command: write::EX_CREATE_FLOW },
                attribute: "count of specs".into(),
                value: count as u64,
                limit: SPECS_MAX as u64,
            });
        }
        let mut specs = Vec::new();
        for spec in self.specs {
            spec.append(&mut specs);
        }
        let head = CreateFlow {
            comp_mask: 0,
            qp_handle: self.qp.0,
            flow_attr: FlowAttr {
                type_: self.kind.0,
                // Ten specs of 88 bytes at most.
                size: specs.len() as u16,
                priority: self.priority,
                num_of_specs: count as u8,
                port: self.port,
                flags: self.flags.bits(),
                ..FlowAttr::default()
            },
        };
        let mut request = head.as_bytes().to_vec();
        request.extend_from_slice(&specs);
        Ok(request)
    }
}

impl Context {
    /// Makes a flow rule.
    ///
    /// # Errors
    /// What the kernel says: `EPERM` without CAP_NET_RAW, `EINVAL` for a rule that the device cannot hold, `ENOTSUPP` or
    /// `EINVAL` for a priority that it does not have. [`UverbsError::TooLarge`] for more than [`SPECS_MAX`] specs.
    pub fn create_flow(&self, rule: &FlowRule<'_>, driver: Driver<'_>) -> Result<FlowHandle, UverbsError> {
        let request = rule.request()?;
        let answer: CreateFlowResp = self.write(write::EX_CREATE_FLOW, request.as_slice(), driver)?;
        Ok(FlowHandle(answer.flow_handle))
    }

    /// Destroys a flow rule.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn destroy_flow(&self, flow: FlowHandle) -> Result<(), UverbsError> {
        let command = (write::EX_DESTROY_FLOW, DestroyFlow { comp_mask: 0, flow_handle: flow.0 });
        self.destroy((id::flow::OBJECT, id::flow::destroy::METHOD), flow.0, command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes by hand, from the C structs.
    #[test]
    fn a_rule_is_laid_out_as_the_kernel_reads_it() {
        let value =
            EthFilter { dst_mac: [2, 0, 0, 0, 0, 1], ether_type: 0x0800.into(), ..EthFilter::default() };
        let mask = EthFilter { dst_mac: [0xff; 6], ether_type: 0xffff.into(), ..EthFilter::default() };
        let ports = TcpUdpFilter { dst_port: 4791.into(), src_port: 0.into() };
        let ports_mask = TcpUdpFilter { dst_port: 0xffff.into(), src_port: 0.into() };
        let specs = [
            FlowSpec::Eth { value, mask, inner: false },
            FlowSpec::Udp { value: ports, mask: ports_mask, inner: true },
            FlowSpec::Tag(0xabcd),
            FlowSpec::Drop,
        ];
        let rule = FlowRule {
            qp: QpHandle(0x11),
            port: 1,
            priority: 3,
            kind: FlowType::NORMAL,
            flags: FlowFlags::DONT_TRAP,
            specs: &specs,
        };
        let expected: Vec<u8> = [
            &[0, 0, 0, 0, 0x11, 0, 0, 0][..],
            &[0, 0, 0, 0, 40 + 16 + 16 + 8, 0, 3, 0, 4, 0, 0, 1, 2, 0, 0, 0],
            &[0x20, 0, 0, 0, 40, 0, 0, 0],
            &[2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0],
            &[0x41, 1, 0, 0, 16, 0, 0, 0, 0x12, 0xb7, 0, 0, 0xff, 0xff, 0, 0],
            &[0, 0x10, 0, 0, 16, 0, 0, 0, 0xcd, 0xab, 0, 0, 0, 0, 0, 0],
            &[1, 0x10, 0, 0, 8, 0, 0, 0],
        ]
        .concat();
        assert_eq!(rule.request().expect("short"), expected);
    }

    /// The same of tunnels' headers.
    #[test]
    fn headers_of_tunnels_are_laid_out_as_the_kernel_reads_them() {
        let gre = |protocol: u16, key: u32| GreFilter {
            protocol: protocol.into(),
            key: key.into(),
            ..GreFilter::default()
        };
        let esp = |spi: u32| EspFilter { spi: spi.into(), ..EspFilter::default() };
        let bytes = |spec: FlowSpec| {
            let mut bytes = Vec::new();
            spec.append(&mut bytes);
            bytes
        };
        assert_eq!(
            bytes(FlowSpec::Gre { value: gre(0x6558, 0x0102_0304), mask: gre(0xffff, 0xff) }),
            [0x51, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0x65, 0x58, 1, 2, 3, 4, 0, 0, 0xff, 0xff, 0, 0, 0, 0xff]
        );
        assert_eq!(
            bytes(FlowSpec::Esp { value: esp(0x0a0b_0c0d), mask: esp(u32::MAX) }),
            [0x34, 0, 0, 0, 24, 0, 0, 0, 10, 11, 12, 13, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0]
        );
        assert_eq!(
            bytes(FlowSpec::Mpls { value: 0x0012_3140, mask: 0xffff_f000, inner: true }),
            [0x60, 1, 0, 0, 16, 0, 0, 0, 0, 0x12, 0x31, 0x40, 0xff, 0xff, 0xf0, 0]
        );
    }

    #[test]
    fn a_rule_of_too_many_specs_is_refused() {
        let specs = [FlowSpec::Drop; SPECS_MAX + 1];
        let rule = FlowRule {
            qp: QpHandle(1),
            port: 1,
            priority: 0,
            kind: FlowType::NORMAL,
            flags: FlowFlags::empty(),
            specs: &specs,
        };
        let error = rule.request().expect_err("too many");
        assert_eq!(error.to_string(), "EX_CREATE_FLOW: count of specs is 11, at most 10 can be said");
    }
}
