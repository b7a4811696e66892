//! What an lcore does in rounds that bring no packet (`--idle`): it polls on, pauses between polls, or sleeps until a packet arrives.
//!
//! ```text
//!              a round                 `--idle-after`                    a round
//!   BUSY ── without packets ──► EMPTY ────────────────► ARMED ── without packets ──► asleep
//!    ▲                            │ ▲                     │                            │
//!    └────────── packets ─────────┘ └─ packet, stop ──────┼────────────────────────────┤
//!    └────────────────────────── packets ─────────────────┘    DUE ◄── 20 ms, a timer ─┘
//! ```
//!
//! A queue that is armed tells of what arrives from then on, and the round between arming and sleep finds what arrived before: no packet
//! waits beside an lcore that sleeps. Nothing is disarmed: a queue tells once for each arming, and that is taken off with the next. An
//! lcore that sleeps is in no burst, so nobody who stops a port waits for it.
//!
//! No sleep is longer than [`SLEEP_MAX`]: after it every queue is polled and armed anew, so what tells of itself by no interrupt (a queue
//! that was set to work again, a pool that has mbufs again, a timer that another thread armed, a layer that holds packets back) waits no
//! longer. Beside a queue without an interrupt it is [`LOOK_PERIOD`].
//!
//! Polling costs nothing more than a loop without this: its policy is `()`. With another one a busy round costs a store, an empty one a
//! comparison.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use pollux_bringup::BringupError;
use pollux_eal::LcoreContext;
use pollux_eal::clock::{Clock, Nanos, cycles};
use pollux_eal::event::EventSet;
use pollux_port::{Port, RxQueue};

/// The longest sleep.
pub const SLEEP_MAX: Duration = Duration::from_millis(20);
/// The longest sleep of an lcore that polls a queue without an rx interrupt.
pub const LOOK_PERIOD: Duration = Duration::from_millis(1);
/// The most `pause` instructions between two polls: some 3 us at the 140 cycles of Intel's (Skylake and later), half of that on AMD's.
const PAUSES_MAX: u32 = 64;
/// Wake-ups in a row that brought no packet, after which an lcore sleeps [`LOOK_PERIOD`] before it looks for events again: a file that
/// is readable for ever must not keep it busy.
const VAIN_MAX: u32 = 16;

/// `--idle`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleMode {
    /// Polls on.
    #[default]
    Poll,
    /// Pauses between polls, longer each time.
    Pause,
    /// Sleeps until a packet arrives.
    Interrupt,
}

impl IdleMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Poll, Self::Pause, Self::Interrupt];

    /// As it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Pause => "pause",
            Self::Interrupt => "interrupt",
        }
    }
}

/// Options of a forwarder whose lcores need not poll all the time.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub struct IdleOptions {
    /// While no packet arrives: poll; pause (between polls, up to 3 us); or interrupt (sleep until one arrives)
    #[arg(long = "idle", value_name = "MODE", default_value = "poll", value_parser = mode)]
    pub mode: IdleMode,
    // DPDK's l3fwd-power waits as long: 300 empty polls a microsecond apart (examples/l3fwd-power/main.c, SUSPEND_THRESHOLD).
    /// Microseconds without a packet before an lcore sleeps (--idle interrupt), 0 to 1000000
    #[arg(long = "idle-after", value_name = "US", default_value = "300", value_parser = microseconds)]
    pub after_us: u32,
}

impl Default for IdleOptions {
    fn default() -> Self {
        Self { mode: IdleMode::Poll, after_us: 300 }
    }
}

fn mode(text: &str) -> Result<IdleMode, String> {
    let mode = IdleMode::ALL.into_iter().find(|mode| mode.name() == text);
    mode.ok_or_else(|| format!("is not one of {}", IdleMode::ALL.map(IdleMode::name).join(", ")))
}

fn microseconds(text: &str) -> Result<u32, String> {
    let us = text.parse().ok().filter(|us| *us <= 1_000_000);
    us.ok_or_else(|| "is not a whole number of microseconds from 0 to 1000000".into())
}

impl IdleOptions {
    /// Whether ports are to have rx interrupts, where they can.
    #[must_use]
    pub fn sleeps(&self) -> bool {
        self.mode == IdleMode::Interrupt
    }

    /// A line for the user where a port cannot wake its lcore.
    #[must_use]
    pub fn notice(&self, port: &Port) -> Option<String> {
        (self.sleeps() && !port.info().rx_interrupts).then(|| {
            format!(
                "port {} {} has no rx interrupt: an idle lcore polls it every {} ms; --idle pause does not let packets wait",
                port.id(),
                port.name(),
                LOOK_PERIOD.as_millis()
            )
        })
    }

    /// What an lcore does that polls `queues`, in this order. It wakes for `files` as well, which end its loop: the stop flag, and what
    /// else does.
    ///
    /// # Errors
    /// [`BringupError::Eal`] when the kernel has no more files.
    pub fn policy<'a>(
        &self,
        clock: Clock,
        files: &[BorrowedFd<'_>],
        queues: impl Iterator<Item = &'a RxQueue>,
    ) -> Result<IdlePolicy, BringupError> {
        Ok(match self.mode {
            IdleMode::Poll => IdlePolicy::Poll,
            IdleMode::Pause => IdlePolicy::Pause(Pause { pauses: 1 }),
            IdleMode::Interrupt => {
                let after = clock.cycles(Nanos(u64::from(self.after_us) * 1000)).0;
                IdlePolicy::Sleep(Sleep::new(after, files, queues)?)
            }
        })
    }
}

/// What a loop polls for packets.
pub trait Polled {
    /// Its rx queue, always the same one.
    fn rx_queue(&mut self) -> &mut RxQueue;

    /// Whether it has work beside what arrives: packets that are held back, say. Its lcore does not sleep then.
    fn has_work(&self) -> bool {
        false
    }
}

impl Polled for RxQueue {
    fn rx_queue(&mut self) -> &mut RxQueue {
        self
    }
}

/// What a loop does with rounds that bring no packet. `()` polls on.
///
/// ```
/// # use pollux_bringup::{Bringup, BringupError, PortRequest};
/// # use pollux_config::CommandLine;
/// # use pollux_eal::{LcoreContext, clock::cycles};
/// # use pollux_kit::{Idle, IdleMode, IdleOptions};
/// # use pollux_mempool::Burst;
/// # use pollux_port::{PortId, RxQueue};
/// # use std::os::fd::AsFd;
/// fn drop_all(lcore: &LcoreContext, queues: &mut [RxQueue], idle: &mut impl Idle) {
///     let mut burst = Burst::new();
///     while !lcore.stop_requested() {
///         lcore.run_timers();
///         let mut packets = 0;
///         for queue in &mut *queues {
///             packets += queue.rx_burst(&mut burst, 32);
///             burst.clear();
///         }
///         if packets != 0 {
///             idle.busy();
///         } else {
///             idle.empty(lcore, cycles::now(), queues);
///         }
///     }
/// }
///
/// let line = CommandLine::parse(["app", "-l", "0", "--vdev", "mlx5_model0,wire=source:64:100"])?;
/// let mut bringup = Bringup::new(&line)?;
/// let options = IdleOptions { mode: IdleMode::Interrupt, ..IdleOptions::default() };
/// let request = PortRequest::new().rx_interrupts_where_supported(options.sleeps());
/// let (mut queues, _pool) = bringup.start_ports(&[PortId(0)], &request)?;
/// let (stop, mut rx) = (bringup.eal.stop_flag(), queues.remove(0).rx);
/// let mut idle = options.policy(bringup.eal.clock(), &[stop.as_fd()], rx.iter())?;
/// let main = bringup.eal.lcores().main();
/// let dropping = bringup.eal.launch(main, move |lcore| drop_all(lcore, &mut rx, &mut idle))?;
/// std::thread::sleep(std::time::Duration::from_millis(50));
/// stop.set();
/// dropping.wait()?;
/// # Ok::<(), BringupError>(())
/// ```
pub trait Idle {
    /// The round moved packets.
    fn busy(&mut self);

    /// The round moved none; it ended at `now`, a reading of [`cycles::now`]. Whether time was spent here.
    ///
    /// An lcore does not sleep past its next timer, and the loop calls it ([`LcoreContext::run_timers`], in each round): beside one that
    /// is due and never called, it would not sleep at all.
    fn empty<P: Polled>(&mut self, lcore: &LcoreContext, now: u64, polled: &mut [P]) -> bool;
}

impl Idle for () {
    #[inline(always)]
    fn busy(&mut self) {}

    #[inline(always)]
    fn empty<P: Polled>(&mut self, _: &LcoreContext, _: u64, _: &mut [P]) -> bool {
        false
    }
}

/// What the options say. A loop that is to cost no more than one that only polls takes `()` for [`IdlePolicy::Poll`].
#[derive(Debug)]
pub enum IdlePolicy {
    /// Polls on.
    Poll,
    /// Pauses between polls.
    Pause(Pause),
    /// Sleeps.
    Sleep(Sleep),
}

impl Idle for IdlePolicy {
    #[inline]
    fn busy(&mut self) {
        match self {
            Self::Poll => {}
            Self::Pause(pause) => pause.pauses = 1,
            Self::Sleep(sleep) => sleep.state = State::Busy,
        }
    }

    #[inline]
    fn empty<P: Polled>(&mut self, lcore: &LcoreContext, now: u64, polled: &mut [P]) -> bool {
        match self {
            Self::Poll => false,
            Self::Pause(pause) => pause.pause(),
            Self::Sleep(sleep) => sleep.empty(lcore, now, polled),
        }
    }
}

/// Pauses between polls: twice as long after each that brought nothing, up to some microseconds. It leaves the core to a sibling thread
/// and saves power, and makes no system call.
#[derive(Debug)]
pub struct Pause {
    pauses: u32,
}

impl Pause {
    fn pause(&mut self) -> bool {
        for _ in 0..self.pauses {
            std::hint::spin_loop();
        }
        self.pauses = (self.pauses * 2).min(PAUSES_MAX);
        true
    }
}

/// How a queue tells of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// Its file becomes readable.
    Interrupt,
    /// Not at all.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The last round moved packets.
    Busy,
    /// No packet since then, in cycles.
    Empty { since: u64 },
    /// The last sleep brought nothing: the next one follows at once.
    Due,
    /// The queues tell of arrivals; one round is to look for earlier ones.
    Armed,
}

/// Sleeps until a packet arrives on one of the queues.
#[derive(Debug)]
pub struct Sleep {
    set: EventSet,
    /// In the order of the queues.
    wakes: Vec<Wake>,
    after: u64,
    state: State,
    /// The longest sleep, as the queues are that were armed.
    longest: Duration,
    /// Wake-ups in a row that brought no packet.
    vain: u32,
}

impl Sleep {
    fn new<'a>(
        after: u64,
        files: &[BorrowedFd<'_>],
        queues: impl Iterator<Item = &'a RxQueue>,
    ) -> Result<Self, BringupError> {
        let set = EventSet::new()?;
        // Who woke it shows in the next round.
        const TOKEN: u64 = 0;
        for file in files {
            set.add(file, TOKEN)?;
        }
        let mut wakes = Vec::new();
        for queue in queues {
            wakes.push(match queue.interrupt_fd() {
                Ok(file) => set.add(file, TOKEN).map(|()| Wake::Interrupt)?,
                Err(_) => Wake::Never,
            });
        }
        Ok(Self { set, wakes, after, state: State::Busy, longest: SLEEP_MAX, vain: 0 })
    }

    #[inline]
    fn empty<P: Polled>(&mut self, lcore: &LcoreContext, now: u64, polled: &mut [P]) -> bool {
        match self.state {
            State::Busy => {
                (self.state, self.vain) = (State::Empty { since: now }, 0);
                false
            }
            State::Empty { since } if now.wrapping_sub(since) < self.after => false,
            State::Empty { .. } | State::Due => self.arm(polled),
            State::Armed => self.sleep(lcore, polled),
        }
    }

    /// Arms all queues. One that refuses is no longer waited for: its file may be readable for ever.
    #[cold]
    fn arm<P: Polled>(&mut self, polled: &mut [P]) -> bool {
        if polled.iter().any(Polled::has_work) {
            return false;
        }
        self.longest = SLEEP_MAX;
        for (polled, wake) in polled.iter_mut().zip(&mut self.wakes) {
            let queue = polled.rx_queue();
            let gone = queue.is_gone();
            if *wake == Wake::Interrupt && (gone || queue.enable_interrupt().is_err()) {
                *wake = Wake::Never;
                if let Ok(file) = queue.interrupt_fd() {
                    // It is in the set.
                    let _ = self.set.remove(file);
                }
            }
            // Nothing will come of a device that is gone.
            if *wake == Wake::Never && !gone {
                self.longest = LOOK_PERIOD;
            }
        }
        self.state = State::Armed;
        true
    }

    /// Sleeps until something is told, the lcore's next timer, or the longest time.
    #[cold]
    fn sleep<P: Polled>(&mut self, lcore: &LcoreContext, polled: &[P]) -> bool {
        if polled.iter().any(Polled::has_work) {
            return false;
        }
        if self.vain >= VAIN_MAX && lcore.stop_flag().wait(LOOK_PERIOD) {
            return true;
        }
        let clock = lcore.clock();
        let until_timer = lcore.next_timer().map(|due| clock.nanos(due.0.saturating_sub(clock.now().0)));
        let timeout = until_timer.map_or(self.longest, |time| self.longest.min(Duration::from_nanos(time.0)));
        let woken = self.set.wait(Some(timeout)).is_ok_and(|mut ready| ready.next().is_some());
        self.vain = if woken { self.vain.saturating_add(1) } else { 0 };
        self.state =
            if woken && self.vain < VAIN_MAX { State::Empty { since: cycles::now() } } else { State::Due };
        true
    }
}
