//! Contexts: what opening answers, several at a time, the end of the device.
#![expect(unsafe_code, reason = "the calls of a channel are raw")]

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::kernel::context::{answer, library};
use pollux_mlx5_abi::kernel::device::DeviceAnswer;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::{DeviceConfig, Traits};
use pollux_uverbs::abi::flags::{LinkLayer, PortState};
use pollux_uverbs::event::AsyncKind;
use pollux_uverbs::{Call, Driver, Errno, Protection};
use zerocopy::{FromZeros, IntoBytes};

use super::bench::{Bench, errno};

#[test]
fn nothing_is_left_of_a_device_that_was_only_started() {
    let bench = Bench::new(DoorProfile::default());
    let refused = bench.watch.refused();
    assert!(refused.is_empty(), "{refused:?}");
    bench.close();
}

#[test]
fn a_context_is_told_what_the_device_has() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let told = &opened.answer;
    assert_eq!((told.tot_bfregs, told.num_ports, told.cqe_version), (16, 1, 1));
    assert_eq!((told.log_uar_size, told.num_uars_per_page), (12, 1));
    assert_eq!(told.cache_line_size, 64);
    assert!(told.max_send_wqebb > 0 && told.max_recv_wr > 0 && told.qp_tab_size > 0);
    assert_ne!(told.comp_mask & answer::CORE_CLOCK_OFFSET, 0);
    assert_eq!(told.eth_min_inline, 1, "nothing must be inline");
    assert_ne!(opened.pdn, 0);
    assert_eq!(library::UAR_4K, 1);
    drop(opened);
    bench.close();
}

#[test]
fn a_card_that_wants_headers_inline_says_so() {
    let traits = Traits { needs_inline_l2: true, cqe_version: 0, ..Traits::default() };
    let bench = Bench::with(DoorProfile::default(), DeviceConfig { traits, ..DeviceConfig::default() });
    let opened = bench.open();
    assert_eq!((opened.answer.eth_min_inline, opened.answer.cqe_version), (2, 0));
    drop(opened);
    bench.close();
}

#[test]
fn queries_answer_what_the_device_is() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let mut mlx5 = DeviceAnswer::new_zeroed();
    let answer = opened.context.query_device(Driver::new(&[], mlx5.as_mut_bytes())).expect("attributes");
    assert_eq!((answer.base.vendor_part_id, answer.base.phys_port_cnt), (0x101d, 1));
    assert_eq!((answer.base.vendor_id, answer.base.atomic_cap), (0x2c9, 1));
    assert_eq!(answer.base.fw_ver, 22 << 32 | 41 << 16 | 1000);
    assert_eq!(mlx5.response_length as usize, size_of::<DeviceAnswer>());
    assert_eq!(answer.rss_caps.max_rwq_indirection_table_size, 1 << 11);
    let port = opened.context.query_port(1).expect("the port").legacy_resp;
    assert_eq!((LinkLayer(port.link_layer), PortState(port.state)), (LinkLayer::ETHERNET, PortState::ACTIVE));
    assert!(port.gid_tbl_len > 0);
    assert_eq!(errno(opened.context.query_port(2)), Errno::EINVAL);
    assert_eq!(opened.context.query_port_speed(1).expect("a speed"), Some(1000), "4 lanes of 25 Gbit/s");
    assert_eq!(errno(opened.context.query_port_speed(2)), Errno::EINVAL);
    let table = opened.context.query_gid_table().expect("a table");
    let first = opened.context.query_gid(1, 0).expect("an entry").expect("it is there");
    assert_eq!(first.gid, [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1]);
    assert_eq!(table.first(), Some(&first));
    for room in [0, size_of_val(table.as_slice()) - 1] {
        use pollux_uverbs::abi::id::device::{OBJECT, query_gid_table as a};
        let mut call = Call::new(OBJECT, a::METHOD);
        call.u64(a::ENTRY_SIZE, size_of_val(&first) as u64).u32(a::FLAGS, 0);
        call.answer(a::RESP_ENTRIES, room).answer(a::RESP_NUM_ENTRIES, 8);
        assert_eq!(errno(opened.context.call(&mut call)), Errno::EINVAL, "room for {room} bytes");
    }
    assert_eq!(opened.context.query_gid(1, port.gid_tbl_len - 1).expect("an entry"), None);
    drop(opened);
    bench.close();
}

#[test]
fn contexts_share_nothing() {
    let bench = Bench::new(DoorProfile::default());
    let (one, two) = (bench.open(), bench.open());
    let cq = one.cq(4, None);
    assert_eq!(errno(two.context.destroy_cq(cq.cq.handle)), Errno::ENOENT);
    assert_ne!(one.pdn, two.pdn);
    drop(two);
    one.context.destroy_cq(cq.cq.handle).expect("it is still there");
    drop(one);
    bench.close();
}

#[test]
fn calls_before_the_context_is_there_are_refused() {
    use pollux_uverbs::abi::device::GetContextResp;
    use pollux_uverbs::{WriteCall, abi::write};
    let bench = Bench::new(DoorProfile::default());
    let channel = bench.kernel().open();
    let mut room = [0_u8; size_of::<GetContextResp>()];
    let mut command = WriteCall {
        driver: pollux_uverbs::abi::object::driver::MLX5,
        command: write::ALLOC_PD,
        core_in: &[0; 8],
        driver_in: &[],
        core_out: pollux_uverbs::Output::borrowed(&mut room),
        driver_out: pollux_uverbs::Output::borrowed(&mut []),
        fd: None,
    };
    // SAFETY: it names no memory.
    let refused = unsafe { channel.write(&mut command, pollux_uverbs::Route::Plain) };
    assert_eq!(refused, Err(Errno::EINVAL));
    assert_eq!(channel.map(0, 4096, Protection::ReadWrite).map(|_| ()), Err(Errno::EINVAL));
    drop(channel);
    bench.close();
}

#[test]
fn pages_of_registers_and_of_the_clock_are_mapped() {
    use pollux_mlx5_abi::kernel::mmap;
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let map =
        |command, index, protection| opened.context.map(mmap::offset(command, index, 4096), 4096, protection);
    map(mmap::REGULAR_PAGE, 0, Protection::ReadWrite).expect("the first static page");
    map(mmap::WC_PAGE, 1, Protection::ReadWrite).expect("another, write-combining");
    assert_eq!(errno(map(mmap::REGULAR_PAGE, 8, Protection::ReadWrite)), Errno::EINVAL, "there are 8");
    assert_eq!(errno(map(mmap::CORE_CLOCK, 0, Protection::ReadWrite)), Errno::EPERM);
    let clock = map(mmap::CORE_CLOCK, 0, Protection::Read).expect("the clock");
    let at = usize::try_from(opened.answer.hca_core_clock_offset).unwrap();
    let ticks = || u64::from_be(clock.read64(at).expect("in the page"));
    let before = ticks();
    bench.device.step(1);
    assert!(ticks() > before, "it runs");
    assert_eq!(errno(map(99, 0, Protection::Read)), Errno::EINVAL);
    drop(opened);
    bench.close();
}

#[test]
fn a_device_that_is_taken_away_says_so_and_answers_eio() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(4, None);
    assert_eq!(opened.context.events().next().expect("they can be read"), None);
    bench.device.remove();
    assert!(bench.kernel().is_gone());
    let event = opened.context.events().next().expect("they can be read").expect("there is one");
    assert_eq!(event.kind, AsyncKind::DEVICE_FATAL);
    assert_eq!(errno(opened.context.alloc_pd(Driver::none())), Errno::EIO);
    assert_eq!(errno(opened.context.query_port(1)), Errno::EIO);
    assert!(bench.try_open(true).is_err());
    drop((opened, cq));
    assert_eq!(bench.watch.done(op::DESTROY_CQ).len(), 0, "nobody is there to be asked");
}
