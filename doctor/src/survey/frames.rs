//! Frames of an address that nobody has, through the card and back: what checks of Ethernet send and take.
//!
//! They are from and to the same made-up address (locally administered, so no maker's), of an EtherType that IEEE 802 leaves to
//! experiments, and rules match both, so that no frame of anybody else's is taken. A card brings a frame back that is to the address it
//! is from; one that does not sends it to the wire, where the next switch drops it.

use std::time::{Duration, Instant};

use pollux_eal::memory::Memory;
use pollux_mempool::{Burst, MbufPool};
use pollux_pmd_mlx::{Arguments, Mlx5Port, Mlx5Spec};
use pollux_port::flow::{EthFields, FlowAction, FlowItem, FlowRule, ItemMatch};
use pollux_port::{MacAddress, Port, PortConfig, PortId, QueueId, Queues};
use pollux_verbs::{
    Access, Buffers, Context, Cq, CqOptions, EthFilter, FlowSpec, FlowType, Pd, Qp, QpKind, QpOptions, Rule,
};

use super::step::{Refusal, Step, refused, timed};
use super::subject::Subject;

/// Locally administered, not a group: `02` and the letters of the project.
pub(crate) const ADDRESS: [u8; 6] = [0x02, b'P', b'L', b'X', 0x5f, 0x01];
/// IEEE 802, "Local Experimental EtherType 1".
pub(crate) const ETHER_TYPE: u16 = 0x88b5;

/// Lengths of frames, without their FCS.
const LENGTHS: [usize; 5] = [60, 124, 252, 1000, 1514];
/// Frames of each length.
const EACH: usize = 16;
/// How long frames are waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Entries of each ring.
const DESCRIPTORS: u16 = 128;
const MBUFS: usize = 1024;

/// A frame whose bytes tell its number.
fn frame(number: usize, bytes: usize) -> Vec<u8> {
    let mut frame = [&ADDRESS[..], &ADDRESS, &ETHER_TYPE.to_be_bytes()].concat();
    frame.extend((frame.len()..bytes).map(|at| (at as u8) ^ (number as u8)));
    frame
}

/// RAW_PACKET queue pairs of two contexts: one sends, a rule leads it to the other.
pub(crate) fn raw(subject: &Subject, step: &mut Step) -> Result<(), Refusal> {
    let contexts = [subject.context()?, subject.context()?];
    let end = |context: &Context| -> Result<(Cq, Qp, Buffers), Refusal> {
        let pd = Pd::new(context).map_err(refused)?;
        let cq = Cq::new(context, CqOptions::new(256)).map_err(refused)?;
        let mut qp = Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Raw)).map_err(refused)?;
        qp.init(1, Access::empty()).map_err(refused)?;
        qp.ready_frames().map_err(refused)?;
        Ok((cq, qp, Buffers::new(&pd, 128, 2048).map_err(refused)?))
    };
    let (mut send_cq, mut sends, room) = end(&contexts[0])?;
    let (mut receive_cq, mut receives, space) = end(&contexts[1])?;
    let filter = EthFilter {
        dst_mac: ADDRESS,
        src_mac: ADDRESS,
        ether_type: ETHER_TYPE.into(),
        ..EthFilter::default()
    };
    let all = EthFilter {
        dst_mac: [0xff; 6],
        src_mac: [0xff; 6],
        ether_type: 0xffff.into(),
        ..EthFilter::default()
    };
    let specs = [FlowSpec::Eth { value: filter, mask: all, inner: false }];
    let rule = Rule { port: 1, priority: 0, kind: FlowType::NORMAL, specs: &specs };
    let (cycles, steered) = timed(|| receives.steer(&rule));
    let rule = steered.map_err(refused)?;
    step.cost("create_flow", vec![cycles]);
    let mut list = receives.receives().ok_or("the queue pair has no receive queue")?;
    for id in 0..LENGTHS.len() as u64 {
        let _ = list.piece(id, space.take().ok_or("no buffer")?);
    }
    list.ring().map_err(refused)?;
    let mut batch = sends.batch();
    for (number, bytes) in LENGTHS.into_iter().enumerate() {
        let _ = batch
            .send(number as u64)
            .piece(room.filled(&frame(number, bytes)).ok_or("no buffer")?)
            .signalled();
    }
    let (cycles, posted) = timed(|| batch.ring());
    posted.map_err(refused)?;
    step.cost("post", vec![cycles]);
    let (mut sent, mut right, mut failed) = (0, 0, Vec::new());
    let begin = Instant::now();
    while (sent < LENGTHS.len() || right < LENGTHS.len()) && begin.elapsed() < PATIENCE && failed.is_empty() {
        send_cq.poll(16, |wc| {
            sent += 1;
            if !wc.is_ok() {
                failed.push(wc.status().as_str());
            }
        });
        receive_cq.poll(16, |wc| {
            let number = wc.id() as usize;
            let came = wc.take_buf();
            let whole = LENGTHS.get(number).map(|bytes| frame(number, *bytes));
            right += usize::from(wc.is_ok() && came.as_deref() == whole.as_deref());
        });
    }
    step.fact("sends", if failed.is_empty() { format!("{sent} completed") } else { failed.join(", ") });
    step.fact("frames", format!("{right} of {} came back as they were", LENGTHS.len()));
    receives.unsteer(rule).map_err(refused)
}

/// Ways of receiving and sending that a driver can choose, by DPDK's keys. Those that a card does not have are refused or done
/// without; the report tells which is in use.
pub(crate) const MODES: [(&str, &str); 16] = [
    ("usual", ""),
    ("kernel_objects", "dv_flow_en=0"),
    ("scalar", "rx_vec_en=0"),
    ("uncompressed", "rxq_cqe_comp_en=0"),
    ("compressed_checksum", "rxq_cqe_comp_en=3"),
    ("compressed_tag", "rxq_cqe_comp_en=2"),
    ("compressed_header", "rxq_cqe_comp_en=4"),
    ("compressed_enhanced", "rxq_cqe_comp_en=0x81"),
    ("striding", "mprq_en=1,rxqs_min_mprq=1"),
    ("striding_copied", "mprq_en=1,rxqs_min_mprq=1,mprq_max_memcpy_len=2048"),
    ("single_packet", "txq_mpw_en=0"),
    ("inline", "txqs_min_inline=1,txq_inline_max=256,txq_inline_mpw=256"),
    ("inline_single", "txq_mpw_en=0,txqs_min_inline=1,txq_inline_max=256"),
    ("doorbell_combining", "sq_db_nc=0"),
    ("doorbell_uncached", "sq_db_nc=1"),
    ("completions_128", "cqe_size=128,rxq_cqe_comp_en=0"),
];

/// A port that takes nothing but what its rules lead to it.
struct Isolated {
    queues: Queues,
    port: Port,
}

impl Isolated {
    fn open(subject: &Subject, arguments: &Arguments, pool: &MbufPool) -> Result<Self, Refusal> {
        let spec = Mlx5Spec {
            arguments: arguments.clone(),
            // Its calls come in an order of their own; control calls look at the device here.
            watch: false,
            ..Mlx5Spec::new(subject.channel()?, subject.netdev(), Memory::ordinary())
        };
        let driver = Mlx5Port::open(spec).map_err(refused)?;
        let mut port = Port::new(PortId(0), "card", Box::new(driver));
        // Before there are queues, so that no frame of the kernel's ever comes here.
        port.flow_isolate(true).map_err(refused)?;
        let mut config = PortConfig::queues(1, 1, pool);
        (config.rx_queues[0].descriptors, config.tx_queues[0].descriptors) = (DESCRIPTORS, DESCRIPTORS);
        let queues = port.bring_up(config).map_err(refused)?;
        if !port.flow_isolated() {
            return Err("the port does not stay isolated".into());
        }
        Ok(Self { queues, port })
    }

    fn close(self) -> Result<(), Refusal> {
        let Self { queues, mut port } = self;
        port.stop().map_err(refused)?;
        drop(queues);
        port.close().map_err(refused)
    }
}

/// Frames from one port of the card to another one of its, in one of the [modes](MODES).
pub(crate) fn mode(subject: &Subject, step: &mut Step, keys: &str) -> Result<(), Refusal> {
    let device = format!("card,{keys}");
    let device: pollux_config::DeviceArg =
        device.trim_end_matches(',').parse().map_err(refused::<pollux_config::ConfigError>)?;
    let arguments = Arguments::parse(&device).map_err(refused)?;
    let pool = MbufPool::builder("survey", MBUFS).build_anonymous().map_err(refused)?;
    let mut from = Isolated::open(subject, &arguments, &pool)?;
    let mut to = Isolated::open(subject, &arguments, &pool)?;
    step.fact("receives", to.queues.rx[0].burst_mode());
    step.fact("sends", from.queues.tx[0].burst_mode());
    let eth = |mac: [u8; 6], ether_type| EthFields { dst: MacAddress(mac), src: MacAddress(mac), ether_type };
    let rule = FlowRule::new()
        .item(FlowItem::Eth(ItemMatch::masked(eth(ADDRESS, ETHER_TYPE), eth([0xff; 6], 0xffff))))
        .action(FlowAction::Queue(QueueId(0)));
    let made = to.port.flow_create(&rule).map_err(refused)?;
    let (mut sending, mut receiving) = (Vec::new(), Vec::new());
    for bytes in LENGTHS {
        let frames: Vec<Vec<u8>> = (0..EACH).map(|number| frame(number, bytes)).collect();
        let mut burst = Burst::new();
        for frame in &frames {
            let mut mbuf = pool.alloc().ok_or("the pool is empty")?;
            if !mbuf.append_slice(frame) {
                return Err("an mbuf is too short".into());
            }
            burst.push(mbuf);
        }
        let (mut taken, mut came, mut right) = (0, 0, 0);
        let begin = Instant::now();
        while (taken < EACH || came < EACH) && begin.elapsed() < PATIENCE {
            if taken < EACH {
                let (cycles, count) = timed(|| from.queues.tx[0].tx_burst(&mut burst));
                if count > 0 {
                    sending.push(cycles / count as u64);
                    taken += count;
                }
            }
            let mut got = Burst::new();
            let (cycles, count) = timed(|| to.queues.rx[0].rx_burst(&mut got, EACH));
            if count > 0 {
                receiving.push(cycles / count as u64);
            }
            for mbuf in got.iter() {
                let whole: Vec<u8> = mbuf.segments().flatten().copied().collect();
                right += usize::from(frames.get(came) == Some(&whole));
                came += 1;
            }
        }
        step.fact(
            format!("frames_{bytes}"),
            format!("{taken} of {EACH} taken, {came} came back, {right} as they were"),
        );
    }
    step.cost("tx_burst_per_frame", sending);
    step.cost("rx_burst_per_frame", receiving);
    to.port.flow_destroy(made).map_err(refused)?;
    for (side, end) in [("from", &from), ("to", &to)] {
        for stat in end.port.xstats().into_iter().filter(|stat| stat.value != 0) {
            step.counter(format!("{side}.{}", stat.name), stat.value);
        }
    }
    // The one that receives first: what is on its way has somewhere to go.
    from.close()?;
    to.close()
}
