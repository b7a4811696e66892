//! The rule files, read at the start and again when they change.
//!
//! A file is looked at several times a second, and read when two looks in a row saw the same change: who writes it is done then. Rules that are
//! wrong leave those in force as they are.

use std::path::Path;

use pollux_eal::rcu::Publisher;
use pollux_kit::WatchedFile;
use pollux_port::PortId;

use crate::assignment::Ports;
use crate::rule::Rules;
use crate::table::Table;

/// The largest rule file.
const BYTES_MAX: u64 = 1 << 30;
/// Ports that have rules by default, as in DPDK.
const DEFAULT_PORTS: u16 = 16;

/// The rule files of IPv4 and IPv6.
#[derive(Debug)]
pub(crate) struct RuleFiles {
    files: [Option<WatchedFile>; 2],
    ports: Ports,
}

impl RuleFiles {
    pub(crate) fn new(v4: Option<&Path>, v6: Option<&Path>, ports: Ports) -> Self {
        Self { files: [v4, v6].map(|path| path.map(WatchedFile::new)), ports }
    }

    /// Reads them: a table, and a line that says how many rules it has.
    ///
    /// # Errors
    /// A line: a file that cannot be read, or a rule that is wrong.
    pub(crate) fn load<T: Table>(&mut self) -> Result<(T, String), String> {
        let ids = self.ports.ids();
        let mut rules = Vec::new();
        for (family, file) in self.files.iter_mut().enumerate() {
            rules.push(match file {
                Some(file) => Rules::of_file(file.path().display().to_string(), file.read(BYTES_MAX)?),
                None => by_default::<T>(family, &ids)?,
            });
        }
        let [v4, v6] = &rules[..] else { unreachable!("there are two families") };
        let table = T::build(v4, v6, &self.ports)?;
        let one = |(family, count): (&str, usize), file: &Option<WatchedFile>| {
            let of = file
                .as_ref()
                .map_or_else(|| "by default".into(), |file| format!("of {}", file.path().display()));
            format!("{count} {family} rules {of}")
        };
        let [four, six] = table.lens();
        let lens = [("IPv4", four), ("IPv6", six)];
        let told = lens.into_iter().zip(&self.files).map(|(len, file)| one(len, file));
        Ok((table, told.collect::<Vec<_>>().join(", ")))
    }

    /// Takes over what has changed, whole or not at all: what there is to say. To be called again and again.
    pub(crate) fn look<T: Table>(&mut self, tables: &mut Publisher<T>) -> Vec<String> {
        // Each is looked at, whatever the other is.
        let changed = self.files.iter_mut().flatten().map(WatchedFile::has_changed);
        if !changed.fold(false, |any, changed| any | changed) {
            return Vec::new();
        }
        vec![match self.load() {
            Ok((table, told)) => {
                tables.publish(table);
                format!("rules taken over: {told}")
            }
            Err(why) => format!("{why}; the rules in force stay"),
        }]
    }
}

fn by_default<T: Table>(family: usize, ports: &[PortId]) -> Result<Rules, String> {
    if T::default_rules(0).is_none() {
        let option = ["--rule_ipv4", "--rule_ipv6"][family];
        return Err(format!("{option} is required: this look-up has no rules by default"));
    }
    let ports = ports.iter().filter(|port| port.0 < DEFAULT_PORTS);
    let lines = ports.filter_map(|port| T::default_rules(port.0)).map(|lines| lines[family].clone());
    Ok(Rules::by_default(lines))
}
