use std::collections::VecDeque;
use std::sync::Weak;

use super::*;

/// A wire between stations: what one sends, all others hear when the wire is worked.
#[derive(Debug, Default)]
struct Hub {
    stations: Mutex<Vec<Weak<Station>>>,
    queue: Mutex<VecDeque<(usize, Vec<u8>)>>,
    frames: Mutex<Vec<Vec<u8>>>,
}

struct Station {
    hub: Arc<Hub>,
    number: usize,
    steps: bool,
    listener: Mutex<Option<FrameListener>>,
}

impl fmt::Debug for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Station").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Hub {
    fn plug(self: &Arc<Self>, steps: bool) -> Arc<Station> {
        let mut stations = self.stations.lock().unwrap();
        let number = stations.len();
        let station = Arc::new(Station { hub: Arc::clone(self), number, steps, listener: Mutex::default() });
        stations.push(Arc::downgrade(&station));
        station
    }

    fn work(&self) {
        while let Some((from, frame)) = { self.queue.lock().unwrap().pop_front() } {
            let stations: Vec<_> = self.stations.lock().unwrap().iter().filter_map(Weak::upgrade).collect();
            for station in stations.iter().filter(|station| station.number != from) {
                let listener = station.listener.lock().unwrap().clone();
                if let Some(listener) = listener {
                    listener(&frame);
                }
            }
            self.frames.lock().unwrap().push(frame);
        }
    }
}

impl Frames for Station {
    fn send(&self, frame: &[u8]) {
        self.hub.queue.lock().unwrap().push_back((self.number, frame.to_vec()));
        if !self.steps {
            self.hub.work();
        }
    }

    fn on_frame(&self, listener: FrameListener) {
        *self.listener.lock().unwrap() = Some(listener);
    }

    fn turn(&self) -> bool {
        if self.steps {
            self.hub.work();
        }
        self.steps
    }
}

fn neighbours(hub: &Arc<Hub>, steps: bool, last: u8, addresses: &[&str]) -> Arc<Neighbours> {
    let addresses = addresses.iter().map(|text| text.parse().expect(text)).collect();
    let network = Network { frames: hub.plug(steps), addresses };
    Neighbours::start(network, [2, 0, 0, 0, 0, last])
}

fn gid(text: &str) -> [u8; 16] {
    match text.parse().expect(text) {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[test]
fn addresses_are_asked_for_and_answered() {
    for steps in [false, true] {
        let hub = Arc::new(Hub::default());
        let one = neighbours(&hub, steps, 1, &["192.0.2.1/24", "2001:db8::1/64"]);
        let two = neighbours(&hub, steps, 2, &["192.0.2.2/24", "2001:db8::2/64"]);
        let second = [2, 0, 0, 0, 0, 2];
        assert_eq!(one.resolve(&gid("192.0.2.1"), &gid("192.0.2.2")), Ok(second));
        assert_eq!(one.resolve(&gid("2001:db8::1"), &gid("2001:db8::2")), Ok(second));
        // The one who was asked has learned who asked.
        let before = hub.frames.lock().unwrap().len();
        assert_eq!(two.resolve(&gid("192.0.2.2"), &gid("192.0.2.1")), Ok([2, 0, 0, 0, 0, 1]));
        assert_eq!(hub.frames.lock().unwrap().len(), before, "nothing more was asked");
        // Its own address is its own MAC; what is in no subnet is not asked for.
        assert_eq!(one.resolve(&gid("192.0.2.1"), &gid("192.0.2.1")), Ok([2, 0, 0, 0, 0, 1]));
        assert_eq!(one.resolve(&gid("192.0.2.1"), &gid("198.51.100.1")), Err(Errno::ENETUNREACH));
        assert_eq!(one.resolve(&gid("192.0.2.1"), &gid("2001:db8::2")), Err(Errno::ENETUNREACH));
        assert_eq!(one.resolve(&gid("192.0.2.9"), &gid("192.0.2.2")), Err(Errno::ENETUNREACH));
    }
}

#[test]
fn who_was_heard_of_long_ago_is_asked_again_and_forgotten_when_gone() {
    for steps in [false, true] {
        let hub = Arc::new(Hub::default());
        let one = neighbours(&hub, steps, 1, &["192.0.2.1/24"]);
        let two = neighbours(&hub, steps, 2, &["192.0.2.2/24"]);
        let (from, to) = (gid("192.0.2.1"), gid("192.0.2.2"));
        let age = |one: &Neighbours| {
            let Some(past) = Instant::now().checked_sub(2 * REACHABLE) else { return };
            one.known().values_mut().for_each(|known| known.heard = past);
        };
        assert_eq!(one.lookup(&from, &to), Err(Errno::ETIMEDOUT), "nobody was asked");
        assert_eq!(one.resolve(&from, &to), Ok([2, 0, 0, 0, 0, 2]));
        let before = hub.frames.lock().unwrap().len();
        age(&one);
        // A look does not ask; a question does, and the answer makes it young again.
        assert_eq!(one.lookup(&from, &to), Ok([2, 0, 0, 0, 0, 2]));
        assert_eq!(hub.frames.lock().unwrap().len(), before);
        assert_eq!(one.resolve(&from, &to), Ok([2, 0, 0, 0, 0, 2]));
        let asked = hub.frames.lock().unwrap().len();
        assert!(asked > before, "it was asked again");
        assert_eq!(one.resolve(&from, &to), Ok([2, 0, 0, 0, 0, 2]));
        assert_eq!(hub.frames.lock().unwrap().len(), asked);
        if steps {
            drop(two);
            age(&one);
            assert_eq!(one.resolve(&from, &to), Err(Errno::ETIMEDOUT));
            assert_eq!(one.lookup(&from, &to), Err(Errno::ETIMEDOUT), "it is forgotten");
        }
    }
}

#[test]
fn who_is_not_there_is_asked_for_a_few_times() {
    let hub = Arc::new(Hub::default());
    let one = neighbours(&hub, true, 1, &["192.0.2.1/24"]);
    assert_eq!(one.resolve(&gid("192.0.2.1"), &gid("192.0.2.7")), Err(Errno::ETIMEDOUT));
    assert_eq!(hub.frames.lock().unwrap().len(), QUESTIONS_IN_TURNS);
}

#[test]
fn an_answer_after_the_last_look_is_not_forgotten() {
    let hub = Arc::new(Hub::default());
    let one = neighbours(&hub, true, 1, &["192.0.2.1/24"]);
    let (target, mac) = (IpAddr::from([192, 0, 2, 7]), [2, 0, 0, 0, 0, 7]);
    let begin = Instant::now();
    assert_eq!(one.give_up(target, begin), None);
    one.learn(target, mac);
    assert_eq!(one.give_up(target, begin), Some(mac));
    assert_eq!(one.lookup(&gid("192.0.2.1"), &gid("192.0.2.7")), Ok(mac));
    // What was heard long before the question is.
    assert_eq!(one.give_up(target, begin + 2 * REACHABLE), None);
    assert_eq!(one.lookup(&gid("192.0.2.1"), &gid("192.0.2.7")), Err(Errno::ETIMEDOUT));
}

#[test]
fn who_is_not_waited_for_is_asked_and_found_later() {
    let hub = Arc::new(Hub::default());
    let one = neighbours(&hub, false, 1, &["192.0.2.1/24"]);
    let (from, to, mac) = (gid("192.0.2.1"), gid("192.0.2.2"), [2, 0, 0, 0, 0, 2]);
    let begin = Instant::now();
    (0..100).for_each(|_| one.ask_once(&from, &to));
    assert!(begin.elapsed() < PATIENCE, "nothing waits");
    assert_eq!(hub.frames.lock().unwrap().len(), 1, "one question in that time");
    assert_eq!(one.lookup(&from, &to), Err(Errno::ETIMEDOUT));
    let target = IpAddr::from([192, 0, 2, 2]);
    one.asked().get_mut(&target).unwrap().last -= PATIENCE;
    one.ask_once(&from, &to);
    assert_eq!(hub.frames.lock().unwrap().len(), 2, "it is asked again");
    one.learn(target, mac);
    assert!(one.asked().is_empty());
    assert_eq!(one.lookup(&from, &to), Ok(mac));
    // Heard of long ago: it is asked for, counts meanwhile, and is forgotten in the end.
    one.known().get_mut(&target).unwrap().heard -= 2 * REACHABLE;
    one.ask_once(&from, &to);
    assert_eq!(one.lookup(&from, &to), Ok(mac));
    let long_ago = Instant::now() - ASKED;
    one.asked().insert(target, Asked { first: long_ago, last: long_ago });
    one.ask_once(&from, &to);
    assert_eq!(one.lookup(&from, &to), Err(Errno::ETIMEDOUT));
    assert_eq!(hub.frames.lock().unwrap().len(), 4);
}

#[test]
fn an_announcement_spares_the_question() {
    let hub = Arc::new(Hub::default());
    let one = neighbours(&hub, false, 1, &["192.0.2.1/24"]);
    let two = neighbours(&hub, false, 2, &["192.0.2.2/24"]);
    one.announce();
    one.announce();
    // The link-local address and the other one.
    assert_eq!(hub.frames.lock().unwrap().len(), 2);
    assert_eq!(two.resolve(&gid("192.0.2.2"), &gid("192.0.2.1")), Ok([2, 0, 0, 0, 0, 1]));
    assert_eq!(hub.frames.lock().unwrap().len(), 2);
}

#[test]
fn packets_are_those_of_the_standards() {
    let asked =
        packet::question([2, 0, 0, 0, 0, 1], "192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
    let golden = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1,
        192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2,
    ];
    assert_eq!(asked.as_deref(), Some(golden.as_slice()));
    let asked =
        packet::question([2, 0, 0, 0, 0, 1], "fe80::1".parse().unwrap(), "fe80::2:3456".parse().unwrap())
            .expect("of one version");
    assert_eq!(asked[..6], [0x33, 0x33, 0xff, 2, 0x34, 0x56]);
    assert_eq!(asked[21], 255, "hop limit");
    assert_eq!(asked[54], 135, "a solicitation");
    let heard = packet::parse(&asked).expect("a question");
    let answer = packet::answer(&heard, [2, 0, 0, 0, 0, 9]).expect("an answer");
    let statement = Heard::Statement { address: "fe80::2:3456".parse().unwrap(), mac: [2, 0, 0, 0, 0, 9] };
    assert_eq!(packet::parse(&answer), Some(statement));
    // A byte that differs is found by the checksum.
    let mut broken = answer;
    broken[70] ^= 1;
    assert_eq!(packet::parse(&broken), None);
}

#[test]
fn some_addresses_name_their_mac() {
    let mac = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
    assert_eq!(named_mac(&link_local(mac).octets()), Some(mac));
    assert_eq!(named_mac(&gid("224.1.2.3")), Some([1, 0, 0x5e, 1, 2, 3]));
    assert_eq!(named_mac(&gid("ff0e::ffff:239.129.2.3")), Some([1, 0, 0x5e, 1, 2, 3]));
    assert_eq!(named_mac(&gid("ff02::1:2")), Some([0x33, 0x33, 0, 1, 0, 2]));
    assert_eq!(named_mac(&gid("fe80::1")), None);
    assert_eq!(named_mac(&gid("192.0.2.1")), None);
}

#[test]
fn text_is_an_address_with_its_subnet() {
    for text in ["192.0.2.1/24", "2001:db8::1/64", "10.0.0.1/32"] {
        assert_eq!(text.parse::<InterfaceAddress>().expect(text).to_string(), text);
    }
    for text in [
        "192.0.2.1",
        "192.0.2.1/33",
        "192.0.2.1/0",
        "224.0.0.1/4",
        "0.0.0.0/8",
        "ff02::1/64",
        "::/64",
        "x/1",
        "",
    ] {
        let error = text.parse::<InterfaceAddress>().expect_err(text);
        assert!(error.to_string().contains("192.0.2.1/24"), "{error}");
    }
}

#[test]
fn noise_is_not_heard() {
    let hub = Arc::new(Hub::default());
    let one = neighbours(&hub, false, 1, &["192.0.2.1/24"]);
    let asked =
        packet::question([2, 0, 0, 0, 0, 7], "192.0.2.7".parse().unwrap(), "192.0.2.1".parse().unwrap());
    let asked = asked.expect("of one version");
    for bytes in 0..asked.len() {
        one.hear(&asked[..bytes]);
    }
    assert!(one.known().is_empty());
    assert!(hub.frames.lock().unwrap().is_empty());
    one.hear(&asked);
    assert_eq!(hub.frames.lock().unwrap().len(), 1);
}
