//! What is known of a packet besides its data.
#![expect(unsafe_code, reason = "reads and writes headers in pinned memory")]

use pollux_wire::PacketType;

use super::flag::{RxFlags, TxFlags, TxOffload};
use super::{Mbuf, cold};
use crate::dynamic::{Field, Flag, Plain};

impl Mbuf {
    /// The port it came in at, `u16::MAX` for none.
    #[inline(always)]
    #[must_use]
    pub fn port(&self) -> u16 {
        self.lengths().port
    }

    /// Sets the port it came in at.
    #[inline(always)]
    pub fn set_port(&mut self, port: u16) {
        self.lengths_mut().port = port;
    }

    /// What the receiving port found out.
    #[inline(always)]
    #[must_use]
    pub fn rx_flags(&self) -> RxFlags {
        self.marks().rx_flags
    }

    /// Says what the receiving port found out.
    #[inline(always)]
    pub fn set_rx_flags(&mut self, flags: RxFlags) {
        self.marks_mut().rx_flags = flags;
    }

    /// What the sending port is asked to do.
    #[inline(always)]
    #[must_use]
    pub fn tx_flags(&self) -> TxFlags {
        self.marks().tx_flags
    }

    /// Asks the sending port for something.
    #[inline(always)]
    pub fn set_tx_flags(&mut self, flags: TxFlags) {
        self.marks_mut().tx_flags = flags;
    }

    /// What kind of packet it is.
    #[inline(always)]
    #[must_use]
    pub fn packet_type(&self) -> PacketType {
        self.marks().packet_type
    }

    /// Says what kind of packet it is.
    #[inline(always)]
    pub fn set_packet_type(&mut self, packet_type: PacketType) {
        self.marks_mut().packet_type = packet_type;
    }

    /// The RSS hash; of use under [`RxFlags::RSS_HASH`].
    #[inline(always)]
    #[must_use]
    pub fn rss_hash(&self) -> u32 {
        // SAFETY: this mbuf owns its header.
        unsafe { (*self.0.as_ptr()).rss_hash }
    }

    /// Sets the RSS hash, without the flag.
    #[inline(always)]
    pub fn set_rss_hash(&mut self, hash: u32) {
        // SAFETY: this mbuf owns its header.
        unsafe { (*self.0.as_ptr()).rss_hash = hash }
    }

    /// A flow rule's number; of use under [`RxFlags::MARK`].
    #[inline(always)]
    #[must_use]
    pub fn mark(&self) -> u32 {
        // SAFETY: this mbuf owns its header.
        unsafe { (*self.0.as_ptr()).mark }
    }

    /// Sets the flow rule's number, without the flag.
    #[inline(always)]
    pub fn set_mark(&mut self, mark: u32) {
        // SAFETY: this mbuf owns its header.
        unsafe { (*self.0.as_ptr()).mark = mark }
    }

    /// The VLAN tag; of use under [`RxFlags::VLAN`], [`TxFlags::VLAN`] or a QinQ flag.
    #[inline(always)]
    #[must_use]
    pub fn vlan_tci(&self) -> u16 {
        // SAFETY: this mbuf owns its header.
        unsafe { (*self.0.as_ptr()).vlan_tci }
    }

    /// Sets the VLAN tag, without a flag.
    #[inline(always)]
    pub fn set_vlan_tci(&mut self, tci: u16) {
        // SAFETY: this mbuf owns its header.
        unsafe { (*self.0.as_ptr()).vlan_tci = tci }
    }

    /// The outer VLAN tag; of use under [`RxFlags::QINQ`] or [`TxFlags::QINQ`].
    #[inline(always)]
    #[must_use]
    pub fn vlan_tci_outer(&self) -> u16 {
        // SAFETY: this mbuf owns its header.
        unsafe { (*self.0.as_ptr()).vlan_tci_outer }
    }

    /// Sets the outer VLAN tag, without a flag.
    #[inline(always)]
    pub fn set_vlan_tci_outer(&mut self, tci: u16) {
        // SAFETY: this mbuf owns its header.
        unsafe { (*self.0.as_ptr()).vlan_tci_outer = tci }
    }

    /// Lengths of headers for offloads. All zero when no tx flag is set.
    #[inline]
    #[must_use]
    pub fn tx_offload(&self) -> TxOffload {
        if self.tx_flags().is_empty() && !self.rx_flags().contains(RxFlags::LRO) {
            return TxOffload::default();
        }
        // SAFETY: this mbuf owns its header.
        TxOffload::unpack(unsafe { (*cold(self.0)).tx_offload })
    }

    /// Sets lengths of headers for offloads; [`set_tx_flags`](Self::set_tx_flags) says which offloads.
    #[inline]
    pub fn set_tx_offload(&mut self, offload: TxOffload) {
        // SAFETY: this mbuf owns its header.
        unsafe { (*cold(self.0)).tx_offload = offload.pack() }
    }

    /// Whether a dynamic flag is set.
    #[inline(always)]
    #[must_use]
    pub fn flag(&self, flag: Flag) -> bool {
        self.marks().dynamic_flags & flag.mask() != 0
    }

    /// Sets or clears a dynamic flag.
    #[inline(always)]
    pub fn set_flag(&mut self, flag: Flag, on: bool) {
        let flags = &mut self.marks_mut().dynamic_flags;
        *flags = if on { *flags | flag.mask() } else { *flags & !flag.mask() };
    }

    /// What a dynamic field holds; whatever was left there, unless a flag says otherwise.
    #[inline(always)]
    #[must_use]
    pub fn field<T: Plain>(&self, field: Field<T>) -> T {
        // SAFETY: registered fields lie inside the dynamic area, aligned as its start is for any of them; a `Plain` is a
        // number, for which all bytes are valid; this mbuf owns its header.
        unsafe { (&raw const (*cold(self.0)).dynamic).cast::<u8>().add(field.offset()).cast::<T>().read() }
    }

    /// Sets a dynamic field.
    #[inline(always)]
    pub fn set_field<T: Plain>(&mut self, field: Field<T>, value: T) {
        // SAFETY: as for `field`.
        unsafe {
            (&raw mut (*cold(self.0)).dynamic).cast::<u8>().add(field.offset()).cast::<T>().write(value)
        }
    }
}
