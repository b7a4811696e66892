//! A patch cable between two interfaces: whatever arrives at one leaves at the other.
//!
//! `cargo run --release --example patch -- vethA vethB` (needs `CAP_NET_RAW`); `tap:NAME` makes a tap. Ends with Ctrl-C.

use std::error::Error;

use pollux_mempool::{Burst, MbufPool};
use pollux_port::driver::PortDriver;
use pollux_port::{Port, PortConfig, PortId, Queues};
use pollux_port_soft::af_packet::{AfPacketPort, PacketOptions};
use pollux_port_soft::tap::{TapOptions, TapPort};

fn open(id: u16, interface: &str, pool: &MbufPool) -> Result<(Port, Queues), Box<dyn Error>> {
    let driver: Box<dyn PortDriver> = match interface.strip_prefix("tap:") {
        Some(name) => Box::new(TapPort::new(&TapOptions { interface: name.into(), mac: None })?),
        None => Box::new(AfPacketPort::new(PacketOptions::new(interface))?),
    };
    let mut port = Port::new(PortId(id), interface, driver);
    let config = PortConfig { promiscuous: Some(true), ..PortConfig::queues(1, 1, pool) };
    let queues = port.bring_up(config)?;
    Ok((port, queues))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [a, b] = &arguments[..] else { return Err("two interfaces, please".into()) };
    let pool = MbufPool::builder("patch", 8192).build_anonymous()?;
    let (mut port_a, mut a) = open(0, a, &pool)?;
    let (mut port_b, mut b) = open(1, b, &pool)?;
    let mut burst = Burst::new();
    let mut polls = 0u64;
    loop {
        for (from, to) in [(&mut a.rx[0], &mut b.tx[0]), (&mut b.rx[0], &mut a.tx[0])] {
            if from.rx_burst(&mut burst, 32) > 0 {
                to.tx_burst(&mut burst);
                burst.clear();
            }
        }
        polls += 1;
        if polls.is_multiple_of(1 << 20) && (a.rx[0].is_gone() || b.rx[0].is_gone()) {
            for port in [&mut port_a, &mut port_b] {
                let statistics = port.stats();
                println!("{} {}: {statistics:?}", port.name(), port.state());
            }
            return Ok(());
        }
    }
}
