//! Bits of entries of queue pairs that mean nothing: told of, and carried out.

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{MkeyContext, UmrControl, mkey_mask, umr_flag};
use pollux_mlx5_model::Violation;
use zerocopy::IntoBytes;

use super::datagram::UD;
use super::node::{Ends, Plan, data, remote, vector};

/// What the first device says of an entry with `bits` more in byte `at` behind its control segment.
fn told(plan: Plan, opcode: u8, at: usize, bits: u8) -> Vec<Violation> {
    let ends = Ends::new();
    let (mut a, mut b) = ends.connected(plan);
    let (from, to) = (ends.a.rig.room(64), ends.b.rig.room(4096));
    b.receive(&ends.b, ends.b.rig.lkey, to, 4096);
    let mut body = match opcode {
        send::RDMA_WRITE => remote(ends.b.rig.lkey, to),
        send::UMR => {
            let control = UmrControl {
                flags: umr_flag::INLINE,
                mkey_mask: mkey_mask::FREE.into(),
                ..UmrControl::default()
            };
            [control.as_bytes(), MkeyContext::default().as_bytes()].concat()
        }
        _ => vector(&ends.b, b.number, plan.qkey),
    };
    if opcode != send::UMR {
        body.extend(data(ends.a.rig.lkey, from, 8));
    }
    body[at] |= bits;
    a.send(&ends.a, opcode, &body);
    ends.steps(5);
    let number = a.number;
    let (found, _) = ends.a.rig.device.violations();
    assert!(found.iter().all(|found| matches!(found, Violation::Reserved { queue, .. } if *queue == number)));
    found
}

#[test]
fn bits_of_segments_that_mean_nothing_are_zero() {
    let rc = Plan::default();
    let cases: [(Plan, u8, usize, u8, bool); 15] = [
        // Behind the peer's key.
        (rc, send::RDMA_WRITE, 11, 0x01, false),
        (rc, send::RDMA_WRITE, 12, 0x80, true),
        (rc, send::RDMA_WRITE, 15, 0x01, true),
        // Of a datagram: above the peer's number, in front of its address.
        (UD, send::SEND, 8, 0x80, false),
        (UD, send::SEND, 8, 0x01, true),
        (UD, send::SEND, 16, 0x01, true),
        (UD, send::SEND, 19, 0x80, true),
        // Of a change to a key: flags, around the masks, the first byte of the context.
        (rc, send::UMR, 0, 0x60, false),
        (rc, send::UMR, 0, 0x01, true),
        (rc, send::UMR, 3, 0x01, true),
        (rc, send::UMR, 16, 0x80, false),
        (rc, send::UMR, 20, 0x80, true),
        (rc, send::UMR, 47, 0x01, true),
        (rc, send::UMR, 48, 0x40, false),
        (rc, send::UMR, 48, 0x80, true),
    ];
    for (plan, opcode, at, bits, reserved) in cases {
        let found = told(plan, opcode, at, bits);
        let bytes: Vec<_> = found
            .iter()
            .map(|found| if let Violation::Reserved { byte, .. } = found { *byte } else { 0 })
            .collect();
        let expected: Vec<_> = reserved.then_some(16 + at).into_iter().collect();
        assert_eq!(bytes, expected, "{opcode:#x}: byte {at}, {bits:#x}");
    }
}
