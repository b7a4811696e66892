//! TOML profiles: options and ports in a file.
//!
//! ```toml
//! [eal]                            # keys: the EAL's long options
//! lcores = "0-1"
//! no-huge = true
//! log-level = ["notice", "lib.eal:debug"]
//!
//! [app]                            # keys: the app's long options
//! duration = 10
//!
//! [[port]]                         # one for each port
//! device = "net_null0,size=64"
//! rx-descriptors = 512
//! ```
//!
//! A key says what the option of that name says, and the command line wins over it, key by key. Ports named on the
//! command line take the place of all ports of the profile.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::{Spanned, Value};

use crate::{ConfigError, PortSpec, QueueSpec, TomlFile};

type Keys = BTreeMap<Spanned<String>, Spanned<Value>>;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    eal: Keys,
    #[serde(default)]
    app: Keys,
    #[serde(default)]
    port: Vec<PortTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PortTable {
    device: Spanned<String>,
    rx_queues: Option<u16>,
    tx_queues: Option<u16>,
    rx_descriptors: Option<u16>,
    tx_descriptors: Option<u16>,
    mtu: Option<u32>,
    promiscuous: Option<bool>,
    scatter: Option<bool>,
    max_lro: Option<u32>,
}

/// A profile as read: its options still as command-line words, each with its place in the file.
#[derive(Debug)]
pub(crate) struct Profile {
    file: TomlFile,
    pub(crate) eal: Vec<Setting>,
    pub(crate) app: Vec<Setting>,
    pub(crate) ports: Vec<PortSpec>,
}

/// One key of the tables `[eal]` or `[app]`.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The long option's name.
    pub(crate) key: String,
    /// What it would be on a command line; empty for `false`.
    pub(crate) words: Vec<String>,
    offset: usize,
}

impl Profile {
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::of(TomlFile::read(path)?)
    }

    pub(crate) fn of(file: TomlFile) -> Result<Self, ConfigError> {
        let document: Document = file.parse()?;
        let mut profile = Self { file, eal: Vec::new(), app: Vec::new(), ports: Vec::new() };
        profile.eal = profile.settings(document.eal)?;
        profile.app = profile.settings(document.app)?;
        for table in document.port {
            let port = profile.port(table)?;
            profile.ports.push(port);
        }
        Ok(profile)
    }

    /// `error` with the place of the setting that caused it.
    pub(crate) fn locate(&self, setting: &Setting, error: &ConfigError) -> ConfigError {
        let problem = match error {
            ConfigError::UnknownOption { hint, .. } => {
                format!("unknown key '{}': {}", setting.key, hint.replace("'--", "'"))
            }
            other => other.to_string(),
        };
        self.file.error(setting.offset, &problem)
    }

    fn settings(&self, keys: Keys) -> Result<Vec<Setting>, ConfigError> {
        keys.into_iter().map(|(key, value)| self.setting(&key, &value)).collect()
    }

    fn setting(&self, key: &Spanned<String>, value: &Spanned<Value>) -> Result<Setting, ConfigError> {
        let option = format!("--{}", key.get_ref());
        let word = |value: &Value| match value {
            Value::String(text) => Some(format!("{option}={text}")),
            Value::Integer(number) => Some(format!("{option}={number}")),
            Value::Float(number) => Some(format!("{option}={number}")),
            _ => None,
        };
        if ["profile", "help", "version"].contains(&key.get_ref().as_str()) {
            let problem = format!(
                "key '{}' is not allowed in a profile: use {option} on the command line",
                key.get_ref()
            );
            return Err(self.file.error(key.span().start, &problem));
        }
        let words = match value.get_ref() {
            Value::Boolean(false) => Some(Vec::new()),
            Value::Boolean(true) => Some(vec![option.clone()]),
            Value::Array(items) => items.iter().map(word).collect(),
            one => word(one).map(|word| vec![word]),
        };
        let words = words.ok_or_else(|| {
            let problem = format!(
                "'{}' is a {}; allowed are a string, a number, true, false or a list of strings",
                key.get_ref(),
                value.get_ref().type_str()
            );
            self.file.error(value.span().start, &problem)
        })?;
        Ok(Setting { key: key.get_ref().clone(), words, offset: key.span().start })
    }

    fn port(&self, table: PortTable) -> Result<PortSpec, ConfigError> {
        let place = table.device.span().start;
        let device = table
            .device
            .get_ref()
            .parse()
            .map_err(|error: ConfigError| self.file.error(place, &error.to_string()))?;
        let usual = QueueSpec::default();
        let queues = QueueSpec {
            rx_queues: table.rx_queues.unwrap_or(usual.rx_queues),
            tx_queues: table.tx_queues.unwrap_or(usual.tx_queues),
            rx_descriptors: table.rx_descriptors.unwrap_or(usual.rx_descriptors),
            tx_descriptors: table.tx_descriptors.unwrap_or(usual.tx_descriptors),
        };
        if queues.rx_queues == 0 || queues.tx_queues == 0 {
            return Err(self.file.error(place, "the number of rx or tx queues must be from 1 to 65535"));
        }
        Ok(PortSpec {
            device,
            queues,
            mtu: table.mtu,
            promiscuous: table.promiscuous,
            scatter: table.scatter,
            max_lro: table.max_lro,
        })
    }
}
