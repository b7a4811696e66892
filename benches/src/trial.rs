//! One trial of a figure on device models, as a line that `cargo xtask bench` reads.

use std::fmt;

use crate::{Column, Disturbance};

/// Cycles for one operation, warm and cold, of the code and of the plain copy loop beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Everything where the driver and the device model left it on this core.
    pub warm: f64,
    /// Rings and data in no cache.
    pub cold: f64,
    /// The loop on the same number of bytes, both buffers warm.
    pub copy_warm: f64,
    /// The loop, both buffers in no cache.
    pub copy_cold: f64,
    /// What others took of the machine meanwhile.
    pub disturbance: Disturbance,
}

impl Trial {
    /// What the two columns of a figure come to.
    #[must_use]
    pub fn of([warm, cold]: &[Column; 2]) -> Self {
        Self {
            warm: warm.sum[1],
            cold: cold.sum[1],
            copy_warm: warm.copy,
            copy_cold: cold.copy,
            disturbance: warm.disturbance.max(cold.disturbance),
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { warm, cold, copy_warm, copy_cold, disturbance: Disturbance { switched, stolen } } = self;
        write!(
            out,
            "{warm:.4} cold={cold:.4} copy={copy_warm:.4} copy_cold={copy_cold:.4} switched={switched:.4} stolen={stolen:.4}"
        )
    }
}
