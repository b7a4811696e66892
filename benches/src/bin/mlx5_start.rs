//! From opening a port of the device model to its first packet, in milliseconds: the model made, firmware and kernel's half
//! started, the port opened over the kernel's calls, a pool made, a queue each way set up, started, and polled until the
//! source on the wire has come through.
//!
//! One process, no EAL: the time is taken around the calls themselves. The model has a thread of its own, as in an application.
//!
//! `cargo run --release -p pollux-benches --bin mlx5_start [-- TRIALS]`: a line a trial, its parts beside it.
//!
//! With `FIRST_PACKET_FROM` in the environment (wall clock, ns) it makes one trial and prints how many milliseconds have passed since then,
//! as the peer's program does.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pollux_bringup::ModelNetdev;
use pollux_bringup::program::tell;
use pollux_eal::memory::Memory;
use pollux_mempool::{Burst, MbufPool};
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::WireSpec;
use pollux_pmd_mlx::{Mlx5Port, Mlx5Spec};
use pollux_port::{Port, PortConfig, PortId};

/// After this a packet will never come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Name and end of each step.
type Steps = Vec<(&'static str, Instant)>;

fn trial() -> Result<(Instant, Steps), Box<dyn Error>> {
    let (begun, mut steps) = (Instant::now(), Steps::new());
    let mut done = |what| steps.push((what, Instant::now()));
    let model =
        Arc::new(Model::builder("mlx5_bench0").wire(WireSpec::Source { size: 64, rate: None }).build()?);
    done("model");
    let netdev = Arc::new(ModelNetdev::new(&model));
    let driver = Mlx5Port::open(Mlx5Spec::new(model.open(), netdev, Memory::ordinary()))?;
    let mut port = Port::new(PortId(0), "mlx5_bench0", Box::new(driver));
    done("open");
    let pool = MbufPool::builder("start", 4095).cache(256).build_anonymous()?;
    done("pool");
    let mut queues = port.bring_up(PortConfig::queues(1, 1, &pool))?;
    done("bring up");
    let mut burst = Burst::new();
    while queues.rx[0].rx_burst(&mut burst, 32) == 0 {
        if begun.elapsed() > PATIENCE {
            return Err("no packet came".into());
        }
        // The model's thread may need this processor.
        std::thread::yield_now();
    }
    done("first packet");
    Ok((begun, steps))
}

fn trials() -> Result<(), Box<dyn Error>> {
    if let Ok(from) = std::env::var("FIRST_PACKET_FROM") {
        let from = Duration::from_nanos(from.parse()?);
        let _slot = pollux_eal::slot::lease().ok_or("no slot is free")?;
        let (_, steps) = trial()?;
        // All is taken down again since.
        let later = steps.last().map_or(Duration::ZERO, |(_, packet)| packet.elapsed());
        let passed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.saturating_sub(from + later);
        tell(format_args!("start {:.4}", passed.as_secs_f64() * 1e3));
        return Ok(());
    }
    let count = std::env::args().nth(1).map_or(Ok(5), |count| count.parse::<u32>())?;
    let _slot = pollux_eal::slot::lease().ok_or("no slot is free")?;
    for _ in 0..count {
        let (begun, steps) = trial()?;
        let (mut before, mut parts) = (begun, String::new());
        for (what, end) in &steps {
            parts += &format!("  {what} {:.2}", (*end - before).as_secs_f64() * 1e3);
            before = *end;
        }
        tell(format_args!("mlx5_start {:.4} {parts}", (before - begun).as_secs_f64() * 1e3));
    }
    Ok(())
}

fn main() -> ExitCode {
    match trials() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mlx5_start: {why}");
            ExitCode::FAILURE
        }
    }
}
