//! Handles: the numbers by which a context knows its objects.

macro_rules! handles {
    ($($(#[$outer:meta])* $name:ident)*) => { $(
        $(#[$outer])*
        ///
        /// A number that the kernel gave; it means something in the context that made it alone. Copying it does not copy the
        /// object, and dropping it destroys nothing: the driver that keeps the object destroys it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
    )* };
}

handles! {
    /// A protection domain.
    PdHandle
    /// A memory region.
    MrHandle
    /// A memory window.
    MwHandle
    /// A completion queue.
    CqHandle
    /// A queue pair.
    QpHandle
    /// A work queue.
    WqHandle
    /// An indirection table.
    RwqIndTableHandle
    /// A shared receive queue.
    SrqHandle
    /// An XRC domain.
    XrcdHandle
    /// An address.
    AhHandle
    /// Device memory.
    DmHandle
    /// A flow rule.
    FlowHandle
    /// A set of counters.
    CountersHandle
}
