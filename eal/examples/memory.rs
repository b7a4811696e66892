//! Sets memory aside, makes zones in it, and prints what there is and how long it took.
//!
//! `cargo run --release -p pollux-eal --example memory -- [MiB] [--no-huge]`

use std::time::Instant;

use pollux_config::MemorySpec;
use pollux_eal::memory::{Memory, MemoryOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut spec = MemorySpec { initial_mib: Some(64), ..MemorySpec::default() };
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--no-huge" => spec.no_huge = true,
            mib => spec.initial_mib = Some(mib.parse()?),
        }
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();

    let start = Instant::now();
    let memory = Memory::new(MemoryOptions { spec, ..MemoryOptions::default() })?;
    let set_up = start.elapsed();

    let start = Instant::now();
    let mut table = memory.reserve("table", 1 << 20, 4096, None)?;
    let _ring = memory.reserve("ring", 1000, 64, None)?;
    let reserve = start.elapsed() / 2;
    table.copy_in(0, b"a device may write here, so bytes are copied in and out");

    print!("{}", memory.stats());
    println!("set up in {set_up:.1?}, a zone in {reserve:.1?}");
    Ok(())
}
