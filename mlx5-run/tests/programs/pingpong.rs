//! rdma-core's own programs.

use pollux_tests::require::{Need, require};

use super::bed::{Bed, Ended};

#[test]
fn devices_are_listed_and_described() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    let said = bed.run(&["--ports", "2"], &["ibv_devices"]).said;
    assert!(said.contains("mlx5_0") && said.contains("mlx5_1"), "{said}");
    for (card, id, board) in [
        ("cx4lx", "4117", "MT_2420110034"),
        ("cx5", "4119", "MT_0000000080"),
        ("cx7", "4129", "MT_0000000838"),
    ] {
        let ended = bed.run(&["--device", card], &["ibv_devinfo", "-v"]);
        assert_eq!(ended.status, Some(0), "{}", ended.said);
        for part in [
            format!("vendor_part_id:\t\t\t{id}\n"),
            format!("board_id:\t\t\t{board}\n"),
            "PORT_ACTIVE (4)".into(),
        ] {
            assert!(ended.said.contains(&part), "no '{part}' in {}", ended.said);
        }
    }
}

#[test]
fn pingpongs_reach_each_other() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    for program in [
        "ibv_rc_pingpong -g 1 -c",
        "ibv_rc_pingpong -g 1 -e",
        "ibv_rc_pingpong -g 1 -t",
        "ibv_rc_pingpong -g 1 -N",
        "ibv_rc_pingpong -g 1 -j",
        "ibv_rc_pingpong -g 1 -s 100000 -m 1024",
        "ibv_uc_pingpong -g 1",
        "ibv_uc_pingpong -g 1 -e",
        "ibv_ud_pingpong -g 1",
        "ibv_ud_pingpong -g 1 -e",
        "ibv_srq_pingpong -g 1 -q 4",
        "ibv_srq_pingpong -g 1 -e",
    ] {
        let words: Vec<&str> = program.split(' ').collect();
        let said = bed.must(&[], &[&words[..], &["-n", "200"]].concat(), "-p");
        // Shared queues count the iterations of all their queue pairs.
        assert!(said.iter().all(|said| said.contains(" iters in ")), "{program}: {said:?}");
    }
    let said = bed.must(&[], &["ibv_xsrq_pingpong", "-g", "1"], "-p");
    assert!(said[0].contains("success"), "{said:?}");
}

#[test]
fn pingpongs_have_memory_on_demand_where_the_card_has_it() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    for program in [
        "ibv_rc_pingpong -g 1 -n 200 -o -c",
        "ibv_rc_pingpong -g 1 -n 200 -O -s 30000",
        "ibv_rc_pingpong -g 1 -n 200 -O -P -e",
        "ibv_srq_pingpong -g 1 -n 200 -q 4 -o",
        "ibv_xsrq_pingpong -g 1 -o",
    ] {
        let words: Vec<&str> = program.split(' ').collect();
        bed.must(&["--with", "on-demand-paging"], &words, "-p");
    }
    let refused = bed.run(&[], &["ibv_rc_pingpong", "-g", "1", "-o"]);
    assert_ne!(refused.status, Some(0), "{}", refused.said);
    assert!(refused.said.contains("The device isn't ODP capable"), "{}", refused.said);
}

#[test]
fn datagrams_that_are_lost_are_missed() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let program = ["timeout", "5", "ibv_ud_pingpong", "-g", "1", "-n", "1000"];
    let [client, server] = Bed::new().pair(&["--loss", "0.2"], &program, "-p");
    assert_ne!((client.status, server.status), (Some(0), Some(0)), "{} {}", client.said, server.said);
}

#[test]
fn what_happens_to_a_port_is_told() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let watch = ["timeout", "3", "stdbuf", "-oL", "ibv_asyncwatch", "-d", "mlx5_0"];
    // A busy machine takes some hundred milliseconds to begin looking.
    let Ended { status, said } = Bed::new().run(&["--fault-plan", "flap:1500ms/100ms"], &watch);
    assert_eq!(status, Some(124), "it waits without end: {said}");
    // It may begin to look while the port is down.
    let down = said.find("IBV_EVENT_PORT_ERR (10), port 1");
    let up = said.rfind("IBV_EVENT_PORT_ACTIVE (9), port 1");
    assert!(down.is_some() && down < up, "{said}");
}
