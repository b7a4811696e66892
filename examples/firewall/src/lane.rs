//! What an lcore does with packets.

use std::sync::Arc;
use std::time::Duration;

use pollux::lookup::acl::FiveTuple;
use pollux::prelude::*;
use pollux::ring::mpmc::{Consumer, Producer};
use pollux::wire::edit::Ipv4Mut;
use pollux::wire::{IpProtocol, TcpFlags};

use crate::counts::{Counts, What};
use crate::flows::{Flow, Flows, Stage};
use crate::rules::Rules;

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

/// Where a packet of an outer host goes.
enum Way {
    Inner,
    /// Back, as an answer.
    Outer,
    /// To the lcore of that place, whose flow it is.
    Lcore(usize),
}

/// The 5-tuple of TCP and UDP, and TCP's flags.
fn tuple(ip: &mut Ipv4Mut<'_>) -> Option<(FiveTuple<u32>, TcpFlags)> {
    let flags = ip.tcp_mut().map_or(TcpFlags(0), |tcp| tcp.flags());
    let (source_port, destination_port) = ip.ports_mut().map(|ports| (ports.src(), ports.dst()))?;
    let (source, destination, protocol) = (ip.src().to_bits(), ip.dst().to_bits(), ip.protocol().0);
    Some((FiveTuple { source, destination, source_port, destination_port, protocol }, flags))
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
            burst.retain(|mbuf| self.outwards(mbuf, rules).is_some());
            self.send(&mut outer.1, &mut burst);

            outer.0.rx_burst(&mut burst, 32);
            let _ = handed.dequeue_burst(&mut burst, 32);
            for mut mbuf in burst.drain(..) {
                match self.inwards(&mut mbuf, rules) {
                    Some(Way::Inner) => own.push(mbuf),
                    Some(Way::Outer) => answers.push(mbuf),
                    Some(Way::Lcore(place)) => {
                        self.counts.add(What::Full, owners[place].enqueue(mbuf).is_err().into());
                    }
                    None => {}
                }
            }
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

    /// A packet of an inner host. `None`: it is dropped.
    fn outwards(&mut self, mbuf: &mut Mbuf, rules: &Rules) -> Option<()> {
        let (bytes, inner_mac) = (mbuf.pkt_len(), mbuf.ether_mut()?.src.0);
        let Some(mut ip) = mbuf.ipv4_mut() else {
            return mbuf.arp_mut().map(drop).or_else(|| self.counts.drops(What::Other));
        };
        let Some((tuple, flags)) = tuple(&mut ip) else { return self.counts.drops(What::Other) };
        rules.allow(&tuple, self.place, bytes).then_some(())?;
        let number = match self.flows.table.find(&tuple.key()) {
            Some(number) => number,
            None if tuple.protocol == IpProtocol::TCP.0 && !flags.opens() => {
                return self.counts.drops(What::Unknown);
            }
            None => self.open(tuple, inner_mac)?,
        };
        self.passed(number, Stage::Established, flags);
        ip.translate_src(rules.address, self.flows.outer_port(number)).then_some(())?;
        mbuf.ether_mut()?.set_src(self.mac.0);
        Some(())
    }

    /// A packet of an outer host, which goes on to an inner one if it belongs to a flow of theirs. `None`: it is dropped.
    fn inwards(&mut self, mbuf: &mut Mbuf, rules: &Rules) -> Option<Way> {
        let bytes = mbuf.pkt_len();
        let Some(mut ip) = mbuf.ipv4_mut() else {
            if mbuf.answer_arp(|to| to == rules.address, self.mac) {
                return Some(Way::Outer);
            }
            return mbuf.arp_mut().map(|_| Way::Inner).or_else(|| self.counts.drops(What::Other));
        };
        let Some((back, flags)) = tuple(&mut ip) else { return self.counts.drops(What::Other) };
        if let Some(place) = self.flows.elsewhere(back.destination_port) {
            return Some(Way::Lcore(place));
        }
        let known = self.flows.of_answer(&back).filter(|_| back.destination == rules.address.to_bits());
        let Some((number, to, mac)) = known else { return self.counts.drops(What::Unknown) };
        rules.allow(&to, self.place, bytes).then_some(())?;
        self.passed(number, Stage::Answered, flags);
        ip.translate_dst(to.source, to.source_port).then_some(())?;
        mbuf.ether_mut()?.set_dst(mac);
        Some(Way::Inner)
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
        // For how long it lives without a packet.
        let seconds = match flow.stage {
            Stage::Opened | Stage::Answered => 5,
            Stage::Established if flow.tuple.protocol == IpProtocol::TCP.0 => 3600,
            Stage::Established => 60,
            Stage::Closing => 10,
        };
        let until = self.now.0 + self.clock.cycles(Duration::from_secs(seconds)).0;
        self.flows.table.touch(number, until);
    }
}
