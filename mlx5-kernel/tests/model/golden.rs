//! What Linux's mlx5_ib answers on the same model, held against what the in-process door answers.
//!
//! `tests/golden/linux-6.12.txt` was written by the job `mlx5-ib` of `cargo xtask vm`, which compares it too.

use pollux_mlx5_abi::kernel::context::{ContextAnswer, ContextRequest, context_flag, library};
use pollux_mlx5_abi::kernel::device::DeviceAnswer;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::DeviceConfig;
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::trace::survey;
use zerocopy::IntoBytes;

use super::bench::Bench;

const LINUX: &str = include_str!("../golden/linux-6.12.txt");

#[test]
fn the_door_answers_as_linux_does() {
    let config = DeviceConfig { mac: [0x0c, 0x42, 0xa1, 0, 0, 1], ..DeviceConfig::default() };
    let bench = Bench::with(DoorProfile::default(), config);
    let request = ContextRequest {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        flags: context_flag::DEVX,
        max_cqe_version: 1,
        lib_caps: library::UAR_4K | library::DYN_UAR,
        ..ContextRequest::default()
    };
    let sizes = (size_of::<ContextAnswer>(), size_of::<DeviceAnswer>());
    let said =
        survey(bench.kernel().open(), driver::MLX5, request.as_bytes(), sizes.0, sizes.1).expect("answers");
    // How many interrupt vectors there are follows from the machine's processors: two in the guest.
    let said = said.replace("-> ok 0x0000=10000000 0x0001", "-> ok 0x0000=02000000 0x0001");
    let pairs = said.lines().zip(LINUX.lines());
    let differences: Vec<String> = pairs.filter_map(|(ours, theirs)| difference(ours, theirs)).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(said.lines().count(), LINUX.lines().count());
    bench.close();
}

/// The words of a line that differ, ours and Linux's, and at which byte.
fn difference(ours: &str, theirs: &str) -> Option<String> {
    let words = ours.split(' ').zip(theirs.split(' ')).filter(|(ours, theirs)| ours != theirs);
    let words: Vec<String> = words
        .map(|(ours, theirs)| {
            let name = theirs.find('=').map_or(0, |at| at + 1);
            let at = ours.bytes().zip(theirs.bytes()).position(|(ours, theirs)| ours != theirs);
            format!("{}: {ours}\n  Linux: {theirs}", (at.unwrap_or(0).saturating_sub(name)) / 2)
        })
        .collect();
    (ours != theirs).then(|| format!("{}\n{}", &theirs[..theirs.len().min(30)], words.join("\n")))
}
