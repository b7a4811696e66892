//! What is served under which path.

use std::cell::{OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};

use super::host::is_ours;
use super::stream::{Content, Streams, Subscription};
use crate::prometheus;
use crate::sample::{Sample, Sampler};

/// Streams of events at a time.
const STREAMS_MAX: usize = 32;
/// Time between events.
const PERIOD: Duration = Duration::from_secs(1);
/// Samples younger than this are told again, as they are: neither drivers nor this thread have more to do for more clients.
const FRESH: Duration = Duration::from_millis(100);

/// The live page, without anything to load beside it.
const PAGE: &str = include_str!("page.html");
/// Nothing but what is in the page, and the events.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
                           base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What clients are told, and who listens.
pub(super) struct Site {
    listening: IpAddr,
    sampler: RefCell<Sampler>,
    latest: RefCell<Option<Rc<Latest>>>,
    streams: Streams,
}

/// The last sample, and what was made of it.
struct Latest {
    taken: Instant,
    sample: Sample,
    metrics: OnceCell<Bytes>,
    json: OnceCell<Bytes>,
}

impl Latest {
    fn metrics(&self) -> Bytes {
        self.metrics.get_or_init(|| prometheus::text(&self.sample).into()).clone()
    }

    fn json(&self) -> Bytes {
        let json = || serde_json::to_vec(&self.sample).expect("plain numbers and texts have a JSON form");
        self.json.get_or_init(|| json().into()).clone()
    }
}

impl Site {
    pub(super) fn new(listening: IpAddr, sampler: Sampler) -> Self {
        Self {
            listening,
            sampler: RefCell::new(sampler),
            latest: RefCell::default(),
            streams: Streams::default(),
        }
    }

    fn latest(&self) -> Rc<Latest> {
        let mut latest = self.latest.borrow_mut();
        match &*latest {
            Some(latest) if latest.taken.elapsed() < FRESH => Rc::clone(latest),
            _ => {
                let sample = self.sampler.borrow_mut().sample();
                let (metrics, json) = (OnceCell::new(), OnceCell::new());
                let new = Rc::new(Latest { taken: Instant::now(), sample, metrics, json });
                *latest = Some(Rc::clone(&new));
                new
            }
        }
    }

    fn event(&self) -> Bytes {
        [b"data: ", &self.latest().json()[..], b"\n\n"].concat().into()
    }

    /// Tells those who listen, a sample a second, for ever. Nothing is read while nobody does.
    pub(super) async fn tell(&self) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !self.streams.is_empty() {
                self.streams.send(&self.event());
            }
        }
    }

    /// The answer to a request; with a stream of events, what tells of its end.
    pub(super) fn answer<B>(&self, request: &Request<B>) -> (Response<Content>, Option<Subscription>) {
        let host = request.headers().get(HOST).map(|host| host.to_str().unwrap_or_default());
        if !is_ours(host, self.listening) {
            let why = "this server answers to loopback addresses and localhost alone\n";
            return (text(StatusCode::MISDIRECTED_REQUEST, why), None);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD are answered\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return (refused, None);
        }
        let answer = match request.uri().path() {
            "/" => {
                let mut page = whole("text/html; charset=utf-8", PAGE.into());
                page.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
                page
            }
            "/metrics" => whole(prometheus::CONTENT_TYPE, self.latest().metrics()),
            "/api/counts" => whole("application/json", self.latest().json()),
            "/api/events" if request.method() == Method::GET => return self.subscribe(),
            _ => {
                let paths = "here are /, /metrics, /api/counts and /api/events\n";
                text(StatusCode::NOT_FOUND, paths)
            }
        };
        (answer, None)
    }

    fn subscribe(&self) -> (Response<Content>, Option<Subscription>) {
        match self.streams.subscribe(self.event(), STREAMS_MAX) {
            Some((events, subscription)) => (response("text/event-stream", events), Some(subscription)),
            None => {
                let mut refused =
                    text(StatusCode::SERVICE_UNAVAILABLE, "as many clients read events as may: 32\n");
                refused.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
                (refused, None)
            }
        }
    }
}

fn response(media: &'static str, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn whole(media: &'static str, bytes: Bytes) -> Response<Content> {
    response(media, Content::Whole(Some(bytes)))
}

fn text(status: StatusCode, line: &'static str) -> Response<Content> {
    let mut response = whole("text/plain; charset=utf-8", line.into());
    *response.status_mut() = status;
    response
}
