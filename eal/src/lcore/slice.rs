//! How long the kernel lets a thread run before another may.
//!
//! Where lcores and control threads share processors, a control thread that wakes waits until those before it have had
//! their slices, 3 ms each and more. With a slice of its own that is shorter it is due earlier, and takes its turn from a
//! thread that polls. Its share of the processor stays what it was.
//!
//! Source: Linux `kernel/sched/syscalls.c` (`sched_setattr`, `sched_runtime` of `SCHED_OTHER`; since 6.12, before that
//! ignored), `include/uapi/linux/sched/types.h` (`struct sched_attr`).
#![expect(unsafe_code, reason = "sched_getattr and sched_setattr take untyped pointers")]

/// The shortest slice that the kernel gives.
const SHORT_NS: u64 = 100_000;

/// `struct sched_attr` as far as `SCHED_ATTR_SIZE_VER0`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const _: () = assert!(size_of::<Attributes>() == 48);

/// For a thread that sleeps most of the time and is to wake promptly. A thread made by it inherits that.
pub(crate) fn short() {
    set(SHORT_NS);
}

/// For a thread that polls: what the kernel gives by itself.
pub(crate) fn usual() {
    set(0);
}

/// A kernel that refuses leaves things as they are, which is no worse than before.
fn set(runtime_ns: u64) {
    if let Some(now) = get()
        && now.policy == libc::SCHED_OTHER.cast_unsigned()
    {
        let wanted = Attributes { runtime_ns, ..now };
        // SAFETY: the kernel reads `size` bytes of `wanted`, which is that long.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    }
}

fn get() -> Option<Attributes> {
    let mut now = Attributes::default();
    let bytes = size_of::<Attributes>();
    // SAFETY: the kernel writes at most `bytes` bytes to `now`, which is that long; any bytes are integers.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, bytes, 0) };
    (answer == 0).then_some(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_set_and_taken_back_and_nothing_else_changes() {
        std::thread::spawn(|| {
            let before = get().expect("a thread can look at itself");
            short();
            let now = get().expect("as before");
            assert_eq!((now.policy, now.nice), (before.policy, before.nice));
            // Kernels before 6.12 tell 0, whatever was asked for.
            assert!(now.runtime_ns == SHORT_NS || now.runtime_ns == before.runtime_ns, "{now:?}");
            usual();
            assert_eq!(get().expect("as before").runtime_ns, before.runtime_ns);
        })
        .join()
        .expect("the thread ends well");
    }
}
