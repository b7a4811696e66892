//! Rules of verbs, seen by where frames end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollux_mlx5_abi::cqe::{Cqe64, Validity};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::DeviceConfig;
use pollux_uverbs::abi::flags::{Access, FlowFlags, FlowType, WqState};
use pollux_uverbs::abi::flow::{EspFilter, EthFilter, GreFilter, Ipv4Filter, TcpUdpFilter};
use pollux_uverbs::flow::{FlowRule, FlowSpec};
use pollux_uverbs::mr::MrRequest;
use pollux_uverbs::wq::WqChange;
use pollux_uverbs::{Driver, Errno, FlowHandle, QpHandle, UverbsError};
use zerocopy::{FromBytes, IntoBytes};

use super::bench::{Bench, MadeCq, MadeWq, Opened, address, errno};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Queues with buffers, each behind a queue pair of its own.
struct Field {
    bench: Bench,
    opened: Opened,
    cq: MadeCq,
    _queues: Vec<MadeWq>,
    qps: Vec<QpHandle>,
    seen: u32,
    _buffers: pollux_eal::region::Zone,
}

impl Field {
    fn new(count: u32) -> Self {
        Self::with(count, DeviceConfig::default())
    }

    fn with(count: u32, config: DeviceConfig) -> Self {
        let bench = Bench::with(DoorProfile::default(), config);
        let opened = bench.open();
        let cq = opened.cq(8, None);
        let buffers = opened.zone(count as usize * 16 * 2048);
        let at = address(&buffers);
        let length = buffers.bytes() as u64;
        let access = Access::LOCAL_WRITE;
        let request = MrRequest { pd: opened.pd, start: at, length, hca_va: at, access };
        let mr = opened.must(opened.register(&request));
        let mut queues = Vec::new();
        let mut qps = Vec::new();
        for index in 0..count {
            let mut made = opened.wq(cq.cq.handle, 4, index);
            for entry in 0..16 {
                let place = at + u64::from(index) * 16 * 2048 + entry as u64 * 2048;
                let segment = pollux_mlx5_abi::wqe::Data::new(2048, mr.lkey, place);
                made.ring.copy_in(entry * 16, segment.as_bytes());
            }
            let change = WqChange { state: Some(WqState::RDY), current: Some(WqState::RESET), flags: None };
            opened.must(opened.context.modify_wq(made.wq.handle, &change, Driver::new(&[0; 8], &mut [])));
            made.record.copy_in(0, &16_u32.to_be_bytes());
            let table = opened.must(opened.table(&[made.wq.handle]));
            qps.push(opened.must(opened.rss(table.handle, 0)).0.handle);
            queues.push(made);
        }
        Self { bench, opened, cq, _queues: queues, qps, seen: 0, _buffers: buffers }
    }

    fn rule<'a>(&self, queue: usize, priority: u16, specs: &'a [FlowSpec]) -> FlowRule<'a> {
        FlowRule {
            qp: self.qps[queue],
            port: 1,
            priority,
            kind: FlowType::NORMAL,
            flags: FlowFlags::empty(),
            specs,
        }
    }

    fn add(&self, rule: &FlowRule<'_>) -> FlowHandle {
        self.opened.must(self.opened.context.create_flow(rule, Driver::none()))
    }

    fn try_add(&self, rule: &FlowRule<'_>) -> Result<FlowHandle, UverbsError> {
        self.opened.context.create_flow(rule, Driver::none())
    }

    fn remove(&self, rule: FlowHandle) {
        self.opened.must(self.opened.context.destroy_flow(rule));
    }

    /// Sends a frame to the device: which queues it came to, in order, with the tag.
    fn arrive(&mut self, frame: &[u8]) -> Vec<(u32, u32)> {
        self.bench.wire.arrive.lock().unwrap().push_back(frame.to_vec());
        for _ in 0..8 {
            self.bench.device.step(8);
        }
        let mut came = Vec::new();
        loop {
            let mut raw = [0; 64];
            self.cq.ring.copy_out((self.seen % 256) as usize * 64, &mut raw);
            let entry = Cqe64::read_from_bytes(&raw).expect("64 bytes");
            if !Validity::BASIC.is_ready(entry.last_word(), self.seen, 8) {
                break;
            }
            self.seen += 1;
            assert_eq!(entry.byte_cnt.get() as usize, frame.len());
            came.push((entry.user_index(), entry.flow_tag()));
        }
        self.cq.record.copy_in(0, &(self.seen & 0xff_ffff).to_be_bytes());
        came
    }

    fn close(self) {
        drop(self.opened);
        drop((self.cq, self._queues));
        self.bench.close();
    }
}

/// A UDP packet over IPv4.
fn packet(to: [u8; 6], destination: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend_from_slice(&[2, 0, 0, 0, 0, 2, 8, 0]);
    frame.extend_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9]);
    frame.extend_from_slice(&destination);
    frame.extend_from_slice(&[0x30, 0x39]);
    frame.extend_from_slice(&port.to_be_bytes());
    frame.extend_from_slice(&[0, 26, 0, 0]);
    frame.resize(60, 0x5a);
    frame
}

fn to(mac: [u8; 6]) -> FlowSpec {
    let of = |dst_mac| EthFilter { dst_mac, ..EthFilter::default() };
    FlowSpec::Eth { value: of(mac), mask: of([0xff; 6]), inner: false }
}

fn port(port: u16) -> FlowSpec {
    let of = |port: u16| TcpUdpFilter { dst_port: port.into(), ..TcpUdpFilter::default() };
    FlowSpec::Udp { value: of(port), mask: of(0xffff), inner: false }
}

fn any_ipv4() -> FlowSpec {
    FlowSpec::Ipv4 { value: Ipv4Filter::default(), mask: Ipv4Filter::default(), inner: false }
}

#[test]
fn a_frame_goes_where_a_rule_says_and_nowhere_without() {
    let mut field = Field::new(2);
    let frame = packet(OURS, [10, 0, 0, 1], 53);
    assert_eq!(field.arrive(&frame), []);
    let rule = field.add(&field.rule(1, 0, &[to(OURS), FlowSpec::Tag(77)]));
    assert_eq!(field.arrive(&frame), [(1, 77)]);
    assert_eq!(field.arrive(&packet([2, 9, 9, 9, 9, 9], [10, 0, 0, 1], 53)), []);
    assert_eq!(errno(field.opened.context.destroy_qp(field.qps[1])), Errno::EBUSY);
    field.remove(rule);
    assert_eq!(field.arrive(&frame), []);
    field.close();
}

#[test]
fn a_lower_priority_number_wins_whatever_came_first() {
    let mut field = Field::new(3);
    let frame = packet(OURS, [10, 0, 0, 1], 53);
    field.add(&field.rule(0, 3, &[to(OURS)]));
    assert_eq!(field.arrive(&frame), [(0, 0)]);
    let upper = field.add(&field.rule(1, 1, &[to(OURS), any_ipv4(), port(53)]));
    assert_eq!(field.arrive(&frame), [(1, 0)]);
    field.add(&field.rule(2, 2, &[to(OURS)]));
    assert_eq!(field.arrive(&frame), [(1, 0)]);
    assert_eq!(field.arrive(&packet(OURS, [10, 0, 0, 1], 54)), [(2, 0)]);
    field.remove(upper);
    assert_eq!(field.arrive(&frame), [(2, 0)]);
    field.close();
}

#[test]
fn a_rule_of_no_priority_that_there_is_cannot_be_had() {
    let field = Field::new(1);
    field.add(&field.rule(0, 15, &[to(OURS)]));
    assert_eq!(errno(field.try_add(&field.rule(0, 16, &[to(OURS)]))), Errno::ENOMEM);
    field.close();
}

#[test]
fn dropped_frames_end_and_are_counted() {
    let mut field = Field::new(1);
    let context = &field.opened.context;
    let counters = field.opened.must(context.create_counters(|_| {}));
    // One list of two places: packets first, bytes second. The kernel reads it at the address.
    let places: [u32; 4] = [0, 0, 1, 1];
    let mut driver = [0_u8; 24];
    driver[..4].copy_from_slice(&1_u32.to_ne_bytes());
    driver[8..16].copy_from_slice(&(places.as_ptr().expose_provenance() as u64).to_ne_bytes());
    driver[16..20].copy_from_slice(&2_u32.to_ne_bytes());
    let specs = [to(OURS), FlowSpec::Drop, FlowSpec::Count(counters)];
    let rule = field.rule(0, 0, &specs);
    let rule = field.opened.must(context.create_flow(&rule, Driver::new(&driver, &mut [])));
    field.add(&field.rule(0, 1, &[to(OURS)]));
    let frame = packet(OURS, [10, 0, 0, 1], 53);
    assert_eq!(field.arrive(&frame), []);
    assert_eq!(field.arrive(&frame), []);
    let mut values = [0; 2];
    let context = &field.opened.context;
    field.opened.must(context.read_counters(counters, false, &mut values));
    assert_eq!(values, [2, 120]);
    assert_eq!(errno(context.destroy_counters(counters)), Errno::EBUSY);
    field.remove(rule);
    assert_eq!(field.arrive(&frame), [(0, 0)]);
    field.opened.must(field.opened.context.destroy_counters(counters));
    field.close();
}

#[test]
fn what_no_rule_takes_goes_to_the_default() {
    let mut field = Field::new(2);
    field.bench.device.set_promiscuous(true);
    let all = FlowRule { kind: FlowType::ALL_DEFAULT, ..field.rule(0, 0, &[]) };
    let all = field.add(&all);
    field.add(&field.rule(1, 15, &[to(OURS)]));
    assert_eq!(field.arrive(&packet(OURS, [10, 0, 0, 1], 1)), [(1, 0)]);
    assert_eq!(field.arrive(&packet([2, 7, 7, 7, 7, 7], [10, 0, 0, 1], 1)), [(0, 0)]);
    assert_eq!(field.arrive(&packet([1, 0, 0x5e, 0, 0, 1], [224, 0, 0, 1], 1)), [(0, 0)]);
    field.remove(all);
    field.add(&FlowRule { kind: FlowType::MC_DEFAULT, ..field.rule(0, 0, &[]) });
    assert_eq!(field.arrive(&packet([2, 7, 7, 7, 7, 7], [10, 0, 0, 1], 1)), []);
    assert_eq!(field.arrive(&packet([1, 0, 0x5e, 0, 0, 1], [224, 0, 0, 1], 1)), [(0, 0)]);
    field.close();
}

#[test]
fn a_rule_that_does_not_trap_leaves_the_frame_to_the_next() {
    let mut field = Field::new(2);
    let specs = [to(OURS)];
    field.add(&FlowRule { flags: FlowFlags::DONT_TRAP, ..field.rule(0, 2, &specs) });
    field.add(&field.rule(1, 2, &[to(OURS)]));
    let mut came = field.arrive(&packet(OURS, [10, 0, 0, 1], 1));
    came.sort_unstable();
    assert_eq!(came, [(0, 0), (1, 0)]);
    field.close();
}

#[test]
fn the_kernels_interface_has_what_no_rule_takes() {
    const ALL: [u8; 6] = [0xff; 6];
    let mut field = Field::new(1);
    field.bench.device.set_promiscuous(true);
    let heard = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&heard);
    field.bench.device.on_frame(Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    let mut arp = [0; 60];
    arp[..6].copy_from_slice(&ALL);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    // Where it came to, and whether the interface heard of it.
    let arrive = |field: &mut Field| {
        let before = heard.load(Ordering::Relaxed);
        (field.arrive(&arp), heard.load(Ordering::Relaxed) - before)
    };
    assert_eq!(arrive(&mut field), (vec![], 1), "no rule");
    let ours = field.add(&field.rule(0, 1, &[to(OURS)]));
    assert_eq!(arrive(&mut field), (vec![], 1), "a rule for others");
    let taken = field.add(&field.rule(0, 1, &[to(ALL)]));
    assert_eq!(arrive(&mut field), (vec![(0, 0)], 0), "a rule for it, multicast as it is");
    field.remove(taken);
    let looks = field.add(&FlowRule { flags: FlowFlags::DONT_TRAP, ..field.rule(0, 1, &[to(ALL)]) });
    assert_eq!(arrive(&mut field), (vec![(0, 0)], 1), "a rule that looks on");
    field.remove(ours);
    assert_eq!(arrive(&mut field), (vec![(0, 0)], 1), "with no table behind it");
    let all = field.add(&FlowRule { kind: FlowType::ALL_DEFAULT, ..field.rule(0, 0, &[]) });
    assert_eq!(arrive(&mut field).1, 0, "what is left is taken");
    field.remove(all);
    field.remove(looks);
    assert_eq!(arrive(&mut field), (vec![], 1), "no rule again");
    field.close();
}

#[test]
fn two_rules_alike_both_get_the_frame() {
    let mut field = Field::new(2);
    let one = field.add(&field.rule(0, 0, &[to(OURS)]));
    field.add(&field.rule(1, 0, &[to(OURS)]));
    let frame = packet(OURS, [10, 0, 0, 1], 1);
    let mut came = field.arrive(&frame);
    came.sort_unstable();
    assert_eq!(came, [(0, 0), (1, 0)]);
    field.remove(one);
    assert_eq!(field.arrive(&frame), [(1, 0)]);
    field.close();
}

/// The same packet's front with a header of another protocol, and what stands behind it.
fn tunneled(protocol: u8, behind: &[u8]) -> Vec<u8> {
    let mut frame = packet(OURS, [10, 0, 0, 1], 0);
    frame[23] = protocol;
    frame[34..34 + behind.len()].copy_from_slice(behind);
    frame
}

#[test]
fn gre_is_taken_by_its_protocol_and_key() {
    let mut field = Field::new(2);
    let gre = |protocol: u16, key: u32| GreFilter {
        protocol: protocol.into(),
        key: key.into(),
        ..GreFilter::default()
    };
    let keyed = FlowSpec::Gre { value: gre(0x6558, 7), mask: gre(0xffff, u32::MAX) };
    let any = FlowSpec::Gre { value: gre(0, 0), mask: gre(0, 0) };
    field.add(&field.rule(0, 0, &[to(OURS), any_ipv4(), keyed]));
    field.add(&field.rule(1, 1, &[to(OURS), any_ipv4(), any]));
    assert_eq!(field.arrive(&tunneled(47, &[0x20, 0, 0x65, 0x58, 0, 0, 0, 7])), [(0, 0)]);
    assert_eq!(field.arrive(&tunneled(47, &[0x20, 0, 0x65, 0x58, 0, 0, 0, 8])), [(1, 0)]);
    assert_eq!(field.arrive(&tunneled(47, &[0, 0, 8, 0])), [(1, 0)]);
    assert_eq!(field.arrive(&packet(OURS, [10, 0, 0, 1], 0x6558)), []);
    let flags = GreFilter { c_ks_res0_ver: 0x2000.into(), ..GreFilter::default() };
    let by_flags = FlowSpec::Gre { value: flags, mask: flags };
    assert_eq!(errno(field.try_add(&field.rule(0, 0, &[by_flags]))), Errno::EOPNOTSUPP);
    field.close();
}

#[test]
fn mpls_is_taken_where_the_card_is_set_up_for_it() {
    let label = FlowSpec::Mpls { value: 0x1234_5000, mask: 0xffff_f000, inner: false };
    let any_gre = FlowSpec::Gre { value: GreFilter::default(), mask: GreFilter::default() };
    let plain = Field::new(1);
    assert_eq!(errno(plain.try_add(&plain.rule(0, 0, &[to(OURS), label]))), Errno::EOPNOTSUPP);
    plain.close();
    let mut config = DeviceConfig::default();
    config.traits.mpls = true;
    let mut field = Field::with(4, config);
    let inner = FlowSpec::Mpls { value: 0x1234_5000, mask: 0xffff_f000, inner: true };
    for (queue, specs) in [
        &[to(OURS), label][..],
        &[to(OURS), any_ipv4(), any_gre, label],
        &[to(OURS), any_ipv4(), port(6635), label],
        &[to(OURS), any_ipv4(), any_gre, FlowSpec::Tag(3), inner],
    ]
    .into_iter()
    .enumerate()
    {
        field.add(&field.rule(queue, 0, specs));
    }
    let entry = [0x12, 0x34, 0x51, 0x40];
    let mut first = packet(OURS, [0; 4], 0);
    first[12..18].copy_from_slice(&[0x88, 0x47, entry[0], entry[1], entry[2], entry[3]]);
    assert_eq!(field.arrive(&first), [(0, 0)]);
    first[15] = 0x35;
    assert_eq!(field.arrive(&first), []);
    assert_eq!(field.arrive(&tunneled(47, &[&[0, 0, 0x88, 0x47], &entry[..]].concat())), [(1, 0)]);
    let mut datagram = packet(OURS, [10, 0, 0, 1], 6635);
    datagram[42..46].copy_from_slice(&entry);
    assert_eq!(field.arrive(&datagram), [(2, 0)]);
    let framed = [&[0, 0, 0x65, 0x58][..], &first[..12], &[0x88, 0x47], &entry].concat();
    assert_eq!(field.arrive(&tunneled(47, &framed)), [(3, 3)]);
    field.close();
}

#[test]
fn specs_that_disagree_or_that_no_card_matches_are_refused() {
    let field = Field::new(1);
    let esp = |spi: u32| EspFilter { spi: spi.into(), ..EspFilter::default() };
    let by_index = FlowSpec::Esp { value: esp(1), mask: esp(u32::MAX) };
    assert_eq!(errno(field.try_add(&field.rule(0, 0, &[any_ipv4(), by_index]))), Errno::EOPNOTSUPP);
    let protocol = |proto, bits| FlowSpec::Ipv4 {
        value: Ipv4Filter { proto, ..Ipv4Filter::default() },
        mask: Ipv4Filter { proto: bits, ..Ipv4Filter::default() },
        inner: false,
    };
    let gre = FlowSpec::Gre { value: GreFilter::default(), mask: GreFilter::default() };
    for (said, behind, agree) in [
        (protocol(17, 0xff), port(9), true),
        (protocol(6, 0xff), port(9), false),
        // A protocol of which less counts is another.
        (protocol(17, 0x1f), port(9), false),
        (protocol(47, 0xff), gre, true),
        (protocol(17, 0xff), gre, false),
        (port(9), gre, false),
        (port(9), protocol(0, 0), true),
    ] {
        let added = field.try_add(&field.rule(0, 0, &[said, behind]));
        match added {
            Ok(rule) => {
                assert!(agree, "{said:?}, {behind:?}");
                field.remove(rule);
            }
            Err(_) => {
                assert_eq!(errno(added), Errno::EINVAL);
                assert!(!agree, "{said:?}, {behind:?}");
            }
        }
    }
    field.close();
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    let field = Field::new(1);
    let specs = [to(OURS)];
    let egress = FlowRule { flags: FlowFlags::EGRESS, ..field.rule(0, 0, &specs) };
    assert_eq!(errno(field.try_add(&egress)), Errno::EINVAL);
    let sniffer = FlowRule { kind: FlowType::SNIFFER, ..field.rule(0, 0, &[]) };
    assert_eq!(errno(field.try_add(&sniffer)), Errno::EOPNOTSUPP);
    let unknown = FlowRule { kind: FlowType(9), ..field.rule(0, 0, &[]) };
    assert_eq!(errno(field.try_add(&unknown)), Errno::EINVAL);
    let no_port = FlowRule { port: 2, ..field.rule(0, 0, &specs) };
    assert_eq!(errno(field.try_add(&no_port)), Errno::EINVAL);
    let no_queue = FlowRule { qp: QpHandle(999), ..field.rule(0, 0, &specs) };
    assert_eq!(errno(field.try_add(&no_queue)), Errno::ENOENT);
    field.close();
}
