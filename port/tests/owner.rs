//! Ports that belong to somebody, and ports found by what they are.

use pollux_port::driver::{PortDriver, RxBurst, RxSetup, TxBurst, TxSetup};
use pollux_port::{Link, MacAddress, Port, PortError, PortId, PortInfo, Ports};

/// A device with an address and nothing else.
struct Device(&'static str, u8);

impl PortDriver for Device {
    fn info(&self) -> PortInfo {
        PortInfo { driver: self.0, ..PortInfo::default() }
    }

    fn rx_queue_setup(&mut self, _setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        Err(PortError::unsupported("an rx queue", "nothing is ever received"))
    }

    fn tx_queue_setup(&mut self, _setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        Err(PortError::unsupported("a tx queue", "nothing is ever sent"))
    }

    fn link(&mut self, _started: bool) -> Link {
        Link::default()
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        Ok(1500)
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        match self.1 {
            0 => Err(PortError::unsupported("reading the address", "there is none")),
            last => Ok(MacAddress([2, 0, 0, 0, 0, last])),
        }
    }
}

fn ports() -> (Ports, [PortId; 4]) {
    let mut ports = Ports::new();
    let ids =
        [("net_a0", "net_a", 1), ("net_a1", "net_a", 2), ("net_b0", "net_b", 2), ("net_b1", "net_b", 0)]
            .map(|(name, driver, last)| ports.add(name, Box::new(Device(driver, last))).expect("a new name"));
    (ports, ids)
}

fn ids<'a>(ports: impl Iterator<Item = &'a Port>) -> Vec<PortId> {
    ports.map(Port::id).collect()
}

#[test]
fn owned_ports_are_passed_over_by_others_and_by_no_one_else() {
    let (mut ports, [a0, a1, b0, b1]) = ports();
    let (bond, probe) = (ports.new_owner("bond"), ports.new_owner("bond"));
    assert_ne!(bond, probe, "owners of one name differ");
    assert_eq!(ports.owner(a1).expect("there"), None);
    ports.set_owner(a1, &bond).expect("nobody's");
    ports.set_owner(b0, &bond).expect("nobody's");
    ports.set_owner(b0, &bond).expect("its own already");
    assert_eq!(ports.owner(b0).expect("there"), Some(&bond));
    assert_eq!(ids(ports.iter()), [a0, b1]);
    assert_eq!(ports.iter_mut().map(|port| port.id()).collect::<Vec<_>>(), [a0, b1]);
    assert_eq!(ids(ports.iter_owned_by(&bond)), [a1, b0]);
    assert!(ids(ports.iter_owned_by(&probe)).is_empty());
    assert_eq!(ids(ports.iter_all()), [a0, a1, b0, b1]);
    assert_eq!(ports.len(), 4);
    assert_eq!(ports.find("net_a1").ok(), Some(a1), "asked for by name it is there");

    for refused in [ports.set_owner(a1, &probe), ports.unset_owner(a1, &probe)] {
        let error = refused.expect_err("another's").to_string();
        assert_eq!(error, "port net_a1 is owned by bond (owner 1); its owner must release it first");
    }
    ports.unset_owner(a1, &bond).expect("its own");
    ports.unset_owner(a1, &bond).expect("nobody's by now");
    assert_eq!(ids(ports.iter()), [a0, a1, b1]);
    ports.set_owner(a1, &probe).expect("nobody's");
    assert_eq!(ports.delete_owner(bond), 1);
    assert_eq!(ids(ports.iter()), [a0, b0, b1]);
    let third = ports.new_owner("third");
    assert_eq!(third.id(), 3, "numbers are not used again");

    ports.remove(a1).expect("there");
    assert!(ids(ports.iter_owned_by(&probe)).is_empty(), "a port that is gone is nobody's");
    let error = ports.set_owner(a1, &third).expect_err("gone").to_string();
    assert_eq!(error, "no port 1; ports: net_a0, net_b0, net_b1");
}

#[test]
fn ports_are_found_by_what_a_device_argument_says() {
    let (mut ports, [a0, a1, b0, b1]) = ports();
    let owner = ports.new_owner("owner");
    ports.set_owner(a1, &owner).expect("nobody's");
    let table: [(&str, &[PortId]); 9] = [
        ("net_b1", &[b1]),
        ("net_a1,size=64,fault=[drop:0.1]", &[a1]),
        ("net_c0", &[]),
        ("driver=net_a", &[a0, a1]),
        ("driver=net_b,name=net_b0", &[b0]),
        ("name=net_b0,driver=net_a", &[]),
        ("mac=02:00:00:00:00:02", &[a1, b0]),
        ("class=eth,mac=02:00:00:00:00:02,driver=net_b", &[b0]),
        ("class=eth/driver=net_b", &[b0, b1]),
    ];
    for (text, wanted) in table {
        assert_eq!(ports.matching(text).expect(text), wanted, "{text}");
    }
    let refusals = [
        ("", "device '': has no name"),
        ("colour=red", "colour=red: unknown condition; conditions: driver, mac, name"),
        ("class=crypto", "unknown condition"),
        ("driver=net_a,mac=2", "\"2\" is not an Ethernet address"),
    ];
    for (text, part) in refusals {
        let error = ports.matching(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
