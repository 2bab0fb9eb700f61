//! How long a runtime was not served, as far as looks tell: a worker is held up, none is short in a poll, and none is in the driver.

use super::decide::Role;

/// Runtimes that are told apart.
const MOST_RUNTIMES: usize = 16;

/// The runtimes of a process.
#[derive(Debug, Default)]
pub struct Services {
    /// The descriptors of their drivers.
    drivers: Vec<u64>,
    runtimes: Vec<Service>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Service {
    unserved_ns: u64,
    was_unserved: bool,
}

impl Services {
    /// The runtime whose driver has this descriptor.
    pub fn of_driver(&mut self, driver: u64) -> Option<usize> {
        let known = self.drivers.iter().position(|&known| known == driver);
        if known.is_some() || self.drivers.len() == MOST_RUNTIMES {
            return known;
        }
        self.drivers.push(driver);
        self.runtimes.push(Service::default());
        Some(self.drivers.len() - 1)
    }

    /// The runtime of a worker that has not been in a driver, where there is but one.
    #[must_use]
    pub fn only(&self) -> Option<usize> {
        (self.drivers.len() == 1).then_some(0)
    }

    /// How long a runtime was not served, ever.
    #[must_use]
    pub fn unserved_ns(&self, runtime: Option<usize>) -> u64 {
        runtime
            .and_then(|runtime| self.runtimes.get(runtime))
            .map_or(0, |service| service.unserved_ns)
    }

    /// Takes what the workers were at this look, and the time since the last one.
    pub fn settle(
        &mut self,
        elapsed_ns: u64,
        roles: impl Iterator<Item = (Option<usize>, Role)> + Clone,
    ) {
        for (index, service) in self.runtimes.iter_mut().enumerate() {
            let own = || {
                roles
                    .clone()
                    .filter(move |(runtime, _)| *runtime == Some(index))
            };
            let is_unserved = own().any(|(_, role)| role == Role::Stalled)
                && !own().any(|(_, role)| matches!(role, Role::Drives | Role::Serves));
            // Between two looks that find it so: it may have been served meanwhile, but not for long.
            if is_unserved && service.was_unserved {
                service.unserved_ns += elapsed_ns;
            }
            service.was_unserved = is_unserved;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_served_by_one_worker() {
        let mut services = Services::default();
        let (first, second) = (services.of_driver(3), services.of_driver(9));
        assert_eq!((first, second), (Some(0), Some(1)));
        assert_eq!(services.of_driver(3), first);
        assert_eq!(services.only(), None);
        let stalled = [
            (first, Role::Stalled),
            (first, Role::None),
            (second, Role::Stalled),
            (second, Role::Drives),
        ];
        for _ in 0..3 {
            services.settle(5, stalled.into_iter());
        }
        assert_eq!(services.unserved_ns(first), 10);
        assert_eq!(services.unserved_ns(second), 0);
        let served = [(first, Role::Stalled), (first, Role::Serves)];
        services.settle(5, served.into_iter());
        assert_eq!(services.unserved_ns(first), 10);
        assert_eq!(services.unserved_ns(None), 0);
    }

    #[test]
    fn many_descriptors_are_no_more_runtimes() {
        let mut services = Services::default();
        let found: Vec<_> = (0..100).map(|fd| services.of_driver(fd)).collect();
        assert_eq!(found.iter().flatten().count(), MOST_RUNTIMES);
    }
}
