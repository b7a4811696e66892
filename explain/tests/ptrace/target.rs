//! The program that is watched, from both sides: [`Target`] starts it and tells it what to do, [`run`] is it.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use pollux_tests::patience::patient;
use pollux_tests::require::{Need, require};
use pollux_uverbs::abi::frame::{ExtendedHeader, IoctlAttribute, IoctlHeader, RDMA_VERBS_IOCTL, WriteHeader};
use pollux_uverbs::abi::id::qp;
use pollux_uverbs::abi::{memory, queue_pair, write};
use zerocopy::IntoBytes;

/// Set for the program itself.
const MARK: &str = "POLLUX_PTRACE_TARGET";
/// What its answers begin with.
const ANSWER: &str = "answer: ";
const FILE: &str = "/dev/infiniband/uverbs0";
/// It ends by itself behind this time, whoever started it.
const LIFE: u32 = 120;
/// A namespace in which the file of a device is an ordinary one.
const BED: &str =
    "mount -t tmpfs none /dev && mkdir /dev/infiniband && : >/dev/infiniband/uverbs0 && exec \"$0\" \"$@\"";

/// The program, which ends with this.
pub(crate) struct Target {
    child: Child,
    answers: Receiver<String>,
}

impl Target {
    /// Starts it; `None` where it has no place.
    pub(crate) fn start() -> Option<Self> {
        if !require(&[Need::Mounts]) {
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(["-r", "-m", "sh", "-c", BED]).arg(std::env::current_exe().expect("a program"));
        command.args(ARGUMENTS).env(MARK, "1");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in lines {
                match line.strip_prefix(ANSWER) {
                    Some(answer) => drop(sender.send(answer.to_owned())),
                    None => eprintln!("target: {line}"),
                }
            }
        });
        let target = Self { child, answers };
        assert_eq!(target.hear(Duration::from_secs(20)).as_deref(), Some("ready"));
        Some(target)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, word: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{word}").expect("it reads");
    }

    pub(crate) fn hear(&self, limit: Duration) -> Option<String> {
        self.answers.recv_timeout(patient(limit)).ok()
    }

    pub(crate) fn ask(&mut self, word: &str) -> String {
        self.tell(word);
        self.hear(Duration::from_secs(20)).unwrap_or_else(|| panic!("{word}: no answer"))
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: kill has no memory effects; the child is not waited for yet, so the number is still its own.
        let sent = unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
    }

    /// Waits until its parent is told that it is stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        let mut status = 0;
        // SAFETY: the status is ours. Without WEXITED it stays a child that can be waited for.
        let told = unsafe { libc::waitpid(self.child.id().cast_signed(), &raw mut status, libc::WUNTRACED) };
        told == self.child.id().cast_signed() && libc::WIFSTOPPED(status)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const ARGUMENTS: [&str; 3] = ["--exact", "target_program", "--nocapture"];

static COUNTS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
static BUSY: AtomicBool = AtomicBool::new(false);

extern "C" fn count(signal: i32) {
    let index = match signal {
        libc::SIGUSR1 => 0,
        libc::SIGTRAP => 1,
        _ => 2,
    };
    COUNTS[index].fetch_add(1, Ordering::Relaxed);
}

fn answer(text: &str) {
    let line = format!("{ANSWER}{text}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("somebody reads");
}

/// What it is, until its standard input ends.
pub(crate) fn run() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    // SAFETY: the handler counts, and does nothing else; the alarm ends this process, and so does the end of who started it, also while
    // it is stopped.
    unsafe {
        libc::alarm(LIFE);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for signal in [libc::SIGUSR1, libc::SIGTRAP, libc::SIGRTMIN() + 3] {
            libc::signal(signal, count as *const () as libc::sighandler_t);
        }
    }
    let mut own = Own::default();
    answer("ready");
    for word in std::io::stdin().lock().lines().map_while(Result::ok) {
        let said = own.obey(&word);
        answer(&said);
    }
    std::process::exit(0);
}

#[derive(Default)]
struct Own {
    file: Option<std::fs::File>,
    /// Threads that make a call when they are told.
    threads: Vec<Sender<i32>>,
    done: Option<Receiver<()>>,
    page: usize,
}

impl Own {
    fn fd(&self) -> i32 {
        self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    fn obey(&mut self, word: &str) -> String {
        match word {
            "open" => {
                self.file = Some(std::fs::File::options().read(true).write(true).open(FILE).expect("there"))
            }
            "missing" => drop(std::fs::File::open("/dev/infiniband/uverbs9").expect_err("there is none")),
            "ioctl" => ioctl(self.fd()),
            "write" => alloc_pd(self.fd()),
            "extended" => query_device(self.fd()),
            "map" => {
                // SAFETY: a new map, which nobody touches.
                let page = unsafe {
                    libc::mmap(
                        std::ptr::null_mut(),
                        4096,
                        libc::PROT_READ,
                        libc::MAP_SHARED,
                        self.fd(),
                        0x50_0000,
                    )
                };
                assert_ne!(page, libc::MAP_FAILED);
                self.page = page.expose_provenance();
            }
            "unmap" => {
                let page = std::ptr::with_exposed_provenance_mut(self.page);
                // SAFETY: the map that was made for it.
                let unmapped = unsafe { libc::munmap(page, 4096) };
                assert_eq!(unmapped, 0);
            }
            "dup" => {
                // Both go, the first one now and the second one with `close`.
                let other = self.file.as_ref().map(|file| file.try_clone().expect("a descriptor"));
                self.file = other;
            }
            "close" => self.file = None,
            "threads" => self.start_threads(),
            "first" => self.has_done(0),
            "second" => self.has_done(1),
            "made" => {
                let fd = self.fd();
                std::thread::spawn(move || ioctl(fd)).join().expect("it ends");
            }
            "count" => {
                let counts: Vec<String> =
                    COUNTS.iter().map(|count| count.load(Ordering::Relaxed).to_string()).collect();
                return counts.join(" ");
            }
            "zero" => COUNTS.iter().for_each(|count| count.store(0, Ordering::Relaxed)),
            "child" => child(self.fd()),
            // Until it executes a program, this thread waits for it: vfork.
            "spawn" => assert!(Command::new("true").status().expect("it runs").success()),
            "exec" => {
                // The new one says that it is ready.
                let own = std::env::current_exe().expect("a program");
                std::thread::spawn(move || Command::new(own).args(ARGUMENTS).exec())
                    .join()
                    .expect("it is gone")
                    .to_string();
            }
            "busy" => {
                BUSY.store(true, Ordering::Relaxed);
                std::thread::spawn(|| {
                    while BUSY.load(Ordering::Relaxed) {
                        drop(std::fs::metadata("/dev"));
                    }
                });
            }
            "idle" => BUSY.store(false, Ordering::Relaxed),
            "exit" => std::process::exit(7),
            "hostile" => hostile(self.fd()),
            _ => return "what?".into(),
        }
        "done".into()
    }

    fn start_threads(&mut self) {
        let (done, all) = channel();
        self.done = Some(all);
        for _ in 0..2 {
            let (sender, wishes) = channel::<i32>();
            let done = done.clone();
            std::thread::spawn(move || {
                for fd in wishes {
                    ioctl(fd);
                    let _ended = done.send(());
                }
            });
            self.threads.push(sender);
        }
    }

    fn has_done(&self, thread: usize) {
        self.threads[thread].send(self.fd()).expect("it waits");
        self.done.as_ref().expect("threads").recv().expect("it answers");
    }
}

fn call(fd: i32, frame: u64) {
    // SAFETY: an ordinary file knows no ioctl, and looks at nothing.
    unsafe { libc::ioctl(fd, libc::Ioctl::from(RDMA_VERBS_IOCTL), frame) };
}

fn attribute(attr_id: u16, len: usize, data: u64) -> IoctlAttribute {
    IoctlAttribute { attr_id, len: len as u16, data, ..IoctlAttribute::default() }
}

/// QP/CREATE, as it is asked for.
fn ioctl(fd: i32) {
    let cap = queue_pair::QpCap { max_send_wr: 16, ..queue_pair::QpCap::default() };
    let mut answer = 0_u32;
    let attributes = [
        attribute(qp::create::HANDLE, 0, 0),
        attribute(qp::create::PD_HANDLE, 0, 7),
        attribute(qp::create::SEND_CQ_HANDLE, 0, 3),
        attribute(qp::create::USER_HANDLE, 8, 0x1122_3344_5566_7788),
        attribute(qp::create::CAP, size_of_val(&cap), (&raw const cap).addr() as u64),
        attribute(qp::create::RESP_QP_NUM, 4, (&raw mut answer).addr() as u64),
    ];
    let frame = framed(&attributes, (24 + 16 * attributes.len()) as u16, attributes.len() as u16);
    call(fd, frame.as_ptr().addr() as u64);
    std::hint::black_box((cap, answer));
}

fn framed(attributes: &[IoctlAttribute], length: u16, num_attrs: u16) -> Vec<u8> {
    let head = IoctlHeader { length, object_id: qp::OBJECT, num_attrs, ..IoctlHeader::default() };
    [head.as_bytes(), attributes.as_bytes()].concat()
}

fn written(fd: i32, address: u64, bytes: usize) {
    let from = std::ptr::with_exposed_provenance::<libc::c_void>(address as usize);
    // SAFETY: the kernel reads there, or finds nothing.
    unsafe { libc::write(fd, from, bytes) };
}

/// ALLOC_PD, whose answer is there before: nobody writes one.
fn alloc_pd(fd: i32) {
    let answer = 42_u32;
    let request = memory::AllocPd { response: (&raw const answer).expose_provenance() as u64 };
    let head = WriteHeader { command: write::ALLOC_PD, in_words: 4, out_words: 1 };
    let command = [head.as_bytes(), request.as_bytes()].concat();
    written(fd, command.as_ptr().expose_provenance() as u64, command.len());
    std::hint::black_box(answer);
}

/// EX_QUERY_DEVICE, with no answer asked for.
fn query_device(fd: i32) {
    let head = WriteHeader { command: write::EX_QUERY_DEVICE, in_words: 1, out_words: 0 };
    let command = [head.as_bytes(), ExtendedHeader::default().as_bytes(), &[0; 8]].concat();
    written(fd, command.as_ptr().expose_provenance() as u64, command.len());
}

/// A process of its own, which makes a call.
fn child(fd: i32) {
    // SAFETY: between fork and _exit the child makes system calls alone.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::ioctl(fd, libc::Ioctl::from(RDMA_VERBS_IOCTL), 0);
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
    }
}

/// Calls whose words and addresses are wrong.
fn hostile(fd: i32) {
    for nowhere in [0x10, u64::MAX] {
        call(fd, nowhere);
    }
    let short = framed(&[], u16::MAX, u16::MAX);
    call(fd, short.as_ptr().addr() as u64);
    let astray = [
        attribute(qp::create::CAP, 0xffff, 0x10),
        attribute(qp::create::RESP_CAP, 0xffff, 0x10),
        attribute(0x7777, 0xffff, u64::MAX),
        attribute(0x1000, 0xffff, 1 << 63),
    ];
    let frame = framed(&astray, 24 + 16 * 4, 4);
    call(fd, frame.as_ptr().addr() as u64);
    // Many of them that all can be read, of which there are more bytes than anybody reads.
    let room = vec![0_u8; 1 << 16];
    let many = vec![attribute(qp::create::CAP, 0xffff, room.as_ptr().addr() as u64); 4000];
    let frame = framed(&many, 24 + 16 * 4000, 4000);
    call(fd, frame.as_ptr().addr() as u64);
    written(fd, 0x10, 1 << 32);
    let head = WriteHeader { command: write::ALLOC_PD, in_words: u16::MAX, out_words: u16::MAX };
    written(fd, (&raw const head).expose_provenance() as u64, 3);
    written(fd, (&raw const head).expose_provenance() as u64, 8);
    // SAFETY: an ordinary file knows no such ioctl.
    unsafe { libc::ioctl(fd, libc::TCGETS, 0) };
}
