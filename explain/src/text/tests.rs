//! Traces by hand, and what is said of them.

use super::*;

#[test]
fn lines_of_every_kind_are_explained() {
    let mut explainer = Explainer::new(true);
    let said = explainer.line("map 0x500000 4096 Read -> ok");
    assert_eq!(said, "   1 mmap page of the adapter's clock 0 (offset 0x500000): 4096 bytes, Read -> ok\n");
    let said = explainer
        .line("write 0x00000003 Tunnelled core=0000000000000000 driver= -> ok core=03000000 driver=07000000");
    assert_eq!(
        said,
        "   2 ALLOC_PD, write command in DEVICE/INVOKE_WRITE -> ok\n     \
         core ib_uverbs_alloc_pd: all 0\n     => core ib_uverbs_alloc_pd_resp: pd_handle=3\n     \
         => driver mlx5_ib_alloc_pd_resp: pdn=7\n"
            .replace("\n     core", "\n        core")
    );
    let said = explainer.line("ring 0x00000040 0x20 bytes=0000000000000401");
    assert!(said.contains("arms completion queue 0x401"), "{said}");
    let said = explainer.line("nonsense");
    assert_eq!(said, "   4 is no line of a trace: nonsense\n");
    assert!(explainer.summary().contains("1 lines were none of a trace"), "{}", explainer.summary());
    assert_eq!(title("call 0x0004/0x0000 0x0000=new -> ok").as_deref(), Some("QP/CREATE"));
    assert_eq!(title("write 0x8000001a Plain core= driver= -> ok").as_deref(), Some("EX_MODIFY_QP"));
    assert_eq!(title("nonsense"), None);
}

#[test]
fn states_of_queue_pairs_are_followed() {
    let mut explainer = Explainer::new(true);
    let made = format!(
        "call 0x0004/0x0000 0x0000=new 0x0009=in:0200000000000000 0x1000=in:{} -> ok 0x0000=handle:5 0x000e=04010000",
        "00".repeat(56)
    );
    assert!(explainer.line(&made).contains("queue pair 0x104 is made, in RESET"));
    let mut modify = [0_u8; 112];
    (modify[64], modify[68], modify[96]) = (5, 1, 1);
    let digits: String = modify.iter().map(|byte| format!("{byte:02x}")).collect();
    let said = explainer.line(&format!("write 0x0000001a Tunnelled core={digits} driver= -> ok"));
    assert!(said.contains("queue pair 0x104: RESET -> INIT"), "{said}");
    let said = explainer.line(&format!("write 0x0000001a Tunnelled core={digits} driver= -> EINVAL"));
    assert!(!said.contains("INIT -> "), "a refusal changes nothing: {said}");
    let entry =
        "entry 0x000104 index=0 bytes=0000000a0000010200000008000000000000004000000100000000000000abcd";
    let said = explainer.line(entry);
    assert!(
        said.contains("queue 0x104 (INIT)") && said.contains("control: SEND, 2 segments, signalled"),
        "{said}"
    );
    assert!(said.contains("data: 64 bytes at <address0> key <key0>"), "{said}");
    assert!(explainer.summary().contains("queue pair 0x104 is in INIT"));
}

/// A write command that makes a queue pair of a kind, with handle 5 and a number; the number of a send queue of its own.
fn created(kind: u8, number: u32, sends: u32) -> String {
    let (mut asked, mut answered, mut driver) = ([0; 56], [0; 32], [0; 32]);
    asked[53] = kind;
    answered[0] = 5;
    answered[4..8].copy_from_slice(&number.to_le_bytes());
    driver[24..28].copy_from_slice(&sends.to_le_bytes());
    let [core, answer, driver] = [&asked[..], &answered, &driver].map(hex);
    format!("write 0x00000018 Tunnelled core={core} driver= -> ok core={answer} driver={driver}")
}

/// A write command that leads handle 5 to a state.
fn modified(state: u8) -> String {
    let mut modify = [0_u8; 112];
    (modify[64], modify[68], modify[96]) = (5, 1, state);
    format!("write 0x0000001a Tunnelled core={} driver= -> ok", hex(&modify))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn queue_pairs_of_write_commands_are_followed() {
    let mut explainer = Explainer::new(true);
    let said = explainer.line(&created(2, 0x104, 0));
    assert!(said.contains("queue pair 0x104 is made, in RESET"), "{said}");
    let said = explainer.line(&modified(1));
    assert!(said.contains("queue pair 0x104: RESET -> INIT"), "{said}");
    let said = explainer.line(&created(2, 0x105, 0).replace("0x00000018", "0x80000018"));
    assert!(said.contains("queue pair 0x105 is made, in RESET"), "an extended one: {said}");
    let mut destroy = [0_u8; 16];
    destroy[8] = 5;
    let _ =
        explainer.line(&format!("write 0x0000001b Tunnelled core={} driver= -> ok core=00", hex(&destroy)));
    assert!(!explainer.summary().contains("queue pair"), "{}", explainer.summary());
}

#[test]
fn each_channel_has_handles_of_its_own() {
    let mut explainer = Explainer::new(false);
    assert!(!explainer.line(&format!("{} @12.0", created(2, 0x104, 0))).contains("channel"));
    let said = explainer.line(&format!("{} @13.0", created(2, 0x105, 0)));
    assert!(said.starts_with("channel 13.0:\n"), "{said}");
    let said = explainer.line(&format!("{} @12.0", modified(1)));
    assert!(
        said.starts_with("channel 12.0:\n") && said.contains("queue pair 0x104: RESET -> INIT"),
        "{said}"
    );
    assert!(explainer.summary().contains("queue pair 0x105 is in RESET"), "{}", explainer.summary());
    let said = explainer.line("close @12.0");
    assert_eq!(said, "   4 close: the channel is gone, and 1 queue pairs with it\n");
    let summary = explainer.summary();
    assert!(summary.contains("queue pair 0x105") && !summary.contains("queue pair 0x104"), "{summary}");
    assert!(explainer.is_clean());
    assert_eq!(title("close @12.0").as_deref(), Some("close"));
}

/// Segments of a send entry behind its control segment, as they are told of a queue of that kind; 0: of an unknown one.
fn segments(kind: u8, opcode: u8, segments: &[&[u8; 16]]) -> String {
    let mut explainer = Explainer::new(true);
    if kind != 0 {
        let _ = explainer.line(&created(kind, 0x104, if kind == 8 { 0x777 } else { 0 }));
    }
    let queue = if kind == 8 { 0x777_u32 } else { 0x104 };
    let mut bytes =
        [&[0, 0, 0, opcode][..], &(queue << 8 | (segments.len() as u32 + 1)).to_be_bytes()].concat();
    bytes.extend([0; 8]);
    segments.iter().for_each(|segment| bytes.extend_from_slice(&segment[..]));
    explainer.line(&format!("entry {queue:#08x} index=0 bytes={}", hex(&bytes)))
}

#[test]
fn segments_are_those_of_the_kind_of_queue() {
    let data = [0, 0, 0, 64, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd];
    let piece = "data: 64 bytes at <address0> key <key0>\n";
    let said = segments(2, 0x0a, &[&data]);
    assert!(said.contains(piece), "{said}");
    // Datagrams: an address in front, whole or short.
    let mut short = [0; 16];
    (short[3], short[11]) = (7, 9);
    let said = segments(4, 0x0a, &[&short, &data]);
    assert!(
        said.contains("datagram: to queue 0x9, Q_Key 0x7\n       data: 64 bytes at") && said.ends_with(piece),
        "{said}"
    );
    let mut whole = short;
    whole[8] = 0x80;
    let said = segments(4, 0x0a, &[&whole, &[0xff; 16], &[0xff; 16], &data]);
    assert!(
        said.contains("to queue 0x9") && said.ends_with(piece) && said.matches("data: ").count() == 1,
        "{said}"
    );
    // Frames: what is done to them, the rest of the inline header, data.
    let mut frame = [0; 16];
    (frame[4], frame[13]) = (0xc0, 18);
    let said = segments(8, 0x0a, &[&frame, &[0xff; 16], &data]);
    assert!(
        said.contains("ethernet: checksums 0xc0, 18 bytes of header inline\n")
            && said.ends_with(piece)
            && said.matches("data: ").count() == 1,
        "{said}"
    );
    // Several frames, one of them in the entry itself.
    let mut inline = [0xff; 16];
    inline[..4].copy_from_slice(&[0x80, 0, 0, 12]);
    let said = segments(8, 0x29, &[&[0; 16], &inline, &data]);
    assert!(said.contains("inline: 12 bytes in the entry itself\n") && said.ends_with(piece), "{said}");
    // The peer's shared receive queue.
    let said = segments(9, 0x0a, &[&[0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &data]);
    assert!(said.contains("shared receive queue 0x5\n") && said.ends_with(piece), "{said}");
    // Of a queue that is not known nothing is made up.
    let said = segments(0, 0x0a, &[&short, &data]);
    assert!(said.contains("32 bytes of further segments") && !said.contains("data: "), "{said}");
}

#[test]
fn nothing_that_a_file_holds_makes_it_panic() {
    let mut explainer = Explainer::new(false);
    for line in [
        "entry 0x1 index=1 bytes=",
        "entry 0x1 index=1 bytes=ffffffffffffffffffffffffffffffff",
        "entry 0x1 index=1 bytes=000000080000013f00000008000000000000",
        "completion 0x1 bytes=00",
        "write 0x00000018 Plain core=00 driver= -> ok core=00",
        "write 0x0000001b Plain core=00 driver= -> ok",
        "close",
        "close @1.1",
        "ring 0x1 0x800 bytes=",
        "ring 0x1 0x20 bytes=00",
        "call 0x0004/0x0000 0x1000=in:00 -> ok 0x0000=handle:1 0x000e=00",
        "call 0x1001/0x1000 0x1001=in:09 0x1002=out:16 -> ok 0x1002=00",
        "call 0xffff/0xffff 0xffff=element:255:00 -> ok 0xffff=handle:4294967295",
        "write 0xffffffff Plain core= driver= -> ok core=ff driver=ff",
        "write 0x8000001a Tunnelled core=00 driver=00 -> ok",
        "map 0xffffffffffffffff 18446744073709551615 Read -> ok",
    ] {
        assert!(!explainer.line(line).is_empty(), "{line}");
    }
}

#[test]
fn a_trace_at_its_limit_says_so() {
    let mut explainer = Explainer::new(true);
    let said = explainer.line("full");
    assert!(said.starts_with("   1 full: the trace is as long as it may be"), "{said}");
    assert!(explainer.is_clean());
}

#[test]
fn what_a_terminal_would_obey_is_in_no_line() {
    let mut explainer = Explainer::new(false);
    for line in ["map 0x1000 4096 \u{1b}[2J -> ok", "map 0x1000 4096 Read -> \u{9b}2J"] {
        let said = explainer.line(line);
        assert!(said.contains("is no line of a trace") && !said.contains(['\u{1b}', '\u{9b}']), "{said}");
    }
}

#[test]
fn what_is_traced_from_outside_is_told() {
    let mut explainer = Explainer::new(false);
    let said: String = [
        "open uverbs0 -> ok @7.0",
        "map 0x500000 4096 Read -> ok @7.0",
        "unmap 0x500000 4096 -> ok @7.0",
        "dup 3 5 -> ok @7.0",
        "event bytes=0010000000000000 -> ok",
    ]
    .map(|line| explainer.line(line))
    .concat();
    let wanted = "   1 open uverbs0 -> ok\n\
                  \x20  2 mmap page of the adapter's clock 0 (offset 0x500000): 4096 bytes, Read -> ok\n\
                  \x20  3 munmap page of the adapter's clock 0 (offset 0x500000): 4096 bytes -> ok\n\
                  \x20  4 dup: descriptor 3 is 5, too -> ok\n\
                  \x20  5 read: completion event of completion queue 0x1000\n";
    assert_eq!(said, wanted);
    assert_eq!(explainer.summary(), "in all: 1 dups, 1 events, 1 maps, 1 opens, 1 unmaps\n");
    assert!(explainer.is_clean());
}

/// The same bytes mean another thing, or nothing that is known.
#[test]
fn parts_of_other_drivers_stay_numbers() {
    let create = "call 0x0004/0x0000 0x0000=new 0x0002=handle:0 0x0009=in:02 0x000e=out:4 0x1000=in:0011223344556677 \
                  -> ok 0x0000=handle:1 0x000e=11000000";
    let map = "map 0x500000 4096 Read -> ok";
    let said = |other: bool| {
        let mut explainer = Explainer::new(false);
        if other {
            explainer.of_other_driver("7.1");
        }
        [create, map].map(|line| explainer.line(&format!("{line} @7.1"))).concat()
    };
    assert!(said(false).contains("doorbell record") && said(false).contains("page of the adapter's clock"));
    let other = said(true);
    assert!(other.contains("UHW_IN 0x7766554433221100\n"), "{other}");
    assert!(other.contains("queue pair 0x11 is made, in RESET\n"), "{other}");
    assert!(other.contains("mmap pages of the device (offset 0x500000): 4096 bytes"), "{other}");
}
