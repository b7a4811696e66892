//! The functions are taken away while their driver works.

use std::time::Duration;

use crate::bed::{FAR, Pair, ask, here, log, wait};

#[test]
fn the_driver_reports_that_its_device_is_gone() {
    if !here() {
        return;
    }
    let pair = Pair::up();
    pair.ping(10, FAR);
    ask("kill-device");
    wait("the driver's report", Duration::from_secs(30), || {
        log().lines().any(|line| line.contains("mlx5_core") && line.contains("Fatal error")).then_some(())
    });
    // No unloading: its commands would wait for answers that nobody gives. The machine is switched off.
    std::mem::forget(pair);
}
