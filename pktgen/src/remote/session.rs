//! What clients can ask for, and what is being sent for them.

use std::time::{Duration, Instant};

use pollux_eal::StopFlag;
use pollux_eal::clock::Clock;
use serde_json::{Value, json};

use super::message::{Calls, INVALID_PARAMS, METHOD_NOT_FOUND, NOT_NOW, Refusal};
use crate::rate::Rate;
use crate::report::{Reported, StreamReport};
use crate::setup::{Rig, Running};
use crate::spec::StreamSpec;

/// How long a stop waits for the lanes: they look once a round.
const HALT_MAX: Duration = Duration::from_secs(2);
/// The longest time that can be asked for, in seconds: a year.
const TIME_MAX: f64 = 31_536_000.0;

/// The streams, and what is being sent.
pub(super) struct Session {
    rig: Rig,
    specs: Vec<StreamSpec>,
    /// How long packets are sent where a client does not say.
    time: Option<Duration>,
    clock: Clock,
    stop: StopFlag,
    running: Option<Running>,
}

impl Session {
    pub(super) fn new(
        rig: Rig,
        specs: Vec<StreamSpec>,
        time: Option<Duration>,
        clock: Clock,
        stop: StopFlag,
    ) -> Self {
        Self { rig, specs, time, clock, stop, running: None }
    }

    /// What was sent last.
    pub(super) fn into_streams(self) -> Vec<Reported> {
        self.running.map_or_else(Vec::new, |running| running.streams)
    }

    fn is_sending(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.has_ended())
    }

    /// Sends the streams from their beginning; counts begin at 0.
    fn start(&mut self, params: &Params<'_>) -> Result<Value, Refusal> {
        if self.is_sending() {
            return Err((NOT_NOW, "packets are being sent: stop them first".into()));
        }
        let time = match params.get("duration") {
            None => self.time,
            Some(value) => {
                let seconds = value.as_f64().filter(|seconds| *seconds > 0.0 && *seconds <= TIME_MAX);
                let why = || {
                    (INVALID_PARAMS, format!("duration {value} is no time in seconds from 0 to {TIME_MAX}"))
                };
                Some(Duration::from_secs_f64(seconds.ok_or_else(why)?))
            }
        };
        let tasks = self.rig.tasks(&self.specs, time, |_, name| {
            Err(pollux_bringup::BringupError::Usage(format!(
                "stream '{name}' is a capture file, which clients cannot start"
            )))
        });
        let tasks = tasks.map_err(|error| (NOT_NOW, error.to_string()))?;
        self.running = Some(self.rig.begin(tasks));
        Ok(Value::Null)
    }

    /// Ends the sending.
    fn halt(&mut self) -> Result<Value, Refusal> {
        if let Some(running) = &self.running {
            running.halt();
            let end = Instant::now() + HALT_MAX;
            while !running.has_ended() {
                if Instant::now() > end {
                    return Err((NOT_NOW, "an lcore has not ended yet".into()));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(Value::Null)
    }

    /// Changes the rate of a stream, or of all: at once, and for later starts.
    fn rate(&mut self, params: &Params<'_>) -> Result<Value, Refusal> {
        let stream = self.stream(params)?;
        let text = params.get("rate").and_then(Value::as_str);
        let text = text.ok_or_else(|| (INVALID_PARAMS, "rate, such as \"1mpps\", is missing".to_owned()))?;
        let rate: Rate = text.parse().map_err(|why| (INVALID_PARAMS, format!("rate '{text}' {why}")))?;
        let of = |spec: &&mut StreamSpec| stream.as_ref().is_none_or(|stream| *stream == spec.name);
        if let Some(running) = self.running.as_ref().filter(|running| !running.has_ended()) {
            let changed = self.rig.change(running, stream.as_deref(), rate);
            changed.map_err(|why| (INVALID_PARAMS, format!("rate '{text}': {why}")))?;
        }
        self.specs.iter_mut().filter(of).for_each(|spec| spec.rate = rate);
        Ok(Value::Null)
    }

    /// The counts of a stream, or of all.
    fn stats(&self, params: &Params<'_>) -> Result<Value, Refusal> {
        let stream = self.stream(params)?;
        let streams = self.running.iter().flat_map(|running| &running.streams);
        let wanted = streams.filter(|reported| stream.as_ref().is_none_or(|stream| *stream == reported.name));
        let reports: Vec<StreamReport> = wanted.map(|reported| reported.read(self.clock)).collect();
        Ok(json!({"sending": self.is_sending(), "streams": reports}))
    }

    /// The stream that is named, if one is.
    fn stream(&self, params: &Params<'_>) -> Result<Option<String>, Refusal> {
        let Some(value) = params.get("stream") else { return Ok(None) };
        let known = value.as_str().filter(|name| self.specs.iter().any(|spec| spec.name == *name));
        let names = || self.specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ");
        let why = || (INVALID_PARAMS, format!("stream {value} is not there: there are {}", names()));
        known.map(|name| Some(name.to_owned())).ok_or_else(why)
    }
}

impl Calls for Session {
    fn call(&mut self, method: &str, params: &Value) -> Result<Value, Refusal> {
        match method {
            "start" => self.start(&Params::of(params, &["duration"])?),
            "stop" => Params::of(params, &[]).and_then(|_| self.halt()),
            "rate" => self.rate(&Params::of(params, &["rate", "stream"])?),
            "stats" => self.stats(&Params::of(params, &["stream"])?),
            "quit" => {
                Params::of(params, &[])?;
                self.stop.set();
                Ok(Value::Null)
            }
            other => Err((
                METHOD_NOT_FOUND,
                format!("no method '{other}': there are start, stop, rate, stats and quit"),
            )),
        }
    }
}

/// Named parameters.
struct Params<'a>(&'a Value);

impl<'a> Params<'a> {
    /// Refuses those of other names.
    fn of(params: &'a Value, names: &[&str]) -> Result<Self, Refusal> {
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        match params {
            Value::Null => Ok(Self(params)),
            Value::Array(list) if list.is_empty() => Ok(Self(&Value::Null)),
            Value::Object(members) => match members.keys().find(|name| !names.contains(&name.as_str())) {
                Some(name) => Err((INVALID_PARAMS, format!("no parameter '{name}': there are {known}"))),
                None => Ok(Self(params)),
            },
            _ => Err((INVALID_PARAMS, format!("parameters have names: {known}"))),
        }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name)
    }
}
