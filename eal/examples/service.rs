//! Services: small tasks on lcores that are set aside for them, as `-S 1` does on a command line.
//!
//! `cargo run -p pollux-eal --example service`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pollux_config::EalSpec;
use pollux_eal::lcore::CpuSet;
use pollux_eal::service::Work;
use pollux_eal::{Eal, LcoreId};

fn main() -> Result<(), Box<dyn Error>> {
    // Lcore 0 for the application and 1 for services, here on one processor.
    let cpu = CpuSet::of_this_thread()?.as_slice()[0];
    let lcores = Some(format!("(0-1)@{cpu}").parse()?);
    let eal = Eal::init(EalSpec { lcores, service_lcores: [1].into_iter().collect(), ..EalSpec::default() })?;
    let services = eal.services();

    // What an application leaves to do.
    let waiting = Arc::new(AtomicU64::new(0));
    let left = Arc::clone(&waiting);
    let sweep = services.register("sweep", move || {
        let took = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if took.is_ok() { Work::Done } else { Work::Idle }
    })?;
    services.map(sweep, LcoreId(1), true)?;
    services.start(sweep)?;
    services.start_lcore(LcoreId(1))?;

    waiting.store(1000, Ordering::Relaxed);
    while waiting.load(Ordering::Relaxed) > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    services.stop(sweep)?;
    for service in services.list() {
        println!("{} on {:?}: {:?}", service.name, service.lcores, service.stats);
    }
    Ok(())
}

#[test]
fn runs() {
    main().expect("runs");
}
