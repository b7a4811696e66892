//! Two agents, and between them a wire that loses, doubles and delays what it likes, by seed. Time is simulated.

use std::collections::{BTreeMap, HashMap};

use super::*;
use crate::message::{Dreq, Message, Mra, Rej, Req, Rtu, SidrReq, about, above};

const SERVICE: u64 = 0x0106_1c06;
/// Who listens for it.
const LISTENER: u64 = 5;
const GIDS: [[u8; 16]; 2] = [[1; 16], [2; 16]];

/// What the wire does, in per cent, and how long a datagram takes at most.
#[derive(Clone, Copy, Debug)]
struct Wire {
    loss: u64,
    doubles: u64,
    delay_ms: u64,
}

const CLEAN: Wire = Wire { loss: 0, doubles: 0, delay_ms: 1 };
const BAD: Wire = Wire { loss: 25, doubles: 25, delay_ms: 900 };

/// What a program does with what it hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// Agrees to all, and goes on when the peer does.
    Agrees,
    /// Says no to all.
    Refuses,
    /// Lets go of all that it hears of.
    LetsGo,
    /// Does nothing, as one that hangs.
    Sleeps,
}

/// At whom a datagram arrives, and what it is.
type Flying = (usize, Box<[u8; BYTES]>);

struct World {
    now: Duration,
    agents: [Agent; 2],
    wire: Wire,
    /// Where datagrams are: when they arrive, a number, and at whom.
    flying: BTreeMap<(Duration, u64), Flying>,
    seed: u64,
    count: u64,
    habits: [Habit; 2],
    /// Whose process is gone.
    dead: [bool; 2],
    heard: [HashMap<u32, Vec<Notice>>; 2],
}

impl World {
    fn new(wire: Wire, habits: [Habit; 2], seed: u64) -> Self {
        let agents = [0, 1].map(|side| {
            let mut agent = Agent::new(side as u64 + 1, Timing::default(), seed as u32 ^ side << 20);
            agent.set_port(vec![GIDS[side as usize]], Mtu::Bytes4096);
            agent
        });
        let mut world = Self {
            now: Duration::ZERO,
            agents,
            wire,
            flying: BTreeMap::new(),
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            count: 0,
            habits,
            dead: [false; 2],
            heard: Default::default(),
        };
        world.agents[1].listen(SERVICE, LISTENER);
        world
    }

    /// xorshift64*.
    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed >> 12;
        self.seed ^= self.seed << 25;
        self.seed ^= self.seed >> 27;
        (self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }

    fn ask(&mut self, qpn: u32) -> u32 {
        let ask = Ask {
            path: Path::new(GIDS[1], 0),
            own_gid: GIDS[0],
            service: SERVICE,
            qpn,
            psn: 0x00ab_cdef,
            mtu: Mtu::Bytes2048,
            parameters: ConnectionParameters {
                responder_resources: 3,
                initiator_depth: 5,
                ..ConnectionParameters::default()
            },
            private: vec![7; 92],
            ack_timeout: None,
        };
        let now = self.now;
        self.agents[0].connect(now, &ask)
    }

    /// What an agent has to say goes on the wire.
    fn put(&mut self) {
        for side in 0..2 {
            while let Some(Outgoing { to, bytes }) = self.agents[side].outgoing() {
                if self.dead[side] {
                    continue;
                }
                let target = GIDS.iter().position(|gid| *gid == to.gid).expect("one of the two");
                let times = if self.random(100) < self.wire.loss {
                    0
                } else {
                    1 + u32::from(self.random(100) < self.wire.doubles)
                };
                for _ in 0..times {
                    let micros = 1 + self.random(self.wire.delay_ms * 1000);
                    self.count += 1;
                    let arrival = self.now + Duration::from_micros(micros);
                    self.flying.insert((arrival, self.count), (target, bytes.clone()));
                }
            }
        }
    }

    /// The programs hear what happened.
    fn listen(&mut self) {
        for side in 0..2 {
            while let Some((local, notice)) = self.agents[side].notice() {
                self.heard[side].entry(local).or_default().push(notice.clone());
                let (habit, now) = (self.habits[side], self.now);
                let agent = &mut self.agents[side];
                match (notice, habit) {
                    (_, Habit::Sleeps) => {}
                    (_, Habit::LetsGo) => agent.abandon(now, local),
                    (Notice::Request { .. }, Habit::Refuses) => {
                        agent.reject(local, RejectReason::CONSUMER_DEFINED, b"no").expect("it was asked");
                    }
                    (Notice::Request { parameters, .. }, Habit::Agrees) => {
                        let parameters = ConnectionParameters { private_data: vec![9; 196], ..parameters };
                        // Gone again, perhaps.
                        agent.expect(local, 0x12_3456);
                        agent.accept(now, local, 0x99, &parameters).unwrap_or_default();
                    }
                    (Notice::Response { .. }, _) => agent.establish(local).unwrap_or_default(),
                    (Notice::Disconnected, _) => agent.disconnect(now, local).unwrap_or_default(),
                    (Notice::Rejected { .. } | Notice::Unreachable | Notice::TimeWaitOver, _) => {
                        agent.abandon(now, local);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Until nothing happens any more, or until then.
    fn run_until(&mut self, end: Duration) {
        for _ in 0..2_000_000 {
            self.listen();
            self.put();
            let due = self
                .agents
                .iter()
                .zip(self.dead)
                .filter(|(_, dead)| !dead)
                .filter_map(|(agent, _)| agent.next_due());
            let next =
                due.min().into_iter().chain(self.flying.keys().next().map(|(arrival, _)| *arrival)).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = self.now.max(end.min(Duration::from_secs(1 << 30)));
                return;
            };
            self.now = self.now.max(next);
            let now = self.now;
            while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= now) {
                let (target, bytes) = entry.remove();
                if !self.dead[target] {
                    let from = Path::new(GIDS[1 - target], 0);
                    self.agents[target].receive(now, from, &bytes[..]);
                }
            }
            for side in 0..2 {
                if !self.dead[side] {
                    self.agents[side].run(now);
                }
            }
        }
        panic!("it never ends");
    }

    fn finish(&mut self) {
        self.run_until(Duration::from_secs(1 << 20));
    }

    fn said(&self, side: usize, local: u32) -> &[Notice] {
        self.heard[side].get(&local).map_or(&[], Vec::as_slice)
    }

    /// The numbers of connections that the second one was asked for.
    fn asked(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.heard[1].keys().copied().collect();
        all.sort_unstable();
        all
    }
}

fn is_response(notice: &Notice) -> bool {
    matches!(notice, Notice::Response { .. })
}

fn is_established(notice: &Notice) -> bool {
    matches!(notice, Notice::Established { .. })
}

#[test]
fn a_connection_is_made_used_and_ended() {
    let mut world = World::new(CLEAN, [Habit::Agrees; 2], 1);
    let local = world.ask(0x77);
    world.run_until(Duration::from_secs(1));
    let peer = world.asked()[0];
    // Each says what the other may do, the other way round; private data come whole.
    let [Notice::Response { qpn: 0x99, parameters }] = world.said(0, local) else {
        panic!("{:?}", world.said(0, local))
    };
    assert_eq!((parameters.responder_resources, parameters.initiator_depth), (3, 5));
    assert_eq!(parameters.private_data, [9; 196]);
    let [Notice::Request { parameters, service: SERVICE, qpn: 0x77, .. }, Notice::Established { .. }] =
        world.said(1, peer)
    else {
        panic!("{:?}", world.said(1, peer))
    };
    assert_eq!((parameters.responder_resources, parameters.initiator_depth), (5, 3));
    assert_eq!(parameters.private_data, [7; 92]);
    // What one begins with, the other expects.
    let ends =
        [world.agents[0].connection(local).expect("known"), world.agents[1].connection(peer).expect("known")];
    assert_eq!((ends[0].rq_psn, ends[0].sq_psn), (0x00ab_cdef, 0x12_3456));
    assert_eq!((ends[1].rq_psn, ends[1].sq_psn), (0x12_3456, 0x00ab_cdef));
    assert_eq!((ends[0].qpn, ends[1].qpn), (0x99, 0x77));
    assert_eq!((ends[0].max_rd_atomic, ends[0].max_dest_rd_atomic), (5, 3));
    assert_eq!((ends[1].max_rd_atomic, ends[1].max_dest_rd_atomic), (3, 5));
    assert_eq!(
        ends.map(|end| (end.mtu, end.timeout, end.retries, end.rnr_retries)),
        [(Mtu::Bytes2048, 17, 7, 7); 2]
    );
    let now = world.now;
    world.agents[0].disconnect(now, local).expect("it is established");
    world.finish();
    for (side, local) in [(0, local), (1, peer)] {
        assert_eq!(
            world.said(side, local)[world.said(side, local).len() - 2..],
            [Notice::Disconnected, Notice::TimeWaitOver]
        );
        assert_eq!(world.agents[side].connections(), 0);
    }
    assert_eq!(world.agents.map(|agent| (agent.counts().duplicates, agent.counts().strange)), [(0, 0); 2]);
}

#[test]
fn each_connection_comes_to_the_same_at_both_ends() {
    for seed in 0..60 {
        for habits in [[Habit::Agrees; 2], [Habit::Agrees, Habit::Refuses], [Habit::Agrees, Habit::LetsGo]] {
            let mut world = World::new(BAD, habits, seed);
            let asked: Vec<u32> = (0..8).map(|number| world.ask(0x100 + number)).collect();
            world.run_until(Duration::from_secs(300));
            for local in &asked {
                let agreed = world.said(0, *local).iter().any(is_response);
                assert_eq!(
                    agreed,
                    habits[1] == Habit::Agrees,
                    "seed {seed}, {habits:?}: {:?}",
                    world.said(0, *local)
                );
                let times = world.said(0, *local).iter().filter(|notice| is_response(notice)).count();
                assert!(times <= 1, "seed {seed}: told twice");
            }
            let peers = world.asked();
            // What was rejected is forgotten: a request that comes late is asked again.
            let once = habits[1] == Habit::Agrees;
            assert!(
                peers.len() == asked.len() || !once && peers.len() > asked.len(),
                "seed {seed}: {}",
                peers.len()
            );
            let established =
                peers.iter().filter(|peer| world.said(1, **peer).iter().any(is_established)).count();
            assert_eq!(established, if habits[1] == Habit::Agrees { asked.len() } else { 0 }, "seed {seed}");
            // One ends some, the other others, both end some.
            let now = world.now;
            for (place, local) in asked.iter().enumerate() {
                if place % 3 != 1 {
                    world.agents[0].disconnect(now, *local).unwrap_or_default();
                }
            }
            for (place, peer) in peers.iter().enumerate() {
                if place % 3 != 0 {
                    world.agents[1].disconnect(now, *peer).unwrap_or_default();
                }
            }
            world.run_until(now + Duration::from_secs(600));
            for (local, side) in
                asked.iter().map(|local| (*local, 0)).chain(peers.iter().map(|peer| (*peer, 1)))
            {
                // Which of the first's is which of the second's nobody says: some were ended by both, all by one at least.
                if habits[1] == Habit::Agrees && world.said(side, local).contains(&Notice::Disconnected) {
                    let times = world
                        .said(side, local)
                        .iter()
                        .filter(|notice| **notice == Notice::Disconnected)
                        .count();
                    assert_eq!(times, 1, "seed {seed}");
                }
            }
            // What nobody ended is let go of.
            for side in 0..2 {
                let left: Vec<u32> = world.agents[side].connections.keys().copied().collect();
                let now = world.now;
                for local in left {
                    world.agents[side].abandon(now, local);
                }
            }
            world.finish();
            for agent in &world.agents {
                assert_eq!(agent.connections(), 0, "seed {seed}, {habits:?}: {:?}", agent.connections);
                assert!(
                    agent.by_remote.is_empty()
                        && agent.by_queue.is_empty()
                        && agent.by_request.is_empty()
                        && agent.due.is_empty(),
                    "seed {seed}: {agent:?}"
                );
            }
        }
    }
}

#[test]
fn a_thousand_connections_at_once_come_and_go() {
    let mut world = World::new(Wire { loss: 5, ..CLEAN }, [Habit::Agrees; 2], 3);
    let asked: Vec<u32> = (0..1000).map(|number| world.ask(0x1000 + number)).collect();
    world.run_until(Duration::from_secs(100));
    assert!(asked.iter().all(|local| world.said(0, *local).iter().any(is_response)));
    assert_eq!(world.asked().len(), 1000);
    let now = world.now;
    for local in asked {
        world.agents[0].disconnect(now, local).expect("established");
    }
    world.finish();
    assert_eq!(world.agents.map(|agent| agent.connections()), [0, 0]);
}

/// One process dies after so much time: the other one gives up, and forgets.
#[test]
fn a_peer_that_dies_in_any_state_is_given_up() {
    for died_ms in [0, 1, 2, 3, 5, 200, 2000] {
        for dies in 0..2 {
            let slow = Wire { delay_ms: 2, ..CLEAN };
            let mut world = World::new(slow, [Habit::Agrees; 2], died_ms);
            let local = world.ask(0x55);
            world.run_until(Duration::from_micros(died_ms * 700));
            world.dead[dies] = true;
            let alive = 1 - dies;
            // An established connection is ended by its program, which hears of it from its queue pair.
            world.run_until(Duration::from_secs(100));
            let now = world.now;
            let left: Vec<u32> = world.agents[alive].connections.keys().copied().collect();
            for connection in left {
                world.agents[alive].disconnect(now, connection).unwrap_or_default();
            }
            world.finish();
            assert_eq!(
                world.agents[alive].connections(),
                0,
                "{died_ms} {dies}: {:?}",
                world.agents[alive].connections
            );
            let told = if alive == 0 {
                world.said(0, local).to_vec()
            } else {
                world.heard[1].values().flatten().cloned().collect()
            };
            if !told.is_empty() {
                let end = [Notice::Unreachable, Notice::TimeWaitOver];
                assert!(told.last().is_some_and(|last| end.contains(last)), "{died_ms} {dies}: {told:?}");
            }
        }
    }
}

/// Who was started anew has queue pairs of the same numbers, and asks again: what is left of before is ended, the next try succeeds.
#[test]
fn a_stale_connection_makes_room() {
    let mut world = World::new(CLEAN, [Habit::Agrees; 2], 5);
    world.ask(0x55);
    world.run_until(Duration::from_secs(1));
    let mut again = Agent::new(1, Timing::default(), 0xdead);
    again.set_port(vec![GIDS[0]], Mtu::Bytes4096);
    world.agents[0] = again;
    world.heard = Default::default();
    let refused = world.ask(0x55);
    world.run_until(Duration::from_secs(2));
    assert!(
        matches!(world.said(0, refused), [Notice::Rejected { reason: RejectReason::STALE_CONN, .. }, ..]),
        "{:?}",
        world.said(0, refused)
    );
    // Its end was agreed on; that it waits for the last packets does not matter to a new one.
    let made = world.ask(0x55);
    world.run_until(Duration::from_secs(3));
    assert!(world.said(0, made).iter().any(is_response), "{:?}", world.said(0, made));
}

/// Its program takes half a minute: the peer is told so, and does not give up.
#[test]
fn a_slow_program_is_waited_for() {
    let mut world = World::new(CLEAN, [Habit::Agrees, Habit::Sleeps], 6);
    let local = world.ask(0x55);
    world.run_until(Duration::from_secs(60));
    assert!(world.said(0, local).is_empty(), "{:?}", world.said(0, local));
    let peer = world.asked()[0];
    // The request, once more, and the word that it takes longer: no more than that.
    assert_eq!(world.agents[0].counts().sent_again, 1);
    let (now, parameters) = (world.now, ConnectionParameters::default());
    world.agents[1].accept(now, peer, 1, &parameters).expect("still asked for");
    world.run_until(Duration::from_secs(61));
    assert!(world.said(0, local).iter().any(is_response));
}

#[test]
fn a_peer_that_asks_for_hours_gets_a_minute() {
    let mut world = World::new(CLEAN, [Habit::Sleeps, Habit::Agrees], 1);
    let local = world.ask(0x77);
    // The peer has agreed, and its answer is under way.
    while world.agents[1].connections.values().all(|known| known.state != State::RepSent) {
        world.run_until(world.now + Duration::from_millis(1));
    }
    world.dead[0] = true;
    let peer = world.asked()[0];
    let mra = Mra {
        local_id: local.into(),
        remote_id: peer.into(),
        message: about::REP << 6,
        timeout: 31 << 3,
        ..Mra::default()
    };
    let now = world.now;
    let mra = Message::Mra(Box::new(mra)).encode(1);
    // One more asks for no more time.
    for at in [now, now + Duration::from_secs(1)] {
        world.agents[1].receive(at, Path::new(GIDS[0], 0), &mra);
    }
    let gives_up = |world: &World| matches!(world.said(1, peer).last(), Some(Notice::Unreachable));
    world.run_until(now + Duration::from_secs(70));
    assert!(!gives_up(&world), "{:?}", world.said(1, peer));
    assert!((5..8).contains(&world.agents[1].counts().sent_again), "{:?}", world.agents[1].counts());
    world.run_until(now + Duration::from_secs(110));
    assert!(gives_up(&world), "{:?}", world.said(1, peer));
}

/// A program that took its time goes on, and the one word that says so is lost: the peer need not wait for all the time that it was
/// asked for.
#[test]
fn a_lost_word_of_a_slow_program_is_asked_for_again() {
    let mut world = World::new(CLEAN, [Habit::Sleeps, Habit::Agrees], 1);
    let local = world.ask(0x77);
    // The answer comes again, and the peer is asked for time.
    world.run_until(Duration::from_secs(4));
    let peer = world.asked()[0];
    assert!(
        world.agents[1].connections[&peer].waiting.as_ref().is_some_and(|waiting| waiting.grant.is_some())
    );
    world.agents[0].establish(local).expect("agreed to");
    while world.agents[0].outgoing().is_some() {}
    world.run_until(Duration::from_secs(12));
    let made = |notice: &Notice| matches!(notice, Notice::Established { .. });
    assert!(world.said(1, peer).iter().any(made), "{:?}", world.said(1, peer));
}

#[test]
fn what_nobody_listens_for_or_cannot_be_is_rejected() {
    let reject = |change: fn(&mut Req)| {
        let mut world = World::new(CLEAN, [Habit::Agrees; 2], 7);
        let local = world.ask(0x55);
        let Outgoing { bytes, .. } = world.agents[0].outgoing().expect("a request");
        let (Message::Req(mut req), transaction) = Message::decode(&bytes[..]).expect("its own") else {
            panic!()
        };
        change(&mut req);
        let changed = Message::Req(req).encode(transaction);
        let now = world.now;
        world.agents[1].receive(now, Path::new(GIDS[0], 0), &changed);
        world.run_until(Duration::from_secs(1));
        match world.said(0, local) {
            [Notice::Rejected { reason, .. }] => *reason,
            other => panic!("{other:?}"),
        }
    };
    for (change, reason) in [
        ((|req| req.service = 1.into()) as fn(&mut Req), RejectReason::INVALID_SERVICE_ID),
        (|req| req.ee_response = (req.ee_response.get() | 4).into(), RejectReason::INVALID_TRANSPORT_TYPE),
        (|req| req.retries_srq |= 1, RejectReason::INVALID_TRANSPORT_TYPE),
        (|req| req.mtu_rnr = 0x70, RejectReason::INVALID_MTU),
        (|req| req.mtu_rnr = 0, RejectReason::INVALID_MTU),
        (|req| req.primary.remote_gid = [9; 16], RejectReason::INVALID_GID),
        (|req| req.primary.local_gid = [9; 16], RejectReason::INVALID_GID),
    ] {
        assert_eq!(reject(change), reason);
    }
}

/// Datagrams of others, cut ones, and those that were sent before, change nothing and are counted.
#[test]
fn strangers_are_counted_and_nothing_else() {
    let mut world = World::new(CLEAN, [Habit::Agrees; 2], 8);
    let local = world.ask(0x55);
    world.run_until(Duration::from_secs(1));
    let peer = world.asked()[0];
    let (now, stranger, friend) = (world.now, Path::new([3; 16], 0), Path::new(GIDS[0], 0));
    let agent = &mut world.agents[1];
    let before = agent.counts();
    let dreq = |qpn: u32| {
        let dreq =
            Dreq { local_id: local.into(), remote_id: peer.into(), qpn: above(qpn, 0), ..Dreq::default() };
        Message::Dreq(Box::new(dreq)).encode(1)
    };
    // The right numbers from another address, and from the right one with another queue pair.
    agent.receive(now, stranger, &dreq(0x99));
    agent.receive(now, friend, &dreq(0x98));
    agent.receive(now, friend, &dreq(0x99)[..100]);
    let rtu = Rtu { local_id: local.into(), remote_id: peer.into(), ..Rtu::default() };
    agent.receive(now, friend, &Message::Rtu(Box::new(rtu)).encode(1));
    let rej = Rej { remote_id: peer.into(), reason: 28.into(), ..Rej::default() };
    agent.receive(now, stranger, &Message::Rej(Box::new(rej)).encode(1));
    let counts = agent.counts();
    assert_eq!(counts.strange - before.strange, 3);
    assert_eq!(counts.malformed - before.malformed, 1);
    assert_eq!(counts.duplicates - before.duplicates, 1);
    assert_eq!(agent.connections[&peer].state, State::Established);
    assert!(agent.outgoing().is_none() && agent.notice().is_none());
    // Random bytes, and random changes of real ones.
    for turn in 0..20_000 {
        let mut bytes = if turn % 2 == 0 { dreq(turn) } else { [0; BYTES] };
        for _ in 0..1 + world.random(40) {
            let place = if turn % 4 < 2 { 24 + world.random(232) } else { world.random(256) };
            bytes[place as usize] = world.random(256) as u8;
        }
        let from = Path::new(if turn % 3 == 0 { [3; 16] } else { GIDS[0] }, 0);
        if turn % 4 >= 2 {
            bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
            bytes[16..18].copy_from_slice(&[0, 0x10 + (turn % 9) as u8]);
        }
        let now = world.now;
        world.agents[1].receive(now, from, &bytes);
        while world.agents[1].outgoing().is_some() || world.agents[1].notice().is_some() {}
    }
    // Among them were some that the friend could have sent. Whatever they did, there is an end to it.
    world.dead[0] = true;
    let now = world.now;
    let left: Vec<u32> = world.agents[1].connections.keys().copied().collect();
    for local in left {
        world.agents[1].abandon(now, local);
    }
    world.finish();
    assert_eq!(world.agents[1].connections(), 0);
}

#[test]
fn datagrams_find_their_queue_pair() {
    for (wire, seed) in [(CLEAN, 1), (BAD, 2), (BAD, 3)] {
        let mut world = World::new(wire, [Habit::Sleeps; 2], seed);
        let now = world.now;
        let found = world.agents[0].ask_for_datagrams(now, Path::new(GIDS[1], 0), SERVICE, &[5; 216]);
        let lost = world.agents[0].ask_for_datagrams(now, Path::new(GIDS[1], 0), 1, &[]);
        for _ in 0..40 {
            let until = world.now + Duration::from_millis(500);
            world.run_until(until);
            for peer in world.asked() {
                let [.., Notice::DatagramRequest { service, private, .. }] = world.said(1, peer) else {
                    panic!()
                };
                assert_eq!((*service, private.len()), (SERVICE, 216));
                world.agents[1].answer_datagram(peer, 0, (0x42, 0x0123_4567), b"there").unwrap_or_default();
            }
        }
        let [Notice::DatagramResponse { qpn: 0x42, qkey: 0x0123_4567, private, .. }] = world.said(0, found)
        else {
            panic!("{:?}", world.said(0, found))
        };
        assert_eq!(&private[..6], b"there\0");
        assert!(
            matches!(world.said(0, lost), [Notice::DatagramRejected { status: 1, .. }]),
            "{:?}",
            world.said(0, lost)
        );
        for local in [found, lost] {
            let now = world.now;
            world.agents[0].abandon(now, local);
        }
        world.finish();
        assert_eq!(world.agents[0].connections(), 0);
    }
}

/// Until it is answered, a request that comes again is the same; the same number from elsewhere is another.
#[test]
fn a_request_for_datagrams_is_told_once() {
    let mut agent = Agent::new(2, Timing::default(), 1);
    agent.listen(SERVICE, LISTENER);
    let request = SidrReq { request: 7.into(), service: SERVICE.into(), ..SidrReq::default() };
    let bytes = Message::SidrReq(Box::new(request)).encode(1);
    let mut told = Vec::new();
    for gid in [GIDS[0], GIDS[0], [3; 16], GIDS[0]] {
        agent.receive(Duration::ZERO, Path::new(gid, 0), &bytes);
        told.extend(std::iter::from_fn(|| agent.notice()).map(|(local, _)| local));
    }
    assert_eq!((told.len(), agent.counts().duplicates), (2, 2));
    agent.answer_datagram(told[0], 0, (1, 1), &[]).expect("it was asked");
    agent.receive(Duration::ZERO, Path::new(GIDS[0], 0), &bytes);
    assert!(agent.notice().is_some(), "asked anew");
}
