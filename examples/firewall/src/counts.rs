//! What an lcore counts, and how telemetry shows it.

use std::sync::{Arc, Mutex, PoisonError};

use pollux::eal::EalError;
use pollux::eal::counter::Counter;
use pollux::eal::telemetry::{Value, json};
use pollux::prelude::*;

use crate::rules::Rules;

/// What is counted: flows that began, ended by age, and were given up for others before they were established; and packets dropped: of
/// no flow that is known, of what does not pass, for want of a port or of room in a queue or ring.
#[derive(Clone, Copy)]
pub(crate) enum What {
    Opened,
    Ended,
    GivenUp,
    Unknown,
    Other,
    Full,
}

const NAMES: [&str; 6] = ["opened", "ended", "given_up", "unknown", "other", "full"];

/// Of one lcore, which writes it.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Counts([Counter; NAMES.len()]);

impl Counts {
    pub(crate) fn add(&self, what: What, more: u64) {
        self.0[what as usize].add(more);
    }

    /// Counts a packet that is dropped.
    pub(crate) fn drops<T>(&self, why: What) -> Option<T> {
        self.add(why, 1);
        None
    }
}

/// Answers `/firewall/rules` and `/firewall/lcores`.
pub(crate) fn serve(eal: &Eal, lcores: Vec<Arc<Counts>>, rules: Reader<Rules>) -> Result<(), EalError> {
    let (telemetry, rules) = (eal.telemetry(), Mutex::new(rules));
    telemetry.register("/firewall/rules", "Packets and bytes by rule. No parameters.", move |_| {
        let mut rules = rules.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |(name, packets, bytes)| (name, json!({"packets": packets, "bytes": bytes}));
        Value::Object(rules.pass().counts().map(told).collect())
    })?;
    telemetry.register("/firewall/lcores", "Flows and drops by lcore. No parameters.", move |_| {
        let one = |(name, count): (&str, &Counter)| (name.to_owned(), Value::from(count.get()));
        lcores.iter().map(|counts| NAMES.into_iter().zip(&counts.0).map(one).collect::<Value>()).collect()
    })
}
