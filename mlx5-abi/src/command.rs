//! Commands to the firmware (PRM commands): what mlx5_core sends through the command queue, and DevX users through
//! the kernel.
//!
//! A command is a block of big-endian bytes that begins with [`CommandIn`]; its answer begins with [`CommandOut`].
//! Each has a type whose constants are the [`Field`](crate::field::Field)s:
//!
//! ```
//! use pollux_mlx5_abi::command::{self, cq, opcode, status};
//!
//! let mut input = cq::CreateCqIn::ZERO;
//! command::start(&mut input, opcode::CREATE_CQ, 0, 0);
//! let context = cq::CreateCqIn::CQ_CONTEXT.of_mut(&mut input);
//! cq::CqContext::LOG_CQ_SIZE.set(context, 10);
//! cq::CqContext::UAR_PAGE.set(context, 3);
//! assert_eq!(cq::CqContext::LAYOUT.dump(cq::CreateCqIn::CQ_CONTEXT.of(&input)).to_string(),
//!     "cqc: log_cq_size=0xa uar_page=0x3");
//!
//! let mut input = cq::DestroyCqIn::ZERO;
//! command::start(&mut input, opcode::DESTROY_CQ, 0, 0);
//! cq::DestroyCqIn::CQN.set(&mut input, 0x42);
//! assert_eq!(command::describe_input(&input).to_string(), "DESTROY_CQ: cqn=0x42");
//!
//! let mut output = cq::CreateCqOut::ZERO;
//! cq::CreateCqOut::CQN.set(&mut output, 0x42);
//! assert!(command::outcome(&output).is_ok());
//! command::answer(&mut output, status::LIM_ERR, 0x1234);
//! assert_eq!(command::outcome(&output).unwrap_err().to_string(),
//!     "LIM_ERR (0x8), syndrome 0x1234: a limit of the device is reached");
//! ```
//!
//! Lists (page addresses, queue numbers, destinations) follow the fixed part; [`pages`] reads the first kind.

mod form;
mod header;

pub mod counter;
pub mod cq;
pub mod dct;
pub mod ece;
pub mod environment;
pub mod eq;
pub mod flow;
pub mod group;
pub mod hairpin;
pub mod lag;
pub mod management;
pub mod matching;
pub mod memory;
pub mod mkey;
pub mod object;
pub mod opcode;
pub mod order;
pub mod period_mode;
pub mod psv;
pub mod qp;
pub mod queue;
pub mod rate;
pub mod register;
pub mod rewrite;
pub mod rq;
pub mod rqt;
pub mod source_port;
pub mod sq;
pub mod srq;
pub mod start;
pub mod status;
pub mod tir;
pub mod user;
pub mod vport;
pub mod wq;

pub use form::{form, nested};
pub use header::{
    CommandIn, CommandOut, Header, Refused, answer, describe_input, describe_output, header, outcome, pages,
    start,
};

use crate::layout::Layout;

/// Every block that is declared here and in [`caps`](crate::caps), by module.
pub const LAYOUTS: &[&[Layout]] = &[
    counter::LAYOUTS,
    cq::LAYOUTS,
    dct::LAYOUTS,
    environment::LAYOUTS,
    eq::LAYOUTS,
    flow::LAYOUTS,
    group::LAYOUTS,
    lag::LAYOUTS,
    management::LAYOUTS,
    matching::LAYOUTS,
    memory::LAYOUTS,
    mkey::LAYOUTS,
    object::LAYOUTS,
    psv::LAYOUTS,
    qp::LAYOUTS,
    qp::context::LAYOUTS,
    rate::LAYOUTS,
    register::LAYOUTS,
    rewrite::LAYOUTS,
    rq::LAYOUTS,
    rqt::LAYOUTS,
    sq::LAYOUTS,
    srq::LAYOUTS,
    start::LAYOUTS,
    tir::LAYOUTS,
    user::LAYOUTS,
    vport::LAYOUTS,
    wq::LAYOUTS,
    header::LAYOUTS,
    crate::caps::LAYOUTS,
    crate::caps::general::LAYOUTS,
    crate::caps::ethernet::LAYOUTS,
    crate::caps::roce::LAYOUTS,
    crate::caps::flow_table::LAYOUTS,
];

#[cfg(test)]
mod tests;
