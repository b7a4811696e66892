//! Our half of the figures; `benches/peer/figures.c` is the peer's.
//!
//! A server on a pipe. Each line read from standard input names a figure; one timed trial of it is run and
//! "NAME VALUE" is written, VALUE in TSC cycles per operation. Between lines every thread sleeps, so that a second
//! program can be timed in the gaps. An unknown name is answered with "NAME unknown". `cargo xtask bench` drives it.
//!
//! With `FIRST_PACKET_FROM` in the environment (wall clock, ns) it opens its ports, polls a first burst, prints how
//! many milliseconds have passed since then, and ends.

mod lookup;
mod one_core;
mod timer;
mod two_cores;

use std::error::Error;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use lookup::Tables;
use one_core::Fixtures;
use pollux_bringup::Bringup;
use pollux_bringup::program::tell;
use pollux_config::CommandLine;
use pollux_eal::Eal;
use pollux_eal::lcore::LcoreId;
use pollux_mempool::Burst;

/// What every burst of the figures holds.
const BURST: usize = 32;

/// The time-stamp counter, with all earlier instructions done.
fn cycles() -> u64 {
    pollux_eal::clock::cycles::now_precise()
}

fn per(start: u64, operations: usize) -> f64 {
    (cycles() - start) as f64 / operations as f64
}

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("figures: {why}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let line = CommandLine::parse(std::env::args_os())?;
    let mut bringup = Bringup::new(&line)?;
    if let Ok(from) = std::env::var("FIRST_PACKET_FROM") {
        return first_packet(&mut bringup, from.parse()?);
    }
    let (here, there) = match bringup.eal.lcores().dataplane()[..] {
        [here, there, ..] => (here, there),
        _ => return Err("two lcores are needed: -l 0,1".into()),
    };
    let mut fixtures = Some((Fixtures::new(&mut bringup)?, Tables::default()));
    let eal = &bringup.eal;
    let mut output = std::io::stdout().lock();
    for name in std::io::stdin().lock().lines() {
        let name = name?;
        let value = match two_cores::run(eal, [here, there], &name)? {
            Some(value) => Some(value),
            None => on_lcore(eal, here, &mut fixtures, &name)?,
        };
        match value {
            Some(value) => writeln!(output, "{name} {value:.4}")?,
            None => writeln!(output, "{name} unknown")?,
        }
        output.flush()?;
    }
    Ok(())
}

/// Runs a figure of one core on its lcore, and takes the fixtures back from there.
fn on_lcore(
    eal: &Eal,
    lcore: LcoreId,
    fixtures: &mut Option<(Fixtures, Tables)>,
    name: &str,
) -> Result<Option<f64>, Box<dyn Error>> {
    let mut lent = fixtures.take().ok_or("the fixtures were lost with a panic")?;
    let wanted = name.to_owned();
    let (value, back) = eal
        .launch(lcore, move |_context| {
            let value = lent.0.run(&wanted).or_else(|| lent.1.run(&wanted)).or_else(|| timer::run(&wanted));
            (value, lent)
        })?
        .wait()?;
    *fixtures = Some(back);
    Ok(value)
}

fn first_packet(bringup: &mut Bringup, from: u128) -> Result<(), Box<dyn Error>> {
    let mut ports = one_core::open(bringup)?;
    let polled = bringup
        .eal
        .launch(bringup.eal.lcores().dataplane()[0], move |_context| {
            let mut burst = Burst::new();
            ports.0.rx_burst(&mut burst, BURST)
        })?
        .wait()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
    if polled == 0 {
        return Err("the first burst was empty".into());
    }
    tell(format_args!("start {:.3}", (now - from) as f64 / 1e6));
    Ok(())
}
