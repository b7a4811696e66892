//! Captures on a disk that fills up: what is not in the file is counted as dropped, and one line says why.

use std::path::Path;
use std::time::Duration;

use pollux_frame_io::pcap::PcapReader;
use pollux_mempool::{Burst, MbufPool};
use pollux_port::layer::{LayerSpec, wrap};
use pollux_port::{Port, PortConfig, PortId, TxDrop};
use pollux_port_soft::pcap::{PcapOptions, PcapPort, PcapSink};
use pollux_tests::disk::SmallDisk;
use pollux_tests::log::logged;
use pollux_tests::require::{Need, require};

fn whole(path: &Path) -> u64 {
    let mut reader = PcapReader::open(path).expect("a capture");
    let mut frames = 0;
    while reader.next().expect("sound").is_some() {
        frames += 1;
    }
    assert_eq!(reader.truncation(), None, "it ends with a whole record");
    frames
}

const KIB: usize = 600;

/// Bursts sent while the disk fills, the last of them after a pause in which what came before was written.
const TABLE: [(&str, usize); 2] = [("it fills while frames come", 40), ("it fills in a pause", 10)];

#[test]
fn a_port_counts_what_its_full_disk_did_not_take() {
    if !require(&[Need::Root]) {
        return;
    }
    for (case, bursts) in TABLE {
        for period in 1..=2 {
            let disk = SmallDisk::new(if bursts == 40 { KIB } else { 100 });
            // Two ports, of which only one has the full disk.
            let folder = tempfile::tempdir().expect("a temporary folder");
            let paths = [disk.file("a.pcap"), folder.path().join("b.pcapng")];
            let lines = logged(|| {
                let pool = MbufPool::builder("full", 512).build_anonymous().expect("memory");
                let mut ports = paths.clone().map(|path| {
                    let options = PcapOptions { tx: vec![PcapSink::File(path)], ..PcapOptions::default() };
                    let driver = PcapPort::new("net_pcap0", &options).expect("opens");
                    let mut port = Port::new(PortId(0), "net_pcap0", Box::new(driver));
                    let queues = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("starts");
                    (port, queues)
                });
                let mut burst = Burst::new();
                for (port, queues) in &mut ports {
                    if period == 2 {
                        port.stop().expect("stops");
                        port.start().expect("starts");
                    }
                    for _ in 0..bursts {
                        assert!(pool.alloc_burst(&mut burst, 32));
                        burst.iter_mut().for_each(|mbuf| assert!(mbuf.append_slice(&[7; 1000])));
                        queues.tx[0].tx_burst(&mut burst);
                    }
                }
                std::thread::sleep(Duration::from_secs(1));
                for (port, queues) in &mut ports {
                    assert!(pool.alloc_burst(&mut burst, 1));
                    burst.iter_mut().for_each(|mbuf| assert!(mbuf.append_slice(&[7; 1000])));
                    queues.tx[0].tx_burst(&mut burst);
                    port.stop().expect("a full disk is no reason not to stop");
                }
                let sent = 32 * bursts as u64 + 1;
                for ((port, queues), (path, full)) in ports.iter_mut().zip(paths.iter().zip([true, false])) {
                    let stats = port.stats();
                    assert_eq!(
                        stats.opackets,
                        whole(path),
                        "{case}: what is in the file was sent, and no more"
                    );
                    assert_eq!(stats.opackets + stats.oerrors, sent, "{case}: all else is counted");
                    assert_eq!(stats.obytes, stats.opackets * 1000);
                    assert_eq!(queues.tx[0].counters().dropped(TxDrop::Refused), stats.oerrors);
                    assert_eq!(stats.oerrors > 0, full);
                }
            });
            let [line] = &lines[..] else { panic!("{case}: one line, not {lines:?}") };
            assert!(line.contains("a.pcap: No space left on device (os error 28); "), "{line}");
        }
    }
}

#[test]
fn a_tee_counts_what_its_full_disk_did_not_take() {
    if !require(&[Need::Root]) {
        return;
    }
    for (case, bursts) in TABLE {
        let disk = SmallDisk::new(if bursts == 40 { KIB } else { 100 });
        let path = disk.file("tee.pcapng");
        let lines = logged(|| {
            let pool = MbufPool::builder("full", 512).build_anonymous().expect("memory");
            let layers = LayerSpec { tee: Some(path.clone()), ..LayerSpec::default() };
            let driver = Box::new(pollux_port_soft::ring::looped("net_ring0"));
            let driver = wrap("net_ring0", driver, &layers, pollux_port_soft::tee::open).expect("opens");
            let mut port = Port::new(PortId(0), "net_ring0", driver);
            let mut queues = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("starts");
            let mut burst = Burst::new();
            for _ in 0..bursts {
                assert!(pool.alloc_burst(&mut burst, 32));
                burst.iter_mut().for_each(|mbuf| assert!(mbuf.append_slice(&[7; 1000])));
                assert_eq!(queues.tx[0].tx_burst(&mut burst), 32);
                assert_eq!(queues.rx[0].rx_burst(&mut burst, 32), 32);
                burst.clear();
            }
            std::thread::sleep(Duration::from_secs(1));
            let value = |port: &mut Port, name| port.xstat(name).expect("a tee has it").value;
            let (frames, errors) = (value(&mut port, "tee_frames"), value(&mut port, "tee_errors"));
            assert_eq!(frames, whole(&path), "{case}");
            assert_eq!(frames + errors, 64 * bursts as u64, "{case}");
            assert!(errors > 0 && frames > 0);
        });
        let [line] = &lines[..] else { panic!("{case}: one line, not {lines:?}") };
        assert!(line.contains("tee.pcapng: No space left on device (os error 28)"), "{line}");
    }
}
