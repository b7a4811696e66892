//! Writes what arrives at an interface to a capture file.
//!
//! `cargo run --release -p pollux-frame-io --example capture -- eth0 out.pcapng 100` (needs `CAP_NET_RAW`).

use std::error::Error;
use std::path::Path;

use pollux_frame_io::packet_socket::{PacketOptions, PacketPort};
use pollux_frame_io::pcap::{PcapFormat, PcapWriter};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, file, count] = &arguments[..] else {
        return Err("an interface, a file and a number of frames, please".into());
    };
    let path = Path::new(file);
    let writer = PcapWriter::create(path, PcapFormat::of(path))?;
    let mut port = PacketPort::open(&PacketOptions::new(interface))?;
    port.control.admit(true)?;
    let (rx, _) = &mut port.queues[0];
    let mut left: u64 = count.parse()?;
    while left > 0 {
        let Some(frame) = rx.next() else {
            std::thread::yield_now();
            continue;
        };
        // A tag stands behind the two addresses; the kernel took it out.
        let (addresses, rest) = frame.data().split_at(frame.data().len().min(12));
        let tag = frame.vlan().map(|tag| tag.bytes());
        let tag = tag.as_ref().map_or(&[][..], |tag| tag);
        writer.write(&[addresses, tag, rest], frame.wire_bytes() + tag.len(), frame.timestamp())?;
        left -= 1;
    }
    writer.close()?;
    Ok(())
}
