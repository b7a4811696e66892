//! Lists the RDMA devices of this machine; with the name of one, opens it and walks from open to close.
//!
//! `cargo run -p pollux-uverbs --example devices -- rxe0`
#![expect(unsafe_code, reason = "registers memory")]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use pollux_eal::region::Region;
use pollux_uverbs::abi::flags::{Access, CqFlags, LinkLayer, PortState};
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::cq::CqRequest;
use pollux_uverbs::discovery::{self, Device};
use pollux_uverbs::mr::MrRequest;
use pollux_uverbs::{Context, Driver, UverbsError};

fn main() -> ExitCode {
    let done = match std::env::args().nth(1) {
        Some(name) => open(&name),
        None => list(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn open(name: &str) -> Result<(), Box<dyn Error>> {
    walk(&discovery::find(Path::new("/"), name)?)
}

fn list() -> Result<(), Box<dyn Error>> {
    let devices = match discovery::devices(Path::new("/")) {
        Err(error @ UverbsError::NoKernel { .. }) => {
            println!("{error}");
            return Ok(());
        }
        other => other?,
    };
    println!("{} devices", devices.len());
    for device in devices {
        println!(
            "{} {} driver {} pci {} netdev {} NUMA node {}",
            device.ibdev,
            device.file.display(),
            device.driver.as_deref().unwrap_or("none"),
            device.pci.as_deref().unwrap_or("none"),
            if device.netdevs.is_empty() { "none".into() } else { device.netdevs.join(",") },
            device.numa_node.map_or("any".into(), |node| node.to_string()),
        );
        for port in device.ports {
            println!(
                "  port {} {} {} {}",
                port.number,
                port.state.map_or("unknown".into(), |state: PortState| state.to_string()),
                port.link_layer.map_or("unknown".into(), |layer: LinkLayer| layer.to_string()),
                port.rate.unwrap_or_default(),
            );
        }
    }
    Ok(())
}

fn walk(device: &Device) -> Result<(), Box<dyn Error>> {
    // Other drivers want bytes of their own with most commands.
    if device.driver_id() != Some(driver::RXE) {
        return Err(format!(
            "{} is not a device of rdma_rxe, the one that wants nothing to be opened",
            device.ibdev
        )
        .into());
    }
    // SAFETY: all of it is below: memory that is registered is used by nobody until it is deregistered, and what is destroyed was
    // made here.
    let context = unsafe { Context::open(device.open()?, driver::RXE, Driver::none())? };
    let context = context.with_sysfs(device.sysfs.clone());
    println!(
        "opened: {} vectors, {:?}, commands {:?}",
        context.comp_vectors(),
        context.core_support(),
        context.route()
    );
    let attributes = context.query_device(Driver::none())?;
    println!(
        "device: {} queue pairs, answer of {} bytes",
        attributes.base.max_qp, attributes.response_length
    );
    let port = context.query_port(1)?.legacy_resp;
    println!("port 1: {}, {}", PortState(port.state), LinkLayer(port.link_layer));
    for gid in context.query_gid_table()? {
        println!("gid {}: {:02x?} {} interface {:?}", gid.index, gid.gid, gid.kind, gid.ifindex);
    }

    let pd = context.alloc_pd(Driver::none())?;
    let memory = Region::anonymous("example", 8192)?.into_zone();
    let start = memory.base().as_ptr().expose_provenance() as u64;
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::RELAXED_ORDERING;
    // Work requests will name it by an address of their own.
    let request = MrRequest { pd, start, length: 8192, hca_va: 0x10_0000, access };
    // SAFETY: `memory` outlives the region, and nobody looks into it.
    let mr = unsafe { context.reg_mr(&request, Driver::none())? };
    println!("memory: lkey {:#x}, rkey {:#x}", mr.lkey, mr.rkey);
    let channel = context.create_comp_channel()?;
    let mut ring = [0; 16]; // rxe answers where the queue can be mapped
    let request = CqRequest {
        entries: 64,
        user_handle: 1,
        channel: Some(&channel),
        vector: 0,
        flags: CqFlags::empty(),
    };
    let cq = context.create_cq(&request, Driver::new(&[], &mut ring))?;
    let (offset, bytes) =
        (u64::from_ne_bytes(*ring.first_chunk().expect("16")), ring[8..].first_chunk().expect("8"));
    let ring =
        context.map(offset, u32::from_ne_bytes(*bytes) as usize, pollux_uverbs::Protection::ReadWrite)?;
    println!("completion queue: {} entries, {} bytes mapped at {offset:#x}", cq.entries, ring.bytes());
    println!("events: {:?}, {:?}", channel.next()?, context.events().next()?);

    match context.dealloc_pd(pd) {
        Err(error) => println!("too early: {error}"),
        Ok(()) => return Err("a protection domain went that has memory in it".into()),
    }
    println!("destroyed: {:?}", context.destroy_cq(cq.handle)?);
    context.dereg_mr(mr.handle)?;
    context.dealloc_pd(pd)?;
    println!("closed");
    Ok(())
}
