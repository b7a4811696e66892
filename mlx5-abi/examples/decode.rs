//! Says what bytes mean: `cargo run -p pollux-mlx5-abi --example decode -- command|cqe HEX`.
//!
//! Without arguments it decodes a command and an error completion of its own.

use std::process::ExitCode;

use pollux_mlx5_abi::command::{describe_input, opcode, start};
use pollux_mlx5_abi::cqe::{Cqe64, CqeError};
use pollux_mlx5_abi::opcode::completion;
use zerocopy::FromBytes;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let said = match arguments.as_slice() {
        [] => own(),
        [kind, hex] => bytes(hex).and_then(|bytes| decode(kind, &bytes)),
        _ => None,
    };
    match said {
        Some(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("usage: decode command|cqe HEX   (a completion has 64 bytes)");
            ExitCode::FAILURE
        }
    }
}

fn decode(kind: &str, bytes: &[u8]) -> Option<String> {
    match kind {
        "command" => Some(describe_input(bytes).to_string()),
        "cqe" => Cqe64::ref_from_bytes(bytes).ok().map(completed),
        _ => None,
    }
}

fn completed(cqe: &Cqe64) -> String {
    let name = completion::name(cqe.opcode()).unwrap_or("unknown opcode");
    match CqeError::of(cqe) {
        Some(error) => format!("{name} queue {:#x}: {}", error.qpn(), error.syndrome()),
        None => format!("{name} queue {:#x}, {} bytes", cqe.qpn(), cqe.byte_cnt.get()),
    }
}

fn own() -> Option<String> {
    let mut command = [0; 16];
    start(&mut command, opcode::ALLOC_PD, 0, 0);
    let mut cqe = [0; 64];
    cqe[54..56].copy_from_slice(&[0x88, 0x04]);
    cqe[63] = completion::REQUESTER_ERROR << 4;
    Some(format!("{}\n{}", decode("command", &command)?, decode("cqe", &cqe)?))
}

/// The bytes that hexadecimal digits stand for; `None` if there is anything else among them.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = hex.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let digits = digits?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
