//! Figures of one lcore: rings, pools, mbufs and a null port.
#![expect(unsafe_code, reason = "raw objects are given back to their pool")]

use std::error::Error;
use std::hint::black_box;
use std::mem::MaybeUninit;

use pollux_bringup::{Bringup, PortRequest};
use pollux_mempool::{Burst, MbufPool, ObjectPool};
use pollux_port::{PacketMut, PortId, RxQueue, TxQueue};
use pollux_ring::{mpmc, spsc};
use pollux_wire::build::Frame;

use crate::{BURST, cycles, per};

const RING: usize = 1024;
const POOL: usize = 16_383;
const CACHE: usize = 512;
/// Of a trial, as in the peer's: its thread is just awake, and a processor takes its time to be fast again.
const ROUNDS: usize = 1 << 18;

/// Starts at a cache line, as the peer's array does: where the stack happens to lie is not to be measured.
#[repr(align(64))]
struct Lines<T>(T);

/// What the figures work on, made once: the first trial of each warms it.
pub(crate) struct Fixtures {
    spsc: (spsc::Producer<usize>, spsc::Consumer<usize>),
    mpmc: (mpmc::Producer<usize>, mpmc::Consumer<usize>),
    objects: ObjectPool,
    mbufs: MbufPool,
    port: (RxQueue, TxQueue),
}

/// Starts the first port with a queue each way.
pub(crate) fn open(bringup: &mut Bringup) -> Result<(RxQueue, TxQueue), Box<dyn Error>> {
    let (mut queues, _pool) = bringup.start_ports(&[PortId(0)], &PortRequest::new().lcores(1))?;
    let mut queues = queues.pop().ok_or("no port")?;
    Ok((queues.rx.pop().ok_or("no rx queue")?, queues.tx.pop().ok_or("no tx queue")?))
}

impl Fixtures {
    pub(crate) fn new(bringup: &mut Bringup) -> Result<Self, Box<dyn Error>> {
        let port = open(bringup)?;
        let memory = bringup.eal.memory();
        Ok(Self {
            spsc: spsc::ring(RING)?,
            mpmc: mpmc::ring(RING)?,
            objects: ObjectPool::builder("objects", 2048, POOL).cache(CACHE).build(memory)?,
            mbufs: MbufPool::builder("mbufs", POOL).cache(CACHE).build(memory)?,
            port,
        })
    }

    /// One trial of the figure called `name`, or nothing when it is not one of these.
    pub(crate) fn run(&mut self, name: &str) -> Option<f64> {
        Some(match name {
            "ring_spsc_same32" => self.spsc(),
            "ring_mpmc_same32" => self.mpmc(),
            "pool_cache32" => self.pool(),
            "mbuf_bulk32" => self.bulk(),
            "mbuf_single" => self.single(),
            "null_rxtx32" => self.null(),
            "nat_rewrite" => self.nat(),
            _ => return None,
        })
    }

    fn spsc(&mut self) -> f64 {
        let (producer, consumer) = &mut self.spsc;
        let (from, mut to) = ([7; BURST], [0; BURST]);
        let start = cycles();
        for _ in 0..ROUNDS {
            black_box(&from);
            assert_eq!(producer.enqueue_burst(&from).count, BURST);
            assert_eq!(consumer.dequeue_burst(&mut to, BURST).count, BURST);
            black_box(&mut to);
        }
        per(start, ROUNDS * BURST)
    }

    fn mpmc(&self) -> f64 {
        let (producer, consumer) = &self.mpmc;
        let (from, mut to) = ([7; BURST], [0; BURST]);
        let start = cycles();
        for _ in 0..ROUNDS {
            black_box(&from);
            assert_eq!(producer.enqueue_burst(&from).count, BURST);
            assert_eq!(consumer.dequeue_burst(&mut to, BURST).count, BURST);
            black_box(&mut to);
        }
        per(start, ROUNDS * BURST)
    }

    fn pool(&self) -> f64 {
        let mut space = Lines([const { MaybeUninit::uninit() }; BURST]);
        let start = cycles();
        for _ in 0..ROUNDS {
            let Some(objects) = self.objects.get_bulk(&mut space.0) else { return f64::NAN };
            // SAFETY: they were just taken from this pool and are given back once.
            unsafe { self.objects.put_bulk(objects) };
        }
        per(start, ROUNDS * BURST)
    }

    fn bulk(&self) -> f64 {
        let mut burst = Burst::new();
        let start = cycles();
        for _ in 0..ROUNDS {
            assert!(self.mbufs.alloc_burst(&mut burst, BURST));
            burst.clear();
        }
        per(start, ROUNDS * BURST)
    }

    fn single(&self) -> f64 {
        let start = cycles();
        for _ in 0..ROUNDS * BURST {
            assert!(self.mbufs.alloc().is_some());
        }
        per(start, ROUNDS * BURST)
    }

    /// Source address and source port of UDP over IPv4, as a translator changes them, on packets that stay in the cache.
    fn nat(&self) -> f64 {
        let frame =
            Frame::ether([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1024, 9).payload(&[0; 18]);
        let mut burst = Burst::new();
        assert!(self.mbufs.alloc_burst(&mut burst, BURST));
        for mbuf in burst.iter_mut() {
            assert!(mbuf.append_slice(&frame));
        }
        let sources = [([192, 0, 2, 7], 5000), ([10, 0, 0, 1], 1024)];
        let start = cycles();
        for round in 0..ROUNDS {
            let (address, port) = sources[round % 2];
            for mbuf in burst.iter_mut() {
                let mut ip = mbuf.ipv4_mut().expect("IPv4");
                assert!(ip.translate_src(address, port));
            }
        }
        let taken = per(start, ROUNDS * BURST);
        assert!(burst.iter().all(|mbuf| mbuf.data() == &frame[..]), "an even number of changes");
        taken
    }

    fn null(&mut self) -> f64 {
        let (rx, tx) = &mut self.port;
        let mut burst = Burst::new();
        let start = cycles();
        for _ in 0..ROUNDS {
            assert_eq!(rx.rx_burst(&mut burst, BURST), BURST);
            assert_eq!(tx.tx_burst(&mut burst), BURST);
        }
        per(start, ROUNDS * BURST)
    }
}
