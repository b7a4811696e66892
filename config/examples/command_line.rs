//! Says what a command line means: `cargo run -p pollux-config --example command_line -- -l 0-3 --vdev net_null0`.

use pollux_config::CommandLine;

fn main() {
    match CommandLine::parse(std::env::args_os()) {
        Ok(line) => {
            line.warnings.iter().for_each(|warning| println!("note: {warning}"));
            match &line.eal.lcores {
                Some(map) => println!("lcores: {map}"),
                None => println!("lcores: all that this process may use"),
            }
            line.ports.iter().for_each(|port| println!("port: {} by {}", port.device, port.device.driver));
            println!("for the app: {:?}", line.app);
        }
        Err(error) => println!("{error}"),
    }
}
