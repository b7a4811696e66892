//! Commands of the firmware, through the kernel.

use pollux_mlx5_abi::command::object::AllocTransportDomainOut;
use pollux_mlx5_abi::command::tir::{CreateTisIn, TisContext};
use pollux_mlx5_abi::command::{CommandIn, opcode as op, start};
use pollux_mlx5_abi::kernel::{attribute as a, method, mmap, object};
use pollux_mlx5_kernel::DoorProfile;
use pollux_uverbs::{Call, Errno, Protection, UverbsError};

use super::bench::{Bench, Opened, address, errno};

fn create(opened: &Opened, input: &[u8], output: &mut [u8]) -> Result<u32, UverbsError> {
    let mut call = Call::new(object::DEVX_OBJ, method::devx_obj::CREATE);
    call.new_object(a::devx_obj_create::HANDLE)
        .bytes(a::devx_obj_create::CMD_IN, input)
        .out(a::devx_obj_create::CMD_OUT, output);
    opened.context.call(&mut call)?;
    call.created(a::devx_obj_create::HANDLE)
}

fn destroy(opened: &Opened, handle: u32) -> Result<(), UverbsError> {
    let mut call = Call::new(object::DEVX_OBJ, method::devx_obj::DESTROY);
    call.object(a::devx_obj_destroy::HANDLE, handle);
    opened.context.call(&mut call)
}

fn other(opened: &Opened, input: &[u8], output: &mut [u8]) -> Result<(), UverbsError> {
    let mut call = Call::new(object::DEVX, method::devx::OTHER);
    call.bytes(a::devx_other::CMD_IN, input).out(a::devx_other::CMD_OUT, output);
    opened.context.call(&mut call)
}

fn domain(opened: &Opened) -> (u32, u32) {
    let mut input = CommandIn::ZERO;
    start(&mut input, op::ALLOC_TRANSPORT_DOMAIN, 0, 0);
    let mut output = AllocTransportDomainOut::ZERO;
    let handle = opened.must(create(opened, &input, &mut output));
    (handle, AllocTransportDomainOut::TRANSPORT_DOMAIN.get(&output))
}

#[test]
fn objects_are_made_under_the_contexts_number_and_go_with_it() {
    let bench = Bench::new(DoorProfile::default());
    let before = bench.watch.left();
    let opened = bench.open();
    let (handle, domain) = domain(&opened);
    let mut input = CreateTisIn::ZERO;
    start(&mut input, op::CREATE_TIS, 0, 0);
    TisContext::TRANSPORT_DOMAIN.set(CreateTisIn::CTX.of_mut(&mut input), domain);
    let mut output = [0; 16];
    opened.must(create(&opened, &input, &mut output));
    let made = bench.watch.done(op::CREATE_TIS);
    assert_ne!(made.last().expect("it was made").uid, 0, "on behalf of the context");
    assert_eq!(errno(destroy(&opened, handle)), Errno::EBUSY, "the firmware says that it is used");
    drop(opened);
    assert_eq!(bench.watch.left(), before);
    bench.close();
}

#[test]
fn what_the_firmware_says_is_told_with_the_error() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let mut input = CreateTisIn::ZERO;
    start(&mut input, op::CREATE_TIS, 0, 0);
    TisContext::TRANSPORT_DOMAIN.set(CreateTisIn::CTX.of_mut(&mut input), 0xabc);
    let mut output = [0; 16];
    assert_eq!(errno(create(&opened, &input, &mut output)), Errno::EREMOTEIO);
    assert_ne!(output[0], 0, "its status");
    assert_ne!(output[4..8], [0; 4], "its syndrome");
    drop(opened);
    bench.close();
}

#[test]
fn only_commands_that_are_listed_pass() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let mut input = [0; 64];
    let mut output = [0; 64];
    for opcode in [op::TEARDOWN_HCA, op::CREATE_EQ, op::MANAGE_PAGES, op::CREATE_UCTX, 0, 0xffff] {
        start(&mut input, opcode, 0, 0);
        assert_eq!(errno(create(&opened, &input, &mut output)), Errno::EINVAL, "{opcode:#x}");
        assert_eq!(errno(other(&opened, &input, &mut output)), Errno::EINVAL, "{opcode:#x}");
    }
    let mut input = CommandIn::ZERO;
    start(&mut input, op::QUERY_HCA_CAP, 0, 0);
    let mut caps = [0; 4112];
    opened.must(other(&opened, &input, &mut caps));
    assert!(caps[16..].iter().any(|byte| *byte != 0), "the device's abilities");
    drop(opened);
    bench.close();
}

#[test]
fn memory_is_told_to_the_device_by_number() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let zone = opened.zone(8192);
    let before = bench.device.memory().pinned_bytes();
    let register = |at: u64, access: u32| {
        let mut call = Call::new(object::DEVX_UMEM, method::devx_umem::REG);
        call.new_object(a::devx_umem_reg::HANDLE)
            .u64(a::devx_umem_reg::ADDR, at)
            .u64(a::devx_umem_reg::LEN, 8192)
            .u32(a::devx_umem_reg::ACCESS, access)
            .answer(a::devx_umem_reg::OUT_ID, 4);
        opened.context.call(&mut call)?;
        Ok::<(u32, u32), UverbsError>((
            call.created(a::devx_umem_reg::HANDLE)?,
            call.get(a::devx_umem_reg::OUT_ID)?,
        ))
    };
    let (handle, _) = opened.must(register(address(&zone), 1));
    assert_eq!(bench.device.memory().pinned_bytes() - before, 8192);
    assert_eq!(errno(register(1 << 46, 1)), Errno::EFAULT);
    assert_eq!(errno(register(address(&zone), 1 << 8)), Errno::EINVAL);
    let mut call = Call::new(object::DEVX_UMEM, method::devx_umem::DEREG);
    call.object(a::devx_umem_dereg::HANDLE, handle);
    opened.must(opened.context.call(&mut call));
    assert_eq!(bench.device.memory().pinned_bytes(), before);
    drop(opened);
    bench.close();
}

#[test]
fn the_kernels_own_numbers_are_told() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let eqn = |vector: u32| {
        let mut call = Call::new(object::DEVX, method::devx::QUERY_EQN);
        call.u32(a::devx_query_eqn::USER_VEC, vector).answer(a::devx_query_eqn::DEV_EQN, 4);
        opened.context.call(&mut call)?;
        call.get::<u32>(a::devx_query_eqn::DEV_EQN)
    };
    assert_ne!(opened.must(eqn(0)), opened.must(eqn(1)));
    assert_eq!(errno(eqn(1000)), Errno::EINVAL);
    let uar = || {
        let mut call = Call::new(object::DEVX, method::devx::QUERY_UAR);
        call.u32(a::devx_query_uar::USER_IDX, 0).answer(a::devx_query_uar::DEV_IDX, 4);
        opened.context.call(&mut call)?;
        call.get::<u32>(a::devx_query_uar::DEV_IDX)
    };
    assert_eq!(errno(uar()), Errno::EINVAL, "only of pages that were made by mapping");
    let offset = mmap::offset(mmap::ALLOC_WC, 0, 4096);
    let page = opened.must(opened.context.map(offset, 4096, Protection::ReadWrite));
    assert_ne!(opened.must(uar()), 0);
    drop(page);
    drop(opened);
    bench.close();
}

#[test]
fn without_the_right_no_command_passes() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.try_open(false).expect("a context");
    let mut input = CommandIn::ZERO;
    start(&mut input, op::ALLOC_TRANSPORT_DOMAIN, 0, 0);
    assert_eq!(errno(create(&opened, &input, &mut [0; 16])), Errno::EINVAL);
    drop(opened);
    bench.close();
}

#[test]
fn one_signature_variable_is_an_object() {
    use pollux_mlx5_abi::command::psv::{CreatePsvIn, CreatePsvOut, DestroyPsvIn};
    use pollux_mlx5_model::{DeviceConfig, Traits};
    let traits = Traits { signatures: true, ..Traits::default() };
    let bench = Bench::with(DoorProfile::default(), DeviceConfig { traits, ..DeviceConfig::default() });
    let before = bench.watch.left();
    let opened = bench.open();
    let mut input = CreatePsvIn::ZERO;
    start(&mut input, op::CREATE_PSV, 0, 0);
    CreatePsvIn::PD.set(&mut input, opened.pdn);
    for (count, allowed) in [(0, false), (2, false), (1, true)] {
        CreatePsvIn::NUM_PSV.set(&mut input, count);
        let mut output = CreatePsvOut::ZERO;
        let made = create(&opened, &input, &mut output);
        if !allowed {
            assert_eq!(errno(made), Errno::EINVAL, "{count} of them could not be ended as one");
            continue;
        }
        opened.must(destroy(&opened, opened.must(made)));
        let ended = bench.watch.done(op::DESTROY_PSV).pop().expect("it was ended");
        let number = DestroyPsvIn::PSVN.get(ended.input.first_chunk().expect("a command"));
        assert_eq!(number, CreatePsvOut::PSV0_INDEX.get(&output));
    }
    drop(opened);
    assert_eq!(bench.watch.left(), before);
    bench.close();
}
