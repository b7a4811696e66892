//! Raw frames without mbufs: packet-socket rings, pcap and pcapng files, tap descriptors.
