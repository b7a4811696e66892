//! A channel that writes down what goes through it: every call with its inputs, and what was answered, a line each.
//!
//! ```text
//! call 0x0000/0x0004 0x0000=out 0x0001=in:0100 -> ok 0x0000=02000000 @4711.0
//! write 0x50000001 core=00 driver= -> EINVAL @4711.0
//! map 0x500000 4096 Read -> ok @4711.0
//! close @4711.0
//! ```
//!
//! Behind `@` stands the channel: its process, and its number there. Several channels may write to one file, and each has objects
//! of its own, whose handles are those of other objects in another channel. A trace that reached its limit ends in [`FULL`].
//!
//! Numbers of objects, methods and attributes are the kernel's own; bytes are hexadecimal, as the kernel sees them. Two
//! devices that are asked the same and write the same lines are the same to their driver.
#![expect(unsafe_code, reason = "a channel in front of another")]

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::call::{Call, Value, WriteCall};
use crate::channel::{Channel, Route};
use crate::page::{Page, Protection};
use crate::{Context, Driver, Errno, UverbsError};

/// The last line of a trace that is as long as it may be.
pub const FULL: &str = "full";

/// Channels that were traced in this process.
static CHANNELS: AtomicU64 = AtomicU64::new(0);

/// A channel around another one.
pub struct Traced {
    channel: Arc<dyn Channel>,
    /// What its lines end in; empty where all lines are its own.
    end: String,
    to: Mutex<Box<dyn Write + Send>>,
    /// Turns the lines on; where there is none, they always are.
    switch: Option<Switch>,
}

/// Turns lines on and off while their channels are at work. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<Switched>);

#[derive(Default)]
struct Switched {
    /// Read before each call, so that a call costs nothing while there are no lines.
    on: AtomicBool,
    to: Mutex<Option<Box<dyn Write + Send>>>,
}

impl fmt::Debug for Switched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switched").field("on", &self.on).finish_non_exhaustive()
    }
}

impl Switch {
    /// Lines go to `to` from now on, until one cannot be written: then they are off again.
    pub fn on(&self, to: Box<dyn Write + Send>) {
        let mut place = self.to();
        *place = Some(to);
        self.0.on.store(true, Ordering::Relaxed);
    }

    /// Lines go nowhere.
    pub fn off(&self) {
        self.turn_off(&mut self.to());
    }

    fn turn_off(&self, place: &mut Option<Box<dyn Write + Send>>) {
        self.0.on.store(false, Ordering::Relaxed);
        *place = None;
    }

    /// Whether lines go anywhere.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.on.load(Ordering::Relaxed)
    }

    /// Whether there is another clone: a channel, or who turns it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn to(&self) -> MutexGuard<'_, Option<Box<dyn Write + Send>>> {
        self.0.to.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is written goes to where lines go, or nowhere.
impl Write for Switch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut place = self.to();
        if place.as_mut().is_some_and(|to| to.write_all(bytes).is_err()) {
            self.turn_off(&mut place);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traced").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl Traced {
    /// Writes what goes through `channel` to `to`. A line that cannot be written is lost; the call is not.
    #[must_use]
    pub fn new(channel: Arc<dyn Channel>, to: Box<dyn Write + Send>) -> Self {
        let number = CHANNELS.fetch_add(1, Ordering::Relaxed);
        Self { channel, end: format!(" @{}.{number}", std::process::id()), to: Mutex::new(to), switch: None }
    }

    /// Writes what goes through `channel` to where `switch` says, while it says so.
    #[must_use]
    pub fn switched(channel: Arc<dyn Channel>, switch: Switch) -> Self {
        let mut traced = Self::new(channel, Box::new(switch.clone()));
        traced.switch = Some(switch);
        traced
    }

    fn is_on(&self) -> bool {
        self.switch.as_ref().is_none_or(Switch::is_on)
    }

    /// Writes what goes through `channel` to `to`, where no other channel writes: without a number, and without a line for its end.
    fn alone(channel: Arc<dyn Channel>, to: Box<dyn Write + Send>) -> Self {
        Self { channel, end: String::new(), to: Mutex::new(to), switch: None }
    }

    fn line(&self, asked: &str, outcome: Result<(), Errno>, answered: &str) {
        let outcome = match outcome {
            Ok(()) => "ok".to_owned(),
            Err(errno) => errno.name().map_or_else(|| format!("{errno:?}"), str::to_owned),
        };
        self.write_line(&format!("{asked} -> {outcome}{answered}"));
    }

    /// A line in one write: several writers of one file that grows keep their lines whole.
    fn write_line(&self, line: &str) {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        drop(to.write_all(format!("{line}{}\n", self.end).as_bytes()));
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if !self.end.is_empty() && self.is_on() {
            self.write_line("close");
        }
    }
}

impl Channel for Traced {
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
        if !self.is_on() {
            // SAFETY: the same call, by the caller.
            return unsafe { self.channel.call(call) };
        }
        let mut asked = format!("call {:#06x}/{:#06x}", call.object, call.method);
        for attribute in call.attributes() {
            let value = match &attribute.value {
                Value::Small(small) => format!("in:{}", hex(small.bytes())),
                Value::In(bytes) => format!("in:{}", hex(bytes)),
                Value::Element(element, bytes) => format!("element:{element}:{}", hex(bytes)),
                Value::Out(output) => format!("out:{}", output.room()),
                Value::Handle(handle) => format!("handle:{handle}"),
                Value::NewHandle(_) => "new".into(),
                Value::Fd(_) => "fd".into(),
                Value::NewFd(_) => "newfd".into(),
            };
            asked += &format!(" {:#06x}={value}", attribute.id);
        }
        // SAFETY: the same call, by the caller.
        let outcome = unsafe { self.channel.call(call) };
        let mut answered = String::new();
        for attribute in call.attributes() {
            let value = match &attribute.value {
                // The whole room: a kernel does not tell how much of it an answer took.
                Value::Out(output) => output.written().map(|_| hex(output.all())),
                Value::NewHandle(handle) => handle.map(|handle| format!("handle:{handle}")),
                Value::NewFd(fd) => fd.as_ref().map(|_| "fd".into()),
                _ => None,
            };
            if let Some(value) = value {
                answered.push_str(&format!(" {:#06x}={value}", attribute.id));
            }
        }
        self.line(&asked, outcome, &answered);
        outcome
    }

    unsafe fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno> {
        if !self.is_on() {
            // SAFETY: the same command, by the caller.
            return unsafe { self.channel.write(command, route) };
        }
        let (number, core, driver) = (command.command, hex(command.core_in), hex(command.driver_in));
        let asked = format!("write {number:#010x} {route:?} core={core} driver={driver}");
        // SAFETY: the same command, by the caller.
        let outcome = unsafe { self.channel.write(command, route) };
        let mut answered = String::new();
        for (name, output) in [("core", &command.core_out), ("driver", &command.driver_out)] {
            if outcome.is_ok() && output.room() > 0 {
                answered.push_str(&format!(" {name}={}", hex(output.all())));
            }
        }
        self.line(&asked, outcome, &answered);
        outcome
    }

    fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        let page = self.channel.map(offset, bytes, protection);
        if !self.is_on() {
            return page;
        }
        let asked = format!("map {offset:#x} {bytes} {protection:?}");
        self.line(&asked, page.as_ref().map(drop).map_err(|errno| *errno), "");
        page
    }

    fn describe(&self) -> String {
        self.channel.describe()
    }

    fn words(&self) -> Option<String> {
        self.channel.words()
    }
}

/// Bytes as the lines have them.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// Lines in memory. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Returns the lines since this was called last.
    #[must_use]
    pub fn take(&self) -> String {
        let lines = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8_lossy(&lines).into_owned()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Asks a device what can be asked without making anything but a context: the context itself, the device, its port, a port
/// that it lacks. The lines of [`Traced`], without the channel. `request` is the driver's part of the request for the context; the
/// rest is the room for the driver's part of two answers.
///
/// # Errors
/// What opening the context or a query says.
pub fn survey(
    channel: Arc<dyn Channel>,
    driver: u32,
    request: &[u8],
    context_bytes: usize,
    device_bytes: usize,
) -> Result<String, UverbsError> {
    let lines = Lines::default();
    let channel = Arc::new(Traced::alone(channel, Box::new(lines.clone())));
    let mut answer = vec![0; context_bytes];
    // SAFETY: it lives in this function, which makes nothing of it.
    let context = unsafe { Context::open(channel, driver, Driver::new(request, &mut answer))? };
    context.query_device(Driver::new(&[], &mut vec![0; device_bytes]))?;
    context.query_port(1)?;
    // Refused, which is an answer too.
    drop(context.query_port(2));
    drop(context);
    Ok(lines.take())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers one method, and refuses the rest.
    #[derive(Debug)]
    struct Answers;

    impl Channel for Answers {
        unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
            match call.attributes_mut() {
                [first, second, ..] => {
                    if let (Value::Out(output), Value::NewHandle(handle)) =
                        (&mut first.value, &mut second.value)
                    {
                        output.write(&[1, 2]);
                        *handle = Some(9);
                    }
                    Ok(())
                }
                _ => Err(Errno::EPROTONOSUPPORT),
            }
        }

        unsafe fn write(&self, _command: &mut WriteCall<'_>, _route: Route) -> Result<(), Errno> {
            Err(Errno::EINVAL)
        }

        fn map(&self, _offset: u64, _bytes: usize, _protection: Protection) -> Result<Page, Errno> {
            Err(Errno::EPERM)
        }

        fn describe(&self) -> String {
            "answers".into()
        }
    }

    #[test]
    fn each_call_and_answer_is_a_line() {
        let lines = Lines::default();
        let traced = Traced::alone(Arc::new(Answers), Box::new(lines.clone()));
        let mut call = Call::new(3, 0x1001);
        call.answer(0, 4).new_object(1).u32(2, 0x0403_0201).object(3, 7).bytes(0x1000, &[0xff; 9]);
        // SAFETY: nothing is behind it.
        assert_eq!(unsafe { traced.call(&mut call) }, Ok(()));
        // SAFETY: as above.
        assert_eq!(unsafe { traced.call(&mut Call::new(1, 2)) }, Err(Errno::EPROTONOSUPPORT));
        assert!(traced.map(0x5000, 4096, Protection::Read).is_err());
        drop(traced);
        assert_eq!(
            lines.take(),
            "call 0x0003/0x1001 0x0000=out:4 0x0001=new 0x0002=in:01020304 0x0003=handle:7 \
             0x1000=in:ffffffffffffffffff -> ok 0x0000=01020000 0x0001=handle:9\n\
             call 0x0001/0x0002 -> EPROTONOSUPPORT\n\
             map 0x5000 4096 Read -> EPERM\n"
        );
    }

    /// Takes one line, and no more.
    struct One(Lines, bool);

    impl Write for One {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match std::mem::replace(&mut self.1, true) {
                false => self.0.write(bytes),
                true => Err(io::ErrorKind::StorageFull.into()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_switch_is_off_behind_a_line_that_cannot_be_written() {
        let (lines, switch) = (Lines::default(), Switch::default());
        let traced = Traced::switched(Arc::new(Answers), switch.clone());
        let map = || drop(traced.map(0x5000, 4096, Protection::Read));
        map();
        switch.on(Box::new(One(lines.clone(), false)));
        for on in [true, false, false] {
            map();
            assert_eq!(switch.is_on(), on);
        }
        assert_eq!(lines.take().lines().count(), 1);
        switch.on(Box::new(lines.clone()));
        map();
        switch.off();
        map();
        assert_eq!(lines.take().lines().count(), 1);
    }

    #[test]
    fn channels_that_share_a_file_are_told_apart() {
        let lines = Lines::default();
        let [one, two] = [(); 2].map(|()| Traced::new(Arc::new(Answers), Box::new(lines.clone())));
        let map = |traced: &Traced| {
            assert!(traced.map(0x5000, 4096, Protection::Read).is_err());
            lines.take()
        };
        let (first, second) = (map(&one), map(&two));
        let (said, number) = first.trim_end().rsplit_once(" @").expect("a channel");
        assert_eq!(said, "map 0x5000 4096 Read -> EPERM");
        assert!(number.starts_with(&format!("{}.", std::process::id())), "{number}");
        assert_ne!(first, second);
        drop(one);
        assert_eq!(lines.take(), format!("close @{number}\n"));
        assert_eq!(map(&two), second);
    }
}
