//! Who does the work of verbs: the rings of a ConnectX adapter (or its model), or those that the kernel's rxe shares.

pub(crate) mod mlx5;
pub(crate) mod rxe;
