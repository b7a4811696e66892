use proptest::prelude::*;

use super::source::{Leaf, kernel_lists_tsc, told_hz};
use super::*;

fn clock(hz: u64) -> Clock {
    Clock::new(hz, Source::Cpuid, Sample { cycles: 0, raw_ns: 0 })
}

proptest! {
    /// Against exact division, for every frequency that a clock may have and for up to a day.
    #[test]
    fn conversions_are_exact_to_a_tick_a_day(
        hz in prop_oneof![Just(HZ_MIN), Just(HZ_MAX), Just(1_000_000_000), HZ_MIN..=HZ_MAX],
        seconds in 0.0..86_400.0,
    ) {
        let clock = clock(hz);
        let cycles = (hz as f64 * seconds) as u64;
        let exact = (u128::from(cycles) * 1_000_000_000 / u128::from(hz)) as u64;
        prop_assert!(clock.nanos(cycles).0.abs_diff(exact) <= 1);
        let nanos = (seconds * 1e9) as u64;
        let exact = (u128::from(nanos) * u128::from(hz) / 1_000_000_000) as u64;
        prop_assert!(clock.cycles(nanos).0.abs_diff(exact) <= 1);
    }
}

#[test]
fn what_the_processor_tells_is_believed_only_if_it_is_complete() {
    let leaves = |answers: &'static [(u32, Leaf)]| {
        told_hz(move |leaf| answers.iter().find(|(number, _)| *number == leaf).map(|(_, answer)| *answer))
    };
    // A crystal of 25 MHz times 184 / 2: Intel SDM's way to 2.3 GHz.
    const CRYSTAL: (u32, Leaf) = (0x15, Leaf { eax: 2, ebx: 184, ecx: 25_000_000 });
    const NO_CRYSTAL: (u32, Leaf) = (0x15, Leaf { eax: 2, ebx: 184, ecx: 0 });
    const NO_RATIO: (u32, Leaf) = (0x15, Leaf { eax: 0, ebx: 0, ecx: 25_000_000 });
    const LEAVES: (u32, Leaf) = (0x4000_0000, Leaf { eax: 0x4000_0010, ebx: 0, ecx: 0 });
    const FEW_LEAVES: (u32, Leaf) = (0x4000_0000, Leaf { eax: 0x4000_0001, ebx: 0, ecx: 0 });
    const TIMING: (u32, Leaf) = (0x4000_0010, Leaf { eax: 2_899_999, ebx: 0, ecx: 0 });
    const NO_TIMING: (u32, Leaf) = (0x4000_0010, Leaf { eax: 0, ebx: 0, ecx: 0 });
    assert_eq!(leaves(&[CRYSTAL, LEAVES, TIMING]), Some((2_300_000_000, Source::Cpuid)));
    assert_eq!(leaves(&[NO_CRYSTAL, LEAVES, TIMING]), Some((2_899_999_000, Source::Hypervisor)));
    assert_eq!(leaves(&[NO_RATIO, LEAVES, TIMING]), Some((2_899_999_000, Source::Hypervisor)));
    assert_eq!(leaves(&[NO_CRYSTAL, FEW_LEAVES, TIMING]), None, "that leaf is not the hypervisor's");
    assert_eq!(leaves(&[LEAVES, NO_TIMING]), None);
    assert_eq!(leaves(&[]), None);
}

#[test]
fn a_counter_that_the_kernel_dropped_is_no_clock() {
    assert!(kernel_lists_tsc("tsc kvm-clock \n"));
    assert!(!kernel_lists_tsc("hpet acpi_pm \n"));
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join("sys/devices/system/clocksource/clocksource0");
    std::fs::create_dir_all(&directory).expect("directories");
    std::fs::write(directory.join("available_clocksource"), "hpet acpi_pm \n").expect("a file");
    let clock = Calibration::begin_under(root.path()).finish();
    assert_eq!((clock.source(), clock.hz()), (Source::Monotonic, 1_000_000_000));
    let start = clock.now();
    clock.delay_us(50);
    assert!(clock.nanos(clock.now() - start) >= Nanos(50_000));
    assert_eq!(clock.refined().hz(), 1_000_000_000);
    assert!(clock.elapsed() >= Nanos(50_000));
}

#[test]
fn the_pace_is_that_of_the_kernel() {
    // Measured, whatever this machine tells: both ways have to agree with the kernel.
    let measured = Calibration { start: Sample::take(), told: None }.finish();
    for clock in [Clock::get(), measured] {
        let start = Sample::take();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let end = Sample::take();
        let kernel = end.raw_ns - start.raw_ns;
        let ours = match clock.source() {
            Source::Monotonic => continue,
            _ => clock.nanos(end.cycles - start.cycles).0,
        };
        // A part in a thousand bears a noisy machine; calibration itself is good to some millionths.
        assert!(ours.abs_diff(kernel) < kernel / 1000, "{clock:?}: {ours} ns, the kernel says {kernel}");
        let refined = clock.refined();
        assert!(refined.hz().abs_diff(clock.hz()) < clock.hz() / 1000, "{clock:?} became {refined:?}");
    }
}

#[test]
fn a_counter_out_of_bounds_is_no_clock() {
    let start = Sample { cycles: 0, raw_ns: 0 };
    assert_eq!(start.hz_until(Sample { cycles: 0, raw_ns: 0 }), None, "no time has passed");
    assert_eq!(start.hz_until(Sample { cycles: 0, raw_ns: 1000 }), None, "it stands still");
    assert_eq!(start.hz_until(Sample { cycles: u64::MAX, raw_ns: 1000 }), None, "it ran backwards");
    assert_eq!(start.hz_until(Sample { cycles: 2300, raw_ns: 1000 }), Some(2_300_000_000));
}

#[test]
fn a_delay_is_never_short() {
    let clock = Clock::get();
    for nanos in [0, 1, 700, 20_000] {
        let start = cycles::monotonic_raw_ns();
        clock.delay(Nanos(nanos));
        let waited = cycles::monotonic_raw_ns() - start;
        // A told frequency may differ from the kernel's by a millionth or two.
        assert!(waited + 1 >= nanos, "{waited} of {nanos} ns");
    }
}

#[test]
fn time_does_not_run_backwards() {
    let mut last = cycles::now_precise();
    for _ in 0..10_000 {
        let now = cycles::now_precise();
        assert!(now >= last);
        last = now;
    }
}

#[test]
fn differences_wrap() {
    assert_eq!(Cycles(5) - Cycles(u64::MAX), Cycles(6));
    assert_eq!(Nanos::from(std::time::Duration::MAX), Nanos(u64::MAX));
    assert_eq!(std::time::Duration::from(Nanos(1_500)), std::time::Duration::from_nanos(1_500));
}
