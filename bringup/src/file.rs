//! No file is written that another port, or the same one, reads or writes: it would be emptied first.

use std::path::{Path, PathBuf};

use pollux_config::{ConfigError, DeviceArg};

use crate::exclusive::{Keys, Kind};

/// The layer's key whose file is written, around any driver.
const TEE: &str = "tee";

/// The files that an argument names, and whether they are written. `keys` are those of the device's driver.
fn files<'a>((key, value): &'a (String, String), keys: Keys) -> Vec<(&'a str, &'a str, &'a str, bool)> {
    let named = |name: &'a str, written| (key.as_str(), value.as_str(), name, written);
    if key == TEE {
        return vec![named(value, true)];
    }
    match keys.iter().find(|(name, _)| name == key).map(|(_, named)| named.0) {
        Some(Kind::File { written }) => vec![named(value, written)],
        // A pair of files, each of which may be left out.
        Some(Kind::Wire) => {
            let pair = value.strip_prefix("pcap:").and_then(|pair| pair.split_once(':'));
            let both = pair.into_iter().flat_map(|(input, output)| [(input, false), (output, true)]);
            both.filter(|(name, _)| !name.is_empty()).map(|(name, written)| named(name, written)).collect()
        }
        _ => Vec::new(),
    }
}

/// Compares the files of all devices, before any is opened. `keys` tells those of a device's driver, none of hardware.
pub(crate) fn check<'a>(
    devices: impl Iterator<Item = &'a DeviceArg>,
    keys: impl Fn(&DeviceArg) -> Option<Keys>,
) -> Result<(), ConfigError> {
    let mut seen: Vec<(PathBuf, bool, &str, &str)> = Vec::new();
    for device in devices {
        let own = keys(device).unwrap_or_default();
        for (key, value, name, written) in device.args.iter().flat_map(|argument| files(argument, own)) {
            let Some(file) = identity(Path::new(name)) else { continue };
            let clash =
                seen.iter().find(|(other, other_written, ..)| *other == file && (written || *other_written));
            if let Some((_, _, other_device, other_key)) = clash {
                return Err(ConfigError::KeyValue {
                    device: device.name.clone(),
                    key: key.into(),
                    value: value.into(),
                    problem: format!(
                        "is also {other_key} of '{other_device}', and opening it for writing would truncate it: use a different file"
                    ),
                });
            }
            seen.push((file, written, &device.name, key));
        }
    }
    Ok(())
}

/// A path that is the same for all spellings of one file; none for pipes and devices such as `/dev/null`, which many may
/// write.
fn identity(path: &Path) -> Option<PathBuf> {
    match path.canonicalize() {
        Ok(whole) => whole.is_file().then_some(whole),
        // Not there yet: its folder is.
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
            Some(folder.join(path.file_name()?))
        }
    }
}
