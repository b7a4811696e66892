//! What one modelled card can and another cannot.

use pollux_mlx5_abi::caps::ethernet::min_inline;
use pollux_mlx5_abi::command::register::{ext_link_mode, link_mode};

use crate::device::uar::UARS;

/// What one card can and another cannot. Everything else is the same on all models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a card's abilities are just that: there or not")]
pub struct Traits {
    /// PCI device id.
    pub pci_device: u16,
    /// Board id (PSID), filled up with zeros.
    pub psid: [u8; 16],
    /// Completions say what the user called the queue.
    pub cqe_version: u8,
    /// Compressed completions.
    pub cqe_compression: bool,
    /// Compressed completions of striding queues: the stride stands in the short form.
    pub mini_cqe_stride_index: bool,
    /// Compressed completions whose short form has the flow tag, or the types of headers.
    pub mini_cqe_tags: bool,
    /// Compressed completions in the enhanced layout.
    pub enhanced_cqe_compression: bool,
    /// A key of no memory, which takes what nobody wants.
    pub dump_fill_key: bool,
    /// Receive entries that many packets share.
    pub striding_rq: bool,
    /// Striding entries of fewer than 512 strides.
    pub short_striding: bool,
    /// Entries change keys whole: what they stand for, and the size of their pages, on queue pairs and on send queues that ask for
    /// it (UMR). Without, entries bind memory windows alone.
    pub change_keys: bool,
    /// Steering changes packets: fields of their headers, and tunnels that it takes off what is received and puts onto what is sent.
    pub change_packets: bool,
    /// Hairpin queues: what steering gives to a receive queue goes out of a send queue, past software. Not of any
    /// card yet: Linux's drivers have not been held against it.
    pub hairpin: bool,
    /// Many frames in one send entry (enhanced).
    pub enhanced_multi_packet: bool,
    /// Layer 2 headers must be inline; otherwise the port's context says what must, at first nothing.
    pub needs_inline_l2: bool,
    /// VLAN tags are inserted by the Ethernet segment; an entry that asks for it fails otherwise.
    pub vlan_insert: bool,
    /// Steering matches the version in an IP header, and not the Ethernet type alone.
    pub match_ip_version: bool,
    /// Queues stamp the time of day, in seconds and nanoseconds, and not what a free-running clock says; they are refused if
    /// they ask for that. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_TIMESTAMP_FORMAT_CAP_REAL_TIME`.
    pub real_time_only: bool,
    /// Queues stamp either of the two, as they ask.
    pub real_time_too: bool,
    /// User contexts and objects made by their commands (DevX).
    pub devx: bool,
    /// Registers can be mapped write-combining.
    pub blue_flame: bool,
    /// Bytes of a BlueFlame register, which is two buffers, as a power of two: 7 to 10.
    pub blue_flame_log: u32,
    /// Pages of registers (UARs) that it gives out, those of the kernel included; 256 at most.
    pub uars: usize,
    /// Pages of registers are 4 KiB whatever the system's pages are.
    pub uar_4k: bool,
    /// TCP segments are joined (LRO).
    pub lro: bool,
    /// Looks inside VXLAN: hashes and checks what is received, fills in checksums of what is sent, and cuts it.
    pub vxlan: bool,
    /// The same of GRE.
    pub gre: bool,
    /// The same of Geneve.
    pub geneve: bool,
    /// The same of IP in IP.
    pub ip_in_ip: bool,
    /// Send entries may say where headers are (software parsing, SWP), so that checksums and cutting go with any tunnel.
    pub software_parsing: bool,
    /// Where an entry says so, the card's own parser still finds what the entry leaves out; else it is off for that entry.
    pub parser_complements: bool,
    /// Completion queues go on in another ring.
    pub cq_resize: bool,
    /// Queue pairs of all transports.
    pub rdma: bool,
    /// Memory of its own that it lends.
    pub device_memory: bool,
    /// Of packets that are lost those alone are sent again, and what came behind them is kept; both ends must. Without, sending
    /// goes back to the first that is lost.
    pub selective_repeat: bool,
    /// Dynamic connections (DC): initiators, their streams, and targets. Cards from ConnectX-4 on have them; a driver that is to see
    /// them asks for them here.
    pub dynamic_connections: bool,
    /// Data of keys has signatures, which are checked, made and stripped (signature handover): T10-DIF and CRCs over blocks. Cards from
    /// Connect-IB on have them, not all of them all kinds; a driver that is to see them asks for them here.
    pub signatures: bool,
    /// Steering matches the first entry of an MPLS label stack: behind the Ethernet header, in GRE, in UDP. ConnectX-5 and newer do when
    /// they are set up for it (`FLEX_PARSER_PROFILE_ENABLE=1`), which they are not as they come. Source: DPDK
    /// `doc/guides/nics/mlx5.rst`, "MPLS".
    pub mpls: bool,
    /// Rules of sniffers get copies of all that the port receives and sends, whoever takes or sends it. Cards from ConnectX-4 on do
    /// that; a driver that is to see it asks for it here. Source: Linux `drivers/infiniband/hw/mlx5/fs.c`, `get_flow_table`.
    pub sniffer: bool,
    /// Two ends agree on options of their connection (ECE).
    pub ece: bool,
    /// Contexts of queue pairs tell that data is written in order, as it is: what comes early is kept until its turn, and
    /// bytes are written from the first to the last.
    pub data_in_order: bool,
    /// Send queues of reliable connections copy memory, without a peer.
    pub copies_memory: bool,
    /// Keys may be over pages that are not there, which queue pairs ask for when they need them (on-demand paging).
    pub on_demand_paging: bool,
    /// Completions of 128 bytes may be padding in their first half.
    pub padded_completions: bool,
    /// The record of a send queue is read as the queue leaves RESET, as every card reads a receive queue's; it must say zero
    /// then. rdma-core's `mlx5_modify_qp` (`providers/mlx5/verbs.c`) and Linux's mlx5_ib (`qp.c`, `__mlx5_ib_modify_qp`) zero
    /// both; Linux's network driver (`en/reporter_tx.c`, `mlx5e_reset_txqsq_cc_pc`) and DPDK (`mlx5_devx.c`) leave a send
    /// queue's as it was when they recover one, so it may not be so on every card.
    pub send_record_at_ready: bool,
    /// Commands may call a queue READY that failed by itself. mlx5_ib does, which goes by what it asked for last (Linux
    /// `drivers/infiniband/hw/mlx5/qp.c`, `modify_raw_packet_qp_sq`, `mlx5_ib_modify_wq`), and DPDK's recovery over verbs does
    /// through it (`drivers/net/mlx5/linux/mlx5_verbs.c`, `mlx5_ibv_modify_wq`). Linux's network driver and DPDK over DevX ask
    /// or name ERR (`drivers/net/ethernet/mellanox/mlx5/core/en/reporter_tx.c`; `drivers/net/mlx5/mlx5_devx.c`).
    pub believes_ready: bool,
    /// Frames are let in by the addresses and modes of the vport's context alone, as the e-switch does with virtual functions.
    /// A physical function gets all, and its steering decides.
    pub filters_vport: bool,
    /// Link modes: bits of PTYS's `eth_proto` and of its extended field; the fastest is in use while the link is up.
    pub link_modes: (u32, u32),
}

impl Default for Traits {
    /// A ConnectX-6 Dx with 100 Gbit/s.
    fn default() -> Self {
        Self {
            pci_device: 0x101d,
            psid: *b"MODEL00000001\0\0\0",
            cqe_version: 1,
            cqe_compression: true,
            mini_cqe_stride_index: true,
            mini_cqe_tags: true,
            enhanced_cqe_compression: true,
            dump_fill_key: true,
            striding_rq: true,
            short_striding: true,
            change_keys: true,
            change_packets: true,
            hairpin: false,
            enhanced_multi_packet: true,
            needs_inline_l2: false,
            vlan_insert: true,
            match_ip_version: true,
            real_time_only: false,
            real_time_too: false,
            devx: true,
            blue_flame: true,
            blue_flame_log: 9,
            uars: UARS,
            uar_4k: true,
            send_record_at_ready: true,
            lro: true,
            vxlan: true,
            gre: true,
            geneve: true,
            ip_in_ip: true,
            software_parsing: true,
            parser_complements: true,
            cq_resize: true,
            rdma: true,
            device_memory: true,
            selective_repeat: false,
            dynamic_connections: false,
            signatures: false,
            mpls: false,
            sniffer: false,
            ece: true,
            data_in_order: true,
            copies_memory: true,
            on_demand_paging: false,
            padded_completions: false,
            believes_ready: false,
            filters_vport: false,
            link_modes: (
                link_mode::MODE_25GBASE_CR | link_mode::MODE_40GBASE_CR4 | link_mode::MODE_100GBASE_CR4,
                ext_link_mode::CAUI_4_100GBASE_CR4_KR4,
            ),
        }
    }
}

impl Traits {
    /// Headers that must be inline at first: one of `min_inline`.
    pub(crate) fn min_inline(&self) -> u32 {
        if self.needs_inline_l2 { min_inline::L2 } else { min_inline::NONE }
    }

    /// Bytes of one of a BlueFlame register's two buffers; doorbells alone stand as far apart where there is no BlueFlame.
    pub(crate) fn buffer_bytes(&self) -> usize {
        1 << (self.blue_flame_log.clamp(7, 10) - 1)
    }
}
