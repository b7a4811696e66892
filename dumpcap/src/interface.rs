//! The ports of the application that were asked for, and their filters.

use pollux_capture::bpf::Instruction;
use pollux_capture::{InterfaceRequest, Port, Program, SNAPLEN_MAX};
use pollux_frame_io::pcap::PcapInterface;

use crate::error::DumpcapError;
use crate::filter;
use crate::options::{Filter, Wanted};

/// A port to capture from.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) port: Port,
    snaplen: u32,
    filter: Option<Filter>,
    program: Option<Vec<Instruction>>,
    name: Option<String>,
    description: Option<String>,
}

/// The program of a filter.
pub(crate) fn compile(wanted: &Wanted) -> Result<Option<Vec<Instruction>>, DumpcapError> {
    let program = match &wanted.filter {
        None => return Ok(None),
        Some(Filter::Text(text)) => {
            filter::compile(text).map_err(|error| DumpcapError::Usage(format!("filter '{text}': {error}")))?
        }
        Some(Filter::Code(path)) => {
            let text = std::fs::read_to_string(path).map_err(|source| DumpcapError::File {
                operation: "read",
                path: path.clone(),
                source,
            })?;
            let program = filter::from_numbers(&text).map_err(|error| error.to_string());
            // The application verifies it too; here the message can name the file.
            let verified = program.and_then(|program| {
                Program::verify(&program).map_err(|error| error.to_string()).map(|_| program)
            });
            let named = |error| DumpcapError::Usage(format!("filter {}: {error}", path.display()));
            Some(verified.map_err(named)?)
        }
    };
    Ok(program)
}

impl Interface {
    /// Finds the ports that are wanted among those that there are.
    pub(crate) fn find(wanted: &[Wanted], ports: &[Port]) -> Result<Vec<Self>, DumpcapError> {
        let mut found: Vec<Self> = Vec::new();
        for wanted in wanted {
            let port = find(wanted.port.as_deref(), ports)?.clone();
            if found.iter().any(|other| other.port.id == port.id) {
                return Err(DumpcapError::Usage(format!("port {} ({}) is named twice", port.id, port.name)));
            }
            found.push(Self {
                port,
                snaplen: wanted.snaplen.unwrap_or(SNAPLEN_MAX),
                filter: wanted.filter.clone(),
                program: compile(wanted)?,
                name: wanted.name.clone(),
                description: wanted.description.clone(),
            });
        }
        Ok(found)
    }

    /// What is asked of the application.
    pub(crate) fn request(&self) -> InterfaceRequest {
        InterfaceRequest { port: self.port.id, snaplen: self.snaplen, filter: self.program.clone() }
    }

    /// What the file says of it.
    pub(crate) fn describe(&self) -> PcapInterface {
        let Port { name, driver, device, mac, mbps, .. } = &self.port;
        let usual = || match device {
            Some(device) => format!("{driver} {device}"),
            None => driver.clone(),
        };
        PcapInterface {
            name: self.name.clone().unwrap_or_else(|| name.clone()),
            description: self.description.clone().unwrap_or_else(usual),
            mac: *mac,
            bits_per_second: (*mbps > 0).then(|| u64::from(*mbps) * 1_000_000),
            filter: match &self.filter {
                Some(Filter::Text(text)) => text.clone(),
                _ => String::new(),
            },
            snaplen: self.snaplen,
        }
    }
}

fn find<'a>(wanted: Option<&str>, ports: &'a [Port]) -> Result<&'a Port, DumpcapError> {
    let Some(wanted) = wanted else {
        return ports.first().ok_or_else(|| DumpcapError::Usage("the program has no ports".into()));
    };
    let named = ports.iter().find(|port| port.name == wanted);
    let found = named.or_else(|| ports.iter().find(|port| wanted.parse() == Ok(port.id)));
    found.ok_or_else(|| {
        let there: Vec<String> = ports.iter().map(|port| format!("{} ({})", port.name, port.id)).collect();
        let there = if there.is_empty() { "none".into() } else { there.join(", ") };
        DumpcapError::Usage(format!("there is no port '{wanted}'; ports: {there}"))
    })
}
