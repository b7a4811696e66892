//! asyncwatch: rdma-core's `ibv_asyncwatch`.

use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use pollux_bringup::{BringupError, RdmaBringup, program};
use pollux_eal::event::EventSet;
use pollux_verbs::{AsyncKind, Element};

/// asyncwatch: prints the asynchronous events of an RDMA device, like rdma-core's ibv_asyncwatch. Stop it with Ctrl-C.
#[derive(Parser)]
struct Options {
    /// RDMA device to watch [default: the first one named by --vdev or -a]
    #[arg(short = 'd', long, value_name = "DEV")]
    ib_dev: Option<String>,
}

fn main() -> ExitCode {
    program::main(|line, options: Options| {
        let RdmaBringup { devices, eal, .. } = &RdmaBringup::new(line, options.ib_dev.as_deref())?;
        let wanted = |name: &str| options.ib_dev.as_ref().is_none_or(|wanted| name == wanted);
        let device =
            devices.iter().find(|device| wanted(&device.name)).unwrap_or(&devices[devices.len() - 1]);
        let context = &device.context;
        program::tell(format_args!("{}: async event FD {}", device.name, context.events_fd().as_raw_fd()));
        let stop = eal.stop_flag();
        let mut set = EventSet::new()?;
        set.add(context.events_fd(), 0)?;
        set.add(&stop, 1)?;
        while !stop.is_set() {
            let _ = set.wait(Some(Duration::from_secs(1)))?.count();
            while let Some(event) = context.next_event()? {
                let port = if let Element::Port(port) = event.element { port } else { 0 };
                let name =
                    event.kind.name().map_or("unexpected".to_owned(), |name| format!("IBV_EVENT_{name}"));
                program::tell(format_args!("  event_type {name} ({}), port {port}", event.kind.0));
                if event.kind == AsyncKind::DEVICE_FATAL {
                    return Err(BringupError::Runtime(format!("{} is gone", device.name)));
                }
            }
        }
        Ok(())
    })
}
