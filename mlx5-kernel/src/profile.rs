//! What a door lacks: kernels and cards that are older than the newest; and what it gives that no kernel does.

/// What the "kernel" behind a channel lacks. The default lacks nothing.
///
/// Each refusal is the one that a kernel gives which really lacks it, so that what a user does about it is tried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a part that a kernel has or lacks, on its own")]
pub struct DoorProfile {
    /// `DEVICE/INVOKE_WRITE` (Linux before 5.0): write commands come by write(2). `EPROTONOSUPPORT`.
    pub no_invoke_write: bool,
    /// `CQ/CREATE` (before 4.18 in distributors' kernels, and where only commands are offered). `EPROTONOSUPPORT`.
    pub no_cq_create: bool,
    /// `QP/CREATE` and `QP/DESTROY` (before 5.8). `EPROTONOSUPPORT`.
    pub no_qp_create: bool,
    /// `WQ/CREATE` and `WQ/DESTROY` (before 5.8). `EPROTONOSUPPORT`.
    pub no_wq_create: bool,
    /// `MR/REG_MR` (before 6.16). `EPROTONOSUPPORT`.
    pub no_mr_reg: bool,
    /// `DEVICE/GET_CONTEXT`, `DEVICE/QUERY_CONTEXT` and `ASYNC_EVENT/ALLOC` (before 5.6): the context comes by command.
    pub no_get_context: bool,
    /// `UAR/ALLOC` (before 5.7): the context's static registers, and `mmap` with `ALLOC_WC`. `EPROTONOSUPPORT`.
    pub no_uar_alloc: bool,
    /// `DEVICE/QUERY_GID_TABLE` and `QUERY_GID_ENTRY` (before 5.10). `EPROTONOSUPPORT`.
    pub no_query_gid: bool,
    /// `DEVICE/QUERY_PORT_SPEED` (before 7.0). `EPROTONOSUPPORT`.
    pub no_query_port_speed: bool,
    /// `DMABUF/ALLOC` (before 7.0). `EPROTONOSUPPORT`.
    pub no_dmabuf_alloc: bool,
    /// DevX (before 4.19, or firmware without user contexts): asking for it is `EINVAL`, its objects `EPROTONOSUPPORT`.
    pub no_devx: bool,
    /// Write combining: BlueFlame UARs are `EOPNOTSUPP`, write-combined maps `EPERM`, and the context tells no BlueFlame.
    pub no_blue_flame: bool,
    /// `CAP_NET_RAW`: raw packet queue pairs and flow rules are `EPERM`.
    pub no_net_raw: bool,
    /// Most that completions' version may be; `Some(0)` is a card that knows version 0 alone, whose raw packet queue pairs
    /// mlx5_ib refuses.
    pub cqe_version_max: Option<u8>,
    /// Gives queue pair 1 of its port to whoever makes it first, as a kernel does to its own connection manager alone: for one in user
    /// space. Others get `EBUSY`; without this, `EINVAL` as of Linux.
    pub management: bool,
}

impl DoorProfile {
    /// Lacks nothing.
    pub const NEWEST: Self = Self {
        no_invoke_write: false,
        no_cq_create: false,
        no_qp_create: false,
        no_wq_create: false,
        no_mr_reg: false,
        no_get_context: false,
        no_uar_alloc: false,
        no_query_gid: false,
        no_query_port_speed: false,
        no_dmabuf_alloc: false,
        no_devx: false,
        no_blue_flame: false,
        no_net_raw: false,
        cqe_version_max: None,
        management: false,
    };

    /// Linux 6.12, whose answers are recorded.
    #[must_use]
    pub const fn linux_6_12() -> Self {
        Self { no_mr_reg: true, no_query_port_speed: true, no_dmabuf_alloc: true, ..Self::NEWEST }
    }

    /// Linux 5.4, the oldest kernel that is supported: what of the methods came later.
    #[must_use]
    pub const fn linux_5_4() -> Self {
        Self {
            no_qp_create: true,
            no_wq_create: true,
            no_mr_reg: true,
            no_get_context: true,
            no_uar_alloc: true,
            no_query_gid: true,
            no_query_port_speed: true,
            no_dmabuf_alloc: true,
            ..Self::NEWEST
        }
    }
}
