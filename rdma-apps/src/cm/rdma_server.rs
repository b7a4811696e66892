//! librdmacm's `rdma_server`: takes one client, one message of it, and answers. Source of options, texts and order: rdma-core
//! `librdmacm/examples/rdma_server.c`.

use std::net::SocketAddr;

use pollux_bringup::program::{say, tell};
use pollux_cm::{ConnectionParameters, PortSpace};
use pollux_config::CommandLine;

use super::address::Format;
use super::manager::{listen, request, run as run_program};
use super::message::{EXAMPLE, End, PORT};
use crate::number::within;
use crate::rdma::Failure;

/// rdma_server: waits for one rdma_client, receives a message and answers it. Interoperates with librdmacm's rdma_client.
#[derive(clap::Parser, Clone, Debug)]
#[command(after_help = "All of it is one page: rdma-apps/src/cm/rdma_server.rs.")]
pub struct Options {
    /// Address to listen on
    #[arg(short = 's', value_name = "ADDR", default_value = "0.0.0.0")]
    server: String,
    /// Port
    #[arg(short = 'p', value_name = "PORT", default_value = PORT, value_parser = |text: &str| within(text, 1, 65535))]
    port: u64,
}

/// Serves one client.
///
/// # Errors
/// One line.
pub fn run(line: &CommandLine, options: Options) -> Result<(), pollux_bringup::BringupError> {
    run_program(line, EXAMPLE, move |lcore, manager| {
        tell(format_args!("rdma_server: start"));
        let local = SocketAddr::new(Format::Name.read(&options.server, "-s")?, options.port as u16);
        let channel = manager.channel()?;
        let listener = listen(&channel, PortSpace::Tcp, local)?;
        say(format_args!("rdma_server: listening on {}", listener.local_address().unwrap_or(local)));
        let (id, parameters) = request(lcore, &channel)?;
        // Nobody else is taken.
        drop(listener);
        let mut end = End::new(lcore, &channel, id)?;
        end.id.accept(&mut end.qp, &ConnectionParameters { private_data: Vec::new(), ..parameters })?;
        let outcome = end.receive().and_then(|()| end.send());
        end.finish(outcome)?;
        tell(format_args!("rdma_server: end 0"));
        Ok::<(), Failure>(())
    })
}
