//! Completes the settings: what the machine gives, and what one option says of another.

use morpheus_common::ladder::Policy;
use morpheus_link::Link;
use morpheus_system::{quota, threads};

use super::{BuildError, Builder};
use crate::settings::limitation::Limitation;
use crate::settings::{DEFAULT_BLOCKING_THREADS, Settings, pool_threads};

/// The minimum of the default number of spares; see [`Builder::max_spares`].
const MIN_DEFAULT_SPARES: usize = 32;
/// The same where hooks hand off every slow task: spares then only cover first long polls. On two CPUs, four keep the wakes
/// beside 2 to 500 hogs that they have with 32, two do not (20 tasks that sleep in the kernel), and each spare costs healthy
/// tasks: `compare`, in the mean of 22 cases, 0.91 of tokio's rate without spares, 0.87 with 4, 0.80 with 8, 0.78 with 32.
#[cfg(tokio_unstable)]
const SPARES_WITH_HOOKS: usize = 4;
/// The default reserve, in spares, for ten seconds after a stall.
const DEFAULT_RESERVE: usize = 1;
/// The reserve under pressure, in spares for each CPU. A larger reserve gives tasks with short polls more
/// threads, and so a larger part of the CPU time that hogs leave.
const RESERVE_UNDER_PRESSURE_PER_CPU: usize = 6;
/// Slots of a current-thread runtime, for the threads in `block_on` and for blocking threads on which a
/// future is watched.
const CURRENT_THREAD_SLOTS: usize = 128;
/// The maximum number of workers and spares. Tokio counts idle workers in 16 bits, and more threads than this
/// are a mistake anyway.
const MAX_WORKERS: usize = 4096;
/// The number of threads that spares leave to blocking calls where the system gives few.
const LEFT_FOR_BLOCKING_CALLS: usize = 8;
/// The variable by which an operator sets the number of workers where the program does not: tokio's.
const WORKERS_VARIABLE: &str = "TOKIO_WORKER_THREADS";

/// Reads the number of workers from [`WORKERS_VARIABLE`]; `None` if it is not set.
fn workers_of_environment() -> Result<Option<usize>, BuildError> {
    let Some(value) = std::env::var_os(WORKERS_VARIABLE) else {
        return Ok(None);
    };
    let number = value.to_str().and_then(|text| text.parse().ok());
    match number {
        Some(number) if number > 0 => Ok(Some(number)),
        _ => Err(BuildError::BadWorkersVariable {
            value: value.to_string_lossy().into_owned(),
        }),
    }
}

impl Builder {
    pub(super) fn settings(&self) -> Result<Settings, BuildError> {
        let workers = match self.worker_threads {
            Some(workers) => workers,
            None if self.settings.is_current_thread => 1,
            None => workers_of_environment()?.unwrap_or_else(quota::cpus_paid_for),
        };
        if workers == 0 {
            return Err(BuildError::NoWorkers);
        }
        if self.settings.budget_ns == 0 {
            return Err(BuildError::NoBudget);
        }
        let mut settings = self.settings.clone();
        settings.refused = self.refused();
        if self.observes() {
            settings.mechanisms = settings.mechanisms.that_observe();
            settings.nice_hogs = false;
            settings.confine_to_quota = false;
        }
        if settings.is_current_thread {
            self.on_one_thread(settings)
        } else {
            self.with_spares(settings, workers)
        }
    }

    fn on_one_thread(&self, settings: Settings) -> Result<Settings, BuildError> {
        // A daemon sees no more of a single thread than the watchdog does. It would also have to bind and
        // unbind that thread with each `block_on`.
        if self.link == Link::Required {
            return Err(BuildError::LinkOnOneThread);
        }
        Ok(Settings {
            max_handoffs: 0,
            slots: CURRENT_THREAD_SLOTS,
            confine_to_quota: false,
            ..settings
        })
    }

    /// The number of spares if none is set: as many as fit, beside very many workers.
    fn default_spares(&self, workers: usize) -> usize {
        let spares = match () {
            #[cfg(tokio_unstable)]
            () if self.hands_off_every_task() => SPARES_WITH_HOOKS.max(workers),
            () => MIN_DEFAULT_SPARES.max(workers.saturating_mul(2)),
        };
        spares.min(MAX_WORKERS.saturating_sub(workers))
    }

    fn with_spares(&self, settings: Settings, workers: usize) -> Result<Settings, BuildError> {
        let wanted = match self.max_spares {
            _ if self.observes() => 0,
            Some(spares) => spares,
            None => self.default_spares(workers),
        };
        let asked = workers.saturating_add(wanted);
        if asked > MAX_WORKERS {
            return Err(BuildError::TooManyWorkers {
                asked,
                max: MAX_WORKERS,
            });
        }
        let has_reserve = settings.mechanisms.reserve && settings.mechanisms.takeover && wanted > 0;
        // The default reserve of one is no error where there are no spares.
        let reserve = match self.reserve {
            _ if !has_reserve => 0,
            Some(reserve) => reserve,
            None => DEFAULT_RESERVE,
        };
        if reserve > wanted {
            return Err(BuildError::ReserveTooLarge {
                reserve,
                max_spares: wanted,
            });
        }
        let wants_keeper = settings.mechanisms.handoffs && self.handoffs() > 0;
        // When tokio cannot start a worker it panics half-way, and then waits for ever for the workers that
        // it has started. So the threads are counted before.
        let needed = workers + 1;
        let asked = needed + wanted + usize::from(wants_keeper) + LEFT_FOR_BLOCKING_CALLS;
        let available = threads::available(asked, self.thread_stack_size);
        let Some(more) = available.checked_sub(needed) else {
            return Err(BuildError::TooFewThreads { available, needed });
        };
        // Of few threads the first two are left for a blocking call, which would wait for ever without any, and for the
        // thread that reports; the third is a spare, which helps against any task.
        let kept = usize::from(wants_keeper && more > 3 * wanted.min(1));
        let rest = more - kept;
        let left = LEFT_FOR_BLOCKING_CALLS.min(rest.div_ceil(2).max(2));
        let spares = wanted.min(rest.saturating_sub(left));
        let under_pressure = RESERVE_UNDER_PRESSURE_PER_CPU * quota::cpus_paid_for();
        Ok(Settings {
            workers,
            spares,
            spares_unavailable: wanted - spares,
            kept,
            reserve,
            reserve_when_healthy: self.reserve.map_or(0, |_| reserve),
            reserve_under_pressure: match reserve {
                0 => 0,
                _ => under_pressure.max(reserve),
            },
            max_handoffs: match kept {
                // The drivers could end under such a poll.
                0 if wants_keeper => 0,
                _ => self.handoffs(),
            },
            slots: (workers + spares + kept)
                .saturating_add(self.pool_threads())
                .min(MAX_WORKERS),
            ..settings
        })
    }

    /// Whether the runtime only observes and reports.
    fn observes(&self) -> bool {
        self.settings.policy == Policy::Observe
    }

    /// Whether hooks watch every task.
    #[cfg(tokio_unstable)]
    pub(super) fn watches_every_task(&self) -> bool {
        self.watch_every_task.unwrap_or(true) && self.settings.mechanisms.watch
    }

    /// Whether every task is watched, and handed off once it is slow.
    #[cfg(tokio_unstable)]
    fn hands_off_every_task(&self) -> bool {
        self.watches_every_task() && self.settings.mechanisms.handoffs && self.handoffs() > 0
    }

    /// The number of slow tasks that may be handed off at once. It is 0 with a limit on blocking threads: a
    /// handoff poll occupies a thread of tokio's pool, and a blocking call might wait for that thread.
    fn handoffs(&self) -> usize {
        match self.max_blocking_threads {
            Some(_) => 0,
            None if self.observes() => 0,
            None => self.settings.max_handoffs,
        }
    }

    /// Threads of tokio's blocking pool for the application.
    pub(super) fn blocking_threads(&self) -> usize {
        self.max_blocking_threads
            .unwrap_or(DEFAULT_BLOCKING_THREADS)
    }

    /// The number of threads in tokio's blocking pool.
    pub(super) fn pool_threads(&self) -> usize {
        pool_threads(self.blocking_threads(), self.handoffs())
    }

    /// The options that were set and need an unstable tokio.
    fn refused(&self) -> Vec<Limitation> {
        let asked = [
            (self.watch_every_task == Some(true), Limitation::TaskHooks),
            (self.disable_lifo_slot, Limitation::LifoSwitch),
        ];
        let refused = asked.into_iter().filter(|_| !cfg!(tokio_unstable));
        refused
            .filter_map(|(asked, what)| asked.then_some(what))
            .collect()
    }

    /// Tokio's runtime, with what was set here.
    pub(super) fn build_tokio(
        &mut self,
        workers: usize,
        blocking_threads: usize,
    ) -> std::io::Result<tokio::runtime::Runtime> {
        let name = self.thread_name.clone();
        if let Some(bytes) = self.thread_stack_size {
            self.tokio.thread_stack_size(bytes);
        }
        // Tokio does not ask for workers on a current-thread runtime.
        self.tokio
            .worker_threads(workers)
            .max_blocking_threads(blocking_threads)
            .thread_name_fn(move || name())
            .build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_number_of_spares_fits_beside_any_number_of_workers() {
        let builder = Builder::new_multi_thread();
        for workers in [1, 2, 64, 1_366, 1_920, 2_049, MAX_WORKERS - 1] {
            let spares = builder.default_spares(workers);
            assert!(spares > 0 && workers + spares <= MAX_WORKERS, "{workers}");
        }
        assert_eq!(builder.default_spares(MAX_WORKERS), 0);
    }
}
