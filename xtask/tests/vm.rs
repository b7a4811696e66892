//! `cargo xtask vm` where the machine lets it down. Everything that it starts is a script here: cargo, the chroot with apt, QEMU
//! and the devices; what is tried is that each mishap is one clear line and a status, in bounded time, with nothing left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The version of the kernel that the cache holds.
const KERNEL: &str = "6.99-test";
/// How long a case may take; each takes a second or less.
const LIMIT: Duration = Duration::from_secs(30);

/// A machine of scripts.
struct Stage {
    top: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { top: tempfile::tempdir().expect("a folder") };
        let root = stage.root();
        // What the guest's root must have, as its own list says.
        let list = include_str!("../src/vm/guest.rs");
        let wanted: Vec<&str> =
            list.split('"').filter(|word| word.starts_with("/usr/") && !word.contains('{')).collect();
        for name in &wanted {
            let above = format!("{name}/");
            let path = root.join(name.trim_start_matches('/'));
            if wanted.iter().any(|other| other.starts_with(&above)) || path.ends_with("libibverbs") {
                fs::create_dir_all(path).expect("a folder");
            } else {
                write(&path, "");
            }
        }
        for driver in ["rxe", "mlx5"] {
            write(&root.join(format!("etc/libibverbs.d/{driver}.driver")), "");
        }
        write(&root.join("etc/apt/sources.list"), "deb http://archive.test/debian trixie main\n");
        fs::create_dir_all(root.join("etc/apt/sources.list.d")).expect("a folder");
        fs::create_dir_all(root.join("etc/apt/preferences.d")).expect("a folder");
        stage.kernel(&["ib_uverbs", "mlx5_core", "mlx5_ib"]);
        fs::create_dir_all(stage.path("tmp")).expect("a folder");

        stage.script("bin/id", "echo 0");
        let apps = [
            "rc_pingpong",
            "uc_pingpong",
            "ud_pingpong",
            "srq_pingpong",
            "xsrq_pingpong",
            "send_bw",
            "send_lat",
            "write_bw",
            "write_lat",
            "read_bw",
            "read_lat",
            "atomic_bw",
            "atomic_lat",
        ];
        let mut programs = vec![
            ("tests", "bin", "guest_init"),
            ("mlx5-model", "bin", "mlx5-device"),
            ("apps", "bin", "l2fwd"),
            ("uverbs", "test", "uverbs"),
            ("verbs", "test", "kernel"),
            ("tests", "test", "guest"),
        ];
        programs.extend(apps.map(|name| ("rdma-apps", "bin", name)));
        let built = |(folder, kind, name): &(&str, &str, &str)| {
            let message = serde_json::json!({
                "manifest_path": format!("/workspace/{folder}/Cargo.toml"),
                "target": {"name": name, "kind": [kind]},
                "profile": {"test": *kind == "test"},
                "executable": stage.path(&format!("bin/{name}")),
            });
            format!("echo '{message}'")
        };
        let built: Vec<String> = programs.iter().map(built).collect();
        stage.script("bin/cargo", &built.join("\n"));
        // It is told of `--strip-debug -o TO FROM`.
        stage.script("bin/strip", "cp $4 $3");
        for (.., name) in programs {
            stage.script(&format!("bin/{name}"), "exit 9");
        }
        // Devices live until the machine is off.
        stage.script(
            "bin/mlx5-device",
            "while [ $# -gt 0 ]; do [ $1 = --socket ] && touch $2; shift; done\n\
             [ \"$FAKE_DEVICE\" = dies ] && { until [ -e $STAGE/on ]; do sleep 0.02; done; exit 3; }\n\
             until [ -e $STAGE/off ]; do sleep 0.02; done",
        );
        stage.script(
            "bin/chroot",
            &format!(
                "shift\ncase \"$1 $2\" in\n\
                 apt-cache\\ depends) echo '  Depends: linux-image-{KERNEL}' ;;\n\
                 apt-cache\\ madison) echo \"linux-image-amd64 | $FAKE_NEWEST | http://archive.test sid/main\" ;;\n\
                 apt-get*) echo \"E: the archive is not there\" >&2; exit 100 ;;\n\
                 esac"
            ),
        );
        // QEMU, by what the case says.
        stage.script_at(
            &root.join("usr/lib64/ld-linux-x86-64.so.2"),
            "for word; do\n\
               case $word in file:*jobs.log) log=${word#file:} ;; *POLLUX_JOB=*) job=${word##*POLLUX_JOB=} ;; esac\n\
             done\n\
             touch $STAGE/on\n\
             case \"$FAKE_QEMU\" in\n\
             refuses) echo 'qemu-system-x86_64: -device vfio-user-pci: not a valid device model name' >&2; exit 1 ;;\n\
             hangs) exec sleep 600 ;;\n\
             esac\n\
             printf 'begin %s\\ntest result: ok. 3 passed; 0 failed\\nend %s ok\\nbegin dmesg\\n%s\\nend dmesg ok\\ndone\\n' $job $job \"$FAKE_LOG\" > $log\n\
             touch $STAGE/off",
        );
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn root(&self) -> PathBuf {
        self.path("cache/pollux/vm-trixie")
    }

    /// The kernel in the cache has these modules.
    fn kernel(&self, modules: &[&str]) {
        let folder = self.root().join("kernels").join(KERNEL);
        drop(fs::remove_dir_all(&folder));
        write(&folder.join(format!("boot/vmlinuz-{KERNEL}")), "");
        let below = folder.join("usr/lib/modules").join(KERNEL);
        let list: String = modules.iter().map(|name| format!("kernel/{name}.ko:\n")).collect();
        write(&below.join("modules.dep"), &list);
        for name in modules {
            write(&below.join(format!("kernel/{name}.ko")), "");
        }
    }

    fn script(&self, name: &str, text: &str) {
        self.script_at(&self.path(name), text);
    }

    fn script_at(&self, path: &Path, text: &str) {
        write(path, &format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux-xtask"));
        let usual = std::env::var("PATH").unwrap_or_default();
        command
            .arg("vm")
            .args(words.split_whitespace())
            .env("PATH", format!("{}:{usual}", self.path("bin").display()))
            .env("CARGO", self.path("bin/cargo"))
            .env("CARGO_TARGET_DIR", self.path("target"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("TMPDIR", self.path("tmp"))
            .env("STAGE", self.top.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end and looks at what it left.
    fn run(&self, words: &str, set: &[(&str, &str)]) -> Output {
        let begin = Instant::now();
        let done = self.command(words).envs(set.iter().copied()).output().expect("it starts");
        assert!(begin.elapsed() < LIMIT, "{words} took {:?}", begin.elapsed());
        self.is_clean();
        done
    }

    /// One line, of which this is a part, and a status.
    #[track_caller]
    fn fails(&self, words: &str, set: &[(&str, &str)], expected: &str) {
        let done = self.run(words, set);
        let (said, shown) = (text(&done.stderr), text(&done.stdout));
        assert_eq!(done.status.code(), Some(1), "{said}{shown}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with("xtask: "), "{said}");
        let line = last.lines().chain(shown.lines()).find(|line| line.contains(expected));
        assert!(line.is_some(), "no line with '{expected}':\n{said}{shown}");
    }

    /// A signal that comes when `on` is there ends it, and all that it started.
    #[track_caller]
    fn is_ended_by(&self, signal: &str, set: &[(&str, &str)]) {
        let running = self.command("--job mlx5-ib").envs(set.iter().copied()).spawn().expect("it starts");
        let begin = Instant::now();
        while !self.path("on").exists() {
            assert!(begin.elapsed() < LIMIT, "it did not come so far");
            std::thread::sleep(Duration::from_millis(20));
        }
        let sent = Command::new("kill").args([format!("-{signal}"), running.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()));
        let done = running.wait_with_output().expect("it ends");
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{signal}: {said}");
        assert_eq!(said.lines().last(), Some("xtask: interrupted: nothing is left running"), "{signal}");
        self.is_clean();
    }

    /// No process of it is there, and no folder of sockets.
    #[track_caller]
    fn is_clean(&self) {
        let left: Vec<_> =
            fs::read_dir(self.path("tmp")).expect("a folder").flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        let stages = fs::read_dir(self.root().join("kernels")).into_iter().flatten().flatten();
        let half =
            stages.map(|entry| entry.file_name().to_string_lossy().into_owned()).find(|name| name != KERNEL);
        assert_eq!(half, None, "left behind in the cache");
        let deadline = Instant::now() + Duration::from_secs(5);
        while let Some(process) = self.process() {
            assert!(Instant::now() < deadline, "still runs: {process}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A process that a run of this stage started.
    fn process(&self) -> Option<String> {
        let mark = format!("STAGE={}", self.top.path().display());
        fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
            let read =
                |name: &str| fs::read(entry.path().join(name)).map(|bytes| text(&bytes)).unwrap_or_default();
            let ours = read("environ").split('\0').any(|word| word == mark);
            // A zombie has ended.
            (ours && !read("stat").contains(") Z ")).then(|| read("cmdline").replace('\0', " "))
        })
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder above")).expect("a folder");
    fs::write(path, text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_job_that_passes_is_a_summary_and_status_0() {
    let stage = Stage::new();
    for job in ["uverbs-rxe", "verbs-rxe", "mlx5-ib"] {
        let done = stage.run(&format!("--job {job}"), &[]);
        let said = format!("{}{}", text(&done.stderr), text(&done.stdout));
        assert!(done.status.success(), "{said}");
        assert!(
            said.contains(&format!("vm: Linux {KERNEL}: {job}: ok; 3 tests passed, 0 failed, 0 skipped")),
            "{said}"
        );
        let last = text(&done.stdout).lines().last().unwrap_or_default().to_owned();
        assert!(
            last.starts_with(
                "xtask: vm: 1 jobs passed, 0 failed; 3 tests passed, 0 failed, 0 skipped, 1 kernels"
            ),
            "{said}"
        );
    }
}

#[test]
fn a_warning_of_the_kernels_fails_the_job() {
    let stage = Stage::new();
    let log = [("FAKE_LOG", "<4> mlx5_core 0000:01:00.0: cmd_work_handler failed")];
    stage.fails(
        "--job uverbs-rxe",
        &log,
        "the kernel complained: <4> mlx5_core 0000:01:00.0: cmd_work_handler failed",
    );
}

#[test]
fn a_job_that_is_not_there_is_told_of() {
    Stage::new().fails(
        "--job juggling",
        &[],
        "no job's name contains 'juggling'; jobs: uverbs-rxe, verbs-rxe",
    );
}

#[test]
fn without_root_it_says_so() {
    let stage = Stage::new();
    stage.script("bin/id", "echo 1000");
    stage.fails("--job uverbs-rxe", &[], "vm makes a Debian root and mounts: it needs root");
}

#[test]
fn no_registry() {
    // No root yet, and nobody who could make one; then one who cannot.
    let stage = Stage::new();
    fs::remove_dir_all(stage.root()).expect("it was there");
    stage.script("bin/mmdebstrap", "echo 'E: apt-get update failed' >&2; exit 25");
    stage.fails("--job uverbs-rxe", &[], "cannot make the guest's Debian root: `mmdebstrap ");
    assert!(!stage.root().exists());

    // A root without QEMU.
    let stage = Stage::new();
    fs::remove_file(stage.root().join("usr/bin/qemu-system-x86_64")).expect("it was there");
    stage.fails("--job uverbs-rxe", &[], "etc/apt does not answer: `chroot ");

    // A kernel that is not in the cache.
    let stage = Stage::new();
    fs::remove_dir_all(stage.root().join("kernels").join(KERNEL)).expect("it was there");
    stage.fails("--job uverbs-rxe", &[], "etc/apt does not answer: `chroot ");
}

#[test]
fn the_newest_kernel_is_taken_from_the_cache_where_the_archive_is_gone() {
    let stage = Stage::new();
    let done = stage.run("--all --job mlx5-ib", &[("FAKE_NEWEST", "6.99-1")]);
    let said = format!("{}{}", text(&done.stderr), text(&done.stdout));
    assert!(done.status.success(), "{said}");
    assert!(said.contains("taking the newest kernel that was known before"), "{said}");
    assert!(said.contains("2 jobs passed") && said.contains("2 kernels"), "{said}");
}

#[test]
fn no_qemu() {
    let stage = Stage::new();
    fs::remove_file(stage.root().join("usr/lib64/ld-linux-x86-64.so.2")).expect("it was there");
    stage.fails("--job mlx5-ib", &[], "cannot start QEMU (");
}

#[test]
fn qemu_that_does_not_start() {
    let refuses = [("FAKE_QEMU", "refuses")];
    let why = "QEMU ended with exit status: 1: qemu-system-x86_64: -device vfio-user-pci: not a valid device model name";
    Stage::new().fails("--job uverbs-rxe", &refuses, why);
}

#[test]
fn a_guest_that_hangs_is_ended() {
    let hangs = [("FAKE_QEMU", "hangs")];
    Stage::new().fails("--job uverbs-rxe --patience 0.01", &hangs, "the guest did not power off within ");
}

#[test]
fn devices_that_die_under_a_guest_are_one_line() {
    let dies = [("FAKE_QEMU", "hangs"), ("FAKE_DEVICE", "dies")];
    let why = "mlx5-device ended with exit status: 3 while the guest ran, which said: ";
    Stage::new().fails("--job mlx5-ib --patience 0.05", &dies, why);
}

#[test]
fn a_kernel_without_a_module_is_told_of() {
    let stage = Stage::new();
    stage.kernel(&["ib_uverbs", "mlx5_core"]);
    stage.fails(
        "--job uverbs-rxe",
        &[],
        &format!("Linux {KERNEL} has no module mlx5_ib: its jobs cannot run"),
    );
}

#[test]
fn a_signal_ends_guest_and_devices() {
    for signal in ["TERM", "INT"] {
        Stage::new().is_ended_by(signal, &[("FAKE_QEMU", "hangs")]);
    }
}

#[test]
fn a_signal_ends_what_a_build_or_a_download_started() {
    // A shell that ends does not take its child along.
    let hangs = "touch $STAGE/on; sleep 600; true";
    let stage = Stage::new();
    stage.script("bin/cargo", hangs);
    stage.is_ended_by("TERM", &[]);

    let stage = Stage::new();
    fs::remove_dir_all(stage.root().join("kernels").join(KERNEL)).expect("it was there");
    stage.script(
        "bin/chroot",
        &format!(
            "shift\ncase $1 in apt-cache) echo '  Depends: linux-image-{KERNEL}' ;; apt-get) ;; *) {hangs} ;; esac"
        ),
    );
    stage.is_ended_by("TERM", &[]);

    // One that does not heed it is ended without its leave.
    let stage = Stage::new();
    stage.script("bin/cargo", &format!("(trap '' TERM; {hangs}) & wait"));
    stage.is_ended_by("TERM", &[]);
}
