//! A port on the device model, for tests.

use std::sync::Arc;

use pollux_eal::memory::Memory;
use pollux_mlx5_model::Model;
use pollux_pmd_mlx::devargs::Arguments;
use pollux_pmd_mlx::eth::port::{Mlx5Port, Mlx5Spec};

use netdev::ModelNetdev;

#[path = "netdev.rs"]
mod netdev;

/// A port on a model, whose address shift makes mistaken addresses lead nowhere.
pub(crate) fn port(model: &Arc<Model>, arguments: Arguments) -> Box<Mlx5Port> {
    let netdev = ModelNetdev {
        device: Arc::clone(model.device()),
        kernel: Arc::clone(model.kernel()),
        virtual_function: false,
        _model: Some(Arc::clone(model)),
    };
    let spec = Mlx5Spec {
        arguments,
        address_shift_pages: 5,
        ..Mlx5Spec::new(model.open(), Arc::new(netdev), Memory::ordinary())
    };
    Box::new(
        Mlx5Port::open(spec)
            .unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error))),
    )
}
