//! The library that is loaded into programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The library of that file name, which stands beside the program that runs, or where cargo leaves it for tests: the newer one.
/// `package` makes it.
///
/// # Errors
/// It is not there, or ld.so cannot be told where, in one line.
pub fn find(name: &str, package: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe();
    let own = own.map_err(|why| format!("cannot tell where this program stands: {why}"))?;
    find_beside(&own, name, package)
}

fn find_beside(own: &Path, name: &str, package: &str) -> Result<PathBuf, String> {
    let places = [own.with_file_name(name), own.with_file_name("deps").join(name)];
    let made = |place: &PathBuf| place.metadata().and_then(|file| file.modified()).ok();
    let found = places.iter().filter(|place| place.is_file()).max_by_key(|place| made(place)).cloned();
    let found = found.ok_or_else(|| {
        format!("{} is not there: `cargo build --release -p {package}` makes it", places[0].display())
    })?;
    // Source: ld.so(8), LD_PRELOAD, which has no way to write them.
    if found.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(format!(
            "{} has a space or a colon in its path, which LD_PRELOAD takes for its end; move it to another folder",
            found.display()
        ));
    }
    Ok(found)
}

/// `LD_PRELOAD` with the library in front of what is to be loaded already.
#[must_use]
pub fn preloaded(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_loaded_is_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| {
            let own = folder.path().join(name).join("runs");
            std::fs::create_dir_all(own.with_file_name("deps")).expect("a folder");
            own
        };
        let own = at("plain");
        let none = find_beside(&own, "lib.so", "pollux-some").expect_err("not there");
        assert!(none.ends_with("plain/lib.so is not there: `cargo build --release -p pollux-some` makes it"));
        std::fs::write(own.with_file_name("deps").join("lib.so"), "").expect("written");
        assert!(find_beside(&own, "lib.so", "pollux-some").expect("there").ends_with("plain/deps/lib.so"));
        for name in ["a space", "a:colon"] {
            let own = at(name);
            std::fs::write(own.with_file_name("lib.so"), "").expect("written");
            let refused = find_beside(&own, "lib.so", "pollux-some").expect_err("no way to write it");
            assert!(refused.contains("has a space or a colon in its path"), "{refused}");
        }
    }
}
