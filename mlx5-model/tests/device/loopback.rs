//! Frames that come back to the function that sent them.

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::{QueryHcaCapOut, kind};
use pollux_mlx5_abi::command::counter::{QueryVportCounterIn, QueryVportCounterOut, TrafficCounter};
use pollux_mlx5_abi::command::object::AllocTransportDomainOut;
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::tir::{ModifyTirIn, TirContext, loopback, modify};
use pollux_mlx5_abi::command::vport::{
    FieldSelect, ModifyNicVportContextIn, NicVportContext, QueryNicVportContextIn, QueryNicVportContextOut,
};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{Completion, Data};
use pollux_mlx5_model::{DeviceConfig, Traits};

use super::rig::{Cq, HCA_DELTA, Rig, Rq, Sq};
use super::send::plain;

/// A function with a send queue, and a receive queue that all frames lead to through a TIR.
struct Bench {
    rig: Rig,
    sq: Sq,
    received: Cq,
    _rq: Rq,
    tir: u32,
}

const ROOM: usize = 2048;

impl Bench {
    fn new(filters: bool, domain: impl FnOnce(&Rig) -> u32) -> Self {
        let traits = Traits { filters_vport: filters, ..Traits::default() };
        let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
        let (completed, received) = (rig.cq(6), rig.cq(6));
        let sq = rig.sq(6, &completed);
        let mut rq = rig.rq(4, 4, &received);
        for _ in 0..16 {
            let at = rig.room(ROOM);
            rq.post(&rig, &[Data::new(ROOM as u32, rig.lkey, at + HCA_DELTA)]);
        }
        let domain = domain(&rig);
        let tir = rig.tir(|context| {
            TirContext::INLINE_RQN.set(context, rq.number);
            TirContext::TRANSPORT_DOMAIN.set(context, domain);
        });
        rig.all_to(tir);
        let bench = Self { rig, sq, received, _rq: rq, tir };
        bench.turn(true, true);
        bench
    }

    /// With a receiver of another transport domain than the sender's.
    fn of_two_domains() -> Self {
        Self::new(false, another_domain)
    }

    /// With one of the same.
    fn of_one_domain() -> Self {
        Self::new(false, |rig| rig.td)
    }

    /// Sends a frame; whether it came back, and whether it went out.
    fn send(&mut self, to: [u8; 6], from: [u8; 6]) -> (bool, bool) {
        let mut frame = super::rig::frame(100, 9);
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&from);
        let body = plain(&self.rig, &frame);
        self.sq.write(&self.rig, send::SEND, &body, Completion::Always);
        self.sq.ring(&self.rig);
        self.rig.settle();
        let out = self.rig.wire.ends().sent.drain(..).any(|sent| sent == frame);
        let back = self.received.poll(&self.rig).inspect(|entry| assert_eq!(entry.byte_cnt.get(), 100));
        (back.is_some(), out)
    }

    fn turn(&self, unicast: bool, multicast: bool) {
        self.rig.bring_back(unicast, multicast);
        let mut input = QueryNicVportContextIn::ZERO;
        let output =
            self.rig.must(op::QUERY_NIC_VPORT_CONTEXT, 0, &mut input, QueryNicVportContextOut::BYTES);
        let context = QueryNicVportContextOut::NIC_VPORT_CONTEXT.of(output.first_chunk().expect("an answer"));
        assert_eq!(NicVportContext::DISABLE_UC_LOCAL_LB.is_set(context), !unicast);
        assert_eq!(NicVportContext::DISABLE_MC_LOCAL_LB.is_set(context), !multicast);
    }

    /// Which of its own domain's frames the receiver takes.
    fn take(&self, kinds: u32) {
        let mut input = ModifyTirIn::ZERO;
        ModifyTirIn::TIRN.set(&mut input, self.tir);
        ModifyTirIn::BITMASK.set(&mut input, modify::SELF_LB_EN);
        let context = ModifyTirIn::CTX.of_mut(&mut input);
        TirContext::SELF_LB_BLOCK.set(context, kinds);
        self.rig.must(op::MODIFY_TIR, 0, &mut input, 16);
    }
}

fn another_domain(rig: &Rig) -> u32 {
    let output = rig.must(op::ALLOC_TRANSPORT_DOMAIN, 0, &mut [0; 16], 16);
    AllocTransportDomainOut::TRANSPORT_DOMAIN.get(output.first_chunk().expect("an answer"))
}

/// The function's own address.
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const ONE: [u8; 6] = [2, 0, 0, 0, 0, 7];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const GROUP: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];

#[test]
fn what_is_to_its_own_sender_comes_back_and_groups_hear_it_too() {
    let mut bench = Bench::of_two_domains();
    assert_eq!(bench.send(ONE, ONE), (true, false), "to the sender: not to the wire");
    assert_eq!(bench.send(OWN, [0; 6]), (true, false), "to the function, from no address");
    assert_eq!(bench.send(OTHER, ONE), (false, true), "to another address");
    assert_eq!(bench.send(GROUP, ONE), (true, true), "to a group: both");
    assert_eq!(bench.send([0xff; 6], ONE), (true, true), "to all: both");
}

#[test]
fn each_kind_can_be_turned_off() {
    let mut bench = Bench::of_two_domains();
    for (unicast, multicast) in [(false, true), (true, false), (false, false), (true, true)] {
        bench.turn(unicast, multicast);
        assert_eq!(bench.send(ONE, ONE), (unicast, !unicast));
        assert_eq!(bench.send(GROUP, ONE), (multicast, true));
    }
}

#[test]
fn a_receiver_of_the_senders_domain_takes_what_it_was_told_to() {
    let mut bench = Bench::of_one_domain();
    for (kinds, unicast, multicast) in [
        (0, false, false),
        (loopback::ALLOW_UNICAST, true, false),
        (loopback::ALLOW_MULTICAST, false, true),
        (loopback::ALLOW_UNICAST | loopback::ALLOW_MULTICAST, true, true),
    ] {
        bench.take(kinds);
        assert_eq!(bench.send(ONE, ONE), (unicast, false), "{kinds}");
        assert_eq!(bench.send(GROUP, ONE), (multicast, true), "{kinds}");
    }
}

#[test]
fn behind_an_e_switch_groups_come_back_that_the_function_listens_to() {
    let mut bench = Bench::new(true, another_domain);
    assert_eq!(bench.send(GROUP, ONE), (false, true));
    let mut select = FieldSelect::ZERO;
    FieldSelect::PROMISC.set(&mut select, 1);
    let mut input = ModifyNicVportContextIn::ZERO;
    ModifyNicVportContextIn::FIELD_SELECT.set(&mut input, u32::from_be_bytes(select));
    NicVportContext::PROMISC_MC.set(ModifyNicVportContextIn::NIC_VPORT_CONTEXT.of_mut(&mut input), 1);
    bench.rig.must(op::MODIFY_NIC_VPORT_CONTEXT, 0, &mut input, 16);
    assert_eq!(bench.send(GROUP, ONE), (true, true));
}

#[test]
fn a_link_that_is_down_carries_nothing_back_either() {
    let mut bench = Bench::of_two_domains();
    bench.rig.device.set_link(false);
    bench.rig.settle();
    assert_eq!(bench.send(ONE, ONE), (false, false));
    bench.rig.device.set_link(true);
    bench.rig.settle();
    assert_eq!(bench.send(ONE, ONE), (true, false));
}

#[test]
fn the_functions_counters_have_both_ways() {
    let mut bench = Bench::of_two_domains();
    bench.send(ONE, ONE);
    bench.send(GROUP, ONE);
    let mut input = QueryVportCounterIn::ZERO;
    let output = bench.rig.must(op::QUERY_VPORT_COUNTER, 0, &mut input, QueryVportCounterOut::BYTES);
    let output = output.first_chunk().expect("an answer");
    use QueryVportCounterOut as V;
    for (field, packets) in [
        (V::RECEIVED_ETH_UNICAST, 1),
        (V::TRANSMITTED_ETH_UNICAST, 1),
        (V::RECEIVED_ETH_MULTICAST, 1),
        (V::TRANSMITTED_ETH_MULTICAST, 1),
    ] {
        let counter = field.get(output);
        assert_eq!(
            (TrafficCounter::PACKETS.get(&counter), TrafficCounter::OCTETS.get(&counter)),
            (packets, packets * 100)
        );
    }
}

#[test]
fn a_sender_waits_while_too_much_comes_back() {
    let mut bench = Bench::of_two_domains();
    let mut frame = super::rig::frame(100, 9);
    frame.copy_within(..6, 6);
    let body = plain(&bench.rig, &frame);
    for _ in 0..3 {
        for _ in 0..40 {
            bench.sq.write(&bench.rig, send::SEND, &body, Completion::OnError);
        }
        bench.sq.ring(&bench.rig);
        bench.rig.settle();
    }
    // As many as there were buffers for; the others found none.
    assert_eq!(std::iter::from_fn(|| bench.received.poll(&bench.rig)).count(), 16);
    assert!(bench.rig.wire.ends().sent.is_empty());
}

#[test]
fn the_device_tells_that_it_can() {
    let rig = Rig::new();
    let mut input = [0; 16];
    let output = rig.must(op::QUERY_HCA_CAP, kind::GENERAL << 1, &mut input, QueryHcaCapOut::BYTES);
    let caps = output[16..].first_chunk().expect("capabilities");
    assert!(GeneralCaps::DISABLE_LOCAL_LB_UC.is_set(caps) && GeneralCaps::DISABLE_LOCAL_LB_MC.is_set(caps));
}
