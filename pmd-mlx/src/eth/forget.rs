//! A knob of tests: a queue that forgets a step, to see that the device model finds it.
//!
//! Outside tests every question here is answered "no" at compile time.

/// What is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The store to the send doorbell.
    Doorbell,
    /// The store to the send queue's record.
    SendRecord,
    /// That the record comes before the doorbell.
    Order,
    /// The store to the receive queue's record.
    ReceiveRecord,
    /// The store to the completion queue's record.
    CompletionRecord,
    /// The key of what is sent.
    Key,
    /// The key's distance between the process's addresses and the device's.
    Distance,
    /// To look at the owner bit of a completion.
    Owner,
    /// To mark the places of compressed completions.
    Marking,
    /// To keep the title of arrays to come.
    Title,
}

#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn forgets(_step: Step) -> bool {
    false
}

#[cfg(test)]
pub(crate) use tests::forgets;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use pollux_mempool::Burst;
    use pollux_mlx5_kernel::DoorProfile;
    use pollux_mlx5_model::config::Profile;
    use pollux_mlx5_model::{DeviceConfig, Traits};
    use pollux_port::PortConfig;

    use super::Step;
    use super::harness::{Pair, burst, frame, pool};
    use crate::Arguments;
    use crate::devargs::{Compression, DoorbellMapping};

    thread_local! {
        static FORGOTTEN: Cell<Option<Step>> = const { Cell::new(None) };
    }

    /// Whether the queues of this thread forget a step.
    pub(crate) fn forgets(step: Step) -> bool {
        FORGOTTEN.get() == Some(step)
    }

    const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

    /// A way of moving packets.
    struct Mode {
        name: &'static str,
        card: Profile,
        arguments: Arguments,
    }

    impl Mode {
        fn compresses(&self) -> bool {
            self.arguments.compression != Compression::Off
        }

        fn inlines(&self) -> bool {
            self.arguments.inline_queues_min <= 1
        }

        /// Why the device has nothing to find when a step is forgotten in this mode. (Owner bits of a compressing receive queue
        /// do not matter, for its places are marked; those of the send queue do.)
        fn meaningless(&self, step: Step) -> Option<&'static str> {
            match step {
                Step::Title if !self.arguments.enhanced_compression => {
                    Some("only the enhanced layout has titles")
                }
                Step::Marking if !self.compresses() => {
                    Some("only places of compressed completions are marked")
                }
                Step::Key | Step::Distance if self.inlines() => {
                    Some("frames stand in the entries, no key does")
                }
                _ => None,
            }
        }
    }

    fn modes() -> Vec<Mode> {
        let usual = Arguments::default;
        let plain = Arguments { compression: Compression::Off, ..usual() };
        // Rings of entries that carry packets are longer: their owner bits do not come round in this test, those of the receive
        // queue do.
        let inline = Arguments { inline_queues_min: 1, ..plain.clone() };
        let striding = Arguments { striding: true, striding_queues_min: 1, ..usual() };
        let of = |name, arguments| Mode { name, card: Profile::default(), arguments };
        vec![
            of("usual: DevX, vector, hash compression, eMPW, BlueFlame", usual()),
            of("kernel's objects", Arguments { devx: false, ..usual() }),
            of("kernel's objects, uncompressed", Arguments { devx: false, ..plain.clone() }),
            of("scalar", Arguments { rx_vector: false, ..usual() }),
            of("scalar, uncompressed", Arguments { rx_vector: false, ..plain.clone() }),
            of("checksum compression", Arguments { compression: Compression::Checksum, ..usual() }),
            of("tag compression", Arguments { compression: Compression::FlowTag, ..usual() }),
            of("header compression", Arguments { compression: Compression::Header, ..usual() }),
            of("enhanced compression", Arguments { enhanced_compression: true, ..usual() }),
            of("uncompressed", plain.clone()),
            of("striding", striding.clone()),
            of("striding, copied", Arguments { striding_copy_max: 2048, ..striding.clone() }),
            of("striding, uncompressed", Arguments { compression: Compression::Off, ..striding }),
            of("one packet an entry", Arguments { multi_packet: Some(false), ..usual() }),
            of("inlined, many packets an entry", inline.clone()),
            of("inlined, one packet an entry", Arguments { multi_packet: Some(false), ..inline }),
            of("no BlueFlame", Arguments { doorbell: DoorbellMapping::NonCached, ..usual() }),
            of("completions of 128 bytes", Arguments { cqe_bytes: 128, ..plain }),
            Mode { name: "ConnectX-4 Lx: headers inline", card: Profile::ConnectX4Lx, arguments: usual() },
        ]
    }

    /// Sends frames from one port to the other, more than there are entries; what is wrong then.
    fn exchange(mode: &Mode, forgotten: Option<Step>) -> Result<(), String> {
        let traits: Traits = mode.card.traits();
        let pair = Pair::with(DoorProfile::default(), |config| DeviceConfig { traits, ..config });
        let pool = pool("forget", 2048);
        let arguments = mode.arguments.clone();
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut config = PortConfig::queues(1, 1, &pool);
        (config.rx_queues[0].descriptors, config.tx_queues[0].descriptors) = (64, 64);
        let mut queues_a = a.bring_up(config.clone()).map_err(|error| error.to_string())?;
        let mut queues_b = b.bring_up(config).map_err(|error| error.to_string())?;
        FORGOTTEN.set(forgotten);
        let _remember = Remember;
        for round in 0..120 {
            // Frames of one length, in one step: the model compresses their completions. Sessions of several lengths end in
            // the middle of older ones.
            let frames: Vec<_> =
                (0..3 + round * 7 % 14).map(|number| frame(B, A, round * 16 + number, 60)).collect();
            let mut sent = burst(&pool, &frames);
            let count = queues_a.tx[0].tx_burst(&mut sent);
            if count != frames.len() {
                return Err(format!("round {round}: {count} taken"));
            }
            pair.settle();
            let mut got = Burst::new();
            queues_b.rx[0].rx_burst(&mut got, 64);
            let got: Vec<_> = got.iter().map(|mbuf| mbuf.data().to_vec()).collect();
            if got != frames {
                return Err(format!(
                    "round {round}: {} of {} frames, some not as they were",
                    got.len(),
                    frames.len()
                ));
            }
            for station in [&pair.a, &pair.b] {
                let (rules, count) = station.device.violations();
                if count > 0 {
                    return Err(format!("round {round}: {count} rules broken, first {:?}", rules.first()));
                }
            }
        }
        Ok(())
    }

    struct Remember;

    impl Drop for Remember {
        fn drop(&mut self) {
            FORGOTTEN.set(None);
        }
    }

    /// The table: each mode, and what comes of each step forgotten in it.
    #[test]
    fn the_model_finds_every_forgotten_step_in_every_mode() {
        for mode in modes() {
            exchange(&mode, None)
                .unwrap_or_else(|why| panic!("{}: a driver that forgets nothing: {why}", mode.name));
            println!("{}", mode.name);
            for step in [
                Step::Doorbell,
                Step::SendRecord,
                Step::Order,
                Step::ReceiveRecord,
                Step::CompletionRecord,
                Step::Key,
                Step::Distance,
                Step::Owner,
                Step::Marking,
                Step::Title,
            ] {
                // Whose a place is, the enhanced layout tells by counts of its own, and nothing is marked there.
                if mode.arguments.enhanced_compression && matches!(step, Step::Owner | Step::Marking) {
                    continue;
                }
                let found = exchange(&mode, Some(step));
                match mode.meaningless(step) {
                    Some(why) => {
                        assert_eq!(found, Ok(()), "{}: {step:?} has a meaning after all", mode.name);
                        println!("    {step:?}: no matter, {why}");
                    }
                    None => {
                        let found = found.expect_err(&format!("{}: {step:?} was not found", mode.name));
                        println!("    {step:?}: {found}");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[expect(dead_code, reason = "the tests outside use more of it")]
#[path = "../../tests/port/harness.rs"]
mod harness;
