//! Which NUMA nodes the machine has, and which processors belong to each.

/// A NUMA node, by the number Linux gives it (DPDK calls it a socket).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u16);

impl std::fmt::Display for SocketId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}
