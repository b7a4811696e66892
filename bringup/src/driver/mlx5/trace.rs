//! Has every call of a driver to its device written down: from the start into files that the environment names, or while somebody watches
//! (`/uverbs/trace` of telemetry).

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::sync::Arc;

use pollux_mlx5_model::{FastPath, Model};
use pollux_port::PortError;
use pollux_uverbs::Channel;
use pollux_uverbs::trace::{Switch, Traced};

use crate::telemetry::LiveTrace;

/// Names the files: behind it comes a dot and the name of the device. Contexts of one device share a file, which grows.
const VARIABLE: &str = "POLLUX_UVERBS_TRACE";

/// Set beside [`VARIABLE`]: of a model also what passes without a call.
const FAST_PATH: &str = "POLLUX_UVERBS_TRACE_FAST_PATH";

/// A channel around that of a device, which writes to the file of this device what goes through it; where the environment names none, when
/// it is told to.
pub(super) fn traced(
    channel: Arc<dyn Channel>,
    device: &str,
) -> Result<(Arc<dyn Channel>, Option<LiveTrace>), PortError> {
    match std::env::var_os(VARIABLE) {
        Some(path) => Ok((written_to(channel, path, device)?, None)),
        None => {
            let switch = Switch::default();
            let channel = Arc::new(Traced::switched(channel, switch.clone()));
            Ok((channel, Some(LiveTrace { switch, model: None })))
        }
    }
}

/// A new channel of a model, traced likewise; doorbells, entries and completions too where that is asked for.
pub(super) fn of_model(
    model: &Arc<Model>,
    device: &str,
) -> Result<(Arc<dyn Channel>, Option<LiveTrace>), PortError> {
    if let (Some(path), Some(_)) = (std::env::var_os(VARIABLE), std::env::var_os(FAST_PATH)) {
        model.device().write_fast_path(Some(FastPath::new(Box::new(file(path, device)?))));
    }
    let (channel, live) = traced(model.open(), device)?;
    Ok((channel, live.map(|live| LiveTrace { model: Some(Arc::downgrade(model)), ..live })))
}

fn written_to(
    channel: Arc<dyn Channel>,
    path: OsString,
    device: &str,
) -> Result<Arc<dyn Channel>, PortError> {
    Ok(Arc::new(Traced::new(channel, Box::new(file(path, device)?))))
}

/// The file of a device, to write more to.
fn file(mut path: OsString, device: &str) -> Result<File, PortError> {
    path.push(".");
    path.push(device);
    OpenOptions::new().create(true).append(true).open(&path).map_err(|error| {
        let why = format!("{}: {error} ({VARIABLE} names the files)", path.to_string_lossy());
        PortError::device("write the trace of its calls", std::io::Error::new(error.kind(), why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_a_file() {
        let model = pollux_mlx5_model::Model::builder("mlx5_model0").build().expect("a model");
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().join("calls");
        let channel = written_to(model.open(), top.clone().into(), "a0").expect("a file");
        assert_eq!(channel.describe(), model.open().describe());
        assert!(folder.path().join("calls.a0").exists());
        drop(channel);
        let why =
            written_to(model.open(), folder.path().join("no/calls").into(), "a0").expect_err("no folder");
        let why = std::error::Error::source(&why).map(ToString::to_string).unwrap_or_default();
        assert!(why.contains("calls.a0") && why.contains(VARIABLE), "{why}");
    }

    #[test]
    fn contexts_of_one_device_share_a_file_and_lose_no_call() {
        let model = pollux_mlx5_model::Model::builder("mlx5_model0").build().expect("a model");
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().join("calls");
        let said = || std::fs::read_to_string(folder.path().join("calls.a0")).expect("text");
        let open = || {
            let channel = written_to(model.open(), top.clone().into(), "a0").expect("a file");
            pollux_verbs::Context::open(
                channel,
                pollux_verbs::Provider::Mlx5,
                pollux_verbs::Options::default(),
            )
            .expect("a context")
        };
        let first = open();
        let opened = said();
        assert!(opened.contains("-> ok"), "{opened}");
        let second = open();
        let both = said();
        assert!(both.starts_with(&opened) && both.len() > opened.len(), "{both}");
        for context in [&first, &second] {
            let before = said();
            context.device().expect("an answer");
            let after = said();
            assert!(after.starts_with(&before) && after.len() > before.len(), "{after}");
        }
        assert!(!said().contains('\0'), "no holes");
    }
}
