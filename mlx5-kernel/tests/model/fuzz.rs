//! Calls at random: none panics, whatever is in it, and nothing is left of them.
#![expect(unsafe_code, reason = "the calls of a channel are raw")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollux_mlx5_kernel::{Carries, DoorProfile, attributes};
use pollux_uverbs::abi::{id, object::driver};
use pollux_uverbs::call::Small;
use pollux_uverbs::{Call, Channel, Errno, Output, Page, Protection, Route, Value, WriteCall};
use proptest::prelude::*;

use super::bench::{Bench, Opened, address};
use super::fault::everything;

/// One call.
#[derive(Clone, Debug)]
enum Any {
    /// A method, with values for what it takes, some of them left out or of the wrong kind.
    Method { which: usize, values: Vec<Wild> },
    /// A write command.
    Write { command: u32, core: Vec<u8>, driver: Vec<u8>, room: (usize, usize), tunnelled: bool },
    /// A mapping.
    Map { offset: u64, bytes: usize },
}

/// A value of an attribute.
#[derive(Clone, Debug)]
struct Wild {
    number: u64,
    bytes: Vec<u8>,
    room: usize,
    turn: u8,
}

/// Numbers that mean something now and then: handles, flags, sizes, the address of memory that is there.
fn number(memory: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..12,
        2 => (0_u32..64).prop_map(|bit| 1 << bit),
        2 => Just(memory),
        1 => any::<u64>(),
        1 => Just(u64::MAX),
    ]
}

/// Bytes made of such numbers, so that lengths, handles and addresses stand where the layouts have theirs.
fn bytes(memory: u64) -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        number(memory).prop_map(|value| value.to_ne_bytes().to_vec()),
        (0_u32..300, 0_u32..8).prop_map(|(low, high)| { [low.to_ne_bytes(), high.to_ne_bytes()].concat() }),
        any::<[u8; 8]>().prop_map(|bytes| bytes.to_vec()),
    ];
    (prop::collection::vec(word, 0..24), 0_usize..8).prop_map(|(words, cut)| {
        let mut all = words.concat();
        all.truncate(all.len().saturating_sub(cut));
        // Most layouts are longer than most strings of words.
        if cut < 4 {
            all.resize(all.len().max(160), 0);
        }
        all
    })
}

fn wild(memory: u64) -> impl Strategy<Value = Wild> {
    (number(memory), bytes(memory), 0_usize..300, any::<u8>()).prop_map(|(number, bytes, room, turn)| Wild {
        number,
        bytes,
        room,
        turn,
    })
}

fn any_call(memory: u64) -> impl Strategy<Value = Any> {
    prop_oneof![
        6 => (any::<usize>(), prop::collection::vec(wild(memory), 16))
            .prop_map(|(which, values)| Any::Method { which, values }),
        6 => (
            prop_oneof![0_u32..100, any::<u32>()],
            bytes(memory),
            bytes(memory),
            (0_usize..200, 0_usize..200),
            any::<bool>(),
        )
            .prop_map(|(command, core, driver, room, tunnelled)| {
                Any::Write { command, core, driver, room, tunnelled }
            }),
        1 => (
            prop_oneof![
                (0_u64..10, 0_u64..300).prop_map(|(kind, index)| (kind << 8 | index) << 12),
                any::<u64>(),
            ],
            prop_oneof![Just(4096_usize), any::<usize>()],
        )
            .prop_map(|(offset, bytes)| Any::Map { offset, bytes }),
    ]
}

/// All methods there are, by object and number.
fn methods() -> Vec<(u16, u16)> {
    let objects = (0..40).chain(0x1000..0x1010);
    let pairs = objects.flat_map(|object| (0..16).chain(0x1000..0x1008).map(move |method| (object, method)));
    pairs.filter(|(object, method)| attributes(*object, *method).is_some()).collect()
}

fn run(opened: &Opened, methods: &[(u16, u16)], call: &Any) {
    let channel = opened.context.channel();
    match call {
        Any::Method { which, values } => {
            let (object, method) = methods[which % methods.len()];
            let specs = attributes(object, method).unwrap_or_default();
            let mut call = Call::new(object, method);
            call.driver = driver::MLX5;
            for (spec, wild) in specs.iter().zip(values.iter().cycle()) {
                // Now and then one is missing, or is something else.
                if wild.turn < 12 {
                    continue;
                }
                let carries = if wild.turn > 245 { Carries::Number } else { spec.carries };
                let value = match carries {
                    Carries::In(least) if least <= 4 && wild.turn & 1 == 0 => {
                        Value::Small(Small::u32(wild.number as u32))
                    }
                    Carries::In(least) if least <= 8 && wild.turn & 1 == 0 => {
                        Value::Small(Small::u64(wild.number))
                    }
                    Carries::In(_) => Value::In(&wild.bytes),
                    Carries::Number => Value::Small(Small::u64(wild.number)),
                    Carries::Element => Value::Element(wild.turn, &wild.bytes),
                    Carries::Out(_) => Value::Out(Output::owned(wild.room)),
                    Carries::New => Value::NewHandle(None),
                    Carries::NewFd => Value::NewFd(None),
                    Carries::Fd => Value::Fd(std::os::fd::AsFd::as_fd(opened.context.events())),
                    // Mostly one that there is.
                    _ if wild.turn & 3 != 0 => Value::Handle(u32::from(wild.turn >> 5)),
                    _ => Value::Handle(wild.number as u32),
                };
                call.attribute(spec.id, value);
            }
            if let Some(wild) = values.last() {
                call.attribute(pollux_uverbs::abi::object::UHW_IN, Value::In(&wild.bytes)).optional();
                let out = Value::Out(Output::owned(wild.room));
                call.attribute(pollux_uverbs::abi::object::UHW_OUT, out).optional();
            }
            // SAFETY: addresses in it are of a zone that nobody looks into, or of nothing.
            let _ = unsafe { channel.call(&mut call) };
        }
        Any::Write { command, core, driver, room, tunnelled } => {
            let (mut core_room, mut driver_room) = (vec![0; room.0], vec![0; room.1]);
            let mut call = WriteCall {
                driver: driver::MLX5,
                command: *command,
                core_in: core,
                driver_in: driver,
                core_out: Output::borrowed(&mut core_room),
                driver_out: Output::borrowed(&mut driver_room),
                fd: None,
            };
            let route = if *tunnelled { Route::Tunnelled } else { Route::Plain };
            // SAFETY: as above.
            let _ = unsafe { channel.write(&mut call, route) };
        }
        Any::Map { offset, bytes } => {
            let _ = channel.map(*offset, *bytes, Protection::ReadWrite);
        }
    }
}

/// A number of a call's input that is changed on the way.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// Which call, from the first.
    call: usize,
    /// Which of its inputs.
    input: usize,
    /// Where in it, in steps of the number's length.
    at: usize,
    bytes: usize,
    value: u64,
}

impl Change {
    fn apply(&self, to: &mut [u8]) {
        let value = self.value.to_ne_bytes();
        if to.len() >= self.bytes {
            let at = self.at % (to.len() / self.bytes) * self.bytes;
            to[at..at + self.bytes].copy_from_slice(&value[..self.bytes]);
        }
    }
}

fn change(memory: u64) -> impl Strategy<Value = Change> {
    let bytes = prop_oneof![Just(1_usize), Just(2), Just(4), Just(8)];
    (0_usize..40, 0_usize..12, 0_usize..64, bytes, number(memory))
        .prop_map(|(call, input, at, bytes, value)| Change { call, input, at, bytes, value })
}

/// A channel that changes what passes.
#[derive(Debug)]
struct Mangled {
    inner: Arc<dyn Channel>,
    calls: AtomicUsize,
    changes: Vec<Change>,
}

impl Mangled {
    fn now(&self) -> impl Iterator<Item = &Change> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        self.changes.iter().filter(move |change| change.call == call)
    }
}

impl Channel for Mangled {
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
        for change in self.now() {
            let count = call.attributes().len().max(1);
            let Some(attribute) = call.attributes_mut().get_mut(change.input % count) else { continue };
            match &mut attribute.value {
                Value::Small(small) if small.bytes().len() == 4 => {
                    attribute.value = Value::Small(Small::u32(change.value as u32));
                }
                Value::Small(small) => *small = Small::u64(change.value),
                Value::Handle(handle) => *handle = change.value as u32,
                Value::In(bytes) => {
                    let mut own = bytes.to_vec();
                    change.apply(&mut own);
                    // For as long as the test runs.
                    *bytes = own.leak();
                }
                _ => {}
            }
        }
        // SAFETY: the same, by the caller.
        unsafe { self.inner.call(call) }
    }

    unsafe fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno> {
        for change in self.now() {
            let place = if change.input % 2 == 0 { &mut command.core_in } else { &mut command.driver_in };
            let mut own = place.to_vec();
            change.apply(&mut own);
            *place = own.leak();
        }
        // SAFETY: the same, by the caller.
        unsafe { self.inner.write(command, route) }
    }

    fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        self.inner.map(offset, bytes, protection)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// Calls that would work, each a little wrong.
#[test]
fn what_is_nearly_right_neither_panics_nor_stays() {
    let bench = Bench::new(DoorProfile::default());
    let outside = bench.open();
    let zone = outside.zone(1 << 16);
    let before = (bench.watch.left(), bench.device.memory().pinned_bytes());
    let calls = AtomicUsize::new(0);
    let whole = AtomicUsize::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(200));
    let changes = prop::collection::vec(change(address(&zone)), 0..4);
    let result = runner.run(&changes, |changes| {
        let inner = bench.kernel().open();
        let channel = Arc::new(Mangled { inner, calls: AtomicUsize::new(0), changes });
        let result = everything(&bench, Arc::clone(&channel) as Arc<dyn Channel>);
        whole.fetch_add(usize::from(result.is_ok()), Ordering::Relaxed);
        calls.fetch_max(channel.calls.load(Ordering::Relaxed), Ordering::Relaxed);
        drop(channel);
        prop_assert_eq!((bench.watch.left(), bench.device.memory().pinned_bytes()), before.clone());
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    // Some changes hurt and some do not, and they reach the last call.
    let whole = whole.into_inner();
    assert!((30..185).contains(&whole), "{whole} of 200 went through");
    assert!((20..40).contains(&calls.into_inner()));
    drop(outside);
    bench.close();
}

#[test]
fn all_methods_are_known_to_the_test() {
    let methods = methods();
    assert!(methods.len() > 40, "{methods:?}");
    assert!(methods.contains(&(id::cq::OBJECT, id::cq::create::METHOD)));
}

#[test]
fn nothing_panics_and_nothing_is_left() {
    let bench = Bench::new(DoorProfile::default());
    let outside = bench.open();
    let zone = outside.zone(1 << 16);
    let memory = address(&zone);
    let methods = methods();
    let before = (bench.watch.left(), bench.device.memory().pinned_bytes());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(200));
    let calls = prop::collection::vec(any_call(memory), 1..60);
    let result = runner.run(&calls, |calls| {
        let opened = bench.open();
        let cq = opened.cq(4, None);
        let wq = opened.wq(cq.cq.handle, 4, 1);
        let table = opened.must(opened.table(&[wq.wq.handle]));
        opened.must(opened.rss(table.handle, 0));
        for call in &calls {
            run(&opened, &methods, call);
        }
        drop(opened);
        bench.device.step(1);
        prop_assert_eq!((bench.watch.left(), bench.device.memory().pinned_bytes()), before.clone());
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    drop(outside);
    bench.close();
}
