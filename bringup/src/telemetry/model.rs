//! `/model/ledger`: what device models made PCIe carry.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pollux_eal::EalError;
use pollux_eal::telemetry::{Telemetry, Value, json};
use pollux_mlx5_model::Model;

use crate::PortLedger;

/// A device's name and its model.
type Named = (String, Weak<Model>);

/// The models of a program by the name of their device. It keeps none of them alive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Models(Arc<Mutex<Vec<Named>>>);

impl Models {
    /// Adds the model of a device, in place of an earlier one.
    pub(crate) fn put(&self, name: &str, model: Option<&Arc<Model>>) {
        let mut models = self.locked();
        models.retain(|(known, _)| known != name);
        models.extend(model.map(|model| (name.to_owned(), Arc::downgrade(model))));
    }

    /// What the model of a device counted; `None`: it has none.
    pub(crate) fn ledger(&self, name: &str) -> Option<PortLedger> {
        let model =
            self.locked().iter().find(|(known, _)| known == name).and_then(|(_, model)| model.upgrade());
        model.map(|model| PortLedger::new(&model.ledger()))
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Named>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn register(telemetry: &Telemetry, models: &Models) -> Result<(), EalError> {
    let models = models.clone();
    let help = "Returns the PCIe transfers of device models by kind. Parameters: string device (optional)";
    telemetry.register("/model/ledger", help, move |device| {
        let living: Vec<(String, Arc<Model>)> = models
            .locked()
            .iter()
            .filter_map(|(name, model)| Some((name.clone(), model.upgrade()?)))
            .collect();
        let wanted = |name: &str| device.is_empty() || device == name;
        let shown: Vec<&(String, Arc<Model>)> = living.iter().filter(|(name, _)| wanted(name)).collect();
        if shown.is_empty() && !device.is_empty() {
            return Value::Null;
        }
        shown
            .into_iter()
            .map(|(name, model)| (name.clone(), view(&PortLedger::new(&model.ledger()))))
            .collect()
    })
}

fn view(ledger: &PortLedger) -> Value {
    let mut view = json!({ "max_payload": PortLedger::MAX_PAYLOAD });
    if let (Value::Object(members), Value::Object(view)) = (json!(ledger), &mut view) {
        view.extend(members);
    }
    view
}
