//! Receives that are linked to a region: the kernel counts down in entries as it fills them, so each post writes them anew. And the bell of
//! rxe's queue pairs, also rung by who has other credentials than who opened the device.

use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use pollux_verbs::{
    Access, Connection, Context, Cq, CqOptions, Mr, Options, Path, Pd, Qp, QpKind, QpOptions, WcStatus,
};

use rustix::process::Uid;
use rustix::thread::set_thread_uid;

use super::Device;
use crate::bed::here;

const PIECE: usize = 128;
const DEPTH: u32 = 8;
/// How long messages may be under way.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn linked_receives_are_filled_in_turn() {
    if !here() {
        return;
    }
    let device = Device::new("rxe0");
    let found = pollux_verbs::devices(FilePath::new("/")).expect("devices");
    let found = found.iter().find(|found| found.ibdev == device.name).expect("rxe0");
    let context = Context::open_device(found, Options::default()).expect("a context");
    let index: u8 = device.gid.parse().expect("a number");
    let own = context.gid(1, index.into()).expect("a table").expect("a GID");
    for kind in [QpKind::Rc, QpKind::Uc] {
        let pd = Pd::new(&context).expect("a domain");
        let mut sent = Cq::new(&context, CqOptions::new(64)).expect("a queue");
        let mut received = Cq::new(&context, CqOptions::new(64)).expect("a queue");
        let options = QpOptions::new(kind).depth(64, DEPTH).inline(64);
        let mut near = Qp::new(&pd, &sent, &sent, &options).expect("a queue pair");
        let mut far = Qp::new(&pd, &sent, &received, &options).expect("a queue pair");
        let path = Path { hop_limit: 64, ..Path::new(own.gid, index) };
        let numbers = [near.qpn(), far.qpn()];
        for (qp, peer) in [(&mut near, numbers[1]), (&mut far, numbers[0])] {
            qp.init(1, Access::LOCAL_WRITE).expect("INIT");
            qp.connect(&Connection::new(path, peer)).expect("RTS");
        }
        let pieces = u64::from(far.sizes().receives);
        let mr = Mr::allocate(&pd, PIECE * pieces as usize, Access::LOCAL_WRITE).expect("memory");
        far.link_receives(&mr, PIECE).expect("linked");
        let mut number = 0_u64;
        // Never all that there are, all, and over the end of the ring.
        for count in [8_u64, 3, 4, 1, 8, 5, 7, 6, 2, 8, 8] {
            far.post_linked(count as u32).expect("posted");
            if kind == QpKind::Uc && number > 32 {
                // This thread alone. write(2) is refused from now on.
                set_thread_uid(Uid::from_raw(1)).expect("allowed");
            }
            let mut batch = near.batch();
            for said in number..number + count {
                batch.send(said).inline(&said.to_le_bytes()).signalled();
            }
            batch.ring().expect("posted");
            let mut all = Vec::new();
            let begin = Instant::now();
            let mut done = 0;
            while all.len() < count as usize || done < count as usize {
                received.poll(16, |wc| all.push((wc.id(), wc.status(), wc.bytes())));
                sent.poll(16, |wc| {
                    assert_eq!(wc.status(), WcStatus::SUCCESS);
                    done += 1;
                });
                assert!(begin.elapsed() < LIMIT, "{kind:?}: {} of {count} came", all.len());
            }
            for (id, status, bytes) in all {
                assert_eq!((id, status, bytes), (number % pieces, WcStatus::SUCCESS, 8), "{kind:?}");
                let mut said = [0; 8];
                mr.read(id as usize * PIECE, &mut said);
                assert_eq!(u64::from_le_bytes(said), number, "{kind:?}");
                number += 1;
            }
        }
    }
}
