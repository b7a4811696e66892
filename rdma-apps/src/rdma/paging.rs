//! Memory on demand: whether a device can, and what is said where it cannot.

use pollux_bringup::RdmaDevice;
use pollux_verbs::{OdpGeneral, OdpService, QpKind};

use super::Failure;

/// Refuses `option`, by which memory is registered on demand, where the device cannot do `services` with such memory on queue pairs
/// of this kind.
///
/// # Errors
/// It cannot, in one line.
pub fn check(device: &RdmaDevice, option: &str, kind: QpKind, services: OdpService) -> Result<(), Failure> {
    let attributes = device.context.device()?;
    let name = &device.name;
    if !OdpGeneral::from_bits_retain(attributes.odp_caps.general_caps).contains(OdpGeneral::SUPPORT) {
        let line = format!("{option}: {name} does not support on-demand paging: leave it out");
        return Err(Failure::Usage(line));
    }
    let [rc, uc, ud] = attributes.odp_caps.per_transport_caps;
    let (transport, can) = match kind {
        QpKind::Rc => ("RC", rc),
        QpKind::Uc => ("UC", uc),
        QpKind::Ud => ("UD", ud),
        QpKind::XrcSend | QpKind::XrcReceive => ("XRC", attributes.xrc_odp_caps),
        _ => ("raw packet", 0),
    };
    let missing = services - OdpService::from_bits_retain(can);
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    Err(Failure::Usage(format!(
        "{option}: {name} has no on-demand paging for {} on {transport} QPs: leave it out",
        names.join(", ")
    )))
}

/// Refuses an option for implicit on-demand paging where the device has none.
///
/// # Errors
/// It has none, in one line.
pub fn check_implicit(device: &RdmaDevice, option: &str, instead: &str) -> Result<(), Failure> {
    let caps = OdpGeneral::from_bits_retain(device.context.device()?.odp_caps.general_caps);
    if caps.contains(OdpGeneral::IMPLICIT) {
        return Ok(());
    }
    let name = &device.name;
    Err(Failure::Usage(format!("{option}: {name} has no implicit on-demand paging: use {instead}")))
}
