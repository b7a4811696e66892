//! Ethernet: ports made of RAW_PACKET queues.
