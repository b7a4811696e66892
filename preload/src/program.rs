//! The program that is to run: where it is, and whether a library can be loaded into it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

/// Status of a program that is not there, as a shell has it.
pub const NOT_FOUND: u8 = 127;
/// Status of one that may not be run, or into which no library can be loaded.
pub const NOT_EXECUTABLE: u8 = 126;

/// Why a program cannot be run, in one line, and the status for it.
pub type Refusal = (String, u8);

/// Where the program is that a shell would run.
///
/// # Errors
/// There is none, or it may not be run.
pub fn find(name: &str) -> Result<PathBuf, Refusal> {
    let is_file = |path: &Path| fs::metadata(path).is_ok_and(|file| file.is_file());
    let runs = |path: &Path| {
        is_file(path) && fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o111 != 0)
    };
    let places: Vec<PathBuf> = if name.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).map(|folder| folder.join(name)).collect()
    };
    if let Some(found) = places.iter().find(|path| runs(path)) {
        return Ok(found.clone());
    }
    if let Some(file) = places.iter().find(|path| path.exists()) {
        let why = if is_file(file) {
            "is not executable: chmod +x makes it so, or name its interpreter"
        } else {
            "is not a file"
        };
        return Err((format!("{} {why}", file.display()), NOT_EXECUTABLE));
    }
    let place = if name.contains('/') { "" } else { " in PATH" };
    Err((format!("there is no program {name}{place}"), NOT_FOUND))
}

/// Refuses programs that load no libraries, or none that their user names.
///
/// # Errors
/// It is one, or nothing that is run.
///
/// Source: the System V ABI's object file format, and `PT_INTERP` in elf(5); the secure-execution mode of ld.so(8).
pub fn takes_libraries(path: &Path) -> Result<(), Refusal> {
    const HEADER: usize = 64;
    const INTERPRETER: u32 = 3;
    let refuse = |why: String| (format!("{} {why}", path.display()), NOT_EXECUTABLE);
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(1 << 16).read_to_end(&mut bytes));
    read.map_err(|why| refuse(format!("cannot be read: {why}")))?;
    // A script's interpreter is a program of its own.
    if bytes.starts_with(b"#!") {
        return Ok(());
    }
    if bytes.len() < HEADER || !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err(refuse("is neither a script nor a program for 64-bit processors".into()));
    }
    let half = |at: usize| bytes.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]));
    let table = bytes[32..40].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let (entry, count) = (usize::from(half(54)), usize::from(half(56)));
    let kind = |index: usize| {
        let at = usize::try_from(table).ok()?.checked_add(index.checked_mul(entry)?)?;
        let four = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
    };
    if !(0..count).any(|index| kind(index) == Some(INTERPRETER)) {
        return Err(refuse("is linked statically: no library can be loaded into it".into()));
    }
    match Starter::this().gain(path) {
        None => Ok(()),
        Some(gain) => Err(refuse(format!(
            "{gain}: the loader takes no library of its user's into it; copy it (the copy has no such rights), or run it as its owner"
        ))),
    }
}

/// Who starts a program.
#[derive(Clone, Copy)]
struct Starter {
    user: u32,
    group: u32,
    /// Nothing that it starts gains rights (`PR_SET_NO_NEW_PRIVS`).
    is_confined: bool,
}

impl Starter {
    fn this() -> Self {
        Self {
            user: rustix::process::getuid().as_raw(),
            group: rustix::process::getgid().as_raw(),
            is_confined: rustix::thread::no_new_privs().unwrap_or(false),
        }
    }

    /// By what a program gains rights, if it does. Source: Linux `fs/exec.c`, `bprm_fill_uid`; `security/commoncap.c`,
    /// `cap_bprm_creds_from_file`.
    fn gain(self, path: &Path) -> Option<&'static str> {
        const SET_USER: u32 = 0o4000;
        /// Without the group's right to execute it is a mark of mandatory locks.
        const SET_GROUP: u32 = 0o2010;
        let file = fs::metadata(path).ok()?;
        let nosuid = |mount: rustix::fs::StatVfs| mount.f_flag.contains(StatVfsMountFlags::NOSUID);
        if self.is_confined || rustix::fs::statvfs(path).is_ok_and(nosuid) {
            return None;
        }
        let has = |bits: u32| file.mode() & bits == bits;
        if has(SET_USER) && file.uid() != self.user {
            return Some("is set-user-ID");
        }
        if has(SET_GROUP) && file.gid() != self.group {
            return Some("is set-group-ID");
        }
        // Root has them all.
        let is_capable =
            self.user != 0 && rustix::fs::getxattr(path, CAPABILITIES, &mut [0_u8; 64][..]).is_ok();
        is_capable.then_some("has capabilities")
    }
}

/// The attribute of a file that has capabilities. Source: capabilities(7).
const CAPABILITIES: &str = "security.capability";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use pollux_tests::require::{Need, require};

    use super::*;

    /// A program of the system's, copied and given to another user.
    fn given_away(folder: &Path, mode: u32) -> PathBuf {
        let copy = folder.join(format!("{mode:o}"));
        fs::copy(find("true").expect("a program"), &copy).expect("a copy");
        chown(&copy, Some(65534), Some(65534)).expect("another's");
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).expect("its mode");
        copy
    }

    #[test]
    fn programs_that_gain_rights_are_refused() {
        if !require(&[Need::Root]) {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let nosuid = rustix::fs::statvfs(folder.path()).expect("a mount").f_flag;
        assert!(!nosuid.contains(StatVfsMountFlags::NOSUID), "the temporary folder is mounted nosuid");
        let root = Starter { user: 0, group: 0, is_confined: false };
        let owner = Starter { user: 65534, group: 65534, ..root };
        let other = Starter { user: 1000, group: 1000, ..root };
        let confined = Starter { is_confined: true, ..other };
        let [none, user, group, capable] =
            [None, Some("is set-user-ID"), Some("is set-group-ID"), Some("has capabilities")];
        for (mode, has_capabilities, expected) in [
            (0o755, false, [none; 4]),
            // A mark of mandatory locks.
            (0o2745, false, [none; 4]),
            (0o4755, false, [user, none, user, none]),
            (0o2755, false, [group, none, group, none]),
            (0o755, true, [none, capable, capable, none]),
        ] {
            let path = given_away(folder.path(), mode);
            if has_capabilities {
                // CAP_NET_RAW, permitted and in effect. Source: Linux `include/uapi/linux/capability.h`, `struct vfs_cap_data`.
                let words = [0x0200_0001_u32, 1 << 13, 0, 0, 0];
                let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(&path, CAPABILITIES, &value, flags).expect("root may");
            }
            let found = [root, owner, other, confined].map(|starter| starter.gain(&path));
            assert_eq!(found, expected, "{mode:o}, {has_capabilities}");
        }
        let (said, status) =
            takes_libraries(&given_away(folder.path(), 0o4755)).expect_err("it gains rights");
        assert!(said.contains(" is set-user-ID: the loader takes no library"), "{said}");
        assert_eq!(status, NOT_EXECUTABLE);
    }
}
