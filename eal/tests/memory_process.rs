//! Memory as the rest of the machine sees it: limits, children, huge pages, and what a killed process leaves.
//!
//! Each test runs its body in a process of its own, which is this program again.
#![expect(unsafe_code, reason = "forks, changes limits and mounts, which are system calls")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pollux_config::MemorySpec;
use pollux_eal::hugepage::HugePool;
use pollux_eal::memory::{Memory, MemoryOptions, PageLock};
use pollux_eal::region::{MemoryError, PAGE_BYTES, Zone};
use pollux_eal::topology::SocketId;

const MIB: usize = 1 << 20;
const HUGE: usize = 2 * MIB;
const ROLE: &str = "POLLUX_MEMORY_TEST";

/// Runs `body` in a new process; `test` is the name of the calling test.
fn in_child(test: &str, body: impl FnOnce()) {
    if std::env::var_os(ROLE).is_some() {
        return body();
    }
    let output = again(test).output().expect("this program starts again");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {}\n{text}", output.status);
}

fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.args([test, "--exact", "--nocapture"]).env(ROLE, "child").stdin(Stdio::null());
    command
}

fn is_root() -> bool {
    // SAFETY: takes nothing and touches no memory.
    unsafe { libc::geteuid() == 0 }
}

/// True, after saying so, when this is not root.
fn skipped_without_root() -> bool {
    if is_root() {
        return false;
    }
    let required = std::env::var("POLLUX_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|word| word.trim() == "root"),
        "POLLUX_REQUIRE names root, and this is not root"
    );
    // Past libtest's capture, which swallows what a passing test prints.
    let line = "skipped: needs root (POLLUX_REQUIRE=root makes this a failure)\n";
    std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
    true
}

fn no_huge() -> MemoryOptions {
    MemoryOptions { spec: MemorySpec { no_huge: true, ..MemorySpec::default() }, ..MemoryOptions::default() }
}

fn write_everywhere(zone: &mut Zone) {
    let bytes = vec![0xa5; zone.bytes()];
    zone.copy_in(0, &bytes);
    let mut back = vec![0; zone.bytes()];
    zone.copy_out(0, &mut back);
    assert_eq!(bytes, back);
}

fn set_limit(resource: libc::__rlimit_resource_t, bytes: usize) {
    let limit = libc::rlimit { rlim_cur: bytes as u64, rlim_max: bytes as u64 };
    // SAFETY: `limit` outlives the call.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0, "a limit can be lowered");
}

/// Gives up root, which is above the limit on locked memory.
fn become_nobody() {
    if is_root() {
        // SAFETY: changes the identity of this process and touches no memory.
        assert_eq!(unsafe { libc::setuid(65_534) }, 0);
    }
}

fn status_kib(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field is there");
    line.trim_start_matches(':').split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn pages_are_locked_as_far_as_the_limit_goes() {
    in_child("pages_are_locked_as_far_as_the_limit_goes", || {
        set_limit(libc::RLIMIT_MEMLOCK, 3 * MIB);
        become_nobody();
        let memory = Memory::new(no_huge()).expect("nothing to map yet");
        let mut small = memory.reserve("small", 2 * MIB, 64, None).expect("memory");
        assert!(small.region().locked());
        assert_eq!(status_kib("VmLck"), 2048);
        let mut large = memory.reserve("large", 4 * MIB, 64, None).expect("memory, though not locked");
        assert!(!large.region().locked());
        write_everywhere(&mut small);
        write_everywhere(&mut large);
    });
}

#[test]
fn locking_that_is_required_and_refused_is_an_error() {
    in_child("locking_that_is_required_and_refused_is_an_error", || {
        set_limit(libc::RLIMIT_MEMLOCK, MIB);
        become_nobody();
        let before = status_kib("VmSize");
        let memory =
            Memory::new(MemoryOptions { lock: PageLock::Required, ..no_huge() }).expect("nothing to map yet");
        let error = memory.reserve("queue", 64 * MIB, 64, None).expect_err("the limit is 1 MiB");
        assert!(matches!(error, MemoryError::Lock { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("64 MiB") && text.contains("RLIMIT_MEMLOCK is 1 MiB"), "{text}");
        assert!(text.contains("ulimit -l unlimited"), "{text}");
        assert!(memory.regions().is_empty());
        assert!(status_kib("VmSize") < before + 32 * 1024, "the refused mapping is gone");
    });
}

#[test]
fn a_mapping_that_the_kernel_refuses_is_an_error() {
    in_child("a_mapping_that_the_kernel_refuses_is_an_error", || {
        let memory = Memory::new(no_huge()).expect("nothing to map yet");
        set_limit(libc::RLIMIT_AS, status_kib("VmSize") * 1024 + 64 * MIB);
        for align in [64, 1 << 30] {
            let error = memory.reserve("table", 256 * MIB, align, None).expect_err("the limit is below");
            assert!(matches!(error, MemoryError::Map { .. }), "{error}");
            assert!(std::error::Error::source(&error).is_some());
        }
        let mut zone = memory.reserve("table", 16 * MIB, 64, None).expect("the rest still fits");
        write_everywhere(&mut zone);
    });
}

/// From now on the kernel answers `errno` to this thread's calls of `number` whose third argument is `third`, if that is
/// said. Source: seccomp(2), `include/uapi/linux/seccomp.h` (number at 0, low half of the third argument at 32).
fn deny(number: libc::c_long, third: Option<u32>, errno: i32) {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // Without a wish, both ways of the second comparison lead to the answer.
    let (want, past_answer) = third.map_or((0, 0), |third| (third, 1));
    let mut filter = [
        step(load, 0, 0, 0),
        step(equal, 0, 3, number as u32),
        step(load, 0, 0, 32),
        step(equal, 0, past_answer, want),
        step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program outlives the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

const MADV_POPULATE_WRITE: u32 = 23;

#[test]
fn pages_that_cannot_be_had_are_an_error_and_no_later_fault() {
    in_child("pages_that_cannot_be_had_are_an_error_and_no_later_fault", || {
        let memory = Memory::new(no_huge()).expect("nothing to map yet");
        // What the kernel says where a touch would be a SIGBUS.
        deny(libc::SYS_madvise, Some(MADV_POPULATE_WRITE), libc::EFAULT);
        let error = memory.reserve("ring", MIB, 64, None).expect_err("the pages are refused");
        assert!(matches!(error, MemoryError::Populate { .. }), "{error}");
        assert!(error.to_string().contains("2 MiB in pages of 4 KiB for ring: a control group"), "{error}");
        assert!(memory.regions().is_empty());
    });
}

#[test]
fn kernels_that_cannot_populate_by_advice_serve() {
    in_child("kernels_that_cannot_populate_by_advice_serve", || {
        deny(libc::SYS_madvise, Some(MADV_POPULATE_WRITE), libc::EINVAL);
        let memory = Memory::new(no_huge()).expect("nothing to map yet");
        write_everywhere(&mut memory.reserve("ring", MIB, 64, None).expect("memory"));
    });
}

#[test]
fn memory_is_had_where_binding_is_forbidden() {
    in_child("memory_is_had_where_binding_is_forbidden", || {
        deny(libc::SYS_mbind, None, libc::EPERM);
        let root = tempfile::tempdir().expect("a directory");
        for (node, cpus) in [("node0", "0-9999\n"), ("node1", "\n")] {
            let directory = root.path().join("sys/devices/system/node").join(node);
            std::fs::create_dir_all(&directory).expect("directories");
            std::fs::write(directory.join("cpulist"), cpus).expect("a file");
        }
        std::fs::write(root.path().join("sys/devices/system/node/online"), "0-1\n").expect("a file");
        let options = MemoryOptions { root: root.path().to_owned(), ..no_huge() };
        let memory = Memory::new(options).expect("nothing to map yet");
        for (name, socket) in [("near", None), ("far", Some(SocketId(1)))] {
            write_everywhere(&mut memory.reserve(name, MIB, 64, socket).expect("memory, though not bound"));
        }
    });
}

/// Whether a page is mapped, asked in a forked child, where only system calls are safe.
fn mapped_in_child(address: usize) -> bool {
    // SAFETY: the child makes two system calls, which any forked child may make, and ends.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "fork");
        if child == 0 {
            // msync(2): ENOMEM when the memory is not mapped.
            let answer = libc::msync(address as *mut _, PAGE_BYTES, libc::MS_ASYNC);
            libc::_exit(i32::from(answer != 0));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status) == 0
    }
}

#[test]
fn a_forked_child_does_not_have_the_mappings() {
    in_child("a_forked_child_does_not_have_the_mappings", || {
        let private = Memory::new(no_huge()).expect("nothing to map yet");
        let shared = Memory::new(MemoryOptions { share: true, ..no_huge() }).expect("nothing to map yet");
        let _turn = turn();
        let any = Memory::new(MemoryOptions::default()).expect("nothing to map yet");
        for memory in [private, shared, any] {
            let mut zone = memory.reserve("ring", 5 * MIB, 64, None).expect("memory");
            let page = zone.base().as_ptr().addr() & !(PAGE_BYTES - 1);
            assert!(!mapped_in_child(page));
            assert!(!mapped_in_child(page + 4 * MIB));
            // The bytes are still ours alone, and at their place.
            write_everywhere(&mut zone);
        }
        let ours = vec![1_u8; 64 * PAGE_BYTES];
        let page = ours.as_ptr().addr().next_multiple_of(PAGE_BYTES);
        assert!(mapped_in_child(page), "other memory is inherited, so the question is a fair one");
    });
}

/// Sets the pool of 2 MiB pages, and puts it back as it was. One test at a time, on the whole machine, does so.
struct Pool {
    before: usize,
    _turn: File,
}

const NR: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

fn pool() -> HugePool {
    let pools = HugePool::all("/".as_ref(), None);
    *pools.iter().find(|pool| pool.page_size == HUGE).expect("x86-64 has pages of 2 MiB")
}

/// Waits until no other test uses huge pages; none where the kernel has none.
fn turn() -> Option<File> {
    let file = File::open(NR).ok()?;
    file.lock().expect("any file can be locked");
    Some(file)
}

impl Pool {
    /// Has exactly `pages` free ones.
    fn with_free(pages: usize) -> Self {
        let turn = turn().expect("x86-64 has pages of 2 MiB");
        let held = Self { before: pool().total, _turn: turn };
        // Others on the machine may take and give back some meanwhile.
        wait_for("the pool has the pages", || {
            let now = pool();
            std::fs::write(NR, (now.total - now.free + pages).to_string()).expect("root may");
            pool().free == pages
        });
        held
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        std::fs::write(NR, self.before.to_string()).expect("root may");
    }
}

#[test]
fn huge_pages_are_used_where_there_are_any() {
    if skipped_without_root() {
        return;
    }
    let _pool = Pool::with_free(8);
    let memory = Memory::new(MemoryOptions::default()).expect("nothing to map yet");
    let mut first = memory.reserve("first", 5 * MIB, 64, None).expect("memory");
    assert_eq!(first.region().page_size(), HUGE);
    assert!(first.region().locked());
    assert!(first.base().as_ptr().addr().is_multiple_of(HUGE));
    assert_eq!(pool().free, 5, "three pages are taken, and really so");
    write_everywhere(&mut first);
    let mut aligned = memory.reserve("aligned", 3 * MIB, 16 * MIB, None).expect("memory");
    assert_eq!(aligned.region().page_size(), HUGE);
    assert!(aligned.base().as_ptr().addr().is_multiple_of(16 * MIB));
    write_everywhere(&mut aligned);

    let mut large = memory.reserve("large", 64 * MIB, 64, None).expect("ordinary pages serve");
    assert_eq!(large.region().page_size(), PAGE_BYTES);
    write_everywhere(&mut large);

    let plain = Memory::new(no_huge()).expect("nothing to map yet");
    assert_eq!(plain.reserve("plain", MIB, 64, None).expect("memory").region().page_size(), PAGE_BYTES);
    drop((memory, first, aligned, large));
    assert_eq!(pool().free, 8, "all came back");
}

#[test]
fn what_is_set_aside_is_huge_as_far_as_it_goes() {
    if skipped_without_root() {
        return;
    }
    let _pool = Pool::with_free(4);
    let spec = MemorySpec { initial_mib: Some(13), ..MemorySpec::default() };
    let memory = Memory::new(MemoryOptions { spec, ..MemoryOptions::default() }).expect("memory");
    let sizes: Vec<_> = memory.regions().iter().map(|region| (region.page_size(), region.bytes())).collect();
    assert_eq!(sizes, [(HUGE, 8 * MIB), (PAGE_BYTES, 5 * MIB)]);
    assert_eq!(pool().free, 0);
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_process_leaves_no_huge_page() {
    const TEST: &str = "a_killed_process_leaves_no_huge_page";
    if std::env::var_os(ROLE).is_some() {
        let memory = Memory::new(MemoryOptions::default()).expect("nothing to map yet");
        let mut zone = memory.reserve("held", 6 * MIB, 64, None).expect("memory");
        write_everywhere(&mut zone);
        println!("page size {}", zone.region().page_size());
        std::thread::sleep(Duration::from_secs(60));
        panic!("nobody killed this process");
    }
    if skipped_without_root() {
        return;
    }
    let _pool = Pool::with_free(4);
    let mut child = Killed(again(TEST).stdout(Stdio::piped()).spawn().expect("this program starts again"));
    let lines = BufReader::new(child.0.stdout.take().expect("a pipe")).lines();
    let told =
        lines.map(|line| line.expect("text")).find(|line| line.contains("page size")).expect("it gets there");
    assert!(told.contains(&HUGE.to_string()), "{told}");
    assert_eq!(pool().free, 1, "the child has three");
    child.0.kill().expect("it lives");
    child.0.wait().expect("it ends");
    wait_for("the pages come back", || pool().free == 4);
}

#[test]
fn a_directory_of_huge_pages_never_has_a_file() {
    const TEST: &str = "a_directory_of_huge_pages_never_has_a_file";
    if skipped_without_root() {
        return;
    }
    if std::env::var_os(ROLE).is_none() {
        let _pool = Pool::with_free(4);
        in_child(TEST, || unreachable!("this is the parent"));
        assert_eq!(pool().free, 4);
        return;
    }
    // A mount of our own, which goes away with this process.
    let directory = tempfile::tempdir().expect("a directory");
    let path = std::ffi::CString::new(directory.path().to_str().expect("text")).expect("no zero byte");
    // SAFETY: every argument is a string that ends in zero and outlives the calls.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
        let none = c"none".as_ptr();
        let (private, nothing) = (libc::MS_REC | libc::MS_PRIVATE, std::ptr::null());
        assert_eq!(libc::mount(none, c"/".as_ptr(), std::ptr::null(), private, nothing), 0);
        let options = c"pagesize=2M".as_ptr().cast();
        assert_eq!(libc::mount(none, path.as_ptr(), c"hugetlbfs".as_ptr(), 0, options), 0);
    }
    let spec = MemorySpec { huge_dir: Some(directory.path().into()), ..MemorySpec::default() };
    let memory = Memory::new(MemoryOptions { spec, ..MemoryOptions::default() }).expect("nothing to map yet");
    let mut zone = memory.reserve("held", 4 * MIB, 64, None).expect("memory");
    assert_eq!(zone.region().page_size(), HUGE);
    write_everywhere(&mut zone);
    assert_eq!(directory.path().read_dir().expect("it reads").count(), 0, "no file has a name");
    let error = memory.reserve("more", 64 * MIB, 64, None).expect_err("the directory was demanded");
    let text = error.to_string();
    assert!(text.contains("cannot allocate 64 MiB") && text.contains("pages of 2 MiB free"), "{text}");
    assert!(text.contains("nr_hugepages"), "{text}");
    drop((zone, memory));
    // SAFETY: as above.
    unsafe { assert_eq!(libc::umount(path.as_ptr()), 0) };
}
