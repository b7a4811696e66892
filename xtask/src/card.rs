//! Reports of cards, as their owners send them (`doctor --card NAME --report FILE`): where the device model differs from the card, and the
//! report kept, with these differences, for a test of `doctor` to hold the model against.

use std::fs;
use std::path::PathBuf;

use crate::run::{Outcome, cargo, root};

/// Where reports stand, below the top.
const CARDS: &str = "doctor/tests/cards";

/// What a model says its driver is (`doctor/src/survey.rs`).
const MODEL: &str = "the device model";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The report
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Tells where the model differs from the card, and keeps the report unless it is a model's own.
///
/// # Errors
/// The file is no report of this version.
pub(crate) fn card(args: &Args) -> Outcome {
    let file = std::path::absolute(&args.file).map_err(|why| format!("{}: {why}", args.file.display()))?;
    let mut doctor = cargo(&["run", "--quiet", "--release", "--bin", "doctor", "--", "--differences"]);
    let done = doctor.arg(&file).output().map_err(|why| format!("cannot run doctor: {why}"))?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    // 0: no difference; 1: those that it prints.
    let differences = match done.status.code() {
        Some(0) => String::new(),
        Some(1) if !said.is_empty() => said,
        _ => return Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
    };
    print!("{differences}");
    let report = fs::read_to_string(&file).map_err(|why| format!("{}: {why}", file.display()))?;
    let Some(name) = name(&report) else {
        println!(
            "xtask: card: {} differences; not kept: the report is that of a device model",
            differences.lines().count()
        );
        return Ok(());
    };
    let folder = root().join(CARDS);
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).map_err(|why| format!("cannot write {}: {why}", path.display()))
    };
    fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
    write(folder.join(&name).with_extension("txt"), &report)?;
    write(folder.join(&name).with_extension("differences"), &differences)?;
    println!("xtask: card: {} differences; kept as {CARDS}/{name}.txt", differences.lines().count());
    Ok(())
}

/// What a report is called: card, firmware and kernel. `None`: it is that of a device model, and says nothing of a card.
fn name(report: &str) -> Option<String> {
    let about = |key: &str| {
        let line = report.lines().find_map(|line| line.strip_prefix("about ")?.strip_prefix(key));
        line.map(str::trim).filter(|value| !value.is_empty())
    };
    if about("driver ") == Some(MODEL) {
        return None;
    }
    let parts = ["card ", "firmware ", "kernel "].map(|key| about(key).unwrap_or("unknown"));
    let plain = |text: &str| -> String {
        let kept = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let text: String =
            text.chars().map(|letter| if kept(letter) { letter } else { '-' }).take(40).collect();
        text.to_ascii_lowercase()
    };
    Some(parts.map(plain).join("--"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_called_by_card_firmware_and_kernel() {
        let report = "pollux card report 2\nabout card ConnectX-6 Dx\nabout driver mlx5_core\n\
                      about firmware 22.41.1000\nabout kernel 6.12.57+deb13-amd64\nstep device\n";
        assert_eq!(name(report).as_deref(), Some("connectx-6-dx--22-41-1000--6-12-57-deb13-amd64"));
        // No path leads elsewhere.
        assert_eq!(name("about card ../../x\n").as_deref(), Some("------x--unknown--unknown"));
        assert_eq!(name("about driver the device model\n"), None);
    }
}
