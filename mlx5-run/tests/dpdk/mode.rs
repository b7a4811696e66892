//! Pairs of a way to receive or send and an offload beside it, each proven used: by what the driver says of its queues, by what crossed
//! PCIe, and by the frames that come out.

use std::collections::BTreeSet;

use super::lane::Lane;
use super::testpmd::{Start, Testpmd, number, pcie};
use super::{WAYS, packet, release};

/// How frames are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receive {
    Vector,
    Scalar,
    /// Many packets to a receive entry.
    Striding,
    StridingVector,
    /// Buffers that are smaller than frames.
    Scattered,
}

/// What is done to them beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiveOffload {
    None,
    Checksum,
    /// Tags are taken off.
    Untag,
    /// Two queues.
    Spread,
}

/// How frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Send {
    /// Many to a send entry (eMPW).
    Packed,
    PackedInline,
    Single,
    SingleInline,
}

/// What is done to them beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendOffload {
    None,
    Checksum,
    /// Tags are put in.
    Tag,
    /// TCP is cut up.
    Segment,
    /// Frames of many buffers.
    Gather,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Row {
    way: &'static str,
    receive: Receive,
    /// Short completions.
    compressed: bool,
    receive_offload: ReceiveOffload,
    send: Send,
    send_offload: SendOffload,
}

const RECEIVE: [Receive; 5] =
    [Receive::Vector, Receive::Scalar, Receive::Striding, Receive::StridingVector, Receive::Scattered];
const RECEIVE_OFFLOADS: [ReceiveOffload; 4] =
    [ReceiveOffload::None, ReceiveOffload::Checksum, ReceiveOffload::Untag, ReceiveOffload::Spread];
const SEND: [Send; 4] = [Send::Packed, Send::PackedInline, Send::Single, Send::SingleInline];
const SEND_OFFLOADS: [SendOffload; 5] =
    [SendOffload::None, SendOffload::Checksum, SendOffload::Tag, SendOffload::Segment, SendOffload::Gather];
/// Parts of a line of [`pcie`].
const TRANSFERS: usize = 0;
const BYTES: usize = 1;
/// The tag that is put in.
const TAG: u16 = 0x0007;
/// Bytes of a segment, and of what is cut up.
const SEGMENT: usize = 400;
const CUT_UP: usize = 1400;
/// Small frames of UDP.
const SMALL: u16 = 96;

/// As few runs as have every pair.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, receive) in RECEIVE.into_iter().enumerate() {
        for (beside, receive_offload) in RECEIVE_OFFLOADS.into_iter().enumerate() {
            let way = at + beside / 2;
            rows.push(Row {
                way: WAYS[way % 2],
                receive,
                compressed: (way + beside).is_multiple_of(2),
                receive_offload,
                send: SEND[beside],
                send_offload: SEND_OFFLOADS[(at + beside) % 5],
            });
        }
    }
    rows
}

#[test]
fn every_pair_has_its_run() {
    let pairs = |pair: &dyn Fn(&Row) -> String| rows().iter().map(pair).collect::<BTreeSet<_>>().len();
    assert_eq!(pairs(&|row| format!("{:?} {:?}", row.receive, row.receive_offload)), 5 * 4);
    assert_eq!(pairs(&|row| format!("{:?} {:?}", row.receive, row.compressed)), 5 * 2);
    assert_eq!(pairs(&|row| format!("{:?} {:?}", row.receive_offload, row.compressed)), 4 * 2);
    assert_eq!(pairs(&|row| format!("{:?} {:?}", row.send, row.send_offload)), 4 * 5);
    assert_eq!(pairs(&|row| format!("{} {:?}", row.way, row.receive)), 2 * 5);
    assert_eq!(pairs(&|row| format!("{} {:?}", row.way, row.receive_offload)), 2 * 4);
    assert_eq!(pairs(&|row| format!("{} {:?}", row.way, row.send)), 2 * 4);
    assert_eq!(pairs(&|row| format!("{} {:?}", row.way, row.send_offload)), 2 * 5);
    assert_eq!(pairs(&|row| format!("{} {:?}", row.way, row.compressed)), 2 * 2);
}

/// What comes in.
fn frames() -> Vec<Vec<u8>> {
    let small = (0..SMALL).map(|at| packet::udp_from(1000 + at, 64));
    small
        .chain([
            packet::tcp(0xffff_ff00, CUT_UP),
            packet::udp_from(7, CUT_UP),
            packet::tagged(),
            packet::other(),
        ])
        .collect()
}

/// Gives all of it, and waits until it waits for the lcore, which then finds bursts as large as it takes.
fn give_all(lane: &mut Lane) {
    lane.give(&frames());
    let is_there = |told: &str| number(told, "rx_phy_packets: ") == frames().len() as u64;
    lane.testpmd.tell_until("show port xstats 0", is_there);
}

impl Row {
    fn device(&self) -> String {
        let receive = match self.receive {
            Receive::Vector | Receive::Scattered => "rx_vec_en=1",
            Receive::Scalar => "rx_vec_en=0",
            Receive::Striding => "rx_vec_en=0,mprq_en=1,rxqs_min_mprq=1",
            Receive::StridingVector => "rx_vec_en=1,mprq_en=1,rxqs_min_mprq=1",
        };
        let send = match self.send {
            Send::Packed => "txq_mpw_en=1,txqs_min_inline=8",
            Send::PackedInline => "txq_mpw_en=1,txqs_min_inline=1,txq_inline_mpw=204,txq_inline_max=204",
            Send::Single => "txq_mpw_en=0,txqs_min_inline=8",
            Send::SingleInline => "txq_mpw_en=0,txqs_min_inline=1,txq_inline_max=204",
        };
        format!("{},{receive},rxq_cqe_comp_en={},{send}", self.way, u8::from(self.compressed))
    }

    /// How frames are passed on.
    fn forward(&self) -> &'static str {
        match self.send_offload {
            SendOffload::None | SendOffload::Gather => "io",
            SendOffload::Checksum | SendOffload::Segment => "csum",
            SendOffload::Tag => "macswap",
        }
    }

    fn gathers(&self) -> bool {
        self.receive == Receive::Scattered || self.send_offload == SendOffload::Gather
    }

    fn options(&self) -> Vec<String> {
        let mut options = vec![format!("--forward-mode={}", self.forward())];
        match self.receive_offload {
            ReceiveOffload::None => {}
            ReceiveOffload::Checksum => options.push("--enable-rx-cksum".into()),
            ReceiveOffload::Untag => options.push("--enable-hw-vlan-strip".into()),
            ReceiveOffload::Spread => {
                options.extend(["--rxq=2", "--txq=2", "--rss-udp"].map(str::to_owned));
            }
        }
        if self.receive == Receive::Scattered {
            options.extend(["--mbuf-size=640", "--rxd=1024", "--enable-scatter"].map(str::to_owned));
        }
        // Source: DPDK `lib/ethdev/rte_ethdev.h`, `RTE_ETH_TX_OFFLOAD_*`.
        let own = match self.send_offload {
            SendOffload::None | SendOffload::Gather => 0,
            SendOffload::Checksum => 0xe,
            SendOffload::Tag => 0x1,
            SendOffload::Segment => 0x2e,
        };
        let offloads = own | if self.gathers() { 0x8000 } else { 0 };
        if offloads != 0 {
            options.push(format!("--tx-offloads={offloads:#x}"));
        }
        options
    }

    /// Holds what the driver says of its queues against what was asked for.
    fn hold_words(&self, testpmd: &mut Testpmd) {
        let receive = testpmd.tell("show rxq info 0 0");
        let burst = match self.receive {
            Receive::Vector => "Burst mode: Vector SSE",
            Receive::Scalar | Receive::Scattered => "Burst mode: Scalar",
            Receive::Striding => "Burst mode: Multi-Packet RQ",
            Receive::StridingVector => "Burst mode: MPRQ Vector SSE",
        };
        assert!(receive.contains(burst), "{self:?}: {receive}");
        let send = testpmd.tell("show txq info 1 0");
        let line = send.lines().find(|line| line.starts_with("Burst mode: ")).expect("a mode");
        let packed = matches!(self.send, Send::Packed | Send::PackedInline);
        assert!(line.contains(if packed { ": Enhanced MPW" } else { ": No MPW" }), "{self:?}: {line}");
        let inlined = matches!(self.send, Send::PackedInline | Send::SingleInline);
        // Tags are put in by the driver, with what is inline.
        let inlines = inlined || self.send_offload == SendOffload::Tag;
        assert_eq!(line.contains("+ INLINE"), inlines, "{self:?}: {line}");
        for (word, wanted) in [
            ("+ CSUM", matches!(self.send_offload, SendOffload::Checksum | SendOffload::Segment)),
            ("+ VLAN", self.send_offload == SendOffload::Tag),
            ("+ TSO", self.send_offload == SendOffload::Segment),
            ("+ MULTI", self.gathers()),
        ] {
            assert!(!wanted || line.contains(word), "{self:?}: {line}");
        }
    }

    /// Holds what crossed PCIe for each packet.
    fn hold_pcie(&self, said: &str) {
        let hold = |device: usize, kind: &str, part: usize, wanted: std::ops::Range<f64>| {
            let found = pcie(said, device, kind)[part];
            assert!(
                wanted.contains(&found),
                "{self:?}: {kind} of mlx5_{device}: {found}, not in {wanted:?}: {said}"
            );
        };
        // Over DevX the driver asks for a form that has no strides here, and the device shortens nothing.
        let shortened = self.compressed && !(self.receive == Receive::StridingVector && self.way == WAYS[1]);
        hold(0, "completion", TRANSFERS, if shortened { 0.0..0.5 } else { 1.0..1.1 });
        let entry = match self.receive {
            Receive::Vector | Receive::Scalar => 16.0..32.0,
            Receive::Striding | Receive::StridingVector => 0.0..4.0,
            Receive::Scattered => 48.0..100.0,
        };
        hold(0, "receive_entry", BYTES, entry);
        let (entry, data) = match (self.send, self.send_offload) {
            // What begins inline takes an entry of its own.
            (Send::Packed, SendOffload::Tag) => (60.0..100.0, 0.9..1.1),
            (Send::Packed, _) => (0.0..32.0, 0.9..1.1),
            (Send::PackedInline, _) => (110.0..165.0, 0.0..0.1),
            (Send::Single, _) => (60.0..100.0, 0.9..1.1),
            (Send::SingleInline, _) => (170.0..250.0, 0.0..0.1),
        };
        hold(1, "send_entry", BYTES, entry);
        hold(1, "send_payload", TRANSFERS, data);
    }

    /// What goes out of a frame that comes in.
    fn sends(&self, frame: &[u8]) -> Vec<Vec<u8>> {
        let untagged =
            if self.receive_offload == ReceiveOffload::Untag { packet::untag(frame) } else { frame.into() };
        let tcp = packet::tcp(0xffff_ff00, CUT_UP);
        match self.send_offload {
            SendOffload::None | SendOffload::Gather | SendOffload::Checksum => vec![untagged],
            SendOffload::Tag => vec![packet::turned(&packet::tag(&untagged, TAG))],
            SendOffload::Segment if frame == tcp => packet::tcp_segments(0xffff_ff00, CUT_UP, SEGMENT),
            SendOffload::Segment => vec![untagged],
        }
    }

    /// testpmd's checksum engine puts addresses of its own there.
    fn unaddressed(&self, mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        if self.forward() == "csum" {
            frames.iter_mut().for_each(|frame| frame[..12].fill(0));
        }
        // Queues overtake each other.
        frames.sort();
        frames
    }

    fn run(&self) {
        let options = self.options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut lane = Lane::start(&Start { device: &self.device(), options: &options, ..Start::default() });
        let change = match self.send_offload {
            SendOffload::Tag => format!("tx_vlan set 1 {TAG}"),
            SendOffload::Segment => format!("tso set {SEGMENT} 1"),
            _ => String::new(),
        };
        if !change.is_empty() {
            for command in ["port stop 1", &change, "port start 1"] {
                lane.testpmd.tell(command);
            }
        }
        self.hold_words(&mut lane.testpmd);
        give_all(&mut lane);
        lane.testpmd.tell("start");
        let wanted: Vec<Vec<u8>> = frames().iter().flat_map(|frame| self.sends(frame)).collect();
        let sent = lane.sent(wanted.len());
        lane.testpmd.tell("stop");
        let said = lane.testpmd.quit();
        assert_eq!(sent.len(), wanted.len(), "{self:?}");
        for (sent, wanted) in self.unaddressed(sent).iter().zip(self.unaddressed(wanted)) {
            assert!(*sent == wanted, "{self:?}: {sent:02x?} and not {wanted:02x?}");
        }
        self.hold_pcie(&said);
    }
}

#[test]
fn ways_and_offloads_go_together() {
    if !release::is_there() {
        return;
    }
    for row in rows() {
        row.run();
    }
}

/// Forms of short completions that the driver asks for (`rxq_cqe_comp_en`), with what it receives by; over DevX alone.
///
/// Source: DPDK `doc/guides/nics/mlx5.rst`, `rxq_cqe_comp_en`.
const FORMS: [(&str, &str); 6] = [
    ("2", "rx_vec_en=1"),
    ("3", "rx_vec_en=1"),
    ("4", "rx_vec_en=0"),
    ("2", "rx_vec_en=0,mprq_en=1,rxqs_min_mprq=1"),
    ("3", "rx_vec_en=1,mprq_en=1,rxqs_min_mprq=1"),
    ("4", "rx_vec_en=1,mprq_en=1,rxqs_min_mprq=1"),
];
/// The same in the enhanced layout, which DPDK asks for since 23.03.
const ENHANCED: [(&str, &str); 2] =
    [("0x81", "rx_vec_en=1"), ("0x83", "rx_vec_en=0,mprq_en=1,rxqs_min_mprq=1")];

#[test]
fn completions_are_shortened_in_every_form() {
    if !release::is_there() {
        return;
    }
    let enhanced: &[_] = if release::is_new() { &ENHANCED } else { &[] };
    for (form, receive) in FORMS.iter().chain(enhanced) {
        let device = format!("{},{receive},rxq_cqe_comp_en={form}", WAYS[1]);
        let mut lane = Lane::start(&Start {
            card: "cx7",
            device: &device,
            words: "--log-level=pmd.net.mlx5:debug",
            options: &["--forward-mode=io"],
            ..Start::default()
        });
        give_all(&mut lane);
        lane.testpmd.tell("start");
        let came = lane.pass(&[], &packet::udp());
        assert!(came == frames(), "{device}: {} frames", came.len());
        let said = lane.testpmd.quit();
        let is_enhanced = u8::from(form.starts_with("0x8"));
        for (word, value) in [("rxq_cqe_comp_en", 1), ("enh_cqe_comp", is_enhanced)] {
            // DPDK 22.11 knows no other layout.
            let wanted = format!("\"{word}\" is {value}.");
            assert!(
                said.contains(&wanted) || !release::is_new() && word == "enh_cqe_comp",
                "{wanted} {device}: {said}"
            );
        }
        let [completions, _] = pcie(&said, 0, "completion");
        assert!(completions < 0.5, "{device}: {said}");
    }
}
