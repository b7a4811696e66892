//! Cycles of the mlx5 driver for a packet of 64 bytes, burst of 32: receive and transmit, on the stepped device model.
//!
//! The model works between the bursts, outside the time taken: what is measured is the driver, through the port's own
//! queue values, from the call to the return. The counter is read around each burst; what two reads in a row cost is taken
//! off, and printed. Two columns: lines warm, as the model and the driver left them on this core; and cold, with all rings
//! and the packets' data flushed before each burst (mbuf headers stay warm: a device does not write them). Each figure is the
//! median of [`ROUNDS`] bursts, with the 10th and 90th percentile of the sum beside it. Beside each column stands the ratio to the
//! yardstick of the machine, a plain copy loop over as many bytes as the ledger has for the row's packets, timed in turn with it.
//!
//! What is not inside: data that a NIC would place in the last cache level (DDIO) or miss there, and stores that are not cached
//! (doorbells go to ordinary memory here).
//!
//! The ledger's bytes are what the model counted for each packet in each direction.
//!
//! `cargo run --release -p pollux-benches --bin mlx5_rxtx32 [-- ROW]`: all rows, or those whose name contains ROW.
//! `mlx5_rxtx32 --trial [WORD]` is for `cargo xtask bench`: a line a figure whose name contains WORD, its name and its
//! [`Trial`]. `mlx5_rxtx32 --beside FIGURE` is for `cargo xtask bench witness`: the [`Means`] of one figure, warm.
#![expect(unsafe_code, reason = "names the memory whose cache lines are flushed")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use pollux_benches::{Cold, Column, Means, Plan, Timed, Trial, columns, two_reads};
use pollux_bringup::ModelNetdev;
use pollux_bringup::program::tell;
use pollux_eal::clock::cycles::now_precise;
use pollux_eal::memory::Memory;
use pollux_mempool::{Burst, MbufPool, TxFlags};
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::{Cable, Sent, Wire};
use pollux_pmd_mlx::devargs::Compression;
use pollux_pmd_mlx::{Arguments, Mlx5Port, Mlx5Spec};
use pollux_port::{Port, PortConfig, PortId, RxOffloads, RxQueue, RxSegment, TxOffloads, TxQueue};

const BURST: usize = 32;
const BYTES: usize = 64;
const ROUNDS: usize = 4000;
const WARM_UP: usize = 200;

/// The other end of the wire, which gives frames and takes what the port sends.
struct Feed {
    wire: Cable,
    next: u32,
    tagged: bool,
}

impl Feed {
    fn give(&mut self, count: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..count {
            self.next = self.next.wrapping_add(1);
            let [.., c, d] = self.next.to_be_bytes();
            // UDP over IPv4 from a thousand addresses, so that hashes differ.
            let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 9];
            if self.tagged {
                frame.extend([0x81, 0, 0, 7]);
            }
            frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, c & 3, d, 10, 1, 0, 1]);
            frame.extend([4, 0, 4, 1, 0, 26, 0, 0]);
            frame.resize(BYTES, 0);
            if self.wire.send(&frame) != Sent::Yes {
                return Err("the wire takes no frame".into());
            }
        }
        Ok(())
    }

    /// How many frames came.
    fn take(&mut self) -> usize {
        let mut room = [0; 2048];
        std::iter::from_fn(|| self.wire.receive(&mut room)).count()
    }
}

/// One line of the table.
struct Row {
    /// As `cargo xtask bench` calls it.
    figure: &'static str,
    name: &'static str,
    arguments: Arguments,
    rx: RxOffloads,
    tx: TxOffloads,
    /// What packets ask for.
    flags: TxFlags,
    tagged: bool,
    /// Data room of mbufs.
    room: usize,
    /// Parts that packets are split into: bytes of each (0: the rest), and whether it is received at all.
    parts: &'static [(u16, bool)],
}

impl Row {
    fn new(figure: &'static str, name: &'static str) -> Self {
        let arguments =
            Arguments { compression: Compression::Off, multi_packet: Some(true), ..Arguments::default() };
        Self {
            figure,
            name,
            arguments,
            rx: RxOffloads::empty(),
            tx: TxOffloads::empty(),
            flags: TxFlags::empty(),
            tagged: false,
            room: 2176,
            parts: &[],
        }
    }

    fn with(figure: &'static str, name: &'static str, change: impl FnOnce(&mut Self)) -> Self {
        let mut row = Self::new(figure, name);
        change(&mut row);
        row
    }
}

fn rows() -> Vec<Row> {
    let checks = RxOffloads::CHECKSUM | RxOffloads::RSS_HASH;
    let fast = TxOffloads::MBUF_FAST_FREE;
    vec![
        Row::with("mlx5_compressed_fast", "vector, compressed, eMPW, fast free", |row| {
            row.arguments.compression = Compression::Hash;
            row.tx = fast;
        }),
        Row::with("mlx5_arrays_fast", "vector, compressed (enhanced), eMPW, fast free", |row| {
            row.arguments.compression = Compression::Hash;
            row.arguments.enhanced_compression = true;
            row.tx = fast;
        }),
        Row::with("mlx5_rxtx32", "vector; eMPW, fast free", |row| row.tx = fast),
        Row::new("mlx5_empw", "vector; eMPW"),
        Row::with("mlx5_scalar", "scalar; eMPW", |row| row.arguments.rx_vector = false),
        Row::with("mlx5_scalar_compressed", "scalar, compressed; eMPW", |row| {
            row.arguments.rx_vector = false;
            row.arguments.compression = Compression::Hash;
        }),
        Row::with("mlx5_scatter", "scatter; eMPW", |row| {
            row.room = 640;
            row.rx = RxOffloads::SCATTER;
        }),
        Row::with("mlx5_striding_copied", "striding, copied; eMPW", |row| {
            row.arguments.striding = true;
            row.arguments.striding_queues_min = 1;
        }),
        Row::with("mlx5_striding_lent", "striding, lent; eMPW", |row| {
            row.arguments.striding = true;
            row.arguments.striding_queues_min = 1;
            row.arguments.striding_copy_max = 0;
        }),
        Row::with("mlx5_plain", "vector; plain entries", |row| row.arguments.multi_packet = Some(false)),
        Row::with("mlx5_plain_inline", "vector; plain entries, inline", |row| {
            row.arguments.multi_packet = Some(false);
            row.arguments.inline_queues_min = 1;
            row.arguments.inline_max = Some(128);
        }),
        Row::with("mlx5_empw_inline", "vector; eMPW, inline", |row| {
            row.arguments.inline_queues_min = 1;
            row.arguments.inline_multi_max = Some(128);
        }),
        Row::with("mlx5_header_inline", "vector, header inline (18 bytes)", |row| {
            row.arguments.inline_min = Some(18)
        }),
        Row::with("mlx5_rx_checksum", "vector, checksum and hash; eMPW", |row| row.rx = checks),
        Row::with("mlx5_rx_vlan", "vector, VLAN strip; eMPW", |row| {
            row.rx = RxOffloads::VLAN_STRIP;
            row.tagged = true;
        }),
        Row::with("mlx5_rx_time", "vector, timestamp; eMPW", |row| row.rx = RxOffloads::TIMESTAMP),
        Row::with("mlx5_rx_split", "split at 32 bytes; eMPW, multi-segment", |row| {
            row.rx = RxOffloads::BUFFER_SPLIT;
            row.tx = TxOffloads::MULTI_SEGS;
            row.parts = &[(32, true), (0, true)];
        }),
        Row::with("mlx5_rx_selective", "first 32 bytes, the rest left out; eMPW", |row| {
            row.rx = RxOffloads::BUFFER_SPLIT;
            row.parts = &[(32, true), (0, false)];
        }),
        Row::with("mlx5_rx_lro_idle", "LRO on, no TCP; eMPW", |row| row.rx = RxOffloads::TCP_LRO),
        Row::with("mlx5_tx_checksum_idle", "vector; eMPW, checksum on, unused", |row| {
            row.tx = TxOffloads::CHECKSUM
        }),
        Row::with("mlx5_tx_checksum", "vector; eMPW, checksum", |row| {
            row.tx = TxOffloads::CHECKSUM;
            row.flags = TxFlags::IPV4 | TxFlags::IP_CHECKSUM | TxFlags::UDP_CHECKSUM;
        }),
        Row::with(
            "mlx5_offloads",
            "vector, checksum, hash, VLAN strip; eMPW, checksum, VLAN insert",
            |row| {
                row.rx = checks | RxOffloads::VLAN_STRIP;
                row.tx = TxOffloads::CHECKSUM | TxOffloads::VLAN_INSERT;
                row.flags = TxFlags::IPV4 | TxFlags::IP_CHECKSUM | TxFlags::UDP_CHECKSUM | TxFlags::VLAN;
                row.tagged = true;
            },
        ),
        Row::with("mlx5_tx_segments_idle", "vector; eMPW, multi-segment on, unused", |row| {
            row.tx = TxOffloads::MULTI_SEGS
        }),
        Row::with("mlx5_tx_vlan", "vector; eMPW, VLAN insert", |row| {
            row.tx = TxOffloads::VLAN_INSERT;
            row.flags = TxFlags::VLAN;
        }),
        Row::with("mlx5_tx_all_idle", "vector; eMPW, TSO and all on, unused", |row| {
            row.tx =
                TxOffloads::CHECKSUM | TxOffloads::MULTI_SEGS | TxOffloads::VLAN_INSERT | TxOffloads::TCP_TSO;
        }),
    ]
}

/// What a row came to.
struct Measured {
    /// How the queues receive and send.
    modes: String,
    /// Warm and cold.
    columns: [Column; 2],
    /// Bytes on PCIe for a packet, both ways.
    bytes: f64,
}

/// A burst received and sent again.
struct Bursts<'a> {
    row: &'a Row,
    model: &'a Model,
    feed: Feed,
    rx: &'a mut RxQueue,
    tx: &'a mut TxQueue,
}

impl Timed for Bursts<'_> {
    type Error = Box<dyn Error>;

    fn round(&mut self, chill: &dyn Fn()) -> Result<[u64; 2], Box<dyn Error>> {
        let Self { row, model, feed, rx, tx } = self;
        feed.give(BURST)?;
        model.settle();
        let mut burst = Burst::new();
        chill();
        let start = now_precise();
        let got = rx.rx_burst(&mut burst, BURST);
        let received = now_precise() - start;
        if got != BURST {
            return Err(format!("{}: a burst of {got}, mode {}", row.name, rx.burst_mode()).into());
        }
        if !row.flags.is_empty() {
            for mbuf in burst.iter_mut() {
                mbuf.set_tx_flags(row.flags);
                mbuf.set_vlan_tci(7);
            }
        }
        chill();
        let start = now_precise();
        let sent = tx.tx_burst(&mut burst);
        let transmitted = now_precise() - start;
        if sent != BURST {
            return Err(format!("{}: {sent} sent, mode {}", row.name, tx.burst_mode()).into());
        }
        model.settle();
        let came = feed.take();
        if came != BURST {
            return Err(format!("{}: {came} packets on the wire", row.name).into());
        }
        Ok([received, transmitted])
    }

    fn bytes(&self) -> u64 {
        let spent = self.model.ledger();
        spent.bytes_to_device() + spent.bytes_from_device()
    }
}

const fn plan(overhead: u64) -> Plan {
    Plan { rounds: ROUNDS, warm_up: WARM_UP, operations: BURST, overhead }
}

/// Opens a port as the row has it, and takes what is wanted of its bursts; how its queues receive and send.
fn run<T>(
    row: &Row,
    take: impl FnOnce(&mut Bursts<'_>, &Cold) -> Result<T, Box<dyn Error>>,
) -> Result<(T, String), Box<dyn Error>> {
    let (near, far) = Cable::pair();
    let model = Model::builder("mlx5_bench0").mac([2, 0, 0, 0, 0, 1]).plugged(near).stepped().build()?;
    let model = Arc::new(model);
    let memory = Memory::ordinary();
    let spec = Mlx5Spec {
        arguments: row.arguments.clone(),
        watch: false,
        ..Mlx5Spec::new(model.open(), Arc::new(ModelNetdev::new(&model)), memory.clone())
    };
    let pool = MbufPool::builder("bench", 4095).data_room(row.room).cache(256).build_anonymous()?;
    let mut port = Port::new(PortId(0), "mlx5_bench0", Box::new(Mlx5Port::open(spec)?));
    let mut config = PortConfig {
        promiscuous: Some(true),
        rx_offloads: row.rx,
        tx_offloads: row.tx,
        ..PortConfig::queues(1, 1, &pool)
    };
    let part = |&(length, received): &(u16, bool)| RxSegment {
        pool: received.then(|| pool.clone()),
        length,
        offset: 0,
    };
    config.rx_queues[0].segments = row.parts.iter().map(part).collect();
    let mut queues = port.bring_up(config)?;
    let (rx, tx) = (&mut queues.rx[0], &mut queues.tx[0]);
    let mut lines = Cold::new();
    // SAFETY: the rings live as long as the port, the pool's memory as long as the pool.
    unsafe {
        lines.zones(&memory);
        for (_, room) in pool.addresses() {
            lines.range(room.as_ptr().addr() + pool.headroom(), 1);
        }
    }
    let feed = Feed { wire: far, next: 0, tagged: row.tagged };
    let mut bursts = Bursts { row, model: &model, feed, rx, tx };
    let taken = take(&mut bursts, &lines)?;
    let modes = format!("{} / {}", bursts.rx.burst_mode(), bursts.tx.burst_mode());
    let (violation, violations) = model.device().violations();
    if violations != 0 {
        return Err(
            format!("{}: {violations} rules of doorbells broken, first {violation:?}", row.name).into()
        );
    }
    Ok((taken, modes))
}

fn measure(row: &Row, overhead: u64) -> Result<Measured, Box<dyn Error>> {
    let ((columns, bytes), modes) = run(row, |bursts, lines| columns(plan(overhead), lines, bursts))?;
    Ok(Measured { modes, columns, bytes })
}

fn line(row: &Row, measured: &Measured) -> String {
    let Measured { modes, columns: [warm, cold], bytes } = measured;
    format!("{:<42} {modes:<44} | {warm} | {cold} | {bytes:.1}", row.name)
}

fn table() -> Result<(), Box<dyn Error>> {
    let mut wanted = std::env::args().skip(1).peekable();
    let trial = wanted.next_if_eq("--trial").is_some();
    let beside = wanted.next_if_eq("--beside").is_some();
    let wanted = wanted.next().unwrap_or_default();
    // Pools have caches for threads with a slot.
    let _slot = pollux_eal::slot::lease().ok_or("no slot is free")?;
    let overhead = two_reads();
    if trial {
        for row in rows().iter().filter(|row| row.figure.contains(&wanted)) {
            let trial = Trial::of(&measure(row, overhead)?.columns);
            tell(format_args!("{} {trial}", row.figure));
        }
        return Ok(());
    }
    if beside {
        let rows = rows();
        let row = rows.iter().find(|row| row.figure == wanted);
        let row = row.ok_or_else(|| format!("there is no row {wanted}"))?;
        let (means, modes) = run(row, |bursts, _| Means::take(plan(overhead), bursts))?;
        tell(format_args!("{means} modes {modes}"));
        return Ok(());
    }
    tell(format_args!(
        "cycles for a packet of {BYTES} bytes, burst {BURST}; two reads of the counter cost {overhead} and are taken off"
    ));
    tell(format_args!(
        "row, modes | warm: rx tx sum (10%..90%) sum/copy loop | cold: the same | bytes on PCIe for a packet, both ways"
    ));
    for row in rows().iter().filter(|row| row.name.contains(&wanted)) {
        match measure(row, overhead) {
            Ok(measured) => tell(format_args!("{}", line(row, &measured))),
            Err(why) => tell(format_args!("{:<42} not measured: {why}", row.name)),
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mlx5_rxtx32: {why}");
            ExitCode::FAILURE
        }
    }
}
