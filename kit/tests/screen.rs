//! The screen on a terminal: it is given back however the program ends.

use std::process::Command;

use pollux_bringup::Bringup;
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_kit::{Console, Meter, Sampler, Screen};
use pollux_tests::terminal::OnTerminal;

/// How the program below ends; it runs only with this.
const END: &str = "POLLUX_SCREEN_END";

/// Not a test but a program with a screen, which the tests start.
#[test]
fn a_program_with_a_screen() {
    let Ok(end) = std::env::var(END) else { return };
    let line = CommandLine::parse("screen -l 0 --no-huge --vdev net_null0".split(' ')).expect("a line");
    let bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
    let meter = Meter::of_ports(&[pollux_port::PortId(0)]);
    let sampler = Sampler::new("screen", &meter, bringup.view());
    let Some(mut screen) = Screen::open(Console { json: false }, sampler) else {
        println!("no screen here");
        return;
    };
    screen.say("a line for the screen".into());
    assert!(screen.step(), "drawn");
    match end.as_str() {
        "return" => {}
        "panic" => panic!("the main thread fails"),
        "lcore" => {
            let main = bringup.eal.lcores().main();
            let failing = bringup.eal.launch(main, |_: &LcoreContext| panic!("an lcore fails"));
            let ended = failing.expect("launched").wait();
            assert!(ended.is_err() && !screen.step(), "the terminal is given back already");
        }
        _ => while screen.step() {},
    }
    drop(screen);
    println!("after the screen");
}

fn program(end: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "a_program_with_a_screen", "--nocapture", "--test-threads=1"]);
    command.env(END, end).env("TERM", "xterm-256color").env_remove("NO_COLOR");
    command
}

const TAKEN: &str = "\x1b[?1049h";
const GIVEN_BACK: &str = "\x1b[?1049l";
const CURSOR: &str = "\x1b[?25h";

/// What was sent after the terminal was given back.
fn after(sent: &str) -> String {
    let (before, after) = sent.split_once(GIVEN_BACK).unwrap_or_else(|| panic!("not given back: {sent:?}"));
    assert!(before.contains(TAKEN) && before.contains("net_null0"), "{before:?}");
    assert!(before.contains("a line for the screen"), "{before:?}");
    assert!(after.contains(CURSOR), "the cursor is hidden: {after:?}");
    after.into()
}

#[test]
fn the_terminal_is_given_back_at_every_end() {
    for (end, said) in [
        ("return", "after the screen"),
        ("key", "after the screen"),
        ("panic", "the main thread fails"),
        ("lcore", "an lcore fails"),
    ] {
        let mut running = OnTerminal::start(&program(end), 100, 30);
        let modes = running.modes();
        running.wait_for(TAKEN);
        if end == "key" {
            running.wait_for("a line for the screen");
            assert_ne!(running.modes(), modes, "keys are seen one by one");
            running.keys(b"xq");
        }
        let status = running.end();
        assert_eq!(status.success(), end != "panic", "{end}: {status} {:?}", running.sent());
        let after = after(&running.sent());
        assert!(after.contains(said), "{end}: the message is not on the screen that is gone: {after:?}");
        assert_eq!(running.modes(), modes, "{end}");
    }
}

#[test]
fn there_is_no_screen_on_a_dumb_terminal_or_none() {
    for term in ["dumb", ""] {
        let mut running = OnTerminal::start(program("key").env("TERM", term), 100, 30);
        assert!(running.end().success());
        assert!(running.sent().contains("no screen here") && !running.sent().contains(TAKEN), "{term}");
    }
    let piped = program("key").output().expect("the program");
    let said = String::from_utf8_lossy(&piped.stdout);
    assert!(piped.status.success() && said.contains("no screen here"), "{said}");
}

#[test]
fn no_color_is_honoured() {
    // SGR 36 or 38: a colour of the foreground.
    let coloured = |sent: &str| sent.contains("\x1b[36m") || sent.contains("\x1b[38;5;");
    let mut running = OnTerminal::start(&program("return"), 100, 30);
    assert!(running.end().success() && coloured(&running.sent()), "{:?}", running.sent());
    let mut running = OnTerminal::start(program("return").env("NO_COLOR", "1"), 100, 30);
    assert!(running.end().success() && !coloured(&running.sent()), "{:?}", running.sent());
}
