//! What a datagram port does with what its datagrams say: each outcome is counted once, under its reason.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

use pollux_mempool::{Burst, MbufPool};
use pollux_port::{FrameSource, MacAddress, Port, PortConfig, PortEvent, PortId, Queues};
use pollux_port_soft::datagram::{DatagramPort, Datagrams};

/// What each call is answered: the length of a frame, or an error.
type Plan = Arc<Mutex<VecDeque<Result<usize, ErrorKind>>>>;

struct Planned {
    rx: Plan,
    tx: Plan,
}

fn next(plan: &Plan) -> io::Result<usize> {
    let next = plan.lock().expect("whole").pop_front();
    next.unwrap_or(Err(ErrorKind::WouldBlock)).map_err(io::Error::from)
}

impl Datagrams for Planned {
    fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        next(&self.rx).map(|bytes| bytes.min(room.len()))
    }

    fn send(&self, _: &[u8]) -> io::Result<()> {
        next(&self.tx).map(drop)
    }
}

struct Rig {
    port: Port,
    queues: Queues,
    pool: MbufPool,
    rx: Plan,
    tx: Plan,
}

fn rig(mbufs: usize) -> Rig {
    let (rx, tx) = (Plan::default(), Plan::default());
    let planned = Planned { rx: Arc::clone(&rx), tx: Arc::clone(&tx) };
    let mac = MacAddress([2, 0, 0, 0, 0, 7]);
    let driver = DatagramPort::new("net_test", "net_test0", planned).mtu(1000).mac(mac).device("a plan");
    let pool = MbufPool::builder("datagram", mbufs).build_anonymous().expect("memory");
    let mut port = Port::new(PortId(0), "net_test0", Box::new(driver));
    assert_eq!(
        (port.info().device.as_deref(), port.mac_address().expect("it has one")),
        (Some("a plan"), mac)
    );
    let queues = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("a port");
    Rig { port, queues, pool, rx, tx }
}

fn dropped(port: &mut Port) -> Vec<(&'static str, u64)> {
    port.dropped()
        .iter()
        .map(|drop| (drop.reason, drop.packets))
        .filter(|(_, packets)| *packets > 0)
        .collect()
}

#[test]
fn frames_that_are_no_frames_are_counted() {
    let mut rig = rig(63);
    // A header alone is the shortest frame; 18 bytes stand round an MTU of 1000.
    rig.rx.lock().expect("whole").extend([Ok(0), Ok(13), Ok(14), Ok(1018), Ok(1019), Ok(9000), Ok(60)]);
    let mut burst = Burst::new();
    assert_eq!(rig.queues.rx[0].rx_burst(&mut burst, 7), 3);
    assert_eq!(burst.iter().map(|mbuf| mbuf.pkt_len()).collect::<Vec<_>>(), [14, 1018, 60]);
    assert_eq!(dropped(&mut rig.port), [("too long", 2), ("malformed", 2)]);
    assert_eq!((rig.port.stats().ipackets, rig.port.stats().ibytes), (3, 1092));
}

#[test]
fn an_endless_stream_of_nonsense_does_not_hold_a_burst() {
    let mut rig = rig(63);
    rig.rx.lock().expect("whole").extend([Ok(3); 40]);
    let mut burst = Burst::new();
    assert_eq!(rig.queues.rx[0].rx_burst(&mut burst, 32), 0);
    assert_eq!(dropped(&mut rig.port), [("malformed", 32)]);
}

#[test]
fn packets_wait_for_room_and_are_dropped_for_anything_else() {
    let mut rig = rig(63);
    let mut burst = Burst::new();
    assert_eq!(rig.pool.alloc_frames(&mut burst, 4, &[7; 60]), 4);
    rig.tx.lock().expect("whole").extend([
        Ok(60),
        Err(ErrorKind::ConnectionRefused),
        Ok(60),
        Err(ErrorKind::WouldBlock),
    ]);
    assert_eq!(rig.queues.tx[0].tx_burst(&mut burst), 3, "sent or dropped");
    assert_eq!((burst.len(), rig.port.stats().opackets), (1, 2), "the fourth is offered again");
    assert_eq!(dropped(&mut rig.port), [("refused", 1)]);
    rig.tx.lock().expect("whole").push_back(Ok(60));
    assert_eq!(rig.queues.tx[0].tx_burst(&mut burst), 1);
    assert_eq!(rig.pool.alloc_frames(&mut burst, 1, &[7; 1019]), 1);
    assert_eq!(rig.queues.tx[0].tx_burst(&mut burst), 1, "what can never be sent is taken");
    assert_eq!(rig.port.stats().opackets, 3);
    assert_eq!(dropped(&mut rig.port), [("too long", 1), ("refused", 1)]);
}

#[test]
fn the_end_of_either_direction_loses_the_port() {
    for end in [ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof] {
        for receives in [true, false] {
            let mut rig = rig(63);
            let mut burst = Burst::new();
            if receives {
                rig.rx.lock().expect("whole").push_back(Err(end));
                assert_eq!(rig.queues.rx[0].rx_burst(&mut burst, 32), 0);
            } else {
                rig.tx.lock().expect("whole").push_back(Err(end));
                assert_eq!(rig.pool.alloc_frames(&mut burst, 1, &[7; 60]), 1);
                assert_eq!(rig.queues.tx[0].tx_burst(&mut burst), 0);
            }
            let event = rig.port.poll_event();
            assert!(matches!(event, Some(PortEvent::Removed)), "{end}, receives {receives}: {event:?}");
        }
    }
}
