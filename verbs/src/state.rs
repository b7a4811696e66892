//! Which attributes a change of a queue pair's state needs, and which it may have. The kernel checks the same; here it is
//! said what is missing. Source: Linux `drivers/infiniband/core/verbs.c`, `qp_state_table`.

use pollux_uverbs::abi::flags::QpMask;

use crate::{QpKind, QpState, VerbsError};

/// What a change needs and may have; `None`: there is no such change.
#[must_use]
fn rules(kind: QpKind, from: QpState, to: QpState) -> Option<(QpMask, QpMask)> {
    use QpKind::{Gsi, Raw, Rc, Uc, Ud, XrcReceive, XrcSend};
    let none = QpMask::empty();
    let entry = QpMask::PKEY_INDEX | QpMask::PORT | QpMask::ACCESS_FLAGS;
    let path = QpMask::AV | QpMask::PATH_MTU | QpMask::DEST_QPN | QpMask::RQ_PSN;
    let responder = QpMask::MAX_DEST_RD_ATOMIC | QpMask::MIN_RNR_TIMER;
    let retries = QpMask::TIMEOUT | QpMask::RETRY_CNT | QpMask::RNR_RETRY | QpMask::MAX_QP_RD_ATOMIC;
    let connected = QpMask::CUR_STATE | QpMask::ALT_PATH | QpMask::ACCESS_FLAGS | QpMask::PATH_MIG_STATE;
    let datagram = QpMask::CUR_STATE | QpMask::QKEY;
    let running = match kind {
        Rc | XrcReceive => connected | QpMask::MIN_RNR_TIMER,
        Uc | XrcSend => connected,
        Ud | Gsi => datagram,
        Raw => QpMask::RATE_LIMIT,
    };
    Some(match (from, to) {
        (_, QpState::RESET | QpState::ERR) => (none, none),
        (QpState::RESET, QpState::INIT) => match kind {
            Ud => (QpMask::PKEY_INDEX | QpMask::PORT | QpMask::QKEY, none),
            Gsi => (QpMask::PKEY_INDEX | QpMask::QKEY, none),
            Raw => (QpMask::PORT, none),
            _ => (entry, none),
        },
        (QpState::INIT, QpState::INIT) => match kind {
            Ud => (none, QpMask::PKEY_INDEX | QpMask::PORT | QpMask::QKEY),
            Gsi => (none, QpMask::PKEY_INDEX | QpMask::QKEY),
            Raw => (none, QpMask::PORT),
            _ => (none, entry),
        },
        (QpState::INIT, QpState::RTR) => {
            let may = QpMask::ALT_PATH | QpMask::ACCESS_FLAGS | QpMask::PKEY_INDEX;
            match kind {
                Ud | Gsi => (none, QpMask::PKEY_INDEX | QpMask::QKEY),
                Raw => (none, none),
                Uc | XrcSend => (path, may),
                Rc | XrcReceive => (path | responder, may),
            }
        }
        (QpState::RTR, QpState::RTS) => match kind {
            Ud | Gsi | Uc => (QpMask::SQ_PSN, running),
            Raw => (none, running),
            Rc | XrcSend => (retries | QpMask::SQ_PSN, running),
            XrcReceive => (QpMask::TIMEOUT | QpMask::SQ_PSN, running),
        },
        (QpState::RTS | QpState::SQD | QpState::SQE, QpState::RTS) => (none, running),
        (QpState::RTS, QpState::SQD) => (none, QpMask::EN_SQD_ASYNC_NOTIFY),
        (QpState::SQD, QpState::SQD) => match kind {
            Ud | Gsi => (none, QpMask::PKEY_INDEX | QpMask::QKEY),
            Raw => (none, none),
            Uc => (none, (QpMask::AV | QpMask::PKEY_INDEX | connected) - QpMask::CUR_STATE),
            _ => {
                let more = QpMask::AV | QpMask::PORT | QpMask::PKEY_INDEX | retries | responder;
                (none, (more | connected) - QpMask::CUR_STATE)
            }
        },
        _ => return None,
    })
}

/// Refuses a change that is none, lacks something, or has too much.
pub(crate) fn check(kind: QpKind, from: QpState, to: QpState, given: QpMask) -> Result<(), VerbsError> {
    let given = given - QpMask::STATE;
    let names = |mask: QpMask| mask.iter_names().map(|(name, _)| name).collect::<Vec<_>>();
    let refuse = |lacks, surplus| {
        Err(VerbsError::Transition {
            kind: kind_name(kind),
            from,
            to,
            lacks: names(lacks),
            surplus: names(surplus),
        })
    };
    let Some((needs, may)) = rules(kind, from, to) else { return refuse(QpMask::empty(), QpMask::empty()) };
    let (lacks, surplus) = (needs - given, given - needs - may - QpMask::CUR_STATE);
    if lacks.is_empty() && surplus.is_empty() { Ok(()) } else { refuse(lacks, surplus) }
}

fn kind_name(kind: QpKind) -> &'static str {
    match kind {
        QpKind::Rc => "RC",
        QpKind::Uc => "UC",
        QpKind::Ud => "UD",
        QpKind::Gsi => "GSI",
        QpKind::Raw => "RAW_PACKET",
        QpKind::XrcSend => "XRC_SEND",
        QpKind::XrcReceive => "XRC_RECV",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let given = QpMask::STATE | QpMask::PKEY_INDEX | QpMask::PORT | QpMask::QKEY;
        let error =
            check(QpKind::Rc, QpState::RESET, QpState::INIT, given).expect_err("no access, but a queue key");
        assert_eq!(
            error.to_string(),
            "cannot modify a RC QP from RESET to INIT; it needs ACCESS_FLAGS; it takes no QKEY"
        );
        assert!(check(QpKind::Ud, QpState::RESET, QpState::INIT, given).is_ok());
    }

    #[test]
    fn steps_are_not_left_out() {
        let states = [
            QpState::RESET,
            QpState::INIT,
            QpState::RTR,
            QpState::RTS,
            QpState::SQD,
            QpState::SQE,
            QpState::ERR,
        ];
        use QpKind::{Gsi, Raw, Rc, Uc, Ud, XrcReceive, XrcSend};
        for kind in [Rc, Uc, Ud, Gsi, Raw, XrcSend, XrcReceive] {
            let steps = states
                .into_iter()
                .flat_map(|from| states.map(|to| (from, to)))
                .filter(|(_, to)| ![QpState::RESET, QpState::ERR].contains(to))
                .filter(|(from, to)| rules(kind, *from, *to).is_some())
                .collect::<Vec<_>>();
            assert_eq!(
                steps,
                [
                    (QpState::RESET, QpState::INIT),
                    (QpState::INIT, QpState::INIT),
                    (QpState::INIT, QpState::RTR),
                    (QpState::RTR, QpState::RTS),
                    (QpState::RTS, QpState::RTS),
                    (QpState::RTS, QpState::SQD),
                    (QpState::SQD, QpState::RTS),
                    (QpState::SQD, QpState::SQD),
                    (QpState::SQE, QpState::RTS),
                ],
                "{kind}"
            );
        }
    }
}
