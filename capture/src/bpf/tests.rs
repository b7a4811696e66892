use proptest::prelude::*;

use super::*;

const fn one(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// `udp port 53`, as `tcpdump -y EN10MB -ddd` prints it: tcpdump 4.99.3, libpcap 1.10.3.
const DNS: [Instruction; 20] = [
    one(40, 0, 0, 12),
    one(21, 0, 6, 34525),
    one(48, 0, 0, 20),
    one(21, 0, 15, 17),
    one(40, 0, 0, 54),
    one(21, 12, 0, 53),
    one(40, 0, 0, 56),
    one(21, 10, 11, 53),
    one(21, 0, 10, 2048),
    one(48, 0, 0, 23),
    one(21, 0, 8, 17),
    one(40, 0, 0, 20),
    one(69, 6, 0, 8191),
    one(177, 0, 0, 14),
    one(72, 0, 0, 14),
    one(21, 2, 0, 53),
    one(72, 0, 0, 16),
    one(21, 0, 1, 53),
    one(6, 0, 0, 262_144),
    one(6, 0, 0, 0),
];

fn dns(port: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[23] = 17;
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}

fn run(program: &[Instruction], frame: &[u8]) -> u32 {
    Program::verify(program).expect("a program").run(&frame)
}

#[test]
fn libpcaps_program_finds_a_port() {
    assert_eq!(run(&DNS, &dns(53)), 262_144);
    assert_eq!(run(&DNS, &dns(54)), 0);
    let mut fragment = dns(53);
    fragment[21] = 1;
    assert_eq!(run(&DNS, &fragment), 0, "not the first fragment");
    let mut options = dns(0);
    (options[14], options[40], options[41]) = (0x46, 0, 53);
    assert_eq!(run(&DNS, &options), 262_144, "behind an option of the header");
    for bytes in 0..38 {
        assert_eq!(run(&DNS, &dns(53)[..bytes]), 0, "a load past the end at {bytes}");
    }
}

#[test]
fn arithmetic_is_that_of_libpcap() {
    // A is 7 and X is 3 where the instruction stands.
    for (code, k, expected) in [
        (0x04, 5, 12),
        (0x0c, 0, 10),
        (0x14, 8, u32::MAX),
        (0x24, 3, 21),
        (0x34, 2, 3),
        (0x3c, 0, 2),
        (0x94, 4, 3),
        (0x44, 8, 15),
        (0x54, 3, 3),
        (0xa4, 2, 5),
        (0xac, 0, 4),
        (0x64, 4, 112),
        (0x6c, 0, 56),
        (0x74, 1, 3),
        (0x84, 0, 7_u32.wrapping_neg()),
        (0x87, 0, 3),
        (0x00, 9, 9),
        (0x80, 0, 60),
    ] {
        let program = [one(0x01, 0, 0, 3), one(0x00, 0, 0, 7), one(code, 0, 0, k), one(0x16, 0, 0, 0)];
        assert_eq!(run(&program, &dns(53)), expected, "{code:#x}");
    }
    let by_x =
        |code, x| run(&[one(1, 0, 0, x), one(0, 0, 0, 7), one(code, 0, 0, 0), one(0x16, 0, 0, 0)], &dns(0));
    assert_eq!((by_x(0x3c, 0), by_x(0x9c, 0), by_x(0x6c, 32), by_x(0x7c, 99)), (0, 0, 0, 0));
}

#[test]
fn memory_and_x_keep_what_they_are_given() {
    let program = [
        one(0x00, 0, 0, 5),
        one(0x02, 0, 0, 15),
        one(0x07, 0, 0, 0),
        one(0x03, 0, 0, 0),
        one(0x61, 0, 0, 0),
        one(0x60, 0, 0, 15),
        one(0x0c, 0, 0, 0),
        one(0x16, 0, 0, 0),
    ];
    assert_eq!(run(&program, &[]), 10);
}

#[test]
fn what_is_no_program_is_refused() {
    let accept = one(6, 0, 0, 1);
    for (program, message) in [
        (vec![], "a BPF program has 1 to 4096 instructions, not 0"),
        (vec![accept; 4097], "a BPF program has 1 to 4096 instructions, not 4097"),
        (
            vec![one(0x99, 0, 0, 0), accept],
            "BPF instruction 0 has code 0x99, which classic BPF does not have",
        ),
        (
            vec![one(0x8005, 0, 0, 0), accept],
            "BPF instruction 0 has code 0x8005, which classic BPF does not have",
        ),
        (vec![one(0x05, 0, 0, 1), accept], "BPF instruction 0 jumps behind the end of the program"),
        (vec![one(0x05, 0, 0, u32::MAX), accept], "BPF instruction 0 jumps behind the end of the program"),
        (vec![one(0x15, 0, 1, 0), accept], "BPF instruction 0 jumps behind the end of the program"),
        (vec![one(0x02, 0, 0, 16), accept], "BPF instruction 0 uses memory word 16; there are 16"),
        (vec![one(0x34, 0, 0, 0), accept], "BPF instruction 0 divides by 0 or shifts by 32 bits or more"),
        (vec![one(0x64, 0, 0, 32), accept], "BPF instruction 0 divides by 0 or shifts by 32 bits or more"),
        (vec![accept, one(0x00, 0, 0, 0)], "the last BPF instruction does not return"),
    ] {
        let error = Program::verify(&program).expect_err(message);
        assert_eq!(error.to_string(), message);
    }
    // The kernel's `vlan` of a socket.
    let error = Program::verify(&[one(0x30, 0, 0, 0xffff_f030), accept]).expect_err("an extension");
    assert!(error.to_string().contains("loads from 0xfffff030, an extension of the kernel's"), "{error}");
}

/// Codes that there are, and any; places near by, and any.
fn instruction() -> impl Strategy<Value = Instruction> {
    let known = prop::sample::select(vec![
        0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x84, 0x04,
        0x0c, 0x34, 0x3c, 0x64, 0x6c, 0x94, 0x9c, 0x05, 0x15, 0x1d, 0x25, 0x35, 0x45, 0x4d, 0x06, 0x16, 0x07,
        0x87,
    ]);
    let code = prop_oneof![9 => known, 1 => any::<u16>()];
    let k = prop_oneof![0_u32..20, any::<u32>()];
    (code, 0_u8..8, 0_u8..8, k).prop_map(|(code, jt, jf, k)| one(code, jt, jf, k))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A stranger's program is refused, or ends, whatever the frame.
    #[test]
    fn any_program_ends(
        mut program in prop::collection::vec(instruction(), 0..40),
        frame in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        program.push(one(0x16, 0, 0, 0));
        if let Ok(program) = Program::verify(&program) {
            let _verdict = program.run(&&frame[..]);
        }
    }
}
