//! What an application asks of the ports that it starts.

use std::collections::BTreeMap;

use pollux_config::QueueSpec;
use pollux_port::finish::FINISHED;
use pollux_port::{PortConfig, PortId, PortInfo, RssConfig, RxOffloads, TxOffloads};

use crate::ReceiveRequest;

/// What an application asks of the ports that it starts, on top of what command line and profile say of each. What is not asked
/// for is as they say, or as the driver likes best.
///
/// ```
/// use pollux_bringup::PortRequest;
/// use pollux_port::{HashFields, RssConfig, TxOffloads};
///
/// let request = PortRequest::new()
///     .queues(4)
///     .rss(RssConfig::new(HashFields::IP))
///     .tx(TxOffloads::CHECKSUM)
///     .mtu(9000);
/// # let _ = request;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PortRequest {
    pub(crate) lcores: usize,
    pub(crate) mbufs: usize,
    pub(crate) receive: ReceiveRequest,
    pub(crate) mbuf_cache: Option<usize>,
    rx_queues: Option<u16>,
    rx_queues_of_port: BTreeMap<PortId, u16>,
    tx_queues: Option<u16>,
    rx_descriptors: Option<u16>,
    tx_descriptors: Option<u16>,
    mtu: Option<u32>,
    promiscuous: Option<bool>,
    neighbours_by_kernel: Option<bool>,
    rx_interrupts: RxInterrupts,
    rss: Option<RssConfig>,
    rx: RxOffloads,
    rx_where_supported: RxOffloads,
    tx: TxOffloads,
}

/// Which ports are to have rx interrupts.
#[derive(Clone, Copy, Debug, Default)]
enum RxInterrupts {
    #[default]
    None,
    All,
    WhereSupported,
}

impl PortRequest {
    /// Creates a request without settings of its own, for one polling lcore.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of polling lcores, each of which has a cache in the pool.
    pub fn lcores(self, lcores: usize) -> Self {
        Self { lcores, ..self }
    }

    /// Sets the number of rx queues and of tx queues per port; 0: none.
    pub fn queues(self, count: u16) -> Self {
        self.rx_queues(count).tx_queues(count)
    }

    /// Sets the number of rx queues per port.
    pub fn rx_queues(self, count: u16) -> Self {
        Self { rx_queues: Some(count), ..self }
    }

    /// Sets the number of rx queues of one port, whatever the others have; 0: none.
    pub fn rx_queues_of_port(mut self, port: PortId, count: u16) -> Self {
        self.rx_queues_of_port.insert(port, count);
        self
    }

    /// Sets the number of tx queues per port.
    pub fn tx_queues(self, count: u16) -> Self {
        Self { tx_queues: Some(count), ..self }
    }

    /// Sets the descriptors per rx queue; 0 selects those of the profile or the driver.
    pub fn rx_descriptors(self, count: u16) -> Self {
        Self { rx_descriptors: (count > 0).then_some(count), ..self }
    }

    /// Sets the descriptors per tx queue; 0 selects those of the profile or the driver.
    pub fn tx_descriptors(self, count: u16) -> Self {
        Self { tx_descriptors: (count > 0).then_some(count), ..self }
    }

    /// Sets the number of mbufs of the pool; 0: as many as the queues need.
    pub fn mbufs(self, count: usize) -> Self {
        Self { mbufs: count, ..self }
    }

    /// Sets the number of mbufs that each lcore's cache in the pool holds nominally (256 otherwise); 0: no caches.
    pub fn mbuf_cache(self, count: usize) -> Self {
        Self { mbuf_cache: Some(count), ..self }
    }

    /// Sets the MTU in bytes.
    pub fn mtu(self, bytes: u32) -> Self {
        Self { mtu: Some(bytes), ..self }
    }

    /// Enables or disables promiscuous mode. Ports without an address filter always receive all frames.
    pub fn promiscuous(self, on: bool) -> Self {
        Self { promiscuous: Some(on), ..self }
    }

    /// Whether packets that find the addresses of neighbours go to the kernel in any case: a program that uses a port for RDMA, too, is
    /// found by others that way.
    pub fn neighbours_by_kernel(self, on: bool) -> Self {
        Self { neighbours_by_kernel: Some(on), ..self }
    }

    /// Sets the RSS configuration. Without it the driver's default is used.
    pub fn rss(self, rss: RssConfig) -> Self {
        Self { rss: Some(rss), ..self }
    }

    /// Sets the rx offloads. A port that does not support them is an error.
    pub fn rx(self, offloads: RxOffloads) -> Self {
        Self { rx: offloads, ..self }
    }

    /// Sets rx offloads for the ports that support them.
    pub fn rx_where_supported(self, offloads: RxOffloads) -> Self {
        Self { rx_where_supported: offloads, ..self }
    }

    /// What packets to be sent may ask for. Checksums, segmentation and chains ([`FINISHED`]) are done in software where a port
    /// cannot; a port that cannot do one of the others is refused.
    pub fn tx(self, offloads: TxOffloads) -> Self {
        Self { tx: offloads, ..self }
    }

    /// Enables rx interrupts, so that lcores may sleep (`RxQueue::enable_interrupt`). A port that does not support them is an error.
    pub fn rx_interrupts(self, on: bool) -> Self {
        Self { rx_interrupts: if on { RxInterrupts::All } else { RxInterrupts::None }, ..self }
    }

    /// Enables rx interrupts of the ports that support them.
    pub fn rx_interrupts_where_supported(self, on: bool) -> Self {
        Self { rx_interrupts: if on { RxInterrupts::WhereSupported } else { RxInterrupts::None }, ..self }
    }

    /// Sets buffer split and LRO.
    pub fn receive(self, receive: ReceiveRequest) -> Self {
        Self { receive, ..self }
    }

    /// Returns the queues of a port whose command line or profile says `spec`.
    pub fn queues_of(&self, spec: &QueueSpec) -> QueueSpec {
        QueueSpec {
            rx_queues: self.rx_queues.unwrap_or(spec.rx_queues),
            tx_queues: self.tx_queues.unwrap_or(spec.tx_queues),
            rx_descriptors: self.rx_descriptors.unwrap_or(spec.rx_descriptors),
            tx_descriptors: self.tx_descriptors.unwrap_or(spec.tx_descriptors),
        }
    }

    /// The same of the port with this number.
    pub(crate) fn queues_of_port(&self, port: PortId, spec: &QueueSpec) -> QueueSpec {
        let queues = self.queues_of(spec);
        let rx_queues = self.rx_queues_of_port.get(&port).copied().unwrap_or(queues.rx_queues);
        QueueSpec { rx_queues, ..queues }
    }

    /// Puts into a port's configuration, which has what command line and profile say, what is asked for.
    pub(crate) fn put(&self, config: &mut PortConfig, info: &PortInfo) {
        config.mtu = self.mtu.or(config.mtu);
        config.promiscuous = self.promiscuous.or(config.promiscuous);
        config.neighbours_by_kernel = self.neighbours_by_kernel.or(config.neighbours_by_kernel);
        config.rx_interrupts = match self.rx_interrupts {
            RxInterrupts::None => false,
            RxInterrupts::All => true,
            RxInterrupts::WhereSupported => info.rx_interrupts,
        };
        config.rss = self.rss.clone().or(config.rss.take());
        config.rx_offloads |= self.rx | self.rx_where_supported & info.rx_offloads;
        config.tx_offloads |= self.tx - FINISHED;
    }

    /// What of the tx offloads is done in software where a port cannot.
    pub(crate) fn open(&self) -> TxOffloads {
        self.tx & FINISHED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_is_as_the_profile_says() {
        let spec = QueueSpec { rx_queues: 2, tx_queues: 3, rx_descriptors: 64, tx_descriptors: 128 };
        assert_eq!(PortRequest::new().queues_of(&spec), spec);
        assert_eq!(PortRequest::new().rx_descriptors(0).tx_descriptors(0).queues_of(&spec), spec);
        let asked = PortRequest::new().queues(4).rx_descriptors(512).queues_of(&spec);
        assert_eq!(asked, QueueSpec { rx_queues: 4, tx_queues: 4, rx_descriptors: 512, tx_descriptors: 128 });
        let profile = || PortConfig { mtu: Some(4000), promiscuous: Some(true), ..PortConfig::default() };
        let mut config = profile();
        PortRequest::new().put(&mut config, &PortInfo::default());
        assert_eq!((config.mtu, config.promiscuous, config.rss.is_none()), (Some(4000), Some(true), true));
        let tx = TxOffloads::CHECKSUM | TxOffloads::MBUF_FAST_FREE;
        let request = PortRequest::new().mtu(9000).promiscuous(false).rx(RxOffloads::CHECKSUM).tx(tx);
        request.put(&mut config, &PortInfo::default());
        assert_eq!((config.mtu, config.promiscuous), (Some(9000), Some(false)));
        assert_eq!(
            (config.rx_offloads, config.tx_offloads),
            (RxOffloads::CHECKSUM, TxOffloads::MBUF_FAST_FREE)
        );
        assert_eq!(request.open(), TxOffloads::CHECKSUM);
    }

    #[test]
    fn one_port_may_have_queues_of_its_own() {
        let spec = QueueSpec { rx_queues: 1, tx_queues: 1, rx_descriptors: 64, tx_descriptors: 64 };
        let request = PortRequest::new().rx_queues(2).rx_queues_of_port(PortId(1), 0);
        let rx_queues = [0, 1].map(|port| request.queues_of_port(PortId(port), &spec).rx_queues);
        assert_eq!((rx_queues, request.queues_of(&spec).tx_queues), ([2, 0], 1));
    }

    #[test]
    fn offloads_are_asked_of_the_ports_that_have_them() {
        let request = PortRequest::new().rx_where_supported(RxOffloads::CHECKSUM);
        let asked = |rx_offloads| {
            let mut config = PortConfig::default();
            request.put(&mut config, &PortInfo { rx_offloads, ..PortInfo::default() });
            config.rx_offloads
        };
        assert_eq!(asked(RxOffloads::IPV4_CKSUM | RxOffloads::SCATTER), RxOffloads::IPV4_CKSUM);
        assert_eq!(asked(RxOffloads::empty()), RxOffloads::empty());
    }

    #[test]
    fn interrupts_are_asked_of_all_ports_or_of_those_that_have_them() {
        let asked = |request: PortRequest| {
            [false, true].map(|rx_interrupts| {
                let mut config = PortConfig::default();
                request.put(&mut config, &PortInfo { rx_interrupts, ..PortInfo::default() });
                config.rx_interrupts
            })
        };
        assert_eq!(asked(PortRequest::new()), [false; 2]);
        assert_eq!(asked(PortRequest::new().rx_interrupts(true)), [true; 2]);
        assert_eq!(asked(PortRequest::new().rx_interrupts_where_supported(true)), [false, true]);
        assert_eq!(
            asked(PortRequest::new().rx_interrupts_where_supported(true).rx_interrupts(false)),
            [false; 2]
        );
    }
}
