//! The function as a whole: how far it has come up, and what software told it of itself.

use std::collections::BTreeMap;

use super::joint::{FIRST_ID, Joint};
use crate::card::Traits;

/// How far the function has come up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    Off,
    Enabled,
    Running,
}

/// The function as a whole.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) life: Life,
    pub(crate) issi: u32,
    /// Pages that the host lent.
    pub(crate) pages: Vec<u64>,
    /// Capabilities in force, by kind.
    pub(crate) caps: BTreeMap<u16, Vec<u8>>,
    pub(crate) software_id: SoftwareId,
    /// Commands that were refused.
    pub(crate) refusals: u64,
    pub(crate) guid: u64,
    /// The card's, which is that of its first function.
    pub(crate) card_guid: u64,
    /// Its number on its card.
    pub(crate) vhca_id: u32,
    pub(crate) roce_enabled: bool,
    pub(crate) min_inline: u32,
}

/// The number that software gives the function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SoftwareId {
    /// It was asked that there be one.
    pub(crate) asked: bool,
    /// 0: none was given.
    pub(crate) given: u32,
}

impl Function {
    pub(crate) fn new(
        traits: &Traits,
        caps: BTreeMap<u16, Vec<u8>>,
        mac: [u8; 6],
        joint: Option<&Joint>,
    ) -> Self {
        Self {
            life: Life::Off,
            issi: 0,
            pages: Vec::new(),
            caps,
            software_id: SoftwareId::default(),
            refusals: 0,
            guid: guid(mac),
            card_guid: guid(joint.map_or(mac, |joint| joint.card)),
            vhca_id: joint.map_or(FIRST_ID, Joint::vhca_id),
            roce_enabled: false,
            min_inline: traits.min_inline(),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.life == Life::Running
    }
}

/// An address as an EUI-64. Source: RFC 4291, appendix A.
fn guid([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
