//! Many packets from one model port to another: in order, none lost, none altered, every buffer back home. `POLLUX_PACKETS` is how
//! many; a million if it is not set.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_mempool::{Burst, MbufPool};
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::Cable;
use pollux_pmd_mlx::Arguments;
use pollux_port::{Port, PortConfig, PortId, Queues};
use pollux_tests::amount::amount;

const BURST: usize = 32;

/// Lengths go round, so that inline, plain and multi-packet entries follow each other.
fn bytes_of(number: u64) -> usize {
    const LENGTHS: [usize; 7] = [60, 64, 65, 128, 256, 700, 1514];
    LENGTHS[(number % 7) as usize]
}

fn fill(frame: &mut [u8], number: u64) {
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..22].copy_from_slice(&number.to_be_bytes());
    let pattern = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    for (at, byte) in frame[22..].iter_mut().enumerate() {
        *byte = pattern[at % 8] ^ at as u8;
    }
}

/// What devices and ports say of themselves.
fn told(models: &[Arc<Model>], ports: &mut [Port]) -> String {
    let devices = models.iter().map(|model| {
        let device = model.device();
        format!("{}: {:?} {:?}", model.name(), device.violations(), device.port_counters())
    });
    let ports = ports.iter_mut().map(|port| format!("{:?} {:?}", port.stats(), port.dropped()));
    devices.chain(ports).collect::<Vec<_>>().join("\n")
}

#[test]
fn many_packets_cross_in_order_and_whole() {
    let packets = amount("POLLUX_PACKETS", 1_000_000);
    println!("{packets} packets");
    let pool = MbufPool::builder("crossing", 8191).build_anonymous().expect("a pool");
    let whole = pool.available();
    let (near, far) = Cable::pair();
    let [a, b] = [("mlx5_model0", near), ("mlx5_model1", far)]
        .map(|(name, end)| Arc::new(Model::builder(name).plugged(end).build().expect("a model")));
    let models = [Arc::clone(&a), Arc::clone(&b)];
    let mut ports = [(0, a), (1, b)].map(|(number, model)| {
        Port::new(PortId(number), "mlx5_model", crate::port(&model, Arguments::default()))
    });
    let mut queues =
        ports.each_mut().map(|port| port.bring_up(PortConfig::queues(1, 1, &pool)).expect("a port"));
    let [Queues { tx, .. }, Queues { rx, .. }] = &mut queues;
    let (tx, rx) = (&mut tx[0], &mut rx[0]);

    let mut expected = vec![0; 2048];
    let (mut sent, mut received) = (0, 0);
    let (mut out, mut back) = (Burst::new(), Burst::new());
    let mut last = Instant::now();
    while received < packets {
        while out.len() < BURST && sent < packets {
            // The receiver keeps a pool of its own share: what is missing comes home with the next bursts.
            let Some(mut mbuf) = pool.alloc() else { break };
            fill(mbuf.append(bytes_of(sent)).expect("room"), sent);
            out.push(mbuf);
            sent += 1;
        }
        tx.tx_burst(&mut out);
        let got = rx.rx_burst(&mut back, BURST);
        for mbuf in back.drain(..) {
            let frame = &mut expected[..bytes_of(received)];
            fill(frame, received);
            assert_eq!(mbuf.data(), frame, "packet {received}");
            received += 1;
        }
        if got > 0 {
            last = Instant::now();
        } else {
            assert!(
                last.elapsed() < Duration::from_secs(10),
                "{received} of {packets} arrived, {sent} were sent: {}",
                told(&models, &mut ports)
            );
            std::thread::yield_now();
        }
    }
    let stats = ports.each_mut().map(|port| port.stats());
    assert_eq!((stats[0].opackets, stats[1].ipackets), (packets, packets));
    assert_eq!((stats[1].imissed, stats[1].rx_nombuf, stats[1].ierrors), (0, 0, 0));
    drop(queues);
    for port in &mut ports {
        port.stop().expect("stops");
        port.close().expect("closes");
    }
    drop(ports);
    assert_eq!(pool.available(), whole, "every buffer is home");
}
