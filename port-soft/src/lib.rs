//! Ports without a NIC: null, ring, pcap, af_packet, tap.
