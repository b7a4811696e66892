//! What is asked without making anything but a context: the device, its port, the firmware's capabilities.

use pollux_mlx5_abi::caps::kind;

use super::step::{Refusal, Step, refused, timed};
use super::subject::Subject;

/// The first port, and one that an Ethernet function does not have: a refusal is an answer too.
const PORTS: [u8; 2] = [1, 2];

/// Times that a query is made for its cost.
const ROUNDS: usize = 16;

/// The device, its ports, its clock.
pub(crate) fn device(subject: &Subject, step: &mut Step) -> Result<(), Refusal> {
    let context = subject.context()?;
    let attributes = context.device().map_err(refused)?;
    let base = &attributes.base;
    for (name, value) in [
        ("max_qp", base.max_qp),
        ("max_qp_wr", base.max_qp_wr),
        ("max_sge", base.max_sge),
        ("max_cq", base.max_cq),
        ("max_cqe", base.max_cqe),
        ("max_mr", base.max_mr),
        ("max_srq", base.max_srq),
    ] {
        step.fact(name, value);
    }
    for port in PORTS {
        let told = context.port(port).map(|told| format!("gid_tbl_len={}", told.legacy_resp.gid_tbl_len));
        step.outcome(format!("port{port}"), told.map_err(refused));
    }
    step.fact("clock", if context.clock().is_ok() { "mapped" } else { "none" });
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        let (cycles, told) = timed(|| context.port(1));
        told.map_err(refused)?;
        samples.push(cycles);
    }
    step.cost("query_port", samples);
    Ok(())
}

/// Kinds of capabilities, by their names in the report.
pub(crate) const KINDS: [(&str, u16); 11] = [
    ("general", kind::GENERAL),
    ("general_2", kind::GENERAL_2),
    ("ethernet", kind::ETHERNET_OFFLOADS),
    ("odp", kind::ODP),
    ("atomic", kind::ATOMIC),
    ("roce", kind::ROCE),
    ("flow_table", kind::FLOW_TABLE),
    ("eswitch_flow_table", kind::ESWITCH_FLOW_TABLE),
    ("eswitch", kind::ESWITCH),
    ("qos", kind::QOS),
    ("dev_mem", kind::DEV_MEM),
];

/// All that the firmware says it can do, as it stands in its answers.
pub(crate) fn capabilities(subject: &Subject, step: &mut Step) -> Result<(), Refusal> {
    let context = subject.context()?;
    for (name, kind) in KINDS {
        let told = context.firmware_capabilities(kind);
        step.outcome(name, told.map(|_| "told").map_err(refused));
    }
    Ok(())
}
