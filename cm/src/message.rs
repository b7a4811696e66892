//! Messages of the connection manager: management datagrams of 256 bytes between queue pairs 1.
//!
//! ```text
//!   REQ ──►            ask for a connection           MRA   it takes longer
//!       ◄── REP        agree                          REJ   no
//!   RTU ──►            both may send                  DREQ, DREP   the end
//!   SIDR_REQ ──► ◄── SIDR_REP                         which queue pair takes datagrams of a service
//! ```
//!
//! Source of the layouts: InfiniBand Architecture Specification, volume 1, tables 106 to 120, as Linux `include/rdma/ibta_vol1_c12.h`
//! counts their bytes from the end of the header; of the header: Linux `include/rdma/ib_mad.h`, `struct ib_mad_hdr`.

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a management datagram.
pub(crate) const BYTES: usize = 256;
/// Bytes of its header.
const HEADER_BYTES: usize = 24;

/// Source: Linux `include/rdma/ib_mad.h`, `IB_MGMT_BASE_VERSION`, `IB_MGMT_CLASS_CM`, `IB_MGMT_METHOD_SEND`; `include/rdma/ib_cm.h`,
/// `IB_CM_CLASS_VERSION`.
const BASE_VERSION: u8 = 1;
const CLASS: u8 = 7;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 3;

/// Which message it is. Source: Linux `include/rdma/ib_cm.h`, `CM_REQ_ATTR_ID` and its neighbours.
mod attribute {
    pub(super) const REQ: u16 = 0x10;
    pub(super) const MRA: u16 = 0x11;
    pub(super) const REJ: u16 = 0x12;
    pub(super) const REP: u16 = 0x13;
    pub(super) const RTU: u16 = 0x14;
    pub(super) const DREQ: u16 = 0x15;
    pub(super) const DREP: u16 = 0x16;
    pub(super) const SIDR_REQ: u16 = 0x17;
    pub(super) const SIDR_REP: u16 = 0x18;
}

/// A LID that means: look at the GID. Source: Linux `include/rdma/ib_verbs.h`, `IB_LID_PERMISSIVE`.
pub(crate) const LID_PERMISSIVE: u16 = 0xffff;

macro_rules! layouts {
    ($($(#[$outer:meta])* $name:ident, $bytes:literal { $($(#[$inner:meta])* $field:ident: $type:ty,)* })*) => { $(
        $(#[$outer])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        pub(crate) struct $name {
            $($(#[$inner])* pub(crate) $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $bytes);

        impl Default for $name {
            fn default() -> Self {
                Self::new_zeroed()
            }
        }
    )* };
}

layouts! {
    /// What every management datagram begins with.
    Header, 24 {
        base_version: u8,
        class: u8,
        class_version: u8,
        method: u8,
        status: U16,
        class_specific: U16,
        transaction: U64,
        attribute: U16,
        _reserved: U16,
        modifier: U32,
    }

    /// Where packets of a connection go, as its initiator says it.
    RoutePath, 44 {
        local_lid: U16,
        remote_lid: U16,
        local_gid: [u8; 16],
        remote_gid: [u8; 16],
        /// Flow label in the high 20 bits, packet rate in the low 6.
        label_rate: U32,
        traffic_class: u8,
        hop_limit: u8,
        /// Service level in the high 4 bits, then whether it is a path inside the subnet.
        level_local: u8,
        /// ACK timeout in the high 5 bits.
        ack_timeout: u8,
    }

    /// Request for a connection.
    Req, 232 {
        local_id: U32,
        _reserved: U32,
        service: U64,
        ca_guid: U64,
        _reserved_too: U32,
        qkey: U32,
        /// Queue pair number in the high 24 bits, responder resources in the low 8.
        qpn_resources: U32,
        /// EE context in the high 24 bits, initiator depth in the low 8.
        ee_depth: U32,
        /// Remote EE context in the high 24 bits; response timeout of the peer (5), transport (2), flow control (1).
        ee_response: U32,
        /// Starting PSN in the high 24 bits; own response timeout (5), retry count (3).
        psn_response: U32,
        pkey: U16,
        /// MTU (4), RDC exists (1), RNR retry count (3).
        mtu_rnr: u8,
        /// CM retries (4), SRQ (1), extended transport (3).
        retries_srq: u8,
        primary: RoutePath,
        alternate: RoutePath,
        private: [u8; 92],
    }

    /// Message receipt acknowledgement: the answer takes longer.
    Mra, 232 {
        local_id: U32,
        remote_id: U32,
        /// Which message, in the high 2 bits.
        message: u8,
        /// Service timeout, in the high 5 bits.
        timeout: u8,
        private: [u8; 222],
    }

    /// Reject.
    Rej, 232 {
        local_id: U32,
        remote_id: U32,
        /// Which message, in the high 2 bits.
        message: u8,
        /// Length of the information, in the high 7 bits.
        info_bytes: u8,
        reason: U16,
        info: [u8; 72],
        private: [u8; 148],
    }

    /// Reply to a request.
    Rep, 232 {
        local_id: U32,
        remote_id: U32,
        qkey: U32,
        /// Queue pair number in the high 24 bits.
        qpn: U32,
        ee: U32,
        /// Starting PSN in the high 24 bits.
        psn: U32,
        resources: u8,
        depth: u8,
        /// ACK delay of the device (5), failover accepted (2), flow control (1).
        delay_flow: u8,
        /// RNR retry count (3), SRQ (1).
        rnr_srq: u8,
        ca_guid: U64,
        private: [u8; 196],
    }

    /// Ready to use.
    Rtu, 232 {
        local_id: U32,
        remote_id: U32,
        private: [u8; 224],
    }

    /// Request to disconnect.
    Dreq, 232 {
        local_id: U32,
        remote_id: U32,
        /// The peer's queue pair number in the high 24 bits.
        qpn: U32,
        private: [u8; 220],
    }

    /// Reply to that.
    Drep, 232 {
        local_id: U32,
        remote_id: U32,
        private: [u8; 224],
    }

    /// Which queue pair takes datagrams of a service?
    SidrReq, 232 {
        request: U32,
        pkey: U16,
        _reserved: U16,
        service: U64,
        private: [u8; 216],
    }

    /// That one.
    SidrRep, 232 {
        request: U32,
        status: u8,
        info_bytes: u8,
        _reserved: U16,
        /// Queue pair number in the high 24 bits.
        qpn: U32,
        service: U64,
        qkey: U32,
        info: [u8; 72],
        private: [u8; 136],
    }
}

/// Which message an MRA or a REJ is about. Source: Linux `drivers/infiniband/core/cm_msgs.h`, `enum cm_msg_response`.
pub(crate) mod about {
    pub(crate) const REQ: u8 = 0;
    pub(crate) const REP: u8 = 1;
    pub(crate) const OTHER: u8 = 2;
}

/// A number of 24 bits that stands above a byte of something else.
pub(crate) fn high24(word: U32) -> u32 {
    word.get() >> 8
}

/// The same, to be written.
pub(crate) fn above(number: u32, low: u8) -> U32 {
    U32::new(number << 8 | u32::from(low))
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Req(Box<Req>),
    Mra(Box<Mra>),
    Rej(Box<Rej>),
    Rep(Box<Rep>),
    Rtu(Box<Rtu>),
    Dreq(Box<Dreq>),
    Drep(Box<Drep>),
    SidrReq(Box<SidrReq>),
    SidrRep(Box<SidrRep>),
}

/// Why a datagram is no message that is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strange {
    /// Cut, or of another version, class or method.
    Malformed,
    /// A message that is not answered, such as those about alternate paths.
    Unknown,
}

impl Message {
    /// Reads one, with the number of its transaction.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, u64), Strange> {
        let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| Strange::Malformed)?;
        let (header, body) = bytes.split_at(HEADER_BYTES);
        let header = Header::read_from_bytes(header).map_err(|_| Strange::Malformed)?;
        let kind = (header.base_version, header.class, header.class_version, header.method);
        if kind != (BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND) {
            return Err(Strange::Malformed);
        }
        fn body_as<T: FromBytes>(body: &[u8]) -> Result<Box<T>, Strange> {
            T::read_from_bytes(body).map(Box::new).map_err(|_| Strange::Malformed)
        }
        let message = match header.attribute.get() {
            attribute::REQ => Self::Req(body_as(body)?),
            attribute::MRA => Self::Mra(body_as(body)?),
            attribute::REJ => Self::Rej(body_as(body)?),
            attribute::REP => Self::Rep(body_as(body)?),
            attribute::RTU => Self::Rtu(body_as(body)?),
            attribute::DREQ => Self::Dreq(body_as(body)?),
            attribute::DREP => Self::Drep(body_as(body)?),
            attribute::SIDR_REQ => Self::SidrReq(body_as(body)?),
            attribute::SIDR_REP => Self::SidrRep(body_as(body)?),
            _ => return Err(Strange::Unknown),
        };
        Ok((message, header.transaction.get()))
    }

    /// Writes it.
    pub(crate) fn encode(&self, transaction: u64) -> [u8; BYTES] {
        let (attribute, body) = match self {
            Self::Req(body) => (attribute::REQ, body.as_bytes()),
            Self::Mra(body) => (attribute::MRA, body.as_bytes()),
            Self::Rej(body) => (attribute::REJ, body.as_bytes()),
            Self::Rep(body) => (attribute::REP, body.as_bytes()),
            Self::Rtu(body) => (attribute::RTU, body.as_bytes()),
            Self::Dreq(body) => (attribute::DREQ, body.as_bytes()),
            Self::Drep(body) => (attribute::DREP, body.as_bytes()),
            Self::SidrReq(body) => (attribute::SIDR_REQ, body.as_bytes()),
            Self::SidrRep(body) => (attribute::SIDR_REP, body.as_bytes()),
        };
        let header = Header {
            base_version: BASE_VERSION,
            class: CLASS,
            class_version: CLASS_VERSION,
            method: METHOD_SEND,
            transaction: transaction.into(),
            attribute: attribute.into(),
            ..Header::default()
        };
        let mut bytes = [0; BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        bytes[HEADER_BYTES..].copy_from_slice(body);
        bytes
    }
}

/// Puts `bytes` at the beginning of a message's private data, which has room for them: whoever asked was told how much there is.
pub(crate) fn fill(room: &mut [u8], bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(room.len())];
    room[..bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Places as Linux `include/rdma/ibta_vol1_c12.h` has them.
    #[test]
    fn fields_stand_where_the_specification_has_them() {
        let req = [
            (offset_of!(Req, service), 8),
            (offset_of!(Req, ca_guid), 16),
            (offset_of!(Req, qkey), 28),
            (offset_of!(Req, qpn_resources), 32),
            (offset_of!(Req, ee_depth), 36),
            (offset_of!(Req, ee_response), 40),
            (offset_of!(Req, psn_response), 44),
            (offset_of!(Req, pkey), 48),
            (offset_of!(Req, mtu_rnr), 50),
            (offset_of!(Req, retries_srq), 51),
            (offset_of!(Req, primary), 52),
            (offset_of!(Req, primary) + offset_of!(RoutePath, local_gid), 56),
            (offset_of!(Req, primary) + offset_of!(RoutePath, remote_gid), 72),
            (offset_of!(Req, primary) + offset_of!(RoutePath, label_rate), 88),
            (offset_of!(Req, primary) + offset_of!(RoutePath, traffic_class), 92),
            (offset_of!(Req, primary) + offset_of!(RoutePath, ack_timeout), 95),
            (offset_of!(Req, alternate), 96),
            (offset_of!(Req, private), 140),
        ];
        let rep = [
            (offset_of!(Rep, qpn), 12),
            (offset_of!(Rep, psn), 20),
            (offset_of!(Rep, resources), 24),
            (offset_of!(Rep, ca_guid), 28),
            (offset_of!(Rep, private), 36),
        ];
        let others = [
            (offset_of!(Mra, private), 10),
            (offset_of!(Rej, reason), 10),
            (offset_of!(Rej, info), 12),
            (offset_of!(Rej, private), 84),
            (offset_of!(Rtu, private), 8),
            (offset_of!(Dreq, private), 12),
            (offset_of!(Drep, private), 8),
            (offset_of!(SidrReq, service), 8),
            (offset_of!(SidrReq, private), 16),
            (offset_of!(SidrRep, qpn), 8),
            (offset_of!(SidrRep, service), 12),
            (offset_of!(SidrRep, qkey), 20),
            (offset_of!(SidrRep, info), 24),
            (offset_of!(SidrRep, private), 96),
        ];
        for (place, (found, wanted)) in req.into_iter().chain(rep).chain(others).enumerate() {
            assert_eq!(found, wanted, "entry {place}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let req = Req { local_id: 7.into(), qpn_resources: above(0x12_3456, 4), ..Req::default() };
        let message = Message::Req(Box::new(req));
        let bytes = message.encode(0x0102_0304_0506_0708);
        assert_eq!(bytes[..4], [1, 7, 2, 3]);
        assert_eq!(bytes[8..18], [1, 2, 3, 4, 5, 6, 7, 8, 0, 0x10]);
        assert_eq!(bytes[24 + 32..24 + 36], [0x12, 0x34, 0x56, 4]);
        assert_eq!(Message::decode(&bytes), Ok((message, 0x0102_0304_0506_0708)));
        assert_eq!(high24(req.qpn_resources), 0x12_3456);
    }

    #[test]
    fn what_is_no_message_is_told() {
        let bytes = Message::Rtu(Box::default()).encode(1);
        assert_eq!(Message::decode(&bytes[..255]), Err(Strange::Malformed));
        assert_eq!(Message::decode(&[]), Err(Strange::Malformed));
        for at in 0..4 {
            let mut other = bytes;
            other[at] ^= 0x40;
            assert_eq!(Message::decode(&other), Err(Strange::Malformed), "byte {at}");
        }
        let mut path = bytes;
        // LAP.
        path[17] = 0x19;
        assert_eq!(Message::decode(&path), Err(Strange::Unknown));
    }
}
