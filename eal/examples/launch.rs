//! Runs a loop on every lcore until Ctrl-C, or for a second with `-- once`:
//! `cargo run -p pollux-eal --example launch -- -l 0-1 -- once`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use pollux_config::CommandLine;
use pollux_eal::Eal;
use pollux_eal::clock::cycles;
use pollux_eal::lcore::{LcoreContext, Main};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let line = CommandLine::parse(std::env::args_os())?;
    let eal = Eal::init(line.eal)?;
    eal.handle_signals()?;
    let loops = eal.launch_all(Main::Call, count_rounds)?;
    if line.app == ["once"] {
        let _stopped_early = eal.stop_flag().wait(Duration::from_secs(1));
        eal.stop_flag().set();
    }
    for launched in loops {
        let lcore = launched.lcore();
        let rounds = launched.wait()?;
        let usage = eal.lcores().usage(lcore).unwrap_or_default();
        println!("lcore {lcore}: {rounds} rounds, {} cycles of {} busy", usage.busy, usage.total);
    }
    Ok(ExitCode::from(eal.shutdown().code()))
}

/// What an application's loop looks like: poll, count, look at the flag.
fn count_rounds(lcore: &LcoreContext) -> u64 {
    let mut rounds = 0;
    let mut last = cycles::now();
    while !lcore.stop_requested() {
        rounds += 1;
        let now = cycles::now();
        if rounds % 2 == 0 {
            lcore.busy(now - last)
        } else {
            lcore.idle(now - last)
        }
        last = now;
    }
    rounds
}
