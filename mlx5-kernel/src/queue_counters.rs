//! What the device counts of a port's queue pairs and receive queues.

use pollux_mlx5_abi::command::counter::{
    AllocQCounterOut, DeallocQCounterIn, QueryQCounterIn, QueryQCounterOut,
};
use pollux_mlx5_abi::command::opcode;
use pollux_uverbs::Errno;

use crate::adapter::Adapter;
use crate::firmware::{Firmware, SHORT, begin};

/// A set of counters, where the device has such.
#[derive(Debug)]
pub(crate) struct QueueCounters {
    /// Its number, by which contexts of queues name it.
    pub(crate) set: Option<u8>,
}

impl QueueCounters {
    pub(crate) fn make(firmware: &Firmware) -> Self {
        let input: [u8; SHORT] = begin(opcode::ALLOC_Q_COUNTER, 0, 0);
        let mut output = AllocQCounterOut::ZERO;
        let made = firmware.execute(&input, &mut output);
        Self { set: made.is_ok().then(|| AllocQCounterOut::COUNTER_SET_ID.get(&output) as u8) }
    }

    /// The reverse of [`make`](Self::make).
    pub(crate) fn end(&self, firmware: &Firmware) {
        let Some(set) = self.set else { return };
        let mut input: [u8; DeallocQCounterIn::BYTES] = begin(opcode::DEALLOC_Q_COUNTER, 0, 0);
        DeallocQCounterIn::COUNTER_SET_ID.set(&mut input, set.into());
        let _ = firmware.execute(&input, &mut [0; SHORT]);
    }

    pub(crate) fn out_of_buffer(&self, adapter: &Adapter) -> Result<u32, Errno> {
        Ok(QueryQCounterOut::OUT_OF_BUFFER.get(&self.query(adapter)?))
    }

    /// Source of the names: Linux `drivers/infiniband/hw/mlx5/counters.c`, `basic_q_cnts`, `out_of_seq_q_cnts`, `retrans_q_cnts`,
    /// `extended_err_cnts`.
    pub(crate) fn named(&self, adapter: &Adapter) -> Result<Vec<(&'static str, u32)>, Errno> {
        let output = self.query(adapter)?;
        type Out = QueryQCounterOut;
        let named = [
            ("rx_write_requests", Out::RX_WRITE_REQUESTS),
            ("rx_read_requests", Out::RX_READ_REQUESTS),
            ("rx_atomic_requests", Out::RX_ATOMIC_REQUESTS),
            ("out_of_buffer", Out::OUT_OF_BUFFER),
            ("out_of_sequence", Out::OUT_OF_SEQUENCE),
            ("duplicate_request", Out::DUPLICATE_REQUEST),
            ("rnr_nak_retry_err", Out::RNR_NAK_RETRY_ERR),
            ("packet_seq_err", Out::PACKET_SEQ_ERR),
            ("implied_nak_seq_err", Out::IMPLIED_NAK_SEQ_ERR),
            ("local_ack_timeout_err", Out::LOCAL_ACK_TIMEOUT_ERR),
            ("resp_local_length_error", Out::RESP_LOCAL_LENGTH_ERROR),
            ("resp_cqe_error", Out::RESP_CQE_ERROR),
            ("req_cqe_error", Out::REQ_CQE_ERROR),
            ("resp_remote_access_errors", Out::RESP_REMOTE_ACCESS_ERRORS),
            ("resp_cqe_flush_error", Out::RESP_CQE_FLUSH_ERROR),
        ];
        Ok(named.map(|(name, field)| (name, field.get(&output))).to_vec())
    }

    fn query(&self, adapter: &Adapter) -> Result<[u8; QueryQCounterOut::BYTES], Errno> {
        let set = self.set.ok_or(Errno::EOPNOTSUPP)?;
        let mut input: [u8; QueryQCounterIn::BYTES] = begin(opcode::QUERY_Q_COUNTER, 0, 0);
        QueryQCounterIn::COUNTER_SET_ID.set(&mut input, set.into());
        let mut output = QueryQCounterOut::ZERO;
        adapter.execute(&input, &mut output)?;
        Ok(output)
    }
}
