//! Processes that fork: the children use their parent's device, as with a kernel. Parents and children are this test program itself.
#![expect(unsafe_code, reason = "fork(2)")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pollux_uverbs::KernelFile;
use pollux_verbs::{
    Access, CompletionChannel, Connection, Context, Cq, CqOptions, Dm, Mr, Options, Path as To, Pd, Provider,
    Qp, QpKind, QpOptions,
};

use super::client::{FILE, is_client_with};

const BYTES: usize = 8192;
const RIGHTS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

pub(crate) fn file() -> Arc<KernelFile> {
    Arc::new(KernelFile::open(Path::new(FILE), None).expect("a device"))
}

pub(crate) fn context(file: Arc<KernelFile>) -> Context {
    Context::open(file, Provider::Mlx5, Options::default()).expect("a context")
}

/// Two queue pairs of a device that are connected with each other, and memory of this process.
struct Loop {
    one: Qp,
    _two: Qp,
    cq: Cq,
    near: Mr,
    far: Mr,
}

impl Loop {
    fn new(context: &Context, channel: Option<&CompletionChannel>) -> Self {
        let pd = Pd::new(context).expect("a domain");
        let options = CqOptions::new(64);
        let options = match channel {
            Some(channel) => options.channel(channel),
            None => options,
        };
        let cq = Cq::new(context, options).expect("a completion queue");
        let make = || {
            let mut qp =
                Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc).depth(16, 16)).expect("a queue pair");
            qp.init(1, RIGHTS).expect("INIT");
            qp
        };
        let (mut one, mut two) = (make(), make());
        let gid = context.gid(1, 0).expect("answered").expect("a GID").gid;
        one.connect(&Connection::new(To::new(gid, 0), two.qpn())).expect("connected");
        two.connect(&Connection::new(To::new(gid, 0), one.qpn())).expect("connected");
        let [near, far] = [(); 2].map(|()| Mr::allocate(&pd, BYTES, RIGHTS).expect("a region"));
        Self { one, _two: two, cq, near, far }
    }

    /// Writes by the device from one region to the other, and looks what arrived.
    fn turn(&mut self, round: usize) {
        let sent: Vec<u8> = (0..BYTES).map(|at| (at * 7 + round) as u8).collect();
        self.near.write(0, &sent);
        let mut batch = self.one.batch();
        batch.write(round as u64, self.far.address(), self.far.rkey()).mr(&self.near, 0..BYTES).signalled();
        assert_eq!(batch.ring(), Ok(1));
        let end = Instant::now() + Duration::from_secs(20);
        let mut done = 0;
        while done == 0 {
            assert!(Instant::now() < end, "nothing completes");
            self.cq.poll(1, |wc| {
                assert!(wc.is_ok(), "{wc:?}");
                done += 1;
            });
        }
        let mut arrived = vec![0; BYTES];
        self.far.read(0, &mut arrived);
        assert!(arrived == sent, "round {round}");
    }
}

/// Does something in a child, and says which one.
pub(crate) fn fork(what: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child ends without what its parent has registered, and no other thread holds what it needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = catch_unwind(AssertUnwindSafe(what));
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    assert!(child > 0, "a child");
    child
}

/// How a child ended, as waitpid(2) says it.
pub(crate) fn end(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: a child of this process, and room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn a_child_uses_its_parents_file() {
    if !is_client_with(&[], "fork::a_child_uses_its_parents_file") {
        return;
    }
    let file = file();
    let child = fork(|| {
        // The context, its objects and their memory are all of the child's; the file and the device are the parent's.
        let context = context(Arc::clone(&file));
        let mut device = Loop::new(&context, None);
        (0..50).for_each(|round| device.turn(round));
        // What it forks has them all the same.
        let grandchild = fork(|| {
            // Memory of our driver's is not there after a fork; what asks the device alone is.
            assert!(context.gid(1, 0).is_ok());
        });
        assert_eq!(end(grandchild), 0);
        device.turn(50);
    });
    assert_eq!(end(child), 0);
}

#[test]
fn children_use_the_device_while_their_parent_does() {
    if !is_client_with(&[], "fork::children_use_the_device_while_their_parent_does") {
        return;
    }
    let context = context(file());
    let mut own = Loop::new(&context, None);
    own.turn(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut rounds = 0;
            while !over.load(Ordering::Relaxed) {
                rounds += 1;
                own.turn(rounds);
            }
            rounds
        });
        let children: Vec<_> = (0..4)
            .map(|number| {
                fork(move || {
                    let context = self::context(self::file());
                    let channel = CompletionChannel::new(&context).expect("a channel");
                    let mut device = Loop::new(&context, Some(&channel));
                    (0..20).for_each(|round| device.turn(round + number));
                    let dm = Dm::new(&context, 4096, 0).expect("memory of the device");
                    let pattern = [number as u8 + 1; 64];
                    dm.write(0, &pattern).expect("written");
                    let mut found = [0; 64];
                    dm.read(0, &mut found).expect("read");
                    assert_eq!(found, pattern);
                    // One of them ends as if shot.
                    if number == 3 {
                        // SAFETY: it ends this process.
                        unsafe { libc::raise(libc::SIGKILL) };
                    }
                })
            })
            .collect();
        let ends: Vec<i32> = children.into_iter().map(end).collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(ends, [0, 0, 0, libc::SIGKILL]);
        assert!(busy.join().expect("the parent's goes on") > 0);
    });
    // Of the one that was shot the device has let go.
    Loop::new(&context, None).turn(1);
}

#[test]
fn a_child_opens_its_parents_device() {
    if !is_client_with(&[], "fork::a_child_opens_its_parents_device") {
        return;
    }
    drop(file());
    // Its file was closed, the device is there.
    let child = fork(|| {
        Loop::new(&context(file()), None).turn(1);
        let child = fork(|| Loop::new(&context(file()), None).turn(2));
        assert_eq!(end(child), 0);
    });
    assert_eq!(end(child), 0);
    Loop::new(&context(file()), None).turn(3);
}
