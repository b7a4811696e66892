//! The card of a survey: every file of its that is opened writes its calls down.

use std::fmt;
use std::sync::Arc;

use pollux_bringup::{BringupError, Mlx5Card};
use pollux_pmd_mlx::Netdev;
use pollux_port::{Link, MacAddress};
use pollux_uverbs::Channel;
use pollux_uverbs::trace::{Lines, Traced};
use pollux_verbs::{Context, Options};

use super::scrub::Secrets;
use super::step::{Refusal, refused};

/// A card, and what is known of it that no report may tell.
pub(crate) struct Subject {
    card: Mlx5Card,
    lines: Lines,
    pub(crate) secrets: Secrets,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("card", &self.card).finish_non_exhaustive()
    }
}

impl Subject {
    /// Looks at the card without opening anything for good.
    ///
    /// # Errors
    /// The card cannot be opened.
    pub(crate) fn new(card: Mlx5Card) -> Result<Self, BringupError> {
        let secrets = Secrets::of(&card)?;
        Ok(Self { card, lines: Lines::default(), secrets })
    }

    pub(crate) fn card(&self) -> &Mlx5Card {
        &self.card
    }

    /// Its file, opened once more; what goes through it is written down.
    pub(crate) fn channel(&self) -> Result<Arc<dyn Channel>, Refusal> {
        let channel = self.card.channel().map_err(refused)?;
        Ok(Arc::new(Traced::new(channel, Box::new(self.lines.clone()))))
    }

    /// An RDMA context of it.
    pub(crate) fn context(&self) -> Result<Context, Refusal> {
        let options = Options::default();
        self.card.context(self.channel()?, options).map_err(refused)
    }

    /// The interface beside it, as a port may have it: to look at, not to change.
    pub(crate) fn netdev(&self) -> Arc<dyn Netdev> {
        Arc::new(LookedAt(Arc::clone(self.card.netdev())))
    }

    /// The calls since this was asked last.
    pub(crate) fn take_calls(&self) -> String {
        self.lines.take()
    }
}

/// An interface that keeps its settings: all that would change them is refused, by the trait's own answers.
#[derive(Debug)]
struct LookedAt(Arc<dyn Netdev>);

impl Netdev for LookedAt {
    fn name(&self) -> String {
        self.0.name()
    }

    fn index(&self) -> Option<u32> {
        self.0.index()
    }

    fn mac(&self) -> std::io::Result<MacAddress> {
        self.0.mac()
    }

    fn mtu(&self) -> std::io::Result<u32> {
        self.0.mtu()
    }

    fn mtu_limits(&self) -> Option<(u32, u32)> {
        self.0.mtu_limits()
    }

    fn link(&self) -> std::io::Result<Link> {
        self.0.link()
    }

    fn is_virtual_function(&self) -> bool {
        self.0.is_virtual_function()
    }
}
