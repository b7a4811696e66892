//! What tx queues must be able to do: an application may send any received packet on any of its ports.

use pollux_port::{Port, PortConfig, PortError, RxOffloads, TxOffloads};

/// The offloads that packets need which come in on a port under this configuration, to leave on another as they are.
///
/// # Errors
/// The port is gone, or does not tell its MTU.
pub fn needed_for(port: &mut Port, config: &PortConfig) -> Result<TxOffloads, PortError> {
    // What the port cannot help: senders on the same machine leave checksums and cutting to it.
    let mut needed = if config.rx_queues.is_empty() { TxOffloads::empty() } else { port.info().rx_open };
    needed.set(TxOffloads::MULTI_SEGS, port.may_receive_chains(config)?);
    if config.rx_offloads.contains(RxOffloads::TCP_LRO) {
        // What was joined is cut again.
        needed |= TxOffloads::TCP_TSO | TxOffloads::CHECKSUM;
    }
    Ok(needed)
}
