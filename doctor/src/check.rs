//! The checks, a file for each part of a machine.
//!
//! Each is a [`Check`] with a lasting id, and a function that reads facts and puts findings. What cannot be read makes a finding
//! of severity `unknown`.

mod cpu;
mod device;
mod kernel;
mod memory;
mod numa;
mod pcie;
mod port;
mod rights;
mod system;

use crate::finding::{Check, Findings, Mend};
use crate::machine::Machine;
use crate::root::Root;

/// Every check, in the order in which they are made.
#[must_use]
pub fn all() -> Vec<&'static Check> {
    let parts = [
        device::ALL,
        kernel::ALL,
        rights::ALL,
        memory::ALL,
        port::ALL,
        pcie::ALL,
        numa::ALL,
        cpu::ALL,
        system::ALL,
    ];
    parts.into_iter().flatten().copied().collect()
}

/// Makes every check.
pub(crate) fn run(machine: &Machine) -> Findings {
    let mut out = Findings::default();
    device::present(machine, &mut out);
    kernel::check(machine, &mut out);
    rights::check(machine, &mut out);
    memory::check(machine, &mut out);
    for card in &machine.cards {
        out.about(Some(&card.name));
        device::check(machine, card, &mut out);
        port::check(machine, card, &mut out);
        pcie::check(machine, card, &mut out);
        if let Some(node) = numa::check(machine, card, &mut out) {
            memory::check_card(machine, node, &mut out);
        }
    }
    out.about(None);
    cpu::check(machine, &mut out);
    system::check(machine, &mut out);
    out
}

/// What adds parameters to the kernel's command line on this machine.
fn boot(root: &Root, parameters: &str) -> Mend {
    if root.has("usr/sbin/grubby") || root.has("sbin/grubby") {
        return Mend::root(format!("grubby --update-kernel=ALL --args=\"{parameters}\" && reboot"));
    }
    if root.has("etc/default/grub") && (root.has("usr/sbin/update-grub") || root.has("sbin/update-grub")) {
        let line = "s/^GRUB_CMDLINE_LINUX=\"/&";
        return Mend::root(format!(
            "sed -i '{line}{parameters} /' /etc/default/grub && update-grub && reboot"
        ));
    }
    Mend::action(format!("Boot the kernel with `{parameters}` on its command line."))
}

/// Numbers as Linux writes lists of them: `0-3,8`.
fn list(numbers: &[u16]) -> String {
    numbers.iter().copied().collect::<pollux_config::LcoreSet>().to_string()
}

/// `processor 3` or `processors 3,5`.
fn processors(numbers: &[u16]) -> String {
    format!("processor{} {}", if numbers.len() == 1 { "" } else { "s" }, list(numbers))
}
