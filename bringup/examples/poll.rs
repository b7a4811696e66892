//! Opens the ports of a command line and polls each once: `cargo run -p pollux-bringup --example poll`.

use pollux_bringup::{Bringup, BringupError, PortRequest};
use pollux_config::CommandLine;
use pollux_mempool::Burst;

fn main() -> Result<(), BringupError> {
    let line = CommandLine::parse(std::env::args_os())?;
    let mut bringup = Bringup::new(&line)?;
    let ids: Vec<_> = bringup.ports.iter().map(|port| port.id()).collect();
    let (mut queues, _pool) = bringup.start_ports(&ids, &PortRequest::new().lcores(1))?;
    for queue in queues.iter_mut().flat_map(|queues| &mut queues.rx) {
        let mut burst = Burst::new();
        let received = queue.rx_burst(&mut burst, 32);
        println!("{}: {received} packets", queue.port_name());
    }
    Ok(())
}
