//! What can go wrong, in one line each.

use std::net::SocketAddr;
use std::path::PathBuf;

use pollux_verbs::{Errno, VerbsError};

use crate::PortSpace;

/// Errors of the connection manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// The device could not.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The kernel has no connection manager for programs, or gives it to nobody here.
    #[error("{}: {source}; load rdma_ucm with `modprobe rdma_ucm`, and see who may open the file", path.display())]
    Open {
        /// Its file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The kernel's connection manager refused.
    #[error("cannot {what}: {errno}{}", meaning(.what, *.errno))]
    Kernel {
        /// What was being done.
        what: &'static str,
        /// The answer.
        errno: Errno,
    },
    /// Not now: the call does not fit the state of the ID.
    #[error("cannot {what}: {why}")]
    State {
        /// What was asked for.
        what: &'static str,
        /// What has to go before, or what has happened meanwhile.
        why: &'static str,
    },
    /// The port is another ID's.
    #[error("port {port} of {space:?} is in use; choose another, or 0 for any")]
    PortInUse {
        /// Of which ports.
        space: PortSpace,
        /// The port.
        port: u16,
    },
    /// No device has the address.
    #[error("{address} is the address of no RDMA device here; addresses: {present}")]
    NoDevice {
        /// The address.
        address: SocketAddr,
        /// Which there are.
        present: String,
    },
    /// A host or a service has no address.
    #[error("no address of {}: {source}", looked_up(.node, .service))]
    Lookup {
        /// The host that was given; empty for none.
        node: String,
        /// The service; empty for none.
        service: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// More private data than the message has room for.
    #[error("{bytes} bytes of private data: there is room for {most}")]
    PrivateData {
        /// How many were given.
        bytes: usize,
        /// How many may be.
        most: usize,
    },
    /// This side of it cannot do that.
    #[error("{what}: {why}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// Why not, and what else.
        why: &'static str,
    },
}

fn looked_up(node: &str, service: &str) -> String {
    match (node, service) {
        ("", "") => "neither a host nor a service".into(),
        ("", service) => format!("this host for the service '{service}'"),
        (node, "") => format!("'{node}'"),
        (node, service) => format!("'{node}' for the service '{service}'"),
    }
}

/// What an answer of the kernel's means here. Source: rdma-core `librdmacm/man/rdma_bind_addr.3`, `rdma_resolve_addr.3`.
fn meaning(what: &str, errno: Errno) -> &'static str {
    match errno {
        Errno::ENODEV if what.starts_with("bind") => ": the address is of no RDMA device",
        Errno::ENODEV => ": no RDMA device leads there",
        Errno::ETIMEDOUT => ": nobody answers for the address",
        Errno::ENETUNREACH => ": no route leads there",
        Errno::EADDRINUSE => ": the port is in use",
        Errno::EADDRNOTAVAIL => ": the address is not of this host",
        _ => "",
    }
}
