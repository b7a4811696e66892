//! A whole model: device, wire, kernel's half, and what steps it.
//!
//! ```text
//!   Model::builder("mlx5_model0")          Model ── open() ──► uverbs::Channel        as /dev/infiniband/uverbs0
//!     .profile(..) .wire(..)                 │
//!     .threaded() or .stepped()              ├── Kernel ── commands ──► Device ── frames ──► Wire
//!     .build()                               └── thread `model-*`, or the caller's step()
//! ```

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use pollux_mlx5_kernel::{DoorProfile, InterfaceAddress, Kernel, Network};
use pollux_uverbs::Channel;

use crate::Traits;
use crate::config::Profile;
use crate::device::{Device, DeviceConfig, Joint};
use crate::fault::FaultPlan;
use crate::ledger::Total;
use crate::network::Station;
use crate::time::worker::{self, Running, Steps};
use crate::time::{Clock, STEP};
use crate::wire::{Altered, Impaired, Impairments, Wire, WireSpec};
use crate::{ModelError, network};

/// Frames of each direction that one step moves at most.
const BUDGET: usize = 64;

/// How long a model that is dropped waits for its wire to take the last frame. Its entry is completed by then, so that
/// nobody would send it again, and a card would send it whoever has ended. A peer that is alive takes it far sooner.
const LINGER: Duration = Duration::from_millis(250);

/// Steps without an end, in [`Model::settle`], are a mistake of the model or its user.
const SETTLE_MAX: usize = 1_000_000;

/// Where a model's frames go.
#[derive(Debug)]
enum Plug {
    Spec(WireSpec),
    Open(Box<dyn Wire>),
}

impl Plug {
    /// The name that addresses follow from: that of the wire's own end, if it has one, for two processes whose models have the same name
    /// differ by it.
    fn own_end(&self, name: &str) -> String {
        match self {
            Self::Spec(WireSpec::Datagrams { local, .. }) => local.to_string_lossy().into_owned(),
            _ => name.to_owned(),
        }
    }

    fn wire(
        self,
        mac: [u8; 6],
        impairments: Impairments,
        clock: &Clock,
    ) -> Result<Box<dyn Wire>, ModelError> {
        match self {
            Self::Spec(spec) => spec.open(mac, impairments, clock),
            Self::Open(wire) if impairments.is_none() => Ok(wire),
            Self::Open(wire) => Ok(Box::new(Impaired::new(wire, impairments, clock))),
        }
    }
}

/// What a second port shall be.
#[derive(Debug)]
struct Second {
    plug: Plug,
    /// Its addresses; made from a name where none are given.
    addresses: Option<([u8; 6], InterfaceAddress)>,
}

/// What a model shall be. See [`Model::builder`].
#[derive(Debug)]
#[must_use = "build() makes the model"]
pub struct Builder {
    name: String,
    profile: Profile,
    traits: Traits,
    door: DoorProfile,
    plug: Plug,
    second: Option<Second>,
    impairments: Impairments,
    mac: Option<[u8; 6]>,
    addresses: Vec<InterfaceAddress>,
    faults: FaultPlan,
    core: Option<u16>,
    stepped: bool,
    strict: bool,
    pause: bool,
    process_memlock: bool,
}

impl Builder {
    /// Which card; its features are set to what that card has.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self.traits = profile.traits();
        self
    }

    /// Changes what the card has. Goes after [`profile`](Self::profile).
    pub fn traits(mut self, change: impl FnOnce(&mut Traits)) -> Self {
        change(&mut self.traits);
        self
    }

    /// What the kernel lacks; nothing if not said.
    pub fn door(mut self, door: DoorProfile) -> Self {
        self.door = door;
        self
    }

    /// Which wire, by its text's meaning; [`WireSpec::Null`] if not said.
    pub fn wire(mut self, spec: WireSpec) -> Self {
        self.plug = Plug::Spec(spec);
        self
    }

    /// A wire that is open already.
    pub fn plugged(mut self, wire: impl Wire + 'static) -> Self {
        self.plug = Plug::Open(Box::new(wire));
        self
    }

    /// The wire of a second port: the RDMA device then has two, as a card's two functions make one in Linux's multiport mode; Ethernet
    /// goes by the first alone. Its addresses follow from the name of the wire's own end, or the model's.
    pub fn second_wire(mut self, spec: WireSpec) -> Self {
        self.second = Some(Second { plug: Plug::Spec(spec), addresses: None });
        self
    }

    /// The same with a wire that is open already, and the port's address and that of the kernel's network there.
    pub fn second_plugged(
        mut self,
        wire: impl Wire + 'static,
        mac: [u8; 6],
        address: InterfaceAddress,
    ) -> Self {
        self.second = Some(Second { plug: Plug::Open(Box::new(wire)), addresses: Some((mac, address)) });
        self
    }

    /// What goes wrong on the wires.
    pub fn impairments(mut self, impairments: Impairments) -> Self {
        self.impairments = impairments;
        self
    }

    /// Whether frames that find no receive slot make a wire wait that can (they do, if not said), or are dropped.
    pub fn pause(mut self, pause: bool) -> Self {
        self.pause = pause;
        self
    }

    /// The port's address; if not said, made from the name of the wire's own end where it has one (`unix`), else from the
    /// model's.
    pub fn mac(mut self, mac: [u8; 6]) -> Self {
        self.mac = Some(mac);
        self
    }

    /// One more address of the kernel's own network at the port, and a GID. If none is said there is one of IPv4, made from
    /// the same name as the port's address, in a subnet that all such addresses share.
    pub fn ip(mut self, address: InterfaceAddress) -> Self {
        self.addresses.push(address);
        self
    }

    /// What goes wrong in the device.
    pub fn faults(mut self, faults: FaultPlan) -> Self {
        self.faults = faults;
        self
    }

    /// Holds what is pinned to this process's own limit on locked memory, together with all other models that do, as Linux
    /// does with real devices. If not said there is none, for a model in process needs nothing pinned: with the usual limit of
    /// 8 MiB an ordinary user could not open two ports.
    pub fn process_memlock(mut self, hold: bool) -> Self {
        self.process_memlock = hold;
        self
    }

    /// Stepped by a thread of its own, on that core.
    pub fn core(mut self, core: u16) -> Self {
        self.core = Some(core);
        self
    }

    /// Stepped by a thread, which is the default.
    pub fn threaded(mut self) -> Self {
        self.stepped = false;
        self
    }

    /// Stepped by the caller: [`Model::step`]. Its clock goes by steps, so that the same calls give the same run.
    pub fn stepped(mut self) -> Self {
        self.stepped = true;
        self
    }

    /// Whether doorbells must keep all rules (they must, if not said), or only say that there is work: for programs that this
    /// project has not written.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Makes the device, opens the wire, starts the firmware and the thread.
    ///
    /// # Errors
    /// The wire's, the firmware's (a fault plan may refuse its commands), the thread's.
    pub fn build(self) -> Result<Model, ModelError> {
        let Self {
            name, profile, traits, door, plug, second, impairments, mut addresses, mut faults, ..
        } = self;
        let clock = if self.stepped { Clock::stepped() } else { Clock::machine() };
        let power_up = |name: &str, mac, faults, joint, plug: Plug| {
            let wire = plug.wire(mac, impairments, &clock)?;
            let wire = if self.pause { wire } else { Box::new(Altered::unpaused(wire)) };
            let wire_name = wire.describe();
            let (name, clock) = (name.to_owned(), clock.clone());
            let strict = self.strict;
            let config =
                DeviceConfig { name, traits, mac, strict, clock, faults, joint, ..DeviceConfig::default() };
            let device = Device::new(config, wire)?;
            // A physical function that is alone on its port sees every frame; its steering rules choose.
            device.set_promiscuous(true);
            Ok::<_, ModelError>((device, wire_name))
        };
        let own_end = plug.own_end(&name);
        let mac = self.mac.unwrap_or_else(|| network::mac(&own_end));
        if addresses.is_empty() {
            addresses.push(network::address(&own_end));
        }
        let joint = second.is_some().then(|| Joint::pair(mac));
        let memlock = faults.memlock.take();
        let (device, wire) =
            power_up(&name, mac, faults, joint.as_ref().map(|(first, _)| first.clone()), plug)?;
        let second = match (second, joint) {
            (Some(Second { plug, addresses }), Some((_, joint))) => {
                let name = format!("{name} port 2");
                let own_end = plug.own_end(&name);
                let (mac, address) =
                    addresses.unwrap_or_else(|| (network::mac(&own_end), network::address(&own_end)));
                let (device, wire) = power_up(&name, mac, FaultPlan::default(), Some(joint), plug)?;
                Some((device, address, wire))
            }
            _ => None,
        };
        let turns = Arc::new(Turns {
            device: Arc::clone(&device),
            second: second.as_ref().map(|(device, ..)| Arc::clone(device)),
            kernel: OnceLock::new(),
            clock: clock.clone(),
        });
        let steps = self.stepped.then(|| Arc::clone(&turns) as Arc<dyn Steps>);
        let start = |device: &Arc<Device>, addresses| {
            let memory = Arc::new(device.memory().clone());
            let frames = Arc::new(Station { device: Arc::clone(device), steps: steps.clone() });
            Kernel::with_network(Arc::clone(device) as _, memory, door, Network { frames, addresses })
        };
        let kernel = start(&device, addresses)?;
        if let Some((device, address, _)) = &second {
            let second: Arc<Kernel> = start(device, vec![*address])?;
            kernel.join(&second)?;
        }
        if let Some(bytes) = memlock {
            device.memory().limit_further(bytes);
        }
        if self.process_memlock {
            device.memory().limit_as_the_process();
        }
        // Set once, here.
        let _ = turns.kernel.set(Arc::downgrade(&kernel));
        let running =
            if self.stepped { None } else { Some(worker::run(Arc::clone(&turns) as _, self.core)?) };
        let second_wire = second.map(|(.., wire)| wire);
        Ok(Model { running, kernel, turns, device, profile, name, wire, second_wire })
    }
}

/// What a thread, or the caller, does in turn.
struct Turns {
    device: Arc<Device>,
    /// The function of a second port.
    second: Option<Arc<Device>>,
    /// Not kept: the kernel's network has these turns.
    kernel: OnceLock<Weak<Kernel>>,
    clock: Clock,
}

impl Turns {
    fn devices(&self) -> impl Iterator<Item = &Arc<Device>> {
        std::iter::once(&self.device).chain(&self.second)
    }
}

impl Steps for Turns {
    fn step(&self) -> bool {
        if self.device.is_gone() {
            return false;
        }
        self.clock.advance(STEP);
        let worked = self.devices().fold(false, |worked, device| device.step(BUDGET) | worked);
        if self.device.is_gone() {
            if let Some(second) = &self.second {
                second.remove();
            }
            // By the plan of faults: the kernel hears of it from the bus, as of a card that is pulled out.
            if let Some(kernel) = self.kernel.get().and_then(Weak::upgrade) {
                kernel.remove();
            }
        }
        worked
    }

    fn name(&self) -> String {
        self.device.name().to_owned()
    }
}

/// A running model. Dropping it first lets a frame that is sent but for a busy wire go, then ends its thread, then its kernel's half,
/// then the device; channels that are still open keep the device's memory and find it gone.
pub struct Model {
    // Field order is drop order: nothing steps the device while the rest goes.
    running: Option<Running>,
    kernel: Arc<Kernel>,
    turns: Arc<Turns>,
    device: Arc<Device>,
    profile: Profile,
    name: String,
    wire: String,
    second_wire: Option<String>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.name)
            .field("profile", &self.profile)
            .field("wire", &self.wire)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Begins to say what a model shall be: a ConnectX-6 Dx on no wire, threaded.
    pub fn builder(name: &str) -> Builder {
        Builder {
            name: name.into(),
            profile: Profile::default(),
            traits: Profile::default().traits(),
            door: DoorProfile::default(),
            plug: Plug::Spec(WireSpec::Null),
            second: None,
            impairments: Impairments::default(),
            mac: None,
            addresses: Vec::new(),
            faults: FaultPlan::default(),
            core: None,
            stepped: false,
            strict: true,
            pause: true,
            process_memlock: false,
        }
    }

    /// The address of the port of a model of that name, or whose end of its wire has that name.
    #[must_use]
    pub fn mac_of(name: &str) -> [u8; 6] {
        network::mac(name)
    }

    /// The same for its IPv4 address.
    #[must_use]
    pub fn address_of(name: &str) -> InterfaceAddress {
        network::address(name)
    }

    /// A new channel: what opening the device's file is.
    #[must_use]
    pub fn open(&self) -> Arc<dyn Channel> {
        self.kernel.open()
    }

    /// A channel of the kernel's own: [`Kernel::open_for_management`](pollux_mlx5_kernel::Kernel::open_for_management).
    #[must_use]
    pub fn open_for_management(&self) -> Arc<dyn Channel> {
        self.kernel.open_for_management()
    }

    /// One step of a stepped model; whether there was anything to do.
    ///
    /// # Panics
    /// When a thread steps it.
    pub fn step(&self) -> bool {
        assert!(self.running.is_none(), "{} is stepped by its thread", self.name);
        self.turns.step()
    }

    /// Steps until there is nothing more to do, and says how many steps had something.
    ///
    /// # Panics
    /// When there always is: on a wire without end, say.
    pub fn settle(&self) -> usize {
        let steps = (0..SETTLE_MAX).take_while(|_| self.step()).count();
        assert!(steps < SETTLE_MAX, "{} finds work without end", self.name);
        steps
    }

    /// Another process whose calls were made [here](crate::for_process) has ended: the device reaches its memory no more.
    pub fn forget_process(&self, process: i32) {
        self.kernel.forget_process(process.cast_unsigned());
        self.device.memory().forget_process(process);
    }

    /// The device itself.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The device behind its second port, if it has one: another function of the card.
    #[must_use]
    pub fn second_device(&self) -> Option<&Arc<Device>> {
        self.turns.second.as_ref()
    }

    /// The kernel's half.
    #[must_use]
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which card it is.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// What it is plugged into, as the device argument says it.
    #[must_use]
    pub fn wire(&self) -> &str {
        &self.wire
    }

    /// What its second port is plugged into, if it has one.
    #[must_use]
    pub fn second_wire(&self) -> Option<&str> {
        self.second_wire.as_deref()
    }

    /// What it made PCIe carry so far.
    #[must_use]
    pub fn ledger(&self) -> Total {
        self.device.ledger().total()
    }

    /// Takes the device away, as when it is pulled out: contexts are told, nothing is answered any more.
    pub fn remove(&self) {
        self.turns.devices().for_each(|device| device.remove());
        self.kernel.remove();
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // Who steps a model can do so until nothing waits.
        let until = self.running.as_ref().map(|_| Instant::now() + LINGER);
        while until.is_some_and(|until| Instant::now() < until)
            && self.turns.devices().any(|device| device.has_frame_waiting())
        {
            std::thread::sleep(STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::wire::Sent;

    /// Says "not now" so often, then takes frames.
    #[derive(Debug)]
    struct Slow {
        offers: AtomicU32,
        taken: Arc<Mutex<Vec<Vec<u8>>>>,
    }

    impl Wire for Slow {
        fn send(&mut self, frame: &[u8]) -> Sent {
            if self.offers.fetch_add(1, Ordering::Relaxed) < 200 {
                return Sent::Busy;
            }
            self.taken.lock().expect("nobody panicked").push(frame.to_vec());
            Sent::Yes
        }

        fn receive(&mut self, _room: &mut [u8]) -> Option<usize> {
            None
        }

        fn is_up(&self) -> bool {
            true
        }

        fn describe(&self) -> String {
            "slow".into()
        }
    }

    #[test]
    fn the_last_frame_leaves_though_its_model_is_dropped() {
        let taken = Arc::default();
        let wire = Slow { offers: AtomicU32::new(0), taken: Arc::clone(&taken) };
        let model = Model::builder("mlx5_model0").plugged(wire).build().expect("a model");
        model.device().send_frame(&[7; 60]);
        while !model.device().has_frame_waiting() {
            std::thread::yield_now();
        }
        drop(model);
        assert_eq!(*taken.lock().expect("nobody panicked"), [vec![7; 60]]);
    }
}
