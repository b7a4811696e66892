//! Alarms: what is to be done once, at a time, away from the lcores.
//!
//! `cargo run -p pollux-eal --example alarm`

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use pollux_config::EalSpec;
use pollux_eal::Eal;

fn main() -> Result<(), Box<dyn Error>> {
    let eal = Eal::init(EalSpec::default())?;
    let alarms = eal.alarms();
    let (tell, told) = mpsc::channel();

    let late = tell.clone();
    alarms.set(Duration::from_millis(40), move || say(&late, "forty milliseconds are over"))?;
    // One that sets the next.
    let again = alarms.clone();
    alarms.set(Duration::from_millis(10), move || {
        say(&tell, "ten milliseconds are over");
        if again.set(Duration::from_millis(10), move || say(&tell, "and ten more")).is_err() {
            println!("the environment ends");
        }
    })?;
    let never = alarms.set(Duration::from_secs(60), || println!("nobody waits for this"))?;
    println!("a minute is too long: {:?}", never.cancel());

    // The last sender goes with its callback.
    for line in told {
        println!("{line}");
    }
    Ok(())
}

fn say(to: &mpsc::Sender<&'static str>, line: &'static str) {
    // Nobody listens once the program ends.
    let _ = to.send(line);
}

#[test]
fn runs() {
    main().expect("runs");
}
