//! A looped ring port: what is sent comes back. No device, no privileges.
//!
//! `cargo run --example loopback -p pollux-port-soft`

use pollux_mempool::{Burst, MbufPool};
use pollux_port::{PortConfig, Ports, Queues};
use pollux_port_soft::ring;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let pool = MbufPool::builder("loopback", 1023).build_anonymous()?;

    // The control handle: it stays here.
    let mut ports = Ports::new();
    let id = ports.add("net_ring0", Box::new(ring::looped("net_ring0")))?;
    let port = ports.get_mut(id).ok_or("the port was just made")?;

    // The queues: values that move to whoever polls them.
    let Queues { mut rx, mut tx } = port.bring_up(PortConfig::queues(1, 1, &pool))?;
    let (mac, link) = (port.mac_address()?, port.link());
    println!("{}: {mac}, link {link}", port.name());

    let lcore = std::thread::spawn(move || {
        let mut burst = Burst::new();
        for number in 0..1000_u32 {
            pool.alloc_up_to(&mut burst, 32);
            for mbuf in &mut burst {
                // An mbuf of this pool has room for 64 bytes and more.
                mbuf.append_slice(&[number as u8; 64]);
            }
            while !burst.is_empty() {
                tx[0].tx_burst(&mut burst);
            }
            rx[0].rx_burst(&mut burst, 32);
            // Dropping a burst frees its mbufs, wherever they come from.
            burst.clear();
        }
    });
    lcore.join().map_err(|_| "the lcore panicked")?;

    port.stop()?;
    for xstat in port.xstats().into_iter().filter(|xstat| xstat.value > 0) {
        println!("{:>20} {}", xstat.name, xstat.value);
    }
    port.close()?;
    Ok(())
}
