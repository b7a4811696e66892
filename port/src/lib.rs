//! What a port is: control handle, rx and tx queues, stats, and layers around ports.
