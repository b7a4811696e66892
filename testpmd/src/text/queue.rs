//! What a queue is, and what it does beside receiving and sending.

use std::fmt::Write;

use pollux_port::{Direction, QueueId, RxOffloads, TxOffloads};

use super::{INFO, on, port};
use crate::session::Session;

/// `show rxq info`, `show txq info`.
///
/// # Errors
/// There is no such port or queue.
pub fn queue_info(
    session: &mut Session,
    direction: Direction,
    id: u16,
    queue: u16,
) -> Result<String, String> {
    let of = |direction| if direction == Direction::Rx { "RX" } else { "TX" };
    let way = of(direction);
    let missing = || {
        format!(
            "Failed to retrieve information for port: {id}, {way} queue: {queue}\nerror desc: Invalid argument(-22)"
        )
    };
    let slot = session.ports.get(id)?;
    let mode = match direction {
        Direction::Rx => {
            slot.rx.get(usize::from(queue)).and_then(Option::as_ref).map(|queue| queue.burst_mode())
        }
        Direction::Tx => {
            slot.tx.get(usize::from(queue)).and_then(Option::as_ref).map(|queue| queue.burst_mode())
        }
    };
    let port = port(session, id)?;
    let info = port.info();
    let running = match direction {
        Direction::Rx => port.rx_queue_running(QueueId(queue)),
        Direction::Tx => port.tx_queue_running(QueueId(queue)),
    };
    let state = if running.unwrap_or(false) { "started" } else { "stopped" };
    let config = port.config();
    let mut text = format!("\n{INFO} Infos for port {id:<2}, {way} queue {queue:<2} {INFO}");
    match direction {
        Direction::Rx => {
            let own = config.rx_queues.get(usize::from(queue)).ok_or_else(missing)?;
            let chains = own.offloads.contains(RxOffloads::SCATTER)
                || config.rx_offloads.contains(RxOffloads::SCATTER)
                || !own.segments.is_empty();
            let _ = write!(text, "\nMempool: {}", own.pool.name());
            text += "\nRX prefetch threshold: 0\nRX host threshold: 0\nRX writeback threshold: 0\nRX free threshold: 0";
            let _ = write!(text, "\nRX drop packets: off\nRX deferred start: {}", on(own.deferred_start));
            let _ = write!(text, "\nRX scattered packets: {}\nRx queue state: {state}", on(chains));
            let _ = write!(
                text,
                "\nRX buffer size: {}",
                own.pool.data_room().saturating_sub(own.pool.headroom())
            );
            let _ = write!(text, "\nNumber of RXDs: {}", info.rx_descriptors.adjust(own.descriptors));
        }
        Direction::Tx => {
            let own = config.tx_queues.get(usize::from(queue)).ok_or_else(missing)?;
            text += "\nTX prefetch threshold: 0\nTX host threshold: 0\nTX writeback threshold: 0";
            let _ = write!(
                text,
                "\nTX RS threshold: 0\nTX free threshold: 0\nTX deferred start: {}",
                on(own.deferred_start)
            );
            let _ = write!(
                text,
                "\nNumber of TXDs: {}\nTx queue state: {state}",
                info.tx_descriptors.adjust(own.descriptors)
            );
        }
    }
    if let Some(mode) = mode {
        let _ = write!(text, "\nBurst mode: {mode}");
    }
    text.push('\n');
    Ok(text)
}

/// `rte_eth_dev_rx_offload_name`.
fn rx_offload_names(offloads: RxOffloads) -> String {
    names(offloads.iter_names().map(|(name, _)| name))
}

/// `rte_eth_dev_tx_offload_name`.
fn tx_offload_names(offloads: TxOffloads) -> String {
    names(offloads.iter_names().map(|(name, _)| name))
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!(" {name}")).collect()
}

/// `show port N rx_offload|tx_offload capabilities`.
///
/// # Errors
/// There is no such port.
pub fn offload_capabilities(session: &mut Session, id: u16, direction: Direction) -> Result<String, String> {
    let info = port(session, id)?.info();
    let (way, queue, whole) = match direction {
        Direction::Rx => (
            "Rx",
            rx_offload_names(info.rx_queue_offloads),
            rx_offload_names(info.rx_offloads - info.rx_queue_offloads),
        ),
        Direction::Tx => (
            "Tx",
            tx_offload_names(info.tx_queue_offloads),
            tx_offload_names(info.tx_offloads - info.tx_queue_offloads),
        ),
    };
    Ok(format!(
        "{way} Offloading Capabilities of port {id} :\n  Per Queue :{queue}\n  Per Port  :{whole}\n\n"
    ))
}

/// `show port N rx_offload|tx_offload configuration`.
///
/// # Errors
/// There is no such port.
pub fn offload_configuration(session: &mut Session, id: u16, direction: Direction) -> Result<String, String> {
    let config = port(session, id)?.config();
    let (way, whole, queues): (_, _, Vec<String>) = match direction {
        Direction::Rx => (
            "Rx",
            rx_offload_names(config.rx_offloads),
            config
                .rx_queues
                .iter()
                .map(|queue| rx_offload_names(queue.offloads | config.rx_offloads))
                .collect(),
        ),
        Direction::Tx => (
            "Tx",
            tx_offload_names(config.tx_offloads),
            config
                .tx_queues
                .iter()
                .map(|queue| tx_offload_names(queue.offloads | config.tx_offloads))
                .collect(),
        ),
    };
    let mut text = format!("{way} Offloading Configuration of port {id} :\n  Port :{whole}\n");
    for (number, names) in queues.iter().enumerate() {
        let _ = writeln!(text, "  Queue[{number:2}] :{names}");
    }
    text.push('\n');
    Ok(text)
}
