//! librdmacm's `riostream`: as `rstream`, but past the peer's program: each end maps memory, into which the other writes by offset. Source of
//! options and texts: rdma-core `librdmacm/examples/riostream.c`.
//!
//! ```text
//!   client                       server
//!   map, 16 bytes      ----->    map
//!                      <-----    16 bytes          both maps are there: the clock starts
//!   write ... write    ----->    polls the last byte of its map for the marker
//!   polls              <-----    write ... write
//! ```
//!
//! The last byte of the last write of a direction is a marker, which counts up from direction to direction; so nothing else need tell the
//! peer that data came.

use std::io::ErrorKind;
use std::time::Instant;

use pollux_bringup::BringupError;
use pollux_config::CommandLine;
use pollux_rsocket::{RsMap, RsStream};

use super::manager::run as run_program;
use super::stream::{Bench, Ends, Run, SYNC, Stream, StreamOptions, Test, ended, turn};
use crate::rdma::Failure;

/// The program's name.
const NAME: &str = "riostream";
/// What `-T` has, in the order in which it is told.
const TESTS: [Test; 4] = [Test::Async, Test::Blocking, Test::Nonblocking, Test::Verify];
/// What the last byte is before the first marker, which is 0.
const UNMARKED: u8 = 0xff;

/// riostream: latency and bandwidth of writes to memory that the peer maps, over stream sockets of RDMA. Start the server, then the client
/// (-s). Interoperates with librdmacm's riostream.
#[derive(clap::Parser, Clone, Debug)]
#[command(
    after_help = "The loop is one page: rdma-apps/src/cm/riostream.rs. The sockets are the crate rsocket."
)]
pub struct Options {
    /// Those of rstream as well.
    #[command(flatten)]
    pub common: StreamOptions,
    /// What is tested, more than once: a|async, b|blocking, n|nonblocking, v|verify
    #[arg(short = 'T', value_name = "TEST", value_parser = |text: &str| Test::read(text, &TESTS))]
    pub tests: Vec<Test>,
}

/// Runs one end.
///
/// # Errors
/// One line.
pub fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    let example = [(NAME, " -b 10.0.0.1"), (NAME, " -s 10.0.0.1")];
    run_program(line, example, move |lcore, manager| {
        let with = Some((lcore, manager));
        Bench::new(
            &options.common,
            Ends { program: NAME, tests: &options.tests, keepalive: None, maps: 1, with },
        )
        .run(|bench, stream, run| {
            // Of its tests none is of TCP, which has no maps.
            let Stream::Rdma(direct) = stream else { return Ok(()) };
            let direct = direct.clone();
            let map = map(&direct, run.bytes)?;
            test(bench, stream, run, &Mapped { direct, map })
        })
    })
}

/// What goes past the programs.
#[derive(Debug)]
struct Mapped {
    /// The same stream.
    direct: RsStream,
    /// The peer writes there.
    map: RsMap,
}

/// Maps memory of this end, which is told to the peer before what is sent next.
fn map(stream: &RsStream, bytes: usize) -> Result<RsMap, Failure> {
    let map = stream.map(bytes, 0).map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::StorageFull => ": start riostream there",
            _ => "",
        };
        Failure::Error(format!("cannot map {bytes} bytes: {error}{advice}"))
    })?;
    map.write(bytes - 1, &[UNMARKED]);
    Ok(map)
}

fn test(bench: &mut Bench<'_>, stream: &mut Stream, run: &Run, mapped: &Mapped) -> Result<(), Failure> {
    let last = run.bytes - 1;
    // The original maps the buffer from which it sends and into which it receives: these 16 bytes overwrite what it waits for, where its
    // transfers are as short.
    bench.buffer[last] = UNMARKED;
    for sends in [bench.is_client, !bench.is_client] {
        if sends { bench.send(stream, SYNC)? } else { bench.receive(stream, SYNC)? }
    }
    let begin = Instant::now();
    let mut marker = 0_u8;
    for _ in 0..run.iterations {
        for sends in [bench.is_client, !bench.is_client] {
            if sends {
                send(bench, stream, run, mapped, marker)?
            } else {
                receive(bench, mapped, marker)?
            }
            marker = marker.wrapping_add(1);
        }
    }
    run.tell(begin.elapsed());
    Ok(())
}

/// The transfers of one direction. Of the data, those of the last are compared: others may be overwritten before they are seen.
fn send(
    bench: &mut Bench<'_>,
    stream: &mut Stream,
    run: &Run,
    mapped: &Mapped,
    marker: u8,
) -> Result<(), Failure> {
    let last = run.bytes - 1;
    for left in (0..run.transfers).rev() {
        if left == 0 {
            bench.buffer[last] = marker;
            if bench.verify {
                bench.fill(last);
            }
        }
        bench.transfer(stream, run.bytes, true, |_, at| {
            mapped.direct.write_at(&bench.buffer[at..run.bytes], at as u64)
        })?;
    }
    Ok(())
}

/// Waits for the marker.
fn receive(bench: &mut Bench<'_>, Mapped { direct, map }: &Mapped, marker: u8) -> Result<(), Failure> {
    let last = map.bytes() - 1;
    let (turn, mut tries) = (turn(direct.is_software()), 0_u32);
    while map.load8(last) != marker {
        std::hint::spin_loop();
        tries = tries.wrapping_add(1);
        if !tries.is_multiple_of(turn) {
            continue;
        }
        bench.look()?;
        std::thread::yield_now();
        match direct.peek(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // It wrote, and ended its direction after that.
            _ if map.load8(last) == marker => {}
            Ok(0) => return Err(ended()),
            Ok(_) => {
                let line = "the peer sent data where it should write into our map; start riostream there, with the same options";
                return Err(Failure::Error(line.into()));
            }
            Err(error) => return Err(Failure::Error(error.to_string())),
        }
    }
    if bench.verify {
        map.read(0, &mut bench.buffer[..last]);
        bench.check(last)?;
    }
    Ok(())
}
