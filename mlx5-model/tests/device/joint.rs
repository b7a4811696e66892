//! Two functions of a card, of which the second one's port becomes the first one's second.

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::{self, QueryHcaCapOut, kind};
use pollux_mlx5_abi::command::vport::{
    FieldSelect, ModifyNicVportContextIn, NicVportContext, QueryNicVportContextOut, QueryRoceAddressIn,
    QueryRoceAddressOut, RoceAddress, SetRoceAddressIn, roce_l3, roce_version,
};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_model::{DeviceConfig, Joint};

use crate::rig::Rig;

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn functions() -> [Rig; 2] {
    let (first, second) = Joint::pair(MACS[0]);
    [(first, MACS[0]), (second, MACS[1])]
        .map(|(joint, mac)| Rig::with(DeviceConfig { joint: Some(joint), mac, ..DeviceConfig::default() }))
}

fn general(rig: &Rig) -> [u8; GeneralCaps::BYTES] {
    let out = rig.must(op::QUERY_HCA_CAP, caps::op_mod(kind::GENERAL, caps::NOW), &mut [0; 16], 4112);
    let block = QueryHcaCapOut::CAPABILITY.get(out.first_chunk().expect("an answer"));
    *block.first_chunk().expect("a block")
}

fn context(rig: &Rig) -> [u8; NicVportContext::BYTES] {
    let out = rig.must(op::QUERY_NIC_VPORT_CONTEXT, 0, &mut [0; 16], QueryNicVportContextOut::BYTES);
    QueryNicVportContextOut::NIC_VPORT_CONTEXT.get(out.first_chunk().expect("an answer"))
}

/// Changes the parts of a function's context that `select` names.
fn modify(
    rig: &Rig,
    select: impl Fn(&mut [u8; 4]),
    change: impl Fn(&mut [u8; NicVportContext::BYTES]),
) -> Result<(), u8> {
    let mut selected = FieldSelect::ZERO;
    select(&mut selected);
    let mut input = ModifyNicVportContextIn::ZERO;
    ModifyNicVportContextIn::FIELD_SELECT.set(&mut input, u32::from_be_bytes(selected));
    change(ModifyNicVportContextIn::NIC_VPORT_CONTEXT.of_mut(&mut input));
    let answer = rig.command(op::MODIFY_NIC_VPORT_CONTEXT, 0, &mut input, 16);
    answer.map(drop).map_err(|refused| refused.status)
}

fn enable_roce(rig: &Rig) {
    let select = |select: &mut [u8; 4]| FieldSelect::ROCE_EN.set(select, 1);
    modify(rig, select, |context| NicVportContext::ROCE_EN.set(context, 1)).expect("enabled");
}

fn affiliate(rig: &Rig, criteria: u32, number: u32, by_software: bool) -> Result<(), u8> {
    let select = |select: &mut [u8; 4]| FieldSelect::AFFILIATION.set(select, 1);
    modify(rig, select, |context| {
        NicVportContext::AFFILIATION_CRITERIA.set(context, criteria);
        NicVportContext::AFFILIATED_VHCA_ID.set(context, number);
        NicVportContext::VHCA_ID_TYPE.set(context, by_software.into());
    })
}

/// Sets an address of a port; what the table says then.
fn set_address(rig: &Rig, port: u32, gid: [u8; 16]) -> Result<[u8; 16], u8> {
    let mut input = SetRoceAddressIn::ZERO;
    SetRoceAddressIn::ROCE_ADDRESS_INDEX.set(&mut input, 3);
    SetRoceAddressIn::VHCA_PORT_NUM.set(&mut input, port);
    let address = SetRoceAddressIn::ROCE_ADDRESS.of_mut(&mut input);
    RoceAddress::SOURCE_L3_ADDRESS.set(address, gid);
    RoceAddress::ROCE_VERSION.set(address, roce_version::V2);
    RoceAddress::ROCE_L3_TYPE.set(address, roce_l3::IPV6);
    rig.command(op::SET_ROCE_ADDRESS, 0, &mut input, 16).map_err(|refused| refused.status)?;
    Ok(address_of(rig, port))
}

fn address_of(rig: &Rig, port: u32) -> [u8; 16] {
    let mut input = QueryRoceAddressIn::ZERO;
    QueryRoceAddressIn::ROCE_ADDRESS_INDEX.set(&mut input, 3);
    QueryRoceAddressIn::VHCA_PORT_NUM.set(&mut input, port);
    let out = rig.must(op::QUERY_ROCE_ADDRESS, 0, &mut input, QueryRoceAddressOut::BYTES);
    let block = QueryRoceAddressOut::ROCE_ADDRESS.get(out.first_chunk().expect("an answer"));
    RoceAddress::SOURCE_L3_ADDRESS.get(&block)
}

#[test]
fn capabilities_and_numbers_tell_who_is_who() {
    use GeneralCaps as G;
    let told = |rig: &Rig| {
        let caps = general(rig);
        [G::VHCA_ID, G::NUM_VHCA_PORTS, G::NATIVE_PORT_NUM, G::AFFILIATE_NIC_VPORT_CRITERIA]
            .map(|field| field.get(&caps))
    };
    let [first, second] = functions();
    assert_eq!((told(&first), told(&second)), ([1, 2, 1, 1], [2, 1, 2, 1]));
    assert_eq!(told(&Rig::new()), [1, 0, 0, 0], "a card with one function");
    let [first, second] = [&first, &second].map(context);
    let card = |context| NicVportContext::SYSTEM_IMAGE_GUID.get(context);
    let node = |context| NicVportContext::NODE_GUID.get(context);
    assert_eq!(card(&first), card(&second));
    assert_ne!(node(&first), node(&second));
}

#[test]
fn a_second_port_is_one_once_it_is_affiliated() {
    let [first, second] = functions();
    let affiliated = || {
        let context = context(&second);
        (
            NicVportContext::AFFILIATION_CRITERIA.get(&context),
            NicVportContext::AFFILIATED_VHCA_ID.get(&context),
        )
    };
    assert_eq!(affiliate(&second, 1, 1, false), Err(status::BAD_PARAM_ERR), "without RoCE");
    enable_roce(&second);
    for (criteria, number, by_software) in
        [(2, 1, false), (1, 2, false), (1, 0, false), (1, 1, true), (1, 0, true)]
    {
        let refused = affiliate(&second, criteria, number, by_software);
        assert_eq!(refused, Err(status::BAD_PARAM_ERR), "{criteria} {number} {by_software}");
    }
    enable_roce(&first);
    assert_eq!(affiliate(&first, 1, 1, false), Err(status::BAD_PARAM_ERR), "the first one");
    let alone = Rig::new();
    enable_roce(&alone);
    assert_eq!(affiliate(&alone, 1, 1, false), Err(status::BAD_PARAM_ERR), "a function alone");
    assert_eq!(affiliated(), (0, 0));
    affiliate(&second, 1, 1, false).expect("affiliated");
    assert_eq!(affiliated(), (1, 1));
    affiliate(&second, 0, 0, false).expect("no more");
    assert_eq!(affiliated(), (0, 0));
}

#[test]
fn addresses_of_two_ports_are_two_tables() {
    let [first, second] = functions();
    let [one, two] = [[0xfd; 16], [0xfc; 16]];
    assert_eq!(set_address(&first, 1, one), Ok(one));
    assert_eq!(set_address(&first, 2, two), Ok(two));
    assert_eq!([0, 1, 2].map(|port| address_of(&first, port)), [one, one, two]);
    assert_eq!(set_address(&first, 3, two), Err(status::BAD_PARAM_ERR));
    assert_eq!(set_address(&second, 2, two), Err(status::BAD_PARAM_ERR), "its own port is its first");
    assert_eq!(set_address(&Rig::new(), 2, two), Err(status::BAD_PARAM_ERR));
}
