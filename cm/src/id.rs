//! IDs: what sockets are to TCP.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use pollux_uverbs::abi::flags::QpState;
use pollux_verbs::{Context, Cq, Pd, Qp, QpAttributes, QpKind, QpOptions, Srq};

use crate::error::CmError;
use crate::manager::{Manager, either};
use crate::parameters::{ConnectionParameters, IdOptions, private_data};
use crate::software::UDP_QKEY;

/// By which events name an ID: [`Id::number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdNumber(u64);

impl IdNumber {
    pub(crate) fn of(number: u64) -> Self {
        Self(number)
    }
}

/// One end of a connection, or who waits for one: what a socket is to TCP. Dropped, it ends what it stands for: a listener listens no
/// more, a request is rejected, a connection is disconnected.
#[derive(Debug)]
#[doc(alias = "rdma_cm_id")]
pub struct Id {
    pub(crate) manager: Manager,
    pub(crate) number: u64,
}

impl Drop for Id {
    fn drop(&mut self) {
        self.manager.destroy(self.number);
    }
}

impl Id {
    /// By which events name it.
    #[must_use]
    pub fn number(&self) -> IdNumber {
        IdNumber(self.number)
    }

    /// Sets options, before the ID has an address.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "rdma_set_option")]
    pub fn set_options(&self, options: IdOptions) -> Result<(), CmError> {
        either!(
            self.manager,
            software => software.set_options(self.number, options),
            kernel => kernel.set_options(self.number, options)
        )
    }

    /// Gives it a local address; port 0 is any.
    ///
    /// # Errors
    /// An address that no device has, a port that is in use.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(&self, address: SocketAddr) -> Result<(), CmError> {
        either!(self.manager, software => software.bind(self.number, address), kernel => kernel.bind(self.number, address))
    }

    /// Waits for connections: each is an event. `backlog` is how many may wait for an answer; 0 is as many as the manager allows.
    ///
    /// # Errors
    /// An ID that is in use otherwise.
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u32) -> Result<(), CmError> {
        either!(self.manager, software => software.listen(self.number, backlog), kernel => kernel.listen(self.number, backlog))
    }

    /// Finds the device that leads to an address: an event tells what came of it. From `source`, if it is given. The wire is
    /// asked meanwhile, until `timeout`.
    ///
    /// # Errors
    /// A source that no device has, an ID that is in use otherwise.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<(), CmError> {
        either!(
            self.manager,
            software => software.resolve_address(self.number, source, destination, timeout),
            kernel => kernel.resolve_address(self.number, source, destination, timeout)
        )
    }

    /// Finds the way there, after the address: an event tells what came of it.
    ///
    /// # Errors
    /// An address that is not resolved.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), CmError> {
        either!(
            self.manager,
            software => software.resolve_route(self.number),
            kernel => kernel.resolve_route(self.number, timeout)
        )
    }

    /// The device that it leads to, and its port. `None` as long as it leads nowhere.
    ///
    /// # Errors
    /// The kernel's device cannot be opened.
    pub fn device(&self) -> Result<Option<(Context, u8)>, CmError> {
        either!(self.manager, software => Ok(software.device(self.number)), kernel => kernel.device(self.number))
    }

    /// Our address, with its port.
    #[must_use]
    #[doc(alias = "rdma_get_local_addr")]
    pub fn local_address(&self) -> Option<SocketAddr> {
        either!(self.manager, software => software.addresses(self.number).0, kernel => kernel.addresses(self.number).0)
    }

    /// The peer's address, with its port.
    #[must_use]
    #[doc(alias = "rdma_get_peer_addr")]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        either!(self.manager, software => software.addresses(self.number).1, kernel => kernel.addresses(self.number).1)
    }

    /// Attributes of its queue pair in a state, for programs that change the state themselves.
    ///
    /// # Errors
    /// No device yet; a connection that is not that far, or over. Before there is a connection, all states have the attributes that a queue
    /// pair begins with.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn qp_attributes(&self, state: QpState) -> Result<QpAttributes, CmError> {
        either!(
            self.manager,
            software => software.qp_attributes(self.number, state),
            kernel => kernel.qp_attributes(self.number, state)
        )
    }

    /// Makes a queue pair for it, to which receives can be posted: of connections in state INIT, of datagrams in RTS.
    ///
    /// # Errors
    /// An ID without a device, another device's domain, or what the device says.
    #[doc(alias = "rdma_create_qp")]
    pub fn create_qp(&self, pd: &Pd, send_cq: &Cq, recv_cq: &Cq, options: &QpOptions) -> Result<Qp, CmError> {
        self.ready(Qp::new(pd, send_cq, recv_cq, options)?)
    }

    /// The same, which receives from a shared receive queue.
    ///
    /// # Errors
    /// As [`create_qp`](Self::create_qp).
    pub fn create_qp_with_srq(
        &self,
        pd: &Pd,
        (send_cq, recv_cq): (&Cq, &Cq),
        srq: &Srq,
        options: &QpOptions,
    ) -> Result<Qp, CmError> {
        self.ready(Qp::with_srq(pd, send_cq, recv_cq, srq, options)?)
    }

    fn ready(&self, mut qp: Qp) -> Result<Qp, CmError> {
        let why = "resolve an address, or take a request, first";
        let (_, port) = self.device()?.ok_or(CmError::State { what: "make a queue pair", why })?;
        if qp.kind() == QpKind::Ud {
            qp.ready_datagram(port, UDP_QKEY, 0)?;
        } else {
            // Rights come with the connection.
            qp.init(port, pollux_verbs::Access::empty())?;
        }
        Ok(qp)
    }

    /// Changes a queue pair's state as the connection wants it.
    fn change(&self, qp: &mut Qp, state: QpState) -> Result<(), CmError> {
        Ok(qp.modify(&self.qp_attributes(state)?)?)
    }

    /// From INIT to RTS, with so many reads answered and under way at once; `None` as the connection has them.
    fn change_to_send(&self, qp: &mut Qp, reads: Option<(u8, u8)>) -> Result<(), CmError> {
        self.change(qp, QpState::INIT)?;
        let mut receive = self.qp_attributes(QpState::RTR)?;
        let mut send = self.qp_attributes(QpState::RTS)?;
        if let Some((resources, depth)) = reads {
            (receive.max_dest_rd_atomic, send.max_rd_atomic) = (Some(resources), Some(depth));
        }
        qp.modify(&receive)?;
        Ok(qp.modify(&send)?)
    }

    /// Asks for a connection of the queue pair: [`ConnectResponse`](crate::EventKind::ConnectResponse) is the peer's yes.
    ///
    /// # Errors
    /// A queue pair that is not of RC, a route that is not resolved, too much private data, or what the kernel says.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, qp: &Qp, parameters: &ConnectionParameters) -> Result<(), CmError> {
        check_reliable(qp)?;
        private_data::check(&parameters.private_data, private_data::CONNECT)?;
        either!(
            self.manager,
            software => software.connect(self.number, qp.qpn(), parameters),
            kernel => kernel.connect(self.number, qp.qpn(), parameters)
        )
    }

    /// Asks for the queue pair that takes datagrams there:
    /// [`DatagramEstablished`](crate::EventKind::DatagramEstablished) tells it.
    ///
    /// # Errors
    /// A route that is not resolved, too much private data, or what the kernel says.
    pub fn connect_datagrams(&self, private_data: &[u8]) -> Result<(), CmError> {
        private_data::check(private_data, private_data::DATAGRAM_CONNECT)?;
        either!(
            self.manager,
            software => software.connect_datagrams(self.number, private_data),
            kernel => {
                let parameters = ConnectionParameters::default().private_data(private_data);
                kernel.connect(self.number, 0, &parameters)
            }
        )
    }

    /// After the peer's yes: the queue pair can send, and the peer is told so.
    ///
    /// # Errors
    /// No such answer, or what the device says.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self, qp: &mut Qp) -> Result<(), CmError> {
        self.change_to_send(qp, None)?;
        either!(self.manager, software => software.establish(self.number), kernel => kernel.establish(self.number))
    }

    /// Agrees to what was asked for: the queue pair can send, then the peer is told.
    /// [`Established`](crate::EventKind::Established) tells that it heard. The peer may have asked for more READs and atomics at once than
    /// this device can; it is told of as many as it can.
    ///
    /// # Errors
    /// Nothing was asked for, a queue pair that is not of RC, too much private data, or what the device says.
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, qp: &mut Qp, parameters: &ConnectionParameters) -> Result<(), CmError> {
        check_reliable(qp)?;
        private_data::check(&parameters.private_data, private_data::ACCEPT)?;
        let parameters = &self.within_limits(parameters)?;
        self.change_to_send(qp, Some((parameters.responder_resources, parameters.initiator_depth)))?;
        either!(
            self.manager,
            software => software.accept(self.number, qp.qpn(), parameters),
            kernel => kernel.accept(self.number, qp.qpn(), parameters)
        )
    }

    /// With no more READs and atomics at once than the device can, as `rdma_accept` without parameters. Source: rdma-core
    /// `librdmacm/cma.c`, `rdma_accept`.
    fn within_limits(&self, parameters: &ConnectionParameters) -> Result<ConnectionParameters, CmError> {
        let (resources, depth) = (parameters.responder_resources, parameters.initiator_depth);
        let mut parameters = parameters.clone();
        // One at a time each device can: it is not asked for its limits.
        if resources.max(depth) > 1
            && let Some((context, _)) = self.device()?
        {
            let limits = context.device()?.base;
            let least = |wanted: u8, limit: u32| wanted.min(u8::try_from(limit).unwrap_or(u8::MAX));
            parameters.responder_resources = least(resources, limits.max_qp_rd_atom);
            parameters.initiator_depth = least(depth, limits.max_qp_init_rd_atom);
        }
        Ok(parameters)
    }

    /// Tells the manager that the queue pair has received from the peer: it has heard the agreement, though its own word of that may be lost.
    /// [`Established`](crate::EventKind::Established) follows where it is news.
    ///
    /// # Errors
    /// No connection that was agreed to, or what the kernel says.
    #[doc(alias = "rdma_notify")]
    pub fn notify_established(&self) -> Result<(), CmError> {
        either!(
            self.manager,
            software => software.established_by_data(self.number).map(drop),
            kernel => kernel.established_by_data(self.number)
        )
    }

    /// Tells who asks that this queue pair takes datagrams.
    ///
    /// # Errors
    /// Nothing was asked for, too much private data, or what the kernel says.
    pub fn accept_datagrams(&self, qp: &Qp, private_data: &[u8]) -> Result<(), CmError> {
        private_data::check(private_data, private_data::DATAGRAM_ACCEPT)?;
        either!(
            self.manager,
            software => software.accept_datagrams(self.number, qp.qpn(), private_data),
            kernel => {
                let parameters = ConnectionParameters::default().private_data(private_data);
                kernel.accept(self.number, qp.qpn(), &parameters)
            }
        )
    }

    /// Joins a multicast group: [`MulticastJoined`](crate::EventKind::MulticastJoined) tells how it is sent to, and what a queue pair of
    /// datagrams is attached to, unless the ID only sends.
    ///
    /// # Errors
    /// An ID of connections, one that has neither an address of a device nor resolved one, a group that it is in or that is none, or what
    /// the kernel says: Linux has no groups of IPv6 with RoCE v2.
    #[doc(alias = "rdma_join_multicast")]
    pub fn join_multicast(&self, group: IpAddr, sends_only: bool) -> Result<(), CmError> {
        if !group.is_multicast() {
            return Err(CmError::State { what: "join", why: "the address is of no multicast group" });
        }
        either!(
            self.manager,
            software => software.join(self.number, group),
            kernel => kernel.join(self.number, group, sends_only)
        )
    }

    /// Leaves it. An ID that is dropped leaves all of its groups.
    ///
    /// # Errors
    /// A group that it is not in, or what the kernel says.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: IpAddr) -> Result<(), CmError> {
        either!(
            self.manager,
            software => software.leave(self.number, group),
            kernel => kernel.leave(self.number, group)
        )
    }

    /// Says no.
    ///
    /// # Errors
    /// Nothing was asked for, or too much private data.
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<(), CmError> {
        private_data::check(private_data, private_data::REJECT)?;
        either!(
            self.manager,
            software => software.reject(self.number, private_data),
            kernel => kernel.reject(self.number, private_data)
        )
    }

    /// Ends the connection, or agrees to its end: what is posted to the queue pair is flushed.
    ///
    /// # Errors
    /// No connection, or what the device says.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self, qp: &mut Qp) -> Result<(), CmError> {
        qp.modify(&QpAttributes::state(QpState::ERR))?;
        either!(self.manager, software => software.disconnect(self.number), kernel => kernel.disconnect(self.number))
    }
}

/// Whether a queue pair can be connected.
fn check_reliable(qp: &Qp) -> Result<(), CmError> {
    if qp.kind() == QpKind::Rc {
        return Ok(());
    }
    Err(CmError::Unsupported { what: "connecting this queue pair", why: "only queue pairs of RC connect" })
}
