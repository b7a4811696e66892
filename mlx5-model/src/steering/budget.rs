//! What a frame may cost on its way through tables.
//!
//! Rules are a guest's, and an entry may lead to many tables, each of whose entries does again. What one frame costs stays bounded:
//!
//! | bound | of | why that much |
//! |---|---|---|
//! | [`LEVELS`] | tables on one path | `max_ft_level`: packets only go to higher levels |
//! | [`TABLES_MAX`] | tables on all paths of a frame | eight whole paths; each may change the frame, which copies it |
//! | [`GROUPS_PASSED_MAX`] | groups that a frame is compared with | four tables of as many groups as they can have |
//! | [`DELIVERIES_MAX`] | copies that are delivered | sixteen entries of as many destinations as they can have |
//!
//! Where one is reached the walk ends: what was delivered so far stays delivered, a frame to be sent is not sent, and the port counts
//! it, as cards do (`handled_pkt_steering_fail` of QUERY_VNIC_ENV, and `generated_pkt_steering_fail`); their bounds are not known.
//! Source: Linux `Documentation/networking/devlink/mlx5.rst`, "vnic reporter".

/// Levels of tables: `max_ft_level`. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `struct mlx5_ifc_flow_table_prop_layout_bits`;
/// rdma-core `providers/mlx5/dr_table.c`, `dr_table_create_devx_tbl`, which takes the level below it as the last one. Linux 6.12's receive
/// tree ends at level 66.
pub(crate) const LEVELS: u32 = 128;
/// Tables that a frame passes on all its paths together.
pub(crate) const TABLES_MAX: usize = 1024;
/// Groups that it is compared with there.
pub(crate) const GROUPS_PASSED_MAX: usize = 1 << 14;
/// Copies of it that are delivered.
pub(crate) const DELIVERIES_MAX: usize = 1024;

/// What a frame may still cost.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) tables: usize,
    pub(super) groups: usize,
    pub(super) deliveries: usize,
}

impl Budget {
    /// That of a frame that comes to its first table.
    pub(super) fn new() -> Self {
        Self { tables: TABLES_MAX, groups: GROUPS_PASSED_MAX, deliveries: DELIVERIES_MAX }
    }
}

/// The walk is at its end: a bound was reached.
pub(super) struct Ended;
