//! Queue pairs by the device's own rules: commands, entries, doorbells at two devices on a cable, stepped by the test.

mod rdma {
    #[expect(dead_code, reason = "shared with the tests of the device")]
    #[path = "../device/rig.rs"]
    pub(crate) mod rig;

    pub(crate) mod node;

    mod basic;
    mod datagram;
    mod dynamic;
    mod error;
    mod fuzz;
    mod local;
    mod paging;
    mod privilege;
    mod registration;
    mod reserved;
    mod seeds;
    mod shared;
    mod signature;
    mod transition;
    mod transport;
    mod window;
    mod wire;
}
