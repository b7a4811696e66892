//! Counters: of queues, of flows, of virtual ports.

use crate::layout::layouts;

layouts! {
    /// A counter set.
    AllocQCounterOut = "alloc_q_counter_out" [16] {
        COUNTER_SET_ID: field(0x08, 7, 0),
    }

    /// Gives a counter set back.
    DeallocQCounterIn = "dealloc_q_counter_in" [16] {
        COUNTER_SET_ID: field(0x08, 7, 0),
    }

    /// Reads a set; `clear` also clears it.
    QueryQCounterIn = "query_q_counter_in" [32] {
        CLEAR: field(0x18, 31, 31),
        COUNTER_SET_ID: field(0x1c, 7, 0),
    }

    /// What went wrong on the set's queues; `out_of_buffer` counts packets that found no receive buffer.
    QueryQCounterOut = "query_q_counter_out" [256] {
        RX_WRITE_REQUESTS: field(0x10, 31, 0),
        RX_READ_REQUESTS: field(0x18, 31, 0),
        RX_ATOMIC_REQUESTS: field(0x20, 31, 0),
        RX_DCT_CONNECT: field(0x28, 31, 0),
        OUT_OF_BUFFER: field(0x30, 31, 0),
        OUT_OF_SEQUENCE: field(0x38, 31, 0),
        DUPLICATE_REQUEST: field(0x40, 31, 0),
        RNR_NAK_RETRY_ERR: field(0x48, 31, 0),
        PACKET_SEQ_ERR: field(0x50, 31, 0),
        IMPLIED_NAK_SEQ_ERR: field(0x58, 31, 0),
        LOCAL_ACK_TIMEOUT_ERR: field(0x60, 31, 0),
        RESP_LOCAL_LENGTH_ERROR: field(0x78, 31, 0),
        REQ_LOCAL_LENGTH_ERROR: field(0x7c, 31, 0),
        RESP_LOCAL_QP_ERROR: field(0x80, 31, 0),
        LOCAL_OPERATION_ERROR: field(0x84, 31, 0),
        RESP_LOCAL_PROTECTION: field(0x88, 31, 0),
        REQ_LOCAL_PROTECTION: field(0x8c, 31, 0),
        RESP_CQE_ERROR: field(0x90, 31, 0),
        REQ_CQE_ERROR: field(0x94, 31, 0),
        REQ_MW_BINDING: field(0x98, 31, 0),
        REQ_BAD_RESPONSE: field(0x9c, 31, 0),
        REQ_REMOTE_INVALID_REQUEST: field(0xa0, 31, 0),
        RESP_REMOTE_INVALID_REQUEST: field(0xa4, 31, 0),
        REQ_REMOTE_ACCESS_ERRORS: field(0xa8, 31, 0),
        RESP_REMOTE_ACCESS_ERRORS: field(0xac, 31, 0),
        REQ_REMOTE_OPERATION_ERRORS: field(0xb0, 31, 0),
        REQ_TRANSPORT_RETRIES_EXCEEDED: field(0xb4, 31, 0),
        CQ_OVERFLOW: field(0xb8, 31, 0),
        RESP_CQE_FLUSH_ERROR: field(0xbc, 31, 0),
        REQ_CQE_FLUSH_ERROR: field(0xc0, 31, 0),
        ROCE_ADP_RETRANS: field(0xc8, 31, 0),
        ROCE_ADP_RETRANS_TO: field(0xcc, 31, 0),
        ROCE_SLOW_RESTART: field(0xd0, 31, 0),
        ROCE_SLOW_RESTART_CNPS: field(0xd4, 31, 0),
        ROCE_SLOW_RESTART_TRANS: field(0xd8, 31, 0),
    }

    /// One counter, or many in a row.
    AllocFlowCounterIn = "alloc_flow_counter_in" [16] {
        FLOW_COUNTER_BULK_LOG_SIZE: field(0x0c, 12, 8),
        FLOW_COUNTER_BULK: field(0x0c, 7, 0),
    }

    /// The first one's number.
    AllocFlowCounterOut = "alloc_flow_counter_out" [16] {
        FLOW_COUNTER_ID: field(0x08, 31, 0),
    }

    /// Gives a counter back.
    DeallocFlowCounterIn = "dealloc_flow_counter_in" [16] {
        FLOW_COUNTER_ID: field(0x08, 31, 0),
    }

    /// Reads counters; `clear` also clears them.
    QueryFlowCounterIn = "query_flow_counter_in" [32] {
        CLEAR: field(0x18, 31, 31),
        NUM_OF_COUNTERS: field(0x18, 15, 0),
        FLOW_COUNTER_ID: field(0x1c, 31, 0),
    }

    /// [`TrafficCounter`]s follow.
    QueryFlowCounterOut = "query_flow_counter_out" [16] {
    }

    /// Packets and bytes.
    TrafficCounter = "traffic_counter" [16] {
        PACKETS: wide(0x00, 63, 0),
        OCTETS: wide(0x08, 63, 0),
    }

    /// Reads a virtual port's counters.
    QueryVportCounterIn = "query_vport_counter_in" [32] {
        OTHER_VPORT: field(0x08, 31, 31),
        PORT_NUM: field(0x08, 19, 16),
        VPORT_NUMBER: field(0x08, 15, 0),
        CLEAR: field(0x18, 31, 31),
    }

    /// A [`TrafficCounter`] for each kind.
    QueryVportCounterOut = "query_vport_counter_out" [528] {
        RECEIVED_ERRORS: run(0x10, 16),
        TRANSMIT_ERRORS: run(0x20, 16),
        RECEIVED_IB_UNICAST: run(0x30, 16),
        TRANSMITTED_IB_UNICAST: run(0x40, 16),
        RECEIVED_IB_MULTICAST: run(0x50, 16),
        TRANSMITTED_IB_MULTICAST: run(0x60, 16),
        RECEIVED_ETH_BROADCAST: run(0x70, 16),
        TRANSMITTED_ETH_BROADCAST: run(0x80, 16),
        RECEIVED_ETH_UNICAST: run(0x90, 16),
        TRANSMITTED_ETH_UNICAST: run(0xa0, 16),
        RECEIVED_ETH_MULTICAST: run(0xb0, 16),
        TRANSMITTED_ETH_MULTICAST: run(0xc0, 16),
    }
}
