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
    use pollux_port::PortConfig;

    use super::Step;
    use super::harness::{Pair, burst, frame, pool};
    use crate::Arguments;
    use crate::devargs::Compression;

    thread_local! {
        static FORGOTTEN: Cell<Option<Step>> = const { Cell::new(None) };
    }

    /// Whether the queues of this thread forget a step.
    pub(crate) fn forgets(step: Step) -> bool {
        FORGOTTEN.get() == Some(step)
    }

    const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

    /// Sends frames from one port to the other, more than there are entries; what is wrong then.
    fn exchange(forgotten: Option<Step>, enhanced: bool) -> Result<(), String> {
        let pair = Pair::new(DoorProfile::default());
        let pool = pool("forget", 2048);
        // Places of compressed completions are marked, so that their owner bits do not matter.
        let compression = if forgotten == Some(Step::Owner) { Compression::Off } else { Compression::Hash };
        let arguments = Arguments { compression, enhanced_compression: enhanced, ..Arguments::default() };
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

    #[test]
    fn the_model_finds_every_forgotten_step() {
        for enhanced in [false, true] {
            exchange(None, enhanced).expect("a driver that forgets nothing");
        }
        for (step, enhanced) in [
            (Step::Doorbell, false),
            (Step::SendRecord, false),
            (Step::Order, false),
            (Step::ReceiveRecord, false),
            (Step::CompletionRecord, false),
            (Step::CompletionRecord, true),
            (Step::Key, false),
            (Step::Distance, false),
            (Step::Owner, false),
            (Step::Marking, false),
            (Step::Title, true),
        ] {
            let found = exchange(Some(step), enhanced);
            assert!(found.is_err(), "{step:?} was not found");
            println!("{step:?}: {}", found.err().unwrap_or_default());
        }
    }
}

#[cfg(test)]
#[expect(dead_code, reason = "the tests outside use more of it")]
#[path = "../../tests/port/harness.rs"]
mod harness;
