//! The keys of the ports in software: DPDK's names, read into each driver's options.

use pollux_config::{ConfigError, DeviceArg};
use pollux_port_soft::null::{self, NullOptions, NullPort};
use pollux_port_soft::ring;

use super::Open;

pub(super) fn null(device: &DeviceArg) -> Result<Open, ConfigError> {
    let mut keys = device.keys();
    let usual = NullOptions::default();
    let options = NullOptions {
        size: keys.number("size", null::SIZE_MIN as u64..=null::SIZE_MAX as u64)?.unwrap_or(usual.size),
        copy: keys.flag("copy")?.unwrap_or(usual.copy),
        no_rx: keys.flag("no-rx")?.unwrap_or(usual.no_rx),
    };
    keys.finish()?;
    Ok(Box::new(move |name| Ok(Box::new(NullPort::new(name, options)?))))
}

pub(super) fn ring(device: &DeviceArg) -> Result<Open, ConfigError> {
    device.keys().finish()?;
    Ok(Box::new(|name| Ok(Box::new(ring::looped(name)))))
}
