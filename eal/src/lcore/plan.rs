//! From what was asked for to which thread runs where.

use pollux_config::EalSpec;

use super::{CpuSet, LcoreId, LcoreRole};
use crate::EalError;

/// One lcore of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) id: LcoreId,
    pub(crate) cpus: CpuSet,
    pub(crate) role: LcoreRole,
}

/// Which lcores there are, and where all other threads may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Ascending by id.
    pub(crate) lcores: Vec<Planned>,
    pub(crate) main: LcoreId,
    /// For threads that are not lcores: what is left of the affinity, or all of it when nothing is.
    pub(crate) control: CpuSet,
}

impl Plan {
    /// Checks what was asked for against the CPUs that the process may use.
    pub(crate) fn new(spec: &EalSpec, allowed: &CpuSet) -> Result<Self, EalError> {
        let mut lcores: Vec<Planned> = match &spec.lcores {
            Some(map) => {
                let planned = |entry: &pollux_config::LcoreEntry| Planned {
                    id: LcoreId(entry.lcore),
                    cpus: CpuSet::from(&entry.cpus),
                    role: LcoreRole::Dataplane,
                };
                map.entries().iter().map(planned).collect()
            }
            None => allowed.as_slice().iter().map(|&cpu| Planned::on_its_cpu(cpu)).collect(),
        };
        for &service in spec.service_lcores.as_slice() {
            // As in DPDK, a service core may be one of the list or one more.
            match lcores.iter_mut().find(|lcore| lcore.id.0 == service) {
                Some(lcore) => lcore.role = LcoreRole::Service,
                None => lcores.push(Planned { role: LcoreRole::Service, ..Planned::on_its_cpu(service) }),
            }
        }
        lcores.sort_unstable_by_key(|lcore| lcore.id);
        if let Some([twice, _]) = lcores.array_windows().find(|[one, next]| one.id == next.id) {
            return Err(EalError::LcoreTwice { lcore: twice.id });
        }
        for lcore in &lcores {
            if lcore.cpus.is_empty() {
                return Err(EalError::LcoreWithoutCpu { lcore: lcore.id, allowed: allowed.clone() });
            }
            if let Some(&cpu) = lcore.cpus.as_slice().iter().find(|&&cpu| !allowed.contains(cpu)) {
                return Err(EalError::CpuNotAllowed { lcore: lcore.id, cpu, allowed: allowed.clone() });
            }
        }
        let main = Self::main(spec, &lcores)?;
        let taken: CpuSet = lcores.iter().flat_map(|lcore| lcore.cpus.as_slice().iter().copied()).collect();
        let left = allowed.without(&taken);
        let control = if left.is_empty() { allowed.clone() } else { left };
        Ok(Self { lcores, main, control })
    }

    fn main(spec: &EalSpec, lcores: &[Planned]) -> Result<LcoreId, EalError> {
        let mut dataplane =
            lcores.iter().filter(|lcore| lcore.role == LcoreRole::Dataplane).map(|lcore| lcore.id);
        match spec.main_lcore.map(LcoreId) {
            None => dataplane
                .next()
                .ok_or_else(|| EalError::NoLcore { service: names(lcores.iter().map(|l| l.id)) }),
            Some(main) if dataplane.clone().any(|lcore| lcore == main) => Ok(main),
            Some(main) => Err(EalError::MainLcore { main, lcores: names(dataplane) }),
        }
    }
}

impl Planned {
    fn on_its_cpu(cpu: u16) -> Self {
        Self { id: LcoreId(cpu), cpus: CpuSet::from_iter([cpu]), role: LcoreRole::Dataplane }
    }
}

/// `0-3,5`, for messages.
pub(crate) fn names(lcores: impl Iterator<Item = LcoreId>) -> String {
    lcores.map(|lcore| lcore.0).collect::<pollux_config::LcoreSet>().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &[u16]) -> CpuSet {
        list.iter().copied().collect()
    }

    fn spec(lcores: &str) -> EalSpec {
        EalSpec { lcores: Some(lcores.parse().expect("a map")), ..EalSpec::default() }
    }

    #[test]
    fn by_default_each_cpu_of_the_affinity_is_an_lcore() {
        let plan = Plan::new(&EalSpec::default(), &cpus(&[2, 3, 5])).expect("a plan");
        let ids: Vec<u16> = plan.lcores.iter().map(|lcore| lcore.id.0).collect();
        assert_eq!(ids, [2, 3, 5]);
        assert_eq!(plan.main, LcoreId(2));
        assert_eq!(plan.control, cpus(&[2, 3, 5]), "nothing is left, so all of it");
    }

    #[test]
    fn control_threads_get_what_the_lcores_leave() {
        let plan = Plan::new(&spec("1-2"), &cpus(&[0, 1, 2, 3])).expect("a plan");
        assert_eq!(plan.control, cpus(&[0, 3]));
    }

    #[test]
    fn several_lcores_may_share_cpus() {
        let plan = Plan::new(&spec("(0-3)@(0-1)"), &cpus(&[0, 1])).expect("a plan");
        assert_eq!(plan.lcores.len(), 4);
        assert!(plan.lcores.iter().all(|lcore| lcore.cpus == cpus(&[0, 1])));
    }

    #[test]
    fn service_cores_join_or_convert() {
        let mut wanted = spec("0-1");
        wanted.service_lcores = [1, 3].into_iter().collect();
        let plan = Plan::new(&wanted, &cpus(&[0, 1, 2, 3])).expect("a plan");
        let roles: Vec<_> = plan.lcores.iter().map(|lcore| (lcore.id.0, lcore.role)).collect();
        assert_eq!(roles, [(0, LcoreRole::Dataplane), (1, LcoreRole::Service), (3, LcoreRole::Service)]);
        assert_eq!(plan.control, cpus(&[2]));
        wanted.main_lcore = Some(1);
        let refused = Plan::new(&wanted, &cpus(&[0, 1, 2, 3])).expect_err("a service core is not main");
        assert_eq!(
            refused.to_string(),
            "main lcore 1 is not among the lcores of the application (0); name one of them"
        );
        wanted.service_lcores = [0, 1].into_iter().collect();
        wanted.main_lcore = None;
        let refused = Plan::new(&wanted, &cpus(&[0, 1])).expect_err("nothing is left");
        assert!(matches!(refused, EalError::NoLcore { .. }));
    }

    #[test]
    fn a_cpu_outside_the_affinity_is_named_with_what_is_allowed() {
        let refused = Plan::new(&spec("0,7"), &cpus(&[0, 1, 2])).expect_err("CPU 7 is not allowed");
        let line = refused.to_string();
        assert!(line.starts_with("lcore 7 needs CPU 7"), "{line}");
        assert!(line.contains("allowed CPUs: 0-2"), "{line}");
        assert!(!line.contains('\n'), "{line}");
        let refused = Plan::new(&spec("4@(0,9)"), &cpus(&[0, 1])).expect_err("CPU 9 is not allowed");
        assert!(matches!(refused, EalError::CpuNotAllowed { lcore: LcoreId(4), cpu: 9, .. }));
    }
}
