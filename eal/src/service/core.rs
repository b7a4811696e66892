//! One service core: its map, and the loop that its thread runs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use crossbeam_utils::CachePadded;

use super::call::{Service, Tally};
use super::wait::{Inside, Place, wait_for};
use super::{Services, Work};
use crate::EalError;
use crate::clock::cycles;
use crate::lcore::{LcoreContext, LcoreId, Worker};
use crate::panic::Reporter;

/// What the loop and its controller share.
#[derive(Debug, Default)]
struct Switch {
    run: AtomicBool,
    rounds: CachePadded<AtomicU64>,
}

pub(super) struct Core {
    worker: Arc<Worker>,
    mapped: BTreeSet<u32>,
    switch: Arc<Switch>,
    /// The run under way, as its worker counts.
    run: Option<u64>,
}

/// A core that was told to stop.
pub(super) struct Stopping(Option<(Arc<Worker>, u64)>);

impl Stopping {
    /// Waits for the end of its round, unless this is that core, or it waits for this one.
    pub(super) fn wait(self) {
        if let Some((worker, run)) = self.0 {
            wait_for(Place::of(&*worker), || {
                worker.wait_done(run, None);
            });
        }
    }
}

impl Core {
    pub(super) fn new(worker: Arc<Worker>) -> Self {
        Self { worker, mapped: BTreeSet::new(), switch: Arc::default(), run: None }
    }

    pub(super) fn lcore(&self) -> LcoreId {
        self.worker.member.id
    }

    pub(super) fn map(&mut self, service: u32) {
        self.mapped.insert(service);
    }

    pub(super) fn unmap(&mut self, service: u32) {
        self.mapped.remove(&service);
    }

    pub(super) fn has(&self, service: u32) -> bool {
        self.mapped.contains(&service)
    }

    pub(super) fn is_running(&self) -> bool {
        self.run.is_some()
    }

    pub(super) fn rounds(&self) -> u64 {
        self.switch.rounds.load(Ordering::Relaxed)
    }

    pub(super) fn start(&mut self, services: &Services) -> Result<(), EalError> {
        if self.run.is_some() {
            return Ok(());
        }
        // A new switch: the old one belongs to a run that may be in its last round.
        let rounds = self.rounds();
        self.switch =
            Arc::new(Switch { run: AtomicBool::new(true), rounds: CachePadded::new(rounds.into()) });
        let (services, switch) = (services.clone(), Arc::clone(&self.switch));
        let place = Place::of(&*self.worker);
        let run = Box::new(move |context: &LcoreContext| {
            let _inside = Inside::enter(place);
            run_services(&services, &switch, context);
        });
        let run = self.worker.vacancy_any_role()?.take(run);
        self.worker.collect(run);
        self.run = Some(run);
        Ok(())
    }

    pub(super) fn stop(&mut self) -> Stopping {
        self.switch.run.store(false, Ordering::Relaxed);
        Stopping(self.run.take().map(|run| (Arc::clone(&self.worker), run)))
    }
}

type Mapped = Vec<(Arc<Service>, Arc<CachePadded<Tally>>)>;

/// The loop. Its list changes with the generation; a list without a started service lets the core sleep.
fn run_services(services: &Services, switch: &Switch, context: &LcoreContext) {
    let shared = &*services.0;
    let mut seen = None;
    let mut mapped = Mapped::new();
    while switch.run.load(Ordering::Relaxed) {
        let generation = shared.generation.load(Ordering::Acquire);
        if seen != Some(generation) {
            let before = std::mem::replace(&mut mapped, mapped_to(services, context.id()));
            let_go(before, &shared.reporter);
            seen = Some(generation);
        }
        let begun = cycles::now();
        let mut worked = false;
        let mut awake = false;
        for (service, tally) in &mapped {
            if service.is_running() {
                awake = true;
                worked |= service.call(tally, &shared.reporter) == Some(Work::Done);
            }
        }
        switch.rounds.store(switch.rounds.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let spent = cycles::now().wrapping_sub(begun);
        if worked {
            context.busy(spent)
        } else {
            context.idle(spent)
        }
        if !awake {
            sleep(services, switch, generation);
        }
    }
    let_go(mapped, &shared.reporter);
}

/// What a service captured goes with its last owner, which may be the core that called it.
fn let_go(mapped: Mapped, reporter: &Reporter) {
    mapped.into_iter().for_each(|(service, _)| reporter.let_go(service));
}

fn mapped_to(services: &Services, lcore: LcoreId) -> Mapped {
    let state = services.0.state();
    let core = state.cores.iter().find(|core| core.lcore() == lcore);
    let ids = core.into_iter().flat_map(|core| &core.mapped);
    let found = ids.filter_map(|id| state.services.get(id));
    found.map(|service| (Arc::clone(service), service.tally(Some(lcore)))).collect()
}

/// Until something changes: every change is made with the state locked, so none is missed.
fn sleep(services: &Services, switch: &Switch, generation: u64) {
    let shared = &*services.0;
    let mut state = shared.state();
    while switch.run.load(Ordering::Relaxed) && shared.generation.load(Ordering::Relaxed) == generation {
        state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}
