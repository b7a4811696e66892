//! A second port of another function: which belong together, and what is left when they part.

use std::sync::Arc;

use pollux_mlx5_abi::command::vport::{NicVportContext, QueryNicVportContextIn, QueryNicVportContextOut};
use pollux_mlx5_abi::command::{self, opcode};
use pollux_mlx5_kernel::{CommandQueue, DoorProfile, Kernel};
use pollux_mlx5_model::wire::Null;
use pollux_mlx5_model::{Device, DeviceConfig, Joint};
use pollux_uverbs::event::AsyncKind;

use crate::bench::open;

fn kernel(joint: Option<Joint>, last: u8) -> (Arc<Device>, Arc<Kernel>) {
    let config = DeviceConfig { joint, mac: [2, 0, 0, 0, 0, last], ..DeviceConfig::default() };
    let device = Device::new(config, Box::new(Null::default())).expect("memory");
    (Arc::clone(&device), over(&device))
}

/// The kernel over a device, once more.
fn over(device: &Arc<Device>) -> Arc<Kernel> {
    let memory = Arc::new(device.memory().clone());
    Kernel::new(Arc::clone(device) as _, memory, DoorProfile::default()).expect("it starts")
}

/// Whether a function says that its port is another's.
fn is_affiliated(device: &Device) -> bool {
    let mut input = [0; QueryNicVportContextIn::BYTES];
    command::start(&mut input, opcode::QUERY_NIC_VPORT_CONTEXT, 0, 0);
    let mut output = QueryNicVportContextOut::ZERO;
    device.execute(&input, &mut output).expect("it is there");
    let context = QueryNicVportContextOut::NIC_VPORT_CONTEXT.of(&output);
    NicVportContext::AFFILIATION_CRITERIA.get(context) != 0
}

/// What contexts of the kernel are told when the link of a function goes down.
fn port_event(kernel: &Kernel, device: &Device) -> Option<(AsyncKind, u64)> {
    let (context, _) = open(kernel.open(), false).expect("it opens");
    device.step(1);
    while context.events().next().expect("they can be read").is_some() {}
    device.set_link(false);
    device.step(1);
    let event = context.events().next().expect("they can be read")?;
    Some((event.kind, event.element))
}

#[test]
fn functions_that_do_not_belong_together_are_refused() {
    let (of_one, second_of_one) = Joint::pair([2, 0, 0, 0, 0, 1]);
    let (_, second_of_other) = Joint::pair([2, 0, 0, 0, 0, 3]);
    let (_, first) = kernel(Some(of_one), 1);
    let (_, second) = kernel(Some(second_of_one), 2);
    let (_, stranger) = kernel(Some(second_of_other), 4);
    let (_, alone) = kernel(None, 5);
    let refused = |one: &Kernel, other: &Kernel| one.join(other).expect_err("refused").to_string();
    assert!(refused(&alone, &second).contains("num_vhca_ports"), "{}", refused(&alone, &second));
    assert!(refused(&second, &first).contains("num_vhca_ports"));
    assert!(refused(&first, &alone).contains("native_port_num"));
    assert!(refused(&first, &first).contains("native_port_num"));
    assert!(refused(&first, &stranger).contains("system_image_guid"));
    assert_eq!(first.ports(), 1);
    first.join(&second).expect("they belong together");
    assert_eq!(first.ports(), 2);
    assert!(refused(&first, &second).contains("one before a second is joined"));
    assert!(first.hw_counters(2).is_ok() && first.hw_counters(3).is_err() && alone.hw_counters(2).is_err());
}

#[test]
fn what_was_joined_parts_with_its_kernels() {
    let (one, other) = Joint::pair([2, 0, 0, 0, 0, 1]);
    let ((first_device, first), (second_device, second)) = (kernel(Some(one), 1), kernel(Some(other), 2));
    first.join(&second).expect("they belong together");
    assert!(is_affiliated(&second_device));
    drop(first);
    assert!(!is_affiliated(&second_device), "it is nobody's any more");
    drop(second);
    // Both functions are down, and nothing of the first time is in the way.
    let (first, second) = (over(&first_device), over(&second_device));
    first.join(&second).expect("once more");
    drop(first);
    // The second one stays up, and has another first one.
    let first = over(&first_device);
    first.join(&second).expect("once more");
    assert_eq!(port_event(&first, &second_device), Some((AsyncKind::PORT_ERR, 2)));
    drop(second);
    assert!(is_affiliated(&second_device), "it is up as long as the first one is");
    drop(first);
    let (first, second) = (over(&first_device), over(&second_device));
    assert_eq!(first.ports(), 1);
    first.join(&second).expect("once more");
    first.remove();
    assert!(first.is_gone() && second.is_gone());
}
