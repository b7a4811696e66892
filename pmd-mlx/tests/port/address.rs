//! Addresses and groups of a virtual function, which the embedded switch filters before rules are asked.

use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::{DeviceConfig, Traits};
use pollux_pmd_mlx::Arguments;
use pollux_port::{MacAddress, PortConfig};

use crate::harness::{A, Pair, burst, frame, pool, received};

const GROUPS: [[u8; 6]; 3] = [[1, 0, 0x5e, 0, 0, 1], [1, 0, 0x5e, 0, 0, 2], [0x33, 0x33, 0, 0, 0, 1]];
const FURTHER: [u8; 6] = [2, 0, 0, 0, 0, 9];

#[test]
fn groups_and_further_addresses_are_told_to_the_interface_of_a_virtual_function() {
    for (virtual_function, devx, netlink) in [
        (true, true, true),
        (true, false, true),
        (false, true, true),
        // Somebody else tells the interface.
        (true, true, false),
    ] {
        let pair = Pair::with(DoorProfile::default(), |config| {
            let traits = Traits { filters_vport: virtual_function, ..config.traits };
            DeviceConfig { traits, ..config }
        });
        // What the interface has in its lists by itself.
        pair.b.device.set_multicast(vec![[0xff; 6], GROUPS[2]]);
        let pool = pool("p", 4096);
        let arguments = Arguments { devx, netlink, ..Arguments::default() };
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
        let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
        let mut comes = |destination: [u8; 6]| {
            queues_a.tx[0].tx_burst(&mut burst(&pool, &[frame(destination, A, 1, 100)]));
            pair.settle();
            !received(&mut queues_b, 0).is_empty()
        };
        // What was told is let in; a physical function gets all.
        let told = netlink || !virtual_function;
        assert!(comes([0xff; 6]));
        assert_eq!(GROUPS.map(&mut comes), [false; 3], "no rule is for them");
        let list = |numbers: &[usize]| numbers.iter().map(|at| MacAddress(GROUPS[*at])).collect::<Vec<_>>();
        b.set_multicast_list(&list(&[0, 2])).expect("listed");
        assert_eq!(GROUPS.map(&mut comes), [told, false, true]);
        b.set_multicast_list(&list(&[1, 2])).expect("listed");
        assert_eq!(GROUPS.map(&mut comes), [false, told, true]);
        b.add_mac_address(MacAddress(FURTHER)).expect("added");
        assert_eq!(comes(FURTHER), told);
        b.set_multicast_list(&[]).expect("emptied");
        assert_eq!(GROUPS.map(&mut comes), [false; 3]);
        b.set_multicast_list(&list(&[0])).expect("listed");
        b.stop().expect("stops");
        b.close().expect("closes");
        // Nothing is left with the interface but what was its own.
        for mac in [GROUPS[0], GROUPS[1], FURTHER] {
            assert!(!pair.b.device.set_further_mac(mac, false), "{mac:x?} stays, {virtual_function} {devx}");
        }
        assert!(pair.b.device.set_further_mac(GROUPS[2], false), "the interface's own group is gone");
    }
}
