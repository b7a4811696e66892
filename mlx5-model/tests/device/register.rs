//! Registers of the card: which there are, which firmware runs, what is plugged in.

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::{self, kind};
use pollux_mlx5_abi::command::management::{
    LaneMapping, Mcam, McamFeatures, Mcia, Mcqi, McqiCap, McqiVersion, Mcqs, Pcam, PcamFeatures, Pmlp,
    component, component_info, module_address, module_status,
};
use pollux_mlx5_abi::command::register::{AccessRegisterIn, access, id};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_kernel::CommandQueue;
use pollux_mlx5_model::DeviceConfig;
use pollux_mlx5_model::config::Profile;

use super::rig::Rig;

fn access_to(rig: &Rig, number: u16, op_mod: u16, block: &[u8], room: usize) -> Result<Vec<u8>, u8> {
    let mut input = AccessRegisterIn::ZERO.to_vec();
    AccessRegisterIn::REGISTER_ID.set(input.first_chunk_mut().expect("a command"), number.into());
    input.extend(block);
    let out = rig.command(op::ACCESS_REG, op_mod, &mut input, 16 + room).map_err(|refused| refused.status)?;
    Ok(out[16..].to_vec())
}

fn register<const N: usize>(rig: &Rig, number: u16, block: [u8; N]) -> [u8; N] {
    let out = access_to(rig, number, access::READ, &block, N).expect("accepted");
    *out.first_chunk().expect("the register")
}

fn card(profile: Profile) -> Rig {
    Rig::with(DeviceConfig { traits: profile.traits(), ..DeviceConfig::default() })
}

/// What the card announces is there, and nothing else is announced.
#[test]
fn what_is_announced_answers() {
    let rig = Rig::new();
    let caps = rig.must(op::QUERY_HCA_CAP, caps::op_mod(kind::GENERAL, caps::NOW), &mut [0; 16], 4112);
    let caps: &[u8; 256] = caps[16..].first_chunk().expect("a block");
    assert!(GeneralCaps::PCAM_REG.is_set(caps) && GeneralCaps::MCAM_REG.is_set(caps));
    let (pcam, mcam) = (register(&rig, id::PCAM, Pcam::ZERO), register(&rig, id::MCAM, Mcam::ZERO));
    for (first, mask) in [
        (0x5000, Pcam::PORT_ACCESS_REG_CAP_MASK.get(&pcam)),
        (0x9000, Mcam::MNG_ACCESS_REG_CAP_MASK.get(&mcam)),
    ] {
        let mask = u128::from_be_bytes(mask);
        let found: Vec<u16> = (0..128).filter(|bit| mask >> bit & 1 == 1).map(|bit| first + bit).collect();
        // PTYS answers for Ethernet alone.
        let mut block = vec![0; 256];
        block[3] = 4;
        let answering: Vec<u16> = (first..first + 128)
            .filter(|number| access_to(&rig, *number, access::READ, &block, 256).is_ok())
            .collect();
        let refuses_that = |number: &u16| ![id::MCQI, id::MCQS].contains(number);
        assert_eq!(
            found.iter().copied().filter(refuses_that).collect::<Vec<_>>(),
            answering.iter().copied().filter(refuses_that).collect::<Vec<_>>()
        );
    }
    // `ppcnt` is bit 8 of its mask, `mcqs` bit 96, as Linux' header has them.
    assert_eq!(Pcam::PORT_ACCESS_REG_CAP_MASK.get(&pcam)[14] & 1, 1);
    assert_eq!(Mcam::MNG_ACCESS_REG_CAP_MASK.get(&mcam)[3] & 3, 3);
    let features = Pcam::FEATURE_CAP_MASK.get(&pcam);
    assert!(PcamFeatures::PTYS_EXTENDED_ETHERNET.is_set(&features));
    assert!(McamFeatures::MCIA_32DWORDS.is_set(&Mcam::MNG_FEATURE_CAP_MASK.get(&mcam)));
    // The registers from 0x9100 on are another group, of which there are none.
    let mut other = Mcam::ZERO;
    Mcam::ACCESS_REG_GROUP.set(&mut other, 2);
    Mcam::FEATURE_GROUP.set(&mut other, 1);
    let other = register(&rig, id::MCAM, other);
    assert_eq!(
        (Mcam::MNG_ACCESS_REG_CAP_MASK.get(&other), Mcam::MNG_FEATURE_CAP_MASK.get(&other)),
        ([0; 16], [0; 16])
    );
    for number in [id::PCAM, id::MCAM, id::PMLP, id::MCIA, id::MCQS, id::MCQI] {
        assert_eq!(access_to(&rig, number, access::WRITE, &[0; 256], 256), Err(status::BAD_PARAM_ERR));
        assert_eq!(access_to(&rig, number, access::READ, &[0; 8], 256), Err(status::BAD_INP_LEN_ERR));
    }
}

/// As Linux's `mlx5_fw_version_query` asks.
#[test]
fn the_firmwares_version_is_the_cards() {
    for profile in Profile::ALL {
        let rig = card(profile);
        let state = register(&rig, id::MCQS, Mcqs::ZERO);
        assert_eq!(Mcqs::IDENTIFIER.get(&state), component::BOOT_IMG);
        assert!(Mcqs::LAST_INDEX_FLAG.is_set(&state));
        assert_eq!(Mcqs::COMPONENT_UPDATE_STATE.get(&state), 0, "nothing is under way");
        let mut ask = Mcqi::ZERO;
        Mcqi::INFO_TYPE.set(&mut ask, component_info::VERSION);
        Mcqi::DATA_SIZE.set(&mut ask, McqiVersion::BYTES as u32);
        let out = access_to(&rig, id::MCQI, access::READ, &ask, 24 + McqiVersion::BYTES).expect("accepted");
        let version: &[u8; McqiVersion::BYTES] = out[24..].first_chunk().expect("a version");
        let (major, minor, sub) = rig.device.identity().firmware;
        assert_eq!(
            McqiVersion::VERSION.get(version),
            u32::from(major) << 24 | u32::from(minor) << 16 | u32::from(sub)
        );
        let text = format!("{major}.{minor}.{sub:04}");
        let said = &McqiVersion::VERSION_STRING.of(version)
            [..McqiVersion::VERSION_STRING_LENGTH.get(version) as usize];
        assert_eq!(said, text.as_bytes());
    }
}

#[test]
fn a_component_is_read_by_pieces() {
    let rig = Rig::new();
    let ask = |index: u32, kind: u32, offset: u32, bytes: u32| {
        let mut ask = Mcqi::ZERO;
        Mcqi::COMPONENT_INDEX.set(&mut ask, index);
        Mcqi::INFO_TYPE.set(&mut ask, kind);
        Mcqi::OFFSET.set(&mut ask, offset);
        Mcqi::DATA_SIZE.set(&mut ask, bytes);
        access_to(&rig, id::MCQI, access::READ, &ask, 24 + 124)
    };
    let version = component_info::VERSION;
    let whole = ask(0, version, 0, 0xffff).expect("accepted");
    let (head, whole) = whole.split_at(24);
    let head: &[u8; 24] = head.first_chunk().expect("a head");
    assert_eq!((Mcqi::INFO_SIZE.get(head), Mcqi::DATA_SIZE.get(head)), (124, 124));
    let piece = ask(0, version, 4, 4).expect("accepted");
    assert_eq!(piece[24..28], whole[4..8]);
    assert!(piece[28..].iter().all(|byte| *byte == 0));
    assert_eq!(ask(0, version, 125, 1), Err(status::BAD_PARAM_ERR));
    assert_eq!(ask(1, version, 0, 4), Err(status::BAD_PARAM_ERR), "there is one component");
    assert_eq!(ask(0, 5, 0, 4), Err(status::BAD_PARAM_ERR), "nothing is activated");
    let caps = ask(0, component_info::CAPABILITIES, 0, 20).expect("accepted");
    let caps: &[u8; McqiCap::BYTES] = caps[24..].first_chunk().expect("a block");
    assert_eq!(McqiCap::SUPPORTED_INFO_BITMASK.get(caps), 0b11);
    let mut next = Mcqs::ZERO;
    Mcqs::COMPONENT_INDEX.set(&mut next, 1);
    assert_eq!(access_to(&rig, id::MCQS, access::READ, &next, 16), Err(status::BAD_PARAM_ERR));
}

/// As Linux's `mlx5_query_module_eeprom` asks.
#[test]
fn the_module_tells_what_it_is() {
    let rig = Rig::new();
    let lanes = register(&rig, id::PMLP, Pmlp::ZERO);
    assert_eq!(Pmlp::WIDTH.get(&lanes), 4);
    let last = Pmlp::LANE3_MODULE_MAPPING.get(&lanes).to_be_bytes();
    assert_eq!((LaneMapping::MODULE.get(&last), LaneMapping::RX_LANE.get(&last)), (0, 3));
    let ask = |module: u32, address: u32, page: u32, first: u32, bytes: u32| {
        let mut ask = Mcia::ZERO;
        Mcia::MODULE.set(&mut ask, module);
        Mcia::I2C_DEVICE_ADDRESS.set(&mut ask, address);
        Mcia::PAGE_NUMBER.set(&mut ask, page);
        Mcia::DEVICE_ADDRESS.set(&mut ask, first);
        Mcia::SIZE.set(&mut ask, bytes);
        let out = register(&rig, id::MCIA, ask);
        (Mcia::STATUS.get(&out), Mcia::DWORDS.get(&out))
    };
    let low = module_address::LOW;
    let (well, data) = ask(0, low, 0, 0, 3);
    assert_eq!((well, &data[..4]), (module_status::GOOD, &[0x11, 8, 4, 0][..]), "QSFP28, flat");
    let (well, upper) = ask(0, low, 0, 128, 128);
    assert_eq!((well, &upper[20..26]), (module_status::GOOD, &b"Pollux"[..]));
    for (answer, why, expected) in [
        (ask(0, low, 3, 128, 128), "no such page", module_status::I2C_ERROR),
        (ask(0, low, 0, 250, 7), "past the page", module_status::I2C_ERROR),
        (ask(0, low, 0, 0, 129), "more than the register has", module_status::I2C_ERROR),
        (ask(0, module_address::HIGH, 0, 0, 1), "no diagnosis", module_status::NO_EEPROM_MODULE),
        (ask(1, low, 0, 0, 1), "no such module", module_status::MODULE_NOT_CONNECTED),
    ] {
        assert_eq!(answer, (expected, [0; 128]), "{why}");
    }
    let rig = card(Profile::ConnectX4Lx);
    assert_eq!(Pmlp::WIDTH.get(&register(&rig, id::PMLP, Pmlp::ZERO)), 1);
}
