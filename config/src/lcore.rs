//! Which lcores run, and on which CPUs: DPDK's core list, core map and core mask.

use std::fmt;
use std::str::FromStr;

/// Maximum number of lcores; lcore IDs are below this.
pub const LCORE_MAX: u16 = 1024;
/// Maximum number of CPUs; CPU numbers are below this, the size of the kernel's `cpu_set_t`.
pub const CPU_MAX: u16 = 1024;

/// A set of lcore or CPU numbers, sorted, without duplicates. Displays as `0-3,5`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LcoreSet(Vec<u16>);

impl LcoreSet {
    /// Returns the members in ascending order.
    pub fn as_slice(&self) -> &[u16] {
        &self.0
    }

    /// Returns whether `id` is in the set.
    pub fn contains(&self, id: u16) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses a DPDK hexadecimal mask, `0x1f` or `1f`: bit 0 is lcore 0.
    ///
    /// # Errors
    /// A sentence about the text when it is no mask or has no bit set.
    pub fn from_mask(text: &str) -> Result<Self, String> {
        let digits = text.trim().trim_start_matches("0x").trim_start_matches("0X");
        let mut ids = Vec::new();
        for (place, digit) in digits.chars().rev().enumerate() {
            let value = digit.to_digit(16).ok_or("is not a hexadecimal mask, such as 0xf")?;
            for bit in (0..4).filter(|bit| value >> bit & 1 == 1) {
                let id = place * 4 + bit;
                if id >= usize::from(LCORE_MAX) {
                    return Err(format!("has bit {id} set; the highest allowed is {}", LCORE_MAX - 1));
                }
                ids.push(id as u16);
            }
        }
        if ids.is_empty() {
            return Err("has no bit set: name at least one lcore".into());
        }
        Ok(Self(ids))
    }
}

impl FromIterator<u16> for LcoreSet {
    fn from_iter<I: IntoIterator<Item = u16>>(ids: I) -> Self {
        let mut ids: Vec<u16> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        Self(ids)
    }
}

impl FromStr for LcoreSet {
    type Err = String;

    /// Parses `0-3,5`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut cursor = Cursor::new(text);
        let mut ids = Vec::new();
        loop {
            cursor.range(&mut ids, LCORE_MAX)?;
            if cursor.end() {
                return Ok(ids.into_iter().collect());
            }
            cursor.expect(',', "',' and another number")?;
        }
    }
}

impl fmt::Display for LcoreSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for run in self.0.chunk_by(|low, high| high - low == 1) {
            match run {
                [one] => write!(out, "{separator}{one}")?,
                [first, .., last] => write!(out, "{separator}{first}-{last}")?,
                [] => {}
            }
            separator = ",";
        }
        Ok(())
    }
}

/// One lcore and the CPUs that its thread may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LcoreEntry {
    /// Lcore ID, below [`LCORE_MAX`].
    pub lcore: u16,
    /// The CPUs, below [`CPU_MAX`]; never empty.
    pub cpus: LcoreSet,
}

/// The lcores of one EAL, in ascending order, each once.
///
/// Reads both of DPDK's forms: a list `0-3,5`, where lcore N runs on CPU N, and a map `LCORES[@CPUS][,...]`, where each
/// side is a number, a range or a group in parentheses: `0@1,1@0`, `(0-3)@(0-1)`. A group without `@` shares its CPUs:
/// `(0,6)` is lcores 0 and 6, both on CPUs 0 and 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LcoreMap(Vec<LcoreEntry>);

impl LcoreMap {
    /// Returns the entries in ascending order of lcore; never empty.
    pub fn entries(&self) -> &[LcoreEntry] {
        &self.0
    }

    /// Returns whether `lcore` is in the map.
    pub fn contains(&self, lcore: u16) -> bool {
        self.0.iter().any(|entry| entry.lcore == lcore)
    }

    /// Maps lcore N to CPU N for each N in `set`; `None` if the set is empty.
    pub fn identity(set: &LcoreSet) -> Option<Self> {
        let entry = |&id: &u16| LcoreEntry { lcore: id, cpus: LcoreSet(vec![id]) };
        (!set.is_empty()).then(|| Self(set.as_slice().iter().map(entry).collect()))
    }

    /// Renumbers the lcores consecutively from `base` (DPDK's `--remap-lcore-ids`); `None` if they would
    /// pass [`LCORE_MAX`].
    pub fn remapped(&self, base: u16) -> Option<Self> {
        let end = self.0.len() + usize::from(base);
        let entry = |(lcore, old): (u16, &LcoreEntry)| LcoreEntry { lcore, cpus: old.cpus.clone() };
        (end <= usize::from(LCORE_MAX)).then(|| Self((base..).zip(&self.0).map(entry).collect()))
    }
}

impl FromStr for LcoreMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut entries: Vec<LcoreEntry> = Vec::new();
        let mut cursor = Cursor::new(text);
        loop {
            let (lcores, group) = cursor.set(LCORE_MAX)?;
            let cpus =
                if cursor.take('@') { Some(cursor.set(CPU_MAX)?.0) } else { group.then(|| lcores.clone()) };
            for &lcore in lcores.as_slice() {
                if entries.iter().any(|entry| entry.lcore == lcore) {
                    return Err(format!("names lcore {lcore} twice: name each lcore once"));
                }
                entries.push(LcoreEntry { lcore, cpus: cpus.clone().unwrap_or(LcoreSet(vec![lcore])) });
            }
            if cursor.end() {
                break;
            }
            cursor.expect(',', "',' and another lcore")?;
        }
        entries.sort_unstable_by_key(|entry| entry.lcore);
        Ok(Self(entries))
    }
}

impl fmt::Display for LcoreMap {
    /// The shortest of DPDK's forms that reads back as the same map.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.iter().all(|entry| entry.cpus.as_slice() == [entry.lcore]) {
            return self.0.iter().map(|entry| entry.lcore).collect::<LcoreSet>().fmt(out);
        }
        let mut separator = "";
        for entry in &self.0 {
            match entry.cpus.as_slice() {
                [cpu] => write!(out, "{separator}{}@{cpu}", entry.lcore)?,
                _ => write!(out, "{separator}{}@({})", entry.lcore, entry.cpus)?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// A place in the text; blanks are skipped, as DPDK does.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.trim() }
    }

    fn end(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, wanted: char) -> bool {
        let Some(rest) = self.rest.strip_prefix(wanted) else { return false };
        self.rest = rest.trim_start();
        true
    }

    fn expect(&mut self, wanted: char, meaning: &str) -> Result<(), String> {
        if self.take(wanted) { Ok(()) } else { Err(self.unexpected(meaning)) }
    }

    fn unexpected(&self, meaning: &str) -> String {
        match self.rest.chars().next() {
            Some(found) => {
                format!("has '{found}' where {meaning} is expected; forms: 0-3,5 or '(0-3)@(0-1)'")
            }
            None => format!("ends where {meaning} is expected; forms: 0-3,5 or '(0-3)@(0-1)'"),
        }
    }

    /// A number, a range, or a group of both in parentheses; and whether it was a group.
    fn set(&mut self, limit: u16) -> Result<(LcoreSet, bool), String> {
        let mut ids = Vec::new();
        let group = self.take('(');
        self.range(&mut ids, limit)?;
        while group && !self.take(')') {
            self.expect(',', "',' or ')'")?;
            self.range(&mut ids, limit)?;
        }
        Ok((ids.into_iter().collect(), group))
    }

    fn range(&mut self, ids: &mut Vec<u16>, limit: u16) -> Result<(), String> {
        let first = self.number(limit)?;
        let last = if self.take('-') { self.number(limit)? } else { first };
        if last < first {
            return Err(format!("has the range {first}-{last}, which is reversed: write {last}-{first}"));
        }
        ids.extend(first..=last);
        Ok(())
    }

    fn number(&mut self, limit: u16) -> Result<u16, String> {
        let end = self.rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        if digits.is_empty() {
            return Err(self.unexpected("a number"));
        }
        self.rest = rest.trim_start();
        digits
            .parse()
            .ok()
            .filter(|&number| number < limit)
            .ok_or_else(|| format!("contains {digits}; the maximum is {}", limit - 1))
    }
}
