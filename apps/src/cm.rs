//! Programs that connect by address, through a connection manager; the originals are librdmacm's.
//!
//! ```text
//!   manager   which manager: the kernel's, or one of this process over device models
//!   rping     READs and WRITEs to and fro
//! ```

pub mod manager;
pub mod rping;
