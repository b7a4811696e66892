//! The conformance list on null, ring and datagram ports, plain and under layers.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};

use pollux_port::conformance::{Feed, Fixture, Subject, run};
use pollux_port::driver::PortDriver;
use pollux_port::layer::fault::FaultPlan;
use pollux_port::layer::tee::{FrameSink, SeenFrame};
use pollux_port::layer::tracer::TraceMode;
use pollux_port::layer::{LayerSpec, wrap};
use pollux_port_soft::datagram::{DatagramPort, Datagrams};
use pollux_port_soft::null::{NullOptions, NullPort};
use pollux_port_soft::ring;

struct Null(NullOptions);

impl Fixture for Null {
    fn open(&self) -> Subject {
        let driver = NullPort::new("net_null0", self.0.clone()).expect("good options");
        let feed = if self.0.no_rx { Feed::Nothing } else { Feed::Endless(self.0.size) };
        Subject { name: "net_null0".into(), driver: Box::new(driver), feed, sent: None }
    }
}

#[test]
fn null() {
    run(&Null(NullOptions::default()));
}

#[test]
fn null_with_copy() {
    run(&Null(NullOptions { copy: true, size: 1514, ..NullOptions::default() }));
}

#[test]
fn null_without_rx() {
    run(&Null(NullOptions { no_rx: true, ..NullOptions::default() }));
}

struct Looped;

impl Fixture for Looped {
    fn open(&self) -> Subject {
        let driver = Box::new(ring::looped("net_ring0"));
        Subject { name: "net_ring0".into(), driver, feed: Feed::Loop, sent: None }
    }

    fn frame_lengths(&self) -> (usize, usize) {
        (14 + 4, 2048)
    }
}

#[test]
fn looped_ring() {
    run(&Looped);
}

struct Socket(UnixDatagram);

impl Datagrams for Socket {
    fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        self.0.recv(room)
    }

    fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame).map(drop)
    }
}

/// The port at one end, a plain socket at the other. Of a Unix socket nothing is lost.
struct Facing {
    mtu: u32,
}

impl Fixture for Facing {
    fn open(&self) -> Subject {
        let (near, far) = UnixDatagram::pair().expect("sockets");
        for end in [&near, &far] {
            end.set_nonblocking(true).expect("polls");
        }
        let port = DatagramPort::new("net_test", "net_test0", Socket(near)).mtu(self.mtu);
        let far = Arc::new(far);
        let giver = Arc::clone(&far);
        let give =
            move |frame: &[u8]| assert_eq!(giver.send(frame).expect("the kernel takes it"), frame.len());
        let sent = move || {
            let mut room = [0; 16_384];
            std::iter::from_fn(|| far.recv(&mut room).ok().map(|bytes| room[..bytes].to_vec())).collect()
        };
        Subject {
            name: "net_test0".into(),
            driver: Box::new(port),
            feed: Feed::Given(Box::new(give)),
            sent: Some(Box::new(sent)),
        }
    }
}

#[test]
fn datagram() {
    run(&Facing { mtu: 1500 });
}

/// A sink that keeps nothing: the layer is what is tested.
struct Sink;

impl FrameSink for Sink {
    fn frame(&mut self, _frame: SeenFrame<'_>) -> std::io::Result<()> {
        Ok(())
    }
}

/// Layers that change nothing must not be noticed.
struct Layered<F>(F);

fn layers(name: &str, driver: Box<dyn PortDriver>) -> Box<dyn PortDriver> {
    let spec = LayerSpec {
        fault: Some(FaultPlan::default()),
        tee: Some("in memory".into()),
        trace: Some(TraceMode::Summary),
    };
    wrap(name, driver, &spec, |_| Ok(Arc::new(Mutex::new(Sink)))).expect("the sink opens")
}

impl<F: Fixture> Fixture for Layered<F> {
    fn open(&self) -> Subject {
        let subject = self.0.open();
        Subject { driver: layers(&subject.name, subject.driver), ..subject }
    }

    fn frame_lengths(&self) -> (usize, usize) {
        self.0.frame_lengths()
    }
}

#[test]
fn null_under_layers() {
    run(&Layered(Null(NullOptions::default())));
}

#[test]
fn looped_ring_under_layers() {
    run(&Layered(Looped));
}
