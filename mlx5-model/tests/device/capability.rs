//! The second block of general capabilities, of which software asks for a part.

use pollux_mlx5_abi::caps::general::{GeneralCaps, GeneralCaps2};
use pollux_mlx5_abi::caps::{self, SetHcaCapIn, kind};
use pollux_mlx5_abi::command::start::InitHcaIn;
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_model::wire::Null;
use pollux_mlx5_model::{Device, DeviceConfig};

use super::rig::{block, run, simple};

fn second(device: &Device, when: u16) -> (u32, u32) {
    let caps = block(device, kind::GENERAL_2, when);
    (GeneralCaps2::SW_VHCA_ID_VALID.get(&caps), GeneralCaps2::SW_VHCA_ID.get(&caps))
}

fn set(device: &Device, block: &[u8; 256]) -> u8 {
    let mut input = SetHcaCapIn::ZERO;
    SetHcaCapIn::CAPABILITY.of_mut(&mut input)[..256].copy_from_slice(block);
    let op_mod = caps::op_mod(kind::GENERAL_2, caps::AT_MOST);
    run(device, op::SET_HCA_CAP, op_mod, &mut input, 16).map_or_else(|no| no.status, |_| status::OK)
}

fn init(device: &Device, number: u32) -> u8 {
    let mut input = InitHcaIn::ZERO;
    InitHcaIn::SW_VHCA_ID.set(&mut input, number);
    run(device, op::INIT_HCA, 0, &mut input, 16).map_or_else(|no| no.status, |_| status::OK)
}

/// As Linux's `handle_hca_cap_2` and `mlx5_cmd_init_hca` do it.
#[test]
fn software_gives_the_function_a_number() {
    let device = Device::new(DeviceConfig::default(), Box::new(Null::default())).expect("memory");
    simple(&device, op::ENABLE_HCA);
    assert!(GeneralCaps::HCA_CAP_2.is_set(&block(&device, kind::GENERAL, caps::AT_MOST)));
    assert_eq!((second(&device, caps::AT_MOST), second(&device, caps::NOW)), ((1, 0), (0, 0)));
    assert_eq!(init(&device, 7), status::BAD_PARAM_ERR, "it was not asked for");
    let mut wanted = block(&device, kind::GENERAL_2, caps::NOW);
    GeneralCaps2::SW_VHCA_ID_VALID.set(&mut wanted, 1);
    assert_eq!(set(&device, &wanted), status::OK);
    assert_eq!(init(&device, 7), status::OK);
    assert_eq!((second(&device, caps::AT_MOST), second(&device, caps::NOW)), ((1, 0), (1, 7)));
    assert_eq!(set(&device, &wanted), status::BAD_SYS_STATE_ERR, "the function works");
    // Off and on again it has none.
    simple(&device, op::TEARDOWN_HCA);
    simple(&device, op::DISABLE_HCA);
    simple(&device, op::ENABLE_HCA);
    assert_eq!(second(&device, caps::NOW), (0, 0));
    assert_eq!(init(&device, 0), status::OK, "nor needs it one");
}

#[test]
fn what_is_not_offered_is_refused() {
    let device = Device::new(DeviceConfig::default(), Box::new(Null::default())).expect("memory");
    simple(&device, op::ENABLE_HCA);
    let offered = block(&device, kind::GENERAL_2, caps::NOW);
    // Pages of keys have 4 KiB at least, and completions leave no number of a port's time stamps. Steering inserts no header.
    assert_eq!(GeneralCaps2::LOG_MIN_MKEY_ENTITY_SIZE.get(&offered), 12);
    for field in [
        GeneralCaps2::TS_CQE_METADATA_SIZE2WQE_COUNTER,
        GeneralCaps2::MAX_REFORMAT_INSERT_SIZE,
        GeneralCaps2::LOG_MIN_MKEY_ENTITY_SIZE,
    ] {
        let mut wanted = offered;
        let other = field.get(&wanted) ^ 1;
        field.set(&mut wanted, other);
        assert_eq!(set(&device, &wanted), status::BAD_PARAM_ERR);
    }
    assert_eq!(set(&device, &offered), status::OK);
}
