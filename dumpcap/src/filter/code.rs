//! From checks to BPF, last instruction first: jumps only go forward, so that what they lead to is there already.

use pollux_capture::SNAPLEN_MAX;
use pollux_capture::bpf::Instruction;

use super::tree::{Check, Number, Relation, Tree};

/// A place in the program, counted from its end.
type Place = usize;

/// The program, last instruction first.
struct Code(Vec<Instruction>);

/// The program of a filter.
pub(super) fn generate(tree: &Tree) -> Vec<Instruction> {
    let mut code = Code(Vec::new());
    let no = code.put(0x06, 0);
    let yes = code.put(0x06, SNAPLEN_MAX);
    code.tree(tree, yes, no);
    code.0.reverse();
    code.0
}

impl Code {
    fn put(&mut self, code: u16, k: u32) -> Place {
        self.0.push(Instruction { code, jt: 0, jf: 0, k });
        self.0.len() - 1
    }

    /// Puts the code that leads to `yes` or `no`, and answers where it begins.
    fn tree(&mut self, tree: &Tree, yes: Place, no: Place) -> Place {
        match tree {
            Tree::All(parts) => parts.iter().rev().fold(yes, |yes, part| self.tree(part, yes, no)),
            Tree::Any(parts) => parts.iter().rev().fold(no, |no, part| self.tree(part, yes, no)),
            Tree::Not(inner) => self.tree(inner, no, yes),
            Tree::Check(check) => self.check(check, yes, no),
        }
    }

    fn check(&mut self, check: &Check, yes: Place, no: Place) -> Place {
        let (yes, no) = (self.near(yes), self.near(no));
        let code = match check.relation {
            Relation::Equal => 0x15,
            Relation::Greater => 0x25,
            Relation::GreaterEqual => 0x35,
            Relation::Set => 0x45,
        };
        let at = self.put(code, check.value);
        // `near` has seen to it that both are within reach.
        (self.0[at].jt, self.0[at].jf) = ((at - yes - 1) as u8, (at - no - 1) as u8);
        if let Some(mask) = check.mask {
            self.put(0x54, mask);
        }
        match check.number {
            Number::At { at, bytes } => self.put(0x20 | size(bytes), at),
            Number::BehindIpv4 { header, at, bytes } => {
                self.put(0x40 | size(bytes), header + at);
                self.put(0xb1, header)
            }
            Number::Length => self.put(0x80, 0),
        }
    }

    /// A place within reach of the next check, which leads to this one. A branch reaches 255 instructions ahead, a jump as far as need be.
    fn near(&mut self, place: Place) -> Place {
        // Another jump may come between.
        if self.0.len() + 1 - place <= 255 {
            return place;
        }
        let over = (self.0.len() - place - 1) as u32;
        self.put(0x05, over)
    }
}

fn size(bytes: u8) -> u16 {
    match bytes {
        1 => 0x10,
        2 => 0x08,
        _ => 0x00,
    }
}
