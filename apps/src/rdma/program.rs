//! The frame of an RDMA program: a device, an lcore of its own, the end.

use pollux_bringup::program::say;
use pollux_bringup::{BringupError, RdmaBringup, RdmaDevice};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;

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
        suggest(&line.program);
    }
    let RdmaBringup { devices, eal, .. } = &mut RdmaBringup::new(line, wanted)?;
    let place = devices.iter().position(|device| wanted.is_none_or(|wanted| device.name == wanted));
    // One that is named is opened, if need be under the kernel's own name for it: the last.
    let device = devices.swap_remove(place.unwrap_or(devices.len() - 1));
    let main = eal.lcores().main();
    let launched = eal.launch(main, move |lcore| work(lcore, &device))?;
    match launched.wait() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => failure.end(),
        Err(panicked) => Err(BringupError::Runtime(panicked.to_string())),
    }
}

/// Two commands that work on any machine.
fn suggest(program: &str) {
    let command = |lcore, own, other, rest| {
        say(format_args!(
            "  {program} -l {lcore} --vdev mlx5_model0,wire=unix:/tmp/{own}:/tmp/{other} --{rest}"
        ));
    };
    let gid = if program.ends_with("pingpong") { " -g 0" } else { "" };
    say(format_args!("{program}: to run on any machine between two device models, start in two shells:"));
    command(0, "a", "b", gid.to_owned());
    command(1, "b", "a", format!("{gid} 127.0.0.1"));
}
