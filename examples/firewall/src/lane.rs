//! What an lcore does with packets.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use pollux::lookup::acl::FiveTuple;
use pollux::prelude::*;
use pollux::ring::mpmc::{Consumer, Producer};
use pollux::wire::{IpProtocol, TcpFlags, arp};

use crate::counts::{Counts, What};
use crate::flows::{Flow, Flows, Stage};
use crate::rules::Rules;

/// How long a flow lives without a packet: while it is not established; TCP's; UDP's; one that closes.
const UNANSWERED: Duration = Duration::from_secs(5);
const ESTABLISHED: Duration = Duration::from_secs(3600);
const IDLE: Duration = Duration::from_secs(60);
const CLOSING: Duration = Duration::from_secs(10);

/// An lcore's queue of a port, both ways.
pub(crate) type Side = (RxQueue, TxQueue);

/// What an lcore holds packets against.
pub(crate) struct Lane {
    pub(crate) place: usize,
    /// Of the outer port.
    pub(crate) mac: MacAddress,
    pub(crate) flows: Flows,
    pub(crate) counts: Arc<Counts>,
    pub(crate) clock: Clock,
    pub(crate) now: Cycles,
}

/// The 5-tuple of TCP and UDP, and TCP's flags.
fn tuple(mbuf: &mut Mbuf) -> Option<(FiveTuple<u32>, TcpFlags)> {
    let mut ip = mbuf.ipv4_mut()?;
    let flow = ip.five_tuple()?;
    let flags = ip.tcp_mut().map_or(TcpFlags(0), |tcp| tcp.flags());
    let (source, source_port) = (ip.src().to_bits(), flow.src.port());
    let (destination, destination_port) = (ip.dst().to_bits(), flow.dst.port());
    Some((FiveTuple { source, destination, source_port, destination_port, protocol: flow.protocol.0 }, flags))
}

impl Lane {
    /// Until the end. `owners` are the rings of all lcores, `handed` is what others have put into this one's.
    pub(crate) fn run(
        mut self,
        lcore: &LcoreContext,
        [mut inner, mut outer]: [Side; 2],
        (owners, handed): (Vec<Producer<Mbuf>>, Consumer<Mbuf>),
        mut rules: Reader<Rules>,
    ) {
        let (mut burst, mut own, mut answers) = (Burst::new(), Burst::new(), Burst::new());
        while !lcore.stop_requested() {
            // One set of rules for the whole round.
            let rules = rules.pass();
            self.now = self.clock.now();
            inner.0.rx_burst(&mut burst, 32);
            burst.retain(|mbuf| mbuf.arp_mut().is_some() || self.outwards(mbuf, rules).is_some());
            self.send(&mut outer.1, &mut burst);

            outer.0.rx_burst(&mut burst, 32);
            let _ = handed.dequeue_burst(&mut own, 32);
            for mut mbuf in burst.drain(..) {
                let port = tuple(&mut mbuf).map(|(back, _)| back.destination_port);
                match port.and_then(|port| Flows::owner(port, owners.len())) {
                    Some(owner) if owner != self.place => {
                        self.counts.add(What::Full, owners[owner].enqueue(mbuf).is_err().into());
                    }
                    None if self.answer(&mut mbuf, rules.address).is_some() => answers.push(mbuf),
                    _ => own.push(mbuf),
                }
            }
            own.retain(|mbuf| mbuf.arp_mut().is_some() || self.inwards(mbuf, rules).is_some());
            self.send(&mut inner.1, &mut own);
            self.send(&mut outer.1, &mut answers);
            let ended = self.flows.table.expire(self.now.0, 16, |_, _| ());
            self.counts.add(What::Ended, ended as u64);
        }
    }

    /// Sends; what has no room is dropped.
    fn send(&self, queue: &mut TxQueue, burst: &mut Burst) {
        queue.tx_burst(burst);
        self.counts.add(What::Full, burst.len() as u64);
        burst.clear();
    }

    /// Turns a question for the address of the NAT into its answer. `None`: it is none.
    fn answer(&self, mbuf: &mut Mbuf, address: Ipv4Addr) -> Option<()> {
        let mut arp = mbuf.arp_mut()?;
        (arp.operation.get() == arp::REQUEST && arp.target_ip == address.octets()).then_some(())?;
        arp.set_reply(self.mac.0);
        let mut ether = mbuf.ether_mut()?;
        ether.swap();
        ether.set_src(self.mac.0);
        Some(())
    }

    /// A packet of an inner host. `None`: it is dropped.
    fn outwards(&mut self, mbuf: &mut Mbuf, rules: &Rules) -> Option<()> {
        let Some((tuple, flags)) = tuple(mbuf) else { return self.counts.drops(What::Other) };
        rules.allow(&tuple, self.place, mbuf.pkt_len()).then_some(())?;
        let number = match self.flows.table.find(&tuple.key()) {
            Some(number) => number,
            None if tuple.protocol == IpProtocol::TCP.0 && !flags.opens() => {
                return self.counts.drops(What::Unknown);
            }
            None => self.open(tuple, mbuf.ether_mut()?.src.0)?,
        };
        self.passed(number, Stage::Established, flags);
        let port = self.flows.outer_port(number);
        mbuf.ipv4_mut()?.translate_src(rules.address, port).then_some(())?;
        mbuf.ether_mut()?.set_src(self.mac.0);
        Some(())
    }

    /// A packet of an outer host, which goes on to an inner one if it belongs to a flow of theirs. `None`: it is dropped.
    fn inwards(&mut self, mbuf: &mut Mbuf, rules: &Rules) -> Option<()> {
        let Some((back, flags)) = tuple(mbuf) else { return self.counts.drops(What::Other) };
        let known = self.flows.of_answer(&back).filter(|_| back.destination == rules.address.to_bits());
        let Some((number, to, mac)) = known else { return self.counts.drops(What::Unknown) };
        rules.allow(&to, self.place, mbuf.pkt_len()).then_some(())?;
        self.passed(number, Stage::Answered, flags);
        mbuf.ipv4_mut()?.translate_dst(to.source, to.source_port).then_some(())?;
        mbuf.ether_mut()?.set_dst(mac);
        Some(())
    }

    /// A new flow: its number.
    fn open(&mut self, tuple: FiveTuple<u32>, inner_mac: [u8; 6]) -> Option<u32> {
        let flow = Flow { tuple, inner_mac, stage: Stage::Opened };
        let (number, given_up) = self.flows.open(flow, self.now);
        self.counts.add(What::GivenUp, given_up.into());
        self.counts.add(What::Opened, number.is_some().into());
        number.or_else(|| self.counts.drops(What::Full))
    }

    /// A packet of a flow has come, which makes it `then` at most, and keeps it alive.
    fn passed(&mut self, number: u32, then: Stage, flags: TcpFlags) {
        let Some(flow) = self.flows.table.get_mut(number) else { return };
        flow.stage = match flow.stage {
            _ if flags.closes() => Stage::Closing,
            // The same ports again.
            Stage::Closing if flags.opens() => Stage::Opened,
            Stage::Opened if then == Stage::Established => Stage::Opened,
            Stage::Opened | Stage::Answered => then,
            stage => stage,
        };
        let life = match flow.stage {
            Stage::Opened | Stage::Answered => UNANSWERED,
            Stage::Established if flow.tuple.protocol == IpProtocol::TCP.0 => ESTABLISHED,
            Stage::Established => IDLE,
            Stage::Closing => CLOSING,
        };
        let until = self.now.0 + self.clock.cycles(life).0;
        self.flows.table.touch(number, until);
    }
}
