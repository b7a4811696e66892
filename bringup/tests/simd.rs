//! `--force-max-simd-bitwidth` bounds what queues, pools and sums choose. One test: the limit is the process's.

use pollux_bringup::{Bringup, PortRequest};
use pollux_config::CommandLine;
use pollux_eal::simd::SimdWidth;
use pollux_mempool::Burst;
use pollux_port::PortId;

/// How a port of the device model receives, with that limit.
fn receives(bits: &str) -> &'static str {
    let vdev = "mlx5_model0,wire=source:64,rxq_cqe_comp_en=0";
    let line = ["test", "-l", "0", "--force-max-simd-bitwidth", bits, "--vdev", vdev];
    let mut bringup = Bringup::new(&CommandLine::parse(line).expect("a command line")).expect("it comes up");
    let (mut queues, _pool) =
        bringup.start_ports(&[PortId(0)], &PortRequest::default()).expect("the port starts");
    let (mut burst, end) = (Burst::new(), std::time::Instant::now() + std::time::Duration::from_secs(10));
    while queues[0].rx[0].rx_burst(&mut burst, 32) == 0 {
        assert!(std::time::Instant::now() < end, "nothing comes");
        std::thread::yield_now();
    }
    queues[0].rx[0].burst_mode()
}

#[test]
fn the_limit_bounds_the_choice() {
    let usual = receives("0");
    for bits in [0, 64, 128, 256, 512] {
        let mode = receives(&bits.to_string());
        let width = SimdWidth::detect().capped(bits);
        assert_eq!(SimdWidth::usable(), width);
        match width {
            SimdWidth::Scalar => assert!(!mode.contains("sse") && !mode.contains("avx"), "{bits}: {mode}"),
            SimdWidth::Bits128 => assert!(mode.contains("sse"), "{bits}: {mode}"),
            _ => assert_eq!(mode, usual, "{bits}"),
        }
        for vectors in [128, 256, 512] {
            let allowed = bits == 0 || vectors <= bits;
            assert_eq!(pollux_wire::simd::allows(vectors), allowed, "{bits} {vectors}");
            assert_eq!(pollux_eal::simd::allows(vectors), allowed, "{bits} {vectors}");
        }
    }
}
