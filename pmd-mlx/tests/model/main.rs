//! Ports on device models that run by themselves.

mod conformance;
mod crossing;

use std::sync::Arc;

use pollux_bringup::ModelNetdev;
use pollux_eal::memory::Memory;
use pollux_mlx5_model::Model;
use pollux_pmd_mlx::{Arguments, Mlx5Port, Mlx5Spec};

/// A port on a model, whose address shift makes mistaken addresses lead nowhere.
fn port(model: &Arc<Model>, arguments: Arguments) -> Box<Mlx5Port> {
    let netdev = Arc::new(ModelNetdev::new(model));
    let spec = Mlx5Spec {
        arguments,
        address_shift_pages: 5,
        ..Mlx5Spec::new(model.open(), netdev, Memory::ordinary())
    };
    let opened = Mlx5Port::open(spec);
    Box::new(opened.unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error))))
}
