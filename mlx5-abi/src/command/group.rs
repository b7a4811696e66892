//! Multicast groups: which datagram queue pairs get what is sent to a group's GID.

use crate::layout::layouts;

layouts! {
    /// A queue pair joins a group.
    AttachToMcgIn = "attach_to_mcg_in" [32] {
        QPN: field(0x08, 23, 0),
        MULTICAST_GID: run(0x10, 16),
    }

    /// A queue pair leaves a group.
    DetachFromMcgIn = "detach_from_mcg_in" [32] {
        QPN: field(0x08, 23, 0),
        MULTICAST_GID: run(0x10, 16),
    }
}
