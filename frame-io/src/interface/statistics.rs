//! What an interface's driver counts, by its own names (`ethtool -S`).
//!
//! Source: Linux `include/uapi/linux/ethtool.h`, `struct ethtool_gstrings`, `struct ethtool_stats`; `net/ethtool/ioctl.c`,
//! `ethtool_get_strings`, `ethtool_get_stats`: the kernel writes as many as there are, whatever it was told to.

use std::io;

use super::Interface;

pub(super) const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
pub(super) const ETHTOOL_GSSET_INFO: u32 = 0x37;
/// The set of strings that names statistics.
const SET_STATS: u32 = 1;
/// 32-bit words of a name.
pub(super) const NAME_WORDS: usize = 8;
/// Most statistics that there is room for; drivers have some thousand at most.
pub(crate) const STATISTICS_MAX: usize = 1 << 14;

impl Interface {
    /// What its driver counts, in its order.
    ///
    /// # Errors
    /// The kernel's; `EOPNOTSUPP` where the interface's driver counts nothing of its own.
    pub fn statistics(&self) -> io::Result<Vec<(String, u64)>> {
        let mut info = [0, 0, 1 << SET_STATS, 0, 0];
        self.ethtool(ETHTOOL_GSSET_INFO, &mut info)?;
        // The mask comes back empty where there is no such set.
        let count = if info[2] == 0 { 0 } else { info[4] as usize };
        if count == 0 {
            return Ok(Vec::new());
        }
        if count > STATISTICS_MAX / 2 {
            return Err(io::Error::other(format!("{count} statistics, {} can be read", STATISTICS_MAX / 2)));
        }
        // Some may be added between the calls.
        let mut names = vec![0; 3 + NAME_WORDS * STATISTICS_MAX];
        (names[1], names[2]) = (SET_STATS, count as u32);
        self.ethtool(ETHTOOL_GSTRINGS, &mut names)?;
        let mut values = vec![0; 2 + 2 * STATISTICS_MAX];
        values[1] = count as u32;
        self.ethtool(ETHTOOL_GSTATS, &mut values)?;
        let count = names[2].min(values[1]) as usize;
        Ok(decode(&names[3..], &values[2..], count))
    }
}

fn decode(names: &[u32], values: &[u32], count: usize) -> Vec<(String, u64)> {
    let (names, _) = names.as_chunks::<NAME_WORDS>();
    let (values, _) = values.as_chunks::<2>();
    let all = names.iter().zip(values).take(count).map(|(name, value)| {
        let bytes = name.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0);
        let value = u64::from_ne_bytes(
            [value[0].to_ne_bytes(), value[1].to_ne_bytes()].concat().try_into().expect("two words"),
        );
        (bytes.map(char::from).collect(), value)
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_taken_apart() {
        let word = |text: &[u8]| u32::from_ne_bytes(text.try_into().expect("four bytes"));
        let mut names = [0; 2 * NAME_WORDS];
        (names[0], names[1]) = (word(b"rx_p"), word(b"k\0\0\0"));
        names[NAME_WORDS] = word(b"tx\0x");
        let mut values = [0; 4];
        values[..2].copy_from_slice(&[
            u32::from_ne_bytes(7_u64.to_ne_bytes()[..4].try_into().expect("half")),
            u32::from_ne_bytes(7_u64.to_ne_bytes()[4..].try_into().expect("half")),
        ]);
        assert_eq!(decode(&names, &values, 2), [("rx_pk".to_owned(), 7), ("tx".to_owned(), 0)]);
        assert_eq!(decode(&names, &values, 1).len(), 1);
    }

    #[test]
    fn an_interface_tells_or_says_that_it_does_not() {
        let loopback = Interface::find("lo").expect("every namespace has one");
        match loopback.statistics() {
            Ok(list) => assert!(list.iter().all(|(name, _)| !name.is_empty())),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
        }
    }
}
