//! Programs that connect by address, through a connection manager; the originals are librdmacm's.
//!
//! ```text
//!   address   addresses as they are typed
//!   manager   which manager: the kernel's, or one of this process over device models
//!   rping     ping-pong by READs and WRITEs
//!   ucmatose  many connections at once
//! ```

pub mod address;
pub mod manager;
pub mod rping;
pub mod ucmatose;
