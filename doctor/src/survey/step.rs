//! What one check of a survey says: the calls it made and their answers, what came of them, what they cost.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Display;

use pollux_bringup::BringupError;
use pollux_eal::clock::cycles;
use pollux_eal::with_causes;
use pollux_mlx5_abi::command;
use pollux_mlx5_common::MlxError;
use pollux_uverbs::{Errno, UverbsError};
use pollux_verbs::VerbsError;

/// Why something could not be done. Words name the device, its kernel and what mends it, so a card and its model are compared by what
/// these answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The kernel's error number by name, the firmware's status, or our own words, which are the same everywhere.
    pub(crate) fact: String,
    /// The same in words.
    pub(crate) said: String,
}

/// An error as a refusal.
pub(crate) fn refused<E: Error + 'static>(error: E) -> Refusal {
    let causes = std::iter::successors(Some(&error as &(dyn Error + 'static)), |&error| error.source());
    let fact = causes.into_iter().find_map(answered).unwrap_or_else(|| "refused".into());
    Refusal { fact, said: with_causes(&error) }
}

/// What kernel or firmware answered, where the error itself tells it.
fn answered(error: &(dyn Error + 'static)) -> Option<String> {
    let errno = |errno: Errno| errno.name().map_or_else(|| format!("errno {}", errno.0), str::to_owned);
    // Those that pass an error on as their own name its cause alone.
    if let Some(BringupError::Verbs(error)) = error.downcast_ref() {
        return answered(error);
    }
    match error.downcast_ref() {
        Some(VerbsError::Mlx5(error)) => return answered(error),
        Some(VerbsError::Discovery(error)) => return answered(error),
        _ => {}
    }
    if let Some(MlxError::Firmware { refused, .. }) = error.downcast_ref() {
        let name = command::status::text(refused.status).map(|(name, _)| name.to_owned());
        return Some(format!("firmware {}", name.unwrap_or_else(|| format!("{:#x}", refused.status))));
    }
    let of_kernel = error.downcast_ref::<UverbsError>().and_then(UverbsError::errno);
    let of_system = || error.downcast_ref::<std::io::Error>()?.raw_os_error().map(Errno);
    of_kernel.or_else(|| error.downcast_ref().copied()).or_else(of_system).map(errno)
}

impl From<&str> for Refusal {
    fn from(said: &str) -> Self {
        said.to_owned().into()
    }
}

impl From<String> for Refusal {
    fn from(said: String) -> Self {
        Self { fact: said.clone(), said }
    }
}

/// Cycles of something that was done several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) median: u64,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

/// A check as it went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its name.
    pub(crate) name: String,
    /// Calls and answers in order, in the form of [`pollux_explain::normal`], without what is the owner's alone.
    pub(crate) calls: Vec<String>,
    /// What came of it, by name: a card and its model are to say the same.
    pub(crate) facts: BTreeMap<String, String>,
    /// Refusals in words, by the names of their facts: never compared.
    pub(crate) said: BTreeMap<String, String>,
    /// What depends on the moment: never compared.
    pub(crate) counters: BTreeMap<String, u64>,
    /// What it cost: never compared.
    pub(crate) cycles: BTreeMap<String, Cost>,
}

impl Step {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Notes what came of something.
    pub(crate) fn fact(&mut self, name: impl Into<String>, value: impl Display) {
        let _ = self.facts.insert(key(name), in_line(value));
    }

    /// Notes what came of something that may have been refused.
    pub(crate) fn outcome(&mut self, name: impl Into<String>, value: Result<impl Display, Refusal>) {
        match value {
            Ok(value) => self.fact(name, value),
            Err(refusal) => self.refusal(name, refusal),
        }
    }

    /// Notes that something was refused.
    pub(crate) fn refusal(&mut self, name: impl Into<String>, Refusal { fact, said }: Refusal) {
        let name = key(name);
        if said != fact {
            let _ = self.said.insert(name.clone(), in_line(said));
        }
        self.fact(name, fact);
    }

    /// Notes a count.
    pub(crate) fn counter(&mut self, name: impl Into<String>, value: u64) {
        *self.counters.entry(key(name)).or_default() += value;
    }

    /// Notes what something cost, by samples; none is no note.
    pub(crate) fn cost(&mut self, name: impl Into<String>, mut samples: Vec<u64>) {
        samples.sort_unstable();
        if let [least, .., most] = samples[..] {
            let median = samples[samples.len() / 2];
            let _ = self.cycles.insert(name.into(), Cost { median, least, most });
        }
    }
}

/// A name without spaces.
fn key(name: impl Into<String>) -> String {
    name.into().replace(char::is_whitespace, "-")
}

/// A value in one line.
fn in_line(value: impl Display) -> String {
    value.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Cycles that something takes, and what it gave.
pub(crate) fn timed<T>(what: impl FnOnce() -> T) -> (u64, T) {
    let begin = cycles::now_precise();
    let given = what();
    (cycles::now_precise().wrapping_sub(begin), given)
}

#[cfg(test)]
mod tests {
    use pollux_port::PortError;
    use pollux_uverbs::Operation;

    use super::*;

    fn of_kernel(words: &str) -> UverbsError {
        let operation = Operation::Write { command: 9 };
        UverbsError::Refused { operation, errno: Errno::EINVAL, words: Some(words.to_owned()) }
    }

    #[test]
    fn a_refusal_is_what_was_answered_whoever_words_it() {
        let kernel = |words: &str| VerbsError::Kernel { what: "register memory", source: of_kernel(words) };
        let (one, other) = (refused(kernel("mlx5_0: no")), refused(kernel("mlx5_model0: never")));
        assert_eq!((one.fact.as_str(), other.fact.as_str()), ("EINVAL", "EINVAL"));
        assert!(one.said != other.said && one.said.contains("mlx5_0"), "{one:?}");
        // Behind whatever passes it on.
        let mlx5 = || MlxError::verbs("create a queue")(of_kernel(""));
        for refusal in [
            refused(VerbsError::Mlx5(mlx5())),
            refused(VerbsError::Discovery(of_kernel(""))),
            refused(BringupError::Verbs(VerbsError::Mlx5(mlx5()))),
            refused(PortError::device("start", mlx5())),
            refused(std::io::Error::from(Errno::EINVAL)),
        ] {
            assert_eq!(refusal.fact, "EINVAL", "{refusal:?}");
        }
        let firmware = || MlxError::Firmware {
            what: "create a queue",
            opcode: 0x904,
            refused: command::Refused { status: command::status::LIM_ERR, syndrome: 0x1234 },
        };
        assert_eq!(refused(firmware()).fact, "firmware LIM_ERR");
        assert_eq!(refused(BringupError::Verbs(VerbsError::Mlx5(firmware()))).fact, "firmware LIM_ERR");
        let words = VerbsError::Driver { device: "mlx5_0".into(), driver: "none".into() };
        assert_eq!(refused(words).fact, "refused");
        assert_eq!(Refusal::from("no buffer").fact, "no buffer");
    }
}
