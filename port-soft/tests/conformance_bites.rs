//! The conformance list finds what it is there to find: a good port is made bad in one way at a time.

use pollux_mempool::Burst;
use pollux_port::conformance::{self, Check, Feed, Fixture, Subject};
use pollux_port::driver::{InBurst, Moved, RxBurst, RxSetup, TxBurst, TxSetup};
use pollux_port::layer::{Layer, around};
use pollux_port_soft::ring;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Defect {
    None,
    MiscountsBytes,
    LosesAPacketOnRx,
    LeaksAnMbuf,
    TurnsTheRestRound,
    ChangesAByte,
    SendsIntoTheVoid,
    ReusesAnXstatName,
}

struct Bad(Defect);

impl Layer for Bad {
    fn rx(&mut self, _setup: &RxSetup, inner: Box<dyn RxBurst>) -> Box<dyn RxBurst> {
        Box::new(BadRx { inner, defect: self.0 })
    }

    fn tx(&mut self, _setup: &TxSetup, inner: Box<dyn TxBurst>) -> Box<dyn TxBurst> {
        Box::new(BadTx { inner, defect: self.0 })
    }

    fn xstats(&self) -> Vec<(std::borrow::Cow<'static, str>, u64)> {
        if self.0 == Defect::ReusesAnXstatName { vec![("rx_good_packets".into(), 0)] } else { Vec::new() }
    }
}

struct BadRx {
    inner: Box<dyn RxBurst>,
    defect: Defect,
}

impl RxBurst for BadRx {
    fn rx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let before = burst.len();
        let mut moved = self.inner.rx_burst(inside, burst, max);
        if moved.packets == 0 {
            return moved;
        }
        match self.defect {
            Defect::MiscountsBytes => moved.bytes += 4,
            Defect::LosesAPacketOnRx => {
                drop(burst.pop());
                moved = Moved::of(&burst[before..]);
            }
            Defect::LeaksAnMbuf => {
                std::mem::forget(burst.pop());
                moved = Moved::of(&burst[before..]);
            }
            Defect::ChangesAByte => {
                if let Some(byte) = burst[before].data_mut().and_then(|data| data.last_mut()) {
                    *byte ^= 1;
                }
            }
            _ => {}
        }
        moved
    }

    fn mode(&self) -> &'static str {
        "bad"
    }
}

struct BadTx {
    inner: Box<dyn TxBurst>,
    defect: Defect,
}

impl TxBurst for BadTx {
    fn tx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst) -> Moved {
        if self.defect == Defect::SendsIntoTheVoid {
            let moved = Moved::of(burst);
            burst.clear();
            return moved;
        }
        let moved = self.inner.tx_burst(inside, burst);
        if self.defect == Defect::TurnsTheRestRound {
            burst.reverse();
        }
        moved
    }

    fn mode(&self) -> &'static str {
        "bad"
    }
}

impl Fixture for Bad {
    fn open(&self) -> Subject {
        let driver = around(Box::new(ring::looped("net_ring0")), Bad(self.0));
        Subject { name: "net_ring0".into(), driver, feed: Feed::Loop, sent: None }
    }

    fn patience(&self) -> std::time::Duration {
        std::time::Duration::from_millis(50)
    }
}

#[test]
fn each_defect_fails_its_check_and_none_passes() {
    let table: [(Defect, Check); 7] = [
        (Defect::MiscountsBytes, conformance::stats_add_up),
        (Defect::LosesAPacketOnRx, conformance::stats_add_up),
        (Defect::LeaksAnMbuf, conformance::mbufs_come_home),
        (Defect::TurnsTheRestRound, conformance::partial_tx),
        (Defect::ChangesAByte, conformance::frame_sizes),
        (Defect::SendsIntoTheVoid, conformance::stop_and_start),
        (Defect::ReusesAnXstatName, conformance::xstats),
    ];
    for (defect, check) in table {
        let outcome = catch_unwind(AssertUnwindSafe(|| check(&Bad(defect))));
        assert!(outcome.is_err(), "{defect:?} was not found");
        check(&Bad(Defect::None));
    }
}
