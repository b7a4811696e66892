//! What connecting and stream sockets cost beside librdmacm's, both ends ours and both ends the originals' in turn, on rxe0. Under
//! emulation: what a system call or a look at memory costs is another machine's, so it is the ratio that counts.

use std::process::Command;

use super::by_address::{original, serve};
use super::rping::listens;
use super::{Device, LIMIT};
use crate::bed::{here, ours, wait};
use pollux_tests::program::Running;

/// Of each side; the first is not kept.
const TRIALS: usize = 5;

/// A figure: program and words of both ends, and where it is in what the client says.
struct Figure {
    name: &'static str,
    program: &'static str,
    words: &'static str,
    read: fn(&str) -> Option<f64>,
}

const FIGURES: [Figure; 4] = [
    Figure {
        name: "rsocket, a message of 64 bytes there and back, us",
        program: "rstream",
        words: "-S 64 -C 1 -I 3000",
        read: transfer,
    },
    Figure {
        name: "rsocket, a message of 4 KiB there and back, us",
        program: "rstream",
        words: "-S 4096 -C 1 -I 1000",
        read: transfer,
    },
    Figure {
        name: "rsocket, a stream in messages of 64 KiB, us a message",
        program: "rstream",
        words: "-S 65536 -C 100 -I 4",
        read: transfer,
    },
    Figure { name: "cmtime, us a connection", program: "cmtime", words: "-c 100", read: connection },
];

/// Microseconds of a transfer: the last word of `rstream`'s row.
fn transfer(said: &str) -> Option<f64> {
    said.lines().last()?.split_whitespace().last()?.parse().ok()
}

/// Microseconds of a connection with its queue pair, from its ID to established, of `cmtime`'s first table.
fn connection(said: &str) -> Option<f64> {
    let row = said.lines().find_map(|line| line.strip_prefix("full connect"))?;
    row.split_whitespace().next()?.parse().ok()
}

/// Ours, as users build it, on an lcore.
fn released(name: &str, lcore: &str, words: &[&str]) -> Command {
    let mut command = Command::new(ours(&format!("{name}-release")));
    command.args(["-l", lcore, "--no-huge", "--"]).args(words);
    command
}

/// The original, which the kernel puts where it likes.
fn theirs(name: &str, _lcore: &str, words: &[&str]) -> Command {
    original(name, words)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn trial(figure: &Figure, port: &str, make: fn(&str, &str, &[&str]) -> Command) -> f64 {
    let words = |role| -> Vec<&str> {
        let end = [role, "10.0.0.1", "-p", port];
        end.into_iter().chain(figure.words.split(' ')).collect()
    };
    wait("the port of the run before", LIMIT, || (!listens(port)).then_some(()));
    // It ends with its client, or is ended: the original's last test, without queue pairs, does not always pass.
    let _server = serve(make(figure.program, "1", &words("-b")), port);
    let client = Running::start(make(figure.program, "0", &words("-s"))).finish(LIMIT);
    let read = (figure.read)(&client.stdout);
    read.unwrap_or_else(|| panic!("{}: no figure in {}{:?}", figure.name, client.stdout, client.stderr))
}

#[test]
fn beside_the_originals() {
    if !here() {
        return;
    }
    let _ready = Device::new("rxe0");
    for figure in &FIGURES {
        let [mut our, mut their] = [Vec::new(), Vec::new()];
        for trial_number in 0..=TRIALS {
            let pair = [trial(figure, "7600", released), trial(figure, "7600", theirs)];
            if trial_number > 0 {
                our.push(pair[0]);
                their.push(pair[1]);
            }
        }
        let ratios = our.iter().zip(&their).map(|(our, their)| our / their).collect();
        let (our, their) = (median(our), median(their));
        println!("{}: ours {our:.1}, librdmacm's {their:.1}, ratio {:.2}", figure.name, median(ratios));
    }
}

/// Rows as the programs print them.
#[test]
fn figures_are_read_from_what_is_said() {
    let row = "custom    64      1       3k      375k        0.50s      0.01      83.10\n";
    assert_eq!(transfer(row), Some(83.1));
    let table = "qp_conn               100\nthreads                 1\nstep   ...\n\
                 full connect        1500     150000          0          0       9000        700\n\
                 create id             10       1000         10       1000         20          5\n";
    assert_eq!(connection(table), Some(1500.0));
    assert_eq!((transfer(""), connection("")), (None, None));
}
