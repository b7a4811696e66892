//! The frame of an RDMA program: a device, an lcore of its own, the end.

use pollux_bringup::program::say;
use pollux_bringup::{BringupError, RdmaBringup, RdmaDevice};
use pollux_config::CommandLine;
use pollux_eal::{Eal, LcoreContext};

use super::Failure;

/// Brings up the devices and runs `work` on the main lcore, on the device that `wanted` names, or the first.
///
/// # Errors
/// One line.
pub fn run<W>(line: &CommandLine, wanted: Option<&str>, work: W) -> Result<(), BringupError>
where
    W: FnOnce(&LcoreContext, &RdmaDevice) -> Result<(), Failure> + Send + 'static,
{
    if line.ports.is_empty() && wanted.is_none() {
        let gid = if line.program.ends_with("pingpong") { " -g 0" } else { "" };
        let client = format!("{gid} 127.0.0.1");
        suggest(&line.program, [(&line.program, gid), (&line.program, &client)], ["", ""]);
    }
    let RdmaBringup { devices, eal, .. } = &mut RdmaBringup::new(line, wanted)?;
    let device = chosen(devices, wanted);
    on_main_lcore(eal, move |lcore| work(lcore, &device))
}

/// Takes the device that `wanted` names out of those that were opened, or the first.
///
/// # Panics
/// None was opened.
#[must_use]
pub fn chosen(devices: &mut Vec<RdmaDevice>, wanted: Option<&str>) -> RdmaDevice {
    let place = devices.iter().position(|device| wanted.is_none_or(|wanted| device.name == wanted));
    // One that is named is opened, if need be under the kernel's own name for it: the last.
    devices.swap_remove(place.unwrap_or(devices.len() - 1))
}

/// Runs `work` on the main lcore, and waits for its end.
///
/// # Errors
/// One line.
pub fn on_main_lcore<W>(eal: &Eal, work: W) -> Result<(), BringupError>
where
    W: FnOnce(&LcoreContext) -> Result<(), Failure> + Send + 'static,
{
    match eal.launch(eal.lcores().main(), work)?.wait() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => failure.end(),
        Err(panicked) => Err(BringupError::Runtime(panicked.to_string())),
    }
}

/// Prints, as the program `own`, two commands that work on any machine: programs and options of server and client, with keys of their
/// models.
pub fn suggest(own: &str, commands: [(&str, &str); 2], keys: [&str; 2]) {
    say(format_args!("{own}: to run on any machine between two device models, start in two shells:"));
    for (lcore, ((program, options), keys)) in commands.into_iter().zip(keys).enumerate() {
        let (own, other) = if lcore == 0 { ("a", "b") } else { ("b", "a") };
        say(format_args!(
            "  {program} -l {lcore} --vdev mlx5_model0,wire=unix:/tmp/{own}:/tmp/{other}{keys} --{options}"
        ));
    }
}
