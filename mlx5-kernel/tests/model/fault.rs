//! A device that refuses, answers nonsense or dies in the middle of something.

use std::sync::Arc;

use pollux_mlx5_abi::command::{CommandIn, opcode, start};
use pollux_mlx5_abi::kernel::{attribute, method, object};
use pollux_mlx5_kernel::{CommandQueue, DoorProfile, Kernel};
use pollux_mlx5_model::{Device, DeviceConfig};
use pollux_uverbs::abi::flags::{Access, FlowFlags, FlowType, QpMask, QpState};
use pollux_uverbs::abi::queue_pair::ModifyQp;
use pollux_uverbs::flow::{FlowRule, FlowSpec};
use pollux_uverbs::mr::MrRequest;
use pollux_uverbs::{Call, Channel, Driver, UverbsError};
use proptest::prelude::*;

use super::bench::{Bench, Fault, Script, Watch, address};

/// More commands than [`everything`] and its end take.
const COMMANDS_MAX: usize = 160;

/// Makes one of each; stops where something is refused.
pub(crate) fn everything(bench: &Bench, channel: Arc<dyn Channel>) -> Result<(), UverbsError> {
    let opened = bench.try_open_by(channel, true)?;
    let zone = opened.zone(8192);
    let (at, access) = (address(&zone), Access::LOCAL_WRITE);
    let request = MrRequest { pd: opened.pd, start: at, length: 8192, hca_va: at, access };
    opened.register(&request)?;
    let cq = opened.try_cq(4, None, 0)?;
    let wq = opened.try_wq(cq.cq.handle, 4, 1, |_| {})?;
    let table = opened.table(&[wq.wq.handle])?;
    let (qp, _) = opened.rss(table.handle, 0)?;
    let raw = opened.try_raw(cq.cq.handle, |_, _| {})?;
    for state in [QpState::INIT, QpState::RTR, QpState::RTS] {
        let values = ModifyQp { qp_state: state.0, port_num: 1, ..ModifyQp::default() };
        let mask = if state == QpState::INIT { QpMask::STATE | QpMask::PORT } else { QpMask::STATE };
        opened.context.modify_qp(raw.qp.handle, mask, &values, Driver::none())?;
    }
    for priority in [0, 5] {
        let any = FlowSpec::Eth { value: Default::default(), mask: Default::default(), inner: false };
        let rule = FlowRule {
            qp: qp.handle,
            port: 1,
            priority,
            kind: FlowType::NORMAL,
            flags: FlowFlags::empty(),
            specs: &[any],
        };
        opened.context.create_flow(&rule, Driver::none())?;
    }
    let mut call = Call::new(object::DEVX_UMEM, method::devx_umem::REG);
    call.new_object(attribute::devx_umem_reg::HANDLE)
        .u64(attribute::devx_umem_reg::ADDR, at)
        .u64(attribute::devx_umem_reg::LEN, 8192)
        .u32(attribute::devx_umem_reg::ACCESS, 1)
        .answer(attribute::devx_umem_reg::OUT_ID, 4);
    opened.context.call(&mut call)?;
    let mut input = CommandIn::ZERO;
    start(&mut input, opcode::ALLOC_FLOW_COUNTER, 0, 0);
    let mut output = [0; 16];
    let mut call = Call::new(object::DEVX_OBJ, method::devx_obj::CREATE);
    call.new_object(attribute::devx_obj_create::HANDLE)
        .bytes(attribute::devx_obj_create::CMD_IN, &input)
        .out(attribute::devx_obj_create::CMD_OUT, &mut output);
    opened.context.call(&mut call)?;
    let mut call = Call::new(object::UAR, method::uar::ALLOC);
    call.new_object(attribute::uar_alloc::HANDLE)
        .u64(attribute::uar_alloc::TYPE, 1)
        .answer(attribute::uar_alloc::MMAP_OFFSET, 8)
        .answer(attribute::uar_alloc::MMAP_LENGTH, 4)
        .answer(attribute::uar_alloc::PAGE_ID, 4);
    opened.context.call(&mut call)?;
    opened.context.query_device(Driver::none())?;
    opened.context.query_port(1)?;
    Ok(())
}

#[test]
fn a_refusal_anywhere_leaves_nothing_of_what_was_made_before() {
    let mut refused = 0;
    let mut stopped = 0;
    for after in 0..COMMANDS_MAX {
        let bench = Bench::new(DoorProfile::default());
        bench.watch.faults.lock().unwrap().push((after, Fault::Refuse));
        let before = (bench.watch.left(), bench.device.memory().pinned_bytes());
        let result = everything(&bench, bench.kernel().open());
        // What was to be destroyed and was refused stays on the device; the rest goes.
        if bench.watch.faults.lock().unwrap().is_empty() {
            refused += 1;
        }
        if result.is_err() {
            stopped += 1;
            assert_eq!((bench.watch.left(), bench.device.memory().pinned_bytes()), before, "command {after}");
            bench.close();
        }
    }
    assert!(stopped > 20 && refused > stopped, "{stopped} of {refused}");
    assert!(refused < COMMANDS_MAX, "more commands than were tried");
}

#[test]
fn a_start_that_is_refused_anywhere_is_undone() {
    let mut refused = 0;
    for after in 0..COMMANDS_MAX {
        let wire = Box::new(Script::default());
        let device = Device::new(DeviceConfig::default(), wire).expect("there is memory");
        let watch = Arc::new(Watch::new(&device));
        watch.faults.lock().unwrap().push((after, Fault::Refuse));
        let queue = Arc::clone(&watch) as Arc<dyn CommandQueue>;
        let kernel = Kernel::new(queue, Arc::new(device.memory().clone()), DoorProfile::default());
        if kernel.is_err() {
            refused += 1;
            assert!(watch.left().is_empty(), "command {after}: {:?}", watch.left());
            assert_eq!(device.memory().pinned_bytes(), 0, "command {after}");
        }
    }
    assert!(refused > 10, "{refused}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn nonsense_and_death_never_panic(
        noise in prop::collection::vec((0..COMMANDS_MAX, any::<u64>()), 0..6),
        refusals in prop::collection::vec(0..COMMANDS_MAX, 0..4),
        death in prop::option::of(0..COMMANDS_MAX),
    ) {
        let bench = Bench::new(DoorProfile::default());
        {
            let mut faults = bench.watch.faults.lock().unwrap();
            faults.extend(noise.into_iter().map(|(after, seed)| (after, Fault::Noise(seed))));
            faults.extend(refusals.into_iter().map(|after| (after, Fault::Refuse)));
            faults.extend(death.map(|after| (after, Fault::Gone)));
        }
        let _ = everything(&bench, bench.kernel().open());
        bench.device.step(8);
    }

    #[test]
    fn a_start_on_nonsense_never_panics(
        noise in prop::collection::vec((0..COMMANDS_MAX, any::<u64>()), 1..6),
    ) {
        let device = Device::new(DeviceConfig::default(), Box::new(Script::default())).expect("there is memory");
        let watch = Arc::new(Watch::new(&device));
        watch.faults.lock().unwrap().extend(noise.into_iter().map(|(after, seed)| (after, Fault::Noise(seed))));
        let queue = Arc::clone(&watch) as Arc<dyn CommandQueue>;
        if let Ok(kernel) = Kernel::new(queue, Arc::new(device.memory().clone()), DoorProfile::default()) {
            let _ = kernel.open();
        }
    }
}
