//! What the processor and the kernel say of the time stamp counter: is it steady, and how fast.

use std::path::Path;

/// How the frequency became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// CPUID leaf 0x15: the processor tells crystal and ratio.
    Cpuid,
    /// CPUID leaf 0x4000_0010: the hypervisor tells.
    Hypervisor,
    /// Compared with `CLOCK_MONOTONIC_RAW` for a moment; [`refined`](super::Clock::refined) makes it better.
    Calibrated,
    /// The counter is not steady, or there is none: time is `CLOCK_MONOTONIC` in nanoseconds.
    Monotonic,
}

/// Whether the counter runs at one pace in every power state and on every processor.
///
/// Two witnesses: CPUID leaf 0x8000_0007 EDX bit 8 (Intel SDM volume 3, "Invariant TSC"; AMD APM volume 3), and the kernel,
/// which takes `tsc` from its list of clock sources when it finds the processors apart. `root` is where `sys` is found.
pub(super) fn tsc_is_steady(root: &Path) -> bool {
    if !cpuid_says_invariant() {
        return false;
    }
    let list = root.join("sys/devices/system/clocksource/clocksource0/available_clocksource");
    match std::fs::read_to_string(list) {
        Ok(list) => kernel_lists_tsc(&list),
        // No sysfs here (a bare container): the processor's word stands.
        Err(_) => true,
    }
}

pub(super) fn kernel_lists_tsc(list: &str) -> bool {
    list.split_whitespace().any(|source| source == "tsc")
}

/// The four registers of a CPUID leaf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaf {
    pub(super) eax: u32,
    pub(super) ebx: u32,
    pub(super) ecx: u32,
}

/// The counter's frequency in Hz, as the processor or the hypervisor tells it; `leaf` reads a CPUID leaf that exists.
pub(super) fn told_hz(leaf: impl Fn(u32) -> Option<Leaf>) -> Option<(u64, Source)> {
    // Intel SDM volume 2, CPUID leaf 0x15: TSC = crystal (ECX, Hz) * EBX / EAX; any of them may be 0, "not told".
    if let Some(Leaf { eax, ebx, ecx }) = leaf(0x15)
        && eax != 0
        && ebx != 0
        && ecx != 0
    {
        return Some((u64::from(ecx) * u64::from(ebx) / u64::from(eax), Source::Cpuid));
    }
    // Leaf 0x16 (base frequency in whole MHz) is not used: it is the number on the box, off by up to a percent.
    //
    // VMware's timing leaf, which KVM can show too (Linux `arch/x86/kernel/cpu/vmware.c`): EAX is the frequency in kHz.
    let hypervisor_leaves = leaf(0x4000_0000).map_or(0, |first| first.eax);
    if (0x4000_0010..0x4001_0000).contains(&hypervisor_leaves)
        && let Some(Leaf { eax: khz, .. }) = leaf(0x4000_0010)
        && khz != 0
    {
        return Some((u64::from(khz) * 1000, Source::Hypervisor));
    }
    None
}

#[cfg(target_arch = "x86_64")]
fn cpuid_says_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0
}

/// Reads a CPUID leaf, `None` where the processor has no such leaf.
#[cfg(target_arch = "x86_64")]
pub(super) fn cpuid(leaf: u32) -> Option<Leaf> {
    use std::arch::x86_64::__cpuid;
    let exists = match leaf {
        // CPUID leaf 1 ECX bit 31: a hypervisor is present; only then are these leaves defined.
        0x4000_0000..0x4001_0000 => __cpuid(1).ecx & 1 << 31 != 0,
        _ => leaf <= __cpuid(0).eax,
    };
    exists.then(|| {
        let answer = __cpuid(leaf);
        Leaf { eax: answer.eax, ebx: answer.ebx, ecx: answer.ecx }
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn cpuid_says_invariant() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn cpuid(_leaf: u32) -> Option<Leaf> {
    None
}
