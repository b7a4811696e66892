//! The modes of each side, and the program that takes a trial of one.

use std::fmt;
use std::process::Command;

use super::{Part, timed};
use crate::bench::peer::{Root, native};
use crate::run::release_dir;

/// A mode of ours: a figure of one of our programs.
pub(super) struct Ours {
    program: &'static str,
    figure: &'static str,
}

impl Ours {
    const fn packets(figure: &'static str) -> Self {
        Self { program: "mlx5_rxtx32", figure }
    }

    pub(super) const fn verbs(figure: &'static str) -> Self {
        Self { program: "verbs_post", figure }
    }

    pub(super) fn command(&self, part: Part) -> Command {
        let mut command = Command::new(release_dir().join(self.program));
        if part == Part::Start {
            return timed(command);
        }
        command.args(["--beside", self.figure]);
        command
    }
}

impl fmt::Display for Ours {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.figure)
    }
}

/// What DPDK was built for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Built {
    /// Every x86-64: Debian's package.
    ForAll,
    /// This processor.
    Native,
}

/// A mode of a peer.
pub(super) enum Theirs {
    /// DPDK's driver, by its device arguments and the offloads of `benches/peer/mlx5.c`.
    Dpdk { arguments: &'static str, words: &'static [&'static str] },
    /// libmlx5, by the words of `benches/peer/rdma.c`, the last apart; without locks where a program has one thread.
    Rdma { words: &'static [&'static str], calls: &'static str, locks: bool },
}

impl Theirs {
    pub(super) fn command(&self, root: &Root, built: Built, part: Part) -> Command {
        let mut args = vec!["--stepped"];
        match self {
            Self::Dpdk { arguments, words } => {
                args.extend([
                    "--wire",
                    "cable:bench",
                    "--",
                    match built {
                        Built::ForAll => "/pollux/mlx5",
                        Built::Native => native::PROGRAM,
                    },
                    "-l",
                    "0",
                    "--no-huge",
                    "-m",
                    "128",
                ]);
                args.extend(["--in-memory", "--no-telemetry", "--log-level=*:error", "-a", arguments, "--"]);
                args.extend(*words);
                let command = root.command("/pollux/mlx5-run", &args);
                if part == Part::Start { timed_inside(root, &args) } else { command }
            }
            Self::Rdma { words, calls, locks } => {
                args.extend([
                    "--ports",
                    "2",
                    "--wire",
                    "cable:bench",
                    "--wire",
                    "cable:bench",
                    "--",
                    "/pollux/rdma",
                ]);
                args.extend(*words);
                args.push(calls);
                let mut command = root.command("/pollux/mlx5-run", &args);
                // Source: rdma-core `providers/mlx5/mlx5.c`, `single_threaded_app`.
                command.env("MLX5_SINGLE_THREADED", if *locks { "0" } else { "1" });
                command
            }
        }
    }
}

/// The clock is read when the program itself begins: what root, namespace and launcher take is not the driver's.
fn timed_inside(root: &Root, args: &[&str]) -> Command {
    let split = args.iter().position(|arg| *arg == "--").map_or(0, |at| at + 1);
    let (launcher, program) = args.split_at(split);
    let read = "FIRST_PACKET_FROM=$(date +%s%N) exec \"$@\"";
    let args = [launcher, &["/bin/sh", "-c", read, "sh"], program].concat();
    root.command("/pollux/mlx5-run", &args)
}

impl fmt::Display for Theirs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dpdk { arguments, words } => write!(out, "{arguments} {}", words.join(" ")),
            Self::Rdma { words, calls, locks } => {
                write!(out, "{} {calls}{}", words.join(" "), if *locks { "" } else { ", without locks" })
            }
        }
    }
}

const fn dpdk(arguments: &'static str, words: &'static [&'static str]) -> Theirs {
    Theirs::Dpdk { arguments, words }
}

/// All ways to make the same requests.
const fn ways(words: &'static [&'static str]) -> [Theirs; 4] {
    [
        Theirs::Rdma { words, calls: "post", locks: true },
        Theirs::Rdma { words, calls: "post", locks: false },
        Theirs::Rdma { words, calls: "wr", locks: true },
        Theirs::Rdma { words, calls: "wr", locks: false },
    ]
}

const FREE: &[&str] = &["fast-free"];

/// Receive and send, nothing else asked for.
pub(super) const OURS: &[Ours] = &[
    Ours::packets("mlx5_rxtx32"),
    Ours::packets("mlx5_compressed_fast"),
    Ours::packets("mlx5_empw"),
    Ours::packets("mlx5_empw_inline"),
    Ours::packets("mlx5_scalar"),
    Ours::packets("mlx5_plain"),
];

/// Source: DPDK `doc/guides/nics/mlx5.rst`, device arguments.
pub(super) const DPDK: &[Theirs] = &[
    dpdk("0000:c1:00.0", FREE),
    dpdk("0000:c1:00.0", &[]),
    dpdk("0000:c1:00.0,rxq_cqe_comp_en=0", FREE),
    dpdk("0000:c1:00.0,dv_flow_en=0", FREE),
    dpdk("0000:c1:00.0,dv_flow_en=0,rxq_cqe_comp_en=0", FREE),
    dpdk("0000:c1:00.0,rx_vec_en=0", FREE),
    dpdk("0000:c1:00.0,txq_mpw_en=0", FREE),
    dpdk("0000:c1:00.0,txq_inline_max=0,txq_inline_mpw=0", FREE),
    dpdk("0000:c1:00.0,rxq_cqe_comp_en=0,txq_inline_max=0,txq_inline_mpw=0", FREE),
    dpdk("0000:c1:00.0,txqs_min_inline=1,txq_inline_max=128,txq_inline_mpw=128", FREE),
    dpdk("0000:c1:00.0,mprq_en=1,rxqs_min_mprq=1", &[]),
    dpdk("0000:c1:00.0,mprq_en=1,rxqs_min_mprq=1,rxq_cqe_comp_en=0", &[]),
];

pub(super) const OURS_OFFLOADS: &[Ours] = &[Ours::packets("mlx5_offloads")];

const OFFLOADS: &[&str] = &["rx-checks", "strip", "tx-checks", "insert", "fast-free"];

pub(super) const DPDK_OFFLOADS: &[Theirs] = &[
    dpdk("0000:c1:00.0", OFFLOADS),
    dpdk("0000:c1:00.0,rxq_cqe_comp_en=0", OFFLOADS),
    dpdk("0000:c1:00.0,dv_flow_en=0", OFFLOADS),
    dpdk("0000:c1:00.0,txq_mpw_en=0", OFFLOADS),
    dpdk("0000:c1:00.0,txq_inline_max=0,txq_inline_mpw=0", OFFLOADS),
];

/// Striding receive queues, packets copied: without compressed completions on both sides.
pub(super) const OURS_STRIDING: &[Ours] = &[Ours::packets("mlx5_striding_copied")];

pub(super) const DPDK_STRIDING: &[Theirs] =
    &[dpdk("0000:c1:00.0,mprq_en=1,rxqs_min_mprq=1,rxq_cqe_comp_en=0", &[])];

/// Compressed completions by the hash.
pub(super) const OURS_COMPRESSED: &[Ours] = &[Ours::packets("mlx5_compressed_fast")];

pub(super) const DPDK_COMPRESSED: &[Theirs] = &[dpdk("0000:c1:00.0,rxq_cqe_comp_en=1", FREE)];

pub(super) const OURS_START: &[Ours] = &[Ours { program: "mlx5_start", figure: "" }];

pub(super) const DPDK_START: &[Theirs] =
    &[dpdk("0000:c1:00.0", FREE), dpdk("0000:c1:00.0,dv_flow_en=0", FREE)];

/// Messages of 64 bytes: with one doorbell for 32 of them, and one for each.
pub(super) const SEND: [Theirs; 4] = ways(&["send", "32", "32", "32"]);
pub(super) const SEND_SINGLE: [Theirs; 4] = ways(&["send", "1", "32", "32"]);

pub(super) const WRITE: [Theirs; 4] = ways(&["write", "32", "32", "32"]);
pub(super) const WRITE_SINGLE: [Theirs; 4] = ways(&["write", "1", "32", "32"]);

pub(super) const OUR_WRITE_SINGLE: &[Ours] =
    &[Ours::verbs("verbs_write8_single"), Ours::verbs("verbs_write8_blueflame")];

/// Of 32 completions: all by one call, and each by a call.
pub(super) const POLL: [Theirs; 4] = ways(&["send", "32", "1", "32"]);
pub(super) const POLL_SINGLE: [Theirs; 4] = ways(&["send", "32", "1", "1"]);
