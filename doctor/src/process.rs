//! What the kernel lets this process do, and where it runs.
//!
//! Sources: Linux `Documentation/filesystems/proc.rst` (`status`, `limits`), `include/uapi/linux/capability.h`;
//! user_namespaces(7) (`uid_map`).

use pollux_eal::topology::parse_list;

use crate::root::{Gap, Root, malformed};

/// A capability, by its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// Files of others.
    DacOverride = 1,
    /// Changes of interfaces.
    NetAdmin = 12,
    /// Raw sockets and raw queue pairs.
    NetRaw = 13,
    /// Locked memory without a limit.
    IpcLock = 14,
    /// Other processes' memory.
    SysPtrace = 19,
    /// Changes of this process's limits, and much else.
    SysAdmin = 21,
    /// Performance counters.
    Perfmon = 38,
}

/// A limit of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// What holds now; `None` for no limit.
    pub(crate) soft: Option<u64>,
    /// What the process may raise it to.
    pub(crate) hard: Option<u64>,
}

/// The process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// `RLIMIT_MEMLOCK`, in bytes.
    pub(crate) locked: Result<Limit, Gap>,
    /// Effective capabilities, a bit each.
    pub(crate) capabilities: Result<u64, Gap>,
    /// Effective user.
    pub(crate) user: Result<u32, Gap>,
    /// Effective group and supplementary ones.
    pub(crate) groups: Vec<u32>,
    /// Processors that it may use.
    pub(crate) allowed: Result<Vec<u16>, Gap>,
    /// Whether it can gain no rights by what it executes.
    pub(crate) no_new_privileges: bool,
    /// Whether it is in a user namespace of its own, where rights over the machine do not count.
    pub(crate) inner_namespace: bool,
}

const STATUS: &str = "proc/self/status";
const LIMITS: &str = "proc/self/limits";

impl Process {
    /// The process that asks, as the kernel tells under `root`.
    #[must_use]
    pub(crate) fn read(root: &Root) -> Self {
        let status = root.text(STATUS);
        let field = |name: &str| -> Result<String, Gap> {
            let text = status.clone()?;
            let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            found.map(|value| value.trim().to_owned()).ok_or_else(|| malformed(STATUS, "all fields", ""))
        };
        let numbers = |name: &str| -> Vec<u32> {
            field(name)
                .map(|text| text.split_whitespace().filter_map(|id| id.parse().ok()).collect())
                .unwrap_or_default()
        };
        // Real, effective, saved, of the file system.
        let effective = |name: &str| numbers(name).get(1).copied();
        let user = field("Uid")
            .and_then(|text| effective("Uid").ok_or_else(|| malformed(STATUS, "user numbers", &text)));
        let capabilities = field("CapEff").and_then(|text| {
            u64::from_str_radix(&text, 16).map_err(|_| malformed(STATUS, "capabilities", &text))
        });
        let allowed = field("Cpus_allowed_list").and_then(|text| {
            parse_list(&text).ok_or_else(|| malformed(STATUS, "a list of processors", &text))
        });
        Self {
            locked: locked(root),
            capabilities,
            user,
            groups: effective("Gid").into_iter().chain(numbers("Groups")).collect(),
            allowed,
            no_new_privileges: field("NoNewPrivs").is_ok_and(|value| value == "1"),
            inner_namespace: root.text("proc/self/uid_map").is_ok_and(|map| !maps_everybody(&map)),
        }
    }

    /// Whether the kernel grants it a right over the machine; why that is not known.
    ///
    /// # Errors
    /// What could not be read.
    pub(crate) fn may(&self, capability: Capability) -> Result<bool, Gap> {
        self.capabilities.clone().map(|bits| bits >> capability as u32 & 1 == 1 && !self.inner_namespace)
    }
}

/// The map of the first user namespace: everybody is who he is.
fn maps_everybody(map: &str) -> bool {
    map.split_whitespace().collect::<Vec<_>>() == ["0", "0", "4294967295"]
}

fn locked(root: &Root) -> Result<Limit, Gap> {
    let text = root.text(LIMITS)?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let line = line.ok_or_else(|| malformed(LIMITS, "a limit on locked memory", ""))?;
    let bytes = |word: Option<&str>| match word {
        Some("unlimited") => Some(None),
        Some(number) => number.parse().ok().map(Some),
        None => None,
    };
    let mut words = line.split_whitespace();
    match (bytes(words.next()), bytes(words.next())) {
        (Some(soft), Some(hard)) => Ok(Limit { soft, hard }),
        _ => Err(malformed(LIMITS, "a limit on locked memory", line.trim())),
    }
}
