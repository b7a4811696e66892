//! How packets are received besides the usual way: in parts, or joined.

use pollux_eal::memory::Memory;
use pollux_mempool::MbufPool;
use pollux_port::{PortConfig, RxOffloads, RxQueueConfig, RxSegment};

use crate::pool::PoolOptions;
use crate::{BringupError, pool};

/// Receive options: buffer split and LRO, with the names and meanings of testpmd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Bytes of each part that packets are split into (`--rxpkts`); 0: as many as an mbuf has room for. None: they are not
    /// split.
    pub lengths: Vec<u16>,
    /// Data offset of each segment (`--rxoffs`); empty: 0.
    pub offsets: Vec<u16>,
    /// Bytes of an mbuf of each part, headroom included (`--mbuf-size`), the last of them for all parts behind; 0: the part
    /// is dropped. None: mbufs of the usual size.
    pub sizes: Vec<u16>,
    /// Enable LRO (`--enable-lro`).
    pub lro: bool,
    /// Maximum size of an LRO packet (`--max-lro-pkt-size`); `None`: from the profile, else the port's maximum.
    pub lro_bytes: Option<u32>,
}

impl ReceiveRequest {
    /// The parts that packets are split into, `usual` being the pool of those without a size of their own.
    ///
    /// # Errors
    /// [`BringupError::Usage`] for parts that make no sense; what a pool says.
    pub fn segments(
        &self,
        memory: &Memory,
        usual: &MbufPool,
        options: PoolOptions,
    ) -> Result<Vec<RxSegment>, BringupError> {
        if let Some(bytes) = self.lro_bytes.filter(|_| !self.lro) {
            return Err(BringupError::Usage(format!(
                "--max-lro-pkt-size {bytes} requires --enable-lro: give both"
            )));
        }
        if self.lengths.is_empty() {
            if self.sizes.is_empty() && self.offsets.is_empty() {
                return Ok(Vec::new());
            }
            let problem = "--mbuf-size and --rxoffs require --rxpkts: give both";
            return Err(BringupError::Usage(problem.into()));
        }
        let count = self.lengths.len().max(self.sizes.len());
        if self.offsets.len() > count {
            return Err(BringupError::Usage(format!(
                "--rxoffs has {} offsets for {count} segments: give at most one per segment",
                self.offsets.len()
            )));
        }
        let least = pollux_mempool::HEADROOM + 1;
        if let Some(small) = self.sizes.iter().find(|size| (1..least).contains(&usize::from(**size))) {
            return Err(BringupError::Usage(format!(
                "--mbuf-size {small} leaves no room for data after the headroom of {} bytes: give at least {least}, or 0 to discard the segment",
                least - 1
            )));
        }
        let mut pools: Vec<(u16, MbufPool)> = Vec::new();
        for &size in &self.sizes {
            if size != 0 && pools.iter().all(|(known, _)| *known != size) {
                pools.push((size, pool::of_size(memory, usual.capacity(), size, options)?));
            }
        }
        let part = |at: usize| RxSegment {
            pool: match self.sizes.get(at).or(self.sizes.last()) {
                None => Some(usual.clone()),
                Some(size) => pools.iter().find(|(known, _)| known == size).map(|(_, pool)| pool.clone()),
            },
            length: self.lengths.get(at).copied().unwrap_or(0),
            offset: self.offsets.get(at).copied().unwrap_or(0),
        };
        Ok((0..count).map(part).collect())
    }

    /// Puts it into a port's configuration.
    pub fn put(&self, segments: &[RxSegment], config: &mut PortConfig) {
        let each = |queue: &mut RxQueueConfig| queue.segments = segments.to_vec();
        config.rx_queues.iter_mut().for_each(each);
        if !segments.is_empty() {
            config.rx_offloads |= RxOffloads::BUFFER_SPLIT;
        }
        if self.lro {
            config.rx_offloads |= RxOffloads::TCP_LRO;
        }
        config.max_lro_bytes = self.lro_bytes.or(config.max_lro_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_without_parts_are_refused() {
        let usual = MbufPool::builder("usual", 512).build_anonymous().expect("memory");
        let parts = |lengths: &[u16], offsets: &[u16], sizes: &[u16]| {
            let request = ReceiveRequest {
                lengths: lengths.into(),
                offsets: offsets.into(),
                sizes: sizes.into(),
                ..ReceiveRequest::default()
            };
            request.segments(&Memory::ordinary(), &usual, PoolOptions::default())
        };
        let error = parts(&[64, 0], &[0, 0, 32], &[]).expect_err("a third").line();
        assert_eq!(error, "--rxoffs has 3 offsets for 2 segments: give at most one per segment");
        parts(&[], &[32], &[]).expect_err("no parts at all");
        let offsets = |parts: Vec<RxSegment>| parts.iter().map(|part| part.offset).collect::<Vec<_>>();
        assert_eq!(parts(&[64, 0], &[0, 32], &[]).map(offsets).expect("parts"), [0, 32]);
        assert_eq!(parts(&[64], &[16], &[512, 0]).map(offsets).expect("parts"), [16, 0]);
    }
}
