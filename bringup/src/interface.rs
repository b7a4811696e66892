//! No interface or device is given to two ports: each frame would come twice, or a queue be fought for.
//!
//! The kernel's end of a tap and the program's are two ends of a cable, so `net_tap` and a packet socket may share a name.

use std::path::Path;

use pollux_config::{ConfigError, DeviceArg};
use pollux_frame_io::interface::Interface;

/// One end of something that carries frames.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// An interface by its number in this namespace.
    Index(u32),
    /// An interface that is not there, or not to be found.
    Name(String),
    /// The program's end of a tap.
    Tap(String),
    /// A function by its RDMA device.
    Function(String),
}

/// What a device takes of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    rx: bool,
    tx: bool,
}

const BOTH: Taken = Taken { rx: true, tx: true };

fn interface(name: &str) -> End {
    // By number, for an interface has other names, too.
    match Interface::find(name) {
        Ok(found) => End::Index(found.index()),
        Err(_) => End::Name(name.to_owned()),
    }
}

/// The ends that a device takes, each with the key and value that name it; a function's name stands for both.
fn ends<'a>(device: &'a DeviceArg, is_hardware: bool) -> Vec<(&'a str, &'a str, End, Taken)> {
    if is_hardware {
        let found = pollux_uverbs::discovery::find(Path::new("/"), &device.name);
        let name = found.map_or_else(|_| device.name.clone(), |found| found.ibdev);
        return vec![("", "", End::Function(name), BOTH)];
    }
    let one = |(key, value): &'a (String, String)| {
        let (key, value) = (key.as_str(), value.as_str());
        let taken = match key {
            "iface" => BOTH,
            "rx_iface" | "rx_iface_in" => Taken { rx: true, tx: false },
            "tx_iface" => Taken { rx: false, tx: true },
            "wire" => {
                let name = value.strip_prefix("iface:")?;
                return Some((key, value, interface(name), BOTH));
            }
            _ => return None,
        };
        if device.driver == "net_tap" {
            // The kernel counts such names up.
            let named = !value.contains('%');
            return named.then(|| (key, value, End::Tap(value.to_owned()), taken));
        }
        Some((key, value, interface(value), taken))
    };
    device.args.iter().filter_map(one).collect()
}

/// Compares what all devices take, before any is opened. `is_hardware` tells which have no driver of software's.
pub(crate) fn check<'a>(
    devices: impl Iterator<Item = &'a DeviceArg>,
    is_hardware: impl Fn(&DeviceArg) -> bool,
) -> Result<(), ConfigError> {
    let mut seen: Vec<(End, Taken, &str)> = Vec::new();
    for device in devices {
        for (key, value, end, taken) in ends(device, is_hardware(device)) {
            let clash = seen.iter().find(|(other, by, owner)| {
                *other == end && *owner != device.name && (by.rx && taken.rx || by.tx && taken.tx)
            });
            if let Some((_, _, owner)) = clash {
                return Err(twice(device, key, value, owner));
            }
            seen.push((end, taken, &device.name));
        }
    }
    Ok(())
}

fn twice(device: &DeviceArg, key: &str, value: &str, owner: &str) -> ConfigError {
    if key.is_empty() {
        let problem = format!("is the same device as '{owner}': name each device once");
        return ConfigError::Device { text: device.name.clone(), problem };
    }
    ConfigError::KeyValue {
        device: device.name.clone(),
        key: key.into(),
        value: value.into(),
        problem: format!("is also an interface of '{owner}': give each port its own"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(texts: &[&str]) -> Option<String> {
        let devices: Vec<DeviceArg> = texts.iter().map(|text| text.parse().expect("a device")).collect();
        let hardware = |device: &DeviceArg| device.driver == "pci" || device.driver == "mlx5_";
        check(devices.iter(), hardware).err().map(|error| error.to_string())
    }

    #[test]
    fn an_interface_is_given_to_one_port() {
        // The loopback is there in every namespace; the other names are not.
        for name in ["lo", "h6none"] {
            let whole = [
                format!("net_af_packet0,iface={name}"),
                format!("net_pcap1,iface={name}"),
                format!("net_pcap2,rx_iface={name},tx_iface={name}"),
                format!("mlx5_model3,wire=iface:{name}"),
            ];
            for first in &whole {
                for second in whole.iter().filter(|second| *second != first) {
                    let line = refused(&[first, second]).unwrap_or_else(|| panic!("{first} {second}"));
                    let owner = first.split(',').next().unwrap_or_default();
                    assert!(
                        line.ends_with(&format!("is also an interface of '{owner}': give each port its own")),
                        "{line}"
                    );
                }
                assert_eq!(refused(&[first]), None, "alone");
            }
            // One receives and the other sends; a tap's own end is none of the kernel's.
            assert_eq!(
                refused(&[&format!("net_pcap0,rx_iface={name}"), &format!("net_pcap1,tx_iface={name}")]),
                None
            );
            assert!(
                refused(&[&format!("net_pcap0,rx_iface={name}"), &format!("net_pcap1,rx_iface_in={name}")])
                    .is_some()
            );
            assert_eq!(refused(&[&format!("net_tap0,iface={name}"), &whole[0]]), None);
            let taps = [format!("net_tap0,iface={name}"), format!("net_tap1,iface={name}")];
            assert_eq!(
                refused(&[&taps[0], &taps[1]]).as_deref(),
                Some(&*format!(
                    "device 'net_tap1': iface={name}: is also an interface of 'net_tap0': give each port its own"
                ))
            );
        }
        assert_eq!(refused(&["net_tap0,iface=a%d", "net_tap1,iface=a%d", "net_tap2", "net_tap3"]), None);
        assert_eq!(refused(&["mlx5_0", "mlx5_1", "0000:03:00.0"]), None);
    }
}
