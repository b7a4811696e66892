//! What a message that came in does.

use std::time::Duration;

use pollux_verbs::{Mtu, Path};

use super::{Agent, CONNECTIONS_MAX, Connection, Grant, Notice, Outgoing, RC, State, time_of};
use crate::message::{
    Drep, Dreq, Message, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq, Strange, about, fill, high24,
};
use crate::parameters::{ConnectionParameters, RejectReason};

/// The longest that a peer's MRA is believed: 69 s, which is what Linux asks for (`drivers/infiniband/core/cma.c`, `CMA_CM_MRA_SETTING`).
/// Five bits say up to 2.4 h, for which neither Linux nor the specification has a bound: a peer that is gone would keep a connection half
/// open for as long.
const SERVICE_MAX: u8 = 24;

impl Agent {
    /// A datagram came in on queue pair 1; `from` is the way back.
    pub(crate) fn receive(&mut self, now: Duration, from: Path, bytes: &[u8]) {
        let (message, transaction) = match Message::decode(bytes) {
            Ok(message) => message,
            Err(Strange::Malformed) => {
                self.counts.malformed += 1;
                return;
            }
            Err(Strange::Unknown) => {
                self.counts.strange += 1;
                return;
            }
        };
        self.counts.received += 1;
        match message {
            Message::Req(req) => self.request(now, from, &req, transaction),
            Message::Mra(mra) => self.takes_longer(now, from, &mra),
            Message::Rej(rej) => self.rejected(now, from, &rej),
            Message::Rep(rep) => self.agreed(from, &rep),
            Message::Rtu(rtu) => self.ready(from, &rtu),
            Message::Dreq(dreq) => self.ends(now, from, &dreq, transaction),
            Message::Drep(drep) => self.ended(now, from, &drep),
            Message::SidrReq(request) => self.datagram_request(from, &request, transaction),
            Message::SidrRep(answer) => self.datagram_answer(from, &answer),
        }
    }

    /// The connection that a message names by our number, if the peer's is its as well, and it comes from the peer.
    fn named(&mut self, from: &Path, local: u32, remote: Option<u32>) -> Option<&mut Connection> {
        let found = self.connections.get_mut(&local).filter(|connection| {
            connection.path.gid == from.gid && remote.is_none_or(|remote| connection.remote == remote)
        });
        if found.is_none() {
            self.counts.strange += 1;
        }
        found
    }

    /// Rejects a request that becomes no connection.
    fn refuse(&mut self, from: Path, remote: u32, transaction: u64, reason: RejectReason, info: &[u8]) {
        let mut rej = Rej {
            remote_id: remote.into(),
            message: about::REQ << 6,
            reason: reason.0.into(),
            info_bytes: (info.len() as u8) << 1,
            ..Rej::default()
        };
        fill(&mut rej.info, info);
        self.counts.refused += 1;
        self.send(from, Box::new(Message::Rej(Box::new(rej)).encode(transaction)));
    }

    fn request(&mut self, now: Duration, from: Path, req: &Req, transaction: u64) {
        let (remote, guid) = (req.local_id.get(), req.ca_guid.get());
        if let Some(&local) = self.by_remote.get(&(guid, remote)) {
            return self.request_again(from, local, transaction);
        }
        let remote_qpn = high24(req.qpn_resources);
        if let Some(&old) = self.by_queue.get(&(guid, remote_qpn)) {
            // The peer's queue pair is another one by now: what we have of the old one is over.
            self.refuse(from, remote, transaction, RejectReason::STALE_CONN, &[]);
            self.disconnect(now, old).unwrap_or_default();
            return;
        }
        let service = req.service.get();
        let [.., response] = req.ee_response.get().to_be_bytes();
        if (response >> 1 & 3, req.retries_srq & 7) != (RC, 0) {
            return self.refuse(from, remote, transaction, RejectReason::INVALID_TRANSPORT_TYPE, &[]);
        }
        if !self.listeners.contains_key(&service) {
            return self.refuse(from, remote, transaction, RejectReason::INVALID_SERVICE_ID, &[]);
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            return self.refuse(from, remote, transaction, RejectReason::NO_RESOURCES, &[]);
        }
        // Packets go where the request came from: RoCE knows no other way.
        if !self.gids.contains(&req.primary.remote_gid) || req.primary.local_gid != from.gid {
            let ours = self.gids.first().copied().unwrap_or_default();
            return self.refuse(from, remote, transaction, RejectReason::INVALID_GID, &ours);
        }
        let Some(mtu) = Mtu::from_code(req.mtu_rnr >> 4).filter(|mtu| *mtu <= self.mtu) else {
            return self.refuse(from, remote, transaction, RejectReason::INVALID_MTU, &[self.mtu.code()]);
        };
        let [.., own_response] = req.psn_response.get().to_be_bytes();
        let [.., resources] = req.qpn_resources.get().to_be_bytes();
        let [.., depth] = req.ee_depth.get().to_be_bytes();
        // What the peer answers we may have under way, and the other way round.
        let parameters = ConnectionParameters {
            private_data: req.private.to_vec(),
            responder_resources: depth,
            initiator_depth: resources,
            flow_control: response & 1 == 1,
            retry_count: own_response & 7,
            rnr_retry_count: req.mtu_rnr & 7,
        };
        let path = Path {
            traffic_class: req.primary.traffic_class,
            service_level: req.primary.level_local >> 4,
            flow_label: req.primary.label_rate.get() >> 12,
            ..from
        };
        let local = self.number();
        self.by_remote.insert((guid, remote), local);
        self.by_queue.insert((guid, remote_qpn), local);
        let connection = Connection {
            guid,
            remote_qpn,
            send_psn: high24(req.psn_response),
            mtu,
            resources: parameters.responder_resources,
            depth: parameters.initiator_depth,
            retries: parameters.retry_count,
            rnr_retries: parameters.rnr_retry_count,
            ack_timeout: req.primary.ack_timeout >> 3,
            ..Connection::new(State::ReqReceived, path, service, remote, transaction)
        };
        self.connections.insert(local, connection);
        self.tell(local, Notice::Request { service, path, qpn: remote_qpn, parameters });
    }

    /// A request that is known.
    fn request_again(&mut self, from: Path, local: u32, transaction: u64) {
        self.counts.duplicates += 1;
        let Some(connection) = self.connections.get(&local).filter(|known| known.path.gid == from.gid) else {
            return;
        };
        let (remote, to) = (connection.remote, connection.path);
        match connection.state {
            // The program takes its time.
            State::ReqReceived => self.ask_for_time(local, about::REQ),
            // The reply may have been lost: it is due again anyway, and is told at once.
            State::RepSent => {
                if let Some(bytes) = connection.waiting.as_ref().map(|waiting| waiting.bytes.clone()) {
                    self.counts.sent_again += 1;
                    self.outgoing.push_back(Outgoing { to, bytes });
                }
            }
            State::TimeWait => self.refuse(from, remote, transaction, RejectReason::STALE_CONN, &[]),
            _ => {}
        }
    }

    /// Tells the peer that the answer to a message of its takes longer.
    fn ask_for_time(&mut self, local: u32, message: u8) {
        let Some(connection) = self.connections.get(&local) else { return };
        let mra = Mra {
            local_id: local.into(),
            remote_id: connection.remote.into(),
            message: message << 6,
            timeout: self.timing.service << 3,
            ..Mra::default()
        };
        let bytes = Box::new(Message::Mra(Box::new(mra)).encode(connection.transaction));
        let to = connection.path;
        self.send(to, bytes);
    }

    fn takes_longer(&mut self, now: Duration, from: Path, mra: &Mra) {
        let local = mra.remote_id.get();
        let (lifetime, every) = (time_of(self.timing.lifetime), self.every());
        let until = now + time_of((mra.timeout >> 3).min(SERVICE_MAX)) + lifetime * 2;
        let Some(connection) = self.named(&from, local, None) else { return };
        let message = mra.message >> 6;
        match (connection.state, &mut connection.waiting) {
            // The peer's answer is sent until it arrives.
            (State::ReqSent, Some(_)) if message == about::REQ => self.schedule(local, Some(until)),
            // Its RTU is not.
            (State::RepSent, Some(waiting)) if message == about::REP => {
                if waiting.grant.is_none() {
                    waiting.grant = Some(Grant { until, pause: every });
                    self.schedule(local, Some(now + every));
                }
            }
            _ => self.counts.duplicates += 1,
        }
    }

    fn rejected(&mut self, now: Duration, from: Path, rej: &Rej) {
        let reason = RejectReason(rej.reason.get());
        let mut local = rej.remote_id.get();
        if local == 0
            && reason == RejectReason::TIMEOUT
            && let Some(guid) = rej.info.first_chunk()
            && let Some(known) = self.by_remote.get(&(u64::from_be_bytes(*guid), rej.local_id.get()))
        {
            // Who asked never heard our number.
            local = *known;
        }
        let private = rej.private.to_vec();
        let Some(connection) = self.named(&from, local, None) else { return };
        let owned = connection.owned;
        match connection.state {
            State::ReqSent | State::RepSent | State::ReqReceived => {
                if reason == RejectReason::STALE_CONN {
                    self.wait_out(now, local);
                } else {
                    self.fail(local);
                }
            }
            State::RepReceived | State::Established | State::DreqSent | State::DreqReceived => {
                self.wait_out(now, local);
            }
            State::SidrSent | State::SidrReceived | State::TimeWait | State::Failed => {
                self.counts.duplicates += 1;
                return;
            }
        }
        if owned {
            self.tell(local, Notice::Rejected { reason, private });
        }
    }

    fn agreed(&mut self, from: Path, rep: &Rep) {
        let (local, remote) = (rep.remote_id.get(), rep.local_id.get());
        let Some(connection) = self.named(&from, local, None) else { return };
        match connection.state {
            State::ReqSent => {}
            // It was heard before: the answer to it was lost.
            State::Established if connection.remote == remote => {
                let (to, answer) = (connection.path, connection.answer.clone());
                self.counts.duplicates += 1;
                if let Some(bytes) = answer {
                    self.outgoing.push_back(Outgoing { to, bytes });
                }
                return;
            }
            State::RepReceived if connection.remote == remote => {
                self.counts.duplicates += 1;
                return self.ask_for_time(local, about::REP);
            }
            _ => {
                self.counts.duplicates += 1;
                return;
            }
        }
        let (guid, remote_qpn) = (rep.ca_guid.get(), high24(rep.qpn));
        (connection.remote, connection.guid, connection.remote_qpn) = (remote, guid, remote_qpn);
        connection.send_psn = high24(rep.psn);
        (connection.resources, connection.depth) =
            (connection.resources.min(rep.depth), connection.depth.min(rep.resources));
        connection.rnr_retries = rep.rnr_srq >> 5;
        // The device at the other end takes its time, too.
        let delay = rep.delay_flow >> 3;
        connection.ack_timeout = connection.ack_timeout.max(delay + 1).min(31);
        let parameters = ConnectionParameters {
            private_data: rep.private.to_vec(),
            responder_resources: rep.depth,
            initiator_depth: rep.resources,
            flow_control: rep.delay_flow & 1 == 1,
            // Replies do not say it.
            retry_count: 0,
            rnr_retry_count: connection.rnr_retries,
        };
        self.answered(local, State::RepReceived);
        self.by_remote.insert((guid, remote), local);
        self.by_queue.insert((guid, remote_qpn), local);
        self.tell(local, Notice::Response { qpn: remote_qpn, parameters });
    }

    fn ready(&mut self, from: Path, rtu: &Rtu) {
        let (local, remote) = (rtu.remote_id.get(), rtu.local_id.get());
        let Some(connection) = self.named(&from, local, Some(remote)) else { return };
        if connection.state != State::RepSent {
            self.counts.duplicates += 1;
            return;
        }
        self.made(local, rtu.private.to_vec());
    }

    fn ends(&mut self, now: Duration, from: Path, dreq: &Dreq, transaction: u64) {
        let (local, remote) = (dreq.remote_id.get(), dreq.local_id.get());
        let known = self.connections.get(&local).is_some_and(|it| it.remote == remote);
        if !known {
            // It is over here; who asks need not ask again. Source: Linux `drivers/infiniband/core/cm.c`, `cm_issue_drep`.
            self.counts.strange += 1;
            let drep = Drep { local_id: local.into(), remote_id: remote.into(), ..Drep::default() };
            return self.send(from, Box::new(Message::Drep(Box::new(drep)).encode(transaction)));
        }
        let Some(connection) = self.named(&from, local, Some(remote)) else { return };
        if connection.local_qpn != high24(dreq.qpn) {
            self.counts.strange += 1;
            return;
        }
        connection.transaction = transaction;
        let owned = connection.owned;
        match connection.state {
            State::Established | State::RepSent | State::RepReceived => {
                self.answered(local, State::DreqReceived)
            }
            // Both end it at once.
            State::DreqSent => self.agree_to_end(now, local),
            State::TimeWait => {
                let (to, answer) = (connection.path, connection.answer.clone());
                self.counts.duplicates += 1;
                match answer {
                    // Its DREP was lost.
                    Some(bytes) => self.outgoing.push_back(Outgoing { to, bytes }),
                    None => self.agree_to_end(now, local),
                }
                return;
            }
            _ => {
                self.counts.duplicates += 1;
                return;
            }
        }
        if owned {
            self.tell(local, Notice::Disconnected);
        } else {
            self.disconnect(now, local).unwrap_or_default();
        }
    }

    fn ended(&mut self, now: Duration, from: Path, drep: &Drep) {
        let (local, remote) = (drep.remote_id.get(), drep.local_id.get());
        // Who knows nothing of it any more answers with our numbers as they were.
        let Some(connection) = self.named(&from, local, Some(remote)) else { return };
        if connection.state != State::DreqSent {
            self.counts.duplicates += 1;
            return;
        }
        let owned = connection.owned;
        self.wait_out(now, local);
        if owned {
            self.tell(local, Notice::Disconnected);
        }
    }

    fn datagram_request(&mut self, from: Path, request: &SidrReq, transaction: u64) {
        let (remote, service) = (request.request.get(), request.service.get());
        if self.by_request.contains_key(&(from.gid, remote)) {
            self.counts.duplicates += 1;
            return;
        }
        // Source of the code: Linux `include/rdma/ib_cm.h`, `IB_SIDR_UNSUPPORTED`.
        const UNSUPPORTED: u8 = 1;
        if !self.listeners.contains_key(&service) || self.connections.len() >= CONNECTIONS_MAX {
            self.counts.refused += 1;
            let answer = SidrRep {
                request: remote.into(),
                status: UNSUPPORTED,
                service: service.into(),
                ..SidrRep::default()
            };
            return self.send(from, Box::new(Message::SidrRep(Box::new(answer)).encode(transaction)));
        }
        let local = self.number();
        let connection = Connection::new(State::SidrReceived, from, service, remote, transaction);
        self.connections.insert(local, connection);
        self.by_request.insert((from.gid, remote), local);
        let private = request.private.to_vec();
        self.tell(local, Notice::DatagramRequest { service, path: from, private });
    }

    fn datagram_answer(&mut self, from: Path, answer: &SidrRep) {
        let local = answer.request.get();
        let Some(connection) = self.named(&from, local, None) else { return };
        if connection.state != State::SidrSent {
            self.counts.duplicates += 1;
            return;
        }
        let (owned, path) = (connection.owned, connection.path);
        self.fail(local);
        if owned {
            let private = answer.private.to_vec();
            let (qpn, qkey) = (high24(answer.qpn), answer.qkey.get());
            self.tell(
                local,
                match answer.status {
                    0 => Notice::DatagramResponse { path, qpn, qkey, private },
                    status => Notice::DatagramRejected { status, private },
                },
            );
        }
    }
}
