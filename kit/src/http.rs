//! `--metrics`: what the program counts, over HTTP, while it runs.
//!
//! ```text
//!   GET /            the live page, one file               GET /metrics      Prometheus
//!   GET /api/events  a sample a second, as events          GET /api/counts   the same, once
//! ```
//!
//! One thread serves all clients: hyper on a runtime of that thread alone. hyper because it is what most of Rust's HTTP stands on and is
//! kept accordingly, bounds what a client may send, and needs no more than tokio's sockets and timers; axum is hyper with a router for
//! four paths, and tiny_http, a thread a client without limits in time, has had no release since 2022. Lcores do not notice: counters
//! are read as telemetry reads them.
//!
//! A connection carries one request and has ten seconds for it, [`CONNECTIONS_MAX`] are open at a time, and the oldest one makes room for
//! the next. A stream of events lasts as long as its client reads; there are 32 at most, which do not count among those.

mod host;
mod site;
mod stream;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use pollux_bringup::program::say;
use pollux_bringup::{Bringup, BringupError};
use pollux_eal::ControlThread;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, LocalSet};

use crate::meter::Meter;
use crate::sample::Sampler;
use site::Site;

/// Connections at a time that are no streams of events.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may take for its request and the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
const HEAD_MAX: usize = 16 * 1024;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// Bytes that the kernel keeps for a client that does not read.
const SEND_BUFFER: usize = 256 * 1024;
/// How long nobody is accepted after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The address of `--metrics`, on which nobody is answered yet.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Takes the address.
    ///
    /// # Errors
    /// [`BringupError::Usage`]: it is another program's, not this machine's, or one that needs rights.
    pub fn bind(address: SocketAddr) -> Result<Self, BringupError> {
        let refused = |error: std::io::Error| {
            let port = address.port();
            let why = match error.kind() {
                ErrorKind::AddrInUse => {
                    "is in use by another program: choose another port, or 0 for any free one".into()
                }
                ErrorKind::PermissionDenied => {
                    format!(
                        "may not be opened: port {port} needs root or CAP_NET_BIND_SERVICE, those from 1024 on do not"
                    )
                }
                ErrorKind::AddrNotAvailable => {
                    format!("is not an address of this machine: give {port} alone for 127.0.0.1")
                }
                _ => format!("cannot be opened: {error}"),
            };
            BringupError::Usage(format!("option '--metrics': {address} {why}"))
        };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        // What it accepts inherits this.
        rustix::net::sockopt::set_socket_send_buffer_size(&listener, SEND_BUFFER)
            .map_err(|errno| refused(errno.into()))?;
        Ok(Self(listener))
    }

    /// Answers from now on, until what is returned is dropped. A line on standard error says where.
    ///
    /// # Errors
    /// [`BringupError::Runtime`]: no thread or descriptor is left.
    pub fn serve(self, app: &str, bringup: &Bringup, meter: &Meter) -> Result<Served, BringupError> {
        let failed =
            |error: std::io::Error| BringupError::Runtime(format!("cannot serve --metrics: {error}"));
        let address = self.0.local_addr().map_err(failed)?;
        let sampler = Sampler::new(app, meter, bringup.view());
        let (end, ended) = oneshot::channel::<Infallible>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let thread = bringup.eal.control_thread("metrics", move |_| {
            let site = Rc::new(Site::new(address.ip(), sampler));
            let tasks = LocalSet::new();
            tasks.spawn_local(accept(self.0, Rc::clone(&site)));
            tasks.spawn_local(async move { site.tell().await });
            // Until the other end is dropped; the tasks go with their set.
            let _end = tasks.block_on(&runtime, ended);
        })?;
        let open = if address.ip().is_loopback() { "" } else { "; whoever reaches that address can read it" };
        say(format_args!("{app}: metrics and live page at http://{address}/{open}"));
        Ok(Served { end: Some(end), thread: Some(thread) })
    }
}

/// Answers as long as it lives.
#[derive(Debug)]
pub struct Served {
    end: Option<oneshot::Sender<Infallible>>,
    thread: Option<ControlThread<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // Its panic stopped the `Eal`, which tells of it.
            let _ended = thread.wait();
        }
    }
}

/// Accepts clients for ever.
async fn accept(listener: TcpListener, site: Rc<Site>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            say(format_args!("--metrics is not served: {error}"));
            return std::future::pending().await;
        }
    };
    let mut open: VecDeque<Open> = VecDeque::new();
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                // The client gave up meanwhile, or no descriptor is left.
                if error.kind() != ErrorKind::ConnectionAborted {
                    tokio::time::sleep(PAUSE).await;
                }
                continue;
            }
        };
        open.retain(|connection| !connection.task.is_finished() && !connection.streams.get());
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.task.abort();
        }
        let streams = Rc::new(Cell::new(false));
        let answered = connection(socket, Rc::clone(&site), Rc::clone(&streams));
        open.push_back(Open { task: tokio::task::spawn_local(answered).abort_handle(), streams });
        // Who asks at once is answered before others are accepted, however many come.
        tokio::task::yield_now().await;
    }
}

/// A connection that was accepted.
struct Open {
    task: AbortHandle,
    /// It is a stream of events.
    streams: Rc<Cell<bool>>,
}

/// One connection: a request, its answer, and the events that follow if it asked for them.
async fn connection(socket: TcpStream, site: Rc<Site>, streams: Rc<Cell<bool>>) {
    let subscribed = RefCell::new(None);
    let answer = service_fn(|request: Request<Incoming>| {
        let (response, subscription) = site.answer(&request);
        streams.set(subscription.is_some());
        *subscribed.borrow_mut() = subscription;
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).max_buf_size(HEAD_MAX).max_headers(HEADERS_MAX);
    let mut served = pin!(builder.serve_connection(TokioIo::new(socket), answer));
    if tokio::time::timeout(PATIENCE, served.as_mut()).await.is_ok() {
        return;
    }
    let Some(mut given_up) = subscribed.take() else { return };
    let over = |context: &mut Context<'_>| {
        let over = served.as_mut().poll(context).is_ready() || pin!(&mut given_up).poll(context).is_ready();
        if over { Poll::Ready(()) } else { Poll::Pending }
    };
    std::future::poll_fn(over).await;
}
