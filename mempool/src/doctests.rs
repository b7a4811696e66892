//! Misuse of an mbuf that must not compile. Each program stands there twice: without its last line, when it does compile, and with
//! it; so it is for that line that it does not.

pollux_tests::misuse! {
    begin "use pollux_mempool::{Burst, External, Mbuf, MbufPool};\n\
           let pool = MbufPool::builder(\"doc\", 8).build_anonymous().unwrap();\n\
           let mut mbuf = pool.alloc().unwrap();\n", end "";
    freed_twice, "E0382": "drop(mbuf);", but not "drop(mbuf);";
    used_after_it_was_freed, "E0382": "drop(mbuf);", but not "mbuf.append_slice(b\"late\");";
    data_read_after_it_was_freed, "E0505":
        "let data = mbuf.data(); assert!(data.is_empty()); drop(mbuf);", but not "assert!(data.is_empty());";
    copied, "E0599": "let other = mbuf.copy(&pool);", but not "let other = mbuf.clone();";
    freed_by_another_thread_too, "E0382":
        "std::thread::spawn(move || drop(mbuf)).join().unwrap();", but not "drop(mbuf);";
    put_into_two_bursts, "E0382":
        "let (mut one, mut two) = (Burst::new(), Burst::new()); one.push(mbuf);", but not "two.push(mbuf);";
    taken_out_of_a_burst_that_keeps_it, "E0507":
        "let mut burst = Burst::new(); burst.push(mbuf);", but not "let stolen = burst[0];";
    seen_in_a_burst_that_was_cleared, "E0502":
        "let mut burst = Burst::new(); burst.push(mbuf); let first = &burst[0]; assert_eq!(first.data_len(), 0); burst.clear();",
        but not "assert_eq!(first.data_len(), 0);";
    seen_in_a_burst_that_moved_on, "E0502":
        "let mut burst = Burst::new(); burst.push(mbuf); let data = burst[0].data(); assert!(data.is_empty()); \
         drop(burst.take_front(1));",
        but not "assert!(data.is_empty());";
    drained_twice, "E0499":
        "let mut burst = Burst::new(); burst.push(mbuf); let mut one = burst.drain(..); drop(one.next());",
        but not "let mut two = burst.drain(..); drop((one.next(), two.next()));";
    chained_and_kept, "E0382":
        "let mut first = pool.alloc().unwrap(); first.chain(mbuf).unwrap();", but not "drop(mbuf);";
    segment_seen_after_the_packet, "E0505":
        "let segment = mbuf.segments().next().unwrap(); assert!(segment.is_empty()); drop(mbuf);",
        but not "assert!(segment.is_empty());";
    given_to_a_device_and_kept, "E0382":
        "let raw = mbuf.into_raw();\n\
         // SAFETY: it was given away by `into_raw`, and is taken back once.\n\
         drop(unsafe { Mbuf::from_raw(raw) });", but not "drop(mbuf);";
    one_buffer_for_two, "E0382":
        "let external = External::from(vec![0; 64]); mbuf.attach_external(external).unwrap();",
        but not "pool.alloc().unwrap().attach_external(external).unwrap();";
    two_writers, "E0499":
        "let one = mbuf.append(8).unwrap(); one.fill(1);",
        but not "let two = mbuf.append(8).unwrap(); one.copy_from_slice(two);";
    written_while_read, "E0502":
        "let data = mbuf.data(); assert!(data.is_empty());", but not "mbuf.append_slice(b\"more\"); assert!(data.is_empty());";
}
