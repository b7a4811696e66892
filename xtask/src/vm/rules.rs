//! Rules of the device that drivers in a guest broke, as the devices told (`mlx5-model/src/device/violation.rs`): of those that can
//! be seen from outside the guest.

use super::job::Job;

/// In front of each in the devices' log.
const MARK: &str = "model.rule: ";

/// What drivers do all the same: part of such a line, and where it is done.
const KNOWN: &[(&str, &str)] = &[];

/// Jobs whose programs write commands and entries byte by byte themselves (rdma-core `tests/mlx5_prm_structs.py`): what they do is
/// told, and fails nobody.
const FREE: &[&str] = &["pyverbs"];

/// Whether a job's guest is held to the rules. One whose device is reset, or fails, rings for queues that are gone.
pub(super) fn are_for(job: &Job) -> bool {
    job.reports.is_empty() && !FREE.contains(&job.name)
}

/// The lines of a log that tell of a rule broken, without those that are known.
pub(super) fn broken(log: &str) -> Vec<&str> {
    let told = log.lines().filter_map(|line| Some(line.split_once(MARK)?.1));
    told.filter(|line| !KNOWN.iter().any(|(part, _)| line.contains(part))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_broken_is_told_from_other_lines() {
        let log = "2026-01-01T00:00:00Z  INFO model.pci: started\n\
                   2026-01-01T00:00:01Z  WARN model.rule: mlx5-device /tmp/a: queue 0x1000: its record is late\n";
        assert_eq!(broken(log), ["mlx5-device /tmp/a: queue 0x1000: its record is late"]);
        assert!(broken("  INFO model.pci: model.rules are well\n").is_empty());
        for (part, _) in KNOWN {
            assert!(broken(&format!("WARN {MARK}a: {part}\n")).is_empty(), "{part}");
        }
    }
}
