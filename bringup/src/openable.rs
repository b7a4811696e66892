//! What a user who named no device could have named: the devices of this machine that some driver opens.

use std::fs;
use std::path::Path;

/// A device that is there, and the option that opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Openable {
    /// As it would be typed: `-a 0000:03:00.0`, `--vdev net_af_packet0,iface=eth0`.
    pub(crate) option: String,
    /// What else it is called, where that helps: `mlx5_0`.
    pub(crate) also: Option<String>,
}

/// More would not be read.
const SHOWN_MAX: usize = 8;

/// The one line about them.
pub(crate) fn line(all: &[Openable]) -> String {
    if all.is_empty() {
        return "no usable device found for -a or --vdev net_af_packet0,iface=NAME".into();
    }
    let shown = all.iter().take(SHOWN_MAX).map(|one| match &one.also {
        Some(name) => format!("{} ({name})", one.option),
        None => one.option.clone(),
    });
    let rest = match all.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    format!("available devices: {}{rest}", shown.collect::<Vec<_>>().join(", "))
}

/// The network interfaces on which `net_af_packet` receives: Ethernet, up, not the loopback.
pub(crate) fn interfaces(root: &Path) -> Vec<Openable> {
    let Ok(entries) = fs::read_dir(root.join("sys/class/net")) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let read = |file: &str| fs::read_to_string(entry.path().join(file)).ok();
            // Linux `include/uapi/linux/if.h` and `if_arp.h`: IFF_UP 0x1, IFF_LOOPBACK 0x8, ARPHRD_ETHER 1.
            let flags = read("flags")?;
            let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).ok()?;
            let usable = flags & 0x1 != 0 && flags & 0x8 == 0 && read("type")?.trim() == "1";
            let name = entry.file_name().into_string().ok()?;
            usable.then_some(name)
        })
        .collect();
    names.sort_unstable();
    let option = |(number, name)| format!("--vdev net_af_packet{number},iface={name}");
    names.into_iter().enumerate().map(option).map(|option| Openable { option, also: None }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_that_can_be_used_are_found() {
        let root = tempfile::tempdir().unwrap();
        assert!(interfaces(root.path()).is_empty(), "no sysfs, nothing found");
        for (name, flags, kind) in [
            ("eth1", "0x1003", "1"),
            ("eth0", "0x1003", "1"),
            ("lo", "0x9", "772"),
            ("down0", "0x1002", "1"),
            ("ppp0", "0x1003", "512"),
        ] {
            let folder = root.path().join("sys/class/net").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("flags"), format!("{flags}\n")).unwrap();
            fs::write(folder.join("type"), format!("{kind}\n")).unwrap();
        }
        // Not an interface, though it lies there.
        fs::write(root.path().join("sys/class/net/bonding_masters"), "").unwrap();
        let found: Vec<String> = interfaces(root.path()).into_iter().map(|one| one.option).collect();
        assert_eq!(found, ["--vdev net_af_packet0,iface=eth0", "--vdev net_af_packet1,iface=eth1"]);
    }

    #[test]
    fn the_line_lists_what_there_is_and_says_so_when_there_is_nothing() {
        assert_eq!(line(&[]), "no usable device found for -a or --vdev net_af_packet0,iface=NAME");
        let card = Openable { option: "-a 0000:03:00.0".into(), also: Some("mlx5_0".into()) };
        let plain = Openable { option: "--vdev net_af_packet0,iface=eth0".into(), also: None };
        assert_eq!(
            line(&[card, plain.clone()]),
            "available devices: -a 0000:03:00.0 (mlx5_0), --vdev net_af_packet0,iface=eth0"
        );
        let many = vec![plain; SHOWN_MAX + 3];
        assert!(line(&many).ends_with("iface=eth0 and 3 more"), "{}", line(&many));
    }
}
