//! A completion queue that is polled, or slept on.

use std::time::Duration;

use pollux_eal::event::EventSet;
use pollux_verbs::{CompletionChannel, Context, Cq, CqOptions, Wc};

use super::Failure;
use super::endless::Watch;

/// How long a sleep lasts before signal and other end are looked at.
const NAP: Duration = Duration::from_millis(100);

/// A completion queue, and how it is waited on.
#[derive(Debug)]
pub struct Queue {
    /// The queue.
    pub cq: Cq,
    sleep: Option<Sleep>,
}

struct Sleep {
    channel: CompletionChannel,
    set: EventSet,
    armed: bool,
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleep")
            .field("channel", &self.channel)
            .field("armed", &self.armed)
            .finish_non_exhaustive()
    }
}

impl Queue {
    /// A queue of that many completions; with `events` one that is slept on.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(context: &Context, completions: u32, events: bool) -> Result<Self, Failure> {
        let options = CqOptions::new(completions);
        if !events {
            return Ok(Self { cq: Cq::new(context, options)?, sleep: None });
        }
        let channel = CompletionChannel::new(context)?;
        let mut cq = Cq::new(context, options.channel(&channel))?;
        cq.notify(false)?;
        let set = EventSet::new()?;
        set.add(&channel, 0)?;
        Ok(Self { cq, sleep: Some(Sleep { channel, set, armed: true }) })
    }

    /// Takes what is there, up to `max`; when it is nothing, waits a moment or sleeps until there may be something. How many.
    ///
    /// # Errors
    /// The wait has an end: see [`Watch`].
    #[inline]
    pub fn take(
        &mut self,
        max: usize,
        watch: &mut Watch<'_>,
        mut each: impl FnMut(&mut Wc<'_, '_>),
    ) -> Result<usize, Failure> {
        let count = self.cq.poll(max, &mut each);
        if count != 0 {
            watch.came()?;
            return Ok(count);
        }
        match &mut self.sleep {
            None => watch.empty()?,
            Some(sleep) if sleep.armed => {
                sleep.nap(&mut self.cq)?;
                watch.ask()?;
            }
            Some(sleep) => {
                // What came before it was armed makes no event: look once more before sleeping.
                self.cq.notify(false)?;
                sleep.armed = true;
            }
        }
        Ok(0)
    }
}

impl Sleep {
    #[cold]
    fn nap(&mut self, cq: &mut Cq) -> Result<(), Failure> {
        if self.set.wait(Some(NAP))?.next().is_none() {
            return Ok(());
        }
        while self.channel.next()?.is_some() {
            cq.event_taken();
            self.armed = false;
        }
        Ok(())
    }
}
