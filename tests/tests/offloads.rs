//! What a sender leaves open (checksums, cutting) is finished by whoever can, on every pair of ports and whatever the interfaces
//! are told to do: hosts joined by l2fwd's loop talk TCP at more than a crawl.

mod offloads {
    pub(super) mod features;
    pub(super) mod middle;
    pub(super) mod nat;
    pub(super) mod pairs;
    pub(super) mod tunnels;
}
