//! What several checks need to know of the machine, read once.

use pollux_config::LcoreSet;
use pollux_eal::topology::Topology;
use pollux_uverbs::UverbsError;

use crate::card::{self, Card};
use crate::finding::Mend;
use crate::process::Process;
use crate::root::Root;

/// The machine as this process sees it.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Where its files are.
    pub(crate) root: Root,
    /// This process.
    pub(crate) process: Process,
    /// NUMA nodes and processors.
    pub(crate) topology: Topology,
    /// ConnectX cards.
    pub(crate) cards: Vec<Card>,
    /// Why RDMA devices cannot be listed.
    pub(crate) devices_error: Option<UverbsError>,
    /// The kind of container that this is.
    pub(crate) container: Option<Container>,
    /// Processors of the lcores that are judged, if any were named.
    pub(crate) lcores: Option<Vec<u16>>,
    /// What is kept free of other work.
    pub(crate) isolation: Isolation,
}

/// A kind of container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    /// Docker's.
    Docker,
    /// Podman's.
    Podman,
    /// A pod of Kubernetes.
    Kubernetes,
    /// Another one, such as LXC or systemd-nspawn.
    Other,
}

impl Container {
    /// What it is, in words.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::Docker => "a container of Docker",
            Self::Podman => "a container of Podman",
            Self::Kubernetes => "a pod of Kubernetes",
            Self::Other => "a container",
        }
    }
}

/// Processors on which the kernel does less.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Isolation {
    /// Left out by the scheduler (`isolcpus`).
    pub(crate) scheduler: Vec<u16>,
    /// Without the tick (`nohz_full`).
    pub(crate) tick: Vec<u16>,
    /// Without callbacks of RCU (`rcu_nocbs`).
    pub(crate) rcu: Vec<u16>,
}

impl Isolation {
    /// Source: Linux `drivers/base/cpu.c` (`isolated`, `nohz_full`);
    /// `Documentation/admin-guide/kernel-parameters.txt` (`rcu_nocbs`, which stands only in the command line).
    fn read(root: &Root) -> Self {
        let list = |name: &str| root.cpus(&format!("sys/devices/system/cpu/{name}")).unwrap_or_default();
        let line = root.text("proc/cmdline").unwrap_or_default();
        let rcu = line.split_whitespace().find_map(|word| word.strip_prefix("rcu_nocbs="));
        let scheduler = list("isolated");
        // A processor without the tick gets no callbacks either (kernel-parameters.txt, `nohz_full`).
        let tick = list("nohz_full");
        let mut rcu: Vec<u16> = match rcu {
            Some("all") => list("possible"),
            Some(text) => pollux_eal::topology::parse_list(text).unwrap_or_default(),
            None => Vec::new(),
        };
        rcu.extend(&tick);
        rcu.sort_unstable();
        rcu.dedup();
        Self { scheduler, tick, rcu }
    }
}

impl Machine {
    /// Reads it.
    #[must_use]
    pub(crate) fn read(root: Root, lcores: Option<&LcoreSet>) -> Self {
        let (cards, devices_error) = card::all(&root);
        Self {
            process: Process::read(&root),
            topology: Topology::read(root.path()),
            cards,
            devices_error,
            container: container(&root),
            lcores: lcores.map(|lcores| lcores.as_slice().to_vec()),
            isolation: Isolation::read(&root),
            root,
        }
    }

    /// The processors that are looked at one by one: the lcores, else all that are online.
    #[must_use]
    pub(crate) fn cpus(&self) -> Vec<u16> {
        self.lcores.clone().unwrap_or_else(|| self.topology.cpus())
    }

    /// How to start the container so that it has more: an option of `docker run`, what a pod asks for, in words what any other
    /// needs; outside of containers, what the machine needs.
    pub(crate) fn started_with(&self, option: &str, pod: &str, words: &str, otherwise: Mend) -> Mend {
        match self.container {
            Some(Container::Docker) => Mend::user(format!("docker run {option} ...")),
            Some(Container::Podman) => Mend::user(format!("podman run {option} ...")),
            Some(Container::Kubernetes) => Mend::action(format!("In the pod's specification: {pod}.")),
            Some(Container::Other) => Mend::action(format!("Start the container with {words}.")),
            None => otherwise,
        }
    }
}

/// Marks that container programs leave. Sources: moby `daemon/initlayer/setup_unix.go` (`.dockerenv`); containers/podman
/// `libpod/container_internal_common.go` (`/run/.containerenv`); systemd `docs/CONTAINER_INTERFACE.md` (`/run/systemd/container`,
/// `container=`); Kubernetes `pkg/kubelet/cm/cgroup_manager_linux.go` (`kubepods`).
fn container(root: &Root) -> Option<Container> {
    let groups = ["proc/1/cgroup", "proc/self/cgroup"].map(|file| root.text(file).unwrap_or_default());
    let in_group = |words: &[&str]| words.iter().any(|word| groups.iter().any(|group| group.contains(word)));
    if in_group(&["kubepods"]) {
        return Some(Container::Kubernetes);
    }
    if in_group(&["/docker/", "/docker-"]) {
        return Some(Container::Docker);
    }
    if in_group(&["/libpod-"]) {
        return Some(Container::Podman);
    }
    if in_group(&["/lxc/", "/lxc.payload"]) {
        return Some(Container::Other);
    }
    // Files stay where an image became a machine. There, threads of the kernel are seen, as in no container of its own.
    if root.text("proc/2/comm").as_deref() == Ok("kthreadd") {
        return None;
    }
    if root.has("var/run/secrets/kubernetes.io") {
        return Some(Container::Kubernetes);
    }
    if root.has(".dockerenv") {
        return Some(Container::Docker);
    }
    if root.has("run/.containerenv") {
        return Some(Container::Podman);
    }
    let environment = root.head("proc/1/environ", 64 << 10).unwrap_or_default();
    let told = root.text("run/systemd/container").ok();
    let variable = environment.split('\0').find_map(|entry| entry.strip_prefix("container="));
    match told.as_deref().or(variable)? {
        "docker" => Some(Container::Docker),
        "podman" => Some(Container::Podman),
        _ => Some(Container::Other),
    }
}
