//! Kinds of objects and drivers. Source: `rdma/ib_user_ioctl_cmds.h`, `rdma/ib_user_ioctl_verbs.h`.

/// First number of the driver's own objects, methods and attributes.
pub const DRIVER_NAMESPACE: u16 = 0x1000;

/// Attribute with the driver's part of a command.
pub const UHW_IN: u16 = DRIVER_NAMESPACE;

/// Attribute for the driver's part of an answer.
pub const UHW_OUT: u16 = DRIVER_NAMESPACE + 1;

/// Drivers: `enum rdma_driver_id`.
pub mod driver {
    /// No driver's attributes are meant.
    pub const UNKNOWN: u32 = 0;
    /// `mlx5_ib`: ConnectX-4 and later.
    pub const MLX5: u32 = 1;
    /// `rdma_rxe`: RoCE in software.
    pub const RXE: u32 = 14;
}
