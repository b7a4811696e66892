//! Classic BPF: programs that decide which frames are kept, and how much of them.
//!
//! A program comes from a stranger. [`Program::verify`] takes it apart once: every instruction is known, every jump goes forward and
//! stays inside, the last instruction returns. So a run ends after as many steps as there are instructions, and a load outside of the frame
//! ends it with "not kept". Sources: the-tcpdump-group/libpcap `pcap/bpf.h`, `bpf_filter.c`; Linux `net/core/filter.c`.

use crate::Frame;

/// Most instructions of a program. Source: Linux `include/uapi/linux/bpf_common.h`, `BPF_MAXINSNS`.
pub const INSTRUCTIONS_MAX: usize = 4096;

/// Words of a program's memory. Source: libpcap `pcap/bpf.h`, `BPF_MEMWORDS`.
const MEMORY_WORDS: usize = 16;

/// An instruction as it is written down: `struct bpf_insn` of libpcap `pcap/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(from = "(u16, u8, u8, u32)", into = "(u16, u8, u8, u32)")]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// Instructions to pass over if it is true.
    pub jt: u8,
    /// If it is false.
    pub jf: u8,
    /// Its operand.
    pub k: u32,
}

/// Why a program is refused: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BpfError {
    /// None, or more than there may be.
    #[error("a BPF program has 1 to {INSTRUCTIONS_MAX} instructions, not {0}")]
    Length(usize),
    /// An instruction that there is not.
    #[error("BPF instruction {at} has code {code:#x}, which classic BPF does not have")]
    Code {
        /// Its number.
        at: usize,
        /// Its code.
        code: u16,
    },
    /// A jump out of the program.
    #[error("BPF instruction {at} jumps behind the end of the program")]
    Jump {
        /// Its number.
        at: usize,
    },
    /// A word of memory that there is not.
    #[error("BPF instruction {at} uses memory word {k}; there are {MEMORY_WORDS}")]
    Memory {
        /// Its number.
        at: usize,
        /// The word.
        k: u32,
    },
    /// A division by nothing, a shift by more than there is.
    #[error("BPF instruction {at} divides by 0 or shifts by 32 bits or more")]
    Operand {
        /// Its number.
        at: usize,
    },
    /// A load from the kernel's own offsets.
    #[error(
        "BPF instruction {at} loads from {k:#x}, an extension of the kernel's that needs a socket; compile it for Ethernet without an interface"
    )]
    Extension {
        /// Its number.
        at: usize,
        /// The offset.
        k: u32,
    },
    /// It does not end by returning.
    #[error("the last BPF instruction does not return")]
    End,
}

/// The second operand of arithmetic and jumps.
#[derive(Clone, Copy, Debug)]
enum Source {
    K(u32),
    X,
}

#[derive(Clone, Copy, Debug)]
enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    Or,
    And,
    Shl,
    Shr,
    Mod,
    Xor,
}

#[derive(Clone, Copy, Debug)]
enum Test {
    Equal,
    Greater,
    GreaterEqual,
    Set,
}

/// An instruction that was verified.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A: bytes of the frame at `at`.
    LoadAbsolute {
        bytes: u8,
        at: u32,
    },
    /// A: bytes at X and `at`.
    LoadIndirect {
        bytes: u8,
        at: u32,
    },
    LoadImmediate(u32),
    LoadMemory(u8),
    LoadLength,
    LoadXImmediate(u32),
    LoadXMemory(u8),
    LoadXLength,
    /// X: four times the low half of the byte at `at`, the length of an IPv4 header.
    LoadXHeader(u32),
    Store(u8),
    StoreX(u8),
    Alu(Alu, Source),
    Negate,
    /// `to` is a place in the program.
    Jump {
        to: u16,
    },
    Branch {
        test: Test,
        source: Source,
        yes: u16,
        no: u16,
    },
    Return(u32),
    ReturnA,
    ToX,
    ToA,
}

/// A program that was verified.
#[derive(Clone, Debug)]
pub struct Program(Box<[Op]>);

impl Program {
    /// Verifies a program.
    ///
    /// # Errors
    /// [`BpfError`], for the first instruction that is wrong.
    pub fn verify(instructions: &[Instruction]) -> Result<Self, BpfError> {
        if instructions.is_empty() || instructions.len() > INSTRUCTIONS_MAX {
            return Err(BpfError::Length(instructions.len()));
        }
        let verified = instructions.iter().enumerate().map(|(at, one)| op(*one, at, instructions.len()));
        let ops: Box<[Op]> = verified.collect::<Result<_, _>>()?;
        match ops.last() {
            Some(Op::Return(_) | Op::ReturnA) => Ok(Self(ops)),
            _ => Err(BpfError::End),
        }
    }

    /// Runs it: how many bytes of the frame are to be kept, 0 for none of it, `u32::MAX` for all.
    ///
    /// Some 1 to 3 ns an instruction; each runs once at most.
    #[must_use]
    pub fn run(&self, frame: &impl Frame) -> u32 {
        // A load outside of the frame, or a division by 0.
        self.steps(frame).unwrap_or(0)
    }

    fn steps(&self, frame: &impl Frame) -> Option<u32> {
        let first = frame.pieces().next().unwrap_or_default();
        let length = u32::try_from(frame.bytes()).unwrap_or(u32::MAX);
        let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY_WORDS]);
        let mut at = 0;
        // `verify` has seen to it that jumps go forward and that the last instruction returns.
        while let Some(op) = self.0.get(at) {
            at += 1;
            match *op {
                Op::LoadAbsolute { bytes, at } => a = load(frame, first, at, bytes)?,
                Op::LoadIndirect { bytes, at } => a = load(frame, first, x.checked_add(at)?, bytes)?,
                Op::LoadImmediate(k) => a = k,
                Op::LoadMemory(word) => a = memory[usize::from(word)],
                Op::LoadLength => a = length,
                Op::LoadXImmediate(k) => x = k,
                Op::LoadXMemory(word) => x = memory[usize::from(word)],
                Op::LoadXLength => x = length,
                Op::LoadXHeader(at) => x = (load(frame, first, at, 1)? & 0xf) << 2,
                Op::Store(word) => memory[usize::from(word)] = a,
                Op::StoreX(word) => memory[usize::from(word)] = x,
                Op::Alu(what, source) => a = compute(what, a, value(source, x))?,
                Op::Negate => a = a.wrapping_neg(),
                Op::Jump { to } => at = usize::from(to),
                Op::Branch { test, source, yes, no } => {
                    let operand = value(source, x);
                    let is = match test {
                        Test::Equal => a == operand,
                        Test::Greater => a > operand,
                        Test::GreaterEqual => a >= operand,
                        Test::Set => a & operand != 0,
                    };
                    at = usize::from(if is { yes } else { no });
                }
                Op::Return(k) => return Some(k),
                Op::ReturnA => return Some(a),
                Op::ToX => x = a,
                Op::ToA => a = x,
            }
        }
        None
    }
}

fn value(source: Source, x: u32) -> u32 {
    match source {
        Source::K(k) => k,
        Source::X => x,
    }
}

fn compute(what: Alu, a: u32, operand: u32) -> Option<u32> {
    Some(match what {
        Alu::Add => a.wrapping_add(operand),
        Alu::Sub => a.wrapping_sub(operand),
        Alu::Mul => a.wrapping_mul(operand),
        Alu::Div => a.checked_div(operand)?,
        Alu::Mod => a.checked_rem(operand)?,
        Alu::Or => a | operand,
        Alu::And => a & operand,
        Alu::Xor => a ^ operand,
        Alu::Shl => a.checked_shl(operand).unwrap_or(0),
        Alu::Shr => a.checked_shr(operand).unwrap_or(0),
    })
}

/// Big-endian bytes of a frame.
#[inline]
fn load(frame: &impl Frame, first: &[u8], at: u32, bytes: u8) -> Option<u32> {
    let (at, bytes) = (at as usize, usize::from(bytes));
    let number = |four: &[u8]| four.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    match first.get(at..at.checked_add(bytes)?) {
        Some(there) => Some(number(there)),
        None => {
            let mut found = [0; 4];
            gather(frame, at, &mut found[..bytes]).then(|| number(&found[..bytes]))
        }
    }
}

/// Bytes that may lie in several pieces; whether they are all there.
#[cold]
fn gather(frame: &impl Frame, mut at: usize, into: &mut [u8]) -> bool {
    let mut filled = 0;
    for piece in frame.pieces() {
        let Some(rest) = piece.get(at..) else {
            at -= piece.len();
            continue;
        };
        let count = rest.len().min(into.len() - filled);
        into[filled..filled + count].copy_from_slice(&rest[..count]);
        filled += count;
        at = 0;
        if filled == into.len() {
            return true;
        }
    }
    false
}

/// Takes one instruction apart. The numbers are those of libpcap `pcap/bpf.h`.
fn op(one: Instruction, at: usize, count: usize) -> Result<Op, BpfError> {
    let Instruction { code, jt, jf, k } = one;
    let unknown = BpfError::Code { at, code };
    let word = || match u8::try_from(k) {
        Ok(word) if usize::from(word) < MEMORY_WORDS => Ok(word),
        _ => Err(BpfError::Memory { at, k }),
    };
    // An offset with its highest bit set is the kernel's own (`SKF_AD_OFF` and below).
    let offset = || if k < 1 << 31 { Ok(k) } else { Err(BpfError::Extension { at, k }) };
    let place = |over: u32| {
        let to = at as u64 + 1 + u64::from(over);
        // `count` is at most 4096.
        if to < count as u64 { Ok(to as u16) } else { Err(BpfError::Jump { at }) }
    };
    let source = if code & 0x08 == 0 { Source::K(k) } else { Source::X };
    Ok(match code {
        // LD and LDX: size in bits 3 and 4, mode in bits 5 to 7.
        0x00 => Op::LoadImmediate(k),
        0x20 => Op::LoadAbsolute { bytes: 4, at: offset()? },
        0x28 => Op::LoadAbsolute { bytes: 2, at: offset()? },
        0x30 => Op::LoadAbsolute { bytes: 1, at: offset()? },
        0x40 => Op::LoadIndirect { bytes: 4, at: offset()? },
        0x48 => Op::LoadIndirect { bytes: 2, at: offset()? },
        0x50 => Op::LoadIndirect { bytes: 1, at: offset()? },
        0x60 => Op::LoadMemory(word()?),
        0x80 => Op::LoadLength,
        0x01 => Op::LoadXImmediate(k),
        0x61 => Op::LoadXMemory(word()?),
        0x81 => Op::LoadXLength,
        0xb1 => Op::LoadXHeader(offset()?),
        0x02 => Op::Store(word()?),
        0x03 => Op::StoreX(word()?),
        0x84 => Op::Negate,
        code if code & 0x07 == 0x04 => {
            let what = match code & !0x0f {
                0x00 => Alu::Add,
                0x10 => Alu::Sub,
                0x20 => Alu::Mul,
                0x30 => Alu::Div,
                0x40 => Alu::Or,
                0x50 => Alu::And,
                0x60 => Alu::Shl,
                0x70 => Alu::Shr,
                0x90 => Alu::Mod,
                0xa0 => Alu::Xor,
                _ => return Err(unknown),
            };
            match (what, source) {
                (Alu::Div | Alu::Mod, Source::K(0)) => return Err(BpfError::Operand { at }),
                (Alu::Shl | Alu::Shr, Source::K(32..)) => return Err(BpfError::Operand { at }),
                _ => Op::Alu(what, source),
            }
        }
        0x05 => Op::Jump { to: place(k)? },
        code if code & 0x07 == 0x05 => {
            let test = match code & !0x0f {
                0x10 => Test::Equal,
                0x20 => Test::Greater,
                0x30 => Test::GreaterEqual,
                0x40 => Test::Set,
                _ => return Err(unknown),
            };
            Op::Branch { test, source, yes: place(jt.into())?, no: place(jf.into())? }
        }
        0x06 => Op::Return(k),
        0x16 => Op::ReturnA,
        0x07 => Op::ToX,
        0x87 => Op::ToA,
        _ => return Err(unknown),
    })
}

#[cfg(test)]
mod tests;
