//! What is asked of an interface by netlink, on a real one.

use std::process::Command;

use pollux_frame_io::interface::Interface;
use pollux_tests::netns::{Namespace, join, must};
use pollux_tests::require::{Need, require};

#[test]
fn the_kernel_does_what_is_asked_of_an_interface() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("netlink");
    join(&host, "va", &host, "vb");
    host.enter(|| {
        let shown = |program: &str, args: &[&str]| {
            let output = must(Command::new(program).args(args));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let flags = || shown("ip", &["link", "show", "va"]);
        let interface = Interface::find("va").expect("it is there");
        for on in [true, false] {
            interface.set_promiscuous(on).expect("root may");
            assert_eq!(flags().contains("PROMISC"), on, "{}", flags());
            interface.set_all_multicast(on).expect("root may");
            assert_eq!(flags().contains("ALLMULTI"), on, "{}", flags());
            assert!(flags().contains("UP"), "no other flag is touched: {}", flags());
            for again in [false, true] {
                let changed = interface.set_further_mac([2, 0, 0, 0, 7, 7], on).expect("root may");
                assert_eq!(changed, !again);
                let table = shown("bridge", &["fdb", "show", "dev", "va"]);
                assert_eq!(table.contains("02:00:00:00:07:07"), on, "{table}");
            }
        }
        must(Command::new("ip").args(["link", "delete", "va"]));
        let gone = interface.set_promiscuous(true).expect_err("it is gone");
        assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
    });
}
