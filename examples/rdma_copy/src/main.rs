//! rdma_copy: writes memory of another process by RDMA, reads it back and compares.
//!
//! One process listens and gives its memory; the other connects, writes all of it in pieces, reads it back and compares. TCP carries
//! nothing but the two ends' addresses, and tells the one that gives when the other is done.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pollux::prelude::*;
use pollux::verbs::{Access, EndpointOptions};

/// Writes memory of another process by RDMA, reads it back and compares.
#[derive(clap::Parser)]
struct Options {
    /// Gives memory to who connects here, instead of connecting
    #[arg(long)]
    listen: bool,
    /// Where the two meet
    #[arg(value_name = "ADDRESS:PORT")]
    at: SocketAddr,
    /// MiB of memory that is given
    #[arg(long, value_name = "MIB", default_value = "1024", value_parser = clap::value_parser!(u64).range(1..=65536))]
    size: u64,
}

const MIB: usize = 1 << 20;
/// Requests under way, of a MiB each.
const WINDOW: usize = 16;

fn main() -> ExitCode {
    program::main(run)
}

fn failed(why: impl ToString) -> BringupError {
    BringupError::Runtime(why.to_string())
}

fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    let bringup = RdmaBringup::new(line, None)?;
    let Some(device) = bringup.devices.first() else { return Ok(()) };
    let pd = Pd::new(&device.context)?;
    let stop = bringup.eal.stop_flag();
    if options.listen {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = Mr::allocate(&pd, options.size as usize * MIB, access)?;
        let listener = TcpListener::bind(options.at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        program::say(format_args!("rdma_copy: waiting at {}", options.at));
        let Some((mut stream, peer)) = until(&stop, || listener.accept())? else { return Ok(()) };
        // Longer than it waits for its link.
        stream.set_read_timeout(Some(Duration::from_secs(20))).map_err(failed)?;
        let _end = Endpoint::pair(&pd, Some(&memory), &mut stream).map_err(failed)?;
        stream.set_nonblocking(true).map_err(failed)?;
        // Nothing to do but to be there, until the other closes; what it sends is none of ours.
        let closed = || match stream.read(&mut [0; 4096]) {
            Ok(1..) => Err(io::ErrorKind::WouldBlock.into()),
            end => end,
        };
        if until(&stop, closed)?.is_some() {
            program::tell(format_args!("gave {} MiB to {peer}", options.size));
        }
        return Ok(());
    }
    let mut stream = TcpStream::connect(options.at).map_err(failed)?;
    let depth = EndpointOptions { depth: WINDOW as u32, ..EndpointOptions::default() };
    let mut end = Endpoint::pair_with(&pd, None, &mut stream, depth).map_err(failed)?;
    let remote = end.remote.ok_or_else(|| failed("the other end gives no memory"))?;
    let staging = Mr::allocate(&pd, WINDOW * MIB, Access::LOCAL_WRITE)?;
    for write in [true, false] {
        let start = Instant::now();
        let pieces = remote.bytes as usize / MIB;
        for first in (0..pieces).step_by(WINDOW) {
            let window = first..pieces.min(first + WINDOW);
            transfer(&mut end, &staging, remote, window, write, &stop)?;
        }
        let rate = remote.bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
        let what = if write { "wrote" } else { "read back and compared" };
        program::tell(format_args!("{what} {} MiB, {rate:.2} GB/s", remote.bytes as usize / MIB));
    }
    Ok(())
}

/// Tries until it no longer would block; `None`: the program is to end.
fn until<T>(stop: &StopFlag, mut step: impl FnMut() -> io::Result<T>) -> Result<Option<T>, BringupError> {
    while !stop.wait(Duration::from_millis(20)) {
        match step() {
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            done => return done.map(Some).map_err(failed),
        }
    }
    Ok(None)
}

/// What the piece of that number holds.
fn fill(piece: usize, bytes: &mut [u8]) {
    let mut word = (piece as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for place in bytes.chunks_exact_mut(8) {
        word = word.rotate_left(17).wrapping_mul(5).wrapping_add(0x1_0001);
        place.copy_from_slice(&word.to_ne_bytes());
    }
}

/// Writes the pieces of a window, or reads and compares them.
fn transfer(
    end: &mut Endpoint,
    staging: &Mr,
    remote: pollux::verbs::RemoteMemory,
    window: std::ops::Range<usize>,
    write: bool,
    stop: &StopFlag,
) -> Result<(), BringupError> {
    let (mut right, mut told) = (vec![0; MIB], vec![0; MIB]);
    let mut batch = end.qp.batch();
    for (place, piece) in window.clone().enumerate() {
        let (here, there) = (place * MIB, remote.address + (piece * MIB) as u64);
        if write {
            fill(piece, &mut right);
            staging.write(here, &right);
            batch.write(piece as u64, there, remote.rkey);
        } else {
            batch.read(piece as u64, there, remote.rkey);
        }
        batch.mr(staging, here..here + MIB).signalled();
    }
    batch.ring().map_err(failed)?;
    let (mut done, mut wrong) = (0, None);
    while done < window.len() && wrong.is_none() {
        wrong = stop.is_set().then(|| "stopped before all was copied".to_owned());
        done += end.cq.poll(WINDOW, |wc| wrong = (!wc.is_ok()).then(|| format!("{wc:?}")).or(wrong.take()));
    }
    wrong.map_or(Ok(()), |wrong| Err(failed(wrong)))?;
    for (place, piece) in window.enumerate().filter(|_| !write) {
        fill(piece, &mut right);
        staging.read(place * MIB, &mut told);
        if right != told {
            return Err(failed(format!("MiB {piece} is not what was written")));
        }
    }
    Ok(())
}
