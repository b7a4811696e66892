//! Sizes and ways of a queue, out of what was asked for and what the device can do.

use pollux_eal::region::PAGE_BYTES;
use pollux_eal::simd::SimdWidth;
use pollux_mlx5_abi::command::tir::merge;
use pollux_mlx5_abi::cqe::MiniFormat;
use pollux_mlx5_abi::kernel::completion_queue::mini_format;
use pollux_mlx5_abi::kernel::device::multi_packet;
use pollux_mlx5_abi::wqe::{SEGMENT_BYTES, SEGMENTS_MAX};
use pollux_port::driver::{RxSetup, TxSetup};
use pollux_port::{DescriptorLimits, PortConfig, PortError, PortInfo, RxOffloads, TxOffloads};
use pollux_uverbs::abi::flags::RawPacketCaps;

use crate::devargs::{Arguments, Compression};
use crate::eth::backend::{Backend, LroCaps};
use crate::eth::parts::{RxFeatures, SplitParts, TxFeatures, TxTunnels};
use crate::eth::rq::{self, SEGMENTS_LOG2_MAX};
use crate::eth::rx::join::HEADER_BYTES_MAX;
use crate::netdev::Netdev;
use pollux_mlx5_common::context::Device;

use super::{DRIVER, split, tunnels};
use pollux_uverbs::abi::flags::QpType;

/// Bytes of a frame around its payload: addresses, type and two VLAN tags.
const FRAME_HEADER_BYTES: usize = 14 + 2 * 4;

/// A frame's check sequence, where it is received with it.
const CRC_BYTES: usize = 4;

/// Longest header in front of a payload that is cut. Source: DPDK `drivers/net/mlx5/mlx5_defs.h`, `MLX5_MAX_TSO_HEADER`.
pub(crate) const TSO_HEADER_MAX: usize = 192;

/// Most entries of a ring that the data half counts with.
const DESCRIPTORS_MAX: u16 = 1 << 15;

/// Smallest ring. Source: DPDK `drivers/net/mlx5/mlx5_defs.h` has no bound; 64 is a burst and what is on its way.
const DESCRIPTORS_MIN: u16 = 64;

/// Longest MTU. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en_main.c`, `mlx5e_set_netdev_mtu_boundaries`,
/// bounds it by the port's 10000 bytes of frame.
const MTU_MAX: u32 = 9978;

/// Packets up to this are inlined by default. Source: DPDK `drivers/common/mlx5/mlx5_prm.h`, `MLX5_SEND_DEF_INLINE_LEN` and
/// `MLX5_EMPW_DEF_INLINE_LEN`.
const INLINE_DEFAULT: usize = 290;
const INLINE_MULTI_DEFAULT: usize = 268;

fn log2(count: usize) -> u8 {
    count.next_power_of_two().ilog2() as u8
}

/// What the port can do.
pub(crate) fn info(device: &Device, backend: &dyn Backend, netdev: &dyn Netdev) -> PortInfo {
    let caps = RawPacketCaps::from_bits_retain(device.attributes.raw_packet_caps);
    let checksums = device.does_checksums();
    let strip = caps.contains(RawPacketCaps::CVLAN_STRIPPING);
    let tso = if QpType::RAW_PACKET.is_in(device.mlx5.tso_caps.supported_qpts) {
        device.mlx5.tso_caps.max_tso
    } else {
        0
    };
    let mut rx = RxOffloads::SCATTER | RxOffloads::RSS_HASH | RxOffloads::VLAN_FILTER;
    rx.set(RxOffloads::CHECKSUM, checksums);
    rx.set(RxOffloads::VLAN_STRIP, strip);
    rx.set(RxOffloads::KEEP_CRC, caps.contains(RawPacketCaps::SCATTER_FCS));
    // Times of day are no ticks of the clock that programs read.
    rx.set(RxOffloads::TIMESTAMP, device.attributes.timestamp_mask != 0 && backend.stamps_ticks());
    rx |= RxOffloads::BUFFER_SPLIT;
    rx.set(RxOffloads::TCP_LRO, backend.lro().is_some());
    let mut tx = TxOffloads::MULTI_SEGS | TxOffloads::MBUF_FAST_FREE | TxOffloads::VLAN_INSERT;
    tx.set(TxOffloads::CHECKSUM, checksums);
    tx.set(TxOffloads::TCP_TSO, tso != 0);
    tx |= tunnels::offered(device, tx);
    let (min_mtu, max_mtu) = netdev.mtu_limits().unwrap_or((68, MTU_MAX));
    // Raw queues are none of the device's queue pairs; kernels tell how many receive queues there can be.
    let queues = u16::try_from(device.attributes.max_wq_type_rq).unwrap_or(1024).clamp(1, 1024);
    let bounded = |most: u32| {
        let max = u16::try_from(most).unwrap_or(DESCRIPTORS_MAX).clamp(1, DESCRIPTORS_MAX);
        let (min, default) = (DESCRIPTORS_MIN.min(max), 1024.min(max));
        DescriptorLimits { min, max, power_of_two: true, default, ..DescriptorLimits::default() }
    };
    PortInfo {
        driver: DRIVER,
        device: Some(netdev.name()),
        max_rx_queues: queues,
        max_tx_queues: queues,
        rx_descriptors: bounded(device.answer.max_recv_wr.min(device.attributes.base.max_cqe)),
        tx_descriptors: bounded(device.answer.max_send_wqebb.min(device.attributes.base.max_cqe)),
        min_mtu,
        max_mtu,
        min_rx_room: 128,
        rx_holds_mbufs: true,
        max_mac_addresses: 128,
        max_multicast_addresses: 128,
        interface_index: netdev.index(),
        socket: device.opening().socket.map(|socket| u32::from(socket.0)),
        rx_offloads: rx,
        // Segments are joined before a queue is chosen.
        rx_queue_offloads: rx - RxOffloads::VLAN_FILTER - RxOffloads::TCP_LRO,
        tx_offloads: tx,
        tx_queue_offloads: tx,
        max_tso_bytes: tso,
        max_tso_header_bytes: TSO_HEADER_MAX as u16,
        max_lro_bytes: if rx.contains(RxOffloads::TCP_LRO) { LRO_BYTES_MAX } else { 0 },
        split: Some(split::info(device)),
        max_tx_segments: pieces_max(device.inline_min(), tso != 0),
        rx_interrupts: true,
        rx_frame_overhead: Some((FRAME_HEADER_BYTES + CRC_BYTES) as u16),
        queue_control: true,
        ..PortInfo::default()
    }
}

/// Most mbufs of a packet: segments of the longest entry less those before the pieces, which are control, Ethernet and the longest
/// inline header: of a packet that is cut, or what must be inline at least, with a tag put in. Its first two bytes stand in the
/// Ethernet segment.
fn pieces_max(inline_min: usize, cuts: bool) -> u16 {
    const TAG: usize = 4;
    // A tag is put in behind the addresses.
    let header = if cuts { TSO_HEADER_MAX } else { 14 }.max(inline_min) + TAG;
    (SEGMENTS_MAX - 2 - (header - 2).div_ceil(SEGMENT_BYTES)) as u16
}

/// Whether waiting with drops was asked for and the device can.
pub(crate) fn delay_drop(device: &Device, arguments: &Arguments) -> bool {
    let caps = RawPacketCaps::from_bits_retain(device.attributes.raw_packet_caps);
    let can = caps.contains(RawPacketCaps::DELAY_DROP);
    if arguments.delay_drop && !can {
        tracing::warn!(target: "pmd.net.mlx5", "{}: delay_drop: the device cannot wait with dropping", device.name());
    }
    arguments.delay_drop && can
}

/// The buffers of a striding queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StridingPlan {
    pub(crate) strides_log2: u8,
    pub(crate) stride_bytes_log2: u8,
    pub(crate) count: usize,
}

/// How a receive queue is made.
#[derive(Debug)]
pub(crate) struct RxPlan {
    pub(crate) wqes_log2: u8,
    pub(crate) wqe_bytes_log2: u8,
    pub(crate) segments_log2: u8,
    pub(crate) cqes_log2: u8,
    pub(crate) striding: Option<StridingPlan>,
    pub(crate) split: Option<SplitParts>,
    pub(crate) compressed: Option<MiniFormat>,
    /// In the enhanced layout.
    pub(crate) enhanced: bool,
    pub(crate) features: RxFeatures,
    pub(crate) simd: SimdWidth,
    pub(crate) vlan_strip: bool,
    pub(crate) keep_crc: bool,
    pub(crate) frame_bytes_max: usize,
}

impl RxPlan {
    pub(crate) fn new(
        device: &Device,
        arguments: &Arguments,
        backend: &dyn Backend,
        setup: &RxSetup,
        mtu: u32,
        queues: usize,
    ) -> Result<Self, PortError> {
        let offloads = setup.offloads;
        let keep_crc = offloads.contains(RxOffloads::KEEP_CRC);
        let crc = if keep_crc { CRC_BYTES } else { 0 };
        let frame = mtu as usize + FRAME_HEADER_BYTES + crc;
        let lro = offloads.contains(RxOffloads::TCP_LRO);
        if lro {
            check_lro(setup, keep_crc)?;
        }
        let plain = frame;
        let frame = if lro { frame.max(setup.max_lro_bytes as usize) } else { frame };
        let (room, headroom) = (setup.pool.data_room(), setup.pool.headroom());
        let capacity = |segments_log2: u8| (room << segments_log2).saturating_sub(headroom);
        let entries = usize::from(setup.descriptors);
        let wqes_log2 = log2(entries);
        let split = split::parts(device, setup, frame)?;
        let striding = match split {
            Some(_) => None,
            None => striding(device, arguments, plain, wqes_log2, queues).unwrap_or_else(|why| {
                tracing::warn!(target: "pmd.net.mlx5", "{}: mprq_en: {why}", device.name());
                None
            }),
        };
        // What is joined of segments is as long as there is room for, in one mbuf without SCATTER; frames as they come must fit.
        let most = match &striding {
            _ if !setup.scatter => capacity(0),
            Some(striding) => 1 << (striding.strides_log2 + striding.stride_bytes_log2),
            None => capacity(SEGMENTS_LOG2_MAX),
        };
        let frame = frame.min(most).max(plain);
        let fitting = (0..=SEGMENTS_LOG2_MAX).find(|log| capacity(*log) >= frame);
        // Without SCATTER, too, an entry has room for the longest frame: one that has not ends the queue with an error. What
        // does not fit into one mbuf is then dropped, and counted.
        let segments_log2 = match (&split, fitting, &striding) {
            (Some(split), ..) => log2(split.parts.len()),
            (_, _, Some(_)) => 0,
            (_, Some(log), _) => log,
            (_, None, None) => {
                return Err(PortError::RoomTooSmall {
                    port: String::new(),
                    queue: setup.queue,
                    pool: setup.pool.name().to_owned(),
                    has: room.saturating_sub(headroom),
                    needs: frame,
                });
            }
        };
        // A ring is always full: of mbufs, as many as it has places.
        let needs = if striding.is_some() || split.is_some() { 0 } else { entries };
        if setup.pool.capacity() < needs {
            return Err(PortError::PoolTooSmall {
                port: String::new(),
                queue: setup.queue,
                pool: setup.pool.name().to_owned(),
                has: setup.pool.capacity(),
                needs,
            });
        }
        let features = rq::features(offloads, true);
        let simd = if arguments.rx_vector { SimdWidth::usable() } else { SimdWidth::Scalar };
        // Completion queues with a channel are the kernel's, which makes none of the other forms.
        let has = |format| !setup.interrupts && backend.has_mini_format(format);
        let compressed = compression(device, arguments, has, striding.is_some(), features);
        let can = !setup.interrupts && backend.has_enhanced_layout();
        if arguments.enhanced_compression && compressed.is_some() && !can {
            tracing::warn!(
                target: "pmd.net.mlx5", "{}: rxq_cqe_comp_en: there is no enhanced layout of compressed completions {}; the basic one is used",
                device.name(),
                if setup.interrupts {
                    "in queues with interrupts"
                } else {
                    "with this device and these objects"
                }
            );
        }
        let enhanced = arguments.enhanced_compression && compressed.is_some() && can;
        let (wqes_log2, wqe_bytes_log2, cqes_log2) = match &striding {
            Some(striding) => {
                let wqes = wqes_log2.saturating_sub(striding.strides_log2).max(1);
                (wqes, 5, wqes + striding.strides_log2)
            }
            // As many data segments as a power of two; entries of several share the places between them.
            None => {
                let wqes = wqes_log2 - segments_log2.min(wqes_log2 - 1);
                (wqes, 4 + segments_log2, wqes)
            }
        };
        Ok(Self {
            wqes_log2,
            wqe_bytes_log2,
            segments_log2,
            // The places of a compressed session go back at its end, its buffers one by one: what is posted meanwhile needs
            // places of its own.
            cqes_log2: cqes_log2 + u8::from(compressed.is_some()),
            compressed,
            enhanced,
            split,
            striding,
            features,
            simd,
            vlan_strip: offloads.contains(RxOffloads::VLAN_STRIP),
            keep_crc,
            // Parts are a chain, and setup says so.
            frame_bytes_max: if setup.scatter { frame } else { frame.min(capacity(0)) },
        })
    }
}

/// Longest packet joined of TCP segments. Source: DPDK `drivers/net/mlx5/mlx5.h`, `MLX5_MAX_LRO_SIZE`.
const LRO_BYTES_MAX: u32 = merge::SIZE_MAX * merge::SIZE_UNIT as u32;

/// What cannot go with joining TCP segments. Source: DPDK's guide `mlx5.rst`, "LRO", limitations.
fn check_lro(setup: &RxSetup, keep_crc: bool) -> Result<(), PortError> {
    if keep_crc {
        return Err(PortError::unsupported("TCP_LRO", "what is joined has no one FCS: leave KEEP_CRC out"));
    }
    if !setup.segments.is_empty() {
        let reason = "headers of what is joined are mended in the first mbuf: leave the rx segments out";
        return Err(PortError::unsupported("TCP_LRO", reason));
    }
    let has = setup.pool.data_room().saturating_sub(setup.pool.headroom());
    if has < HEADER_BYTES_MAX {
        return Err(PortError::RoomTooSmall {
            port: String::new(),
            queue: setup.queue,
            pool: setup.pool.name().to_owned(),
            has,
            needs: HEADER_BYTES_MAX,
        });
    }
    Ok(())
}

/// How long the device waits for more segments: the longest of its periods that is not longer than asked, or else its
/// shortest. Source: DPDK's guide `mlx5.rst`, `lro_timeout_usec`.
pub(crate) fn lro_timeout(caps: &LroCaps, arguments: &Arguments) -> u32 {
    let shortest = caps.periods_us.iter().copied().filter(|period| *period > 0).min().unwrap_or(0);
    let asked = arguments.lro_timeout_us.unwrap_or(0);
    caps.periods_us.iter().copied().filter(|period| *period <= asked).max().unwrap_or(0).max(shortest)
}

/// Whether striding was asked for and pays, and how; or why there is none although it was asked for.
fn striding(
    device: &Device,
    arguments: &Arguments,
    frame: usize,
    wqes_log2: u8,
    queues: usize,
) -> Result<Option<StridingPlan>, String> {
    if !arguments.striding || queues < usize::from(arguments.striding_queues_min) {
        return Ok(None);
    }
    let caps = &device.mlx5.striding_rq_caps;
    if !QpType::RAW_PACKET.is_in(caps.supported_qpts) {
        return Err("the device has no striding receive queues".into());
    }
    // Bounds that contradict each other come of no device that has striding queues.
    let within = |wanted: u8, min: u32, max: u32| wanted.max(min.min(31) as u8).min(max.min(31) as u8);
    let stride_bytes_log2 = within(
        arguments.stride_bytes_log2.unwrap_or(log2(frame)),
        caps.min_single_stride_log_num_of_bytes,
        caps.max_single_stride_log_num_of_bytes,
    );
    let strides_log2 = within(
        arguments.strides_log2,
        caps.min_single_wqe_log_num_of_strides,
        caps.max_single_wqe_log_num_of_strides,
    );
    if frame > 1_usize << (stride_bytes_log2 + strides_log2) {
        return Err(format!("a frame of {frame} bytes does not fit into a buffer"));
    }
    let wqes = 1_usize << wqes_log2.saturating_sub(strides_log2).max(1);
    // As many again wait while packets of the first are with the application.
    Ok(Some(StridingPlan { strides_log2, stride_bytes_log2, count: 2 * wqes }))
}

/// The form of compressed completions that was asked for, as far as the device has it.
fn compression(
    device: &Device,
    arguments: &Arguments,
    firmware_has: impl Fn(MiniFormat) -> bool,
    striding: bool,
    features: RxFeatures,
) -> Option<MiniFormat> {
    let caps = &device.mlx5.cqe_comp_caps;
    let has = |format: u8| caps.max_num != 0 && caps.supported_format & u32::from(format) != 0;
    if arguments.compression == Compression::Off
        || features.intersects(RxFeatures::TIMESTAMP | RxFeatures::LRO)
    {
        // Packets of one compressed block share a time; and what was joined has more to say.
        return None;
    }
    // Completions of 128 bytes are compressed by few devices. Source: `MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP`.
    if arguments.cqe_bytes == 128
        && device.mlx5.flags & pollux_mlx5_abi::kernel::device::device_flag::CQE_128B_COMP == 0
    {
        return None;
    }
    if features.contains(RxFeatures::RSS_HASH) {
        // In other forms all packets of a session would have the first one's hash.
        return (!striding && has(mini_format::HASH)).then_some(MiniFormat::Hash);
    }
    let wanted = match arguments.compression {
        Compression::FlowTag => Some(MiniFormat::FlowTagStride),
        Compression::Header => Some(MiniFormat::HeaderStride),
        _ => None,
    };
    if let Some(format) = wanted.filter(|format| firmware_has(*format)) {
        return Some(format);
    }
    if striding {
        return has(mini_format::CSUM_STRIDX).then_some(MiniFormat::ChecksumStride);
    }
    match arguments.compression {
        Compression::Checksum if has(mini_format::CSUM) => Some(MiniFormat::Checksum),
        _ => has(mini_format::HASH).then_some(MiniFormat::Hash),
    }
}

/// How a send queue is made.
#[derive(Clone, Debug)]
pub(crate) struct TxPlan {
    pub(crate) wqebbs_log2: u8,
    pub(crate) cqes_log2: u8,
    pub(crate) features: TxFeatures,
    pub(crate) multi_packet: bool,
    pub(crate) inline_min: usize,
    pub(crate) inline_max: usize,
    pub(crate) tso_bytes_max: usize,
    pub(crate) tunnels: TxTunnels,
}

/// Blocks of a send ring, as a power of two: entries that carry packets of up to `inlined` bytes are longer, others are one
/// block each.
fn wqebbs_log2(device: &Device, descriptors: u16, inlined: usize) -> u8 {
    let blocks = if inlined > 0 { (inlined + 32).div_ceil(64) } else { 1 };
    let most = device.answer.max_send_wqebb.min(u32::from(DESCRIPTORS_MAX)) as usize;
    log2(usize::from(descriptors) * blocks).min(most.ilog2() as u8)
}

/// What of packets goes into send entries.
struct Inlining {
    multi_packet: bool,
    inlining: bool,
    inline_min: usize,
    inline_max: usize,
}

impl Inlining {
    fn new(device: &Device, arguments: &Arguments, queues: usize) -> Self {
        let inline_min = device.inline_min().max(arguments.inline_min.unwrap_or(0));
        let can = device.mlx5.multi_pkt_send_wqes & multi_packet::SUPPORT_EMPW != 0;
        // Headers that must be inline leave no room for several packets.
        let multi_packet = can && inline_min == 0 && arguments.multi_packet.unwrap_or(true);
        let asked = if multi_packet { arguments.inline_multi_max } else { arguments.inline_max };
        let default = if multi_packet { INLINE_MULTI_DEFAULT } else { INLINE_DEFAULT };
        let inlining = queues >= usize::from(arguments.inline_queues_min);
        let inline_max = if inlining { asked.unwrap_or(default) } else { 0 }.max(inline_min);
        Self { multi_packet, inlining, inline_min, inline_max }
    }
}

/// Bytes of locked memory that the rings of a configuration will take, or a little more, for who is told that there is too
/// little: rings, completions, and the buffers of striding queues.
pub(crate) fn locked_bytes(
    device: &Device,
    arguments: &Arguments,
    info: &PortInfo,
    config: &PortConfig,
    mtu: u32,
) -> u64 {
    let pages = |bytes: usize| bytes.next_multiple_of(PAGE_BYTES) as u64;
    let compressing = u32::from(arguments.compression != Compression::Off);
    let rx = config.rx_queues.iter().map(|queue| {
        let entries = usize::from(info.rx_descriptors.adjust(queue.descriptors));
        let completions = pages((arguments.cqe_bytes * entries) << compressing);
        let frame = mtu as usize + FRAME_HEADER_BYTES;
        let striding = striding(device, arguments, frame, log2(entries), config.rx_queues.len());
        // Why there is none is said when the queue is made. Queues of parts never stride.
        let striding = striding.ok().flatten().filter(|_| queue.segments.is_empty());
        // Entries of striding queues are 32 bytes, one for many packets.
        let ring = pages(entries * 16);
        let buffers =
            striding.map_or(0, |plan| pages(plan.count << (plan.strides_log2 + plan.stride_bytes_log2)));
        ring + completions + buffers
    });
    let tx = config.tx_queues.iter().map(|queue| {
        let how = Inlining::new(device, arguments, config.tx_queues.len());
        let inlined = if how.inlining && how.inline_max > how.inline_min { how.inline_max } else { 0 };
        let blocks = 1 << wqebbs_log2(device, info.tx_descriptors.adjust(queue.descriptors), inlined);
        pages(blocks * 64) + pages(blocks * arguments.cqe_bytes)
    });
    // And a page of doorbell records.
    rx.sum::<u64>() + tx.sum::<u64>() + PAGE_BYTES as u64
}

impl TxPlan {
    pub(crate) fn new(
        device: &Device,
        arguments: &Arguments,
        backend: &dyn Backend,
        setup: &TxSetup,
        queues: usize,
    ) -> Result<Self, PortError> {
        let Inlining { multi_packet, inlining, inline_min, inline_max } =
            Inlining::new(device, arguments, queues);
        let offloads = setup.offloads;
        let mut features = TxFeatures::empty();
        features.set(TxFeatures::MULTI_SEGMENT, offloads.contains(TxOffloads::MULTI_SEGS));
        let sums = TxOffloads::CHECKSUM | TxOffloads::OUTER_IPV4_CKSUM;
        let cuts = TxOffloads::TCP_TSO | TxOffloads::TUNNEL_TSO;
        features.set(TxFeatures::CHECKSUM, offloads.intersects(sums | cuts));
        features.set(TxFeatures::VLAN_INSERT, offloads.contains(TxOffloads::VLAN_INSERT));
        features.set(TxFeatures::VLAN_BY_DEVICE, backend.inserts_tags());
        features.set(TxFeatures::TSO, offloads.intersects(cuts));
        features.set(TxFeatures::INLINE, inlining && inline_max > inline_min);
        features.set(TxFeatures::MULTI_PACKET, multi_packet);
        features.set(TxFeatures::FAST_FREE, offloads.contains(TxOffloads::MBUF_FAST_FREE));
        let blocks = if features.contains(TxFeatures::INLINE) { inline_max } else { 0 };
        let wqebbs_log2 = wqebbs_log2(device, setup.descriptors, blocks);
        Ok(Self {
            wqebbs_log2,
            cqes_log2: wqebbs_log2,
            features,
            multi_packet,
            inline_min,
            inline_max,
            tso_bytes_max: device.mlx5.tso_caps.max_tso as usize,
            tunnels: if features.contains(TxFeatures::CHECKSUM) {
                tunnels::found(device)
            } else {
                TxTunnels::default()
            },
        })
    }
}
