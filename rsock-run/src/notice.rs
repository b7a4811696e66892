//! Why a connection is the kernel's: one line for each reason, however many connections there are.

use std::net::SocketAddr;

use pollux_bringup::program::say;

/// A reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The address is on no network of a device.
    Elsewhere,
    /// Nobody answers for the address there.
    Silent,
    /// The peer does not accept it.
    Refused,
    /// The port cannot be listened at.
    Listen,
}

/// What was said.
#[derive(Debug, Default)]
pub(crate) struct Notices(Vec<Reason>);

impl Notices {
    /// Says why the connection with a peer is the kernel's, the first time.
    pub(crate) fn say(&mut self, reason: Reason, peer: SocketAddr, detail: &str) {
        if self.0.contains(&reason) {
            return;
        }
        self.0.push(reason);
        let line = match reason {
            Reason::Elsewhere => format!(
                "{} is on no network of an RDMA device; connections to such addresses are the kernel's TCP",
                peer.ip()
            ),
            Reason::Silent => format!(
                "nobody answers for {} by RDMA: {detail}; such connections are the kernel's TCP",
                peer.ip()
            ),
            Reason::Refused => {
                format!("{peer} takes no connection by RDMA: {detail}; such connections are the kernel's TCP")
            }
            Reason::Listen => {
                format!("cannot listen by RDMA at {peer}: {detail}; the kernel's TCP alone is accepted there")
            }
        };
        say(format_args!("rsock-run: {line}"));
    }
}
