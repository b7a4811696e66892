//! Hashing changed while packets flow.

use pollux_port::driver::RssDriver;
use pollux_port::{HashAlgorithm, PortError, QueueId, RssConfig};

use super::Mlx5Port;
use super::spread::SpreadSpec;
use crate::eth::rss::kinds;

impl RssDriver for Mlx5Port {
    fn rss(&self) -> RssConfig {
        RssConfig {
            fields: self.hashing.fields,
            key: Some(self.spread_spec.key.to_vec()),
            algorithm: HashAlgorithm::Toeplitz,
        }
    }

    fn set_rss(&mut self, config: &RssConfig) -> Result<(), PortError> {
        let mut spec = SpreadSpec { kinds: kinds(config.fields)?, ..self.spread_spec.clone() };
        if let Some(key) = config.key.as_deref().and_then(|key| key.try_into().ok()) {
            spec.key = key;
        }
        self.respread(spec)?;
        self.hashing.fields = config.fields;
        Ok(())
    }

    fn table(&self) -> Vec<QueueId> {
        self.spread_spec.table.iter().map(|queue| QueueId(*queue)).collect()
    }

    fn set_table(&mut self, table: &[QueueId]) -> Result<(), PortError> {
        let table = table.iter().map(|queue| queue.0).collect();
        self.respread(SpreadSpec { table, ..self.spread_spec.clone() })
    }
}
