//! Device arguments: `net_pcap0,rx_pcap=a.pcap,infinite_rx=1`.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::{ConfigError, Param};

/// Devices to open and devices to block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSpec {
    /// `--vdev`: virtual devices, in the order given.
    pub vdevs: Vec<DeviceArg>,
    /// `-a`: hardware to open.
    pub allow: Vec<DeviceArg>,
    /// `-b`: devices that must not be opened.
    pub block: Vec<String>,
    /// `--no-pci`: open no PCI device.
    pub no_pci: bool,
}

impl DeviceSpec {
    /// Returns an error if `-b` blocks the device.
    ///
    /// # Errors
    /// [`ConfigError::Device`].
    pub fn check_blocked(&self, device: &DeviceArg) -> Result<(), ConfigError> {
        let blocked = self.block.iter().any(|text| text.split(',').next() == Some(&device.name));
        if !blocked {
            return Ok(());
        }
        let problem = "is blocked by -b: remove it from -b, or do not use it".into();
        Err(ConfigError::Device { text: device.name.clone(), problem })
    }
}

/// A device argument (devargs): `NAME[,KEY=VALUE...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceArg {
    /// Driver name, which is the device name without its number: `net_null`; `pci` for a PCI address.
    pub driver: String,
    /// Device name: `net_null0`, `0000:03:00.0`.
    pub name: String,
    /// Keys and values in the order given; a key without `=` has an empty value.
    pub args: Vec<(String, String)>,
}

impl DeviceArg {
    /// Returns a reader for the keys.
    pub fn keys(&self) -> KeyReader<'_> {
        KeyReader { device: self, known: Vec::new(), params: None }
    }

    /// Returns a reader for the keys of this table: it takes those and no others.
    pub fn keys_of(&self, params: &'static [Param]) -> KeyReader<'_> {
        KeyReader { params: Some(params), ..self.keys() }
    }
}

impl FromStr for DeviceArg {
    type Err = ConfigError;

    /// Commas inside `[...]` do not separate, as in DPDK's lists.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let fail = |problem: &str| ConfigError::Device { text: text.into(), problem: problem.into() };
        let mut parts = split_outside_brackets(text).into_iter();
        let name = parts.next().unwrap_or_default().trim();
        let named = |mark: char| mark.is_ascii_alphanumeric() || "_-.:".contains(mark);
        if name.is_empty() {
            return Err(fail("has no name: write NAME[,KEY=VALUE...], such as net_null0,size=64"));
        }
        if let Some(mark) = name.chars().find(|&mark| !named(mark)) {
            return Err(fail(&format!(
                "'{}' is not allowed in a name: write NAME[,KEY=VALUE...], such as net_null0,size=64",
                mark.escape_default()
            )));
        }
        let mut args = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if key.trim().is_empty() {
                return Err(fail("has a ',' without a key after it: write NAME[,KEY=VALUE...]"));
            }
            args.push((key.trim().to_owned(), value.to_owned()));
        }
        let driver = if is_pci_address(name) {
            "pci"
        } else {
            name.trim_end_matches(|mark: char| mark.is_ascii_digit())
        };
        Ok(Self { driver: driver.into(), name: name.into(), args })
    }
}

impl fmt::Display for DeviceArg {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)?;
        for (key, value) in &self.args {
            match value.as_str() {
                "" => write!(out, ",{key}")?,
                _ => write!(out, ",{key}={value}")?,
            }
        }
        Ok(())
    }
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|mark| {
        match mark {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        mark == ',' && depth == 0
    })
    .collect()
}

/// `[dddd:]bb:dd.f`
fn is_pci_address(name: &str) -> bool {
    let hex = |text: &str, digits: RangeInclusive<usize>| {
        digits.contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    let Some((front, function)) = name.rsplit_once('.') else { return false };
    let parts: Vec<&str> = front.split(':').collect();
    hex(function, 1..=1)
        && match parts[..] {
            [bus, device] => hex(bus, 1..=2) && hex(device, 1..=2),
            [domain, bus, device] => hex(domain, 1..=8) && hex(bus, 1..=2) && hex(device, 1..=2),
            _ => false,
        }
}

/// Reads the keys of a device argument by type; [`KeyReader::finish`] rejects unknown keys.
///
/// ```
/// use pollux_config::DeviceArg;
///
/// let device: DeviceArg = "net_null0,size=128,copy=1".parse()?;
/// let mut keys = device.keys();
/// let size: u32 = keys.number("size", 1..=9_000)?.unwrap_or(64);
/// let copy = keys.flag("copy")?.unwrap_or(false);
/// keys.finish()?;
/// assert_eq!((size, copy), (128, true));
/// # Ok::<(), pollux_config::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct KeyReader<'a> {
    device: &'a DeviceArg,
    known: Vec<&'static str>,
    /// The table of the keys, if there is one.
    params: Option<&'static [Param]>,
}

impl<'a> KeyReader<'a> {
    /// Returns all values of a key that may be repeated, in the order given.
    pub fn all(&mut self, key: &'static str) -> Vec<&'a str> {
        self.known.push(key);
        self.device.args.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the keys and values of several repeatable keys, in the order given.
    pub fn several(&mut self, keys: &[&'static str]) -> Vec<(&'a str, &'a str)> {
        self.known.extend(keys);
        let wanted = self.device.args.iter().filter(|(name, _)| keys.contains(&name.as_str()));
        wanted.map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    /// Returns the value as text; an empty value is an error.
    ///
    /// # Errors
    /// [`ConfigError::KeyValue`] when given twice or empty.
    pub fn text(&mut self, key: &'static str) -> Result<Option<&'a str>, ConfigError> {
        match self.all(key)[..] {
            [] => Ok(None),
            [""] => Err(self.bad(key, "", format!("has no value: write {key}=VALUE"))),
            [value] => Ok(Some(value)),
            [_, second, ..] => Err(self.bad(key, second, "is given twice: give it once")),
        }
    }

    /// Returns the value of a required key; `mend` is an example for the error message, `iface=eth0`.
    ///
    /// # Errors
    /// [`ConfigError::MissingKey`], or as [`KeyReader::text`].
    pub fn required(&mut self, key: &'static str, mend: &str) -> Result<&'a str, ConfigError> {
        self.text(key)?.ok_or_else(|| self.missing(key, mend))
    }

    /// Returns the value of a required key as whatever it is the text of, such as a socket's address; `example` is a value for the error
    /// message.
    ///
    /// # Errors
    /// [`ConfigError::MissingKey`]; [`ConfigError::KeyValue`] when it is none.
    pub fn parsed<T>(&mut self, key: &'static str, example: &str) -> Result<T, ConfigError>
    where
        T: FromStr,
    {
        let text = self.required(key, &format!("{key}={example}"))?;
        text.parse().map_err(|_| self.bad(key, text, format!("cannot be read: write it like {example}")))
    }

    /// Returns an integer within `range`, written in decimal or with `0x` in hexadecimal.
    ///
    /// # Errors
    /// [`ConfigError::KeyValue`] when it is none or out of range.
    pub fn number<T>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<T>, ConfigError>
    where
        T: TryFrom<u64>,
    {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let number =
            parsed.ok().filter(|number| range.contains(number)).and_then(|number| T::try_from(number).ok());
        let wanted = || format!("is not a whole number from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| self.bad(key, text, wanted()))
    }

    /// Returns a fraction between 0 and 1.
    ///
    /// # Errors
    /// [`ConfigError::KeyValue`] when it is none.
    pub fn share(&mut self, key: &'static str) -> Result<Option<f64>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        share.map(Some).ok_or_else(|| self.bad(key, text, "must be between 0 and 1, such as 0.01"))
    }

    /// Returns a boolean, written `1` or `0`.
    ///
    /// # Errors
    /// [`ConfigError::KeyValue`] when it is neither.
    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>, ConfigError> {
        match self.text(key)? {
            None => Ok(None),
            Some("1") => Ok(Some(true)),
            Some("0") => Ok(Some(false)),
            Some(other) => Err(self.bad(key, other, "must be 0 or 1")),
        }
    }

    /// Returns the index of the value in `words`.
    ///
    /// # Errors
    /// [`ConfigError::KeyValue`] when it is none of them.
    pub fn choice(&mut self, key: &'static str, words: &[&str]) -> Result<Option<usize>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let place = words.iter().position(|word| *word == text);
        place.map(Some).ok_or_else(|| self.bad(key, text, format!("is not one of {}", words.join(", "))))
    }

    /// Returns an Ethernet address, `02:00:00:00:00:01`.
    ///
    /// # Errors
    /// [`ConfigError::KeyValue`] when it is none.
    pub fn mac(&mut self, key: &'static str) -> Result<Option<[u8; 6]>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let wrong = || self.bad(key, text, "is not an Ethernet address such as 02:00:00:00:00:01");
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts.next().filter(|part| (1..=2).contains(&part.len())).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Some(mac)) }
    }

    /// That a key is missing which must be there; `mend` is an example of it, `iface=eth0`.
    pub fn missing(&self, key: &str, mend: &str) -> ConfigError {
        ConfigError::MissingKey {
            device: self.device.name.clone(),
            key: key.into(),
            mend: format!("such as {mend}"),
        }
    }

    /// An error about one key, for checks that only the driver can make.
    pub fn bad(&self, key: &str, value: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError::KeyValue {
            device: self.device.name.clone(),
            key: key.into(),
            value: value.into(),
            problem: problem.into(),
        }
    }

    /// Ends the reading: all keys that the device takes were asked for.
    ///
    /// # Errors
    /// [`ConfigError::UnknownKey`] for the first key that was not asked for, naming those that were.
    ///
    /// # Panics
    /// With debug assertions, when the driver's table ([`DeviceArg::keys_of`]) lacks a key that was asked for, or has one that was not.
    pub fn finish(&self) -> Result<(), ConfigError> {
        let known = &self.known;
        if let Some(params) = self.params.filter(|_| cfg!(debug_assertions)) {
            let listed: BTreeSet<&str> = params.iter().map(|param| param.key).collect();
            let asked: BTreeSet<&str> = known.iter().copied().collect();
            assert_eq!(asked, listed, "keys that the driver of {} asks for, and its table", self.device.name);
        }
        let Some((key, _)) = self.device.args.iter().find(|(key, _)| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        Err(ConfigError::UnknownKey {
            device: self.device.name.clone(),
            key: key.clone(),
            nearest: nearest(key, known.iter().copied()).map(str::to_owned),
            allowed: if known.is_empty() { "none".into() } else { known.join(", ") },
        })
    }
}

/// Returns the word closest to `typed` in spelling, if any is close enough.
pub fn nearest<'w>(typed: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    words
        .into_iter()
        .map(|word| (strsim::normalized_damerau_levenshtein(typed, word), word))
        .filter(|(likeness, _)| *likeness >= 0.6)
        // The first of those alike.
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, word)| word)
}
