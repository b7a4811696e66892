//! What programs tell of their drivers: ours, DPDK's, and files that are damaged.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pollux_bringup::Drivers;
use pollux_doctor::pmdinfo::read;
use pollux_tests::require::{Need, dpdk_script, require};
use serde_json::Value;

use crate::program::{End, refused, run, script};

const OWN: &str = env!("CARGO_BIN_EXE_doctor");

fn told(arguments: &[&str]) -> End {
    run(env!("CARGO_BIN_EXE_pmdinfo"), arguments)
}

fn drivers(arguments: &[&str]) -> Vec<Value> {
    let end = told(arguments);
    assert_eq!((end.status, end.stderr.as_str()), (0, ""), "{arguments:?}");
    serde_json::from_str(&end.stdout).expect("JSON")
}

#[test]
fn a_program_that_opens_ports_tells_of_every_driver() {
    // A test is a program, too, and this one opens ports.
    let program = std::env::current_exe().expect("its file").display().to_string();
    let drivers = drivers(&[&program]);
    let names: BTreeSet<&str> = drivers.iter().filter_map(|driver| driver["name"].as_str()).collect();
    let built_in = Drivers::new();
    let expected: BTreeSet<&str> = built_in.names().chain(["mlx5_eth"]).collect();
    assert_eq!((names, drivers.len()), (expected.clone(), expected.len()), "each once");
    let driver = |name: &str| drivers.iter().find(|driver| driver["name"] == name).expect(name);
    assert_eq!(driver("net_null")["params"], "size=<int> copy=<0|1> no-rx=<0|1>");
    assert_eq!(driver("net_ring").get("params"), None);
    let card = driver("mlx5_eth");
    assert_eq!(card["kmod"], "* ib_uverbs & mlx5_core & mlx5_ib");
    assert_eq!(card["pci_ids"][0], serde_json::json!({"vendor": "15b3", "device": "1013"}));
    assert!(card["params"].as_str().is_some_and(|params| params.contains(" mprq_en=<0|1> ")), "{card}");
}

#[test]
fn a_program_tells_of_what_it_can_open_alone() {
    let names = |program| drivers(&[program]).iter().map(|driver| driver["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(OWN), ["mlx5_eth"], "the card of --report");
    assert!(names(env!("CARGO_BIN_EXE_rss-flows")).is_empty());
}

#[test]
fn a_file_that_is_none_is_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("text");
    fs::write(&text, "no program\n").expect("written");
    let short = folder.path().join("short");
    fs::write(&short, b"\x7fELF\x02\x01\x01").expect("written");
    let shown = |path: &Path| path.display().to_string();
    let none = shown(&folder.path().join("none"));
    for (file, said) in [
        (none.as_str(), "cannot be read: No such file or directory"),
        (&shown(folder.path()), "is a directory; give a program or a shared library"),
        ("/dev/zero", "is no regular file"),
        (&shown(&text), "is no ELF file that can be read"),
        (&shown(&short), "is no ELF file that can be read"),
    ] {
        let end = told(&[OWN, file]);
        refused(&end, 1, &format!("pmdinfo: {file}: {said}"));
        assert_eq!(end.stderr.lines().count(), 1, "{end:?}");
    }
    assert_eq!(told(&[]).status, 2);
}

/// A small ELF file with libraries, to be damaged.
const SMALL: &str = "/usr/bin/true";

#[test]
fn a_damaged_file_never_panics() {
    let whole = fs::read(SMALL).expect("a program of every Linux");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("damaged");
    let look = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("written");
        read(std::slice::from_ref(&file), true).is_ok()
    };
    assert!(look(&whole), "it is read when it is whole");
    for at in 0..400 {
        let _may_be_read = look(&whole[..whole.len() * at / 400]);
    }
    // Headers of the file and its sections, where damage does most; anywhere else, too.
    let sections = u64::from_le_bytes(whole[40..48].try_into().expect("e_shoff")) as usize;
    for seed in 0..1500_u64 {
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut roll = |sides: usize| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            (dice % sides as u64) as usize
        };
        let mut bytes = whole.clone();
        for _ in 0..=roll(8) {
            let at = match roll(3) {
                0 => roll(64),
                1 => sections + roll(whole.len() - sections),
                _ => roll(whole.len()),
            };
            bytes[at] = [0, 0xff, 0x7f, roll(256) as u8][roll(4)];
        }
        let _may_be_read = look(&bytes);
    }
}

/// In an order of their own: the script's is that of a set.
fn sorted(mut drivers: Vec<Value>) -> Vec<String> {
    drivers.sort_by_key(Value::to_string);
    drivers.iter().map(Value::to_string).collect()
}

#[test]
fn dpdks_script_tells_the_same() {
    if !require(&[Need::PmdInfo]) {
        return;
    }
    let original = dpdk_script("dpdk-pmdinfo.py").expect("it is there");
    let theirs = |arguments: &[&str]| {
        let end = script(&original, arguments);
        assert_eq!(end.status, 0, "{arguments:?}: {end:?}");
        end.stdout
    };
    let this = std::env::current_exe().expect("its file").display().to_string();
    let mut files = vec![this, OWN.to_owned(), env!("CARGO_BIN_EXE_rss-flows").to_owned()];
    files.extend(plugins().iter().map(|plugin| plugin.display().to_string()));
    for file in &files {
        let (ours, theirs) = (told(&[file]).stdout, theirs(&[file]));
        // Libraries that a plugin needs may have drivers, too, and come in any order.
        assert_eq!(json(&ours), json(&theirs), "{file}");
        assert!(file.contains("/librte_") || ours == theirs, "{file}: one file's to the byte");
    }
    // A program of DPDK's, whose drivers are in libraries.
    let program = dpdk_script("dpdk-testpmd").expect("it is there").display().to_string();
    assert_eq!(sorted(drivers(&[&program])), json(&theirs(&[&program])));
    // The script tells of a plugin once for each link to it.
    let (ours, theirs) = (sorted(drivers(&["-p", &program])), json(&theirs(&["-p", &program])));
    let set = |drivers: &[String]| drivers.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(set(&ours), set(&theirs));
    assert!(ours.iter().any(|driver| driver.contains("\"mlx5_eth\"")), "{ours:?}");
}

fn json(text: &str) -> Vec<String> {
    sorted(serde_json::from_str(text).expect("JSON"))
}

/// DPDK's drivers as libraries.
fn plugins() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let folders = fs::read_dir("/usr/lib/x86_64-linux-gnu/dpdk").into_iter().flatten().flatten();
    for folder in folders {
        let files = fs::read_dir(folder.path()).into_iter().flatten().flatten().map(|file| file.path());
        let wanted =
            ["librte_net_mlx5.so", "librte_net_af_packet.so", "librte_net_i40e.so", "librte_net_pcap.so"];
        found.extend(files.filter(|file| wanted.iter().any(|name| file.ends_with(name))));
    }
    assert!(!found.is_empty(), "Debian's dpdk-dev has drivers");
    found
}

#[test]
fn nothing_is_told_twice() {
    let once = read(&[OWN.into()], false).expect("read");
    let twice = read(&[OWN.into(), OWN.into()], false).expect("read");
    assert_eq!(once, twice);
    assert_eq!(once.drivers.len(), 1);
}
