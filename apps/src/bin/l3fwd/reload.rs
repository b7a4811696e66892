//! The rule files, read at the start and again when they change.
//!
//! A file is looked at several times a second, and read when two looks in a row saw the same change: who writes it is done then. Rules that are
//! wrong leave those in force as they are.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pollux_eal::rcu::Publisher;
use pollux_port::PortId;

use crate::assignment::Ports;
use crate::rule::Rules;
use crate::table::Table;

/// The largest rule file.
const BYTES_MAX: u64 = 1 << 30;
/// Ports that have rules by default, as in DPDK.
const DEFAULT_PORTS: u16 = 16;

/// What tells one content of a file from another: device, inode, bytes, and the times of the last change of content and of inode.
type Stamp = (u64, u64, u64, [i64; 4]);

fn stamp(file: &Metadata) -> Stamp {
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
    (file.dev(), file.ino(), file.len(), times)
}

/// A rule file.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    /// As it was when it was read; none: it was not there.
    read: Option<Stamp>,
    /// As it was at the last look.
    seen: Option<Stamp>,
}

impl Watched {
    fn new(path: &Path) -> Self {
        Self { path: path.into(), read: None, seen: None }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Whether it is another one than was read, and has been so since the last look.
    fn has_changed(&mut self) -> bool {
        let now = fs::metadata(&self.path).ok().as_ref().map(stamp);
        let before = std::mem::replace(&mut self.seen, now);
        now == before && now != self.read
    }

    fn read(&mut self) -> Result<Rules, String> {
        self.read = None;
        let name = self.name();
        let cannot = |why: &dyn std::fmt::Display| format!("cannot read {name}: {why}");
        let file = fs::metadata(&self.path).map_err(|why| cannot(&why))?;
        self.read = Some(stamp(&file));
        if !file.is_file() {
            return Err(cannot(&"it is not a regular file"));
        }
        if file.len() > BYTES_MAX {
            return Err(cannot(&format!("it has {} bytes, and {BYTES_MAX} are the most", file.len())));
        }
        let text = fs::read(&self.path).map_err(|why| cannot(&why))?;
        Ok(Rules::of_file(self.name(), String::from_utf8_lossy(&text).into_owned()))
    }
}

/// The rule files of IPv4 and IPv6.
#[derive(Debug)]
pub(crate) struct RuleFiles {
    files: [Option<Watched>; 2],
    ports: Ports,
}

impl RuleFiles {
    pub(crate) fn new(v4: Option<&Path>, v6: Option<&Path>, ports: Ports) -> Self {
        Self { files: [v4, v6].map(|path| path.map(Watched::new)), ports }
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
                Some(file) => file.read()?,
                None => by_default::<T>(family, &ids)?,
            });
        }
        let [v4, v6] = &rules[..] else { unreachable!("there are two families") };
        let table = T::build(v4, v6, &self.ports)?;
        let one = |(family, count): (&str, usize), file: &Option<Watched>| {
            let of = file.as_ref().map_or_else(|| "by default".into(), |file| format!("of {}", file.name()));
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
        let changed = self.files.iter_mut().flatten().map(Watched::has_changed);
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
