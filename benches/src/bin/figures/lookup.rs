//! Figures of look-ups: routes, keys, the RSS hash. `peer/figures.c` makes the same routes and keys.

use std::hint::black_box;

use pollux_lookup::exact::NO_VALUE;
use pollux_lookup::{ExactMatch, Lpm4, Lpm6, exact, lpm};
use pollux_wire::toeplitz::{DEFAULT_KEY, Toeplitz};

use crate::{BURST, cycles, per};

const ROUTES: usize = 100_000;
/// Of IPv6, each of which takes three groups of 1 KiB here and there.
const ROUTES6: usize = 20_000;
/// Addresses and keys that are looked up in turn.
const SOUGHT: usize = 1 << 16;
const HOT: usize = 1024;
const ROUNDS: usize = 1 << 17;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A length as the Internet's tables have them: of 100 routes 60 of 24 bits, 37 from 16 to 23, 3 longer than 24.
    fn length(&mut self) -> u8 {
        let (share, which) = (self.next() % 100, self.next());
        match share {
            0..60 => 24,
            60..97 => 16 + (which % 8) as u8,
            _ => 25 + (which % 8) as u8,
        }
    }
}

type Keys = (ExactMatch<[u64; 2]>, exact::Reader<[u64; 2]>, Vec<[u64; 2]>);

/// Tables, each made when its first figure is asked for.
#[derive(Default)]
pub(crate) struct Tables {
    routes: Option<(Lpm4, lpm::Reader<u32>, Vec<u32>)>,
    routes6: Option<(Lpm6, lpm::Reader<u128>, Vec<u128>)>,
    keys_1m: Option<Keys>,
    keys_65k: Option<Keys>,
}

impl Tables {
    /// One trial of the figure called `name`, or nothing when it is not one of these.
    pub(crate) fn run(&mut self, name: &str) -> Option<f64> {
        Some(match name {
            "lpm_random" => self.lpm(SOUGHT),
            "lpm_hot" => self.lpm(HOT),
            "lpm_add" => add(ROUTES),
            "lpm_add_each" => add(1),
            "lpm6_random" => self.lpm6(),
            "em_bulk_1m" => exact_match(self.keys_1m.get_or_insert_with(|| keys(1_000_000))),
            "em_bulk_65k" => exact_match(self.keys_65k.get_or_insert_with(|| keys(65_536))),
            "rss_soft12" => rss(),
            _ => return None,
        })
    }

    fn lpm(&mut self, count: usize) -> f64 {
        let (_table, reader, addresses) = self.routes.get_or_insert_with(|| {
            let mut table = Lpm4::new(1 << 16).expect("address space");
            for (prefix, length, hop) in routes() {
                table.add(prefix, length, hop).expect("room");
            }
            table.publish().expect("no reader");
            let (reader, mut random) = (table.reader(), Random(7));
            (table, reader, (0..SOUGHT).map(|_| random.next() as u32).collect())
        });
        let mut hops = [0; BURST];
        let start = cycles();
        for round in 0..ROUNDS {
            let at = (round * BURST) & (count - 1);
            reader.pass().lookup_burst(&addresses[at..at + BURST], &mut hops);
            black_box(&mut hops);
        }
        per(start, ROUNDS * BURST)
    }

    fn lpm6(&mut self) -> f64 {
        let (_table, reader, addresses) = self.routes6.get_or_insert_with(|| {
            let (mut table, mut random) = (Lpm6::new(1 << 17).expect("address space"), Random(1));
            // Prefixes of 32 to 64 bits in 4096 blocks of 20, as registries give them; addresses below them.
            let prefixes: Vec<u128> = (0..ROUTES6)
                .map(|hop| {
                    let length = 32 + (random.next() % 9 * 4) as u8;
                    let block = 0x2000_0000 | ((random.next() as u32) & 0xfff) << 12;
                    let prefix = u128::from(block) << 96 | u128::from(random.next()) << 44 & u128::MAX >> 20;
                    let prefix = prefix & u128::MAX << (128 - length);
                    table.add(prefix, length, hop as u32 & 0xf_ffff).expect("room");
                    prefix
                })
                .collect();
            table.publish().expect("no reader");
            let reader = table.reader();
            let sought =
                (0..SOUGHT).map(|_| prefixes[random.next() as usize % ROUTES6] | u128::from(random.next()));
            (table, reader, sought.collect())
        });
        let mut hops = [0; BURST];
        let start = cycles();
        for round in 0..ROUNDS {
            let at = (round * BURST) & (SOUGHT - 1);
            reader.pass().lookup_burst(&addresses[at..at + BURST], &mut hops);
            black_box(&mut hops);
        }
        per(start, ROUNDS * BURST)
    }
}

/// Prefixes with their next hops; some come twice.
fn routes() -> Vec<(u32, u8, u32)> {
    let mut random = Random(1);
    (0..ROUTES as u32)
        .map(|hop| {
            let (length, address) = (random.length(), random.next() as u32);
            (address & u32::MAX << (32 - length), length, hop & 0xffff)
        })
        .collect()
}

/// Adds all routes to a table that had them before, and publishes after each `batch`.
fn add(batch: usize) -> f64 {
    let (mut table, routes) = (Lpm4::new(1 << 16).expect("address space"), routes());
    let fill = |table: &mut Lpm4| {
        let start = cycles();
        for routes in routes.chunks(batch) {
            for (prefix, length, hop) in routes {
                table.add(*prefix, *length, *hop).expect("room");
            }
            table.publish().expect("no reader");
        }
        per(start, ROUTES)
    };
    fill(&mut table);
    for (prefix, length, _) in &routes {
        table.remove(*prefix, *length).expect("a prefix");
    }
    table.publish().expect("no reader");
    fill(&mut table)
}

/// So many keys, and some of them in the order in which they are looked up.
fn keys(count: usize) -> Keys {
    let (mut table, mut random) = (ExactMatch::new(count).expect("address space"), Random(3));
    let keys: Vec<[u64; 2]> = (0..count).map(|_| [random.next(), random.next()]).collect();
    for (value, key) in keys.iter().enumerate() {
        table.insert(key, value as u32).expect("room");
    }
    table.publish().expect("no reader");
    let sought = (0..SOUGHT).map(|_| keys[random.next() as usize % count]).collect();
    let reader = table.reader();
    (table, reader, sought)
}

fn exact_match((_table, reader, sought): &mut Keys) -> f64 {
    let mut values = [0; BURST];
    let start = cycles();
    for round in 0..ROUNDS {
        let at = (round * BURST) & (SOUGHT - 1);
        reader.pass().lookup_burst(&sought[at..at + BURST], &mut values);
        black_box(&mut values);
    }
    let taken = per(start, ROUNDS * BURST);
    assert!(values.iter().all(|value| *value != NO_VALUE), "all of them are there");
    taken
}

/// The hash of 12 bytes: addresses and ports of IPv4.
fn rss() -> f64 {
    let (hash, mut random) = (Toeplitz::new(&DEFAULT_KEY).expect("a key"), Random(5));
    let inputs: Vec<[u8; 12]> = (0..HOT)
        .map(|_| {
            let mut input = [0; 12];
            input[..8].copy_from_slice(&random.next().to_ne_bytes());
            input[8..].copy_from_slice(&(random.next() as u32).to_ne_bytes());
            input
        })
        .collect();
    let start = cycles();
    for _ in 0..ROUNDS * BURST / HOT {
        for input in &inputs {
            black_box(hash.hash(input));
        }
    }
    per(start, ROUNDS * BURST)
}
