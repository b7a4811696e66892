//! Faults by plan: what is to go wrong, and when, from a seed.
//!
//! A plan is written as the value of `fault_plan=`, in brackets, its parts separated by commas:
//!
//! | part | what happens |
//! |---|---|
//! | `seed:N` | where the chances come from; 1 without |
//! | `lose-completion:SHARE` | that share of completions is never written |
//! | `late-completion:SHARE/COUNT` | that share is held back until COUNT more steps were made, with all behind it on the same queue |
//! | `odd-completion:N/OPCODE` | the Nth completion (from 1) says that opcode instead of its own |
//! | `send-error:N/SYNDROME[/VENDOR]` | the Nth send entry (from 1) fails with that syndrome |
//! | `receive-error:N/SYNDROME[/VENDOR]` | the same for receive entries |
//! | `rnr:N/COUNT` | of the requests that need a receive entry, repeated ones counted again, COUNT from the Nth (from 1) on are answered "receiver not ready" |
//! | `rnr-share:SHARE` | that share of them is |
//! | `refuse:OPCODE/N/STATUS[/SYNDROME]` | the Nth command with that opcode (from 1; 0: each) is refused |
//! | `flap:AT/FOR` | the link goes down at AT and comes back FOR later |
//! | `memlock:BYTES` | no more than that can be pinned, beside what the model pins to start |
//! | `remove:AT` | the device is gone |
//!
//! AT and FOR are counts of packets (sent, and received or lost to the flap), or times with `us`, `ms` or `s` behind the number.
//! Numbers may be hexadecimal (`0x904`). `send-error`, `receive-error`, `rnr`, `refuse` and `flap` may stand
//! several times, `odd-completion` too.

use std::str::FromStr;
use std::time::Duration;

use pollux_mlx5_abi::syndrome::Syndrome;

use crate::ModelError;
use crate::random::Random;

/// A point or a stretch: of packets or of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After so many packets.
    Packets(u64),
    /// After so long.
    Time(Duration),
}

/// A firmware command that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which command.
    pub opcode: u16,
    /// The how manyeth of them, from 1; 0 stands for each.
    pub nth: u64,
    /// The status in the answer.
    pub status: u8,
    /// The syndrome in the answer.
    pub syndrome: u32,
}

/// A work entry that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryFault {
    /// The how manyeth, from 1.
    pub nth: u64,
    /// What its completion says.
    pub syndrome: Syndrome,
}

/// A completion of another kind than it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OddCompletion {
    /// The how manyeth, from 1.
    pub nth: u64,
    /// What it says, 4 bits.
    pub opcode: u8,
}

/// Requests of reliable transports that are answered as if no receive were posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// The first, from 1.
    pub nth: u64,
    /// How many.
    pub count: u64,
}

/// A link that goes and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flap {
    /// When it goes.
    pub at: Moment,
    /// For how long: the same unit as `at`.
    pub lasting: Moment,
}

/// What is to go wrong. The default is nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    /// Where the chances come from.
    pub seed: u64,
    /// Share of completions that are never written.
    pub lose_completion: f64,
    /// Share of completions that are held back, and for how many steps.
    pub late_completion: (f64, u32),
    /// Completions that say another opcode than theirs.
    pub odd_completions: Vec<OddCompletion>,
    /// Send entries that fail.
    pub send_errors: Vec<EntryFault>,
    /// Receive entries that fail.
    pub receive_errors: Vec<EntryFault>,
    /// Requests that are answered "receiver not ready".
    pub not_ready: Vec<NotReady>,
    /// Share of requests that are.
    pub not_ready_share: f64,
    /// Commands that are refused.
    pub refusals: Vec<Refusal>,
    /// When the link is down.
    pub flaps: Vec<Flap>,
    /// Most bytes that can be pinned.
    pub memlock: Option<u64>,
    /// When the device goes.
    pub remove: Option<Moment>,
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self {
            seed: 1,
            lose_completion: 0.0,
            late_completion: (0.0, 0),
            odd_completions: Vec::new(),
            send_errors: Vec::new(),
            receive_errors: Vec::new(),
            not_ready: Vec::new(),
            not_ready_share: 0.0,
            refusals: Vec::new(),
            flaps: Vec::new(),
            memlock: None,
            remove: None,
        }
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn small<T: TryFrom<u64>>(text: &str) -> Option<T> {
    number(text).and_then(|value| T::try_from(value).ok())
}

fn share(text: &str) -> Option<f64> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share))
}

fn moment(text: &str) -> Option<Moment> {
    for (unit, of) in [
        ("us", Duration::from_micros as fn(u64) -> Duration),
        ("ms", Duration::from_millis),
        ("s", Duration::from_secs),
    ] {
        if let Some(digits) = text.strip_suffix(unit) {
            return number(digits).map(|value| Moment::Time(of(value)));
        }
    }
    number(text).map(Moment::Packets)
}

fn entry(fields: &[&str]) -> Option<EntryFault> {
    let (nth, code, vendor) = match *fields {
        [nth, code] => (nth, code, "0"),
        [nth, code, vendor] => (nth, code, vendor),
        _ => return None,
    };
    let nth = number(nth).filter(|&nth| nth > 0)?;
    Some(EntryFault { nth, syndrome: Syndrome { code: small(code)?, vendor: small(vendor)? } })
}

fn odd_completion(fields: &[&str]) -> Option<OddCompletion> {
    let &[nth, opcode] = fields else { return None };
    let nth = number(nth).filter(|&nth| nth > 0)?;
    Some(OddCompletion { nth, opcode: small(opcode).filter(|opcode| *opcode < 16)? })
}

fn not_ready(fields: &[&str]) -> Option<NotReady> {
    let &[nth, count] = fields else { return None };
    let nth = number(nth).filter(|&nth| nth > 0)?;
    Some(NotReady { nth, count: number(count).filter(|&count| count > 0)? })
}

fn refusal(fields: &[&str]) -> Option<Refusal> {
    let (opcode, nth, status, syndrome) = match *fields {
        [opcode, nth, status] => (opcode, nth, status, "0"),
        [opcode, nth, status, syndrome] => (opcode, nth, status, syndrome),
        _ => return None,
    };
    Some(Refusal {
        opcode: small(opcode)?,
        nth: number(nth)?,
        status: small(status)?,
        syndrome: small(syndrome)?,
    })
}

fn flap(fields: &[&str]) -> Option<Flap> {
    let &[at, lasting] = fields else { return None };
    let flap = Flap { at: moment(at)?, lasting: moment(lasting)? };
    (std::mem::discriminant(&flap.at) == std::mem::discriminant(&flap.lasting)).then_some(flap)
}

impl FaultPlan {
    /// One part of a plan; `None` when the value makes no sense.
    fn part(&mut self, name: &str, fields: &[&str]) -> Option<()> {
        match (name, fields) {
            ("seed", &[seed]) => self.seed = number(seed)?,
            ("lose-completion", &[of_all]) => self.lose_completion = share(of_all)?,
            ("late-completion", &[of_all, steps]) => self.late_completion = (share(of_all)?, small(steps)?),
            ("odd-completion", fields) => self.odd_completions.push(odd_completion(fields)?),
            ("send-error", fields) => self.send_errors.push(entry(fields)?),
            ("receive-error", fields) => self.receive_errors.push(entry(fields)?),
            ("rnr", fields) => self.not_ready.push(not_ready(fields)?),
            ("rnr-share", &[of_all]) => self.not_ready_share = share(of_all)?,
            ("refuse", fields) => self.refusals.push(refusal(fields)?),
            ("flap", fields) => self.flaps.push(flap(fields)?),
            ("memlock", &[bytes]) => self.memlock = Some(number(bytes)?),
            ("remove", &[at]) => self.remove = Some(moment(at)?),
            _ => return None,
        }
        Some(())
    }
}

/// Every part's form, as an example.
const PARTS: [(&str, &str); 12] = [
    ("seed", "seed:7"),
    ("lose-completion", "lose-completion:0.01"),
    ("late-completion", "late-completion:0.01/5"),
    ("odd-completion", "odd-completion:100/0x7"),
    ("send-error", "send-error:100/0x04"),
    ("receive-error", "receive-error:100/0x04"),
    ("rnr", "rnr:100/3"),
    ("rnr-share", "rnr-share:0.01"),
    ("refuse", "refuse:0x904/1/0x03/0x1234"),
    ("flap", "flap:1000/500 or flap:10ms/5ms"),
    ("memlock", "memlock:65536"),
    ("remove", "remove:1000 or remove:10ms"),
];

impl FromStr for FaultPlan {
    type Err = ModelError;

    /// With or without the brackets.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let mut plan = Self::default();
        for part in inner.split(',').map(str::trim) {
            let (name, value) = part.split_once(':').unwrap_or((part, ""));
            let fields: Vec<&str> = value.split('/').collect();
            if plan.part(name, &fields).is_none() {
                let allowed = match PARTS.iter().find(|(known, _)| *known == name) {
                    Some((_, example)) => format!("write it as {example}"),
                    None => {
                        let names = PARTS.map(|(name, _)| name).join(", ");
                        format!("a plan has these parts: {names}")
                    }
                };
                return Err(ModelError::Setting { key: "fault_plan", value: part.into(), allowed });
            }
        }
        Ok(plan)
    }
}

/// What becomes of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It is written.
    Written,
    /// It never is.
    Lost,
    /// It, and what comes behind it on the same queue, waits for so many steps of the device.
    Late(u32),
}

/// A plan being carried out. The device asks at each event; without a plan each question costs a comparison.
#[derive(Debug)]
pub struct Faults {
    plan: FaultPlan,
    random: Random,
    send_entries: u64,
    receive_entries: u64,
    /// Completions, while some of them are to be odd.
    told: u64,
    /// Requests that needed a receive entry.
    takers: u64,
    /// How often each refusal's opcode was seen, in the order of the plan.
    seen: Vec<u64>,
    completions: bool,
}

impl Faults {
    /// Begins to carry out a plan.
    #[must_use]
    pub fn new(plan: FaultPlan) -> Self {
        Self {
            random: Random::new(plan.seed),
            send_entries: 0,
            receive_entries: 0,
            told: 0,
            takers: 0,
            seen: vec![0; plan.refusals.len()],
            completions: plan.lose_completion > 0.0 || plan.late_completion.0 > 0.0,
            plan,
        }
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// A command is about to be carried out: whether it is refused instead.
    pub fn command(&mut self, opcode: u16) -> Option<Refusal> {
        let mut found = None;
        for (refusal, seen) in self.plan.refusals.iter().zip(&mut self.seen) {
            if refusal.opcode == opcode {
                *seen += 1;
                if refusal.nth == 0 || refusal.nth == *seen {
                    found = found.or(Some(*refusal));
                }
            }
        }
        found
    }

    /// A send entry is about to be carried out: whether it fails instead.
    #[inline]
    pub fn send_entry(&mut self) -> Option<Syndrome> {
        self.send_entries += 1;
        nth(&self.plan.send_errors, self.send_entries)
    }

    /// A receive entry is about to be used: whether it fails instead.
    #[inline]
    pub fn receive_entry(&mut self) -> Option<Syndrome> {
        self.receive_entries += 1;
        nth(&self.plan.receive_errors, self.receive_entries)
    }

    /// A request of a reliable transport needs a receive entry: whether it is told that there is none.
    #[inline]
    pub fn not_ready(&mut self) -> bool {
        if self.plan.not_ready.is_empty() && self.plan.not_ready_share == 0.0 {
            return false;
        }
        self.takers += 1;
        let now = self.takers;
        let planned = |stretch: &NotReady| now >= stretch.nth && now - stretch.nth < stretch.count;
        self.plan.not_ready.iter().any(planned) || self.random.chance(self.plan.not_ready_share)
    }

    /// A completion is about to be written.
    #[inline]
    pub fn completion(&mut self) -> Completion {
        if !self.completions {
            return Completion::Written;
        }
        if self.random.chance(self.plan.lose_completion) {
            return Completion::Lost;
        }
        let (of_all, steps) = self.plan.late_completion;
        if self.random.chance(of_all) { Completion::Late(steps) } else { Completion::Written }
    }

    /// What the next completion says instead of its own opcode.
    #[inline]
    pub fn odd_completion(&mut self) -> Option<u8> {
        if self.plan.odd_completions.is_empty() {
            return None;
        }
        self.told += 1;
        self.plan.odd_completions.iter().find(|odd| odd.nth == self.told).map(|odd| odd.opcode)
    }

    /// Most bytes that can be pinned.
    #[must_use]
    pub fn memlock(&self) -> Option<u64> {
        self.plan.memlock
    }

    /// Whether a flap holds the link down, after so many packets and so long.
    #[inline]
    #[must_use]
    pub fn link_is_down(&self, packets: u64, time: Duration) -> bool {
        self.plan.flaps.iter().any(|flap| match (flap.at, flap.lasting) {
            (Moment::Packets(at), Moment::Packets(lasting)) => packets >= at && packets - at < lasting,
            (Moment::Time(at), Moment::Time(lasting)) => time >= at && time - at < lasting,
            _ => false,
        })
    }

    /// Whether the device is gone.
    #[inline]
    #[must_use]
    pub fn is_removed(&self, packets: u64, time: Duration) -> bool {
        match self.plan.remove {
            None => false,
            Some(Moment::Packets(at)) => packets >= at,
            Some(Moment::Time(at)) => time >= at,
        }
    }

    /// Whether anything depends on time or on the count of packets, so that the device need not ask at each step.
    #[must_use]
    pub fn has_moments(&self) -> bool {
        self.plan.remove.is_some() || !self.plan.flaps.is_empty()
    }
}

#[inline]
fn nth(faults: &[EntryFault], now: u64) -> Option<Syndrome> {
    faults.iter().find(|fault| fault.nth == now).map(|fault| fault.syndrome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(text: &str) -> String {
        text.parse::<FaultPlan>().err().map(|error| error.to_string()).unwrap_or_else(|| "accepted".into())
    }

    #[test]
    fn a_plan_is_read() {
        let plan: FaultPlan = "[seed:7,lose-completion:0.5,late-completion:0.25/3,send-error:2/0x04/0x51,refuse:0x904/1/3/0x10,\
                               flap:10ms/5ms,flap:100/50,memlock:65536,remove:9s]"
            .parse()
            .expect("a plan");
        assert_eq!(plan.seed, 7);
        assert_eq!(plan.late_completion, (0.25, 3));
        assert_eq!(plan.send_errors, [EntryFault { nth: 2, syndrome: Syndrome { code: 4, vendor: 0x51 } }]);
        assert_eq!(plan.refusals, [Refusal { opcode: 0x904, nth: 1, status: 3, syndrome: 0x10 }]);
        assert_eq!(plan.flaps.len(), 2);
        assert_eq!(plan.remove, Some(Moment::Time(Duration::from_secs(9))));
    }

    #[test]
    fn a_wrong_plan_is_said() {
        for (text, expected) in [
            ("[seed:x]", "fault_plan=seed:x: write it as seed:7"),
            ("[lose-completion:2]", "fault_plan=lose-completion:2: write it as lose-completion:0.01"),
            ("[send-error:0/4]", "fault_plan=send-error:0/4: write it as send-error:100/0x04"),
            ("[refuse:0x10000/1/3]", "fault_plan=refuse:0x10000/1/3: write it as refuse:0x904/1/0x03/0x1234"),
            ("[odd-completion:1/16]", "fault_plan=odd-completion:1/16: write it as odd-completion:100/0x7"),
            ("[flap:10ms/5]", "fault_plan=flap:10ms/5: write it as flap:1000/500 or flap:10ms/5ms"),
            (
                "[explode]",
                "fault_plan=explode: a plan has these parts: seed, lose-completion, late-completion, odd-completion, send-error, receive-error, \
                 rnr, rnr-share, refuse, flap, memlock, remove",
            ),
            (
                "",
                "fault_plan=: a plan has these parts: seed, lose-completion, late-completion, odd-completion, send-error, receive-error, rnr, rnr-share, refuse, flap, memlock, remove",
            ),
            ("[rnr:0/3]", "fault_plan=rnr:0/3: write it as rnr:100/3"),
            ("[rnr-share:7]", "fault_plan=rnr-share:7: write it as rnr-share:0.01"),
        ] {
            assert_eq!(refusal_of(text), expected);
        }
    }

    #[test]
    fn every_example_is_accepted() {
        for (_, examples) in PARTS {
            for example in examples.split(" or ") {
                assert_eq!(refusal_of(example), "accepted", "{example}");
            }
        }
    }

    #[test]
    fn faults_come_when_they_are_due() {
        let mut faults = Faults::new(
            "send-error:3/4,receive-error:1/5,refuse:0x904/2/3,refuse:0x100/0/8".parse().expect("a plan"),
        );
        let sent: Vec<bool> = (0..5).map(|_| faults.send_entry().is_some()).collect();
        assert_eq!(sent, [false, false, true, false, false]);
        assert_eq!(faults.receive_entry(), Some(Syndrome { code: 5, vendor: 0 }));
        assert_eq!(faults.receive_entry(), None);
        let refused: Vec<Option<u8>> = [0x904, 0x904, 0x904, 0x100, 0x100]
            .map(|opcode| faults.command(opcode).map(|refusal| refusal.status))
            .into();
        assert_eq!(refused, [None, Some(3), None, Some(8), Some(8)]);
        assert_eq!(faults.completion(), Completion::Written);
    }

    #[test]
    fn receivers_are_not_ready_as_planned() {
        let mut faults = Faults::new("rnr:2/2,rnr:6/1".parse().expect("a plan"));
        let told: Vec<bool> = (0..8).map(|_| faults.not_ready()).collect();
        assert_eq!(told, [false, true, true, false, false, true, false, false]);
        let mut faults = Faults::new("seed:5,rnr-share:0.1".parse().expect("a plan"));
        let count = (0..10_000).filter(|_| faults.not_ready()).count();
        assert!((800..1200).contains(&count), "{count}");
    }

    #[test]
    fn the_link_flaps_and_the_device_goes() {
        let faults = Faults::new("flap:10/5,flap:1ms/1ms,remove:20".parse().expect("a plan"));
        let zero = Duration::ZERO;
        let down: Vec<u64> = (0..20).filter(|&packets| faults.link_is_down(packets, zero)).collect();
        assert_eq!(down, [10, 11, 12, 13, 14]);
        assert!(
            faults.link_is_down(0, Duration::from_micros(1999))
                && !faults.link_is_down(0, Duration::from_millis(2))
        );
        assert!(!faults.is_removed(19, zero) && faults.is_removed(20, zero));
        assert!(faults.has_moments() && !Faults::new(FaultPlan::default()).has_moments());
    }

    #[test]
    fn a_seed_repeats_a_run() {
        let run = |seed: u64| -> Vec<Completion> {
            let text = format!("seed:{seed},lose-completion:0.2,late-completion:0.2/4");
            let mut faults = Faults::new(text.parse().expect("a plan"));
            (0..200).map(|_| faults.completion()).collect()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
        assert!(run(3).contains(&Completion::Lost) && run(3).contains(&Completion::Late(4)));
    }
}
