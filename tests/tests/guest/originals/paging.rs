//! Memory on demand, by the kernel: whether it has any, which its release says.

use std::fs;
use std::process::Command;

use super::{Device, LIMIT, Program};

/// Whether the kernel registers memory on demand on this device: it has to `since` a release, and tells of `ability` then. What is older
/// has to refuse, in a line of ours.
pub(super) fn is_had(device: &Device, since: [u32; 2], ability: &str) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    let version: [u32; 2] = [(); 2].map(|()| numbers.next().unwrap_or(0));
    if version >= since {
        let told = Command::new("/usr/bin/ibv_devinfo").args(["-v", "-d", &device.name]).output();
        let told = String::from_utf8_lossy(&told.expect("it runs").stdout).into_owned();
        assert!(told.contains(ability) && told.contains("SUPPORT_RECV"), "no {ability}: {told}");
        return true;
    }
    let end = Program::ours("rc_pingpong").start(device, &["-g", &device.gid, "-o"], None).finish(LIMIT);
    let said = end.stderr.join("\n");
    assert_eq!(end.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("-o: {} ", device.name)) && said.contains("on-demand paging"), "{said}");
    false
}
