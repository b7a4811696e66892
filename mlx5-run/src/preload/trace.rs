//! Traces of a program's devices: what it asks of each, and what passes without a call, a file for each device.

use std::fs::{File, OpenOptions};
use std::sync::Arc;

use pollux_mlx5_model::{FastPath, Model};
use pollux_uverbs::Channel;
use pollux_uverbs::trace::Traced;

use super::descriptor;
use crate::plan::Plan;

/// The file of a device, to write more to; none where nothing is traced, or it went away since the launcher made it.
fn file(plan: &Plan, number: usize) -> Option<File> {
    let path = plan.trace_of(number)?;
    descriptor::high_inside(|| OpenOptions::new().append(true).open(&path))
        .map_err(|why| eprintln!("mlx5-run: {}: {why}", path.display()))
        .ok()
}

/// Has a device that was made write down what passes without a call.
pub(super) fn fast_path(plan: &Plan, number: usize, model: &Model) {
    if let Some(file) = file(plan, number) {
        model.device().write_fast_path(Some(FastPath::new(Box::new(file))));
    }
}

/// A channel of a device, or one around it that writes down what goes through it.
pub(super) fn calls(plan: &Plan, number: usize, channel: Arc<dyn Channel>) -> Arc<dyn Channel> {
    match file(plan, number) {
        Some(file) => Arc::new(Traced::new(channel, Box::new(file))),
        None => channel,
    }
}
