//! A port on a stepped model whose wire ends in the test's hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollux_bringup::ModelNetdev;
use pollux_eal::memory::Memory;
use pollux_mempool::{Burst, Mbuf, MbufPool};
use pollux_mlx5_model::wire::{Cable, Sent, Wire};
use pollux_mlx5_model::{Model, Traits, Watched, watch};
use pollux_pmd_mlx::{Arguments, Mlx5Port, Mlx5Spec};
use pollux_port::{Port, PortConfig, PortId, Queues};

use crate::packet::Packet;

/// Address of the port.
pub(crate) const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Pages between the process's addresses and those that the device is told.
const SHIFT_PAGES: u64 = 0x321;

/// How the driver makes its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Verbs,
    Devx,
}

impl Way {
    pub(crate) const BOTH: [Self; 2] = [Self::Verbs, Self::Devx];
}

/// Queues before the port, the port before the model, mbufs' pool last: fields drop in order.
pub(crate) struct Rig {
    pub(crate) queues: Queues,
    pub(crate) port: Port,
    /// Ends before the registers are unmapped: the next device may have their addresses.
    _watched: Watched,
    model: Arc<Model>,
    wire: Cable,
    pub(crate) pool: MbufPool,
}

/// What arrived: the queue, and the mbuf.
pub(crate) type Arrived = (u16, Mbuf);

impl Rig {
    /// A started port with `queues` rx queues and one tx queue.
    pub(crate) fn new(way: Way, queues: usize, change: impl FnOnce(&mut PortConfig)) -> Self {
        Self::on(|_| {}, way, queues, change)
    }

    /// The same on a card that was changed.
    pub(crate) fn on(
        card: impl FnOnce(&mut Traits),
        way: Way,
        queues: usize,
        change: impl FnOnce(&mut PortConfig),
    ) -> Self {
        let (near, wire) = Cable::pair();
        let builder = Model::builder("steering").traits(card).mac(OWN);
        let model = builder.plugged(near).stepped().build().expect("a model");
        let model = Arc::new(model);
        model.device().set_promiscuous(true);
        let _watched = watch(model.device(), |_| {});
        let spec = Mlx5Spec {
            arguments: Arguments { devx: way == Way::Devx, ..Arguments::default() },
            watch: false,
            address_shift_pages: SHIFT_PAGES,
            ..Mlx5Spec::new(model.open(), Arc::new(ModelNetdev::new(&model)), Memory::ordinary())
        };
        let driver = Mlx5Port::open(spec).expect("the model opens");
        let mut port = Port::new(PortId(0), "mlx5_model0", Box::new(driver));
        let pool = MbufPool::builder("steering", 4096).build_anonymous().expect("a pool");
        let mut config = PortConfig::queues(queues, 1, &pool);
        config.rx_queues.iter_mut().for_each(|queue| queue.descriptors = 64);
        change(&mut config);
        let queues = port.bring_up(config).expect("comes up");
        Self { queues, port, _watched, model, wire, pool }
    }

    /// Puts a frame on the wire and gives what comes of it: nothing, or one mbuf on one queue.
    #[track_caller]
    pub(crate) fn arrive(&mut self, packet: &Packet) -> Option<Arrived> {
        let arrived = self.arrive_changed(packet);
        if let Some((_, mbuf)) = &arrived {
            assert_eq!(mbuf.data(), packet.frame(), "it came as it was sent");
        }
        arrived
    }

    /// As [`Rig::arrive`], where the port may change what it receives.
    #[track_caller]
    pub(crate) fn arrive_changed(&mut self, packet: &Packet) -> Option<Arrived> {
        self.arrive_frame(&packet.frame())
    }

    /// As [`Rig::arrive_changed`], whatever the frame.
    #[track_caller]
    pub(crate) fn arrive_frame(&mut self, frame: &[u8]) -> Option<Arrived> {
        assert_eq!(self.wire.send(frame), Sent::Yes);
        self.model.settle();
        let mut arrived = Vec::new();
        for (number, queue) in self.queues.rx.iter_mut().enumerate() {
            let mut burst = Burst::new();
            while queue.rx_burst(&mut burst, 8) > 0 {}
            arrived.extend(burst.drain(..).map(|mbuf| (number as u16, mbuf)));
        }
        self.model.settle();
        assert!(arrived.len() <= 1, "one frame came {} times: {frame:x?}", arrived.len());
        arrived.pop()
    }

    /// Which queue a packet reaches.
    #[track_caller]
    pub(crate) fn queue_of(&mut self, packet: &Packet) -> Option<u16> {
        self.arrive(packet).map(|(queue, _)| queue)
    }

    /// Counts what the kernel's interface hears, from now on.
    pub(crate) fn listen(&self) -> Arc<AtomicUsize> {
        let heard = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&heard);
        self.model.device().on_frame(Arc::new(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        heard
    }

    /// Ends all; every mbuf must be home then, and no rule of doorbells broken.
    pub(crate) fn end(self) {
        let Self { queues, mut port, _watched: watched, model, pool, .. } = self;
        drop(queues);
        port.stop().expect("stops");
        port.close().expect("closes");
        drop(port);
        let (first, count) = model.device().violations();
        assert_eq!(count, 0, "{first:?}");
        assert_eq!(pool.in_use(), 0, "mbufs that did not come home");
        // Before the model, which was bound after it and would go first.
        drop(watched);
    }
}
