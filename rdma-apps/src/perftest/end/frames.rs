//! Raw Ethernet: the frames that an end sends, and queues that those which come are spread over.

use pollux_verbs::{
    HashFields, HashQp, Pd, QpAttributes, QpState, Rule, VerbsError, Wq, WqOptions, WqState, WqTable,
};
use pollux_wire::toeplitz::DEFAULT_KEY;

use super::End;
use crate::perftest::settings::Settings;
use crate::rdma::Failure;
use crate::rdma::queue::Queue;

/// The flows of a raw Ethernet test: frames that differ, each in a part of the place to send from.
#[derive(Clone, Copy, Debug)]
pub struct Flows {
    /// How many.
    pub count: u64,
    /// Messages of one before the next one's turn.
    pub burst: u64,
}

impl Flows {
    /// The flow of message `number`.
    pub(super) fn of(self, number: u64) -> usize {
        (number / self.burst % self.count) as usize
    }
}

/// Receive work queues and what spreads frames over them.
#[derive(Debug)]
pub(super) struct Spread {
    hash: HashQp,
    pub(super) queues: Vec<Wq>,
}

impl Spread {
    pub(super) fn new(
        pd: &Pd,
        receives: &Queue,
        settings: &Settings,
        fields: HashFields,
    ) -> Result<Self, Failure> {
        let make = |_| {
            let mut queue = Wq::new(pd, &receives.cq, &WqOptions::new(settings.rx_depth as u32))?;
            queue.modify(WqState::RDY)?;
            Ok(queue)
        };
        let queues = (0..settings.qps).map(make).collect::<Result<Vec<_>, Failure>>()?;
        let table = WqTable::new(pd, &queues.iter().collect::<Vec<_>>())?;
        Ok(Self { hash: HashQp::new(&table, fields, &DEFAULT_KEY)?, queues })
    }
}

impl End {
    /// What rules give frames to: the one that spreads them, or each queue pair.
    #[must_use]
    pub fn targets(&self) -> usize {
        if self.spread.is_some() { 1 } else { self.qps.len() }
    }

    /// Gives one of these the frames that match a rule.
    ///
    /// # Errors
    /// What the device says.
    pub fn steer(&mut self, target: usize, rule: &Rule<'_>) -> Result<(), VerbsError> {
        match &mut self.spread {
            Some(spread) => spread.hash.steer(rule).map(drop),
            None => self.qps[target].steer(rule).map(drop),
        }
    }

    /// Whether a hash, and not the sender, chooses the queue.
    #[must_use]
    pub fn spreads(&self) -> bool {
        self.spread.is_some()
    }

    /// Takes queue pairs of raw frames to where they send, at the rate that the device shall hold them to.
    ///
    /// # Errors
    /// What the device says.
    pub fn ready(&mut self) -> Result<(), Failure> {
        let rate_limit = self.settings.device_rate();
        for qp in &mut self.qps {
            qp.ready_frames()?;
            if rate_limit.is_some() {
                qp.modify(&QpAttributes { rate_limit, ..QpAttributes::state(QpState::RTS) })?;
            }
        }
        Ok(())
    }

    /// Writes all frames that will be sent: `frame` is given each one's place, its queue pair, its flow, and its number there.
    ///
    /// # Errors
    /// What `frame` says.
    pub fn write_frames(
        &mut self,
        mut frame: impl FnMut(&mut [u8], usize, u64, u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let count = self.flows.map_or(1, |flows| flows.count);
        let mut all = vec![0; self.area * self.qps.len()];
        for qp in 0..self.qps.len() {
            for flow in 0..count {
                let place = qp * self.area + flow as usize * self.flow_area();
                let step = self.size.next_multiple_of(self.line);
                let frames = (self.flow_area() / step).max(1);
                for number in 0..frames {
                    let at = place + number * step;
                    frame(&mut all[at..at + self.size], qp, flow, number as u64)?;
                }
            }
        }
        self.mr.write(0, &all);
        if self.size <= self.settings.inline {
            self.payload = all;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pollux_bringup::RdmaBringup;
    use pollux_config::CommandLine;

    use super::*;
    use crate::perftest::options::{Connection, Options};
    use crate::perftest::settings::{Kind, Test, Verb};

    /// Completions of receive work queues carry numbers of those; what has no queue pair cannot take them for a queue pair's.
    #[test]
    fn what_spreads_frames_has_no_queue_pairs_beside_it() {
        let line = CommandLine::parse(["test", "-l", "0", "--vdev", "mlx5_model0,wire=null"]).unwrap();
        let bringup = RdmaBringup::new(&line, None).unwrap();
        let options = Options { qp: 4, connection: Connection::RawEth, ..Options::usual() };
        let settings = Settings::new(Test { verb: Verb::Send, kind: Kind::Bandwidth }, options).unwrap();
        let flows = Flows { count: 1, burst: 1 };
        let end = |fields| End::raw(&bringup.devices[0], settings.clone(), 1, flows, fields).unwrap();
        let spread = end(Some(HashFields::SRC_IPV4 | HashFields::DST_IPV4));
        assert_eq!((spread.own.len(), spread.qps.len(), spread.targets()), (0, 0, 1));
        assert_eq!(spread.spread.as_ref().map(|spread| spread.queues.len()), Some(4));
        let plain = end(None);
        assert_eq!((plain.own.len(), plain.qps.len(), plain.targets()), (4, 4, 4));
    }
}
