//! `net_af_xdp` on veth pairs: the driver's own hooks and the kernel's, both rings' accounts, and how it ends.

use std::error::Error;
use std::process::{Command, Stdio};

use pollux_mempool::Mbuf;
use pollux_port_soft::af_xdp::{AfXdpPort, XdpPortOptions};

use super::*;

fn af_xdp(interface: &str) -> Box<dyn PortDriver> {
    open(XdpPortOptions::new(interface))
}

/// Without calls for polls that bring nothing: interrupts bring the frames.
fn af_xdp_quiet(interface: &str) -> Box<dyn PortDriver> {
    open(XdpPortOptions { busy_budget: 0, queues: 2, ..XdpPortOptions::new(interface) })
}

fn open(options: XdpPortOptions) -> Box<dyn PortDriver> {
    Box::new(AfXdpPort::new(options).unwrap_or_else(|error| panic!("{error:?}")))
}

/// A veth pair with two queues on each end, of which the first sends on one: what it sends comes to queue 0 of the other.
fn join_wide(a: &Namespace, end_a: &str, b: &Namespace, end_b: &str) {
    let queues = ["numrxqueues", "2", "numtxqueues", "2"];
    let made = [
        &["link", "add", end_a, "netns", a.name()],
        &queues[..],
        &["type", "veth", "peer", "name", end_b, "netns", b.name()],
        &queues[..],
    ];
    must(Command::new("ip").args(made.concat()));
    for (host, end, tx) in [(a, end_a, "1"), (b, end_b, "2")] {
        host.quiet_ipv6(end);
        must(&mut host.command("ethtool", &["-L", end, "rx", "2", "tx", tx]));
        host.ip(&["link", "set", end, "up"]);
    }
}

/// What the kernel would leave open, it closes: it tells a program nothing of what it left.
fn close_checksums(host: &Namespace, interface: &str) {
    must(&mut host.command("ethtool", &["-K", interface, "tx", "off"]));
}

/// Whether an XDP program is on an interface.
fn has_program(host: &Namespace, interface: &str) -> bool {
    let shown = must(&mut host.command("ip", &["-d", "link", "show", "dev", interface]));
    String::from_utf8_lossy(&shown.stdout).contains("prog/xdp")
}

#[test]
fn af_xdp_conforms() {
    let Some(host) = host("xconf") else { return };
    host.enter(|| run(&OnLink("net_af_xdp0", af_xdp))).join().expect("the list");
    assert!(!has_program(&host, "vb"), "the last port has taken its program along");
}

#[test]
fn af_xdp_on_two_queues_conforms() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("xconf2");
    quiet(&host);
    join_wide(&host, "va", &host, "vb");
    host.enter(|| run(&OnLink("net_af_xdp0", af_xdp_quiet))).join().expect("the list");
}

#[test]
fn two_hosts_talk_through_af_xdp() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    for (mtu, large) in [("1500", "1472"), ("9000", "8972")] {
        let (a, b, middle) = (Namespace::new("xa"), Namespace::new("xb"), Namespace::new("xm"));
        quiet(&middle);
        join(&a, "va", &middle, "xa");
        join(&b, "vb", &middle, "xb");
        for (host, end) in [(&a, "va"), (&b, "vb"), (&middle, "xa"), (&middle, "xb")] {
            host.ip(&["link", "set", end, "mtu", mtu]);
        }
        a.ip(&["addr", "add", "10.7.0.1/24", "dev", "va"]);
        b.ip(&["addr", "add", "10.7.0.2/24", "dev", "vb"]);
        close_checksums(&a, "va");
        close_checksums(&b, "vb");
        let patch = Patch::new(&middle, [("xa", af_xdp), ("xb", af_xdp)], 1);
        assert!(has_program(&middle, "xa"));
        ping(&a, "10.7.0.2", "56");
        // One frame as long as the MTU allows, and several.
        ping(&a, "10.7.0.2", large);
        ping(&b, "10.7.0.1", "20000");
        transfer(&a, &b, "10.7.0.2");
        transfer(&b, &a, "10.7.0.1");
        drop(patch);
        assert!(!has_program(&middle, "xa") && !has_program(&middle, "xb"));
        // Packets reach the kernel again, and its own way with them.
        middle.ip(&["addr", "add", "10.7.0.3/24", "dev", "xa"]);
        ping(&a, "10.7.0.3", "56");
    }
}

/// A checksum that the sender left open arrives open, and nothing tells: it leaves as it came.
#[test]
fn an_open_checksum_arrives_as_it_is() {
    use pollux_frame_io::vnet::PartialChecksum;
    let Some(host) = host("xsum") else { return };
    let work = host.enter(|| {
        let pool = pool();
        let (_port, mut queues) = start("vb", af_xdp("vb"), 1, &pool);
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 9, 0x08, 0x00]);
        frame.extend([0x45, 0, 0, 36, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 7, 0, 9, 0, 16, 0xab, 0xcd, 1, 2, 3, 4, 5, 6, 7, 8]);
        frame.resize(60, 0);
        let header =
            VnetHeader { checksum: Some(PartialChecksum { start: 34, offset: 6 }), ..VnetHeader::default() };
        let mut far = PacketPort::open(&PacketOptions::new("va")).expect("opens");
        far.queues[0].1.send(&header, &[std::io::IoSlice::new(&frame)]).expect("sent");
        let (mut burst, end) = (Burst::new(), Instant::now() + PATIENCE);
        while !burst.iter().any(|mbuf| mbuf.data() == frame) {
            burst.clear();
            queues.rx[0].rx_burst(&mut burst, 32);
            assert!(Instant::now() < end, "the frame arrives, its sum untouched");
        }
        let mbuf = burst.iter().find(|mbuf| mbuf.data() == frame).expect("seen");
        assert!(mbuf.tx_flags().is_empty(), "nothing is known of it");
    });
    work.join().expect("the test in its namespace");
}

/// Sends `count` frames from `far` and receives them all.
fn pass(feed: &mut Feed, queue: &mut RxQueue, count: usize) -> Vec<Mbuf> {
    let Feed::Given(give) = feed else { panic!("frames are given") };
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
    frame.resize(100, 0x5a);
    let (mut got, mut burst) = (Vec::new(), Burst::new());
    let end = Instant::now() + PATIENCE;
    for sent in 1..=count {
        give(&frame);
        while got.len() < sent {
            queue.rx_burst(&mut burst, 32);
            got.extend(burst.drain(..).filter(|mbuf| mbuf.data() == frame));
            assert!(Instant::now() < end, "frame {sent}");
        }
    }
    got
}

/// Received frames lie in mbufs of the pool, which are sent from there; others are copied, and all come home.
#[test]
fn mbufs_go_round_and_none_is_lost() {
    let Some(host) = host("xhome") else { return };
    let work = host.enter(|| {
        let pool = pool();
        let stranger = MbufPool::builder("stranger", 64).build_anonymous().expect("memory");
        for round in 0..3 {
            let (mut port, mut queues) = start("vb", af_xdp("vb"), 1, &pool);
            let (mut feed, mut sent) = outside("va");
            assert_eq!(pool.in_use(), 2048, "the fill ring is full");
            let got = pass(&mut feed, &mut queues.rx[0], 3000);
            assert!(got.iter().all(|mbuf| mbuf.is_plain_of(&pool)), "in the pool's own mbufs");
            assert!(got.iter().all(|mbuf| mbuf.headroom() == 256));
            drop(got);
            let mut burst = Burst::new();
            let mut frame = vec![0xff; 6];
            frame.extend([2, 0, 0, 0, 0, 8, 0x88, 0xb5]);
            frame.resize(200, 7);
            let ours = |pool: &MbufPool| {
                let mut mbuf = pool.alloc().expect("some left");
                assert!(mbuf.append_slice(&frame));
                mbuf
            };
            let clone = ours(&pool).clone_indirect(&pool).expect("some left");
            let mut chain = pool.alloc().expect("some left");
            assert!(chain.append_slice(&frame[..20]));
            let mut tail = pool.alloc().expect("some left");
            assert!(tail.append_slice(&frame[20..]));
            chain.chain(tail).expect("two");
            let wanted = [ours(&pool), ours(&stranger), clone, chain];
            let count = wanted.len();
            burst.extend(wanted);
            assert_eq!(queues.tx[0].tx_burst(&mut burst), count);
            assert_eq!(stranger.in_use(), 0, "copied at once");
            let (mut seen, end) = (0, Instant::now() + PATIENCE);
            while seen < count {
                let frames = sent.as_mut().expect("a way to see")();
                seen += frames.iter().filter(|seen| **seen == frame).count();
                assert!(Instant::now() < end, "{seen} of {count} left");
            }
            // What asks for something that the port lacks is taken and counted.
            let mut asking = ours(&pool);
            asking.set_tx_flags(pollux_mempool::TxFlags::IPV4 | pollux_mempool::TxFlags::UDP_CHECKSUM);
            burst.push(asking);
            assert_eq!((queues.tx[0].tx_burst(&mut burst), burst.len()), (1, 0));
            assert_eq!(port.xstat("tx_malformed_errors").expect("there").value, 1);
            assert_eq!(port.xstat("unknown_addresses").expect("there").value, 0);
            // Ends in whichever order: with mbufs in all rings, and after a restart.
            port.stop().expect("stops");
            port.start().expect("starts");
            assert_eq!(pass(&mut feed, &mut queues.rx[0], 3).len(), 3, "after a restart");
            let Queues { rx, tx } = queues;
            if round == 0 {
                port.stop().expect("stops");
                port.close().expect("closes");
                drop((tx, rx));
            } else if round == 1 {
                drop(rx);
                drop(port);
                drop(tx);
            } else {
                drop((rx, tx));
                drop(port);
            }
            assert_eq!((pool.in_use(), stranger.in_use()), (0, 0), "round {round}");
        }
    });
    work.join().expect("the test in its namespace");
}

/// Mbufs too small to be chunks, and a tx queue without an rx queue: frames are copied.
#[test]
fn frames_are_copied_where_the_pool_cannot_be_the_sockets_memory() {
    let Some(host) = host("xcopy") else { return };
    let work = host.enter(|| {
        let small = MbufPool::builder("small", 4096).data_room(1024).build_anonymous().expect("memory");
        let (port, mut queues) = start("vb", af_xdp("vb"), 1, &small);
        let (mut feed, _) = outside("va");
        let got = pass(&mut feed, &mut queues.rx[0], 100);
        assert!(got.iter().all(|mbuf| mbuf.is_plain_of(&small)));
        assert_eq!(small.in_use(), 100, "the ring has mbufs of another pool");
        drop((got, queues, port));
        assert_eq!(small.in_use(), 0);

        let mut port = Port::new(PortId(0), "vb", af_xdp("vb"));
        let mut queues =
            port.bring_up(PortConfig::queues(0, 1, &small)).unwrap_or_else(|error| panic!("{error:?}"));
        let (_, mut sent) = outside("va");
        let mut burst = Burst::new();
        let mut mbuf = small.alloc().expect("full");
        assert!(mbuf.append_slice(&[0x5a; 300]));
        burst.push(mbuf);
        assert_eq!(queues.tx[0].tx_burst(&mut burst), 1);
        let end = Instant::now() + PATIENCE;
        while !sent.as_mut().expect("a way to see")().iter().any(|frame| frame == &[0x5a; 300]) {
            assert!(Instant::now() < end, "it leaves");
        }
    });
    work.join().expect("the test in its namespace");
}

#[test]
fn an_interface_that_goes_down_comes_back_and_one_that_is_removed_ends_the_port() {
    let Some(host) = host("xgone") else { return };
    let work = host.enter(|| {
        let ip = |args: &[&str]| drop(must(Command::new("ip").args(args)));
        let pool = pool();
        let (mut port, mut queues) = start("vb", af_xdp("vb"), 1, &pool);
        let (mut feed, _) = outside("va");
        assert_eq!(port.poll_event(), None);
        for _ in 0..3 {
            ip(&["link", "set", "vb", "down"]);
            let mut burst = Burst::new();
            let end = Instant::now() + PATIENCE;
            while !matches!(port.poll_event(), Some(PortEvent::Link(link)) if !link.up) {
                queues.rx[0].rx_burst(&mut burst, 32);
                assert!(Instant::now() < end, "the link goes down");
            }
            assert!(pool.alloc_burst(&mut burst, 4));
            burst.iter_mut().for_each(|mbuf| assert!(mbuf.append_slice(&[0xff; 60])));
            queues.tx[0].tx_burst(&mut burst);
            burst.clear();
            ip(&["link", "set", "vb", "up"]);
            while !matches!(port.poll_event(), Some(PortEvent::Link(link)) if link.up) {
                assert!(Instant::now() < end, "the link comes back");
            }
            assert_eq!(pass(&mut feed, &mut queues.rx[0], 5).len(), 5);
        }
        ip(&["link", "delete", "va"]);
        let mut burst = Burst::new();
        let end = Instant::now() + PATIENCE;
        while !queues.rx[0].is_gone() {
            queues.rx[0].rx_burst(&mut burst, 32);
            assert!(Instant::now() < end, "nobody noticed");
        }
        assert_eq!(port.state(), PortState::Gone);
        assert_eq!(port.poll_event(), Some(PortEvent::Removed));
        assert_eq!(port.poll_event(), None);
        assert!(!port.link().up);
        assert!(pool.alloc_burst(&mut burst, 4));
        assert_eq!(queues.tx[0].tx_burst(&mut burst), 0);
        burst.clear();
        port.stop().expect("stops");
        port.close().expect("closes");
        drop(queues);
        assert_eq!(pool.in_use(), 0);
    });
    work.join().expect("the test");
}

#[test]
fn an_arrival_wakes_who_sleeps_on_af_xdp() {
    let Some(host) = host("xintr") else { return };
    let work = host.enter(|| {
        let pool = pool();
        let mut port = Port::new(PortId(0), "vb", af_xdp("vb"));
        let config = PortConfig { rx_interrupts: true, ..PortConfig::queues(1, 1, &pool) };
        let mut queues = port.bring_up(config).unwrap_or_else(|error| panic!("{error:?}"));
        wakes_who_sleeps(&mut queues.rx[0], "va");
        drop((queues, port));
        assert_eq!(pool.in_use(), 0);
    });
    work.join().expect("the test");
}

fn line(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {}", line(cause)))
}

#[test]
fn what_af_xdp_cannot_have_is_said() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("xbad");
    quiet(&host);
    host.ip(&["link", "add", "down0", "type", "veth", "peer", "name", "down1"]);
    join(&host, "va", &host, "vb");
    let work = host.enter(|| {
        let pool = pool();
        let opened = |options: XdpPortOptions| {
            let driver = AfXdpPort::new(options).map_err(|error| line(&error))?;
            let mut port = Port::new(PortId(0), "p", Box::new(driver));
            let queues = port.bring_up(PortConfig::queues(1, 1, &pool)).map_err(|error| line(&error))?;
            Ok::<_, String>((port, queues))
        };
        let said = |options: XdpPortOptions| opened(options).map(drop).expect_err("refused");
        let of = XdpPortOptions::new;
        assert!(said(of("nope")).contains("interface \"nope\" does not exist"));
        assert!(said(of("down0")).ends_with("interface down0: is down: `ip link set down0 up` brings it up"));
        let past = said(XdpPortOptions { first_queue: 5, ..of("vb") });
        assert!(past.contains("interface vb: there is no queue 5: `ethtool -l vb` shows"), "{past}");
        let first = opened(of("vb")).unwrap_or_else(|error| panic!("{error}"));
        let second = said(of("vb"));
        assert!(second.contains("interface vb: another XDP program is attached: "), "{second}");
        drop(first);
        assert_eq!(pool.in_use(), 0);
        // The queue is free again at once, though the kernel lets go of it later.
        drop(opened(of("vb")).unwrap_or_else(|error| panic!("{error}")));
    });
    work.join().expect("the test");
}

/// Tells the process to be killed that it is it.
const VICTIM: &str = "POLLUX_TEST_XDP_VICTIM";

/// The process's part: nothing unless it is started by the test below.
#[test]
fn as_a_victim() {
    let Ok(interface) = std::env::var(VICTIM) else { return };
    let pool = pool();
    match AfXdpPort::new(XdpPortOptions::new(&interface)) {
        Err(error) => println!("it fails: {}", line(&error)),
        Ok(driver) => {
            let (_port, mut queues) = start("vb", Box::new(driver), 1, &pool);
            println!("it runs");
            let mut burst = Burst::new();
            loop {
                queues.rx[0].rx_burst(&mut burst, 32);
                burst.clear();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[test]
fn a_killed_process_leaves_no_program() {
    use std::io::{BufRead, BufReader};
    let Some(host) = host("xkill") else { return };
    let program = std::env::current_exe().expect("this program");
    for _ in 0..2 {
        let mut command =
            host.command(program.to_str().expect("UTF-8"), &["--exact", "xdp::as_a_victim", "--nocapture"]);
        let mut child = command.env(VICTIM, "vb").stdout(Stdio::piped()).spawn().expect("starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let said = out
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.find("it ").map(|at| line[at..].to_owned()));
        assert_eq!(said.as_deref(), Some("it runs"));
        assert!(has_program(&host, "vb"));
        child.kill().expect("kills");
        child.wait().expect("ends");
        let end = Instant::now() + PATIENCE;
        while has_program(&host, "vb") {
            assert!(Instant::now() < end, "the program ends with its process");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A user without rights is told which.
#[test]
fn af_xdp_needs_rights() {
    let Some(host) = host("xuser") else { return };
    let program = std::env::current_exe().expect("this program");
    let script = "mount -t tmpfs none /mnt && cp \"$1\" /mnt/program && chmod 755 /mnt/program && \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set \"-all$2\" \
                  --inh-caps \"-all$2\" --ambient-caps \"-all$2\" /mnt/program --exact xdp::as_a_victim --nocapture";
    for (rights, what) in [
        ("", "opening a packet socket for vb needs CAP_NET_RAW: "),
        (",+net_raw", "making a socket map for vb needs CAP_NET_RAW,CAP_NET_ADMIN,CAP_BPF: "),
    ] {
        let mut command = host.command("unshare", &["--mount", "sh", "-c", script, "sh"]);
        let done = command.arg(&program).arg(rights).env(VICTIM, "vb").output().expect("runs");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(
            said.contains("it fails: ") && said.contains(what),
            "{rights}: {said}{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
}
