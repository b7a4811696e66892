//! What the port and others count: packets and bytes.

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes, without FCS.
    pub bytes: u64,
}

impl Traffic {
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

/// What the port counted, one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// To one address.
    pub unicast: Traffic,
    /// To a group.
    pub multicast: Traffic,
    /// To everybody.
    pub broadcast: Traffic,
}

impl Way {
    #[inline]
    pub(super) fn add(&mut self, destination: &[u8], bytes: usize) {
        match destination {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, ..] => self.broadcast.add(bytes),
            [first, ..] if first & 1 == 1 => self.multicast.add(bytes),
            _ => self.unicast.add(bytes),
        }
    }

    /// All of it together.
    #[must_use]
    pub fn all(&self) -> Traffic {
        Traffic {
            packets: self.unicast.packets + self.multicast.packets + self.broadcast.packets,
            bytes: self.unicast.bytes + self.multicast.bytes + self.broadcast.bytes,
        }
    }
}

/// Counters of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Received from the wire.
    pub received: Way,
    /// Put on the wire.
    pub sent: Way,
    /// Received, and longer than the MTU allows, dropped.
    pub too_long: u64,
    /// To be sent, and longer than the MTU allows once steering had changed them, dropped: `tx_errors_phy`. Source: Linux
    /// `Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst`; RFC 2863, `ifOutErrors`.
    pub sent_too_long: u64,
    /// Shorter than a header, dropped.
    pub too_short: u64,
    /// To an address that is not the port's, dropped.
    pub filtered: u64,
    /// Sent while the link was down, dropped.
    pub sent_while_down: u64,
    /// Of these, the packets of Ethernet send queues; one that was to be cut counts once.
    pub down: Traffic,
    /// Packets of Ethernet send queues that the wire would not take although it is up: a file on a full disk, say.
    pub refused: Traffic,
    /// Arrived while the link was down here, dropped.
    pub arrived_while_down: u64,
    /// Let in, but no steering rule or no ready queue took it.
    pub steering_discards: u64,
    /// Received, and led through more flow tables than the device follows for one frame: cut off there.
    pub rx_steering_ended: u64,
    /// To be sent, and led through so many: dropped.
    pub tx_steering_ended: u64,
    /// RoCE packets to the device whose CRC was wrong, dropped.
    pub roce_damaged: u64,
}
