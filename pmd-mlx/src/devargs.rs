//! Device arguments: DPDK's keys, each of which does something or is refused with the reason.
//!
//! Source of names, ranges and defaults: DPDK `doc/guides/nics/mlx5.rst`, `doc/guides/platform/mlx5.rst`,
//! `drivers/net/mlx5/mlx5_defs.h`.

use pollux_config::{ConfigError, DeviceArg, Param};

/// What to do about CQE compression and its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Every packet has a completion of its own.
    Off,
    /// Short completions carry the hash.
    Hash,
    /// Short completions carry the flow tag, where the device has that form; else as `Hash`.
    FlowTag,
    /// Short completions carry the checksum.
    Checksum,
    /// Short completions carry the types of headers, where the device has that form; else as `Hash`.
    Header,
}

/// How doorbell pages are mapped (`sq_db_nc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellMapping {
    /// Write-combining: short work is copied to the device.
    Combining,
    /// Not cached: eight bytes are stored and nothing else.
    NonCached,
    /// Write-combining where the device offers it. The driver flushes once a burst either way.
    Auto,
}

/// The checked arguments of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// `rxq_cqe_comp_en`.
    pub compression: Compression,
    /// The highest bit of `rxq_cqe_comp_en`: in the enhanced layout, where the device has it.
    pub enhanced_compression: bool,
    /// `lro_timeout_usec`: how long the device waits for more segments to join; `None`: as short as it can.
    pub lro_timeout_us: Option<u32>,
    /// `rxq_pkt_pad_en`: the device fills cache lines when it writes packets.
    pub packet_padding: bool,
    /// `delay_drop`, standard queues: wait with dropping when there is no buffer.
    pub delay_drop: bool,
    /// `mprq_en`: striding receive queues.
    pub striding: bool,
    /// `mprq_log_stride_num`: strides of a buffer, as a power of two.
    pub strides_log2: u8,
    /// `mprq_log_stride_size`: bytes of a stride, as a power of two; `None`: as the MTU asks for.
    pub stride_bytes_log2: Option<u8>,
    /// `mprq_max_memcpy_len`: packets up to this are copied out of their stride.
    pub striding_copy_max: usize,
    /// `rxqs_min_mprq`: striding is used from so many receive queues on.
    pub striding_queues_min: u16,
    /// `txq_inline_min`: bytes that every packet has inline at least; `None`: what the device asks for.
    pub inline_min: Option<usize>,
    /// `txq_inline_max`: packets up to this are inlined into entries of their own.
    pub inline_max: Option<usize>,
    /// `txq_inline_mpw`: packets up to this are inlined into entries of many packets.
    pub inline_multi_max: Option<usize>,
    /// `txqs_min_inline`: packets are inlined from so many send queues on.
    pub inline_queues_min: u16,
    /// `txq_mpw_en`: entries of many packets.
    pub multi_packet: Option<bool>,
    /// `sq_db_nc` (`tx_db_nc` of old).
    pub doorbell: DoorbellMapping,
    /// `rx_vec_en`: vector instructions on receive.
    pub rx_vector: bool,
    /// `dv_flow_en`: 0 makes objects of the kernel, 1 of the firmware.
    pub devx: bool,
    /// `mr_mempool_reg_en`: pools are registered when they are made, not when a queue is set up with one. On, as in DPDK.
    pub register_pools: bool,
    /// `mr_ext_memseg_en`: memory of the EAL that no pool told of is registered when a packet brings it: all of its region at
    /// once, or with 0 the packet's pages alone, which pins less and looks up more. On, as in DPDK.
    pub register_regions: bool,
    /// `vf_nl_en`: addresses and modes of a virtual function are told to its interface.
    pub netlink: bool,
    /// `neighbours_by_kernel`: packets that find the addresses of neighbours go to the kernel, whatever the port receives.
    pub neighbours_by_kernel: bool,
    /// `relaxed_ordering`: the device's writes to packet memory may overtake each other, where the processor gains from it: Intel's
    /// Haswell and Broadwell do not.
    pub relaxed_ordering: bool,
    /// `cqe_size`: bytes of a completion.
    pub cqe_bytes: usize,
}

/// The bit of `rxq_cqe_comp_en` that asks for the enhanced layout. Source: DPDK `drivers/net/mlx5/mlx5.c`,
/// `MLX5_RXQ_ENH_CQE_COMP_MASK`.
const ENHANCED_LAYOUT: u8 = 0x80;

/// Queues from which on striding pays. Source: DPDK `MLX5_MPRQ_MIN_RXQS`.
const STRIDING_QUEUES_MIN: u16 = 12;
/// Queues from which on inlining saves PCIe reads that count. Source: DPDK
/// `drivers/common/mlx5/mlx5_prm.h`, `MLX5_INLINE_MAX_TXQS`.
const INLINE_QUEUES_MIN: u16 = 8;
/// Longest packet in one entry. Source: DPDK `drivers/common/mlx5/mlx5_prm.h`, `MLX5_SEND_MAX_INLINE_LEN` as `mlx5.rst` gives it for
/// entries of 960 bytes.
const INLINE_MAX: u64 = 930;

impl Default for Arguments {
    fn default() -> Self {
        Self {
            compression: Compression::Hash,
            enhanced_compression: false,
            lro_timeout_us: None,
            packet_padding: false,
            delay_drop: false,
            striding: false,
            strides_log2: 6,
            stride_bytes_log2: None,
            striding_copy_max: 128,
            striding_queues_min: STRIDING_QUEUES_MIN,
            inline_min: None,
            inline_max: None,
            inline_multi_max: None,
            inline_queues_min: INLINE_QUEUES_MIN,
            multi_packet: None,
            doorbell: DoorbellMapping::Auto,
            rx_vector: true,
            devx: true,
            register_pools: true,
            register_regions: true,
            netlink: true,
            neighbours_by_kernel: false,
            relaxed_ordering: true,
            cqe_bytes: 64,
        }
    }
}

/// The keys, in the order in which they are read.
pub const PARAMS: &[Param] = &[
    Param::new("class", "eth"),
    Param::number("rxq_cqe_comp_en"),
    Param::number("lro_timeout_usec"),
    Param::flag("rxq_pkt_pad_en"),
    Param::number("delay_drop"),
    Param::flag("mprq_en"),
    Param::number("mprq_log_stride_num"),
    Param::number("mprq_log_stride_size"),
    Param::number("mprq_max_memcpy_len"),
    Param::number("rxqs_min_mprq"),
    Param::number("txq_inline_min"),
    Param::number("txq_inline_max"),
    Param::number("txq_inline_mpw"),
    Param::number("txqs_min_inline"),
    Param::flag("txq_mpw_en"),
    Param::new("sq_db_nc", "0|1|2"),
    Param::new("tx_db_nc", "0|1|2"),
    Param::flag("rx_vec_en"),
    Param::flag("dv_flow_en"),
    Param::flag("mr_mempool_reg_en"),
    Param::flag("mr_ext_memseg_en"),
    Param::flag("vf_nl_en"),
    Param::flag("neighbours_by_kernel"),
    Param::flag("allow_duplicate_pattern"),
    Param::flag("relaxed_ordering"),
    Param::new("cqe_size", "64|128"),
];

/// Keys that DPDK knows and that are refused here whatever their value says, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("l3_vxlan_en", "needs tunnel steering in the firmware's own tables, which this driver does not program"),
    ("dv_esw_en", "is for the embedded switch, which stays with the kernel"),
    ("dv_xmeta_en", "is for metadata registers of software steering, which this driver does not use"),
    ("representor", "is for ports of the embedded switch, which stays with the kernel"),
    ("repr_matching_en", "is for ports of the embedded switch, which stays with the kernel"),
    ("fdb_def_rule_en", "is for the embedded switch, which stays with the kernel"),
    ("hp_buf_log_sz", "is for hairpin queues, which this driver does not make"),
    ("tx_pp", "is for sending at a given time, which this driver does not offer"),
    ("tx_skew", "is for sending at a given time, which this driver does not offer"),
    ("decap_en", "is for taking tunnels off by rules, which this driver does not offer"),
    ("reclaim_mem_mode", "is for memory of software steering, which this driver does not use"),
    ("sys_mem_en", "chooses where DPDK allocates its own structures; rings come from the EAL here"),
    ("cmd_fd", "is for a context opened by another process, which this driver does not take over"),
    ("pd_handle", "is for a protection domain of another process, which this driver does not take over"),
    ("probe_opt_en", "speeds up the probing of many representors, which this driver has none of"),
    (
        "max_dump_files_num",
        "bounds files that DPDK writes on errors; a queue's dump is asked for here, and logged",
    ),
    (
        "txq_mem_algn",
        "aligns one block that DPDK makes of all send rings; each ring is aligned to its page here",
    ),
    ("txq_inline", "was renamed: write txq_inline_max"),
    ("txq_max_inline_len", "was renamed: write txq_inline_mpw"),
    ("txq_mpw_hdr_dseg_en", "has no meaning since enhanced multi-packet write; leave it out"),
    ("txqs_max_vec", "has no meaning since vector sending went; leave it out"),
    ("tx_vec_en", "has no meaning since vector sending went; leave it out"),
];

impl Arguments {
    /// Reads and checks them.
    ///
    /// # Errors
    /// The first key that is unknown or refused, or whose value is not allowed.
    pub fn parse(device: &DeviceArg) -> Result<Self, ConfigError> {
        let mut keys = device.keys_of(PARAMS);
        for (key, reason) in REFUSED {
            // Not read as keys are: what is refused is not among those that a line on an unknown one says are allowed.
            if let Some((_, value)) = device.args.iter().find(|(given, _)| given == key) {
                return Err(keys.bad(key, value, format!("is not possible: {key} {reason}")));
            }
        }
        let mut read = Self::default();
        if let Some(class) = keys.text("class")?
            && class.split(':').any(|class| class != "eth")
        {
            return Err(keys.bad("class", class, "is not eth, the only class of this driver"));
        }
        if let Some(format) = keys.number::<u8>("rxq_cqe_comp_en", 0..=0xff)? {
            let bad = |problem: &str| keys.bad("rxq_cqe_comp_en", &format.to_string(), problem);
            read.enhanced_compression = format & ENHANCED_LAYOUT != 0;
            read.compression = match format & !ENHANCED_LAYOUT {
                // The layout alone turns compression on, too.
                0 if !read.enhanced_compression => Compression::Off,
                0 | 1 => Compression::Hash,
                2 => Compression::FlowTag,
                3 => Compression::Checksum,
                4 => Compression::Header,
                _ => {
                    return Err(bad(
                        "is not one of 0 (off), 1 (hash), 2 (flow tag), 3 (checksum), 4 (L3 and L4 headers), or one of \
                         these and 0x80 (enhanced layout)",
                    ));
                }
            };
        }
        let flag = |read: &mut bool, value: Option<bool>| *read = value.unwrap_or(*read);
        read.lro_timeout_us = keys.number("lro_timeout_usec", 1..=0xffff)?;
        flag(&mut read.packet_padding, keys.flag("rxq_pkt_pad_en")?);
        if let Some(mask) = keys.number::<u8>("delay_drop", 0..=3)? {
            if mask & 2 != 0 {
                let text = mask.to_string();
                return Err(keys.bad(
                    "delay_drop",
                    &text,
                    "asks for hairpin queues (2), which this driver does not make",
                ));
            }
            read.delay_drop = mask & 1 != 0;
        }
        flag(&mut read.striding, keys.flag("mprq_en")?);
        read.strides_log2 = keys.number("mprq_log_stride_num", 3..=16)?.unwrap_or(read.strides_log2);
        read.stride_bytes_log2 = keys.number("mprq_log_stride_size", 6..=13)?;
        read.striding_copy_max =
            keys.number("mprq_max_memcpy_len", 0..=65_535)?.unwrap_or(read.striding_copy_max);
        read.striding_queues_min =
            keys.number("rxqs_min_mprq", 0..=65_535)?.unwrap_or(read.striding_queues_min);
        read.inline_min = keys.number("txq_inline_min", 0..=INLINE_MAX)?;
        read.inline_max = keys.number("txq_inline_max", 0..=INLINE_MAX)?;
        read.inline_multi_max = keys.number("txq_inline_mpw", 0..=INLINE_MAX)?;
        read.inline_queues_min =
            keys.number("txqs_min_inline", 0..=65_535)?.unwrap_or(read.inline_queues_min);
        read.multi_packet = keys.flag("txq_mpw_en")?;
        let words = ["0", "1", "2"];
        let doorbell = keys.choice("sq_db_nc", &words)?;
        let old = keys.choice("tx_db_nc", &words)?;
        if doorbell.is_some() && old.is_some() {
            return Err(keys.bad(
                "tx_db_nc",
                words[old.unwrap_or(0)],
                "is the old name of sq_db_nc: give one of them",
            ));
        }
        read.doorbell = match doorbell.or(old) {
            Some(0) => DoorbellMapping::Combining,
            Some(1) => DoorbellMapping::NonCached,
            _ => DoorbellMapping::Auto,
        };
        flag(&mut read.rx_vector, keys.flag("rx_vec_en")?);
        if let Some(engine) = keys.number::<u8>("dv_flow_en", 0..=2)? {
            if engine == 2 {
                return Err(keys.bad("dv_flow_en", "2", "asks for hardware steering with templates; write 0 (kernel objects) or 1 (firmware objects)"));
            }
            read.devx = engine == 1;
        }
        flag(&mut read.register_pools, keys.flag("mr_mempool_reg_en")?);
        flag(&mut read.register_regions, keys.flag("mr_ext_memseg_en")?);
        flag(&mut read.netlink, keys.flag("vf_nl_en")?);
        flag(&mut read.neighbours_by_kernel, keys.flag("neighbours_by_kernel")?);
        if keys.flag("allow_duplicate_pattern")? == Some(false) {
            return Err(keys.bad(
                "allow_duplicate_pattern",
                "0",
                "is not possible: the kernel takes rules of one pattern as they come; leave it out",
            ));
        }
        flag(&mut read.relaxed_ordering, keys.flag("relaxed_ordering")?);
        if let Some(bytes) = keys.choice("cqe_size", &["64", "128"])? {
            read.cqe_bytes = [64, 128][bytes];
        }
        keys.finish()?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Arguments, String> {
        let device: DeviceArg = text.parse().expect("a device argument");
        Arguments::parse(&device).map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_does_something() {
        assert_eq!(parse("0000:03:00.0"), Ok(Arguments::default()));
        for (text, changed) in [
            ("rxq_cqe_comp_en=0", Arguments { compression: Compression::Off, ..Arguments::default() }),
            ("rxq_cqe_comp_en=2", Arguments { compression: Compression::FlowTag, ..Arguments::default() }),
            ("rxq_cqe_comp_en=4", Arguments { compression: Compression::Header, ..Arguments::default() }),
            ("rxq_cqe_comp_en=3", Arguments { compression: Compression::Checksum, ..Arguments::default() }),
            ("rxq_cqe_comp_en=0x80", Arguments { enhanced_compression: true, ..Arguments::default() }),
            (
                "rxq_cqe_comp_en=0x84",
                Arguments {
                    compression: Compression::Header,
                    enhanced_compression: true,
                    ..Arguments::default()
                },
            ),
            ("lro_timeout_usec=32", Arguments { lro_timeout_us: Some(32), ..Arguments::default() }),
            ("rxq_pkt_pad_en=1", Arguments { packet_padding: true, ..Arguments::default() }),
            ("delay_drop=1", Arguments { delay_drop: true, ..Arguments::default() }),
            ("mprq_en=1", Arguments { striding: true, ..Arguments::default() }),
            ("mprq_log_stride_num=9", Arguments { strides_log2: 9, ..Arguments::default() }),
            ("mprq_log_stride_size=11", Arguments { stride_bytes_log2: Some(11), ..Arguments::default() }),
            ("mprq_max_memcpy_len=0", Arguments { striding_copy_max: 0, ..Arguments::default() }),
            ("rxqs_min_mprq=1", Arguments { striding_queues_min: 1, ..Arguments::default() }),
            ("txq_inline_min=18", Arguments { inline_min: Some(18), ..Arguments::default() }),
            ("txq_inline_max=290", Arguments { inline_max: Some(290), ..Arguments::default() }),
            ("txq_inline_mpw=268", Arguments { inline_multi_max: Some(268), ..Arguments::default() }),
            ("txqs_min_inline=1", Arguments { inline_queues_min: 1, ..Arguments::default() }),
            ("txq_mpw_en=0", Arguments { multi_packet: Some(false), ..Arguments::default() }),
            ("sq_db_nc=1", Arguments { doorbell: DoorbellMapping::NonCached, ..Arguments::default() }),
            ("tx_db_nc=0", Arguments { doorbell: DoorbellMapping::Combining, ..Arguments::default() }),
            ("rx_vec_en=0", Arguments { rx_vector: false, ..Arguments::default() }),
            ("dv_flow_en=0", Arguments { devx: false, ..Arguments::default() }),
            ("mr_mempool_reg_en=0", Arguments { register_pools: false, ..Arguments::default() }),
            ("mr_ext_memseg_en=0", Arguments { register_regions: false, ..Arguments::default() }),
            ("vf_nl_en=0", Arguments { netlink: false, ..Arguments::default() }),
            ("neighbours_by_kernel=1", Arguments { neighbours_by_kernel: true, ..Arguments::default() }),
            ("relaxed_ordering=0", Arguments { relaxed_ordering: false, ..Arguments::default() }),
            ("cqe_size=128", Arguments { cqe_bytes: 128, ..Arguments::default() }),
            ("allow_duplicate_pattern=1", Arguments::default()),
            ("class=eth", Arguments::default()),
        ] {
            assert_eq!(parse(&format!("mlx5_0,{text}")), Ok(changed), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        for (key, reason) in REFUSED {
            let refused = parse(&format!("mlx5_0,{key}=1")).expect_err(key);
            assert!(refused.contains(reason) && refused.contains(key), "{refused}");
        }
        for (text, why) in [
            ("mprq=1", "mprq_en"),
            ("foo=1", "unknown key 'foo'; allowed: class, rxq_cqe_comp_en,"),
            ("rxq_cqe_comp_en=0x87", "is not one of 0"),
            ("rxq_cqe_comp_en=7", "is not one of 0"),
            ("delay_drop=2", "hairpin"),
            ("mprq_log_stride_size=5", "from 6 to 13"),
            ("txq_inline_max=931", "from 0 to 930"),
            ("dv_flow_en=2", "templates"),
            ("sq_db_nc=3", "is not one of 0, 1, 2"),
            ("sq_db_nc=1,tx_db_nc=1", "old name"),
            ("class=vdpa", "is not eth"),
            ("allow_duplicate_pattern=0", "as they come"),
            ("cqe_size=32", "is not one of 64, 128"),
            ("rx_vec_en=yes", "must be 0 or 1"),
        ] {
            let refused = parse(&format!("mlx5_0,{text}")).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
