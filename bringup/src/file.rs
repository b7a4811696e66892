//! No file is written that another port, or the same one, reads or writes: it would be emptied first.

use std::path::{Path, PathBuf};

use pollux_config::{ConfigError, DeviceArg};

/// Keys whose value is a file that is read, and those whose file is written.
const READ: [&str; 1] = ["rx_pcap"];
const WRITTEN: [&str; 2] = ["tx_pcap", "tee"];

/// The files that a key names, and whether they are written.
fn files<'a>((key, value): &'a (String, String)) -> Vec<(&'a str, &'a str, &'a str, bool)> {
    let named = |name: &'a str, written| (key.as_str(), value.as_str(), name, written);
    if WRITTEN.contains(&key.as_str()) {
        return vec![named(value, true)];
    }
    if READ.contains(&key.as_str()) {
        return vec![named(value, false)];
    }
    // A model's wire that is a pair of files.
    let pair = value.strip_prefix("pcap:").filter(|_| key == "wire").and_then(|pair| pair.split_once(':'));
    let both = pair.map(|(input, output)| [(input, false), (output, true)]);
    both.into_iter()
        .flatten()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, written)| named(name, written))
        .collect()
}

/// Compares the files of all devices, before any is opened.
pub(crate) fn check<'a>(devices: impl Iterator<Item = &'a DeviceArg>) -> Result<(), ConfigError> {
    let mut seen: Vec<(PathBuf, bool, &str, &str)> = Vec::new();
    for device in devices {
        for (key, value, name, written) in device.args.iter().flat_map(files) {
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
