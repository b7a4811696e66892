//! Taps as a user without rights, and with `CAP_NET_ADMIN` alone. The user is this program again, started by `setpriv`.

use std::net::UdpSocket;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use pollux_mempool::{Burst, MbufPool};
use pollux_port::{Port, PortConfig, PortId};
use pollux_port_soft::tap::{TapOptions, TapPort};
use pollux_tests::netns::Namespace;
use pollux_tests::require::{Need, require};

/// Tells the user's process how many queues it is to open.
const QUEUES: &str = "POLLUX_TEST_TAP_QUEUES";

/// The user's part: nothing unless it is started by [`user`].
#[test]
fn as_a_user() {
    let Some(queues) = std::env::var(QUEUES).ok().and_then(|text| text.parse().ok()) else { return };
    match forward(queues) {
        Ok(()) => println!("it works"),
        Err(line) => println!("it fails: {line}"),
    }
}

fn line(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {}", line(cause))).unwrap_or_default();
    format!("{error}{cause}")
}

fn forward(queues: usize) -> Result<(), String> {
    let pool = MbufPool::builder("user", 255).build_anonymous().map_err(|error| line(&error))?;
    let options = TapOptions { interface: "plxtap".into(), mac: None };
    let driver = TapPort::new(&options).map_err(|error| line(&error))?;
    let mut port = Port::new(PortId(0), "net_tap0", Box::new(driver));
    let mut ends = port.bring_up(PortConfig::queues(queues, queues, &pool)).map_err(|error| line(&error))?;
    assert_eq!(port.mtu().map_err(|error| line(&error))?, 1500);
    for _period in 0..2 {
        // The address is there where root made the interface.
        let Ok(socket) = UdpSocket::bind("10.9.0.1:0") else { break };
        let (begun, mut burst) = (Instant::now(), Burst::new());
        let mut asked = false;
        while !asked {
            assert!(begun.elapsed() < Duration::from_secs(10), "no frame came");
            socket.send_to(b"hello", "10.9.0.2:9").map_err(|error| line(&error))?;
            for rx in &mut ends.rx {
                rx.rx_burst(&mut burst, 32);
            }
            // Who has 10.9.0.2?
            asked = burst.iter().any(|mbuf| mbuf.data()[12..14] == [8, 6]);
            let sent = burst.len();
            assert_eq!(ends.tx[queues - 1].tx_burst(&mut burst), sent);
        }
        port.stop().map_err(|error| line(&error))?;
        port.start().map_err(|error| line(&error))?;
    }
    Ok(())
}

/// Starts this program as nobody, who may open `/dev/net/tun` as on most systems.
fn user(host: &Namespace, queues: usize, capabilities: &str) -> String {
    let program = std::env::current_exe().expect("this program");
    let script = "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && \
                  cp \"$1\" /dev/net/program && chmod 755 /dev/net/program && \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set \"-all$2\" \
                  --inh-caps \"-all$2\" --ambient-caps \"-all$2\" /dev/net/program --exact as_a_user --nocapture";
    let mut command: Command = host.command("unshare", &["--mount", "sh", "-c", script, "sh"]);
    command.arg(program).arg(capabilities).env(QUEUES, queues.to_string());
    let Output { stdout, stderr, .. } = command.output().expect("unshare");
    let text = String::from_utf8_lossy(&stdout).into_owned();
    let said = text.lines().find_map(|line| line.find("it ").map(|at| line[at..].to_owned()));
    said.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&stderr)))
}

#[test]
fn a_tap_takes_no_more_rights_than_it_needs() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let needs = "creating a tap interface, or taking one that is not the user's, for \
                 plxtap needs CAP_NET_ADMIN: ";
    let down = "it fails: port net_tap0: cannot start interface plxtap: needs CAP_NET_ADMIN, or `ip link set plxtap up` as root";
    let one = "interface plxtap: has one queue: make it with several";
    // How root made the interface, if it is there; up or down; queues; rights; how what the user says begins or goes on.
    let nobody: &[&str] = &["user", "nobody"];
    let several: &[&str] = &["user", "nobody", "multi_queue"];
    let table = [
        (Some(nobody), true, 1, "", "it works"),
        (Some(several), true, 1, "", "it works"),
        (Some(several), true, 2, "", "it works"),
        (Some(nobody), true, 2, "", one),
        (Some(nobody), false, 1, "", down),
        (Some(&["user", "root"][..]), true, 1, "", needs),
        (None, true, 1, "", needs),
        (None, true, 1, ",+net_admin", "it works"),
        (None, true, 2, ",+net_admin", "it works"),
        (Some(nobody), false, 1, ",+net_admin", "it works"),
    ];
    for (made, up, queues, capabilities, expected) in table {
        let host = Namespace::new("user");
        if let Some(options) = made {
            let add = [&["tuntap", "add", "dev", "plxtap", "mode", "tap"], options].concat();
            host.ip(&add);
            host.quiet_ipv6("plxtap");
            host.ip(&["address", "add", "10.9.0.1/24", "dev", "plxtap"]);
            if up {
                host.ip(&["link", "set", "plxtap", "up"]);
            }
        }
        let said = user(&host, queues, capabilities);
        assert!(said.contains(expected), "{made:?} up {up} queues {queues} rights {capabilities:?}: {said}");
    }
}
