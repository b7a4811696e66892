//! Why a combination of options is refused, in one line.

/// What is wrong with an option.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// The program does not have it, or not this value: the option, the reason.
    Unsupported(&'static str, &'static str),
    /// It is of no use without another: the option, what is missing.
    Requires(&'static str, &'static str),
    /// It does not go with another: the option, the other one, the reason.
    Conflict(&'static str, &'static str, &'static str),
}

impl Refusal {
    /// The first whose condition holds.
    ///
    /// # Errors
    /// That one, as a line.
    pub fn first(program: &str, all: impl IntoIterator<Item = (bool, Self)>) -> Result<(), String> {
        all.into_iter().find(|(holds, _)| *holds).map_or(Ok(()), |(_, refusal)| Err(refusal.line(program)))
    }

    fn line(self, program: &str) -> String {
        match self {
            Self::Unsupported(option, why) => format!("{option} is not supported by {program}: {why}"),
            Self::Requires(option, other) => format!("{option} requires {other}"),
            Self::Conflict(one, other, why) => format!("{one} cannot be combined with {other}: {why}"),
        }
    }
}
