//! A program outside of the workspace, as README.md says that one is made: its dependencies, and the skeleton.
//!
//! It stands in a temporary folder, so that nothing of the workspace reaches it but what its manifest names. No network: the versions are those
//! of the workspace's lock file, and cargo has them by then.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Outcome, cargo, output, root};

/// What is taken of `skeleton/`, as it stands.
const TAKEN: [&str; 2] = ["src/main.rs", "src/forward.rs"];

/// Builds the program into `target` and runs it for half a second.
pub(crate) fn outside(target: &Path) -> Outcome {
    let place = Place::make()?;
    place.put("Cargo.toml", &manifest(&read("README.md")?)?)?;
    place.put("Cargo.lock", &read("Cargo.lock")?)?;
    for file in TAKEN {
        place.put(file, &read(&format!("skeleton/{file}"))?)?;
    }
    let mut run = place.cargo(target, &["run", "--release", "--", "-l", "0"]);
    run.args(["--vdev", "net_null0", "--vdev", "net_null1", "--", "--duration", "0.5", "--json"]);
    let said = output(&mut run)?;
    let report: serde_json::Value = serde_json::from_str(said.lines().last().unwrap_or_default())
        .map_err(|why| format!("skeleton gave no report: {why}"))?;
    let sent = report["ports"][1]["tx_packets"].as_u64().unwrap_or(0);
    if sent == 0 {
        return Err(format!("skeleton forwarded nothing: {report}"));
    }
    eprintln!("xtask: outside the workspace: skeleton forwarded {sent} packets");
    Ok(())
}

fn read(file: &str) -> Outcome<String> {
    fs::read_to_string(root().join(file)).map_err(|why| format!("cannot read {file}: {why}"))
}

/// The manifest that README.md gives, for a program beside a clone of this workspace.
fn manifest(readme: &str) -> Outcome<String> {
    let head = "[package]\nname = \"outside\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    let blocks = format!("{head}\n{}", block(readme)?);
    Ok(blocks.replace("\"../pollux/", &format!("\"{}/", root().display())))
}

/// The first block of TOML.
fn block(page: &str) -> Outcome<&str> {
    let block = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    block.ok_or_else(|| "a page shows no dependencies: a block of toml is missing".into())
}

/// A folder outside of the workspace, removed with all in it.
struct Place(PathBuf);

impl Place {
    fn make() -> Outcome<Self> {
        let place = Self(std::env::temp_dir().join(format!("pollux-outside-{}", std::process::id())));
        fs::create_dir(&place.0).map_err(|why| format!("cannot make {}: {why}", place.0.display()))?;
        Ok(place)
    }

    fn put(&self, file: &str, text: &str) -> Outcome {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))
            .and_then(|()| fs::write(&path, text))
            .map_err(|why| format!("cannot write {}: {why}", path.display()))
    }

    /// Cargo there, without the network. What it builds is kept for the next time.
    fn cargo(&self, target: &Path, args: &[&str]) -> Command {
        let mut command = cargo(args);
        command.current_dir(&self.0).env("CARGO_NET_OFFLINE", "true").env("CARGO_TARGET_DIR", target);
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_is_what_the_page_shows() {
        let page = "# Page\n```sh\nls\n```\n```toml\n[dependencies]\npollux-eal = { path = \"../pollux/eal\" }\n```\n";
        let manifest: toml::Table = manifest(page).expect("a manifest").parse().expect("TOML");
        let eal = manifest["dependencies"]["pollux-eal"]["path"].as_str().expect("a path");
        assert!(Path::new(eal).join("Cargo.toml").exists(), "{eal}");
        assert!(manifest.contains_key("package"));
        assert!(block("no block").is_err());
    }
}
