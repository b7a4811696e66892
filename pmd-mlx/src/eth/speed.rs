//! The speed of a link as the kernel's RDMA half codes it, for interfaces that do not tell theirs.

/// Megabits per second of a lane, by code. Source: rdma-core `libibverbs/verbs.h`, `enum ibv_port_state` and
/// `ibv_query_port(3)`: `active_speed`, from SDR to XDR; Linux `include/rdma/ib_verbs.h`, `enum ib_port_speed`.
const LANE_MBPS: &[(u32, u32)] = &[
    (1, 2_500),
    (2, 5_000),
    (4, 10_000),
    (8, 10_000),
    (16, 14_000),
    (32, 25_000),
    (64, 50_000),
    (128, 100_000),
    (256, 200_000),
];

/// Lanes, by code. Source: Linux `include/rdma/ib_verbs.h`, `enum ib_port_width`.
const LANES: &[(u8, u16)] = &[(1, 1), (16, 2), (2, 4), (4, 8), (8, 12)];

/// Megabits per second and lanes. `long` is the code of newer kernels, 0 where they do not tell it.
pub(crate) fn of(speed: u8, long: u32, width: u8) -> (Option<u32>, Option<u16>) {
    let code = if long == 0 { u32::from(speed) } else { long };
    let lane = LANE_MBPS.iter().find(|(known, _)| *known == code).map(|(_, mbps)| *mbps);
    let lanes = LANES.iter().find(|(known, _)| *known == width).map(|(_, lanes)| *lanes);
    (lane.zip(lanes).map(|(lane, lanes)| lane * u32::from(lanes)), lanes)
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn codes_become_speeds_up_to_xdr() {
        for (codes, expected) in [
            ((32, 0, 1), (Some(25_000), Some(1))),
            ((32, 0, 2), (Some(100_000), Some(4))),
            ((64, 0, 2), (Some(200_000), Some(4))),
            ((128, 128, 2), (Some(400_000), Some(4))),
            ((128, 256, 2), (Some(800_000), Some(4))),
            ((0, 256, 4), (Some(1_600_000), Some(8))),
            ((16, 0, 16), (Some(28_000), Some(2))),
            ((3, 0, 2), (None, Some(4))),
            ((32, 0, 3), (None, None)),
        ] {
            let (speed, long, width) = codes;
            assert_eq!(of(speed, long, width), expected, "{codes:?}");
        }
    }
}
