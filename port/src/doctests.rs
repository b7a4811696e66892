//! Misuse of what was sent, and of queues, that must not compile. Each program stands there twice: without its last line, when it
//! does compile, and with it; so it is for that line that it does not.

pollux_tests::misuse! {
    begin "use pollux_mempool::{Burst, Mbuf};\nuse pollux_port::{RxQueue, TxQueue};\n\
           fn app(mut rx: RxQueue, mut tx: TxQueue, mut mbuf: Mbuf, mut burst: Burst) {\n", end "}\n";
    used_after_it_was_sent, "E0382": "burst.push(mbuf); tx.tx_burst(&mut burst);", but not "mbuf.append_slice(b\"late\");";
    freed_after_it_was_sent, "E0382": "burst.push(mbuf); tx.tx_burst(&mut burst);", but not "drop(mbuf);";
    sent_twice, "E0382": "burst.push(mbuf); tx.tx_burst(&mut burst);", but not "burst.push(mbuf);";
    seen_after_it_was_sent, "E0502":
        "let first = &burst[0]; assert_eq!(first.data_len(), 0); tx.tx_burst(&mut burst);",
        but not "assert_eq!(first.data_len(), 0);";
    data_read_after_it_was_sent, "E0502":
        "let data = burst[0].data(); assert!(data.is_empty()); tx.tx_burst(&mut burst);", but not "assert!(data.is_empty());";
    data_written_after_it_was_sent, "E0499":
        "let data = burst[0].append(8).unwrap(); data.fill(1); tx.tx_burst(&mut burst);", but not "data.fill(2);";
    seen_while_more_is_received, "E0502":
        "let first = &burst[0]; assert_eq!(first.data_len(), 0); rx.rx_burst(&mut burst, 32);",
        but not "assert_eq!(first.data_len(), 0);";
    polled_here_and_on_another_lcore, "E0382":
        "std::thread::spawn(move || rx.rx_burst(&mut Burst::new(), 32));", but not "rx.rx_burst(&mut burst, 32);";
    sent_here_and_from_another_lcore, "E0382":
        "std::thread::spawn(move || tx.tx_burst(&mut Burst::new()));", but not "tx.tx_burst(&mut burst);";
    shared_between_lcores, "E0596": "let shared = &tx; let _ = shared.port();", but not "shared.tx_burst(&mut burst);";
    duplicated, "E0599": "let _ = tx.port();", but not "let second = tx.clone();";
}
