//! Programs that connect by address, through a connection manager; the originals are librdmacm's.
//!
//! ```text
//!   manager   which manager: the kernel's, or one of this process over device models
//!   rping     ping-pong by READs and WRITEs
//!   ucmatose  many connections at once
//! ```

pub mod manager;
pub mod rping;
pub mod ucmatose;
