//! What a program asks of a connection.

use std::time::Duration;

use pollux_verbs::{Mtu, Path};

use super::{Agent, Ask, Connection, Notice, RC, State, WrongState};
use crate::message::{
    self, Drep, Dreq, LID_PERMISSIVE, Message, Rej, Rep, Req, RoutePath, Rtu, SidrRep, SidrReq, about, above,
};
use crate::parameters::{ConnectionParameters, RejectReason};

impl Agent {
    /// Asks for a connection: its number.
    pub(crate) fn connect(&mut self, now: Duration, ask: &Ask) -> u32 {
        let local = self.number();
        let parameters = &ask.parameters;
        let routed = ask.path.hop_limit > 1;
        let lid = if routed { LID_PERMISSIVE } else { 0 };
        let ack_timeout = ask.ack_timeout.unwrap_or(self.timing.lifetime + 1) & 0x1f;
        let primary = RoutePath {
            local_lid: lid.into(),
            remote_lid: lid.into(),
            local_gid: ask.own_gid,
            remote_gid: ask.path.gid,
            label_rate: (ask.path.flow_label << 12 | u32::from(ask.path.rate & 0x3f)).into(),
            traffic_class: ask.path.traffic_class,
            hop_limit: ask.path.hop_limit,
            level_local: ask.path.service_level << 4 | u8::from(!routed) << 3,
            ack_timeout: ack_timeout << 3,
        };
        let mut req = Req {
            local_id: local.into(),
            service: ask.service.into(),
            ca_guid: self.guid.into(),
            qpn_resources: above(ask.qpn, parameters.responder_resources),
            ee_depth: above(0, parameters.initiator_depth),
            ee_response: above(0, self.timing.response << 3 | RC << 1 | u8::from(parameters.flow_control)),
            psn_response: above(ask.psn, self.timing.response << 3 | parameters.retry_count & 7),
            pkey: 0xffff.into(),
            mtu_rnr: ask.mtu.code() << 4 | parameters.rnr_retry_count & 7,
            retries_srq: self.timing.retries << 4,
            primary,
            ..Req::default()
        };
        message::fill(&mut req.private, &ask.private);
        let connection = Connection {
            local_qpn: ask.qpn,
            receive_psn: ask.psn,
            mtu: ask.mtu,
            resources: parameters.responder_resources,
            depth: parameters.initiator_depth,
            retries: parameters.retry_count,
            rnr_retries: parameters.rnr_retry_count,
            ack_timeout,
            ..Connection::new(State::ReqSent, ask.path, ask.service, 0, u64::from(local))
        };
        self.connections.insert(local, connection);
        let bytes = Message::Req(Box::new(req)).encode(u64::from(local));
        self.send_until_answered(now, local, bytes);
        local
    }

    /// Sets the number with which the peer is to begin, before [`accept`](Self::accept) tells it.
    pub(crate) fn expect(&mut self, local: u32, psn: u32) {
        if let Some(connection) = self.connections.get_mut(&local) {
            connection.receive_psn = psn;
        }
    }

    /// Agrees to what was asked for.
    pub(crate) fn accept(
        &mut self,
        now: Duration,
        local: u32,
        qpn: u32,
        parameters: &ConnectionParameters,
    ) -> Result<(), WrongState> {
        let guid = self.guid;
        let connection = self.connections.get_mut(&local).ok_or(WrongState)?;
        if connection.state != State::ReqReceived {
            return Err(WrongState);
        }
        connection.state = State::RepSent;
        connection.local_qpn = qpn;
        (connection.resources, connection.depth) =
            (parameters.responder_resources, parameters.initiator_depth);
        let mut rep = Rep {
            local_id: local.into(),
            remote_id: connection.remote.into(),
            qpn: above(qpn, 0),
            psn: above(connection.receive_psn, 0),
            resources: parameters.responder_resources,
            depth: parameters.initiator_depth,
            delay_flow: u8::from(parameters.flow_control),
            rnr_srq: (parameters.rnr_retry_count & 7) << 5,
            ca_guid: guid.into(),
            ..Rep::default()
        };
        message::fill(&mut rep.private, &parameters.private_data);
        let bytes = Message::Rep(Box::new(rep)).encode(connection.transaction);
        self.send_until_answered(now, local, bytes);
        Ok(())
    }

    /// Says that the peer's agreement was heard: both may send.
    pub(crate) fn establish(&mut self, local: u32) -> Result<(), WrongState> {
        let connection = self.connections.get_mut(&local).ok_or(WrongState)?;
        if connection.state != State::RepReceived {
            return Err(WrongState);
        }
        connection.state = State::Established;
        let rtu = Rtu { local_id: local.into(), remote_id: connection.remote.into(), ..Rtu::default() };
        let bytes = Box::new(Message::Rtu(Box::new(rtu)).encode(connection.transaction));
        connection.answer = Some(bytes.clone());
        let to = connection.path;
        self.send(to, bytes);
        Ok(())
    }

    /// Of who agreed: its queue pair has received, so that the peer heard it. Whether that was news.
    pub(crate) fn established_by_data(&mut self, local: u32) -> Result<bool, WrongState> {
        match self.connections.get(&local).map(|known| known.state) {
            Some(State::RepSent) => self.made(local, Vec::new()),
            Some(State::Established) => return Ok(false),
            _ => return Err(WrongState),
        }
        Ok(true)
    }

    /// Of who agreed: the peer has heard it.
    pub(super) fn made(&mut self, local: u32, private_data: Vec<u8>) {
        let Some(connection) = self.connections.get(&local) else { return };
        let parameters = ConnectionParameters {
            private_data,
            responder_resources: connection.resources,
            initiator_depth: connection.depth,
            flow_control: false,
            retry_count: connection.retries,
            rnr_retry_count: connection.rnr_retries,
        };
        self.answered(local, State::Established);
        self.tell(local, Notice::Established { parameters });
    }

    /// Says no to who asks, or to who agreed. It is forgotten.
    pub(crate) fn reject(
        &mut self,
        local: u32,
        reason: RejectReason,
        private: &[u8],
    ) -> Result<(), WrongState> {
        let connection = self.connections.get(&local).ok_or(WrongState)?;
        let message = match connection.state {
            State::ReqReceived => about::REQ,
            State::RepReceived => about::REP,
            State::ReqSent => about::OTHER,
            State::SidrReceived => {
                // Source of the status: Linux `include/rdma/ib_cm.h`, `IB_SIDR_REJECT`.
                return self.answer_datagram(local, 2, (0, 0), private);
            }
            _ => return Err(WrongState),
        };
        let mut rej = Rej {
            // Who only asked knows no number of ours.
            local_id: if message == about::REQ { 0.into() } else { local.into() },
            remote_id: connection.remote.into(),
            message: message << 6,
            reason: reason.0.into(),
            ..Rej::default()
        };
        if reason == RejectReason::TIMEOUT {
            // By which the peer finds what it was that we asked for.
            rej.info[..8].copy_from_slice(&self.guid.to_be_bytes());
            rej.info_bytes = 8 << 1;
            rej.local_id = local.into();
        }
        message::fill(&mut rej.private, private);
        let (to, bytes) =
            (connection.path, Box::new(Message::Rej(Box::new(rej)).encode(connection.transaction)));
        self.send(to, bytes);
        self.forget(local);
        Ok(())
    }

    /// Ends a connection, or agrees to its end.
    pub(crate) fn disconnect(&mut self, now: Duration, local: u32) -> Result<(), WrongState> {
        let connection = self.connections.get_mut(&local).ok_or(WrongState)?;
        match connection.state {
            // Before its RTU came a connection may be used, and be ended.
            State::Established | State::RepSent => {
                connection.state = State::DreqSent;
                let dreq = Dreq {
                    local_id: local.into(),
                    remote_id: connection.remote.into(),
                    qpn: above(connection.remote_qpn, 0),
                    ..Dreq::default()
                };
                let bytes = Message::Dreq(Box::new(dreq)).encode(u64::from(local));
                self.send_until_answered(now, local, bytes);
                Ok(())
            }
            State::DreqReceived => {
                self.agree_to_end(now, local);
                Ok(())
            }
            _ => Err(WrongState),
        }
    }

    /// Answers a DREQ.
    pub(super) fn agree_to_end(&mut self, now: Duration, local: u32) {
        let Some(connection) = self.connections.get_mut(&local) else { return };
        let drep = Drep { local_id: local.into(), remote_id: connection.remote.into(), ..Drep::default() };
        let bytes = Box::new(Message::Drep(Box::new(drep)).encode(connection.transaction));
        connection.answer = Some(bytes.clone());
        let to = connection.path;
        self.send(to, bytes);
        self.wait_out(now, local);
    }

    /// The program lets go of it, in whatever state it is: the peer is told what it still waits for. Source: Linux
    /// `drivers/infiniband/core/cm.c`, `cm_destroy_id`.
    pub(crate) fn abandon(&mut self, now: Duration, local: u32) {
        let Some(connection) = self.connections.get_mut(&local) else { return };
        connection.owned = false;
        match connection.state {
            State::ReqSent => self.reject(local, RejectReason::TIMEOUT, &[]).unwrap_or_default(),
            State::ReqReceived | State::RepReceived | State::SidrReceived => {
                self.reject(local, RejectReason::CONSUMER_DEFINED, &[]).unwrap_or_default();
            }
            State::RepSent | State::Established | State::DreqReceived => {
                self.disconnect(now, local).unwrap_or_default();
            }
            State::SidrSent | State::Failed => self.forget(local),
            // They end by themselves.
            State::DreqSent | State::TimeWait => {}
        }
    }

    /// Asks which queue pair takes datagrams of a service: the number of the request.
    pub(crate) fn ask_for_datagrams(
        &mut self,
        now: Duration,
        path: Path,
        service: u64,
        private: &[u8],
    ) -> u32 {
        let local = self.number();
        let mut request = SidrReq {
            request: local.into(),
            pkey: 0xffff.into(),
            service: service.into(),
            ..SidrReq::default()
        };
        message::fill(&mut request.private, private);
        let transaction = u64::from(local);
        self.connections.insert(local, Connection::new(State::SidrSent, path, service, 0, transaction));
        let bytes = Message::SidrReq(Box::new(request)).encode(transaction);
        self.send_until_answered(now, local, bytes);
        local
    }

    /// Tells which one does (status 0), or that none does.
    pub(crate) fn answer_datagram(
        &mut self,
        local: u32,
        status: u8,
        (qpn, qkey): (u32, u32),
        private: &[u8],
    ) -> Result<(), WrongState> {
        let connection = self.connections.get_mut(&local).ok_or(WrongState)?;
        if connection.state != State::SidrReceived {
            return Err(WrongState);
        }
        let mut answer = SidrRep {
            request: connection.remote.into(),
            status,
            qpn: above(qpn, 0),
            service: connection.service.into(),
            qkey: qkey.into(),
            ..SidrRep::default()
        };
        message::fill(&mut answer.private, private);
        let bytes = Box::new(Message::SidrRep(Box::new(answer)).encode(connection.transaction));
        let to = connection.path;
        self.send(to, bytes);
        // A request that comes again is a new one: its answer may be another.
        self.forget(local);
        Ok(())
    }
}

impl Connection {
    /// What is known of every request; of one for datagrams that is all.
    pub(super) fn new(state: State, path: Path, service: u64, remote: u32, transaction: u64) -> Self {
        Self {
            state,
            remote,
            guid: 0,
            transaction,
            path,
            service,
            local_qpn: 0,
            remote_qpn: 0,
            receive_psn: 0,
            send_psn: 0,
            mtu: Mtu::Bytes1024,
            resources: 0,
            depth: 0,
            retries: 0,
            rnr_retries: 0,
            ack_timeout: 0,
            waiting: None,
            answer: None,
            owned: true,
            due: None,
        }
    }
}
