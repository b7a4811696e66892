//! The same things for a long time: drivers loaded and unloaded, traffic, cables pulled, links set down, l2fwd started and ended;
//! and what must not grow, at the end.

use std::time::{Duration, Instant};

use crate::bed::{FUNCTIONS, ask, here, netdev, read, run, wait};
use crate::forward::{ends_well, l2fwd, nothing_is_left, up};

/// Frames each way in a stretch of traffic.
const FRAMES: u64 = 5_000;
/// Stretches of traffic between loading and unloading.
const STRETCHES: u64 = 4;
/// The rounds before this one fill caches.
const SETTLED: u64 = 2;
/// What the device's process and the guest may have grown since then, in KiB.
const DEVICE_GROWTH: u64 = 16 << 10;
const GUEST_GROWTH: u64 = 64 << 10;

fn carrier(index: usize, up: bool) {
    let path = format!("/sys/class/net/{}/carrier", netdev(FUNCTIONS[index]).expect("an interface"));
    wait("the carrier to change", Duration::from_secs(20), || {
        (read(&path) == if up { "1" } else { "0" }).then_some(())
    });
}

/// Memory of the guest that is in use, in KiB, caches aside.
fn guest_memory() -> u64 {
    let all = read("/proc/meminfo");
    let number = |name: &str| -> u64 {
        let line =
            all.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
    };
    number("MemTotal:") - number("MemAvailable:")
}

fn device_memory() -> u64 {
    ask("device-memory").parse().expect("a number of KiB")
}

#[test]
fn a_day_in_short() {
    if !here() {
        return;
    }
    let minutes = std::env::var("POLLUX_SOAK_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let (mut round, mut frames) = (0_u64, 0);
    let mut settled = (0, 0);
    while round <= SETTLED || Instant::now() < end {
        let drivers = up();
        for stretch in 0..STRETCHES {
            let keys = [",dv_flow_en=0", ",dv_flow_en=1"][(stretch % 2) as usize];
            let running = l2fwd(FUNCTIONS, keys, "-P --no-mac-updating --json");
            for (from, to) in [(0, 1), (1, 0)] {
                ask(&format!("traffic from={from} to={to} frames={FRAMES} window=64"));
            }
            let cable = (stretch % 2) as usize;
            if stretch < 2 {
                // The cable is pulled while l2fwd works.
                ask(&format!("unplug {cable}"));
                carrier(cable, false);
                ask(&format!("plug {cable}"));
                carrier(cable, true);
            } else {
                let name = netdev(FUNCTIONS[cable]).expect("an interface");
                run(&format!("ip link set {name} down"));
                run(&format!("ip link set {name} up"));
                carrier(cable, true);
            }
            ask(&format!("traffic from=1 to=0 frames={FRAMES} window=64"));
            ends_well(running, 3 * FRAMES);
            frames += 3 * FRAMES;
            nothing_is_left();
        }
        drivers.unload();
        if round == SETTLED {
            settled = (device_memory(), guest_memory());
        }
        round += 1;
    }
    let now = (device_memory(), guest_memory());
    println!(
        "{round} rounds, {frames} frames; device {} -> {} KiB, guest {} -> {} KiB",
        settled.0, now.0, settled.1, now.1
    );
    assert!(
        now.0 < settled.0 + DEVICE_GROWTH,
        "the device grew from {} to {} KiB in {round} rounds",
        settled.0,
        now.0
    );
    assert!(
        now.1 < settled.1 + GUEST_GROWTH,
        "the guest grew from {} to {} KiB in {round} rounds",
        settled.1,
        now.1
    );
}
