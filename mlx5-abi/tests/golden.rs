//! Every layout and every number here, against what a C compiler says of the headers of Linux and rdma-core.
//!
//! The files in `golden/` name the programs and packages that made them; `cargo xtask golden` makes them again. A line
//! there that nothing here compares is a fault too, so that they say what is known to agree.

mod golden {
    pub(crate) mod command;
    pub(crate) mod kernel;
    pub(crate) mod number;
    pub(crate) mod structure;
}

use std::collections::BTreeMap;

use golden::{command, kernel, number, structure};

/// One golden file: facts by kind and name, and whether something was compared with them.
pub(crate) struct Golden {
    file: &'static str,
    facts: BTreeMap<String, (Vec<u64>, bool)>,
    wrong: Vec<String>,
}

impl Golden {
    fn read(file: &'static str, text: &str) -> Self {
        let facts = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(|line| {
                let mut words = line.split(' ');
                let name = format!("{} {}", words.next().unwrap(), words.next().expect(line));
                let numbers = words.map(|word| number(word).expect(line)).collect();
                (name, (numbers, false))
            })
            .collect();
        Self { file, facts, wrong: Vec::new() }
    }

    /// What the headers for user space say.
    pub(crate) fn user() -> Self {
        Self::read("golden/layout.txt", include_str!("../golden/layout.txt"))
    }

    /// What the kernel's own headers say.
    pub(crate) fn linux() -> Self {
        Self::read("golden/linux.txt", include_str!("../golden/linux.txt"))
    }

    /// What `mlx5_ifc.h` says, in bits.
    pub(crate) fn ifc() -> Self {
        Self::read("golden/ifc.txt", include_str!("../golden/ifc.txt"))
    }

    /// What DPDK's `mlx5_prm.h` says of fields that Linux's header leaves out, in bits.
    pub(crate) fn dpdk() -> Self {
        Self::read("golden/dpdk.txt", include_str!("../golden/dpdk.txt"))
    }

    /// Compares one fact.
    pub(crate) fn same(&mut self, kind: &str, name: &str, ours: &[u64]) {
        match self.facts.get_mut(&format!("{kind} {name}")) {
            Some((theirs, seen)) => {
                *seen = true;
                if theirs != ours {
                    self.wrong.push(format!("{kind} {name}: ours {ours:#x?}, theirs {theirs:#x?}"));
                }
            }
            None => {
                self.wrong.push(format!("{kind} {name} is not there: add it, then run cargo xtask golden"))
            }
        }
    }

    /// Reports all that differs, and all that nothing was compared with.
    pub(crate) fn finish(self) {
        let unseen =
            self.facts.iter().filter(|(_, (_, seen))| !seen).map(|(name, _)| format!("{name}: unused"));
        let wrong: Vec<_> = self.wrong.into_iter().chain(unseen).collect();
        assert!(!self.facts.is_empty(), "{} is empty", self.file);
        assert!(wrong.is_empty(), "{}:\n{}", self.file, wrong.join("\n"));
    }
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// Compares numbers by the names they have in C.
macro_rules! numbers {
    ($golden:expr, $at:path { $($name:literal = $ours:ident;)+ }) => {{
        use $at as at;
        $($golden.same("const", $name, &[u64::from(at::$ours)]);)+
    }};
}

pub(crate) use numbers;

#[test]
fn the_headers_for_user_space_agree() {
    let mut golden = Golden::user();
    structure::user(&mut golden);
    kernel::compare(&mut golden);
    number::user(&mut golden);
    golden.finish();
}

#[test]
fn the_kernels_own_headers_agree() {
    let mut golden = Golden::linux();
    structure::linux(&mut golden);
    number::linux(&mut golden);
    golden.finish();
}

#[test]
fn the_commands_agree() {
    let mut golden = Golden::ifc();
    command::compare(&mut golden);
    golden.finish();
}

#[test]
fn what_only_dpdk_names_agrees() {
    let mut golden = Golden::dpdk();
    command::places_by_umem(&mut golden);
    command::hairpin_memory(&mut golden);
    golden.finish();
}

#[test]
fn a_difference_is_seen() {
    let mut golden = Golden::read("a test", "# head\nstruct a 4\nfield a.b 0 4\nconst C 0x10\n");
    golden.same("struct", "a", &[4]);
    golden.same("field", "a.b", &[0, 4]);
    golden.same("const", "C", &[15]);
    golden.same("const", "D", &[1]);
    assert_eq!(golden.wrong.len(), 2);
    let mut golden = Golden::read("a test", "struct a 4\nstruct b 4\n");
    golden.same("struct", "a", &[4]);
    assert!(std::panic::catch_unwind(|| golden.finish()).is_err(), "an unused line is a fault");
}
