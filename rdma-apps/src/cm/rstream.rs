//! librdmacm's `rstream`: a stream in one direction, then in the other, over stream sockets of RDMA or of TCP. Source of options and texts:
//! rdma-core `librdmacm/examples/rstream.c`.

use std::time::{Duration, Instant};

use pollux_bringup::BringupError;
use pollux_cm::Manager;
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;

use super::manager::run as run_program;
use super::stream::{Bench, Ends, Run, SYNC, Stream, StreamOptions, Test};
use crate::number::within;
use crate::rdma::Failure;

/// The program's name.
const NAME: &str = "rstream";
/// What `-T` has, in the order in which it is told.
const TESTS: [Test; 7] =
    [Test::Sockets, Test::Async, Test::Blocking, Test::Fork, Test::Nonblocking, Test::Resolve, Test::Verify];

/// rstream: latency and bandwidth of stream sockets over RDMA. Start the server, then the client (-s). Interoperates with librdmacm's
/// rstream.
#[derive(clap::Parser, Clone, Debug)]
#[command(
    after_help = "The loop is one page: rdma-apps/src/cm/rstream.rs. The sockets are the crate rsocket."
)]
pub struct Options {
    /// Those of riostream as well.
    #[command(flatten)]
    pub common: StreamOptions,
    /// Seconds without data after which the peer is probed
    #[arg(short = 'k', value_name = "SECONDS", value_parser = |text: &str| within(text, 1, i32::MAX as u64))]
    pub keepalive: Option<u64>,
    /// What is tested, more than once: s|sockets, a|async, b|blocking, f|fork, n|nonblocking, r|resolve, v|verify
    #[arg(short = 'T', value_name = "TEST", value_parser = |text: &str| Test::read(text, &TESTS))]
    pub tests: Vec<Test>,
}

/// Runs one end.
///
/// # Errors
/// One line.
pub fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    if options.tests.iter().any(|test| matches!(test, Test::Sockets | Test::Fork)) {
        return bench(&options, None).or_else(Failure::end);
    }
    let example = [(NAME, " -b 10.0.0.1"), (NAME, " -s 10.0.0.1")];
    run_program(line, example, move |lcore, manager| bench(&options, Some((lcore, manager))))
}

fn bench(options: &Options, with: Option<(&LcoreContext, &Manager)>) -> Result<(), Failure> {
    let keepalive = options.keepalive.map(Duration::from_secs);
    let ends = Ends { program: NAME, tests: &options.tests, keepalive, maps: 0, with };
    Bench::new(&options.common, ends).run(test)
}

fn test(bench: &mut Bench<'_>, stream: &mut Stream, run: &Run) -> Result<(), Failure> {
    exchange(bench, stream, SYNC, 1)?;
    let begin = Instant::now();
    for _ in 0..run.iterations {
        exchange(bench, stream, run.bytes, run.transfers)?;
    }
    run.tell(begin.elapsed());
    Ok(())
}

/// The client's direction first, then the server's.
fn exchange(bench: &mut Bench<'_>, stream: &mut Stream, bytes: usize, transfers: u64) -> Result<(), Failure> {
    for sends in [bench.is_client, !bench.is_client] {
        for _ in 0..transfers {
            if sends {
                if bench.verify {
                    bench.fill(bytes);
                }
                bench.send(stream, bytes)?;
            } else {
                bench.receive(stream, bytes)?;
                if bench.verify {
                    bench.check(bytes)?;
                }
            }
        }
    }
    Ok(())
}
