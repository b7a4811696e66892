//! Which fields a change of state must have, may have and may not have. Source: Linux `drivers/infiniband/core/verbs.c`,
//! `qp_state_table` and `ib_modify_qp_is_ok`; `drivers/infiniband/core/uverbs_cmd.c`, `modify_qp_mask`.

use pollux_uverbs::abi::flags::{QpMask as M, QpState, QpType};

const ACCESS_PKEY_PORT: M = M::PKEY_INDEX.union(M::PORT).union(M::ACCESS_FLAGS);
const QKEY_PKEY: M = M::PKEY_INDEX.union(M::QKEY);
const PEER: M = M::AV.union(M::PATH_MTU).union(M::DEST_QPN).union(M::RQ_PSN);
const SERVES: M = M::MAX_DEST_RD_ATOMIC.union(M::MIN_RNR_TIMER);
const RETRIES: M =
    M::TIMEOUT.union(M::RETRY_CNT).union(M::RNR_RETRY).union(M::SQ_PSN).union(M::MAX_QP_RD_ATOMIC);
const PATHS: M = M::CUR_STATE.union(M::ALT_PATH).union(M::ACCESS_FLAGS).union(M::PATH_MIG_STATE);
const DRAINED: M =
    M::AV.union(M::ALT_PATH).union(M::ACCESS_FLAGS).union(M::PKEY_INDEX).union(M::PATH_MIG_STATE);

/// Fields of a request that count. A queue pair of XRC only sends or only receives: programs may set fields of the other half as they
/// do for RC, as perftest does.
pub(super) fn heeded(kind: QpType, mask: M) -> M {
    match kind {
        QpType::XRC_INI => mask - SERVES,
        QpType::XRC_TGT => mask - (M::MAX_QP_RD_ATOMIC | M::RETRY_CNT | M::RNR_RETRY),
        _ => mask,
    }
}

/// Whether a queue pair of a kind may go from one state to another with these fields.
pub(super) fn leads(kind: QpType, from: QpState, to: QpState, mask: M) -> bool {
    use QpState as S;
    if mask.contains(M::CUR_STATE) && !matches!(from, S::RTR | S::RTS | S::SQD | S::SQE) {
        return false;
    }
    let Some((required, optional)) = fields(kind, from, to) else { return false };
    mask.contains(required) && (mask - (required | optional | M::STATE)).is_empty()
}

/// What a step must have, and what it may have beside that. `None`: there is no such step.
fn fields(kind: QpType, from: QpState, to: QpState) -> Option<(M, M)> {
    use QpState as S;
    let none = M::empty();
    Some(match (from, to) {
        (S::RESET, S::RESET) => (none, none),
        // From any state but RESET to RESET and ERR.
        (from, S::RESET | S::ERR) if from != S::RESET && from <= S::ERR => (none, none),
        (S::RESET, S::INIT) => (first(kind), none),
        // The same once more, as one likes.
        (S::INIT, S::INIT) if kind == QpType::RAW_PACKET => (none, none),
        (S::INIT, S::INIT) => (none, first(kind)),
        (S::INIT, S::RTR) => match kind {
            QpType::UD | QpType::GSI => (none, QKEY_PKEY),
            QpType::UC | QpType::XRC_INI => (PEER, M::ALT_PATH | M::ACCESS_FLAGS | M::PKEY_INDEX),
            QpType::RC | QpType::XRC_TGT => (PEER | SERVES, M::ALT_PATH | M::ACCESS_FLAGS | M::PKEY_INDEX),
            _ => (none, none),
        },
        (S::RTR, S::RTS) => match kind {
            QpType::UD | QpType::GSI => (M::SQ_PSN, M::CUR_STATE | M::QKEY),
            QpType::UC => (M::SQ_PSN, PATHS),
            QpType::RC => (RETRIES, PATHS | M::MIN_RNR_TIMER),
            QpType::XRC_INI => (RETRIES, PATHS),
            QpType::XRC_TGT => (M::TIMEOUT | M::SQ_PSN, PATHS | M::MIN_RNR_TIMER),
            _ => (none, M::CUR_STATE | M::RATE_LIMIT),
        },
        (S::RTS, S::RTS) => match kind {
            QpType::RAW_PACKET => (none, M::CUR_STATE | M::RATE_LIMIT),
            kind => (none, while_sending(kind)),
        },
        (S::SQD, S::RTS) => match kind {
            QpType::RAW_PACKET => (none, M::CUR_STATE),
            kind => (none, while_sending(kind)),
        },
        (S::RTS, S::SQD) if kind == QpType::RAW_PACKET => (none, none),
        (S::RTS, S::SQD) => (none, M::EN_SQD_ASYNC_NOTIFY),
        (S::SQD, S::SQD) => (
            none,
            match kind {
                QpType::UD | QpType::GSI => QKEY_PKEY,
                QpType::UC => DRAINED,
                QpType::RC => DRAINED | SERVES | (RETRIES - M::SQ_PSN) | M::PORT,
                QpType::XRC_INI => DRAINED | (RETRIES - M::SQ_PSN) | M::PORT,
                QpType::XRC_TGT => DRAINED | SERVES | M::TIMEOUT | M::PORT,
                _ => none,
            },
        ),
        (S::SQE, S::RTS) => match kind {
            QpType::UD | QpType::GSI => (none, M::CUR_STATE | M::QKEY),
            QpType::UC => (none, M::CUR_STATE | M::ACCESS_FLAGS),
            QpType::RAW_PACKET => (none, M::CUR_STATE),
            _ => (none, none),
        },
        _ => return None,
    })
}

/// What the first step says.
fn first(kind: QpType) -> M {
    match kind {
        QpType::UD => QKEY_PKEY | M::PORT,
        // It is made for its port.
        QpType::GSI => QKEY_PKEY,
        QpType::RAW_PACKET => M::PORT,
        _ => ACCESS_PKEY_PORT,
    }
}

/// What may change while entries are sent.
fn while_sending(kind: QpType) -> M {
    match kind {
        QpType::UD | QpType::GSI => M::CUR_STATE | M::QKEY,
        QpType::RC | QpType::XRC_TGT => PATHS | M::MIN_RNR_TIMER,
        _ => PATHS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSPORTS: [QpType; 6] =
        [QpType::RC, QpType::UC, QpType::UD, QpType::GSI, QpType::XRC_INI, QpType::XRC_TGT];
    const STATES: [QpState; 7] =
        [QpState::RESET, QpState::INIT, QpState::RTR, QpState::RTS, QpState::SQD, QpState::SQE, QpState::ERR];

    #[test]
    fn what_a_step_must_have_cannot_be_left_out() {
        for kind in TRANSPORTS {
            for (from, to) in STATES.iter().flat_map(|from| STATES.iter().map(move |to| (*from, *to))) {
                let Some((required, optional)) = fields(kind, from, to) else {
                    assert!(!leads(kind, from, to, M::STATE), "{kind} {from} {to}");
                    continue;
                };
                assert!(leads(kind, from, to, M::STATE | required), "{kind} {from} {to}");
                for bit in (0..21).filter_map(|bit| M::from_bits(1 << bit)) {
                    let without = (M::STATE | required) - bit;
                    assert_eq!(leads(kind, from, to, without), !required.contains(bit), "{kind} {from} {to}");
                    let known = required.contains(bit) || optional.contains(bit) || bit == M::STATE;
                    // The state that it is in can be told where it may have changed by itself.
                    let told = bit != M::CUR_STATE
                        || matches!(from, QpState::RTR | QpState::RTS | QpState::SQD | QpState::SQE);
                    let with = leads(kind, from, to, M::STATE | required | bit);
                    assert_eq!(with, known && told, "{kind} {from} {to} {bit:?}");
                }
            }
        }
    }

    /// Of XRC the fields of RC are all right: those of the half that a queue pair has not do not count.
    #[test]
    fn fields_of_the_other_half_do_not_count() {
        for (from, to) in [(QpState::INIT, QpState::RTR), (QpState::RTR, QpState::RTS)] {
            let (of_rc, _) = fields(QpType::RC, from, to).expect("a step");
            for kind in [QpType::XRC_INI, QpType::XRC_TGT] {
                assert!(leads(kind, from, to, heeded(kind, M::STATE | of_rc)), "{kind} {from} {to}");
            }
            let too_much = M::STATE | of_rc | M::QKEY;
            assert!(!leads(QpType::XRC_INI, from, to, heeded(QpType::XRC_INI, too_much)));
            assert_eq!(heeded(QpType::RC, too_much), too_much);
        }
    }

    #[test]
    fn states_follow_each_other() {
        let steps: Vec<(u8, u8)> = STATES
            .iter()
            .flat_map(|from| STATES.iter().map(move |to| (*from, *to)))
            .filter(|(from, to)| fields(QpType::RC, *from, *to).is_some())
            .map(|(from, to)| (from.0, to.0))
            .collect();
        let ends = (1..=6).flat_map(|from| [(from, 0), (from, 6)]);
        let mut wanted: Vec<(u8, u8)> =
            [(0, 0), (0, 1), (1, 1), (1, 2), (2, 3), (3, 3), (3, 4), (4, 3), (4, 4), (5, 3)]
                .into_iter()
                .chain(ends)
                .collect();
        wanted.sort_unstable();
        assert_eq!(steps, wanted);
    }
}
