//! Keys of device arguments that stand in a table.

use pollux_config::{DeviceArg, Param};

const PARAMS: &[Param] = &[Param::number("size"), Param::flag("copy")];

fn device(text: &str) -> DeviceArg {
    text.parse().expect("a device")
}

#[test]
fn the_keys_of_a_table_are_taken_and_no_others() {
    let read = |text: &str| {
        let device = device(text);
        let mut keys = device.keys_of(PARAMS);
        let read = (keys.number::<u16>("size", 1..=9)?, keys.flag("copy")?);
        keys.finish().map(|()| read)
    };
    assert_eq!(read("net_a0,copy=1,size=3").expect("both"), (Some(3), Some(true)));
    let said = read("net_a0,sise=3").expect_err("a mistake").to_string();
    assert_eq!(said, "device 'net_a0': unknown key 'sise', did you mean 'size'?; allowed: size, copy");
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "checked in debug builds only")]
#[should_panic(expected = "keys that the driver of net_a0 asks for, and its table")]
fn a_table_that_lacks_a_key_is_a_mistake() {
    let device = device("net_a0");
    let mut keys = device.keys_of(&PARAMS[..1]);
    let _read = (keys.number::<u16>("size", 1..=9), keys.flag("copy"));
    drop(keys.finish());
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "checked in debug builds only")]
#[should_panic(expected = "keys that the driver of net_a0 asks for, and its table")]
fn a_key_that_is_not_read_is_a_mistake() {
    let device = device("net_a0");
    let mut keys = device.keys_of(PARAMS);
    let _read = keys.flag("copy");
    drop(keys.finish());
}
