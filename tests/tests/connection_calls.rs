//! Commands of the connection manager's file, right and wrong, which the manager in this process answers over a device model, held against
//! what Linux answered to the same: that was written down by the job `mlx5-record` of `cargo xtask vm`, on the same model behind Linux's own
//! `rdma_cm`. It must answer the same, but for what is listed here.

#[path = "connection_calls/tour.rs"]
mod tour;

use pollux_cm::{ClientMemory, ManagementPort, Served, ServedFile};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::Cable;
use pollux_verbs::{Context, Errno, Options, Provider};
use tour::{Commands, Room};

/// What may differ: in which line, what is said here, what Linux said, and why.
const ALLOWED: &[(&str, &str, &str, &str)] = &[
    (
        "attributes of client for RTS",
        "{98}03",
        "{98}04",
        "no more reads are under way than the program asked for, however many the peer answers",
    ),
    (
        "bind IP to an address of others",
        "EADDRNOTAVAIL",
        "ENODEV",
        "an ID of Linux's keeps the interface that a bind has found which failed after that",
    ),
];

struct File {
    served: Served,
    file: ServedFile,
}

/// A program's memory is the room for answers alone.
struct Memory<'a>(&'a Room);

impl ClientMemory for Memory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.0.read(address, into)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        self.0.write(address, from)
    }
}

impl Commands for File {
    fn write(&self, room: &Room, bytes: &[u8]) -> Result<(), Errno> {
        self.served.work();
        self.file.command(&Memory(room), bytes)
    }

    fn descriptor(&self) -> u32 {
        0
    }
}

#[test]
fn this_manager_answers_as_linux_does() {
    let (plug, _other) = Cable::pair();
    let model = Model::builder("mlx5_model0")
        .plugged(plug)
        .mac([0x0c, 0x42, 0xa1, 0, 0, 1])
        .ip(format!("{}/24", tour::ADDRESS).parse().expect("an address"))
        .door(DoorProfile::linux_6_12())
        .build()
        .expect("a model");
    let context = Context::open(model.open_for_management(), Provider::Mlx5, Options::default());
    let port = ManagementPort::open(&context.expect("a context"), 1).expect("the kernel's own");
    let served = Served::over(vec![port]);
    let said = tour::calls(|| File { served: served.clone(), file: served.open() });
    let recorded = include_str!("../../mlx5-kernel/tests/golden/rdma-cm.txt");
    let recorded: Vec<String> = recorded.lines().map(without_index).collect();
    let said: Vec<&str> = said.lines().collect();
    let mut found: Vec<(&str, &str)> = said
        .iter()
        .copied()
        .zip(recorded.iter().map(String::as_str))
        .filter(|(ours, theirs)| ours != theirs)
        .collect();
    for (place, ours, theirs, why) in ALLOWED {
        let before = found.len();
        found.retain(|(said, recorded)| {
            let is_of_it = said.starts_with(place) && said.contains(ours) && recorded.contains(theirs);
            !(is_of_it && said.replacen(ours, theirs, 1) == *recorded)
        });
        assert!(found.len() < before, "no such difference any more ({why}): {place}, {ours} for {theirs}");
    }
    let found: Vec<String> =
        found.iter().map(|(ours, theirs)| format!("{ours}\n  Linux: {theirs}")).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(said.len(), recorded.len());
}

/// What Linux tells of addresses without the end, the device's number among those of RDMA netlink: models have none, and libraries know their
/// devices by the GUIDs of their nodes then.
fn without_index(line: &str) -> String {
    const BYTES: usize = 8;
    // Of addresses, and of a route.
    let told = [280, 208].into_iter().find_map(|all| {
        let (asked, told) = line.split_once(&format!(" -> ok {all}: "))?;
        let (told, zeros) = told.strip_suffix('}')?.rsplit_once('{')?;
        let zeros: usize = zeros.parse().ok()?;
        let left = match zeros.checked_sub(BYTES)? {
            0 => String::new(),
            left @ 1..3 => "00".repeat(left),
            left => format!("{{{left}}}"),
        };
        Some(format!("{asked} -> ok {}: {told}{left}", all - BYTES))
    });
    told.unwrap_or_else(|| line.to_owned())
}
