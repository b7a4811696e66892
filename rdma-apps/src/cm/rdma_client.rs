//! librdmacm's `rdma_client`: connects, sends one message and waits for the answer. Source of options, texts and order: rdma-core
//! `librdmacm/examples/rdma_client.c`.

use std::net::SocketAddr;

use pollux_bringup::program::tell;
use pollux_cm::{ConnectionParameters, PortSpace};
use pollux_config::CommandLine;

use super::address::Format;
use super::manager::{connect, resolve, run as run_program};
use super::message::{EXAMPLE, End, PORT};
use crate::number::within;
use crate::rdma::Failure;

/// rdma_client: sends a message to rdma_server and receives the answer. Interoperates with librdmacm's rdma_server.
#[derive(clap::Parser, Clone, Debug)]
#[command(after_help = "All of it is one page: rdma-apps/src/cm/rdma_client.rs.")]
pub struct Options {
    /// Server to connect to
    #[arg(short = 's', value_name = "ADDR", default_value = "127.0.0.1")]
    server: String,
    /// Port
    #[arg(short = 'p', value_name = "PORT", default_value = PORT, value_parser = |text: &str| within(text, 1, 65535))]
    port: u64,
}

/// Connects, sends and receives.
///
/// # Errors
/// One line.
pub fn run(line: &CommandLine, options: Options) -> Result<(), pollux_bringup::BringupError> {
    run_program(line, EXAMPLE, move |lcore, manager| {
        tell(format_args!("rdma_client: start"));
        let peer = SocketAddr::new(Format::Name.read(&options.server, "-s")?, options.port as u16);
        let channel = manager.channel()?;
        let id = channel.create_id(PortSpace::Tcp)?;
        resolve(lcore, &channel, &id, None, peer)?;
        let mut end = End::new(lcore, &channel, id)?;
        connect(lcore, &channel, (&end.id, &mut end.qp), &ConnectionParameters::default(), peer)?;
        let outcome = end.send().and_then(|()| end.receive());
        end.finish(outcome)?;
        tell(format_args!("rdma_client: end 0"));
        Ok::<(), Failure>(())
    })
}
