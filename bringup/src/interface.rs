//! No interface or device is given to two ports: each frame would come twice, or a queue be fought for.
//!
//! The kernel's end of a tap and the program's are two ends of a cable, so `net_tap` and a packet socket may share a name.

use std::path::Path;

use pollux_config::{ConfigError, DeviceArg};
use pollux_frame_io::interface::Interface;

use crate::exclusive::{Keys, Kind, Taken};

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

fn interface(name: &str) -> End {
    // By number, for an interface has other names, too.
    match Interface::find(name) {
        Ok(found) => End::Index(found.index()),
        Err(_) => End::Name(name.to_owned()),
    }
}

/// What a device takes, and the key and value that name it.
struct Claim<'a> {
    key: &'a str,
    value: &'a str,
    end: End,
    taken: Taken,
    /// Other keys of the device may name the same, for one port; else each is a port of its own.
    shared: bool,
}

/// What a device takes; of hardware, which has no `keys` of a driver's, no key names it. What sysfs says stands below `root`.
fn claims<'a>(device: &'a DeviceArg, keys: Option<Keys>, root: &Path) -> Vec<Claim<'a>> {
    let Some(keys) = keys else {
        let found = pollux_uverbs::discovery::find(root, &device.name);
        let name = found.map_or_else(|_| device.name.clone(), |found| found.ibdev);
        let end = End::Function(name);
        return vec![Claim { key: "", value: "", end, taken: Taken::BOTH, shared: true }];
    };
    let one = |(key, value): &'a (String, String)| {
        let (key, value) = (key.as_str(), value.as_str());
        let (_, named) = keys.iter().find(|(name, _)| *name == key)?;
        let (end, taken) = match named.0 {
            Kind::Interface(taken) => (interface(value), taken),
            Kind::Wire => (interface(value.strip_prefix("iface:")?), Taken::BOTH),
            // The kernel counts such names up.
            Kind::Tap if value.contains('%') => return None,
            Kind::Tap => (End::Tap(value.to_owned()), Taken::BOTH),
            Kind::File { .. } => return None,
        };
        Some(Claim { key, value, end, taken, shared: !matches!(named.0, Kind::Wire) })
    };
    device.args.iter().filter_map(one).collect()
}

/// Compares what all devices take, before any is opened. `keys` tells those of a device's driver, none of hardware.
pub(crate) fn check<'a>(
    devices: impl Iterator<Item = &'a DeviceArg>,
    keys: impl Fn(&DeviceArg) -> Option<Keys>,
) -> Result<(), ConfigError> {
    check_below(Path::new("/"), devices, keys)
}

fn check_below<'a>(
    root: &Path,
    devices: impl Iterator<Item = &'a DeviceArg>,
    keys: impl Fn(&DeviceArg) -> Option<Keys>,
) -> Result<(), ConfigError> {
    let mut seen: Vec<(End, Taken, &str)> = Vec::new();
    for device in devices {
        for Claim { key, value, end, taken, shared } in claims(device, keys(device), root) {
            let clash = seen.iter().find(|(other, by, owner)| {
                *other == end
                    && !(shared && *owner == device.name)
                    && (by.rx && taken.rx || by.tx && taken.tx)
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
        let problem = format!("is the same device as '{owner}': give each device only once");
        return ConfigError::Device { text: device.name.clone(), problem };
    }
    ConfigError::KeyValue {
        device: device.name.clone(),
        key: key.into(),
        value: value.into(),
        problem: format!("is also used by '{owner}': give each port its own interface"),
    }
}

#[cfg(test)]
mod tests {
    use pollux_tests::netns::Namespace;
    use pollux_tests::require::{Need, require};

    use super::*;

    fn refused(texts: &[&str]) -> Option<String> {
        refused_below(Path::new("/"), texts)
    }

    fn refused_below(root: &Path, texts: &[&str]) -> Option<String> {
        let drivers = crate::Drivers::new();
        let devices: Vec<DeviceArg> = texts.iter().map(|text| text.parse().expect("a device")).collect();
        check_below(root, devices.iter(), |device| drivers.exclusive_keys(device))
            .err()
            .map(|error| error.to_string())
    }

    /// One function as sysfs shows it: by its RDMA name, its uverbs file, its PCI address, its interface.
    fn functions() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: String, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, format!("{text}\n")).expect("a file");
        };
        write("sys/class/infiniband_verbs/abi_version".into(), "6");
        for (index, pci, netdev) in [(0, "0000:03:00.0", "ens3f0np0"), (1, "0000:03:00.1", "ens3f1np1")] {
            let verbs = format!("sys/class/infiniband_verbs/uverbs{index}");
            write(format!("{verbs}/ibdev"), &format!("mlx5_{index}"));
            write(format!("{verbs}/dev"), &format!("231:{}", 192 + index));
            write(format!("{verbs}/abi_version"), "1");
            let parent = format!("sys/class/infiniband/mlx5_{index}/device");
            write(format!("{parent}/uevent"), &format!("DRIVER=mlx5_core\nPCI_SLOT_NAME={pci}"));
            write(format!("{parent}/net/{netdev}/ifindex"), "3");
        }
        root
    }

    #[test]
    fn a_function_is_given_to_one_port_by_whichever_name() {
        let root = functions();
        let names = ["mlx5_0", "uverbs0", "0000:03:00.0", "03:00.0", "ens3f0np0"];
        for first in names {
            for second in names.into_iter().filter(|second| *second != first) {
                assert_eq!(
                    refused_below(root.path(), &[first, second]),
                    Some(format!(
                        "device '{second}': is the same device as '{first}': give each device only once"
                    ))
                );
            }
            for other in ["mlx5_1", "0000:03:00.1", "ens3f1np1"] {
                assert_eq!(refused_below(root.path(), &[first, other]), None);
            }
        }
    }

    #[test]
    fn an_interface_is_one_by_its_other_names_too() {
        if !require(&[Need::Root, Need::Net]) {
            return;
        }
        let place = Namespace::new("left-alt");
        place.ip(&["link", "add", "left0", "type", "veth", "peer", "name", "left1"]);
        place.ip(&["link", "property", "add", "dev", "left0", "altname", "leftother"]);
        let refusals = place.enter(|| {
            let of = |first: &str, second: &str| {
                refused(&[
                    &format!("net_af_packet0,iface={first}"),
                    &format!("mlx5_model1,wire=iface:{second}"),
                ])
            };
            [of("left0", "leftother"), of("leftother", "left0"), of("leftother", "left1")]
        });
        let [by_other, by_own, apart] = refusals.join().expect("no panic");
        let told = |name| {
            format!(
                "device 'mlx5_model1': wire=iface:{name}: is also used by 'net_af_packet0': give each port its own interface"
            )
        };
        assert_eq!((by_other, by_own, apart), (Some(told("leftother")), Some(told("left0")), None));
    }

    #[test]
    fn two_ports_of_a_model_have_two_interfaces() {
        let twice = refused(&["mlx5_model0,wire=iface:h6none,wire2=iface:h6none"]);
        assert_eq!(
            twice.as_deref(),
            Some(
                "device 'mlx5_model0': wire2=iface:h6none: is also used by 'mlx5_model0': give each port its own interface"
            )
        );
        assert_eq!(refused(&["mlx5_model0,wire=iface:h6none,wire2=iface:h6other"]), None);
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
                        line.ends_with(&format!(
                            "is also used by '{owner}': give each port its own interface"
                        )),
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
                    "device 'net_tap1': iface={name}: is also used by 'net_tap0': give each port its own interface"
                ))
            );
        }
        assert_eq!(refused(&["net_tap0,iface=a%d", "net_tap1,iface=a%d", "net_tap2", "net_tap3"]), None);
        assert_eq!(refused(&["mlx5_0", "mlx5_1", "0000:03:00.0"]), None);
    }
}
