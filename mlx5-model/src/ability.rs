//! Optional capabilities, by the names under which programs that run devices turn them on.

use std::fmt;
use std::str::FromStr;

use crate::card::Traits;
use crate::error::ModelError;

/// An optional capability of a device: off unless it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// [`Traits::on_demand_paging`].
    OnDemandPaging,
    /// [`Traits::padded_completions`].
    PaddedCompletions,
    /// [`Traits::hairpin`].
    Hairpin,
    /// [`Traits::dynamic_connections`].
    DynamicConnections,
    /// [`Traits::signatures`].
    Signatures,
    /// [`Traits::mpls`].
    Mpls,
    /// [`Traits::sniffer`].
    Sniffer,
}

impl Ability {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::OnDemandPaging,
        Self::PaddedCompletions,
        Self::Hairpin,
        Self::DynamicConnections,
        Self::Signatures,
        Self::Mpls,
        Self::Sniffer,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::OnDemandPaging => "on-demand-paging",
            Self::PaddedCompletions => "padded-completions",
            Self::Hairpin => "hairpin",
            Self::DynamicConnections => "dynamic-connections",
            Self::Signatures => "signatures",
            Self::Mpls => "mpls",
            Self::Sniffer => "sniffer",
        }
    }

    /// Turns it on.
    pub fn enable(self, traits: &mut Traits) {
        let ability = match self {
            Self::OnDemandPaging => &mut traits.on_demand_paging,
            Self::PaddedCompletions => &mut traits.padded_completions,
            Self::Hairpin => &mut traits.hairpin,
            Self::DynamicConnections => &mut traits.dynamic_connections,
            Self::Signatures => &mut traits.signatures,
            Self::Mpls => &mut traits.mpls,
            Self::Sniffer => &mut traits.sniffer,
        };
        *ability = true;
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Ability {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        Self::ALL.into_iter().find(|ability| ability.word() == text).ok_or_else(|| ModelError::Setting {
            key: "with",
            value: text.into(),
            allowed: format!("is not one of {}", Self::ALL.map(Self::word).join(", ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_go_by_their_words() {
        for ability in Ability::ALL {
            assert_eq!(ability.to_string().parse::<Ability>().expect("known"), ability);
        }
        assert_eq!(
            "lasers".parse::<Ability>().expect_err("unknown").to_string(),
            "with=lasers: is not one of on-demand-paging, padded-completions, hairpin, dynamic-connections, signatures, mpls, sniffer"
        );
    }

    #[test]
    fn each_turns_on_one_thing() {
        let mut traits = Traits::default();
        Ability::ALL.iter().for_each(|ability| ability.enable(&mut traits));
        assert!(traits.on_demand_paging && traits.padded_completions && traits.hairpin);
        assert!(traits.dynamic_connections && traits.signatures && traits.mpls && traits.sniffer);
    }
}
