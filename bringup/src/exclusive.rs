//! What keys of device arguments name that two ports cannot share.

/// What the value of a key names: two devices that name the same one are refused before either is opened, and told by name.
///
/// [`Drivers::exclusive`](crate::Drivers::exclusive) says it of a program's own driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusive(pub(crate) Kind);

/// Keys of a driver, and what they name.
pub(crate) type Keys = &'static [(&'static str, Exclusive)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An interface, by what is taken of it.
    Interface(Taken),
    /// The program's end of a tap.
    Tap,
    File {
        written: bool,
    },
    /// A wire of the device model: `iface:NAME`, `pcap:IN:OUT`, or nothing that another could want.
    Wire,
}

/// The directions of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) rx: bool,
    pub(crate) tx: bool,
}

impl Taken {
    pub(crate) const BOTH: Self = Self { rx: true, tx: true };
}

impl Exclusive {
    /// A Linux interface, for both directions.
    pub const INTERFACE: Self = Self(Kind::Interface(Taken::BOTH));
    /// A Linux interface whose frames are received; another port may send on it.
    pub const RX_INTERFACE: Self = Self(Kind::Interface(Taken { rx: true, tx: false }));
    /// A Linux interface on which frames are sent; another port may receive from it.
    pub const TX_INTERFACE: Self = Self(Kind::Interface(Taken { rx: false, tx: true }));
    /// A file that is read: others may read it, too, and none may write it.
    pub const READ_FILE: Self = Self(Kind::File { written: false });
    /// A file that is written.
    pub const WRITTEN_FILE: Self = Self(Kind::File { written: true });
    pub(crate) const TAP: Self = Self(Kind::Tap);
    pub(crate) const WIRE: Self = Self(Kind::Wire);
}
