//! Options that do not go together, or that some tests have and others have not.

use pollux_verbs::Mtu;

use super::{Kind, Test, Verb, program};
use crate::perftest::options::{Connection, Options, Output, RateLimitType, RateUnit};
use crate::perftest::refusal::Refusal::{self, Conflict, Requires, Unsupported};

/// Refuses options of one of the tests, the first that is wrong.
pub(super) fn refuse(test: Test, options: &Options) -> Result<(), String> {
    let Test { verb, kind } = test;
    let connection = options.connection;
    let name = program(test, connection);
    let (bandwidth, latency) = (kind == Kind::Bandwidth, kind == Kind::Latency);
    let under_load = kind == Kind::LatencyUnderLoad;
    let one_sided = verb != Verb::Send;
    let paced = options.rate_limit_type == RateLimitType::Pacing;
    let without_receives = one_sided && !options.write_with_imm;
    const RECEIVES: &str = "only send tests and --write_with_imm post receives";
    let wrong = [
        (
            options.all && verb == Verb::Atomic,
            Unsupported("-a", "the size of an atomic operation is 8 bytes"),
        ),
        (
            options.size.is_some_and(|size| size != 8) && verb == Verb::Atomic,
            Unsupported("-s", "the size of an atomic operation is 8 bytes"),
        ),
        (
            options.all && options.size.is_some(),
            Conflict("-a", "-s", "-a runs all sizes; give only one of them"),
        ),
        (
            options.iters.is_some() && (options.seconds.is_some() || options.run_infinitely),
            Conflict("-n", "-D or --run_infinitely", "give only one of them"),
        ),
        (options.margin.is_some() && options.seconds.is_none(), Requires("-f", "-D")),
        (options.out_json_file.is_some() && !options.out_json, Requires("--out_json_file", "--out_json")),
        (
            options.rate_units.is_some() && options.rate_limit.is_none(),
            Requires("--rate_units", "--rate_limit"),
        ),
        (
            bandwidth && options.output == Some(Output::Latency),
            Unsupported("--output latency", "use bandwidth or message_rate"),
        ),
        (
            !bandwidth && matches!(options.output, Some(Output::Bandwidth | Output::MessageRate)),
            Unsupported("--output bandwidth or message_rate", "use latency"),
        ),
        (
            options.atomic_type.is_some() && verb != Verb::Atomic,
            Unsupported("-A", "only atomic tests support it"),
        ),
        (
            options.inline.is_some_and(|bytes| bytes > 0) && matches!(verb, Verb::Read | Verb::Atomic),
            Unsupported("-I", "reads and atomics carry no inline data"),
        ),
        (
            options.outs.is_some() && !matches!(verb, Verb::Read | Verb::Atomic),
            Unsupported("-o", "only read and atomic tests support it"),
        ),
        (
            options.write_with_imm && verb != Verb::Write,
            Unsupported("--write_with_imm", "only write_bw and write_lat support it"),
        ),
        (
            options.send_with_imm && (one_sided || connection == Connection::RawEth),
            Unsupported("--send_with_imm", "only send_bw and send_lat support it"),
        ),
        (
            options.write_with_imm && options.data_validation,
            Conflict("--write_with_imm", "--data_validation", "give only one of them"),
        ),
        (options.use_srq && without_receives, Unsupported("--use-srq", RECEIVES)),
        (options.rx_depth.is_some() && without_receives, Unsupported("-r", RECEIVES)),
        (
            connection == Connection::Ud && one_sided,
            Unsupported("-c UD", "UD supports only sends; use RC, or UC for writes"),
        ),
        (
            connection == Connection::Uc && matches!(verb, Verb::Read | Verb::Atomic),
            Unsupported("-c UC", "reads and atomics require RC or XRC"),
        ),
        (
            (options.rdma_cm || options.comm_rdma_cm) && connection == Connection::RawEth,
            Unsupported("-R or -z", "frames have no connection"),
        ),
        (
            options.rdma_cm && connection == Connection::Uc,
            Conflict("-R", "-c UC", "RDMA CM connects RC and UD QPs; use one of them"),
        ),
        (
            options.rdma_cm && connection == Connection::Xrc,
            Conflict("-R", "-c XRC", "RDMA CM connects RC and UD QPs; use one of them"),
        ),
        (options.rdma_cm && options.mcg, Conflict("-R", "-g", "a multicast group has no connection; use -z")),
        (
            options.rdma_cm && options.mtu.is_some() && connection == Connection::Rc,
            Conflict("-R", "-m", "RDMA CM chooses the MTU"),
        ),
        (
            options.rdma_cm && (options.gid_index.is_some() || options.ipv6),
            Conflict("-R", "-x or --ipv6", "the address chooses the GID"),
        ),
        (
            options.rdma_cm && (options.sl > 0 || options.tclass > 0 || !options.flow_label.is_empty()),
            Conflict(
                "-R",
                "-S, --tclass or --flow_label",
                "RDMA CM chooses the path; -T sets the type of service",
            ),
        ),
        (options.retry_count != 7 && !options.rdma_cm, Requires("--retry_count", "-R")),
        (
            options.mcg && (one_sided || connection == Connection::RawEth),
            Unsupported("-g", "only send tests support it"),
        ),
        (
            options.mcg && (options.bidirectional || options.reversed),
            Conflict("-g", "-b or --reversed", "multicast is one-way"),
        ),
        (options.mcg && options.qp > 1, Conflict("-g", "-q", "multicast uses one QP at each end")),
        (options.mgid.is_some() && !options.mcg, Requires("-M", "-g")),
        (
            options.perform_warm_up && (!bandwidth || !without_receives),
            Unsupported(
                "--perform_warm_up",
                "only write_bw, read_bw and atomic_bw support it, without --write_with_imm",
            ),
        ),
        (
            options.perform_warm_up && (options.data_validation || options.run_infinitely),
            Conflict("--perform_warm_up", "--data_validation or --run_infinitely", "give only one of them"),
        ),
        (
            options.tos.is_some() && !options.rdma_cm && connection != Connection::RawEth,
            Requires("-T", "-R; without, --tclass sets the traffic class"),
        ),
        (
            options.hop_limit.is_some() && connection != Connection::RawEth,
            Unsupported("-L", "only raw Ethernet tests support it"),
        ),
        (
            options.data_validation && (latency || !matches!(verb, Verb::Write | Verb::Read)),
            Unsupported("--data_validation", "only write_bw and read_bw support it"),
        ),
        (options.data_validation && connection != Connection::Rc, Requires("--data_validation", "-c RC")),
        (
            options.data_validation && (options.all || options.bidirectional || options.post_list > 1),
            Conflict(
                "--data_validation",
                "-a, -b or -l",
                "validation supports one size, one direction and -l 1",
            ),
        ),
        (
            options.data_validation && (options.seconds.is_some() || options.run_infinitely),
            Conflict("--data_validation", "-D", "validation runs a fixed number of iterations, -n"),
        ),
        (options.bidirectional && !bandwidth, Unsupported("-b", "only bandwidth tests support it")),
        (options.reversed && !bandwidth, Unsupported("--reversed", "only bandwidth tests support it")),
        (
            options.run_infinitely && !bandwidth,
            Unsupported("--run_infinitely", "only bandwidth tests support it"),
        ),
        (
            options.run_infinitely && options.bidirectional && !without_receives,
            Conflict("--run_infinitely", "-b", "only tests without receives support it"),
        ),
        (options.qp > 1 && !bandwidth, Unsupported("-q", "latency tests use one QP")),
        (
            options.dualport && (!bandwidth || connection == Connection::RawEth),
            Unsupported("-O", "only bandwidth tests use two ports, and Ethernet only port 1"),
        ),
        (options.dualport && options.mcg, Conflict("-O", "-g", "a multicast group is joined at one port")),
        (options.dualport && options.rdma_cm, Conflict("-O", "-R", "RDMA CM connects by one address")),
        (options.dualport && options.ib_port != 1, Conflict("-O", "-i", "it uses ports 1 and 2")),
        (
            options.report_per_port && options.run_infinitely,
            Conflict("--report-per-port", "--run_infinitely", "it tells of one period, -D"),
        ),
        (
            options.report_per_port && (!options.dualport || options.seconds.is_none()),
            Requires("--report-per-port", "-O and -D"),
        ),
        (options.post_list > 1 && latency, Unsupported("-l", "only bandwidth tests support it")),
        (
            options.recv_post_list > 1 && latency,
            Unsupported("--recv_post_list", "only bandwidth tests support it"),
        ),
        (
            options.rate_limit.is_some() && latency,
            Unsupported("--rate_limit", "only bandwidth tests support it"),
        ),
        (options.report_histogram && bandwidth, Unsupported("-H", "only latency tests support it")),
        (options.report_unsorted && bandwidth, Unsupported("-U", "only latency tests support it")),
        (options.report_cycles && bandwidth, Unsupported("-C", "only latency tests support it")),
        (
            options.latency_gap.is_some() && bandwidth,
            Unsupported("--latency_gap", "only latency tests support it"),
        ),
        (
            options.latency_gap.is_some() && under_load,
            Unsupported("--latency_gap", "--rate_limit and --burst_size say when frames are sent"),
        ),
        (
            options.all && options.seconds.is_some(),
            Conflict("-a", "-D", "-a runs a fixed number of iterations, -n"),
        ),
        (
            options.events && verb == Verb::Write && latency && without_receives,
            Unsupported(
                "-e",
                "write_lat polls memory and has no completion events, but with --write_with_imm",
            ),
        ),
        (
            options.events && (options.seconds.is_some() || options.run_infinitely),
            Conflict("-e", "-D", "completion events are not supported with a duration"),
        ),
        (
            options.rate_limit_type == RateLimitType::Hardware,
            Unsupported("--rate_limit_type HW", "Ethernet ports do not limit service levels; leave it out"),
        ),
        (
            paced && connection != Connection::RawEth,
            Unsupported("--rate_limit_type PP", "the device limits only raw packet QPs; leave it out"),
        ),
        (paced && options.rate_limit.is_none(), Requires("--rate_limit_type PP", "--rate_limit")),
        (
            paced && options.rate_units != Some(RateUnit::Megabytes),
            Requires("--rate_limit_type PP", "--rate_units M"),
        ),
        (
            paced && options.burst_size.is_some() && !under_load,
            Conflict("--rate_limit_type PP", "--burst_size", "the device sends at an even rate"),
        ),
        (
            options.typical_pkt_size.is_some(),
            Unsupported("--typical_pkt_size", "no rate limit of the device depends on it"),
        ),
        (
            options.burst_size.is_some() && options.rate_limit.is_none() && !under_load,
            Requires("--burst_size", "--rate_limit"),
        ),
        (options.reply_every > 1 && !under_load, Unsupported("--reply_every", "every message is answered")),
        (options.seconds.is_some() && under_load, Unsupported("-D", "it sends a fixed number of frames, -n")),
        (options.events && under_load, Unsupported("-e", "it polls, so that no wake-up is measured")),
        (
            options.cpu_util && under_load,
            Unsupported("--cpu_util", "it is measured over a --duration, which this test has not"),
        ),
        (
            (options.limit_bw.is_some() || options.limit_msgrate.is_some()) && !bandwidth,
            Unsupported("-w or -y", "only bandwidth tests support it"),
        ),
        (options.cpu_util && options.seconds.is_none(), Requires("--cpu_util", "--duration")),
        (options.report_both && !options.bidirectional, Requires("--report-both", "-b")),
        (options.bidirectional && options.reversed, Conflict("-b", "--reversed", "give only one of them")),
        (
            options.pin_cores.is_some() && options.numa_node.is_some(),
            Conflict("--pin_cores", "--numa_node", "give only one of them"),
        ),
    ];
    Refusal::first(name, wrong)?;
    if let Some((option, why)) = options.absent.given() {
        return Err(format!("--{option} is not supported by {name}: {why}"));
    }
    if let Some(mtu) = options.mtu
        && connection != Connection::RawEth
        && Mtu::from_bytes(mtu).is_none()
    {
        return Err(format!("-m {mtu} is not an RDMA MTU: choose 256, 512, 1024, 2048 or 4096"));
    }
    Ok(())
}
