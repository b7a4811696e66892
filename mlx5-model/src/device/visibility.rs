//! When software sees what the device wrote.

/// When what the device writes becomes visible to software.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// All at once.
    #[default]
    AtOnce,
    /// Of a completion the word by which it is ready, and the rest at software's barrier; what is given back is overwritten at once.
    ReadyWordFirst,
    /// Of completions any of the other words as early as that one, the rest and received frames at software's barrier; what is given
    /// back is overwritten, or not yet. By seed.
    AnyOrder(u64),
}
