//! Which devices this process knows of.

use std::sync::OnceLock;

use crate::plan::Plan;

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
/// That of a daemon.
static SERVED: OnceLock<Plan> = OnceLock::new();

/// What the launcher said, or the daemon serves; nothing in other programs.
pub(crate) fn plan() -> Option<&'static Plan> {
    SERVED.get().or_else(|| PLAN.get_or_init(Plan::of_environment).as_ref())
}

/// From now on this process has the devices of that plan, whatever its environment says. None if it has others already.
pub(super) fn serve(plan: Plan) -> Option<&'static Plan> {
    SERVED.set(plan).ok()?;
    SERVED.get()
}
