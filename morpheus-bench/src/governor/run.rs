//! Measures what was prepared: every condition and kernel, again and again.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use morpheus_harness::interrupt;
use morpheus_harness::order::interleaved;
use morpheus_harness::progress::Progress;
use morpheus_harness::refusal::Refusal;

use super::config::RunOptions;
use super::daemon::Source;
use super::frequency::{self, Sample};
use super::measure::{self, Plan};
use super::placement;
use super::prepare::Ready;
use super::record::{Condition, Run, States, Writer};
use super::signal::{Name, eeg};
use super::state::{Before, Keeper, Purpose};
use super::study::{Asked, Study};
use super::sysfs::{self, Policy};
use super::worker;
use crate::cpus::Cpus;
use crate::scx::Scheduler;

/// A study under way.
struct Session<'a> {
    ready: &'a Ready,
    signal: Arc<Vec<f64>>,
    writer: Writer,
    progress: Progress,
    study: Study,
}

impl Ready {
    /// Measures it all, or until Ctrl-C, and puts back what it changed.
    ///
    /// # Errors
    /// When nothing was measured.
    pub fn measure(&self, options: &RunOptions, state: &Path) -> Result<Study, Refusal> {
        let keeper = self.keep(state)?;
        let writer = Writer::new(&options.output).map_err(Refusal::Usage)?;
        // The thread that waits, and whatever it starts, stays off the measured CPU. An error leaves it there.
        let _ = Cpus::of(&self.others).take();
        let size = &options.config.size;
        let signal = eeg::generate(size, size.frames(), options.config.seed);
        let mut session = Session {
            ready: self,
            signal: Arc::new(signal),
            writer,
            progress: Progress::new(self.expected(), options.json),
            study: Study::new(self.about.clone(), self.conditions.clone()),
        };
        let ended = session.measure_all();
        session.progress.clear();
        let about = &mut session.study.about;
        about.failed.extend(ended.err());
        about.interrupted = interrupt::happened();
        let restored = keeper.map(|mut keeper| keeper.restore());
        for why in restored.unwrap_or_default().failed {
            eprintln!("governor: not put back: {why}");
            about.failed.push(format!("not put back: {why}"));
        }
        let saved = session.writer.save(&session.study.found());
        session.study.about.failed.extend(saved.err());
        Ok(session.study)
    }

    /// Writes down the governors that will be changed; `None` when none will.
    fn keep(&self, state: &Path) -> Result<Option<Keeper>, String> {
        let mut conditions = self.conditions.iter();
        if conditions.all(|condition| self.changed_by(condition).next().is_none()) {
            return Ok(None);
        }
        let policies = &self.about.config.policies;
        for policy in policies {
            let file = policy.governor_file();
            OpenOptions::new().write(true).open(&file).map_err(|error| {
                format!(
                    "{} cannot be written: {error}; changing the governor needs root, measuring under the present one \
                     does not: --governors {}",
                    file.display(),
                    policy.governor
                )
            })?;
        }
        Keeper::new(state, Purpose::Run, Before::of(policies)).map(Some)
    }
}

impl Session<'_> {
    /// The study says which conditions failed; an error ends it all.
    fn measure_all(&mut self) -> Result<(), String> {
        let ready = self.ready;
        let Asked { config, policies } = &ready.about.config;
        let conditions: Vec<&Condition> = ready.conditions.iter().collect();
        let mut scheduler: Option<Scheduler> = None;
        let mut without: Vec<&Condition> = Vec::new();
        for (repeat, condition) in interrupt::until(interleaved(&conditions, ready.repeats)) {
            if without.contains(&condition) {
                continue;
            }
            if !condition.on_worker {
                scheduler = None;
            } else if scheduler.is_none()
                && let Some(source) = &ready.source
            {
                match source.put_in_force(&ready.sched_ext) {
                    Ok(started) => scheduler = started,
                    Err(why) => {
                        let why = format!("{} is not measured: {why}", condition.name());
                        self.study.about.failed.push(why);
                        without.push(condition);
                        continue;
                    }
                }
            }
            if let Some(governor) = &condition.governor {
                sysfs::set_governor(policies, governor)?;
            }
            let _load = placement::load(condition.load, &ready.others)?;
            for kernel in interrupt::until(config.kernels()) {
                let what = format!("{}, {}", condition.name(), kernel.text());
                let turn = format!("repeat {} of {}", repeat + 1, ready.repeats);
                self.progress.say(format!("{what}, {turn}"));
                if let Err(why) = self.measure_one(condition, kernel, repeat) {
                    if !condition.on_worker {
                        return Err(why);
                    }
                    let still_there = scheduler.as_mut().map(Scheduler::is_still_there);
                    let why = still_there.and_then(Result::err).unwrap_or(why);
                    self.study.about.failed.push(format!("{what}: {why}"));
                    without.push(condition);
                    scheduler = None;
                    break;
                }
                self.progress.finish_run(config.run_time());
            }
        }
        Ok(())
    }

    fn measure_one(
        &mut self,
        condition: &Condition,
        kernel: Name,
        repeat: usize,
    ) -> Result<(), String> {
        let Ready { about, source, .. } = self.ready;
        let Asked { config, policies } = &about.config;
        let plan = Plan {
            config: config.clone(),
            kernel,
            signal: Arc::clone(&self.signal),
            frequency: about.config.policy_of_cpu().map(Policy::frequency_file),
        };
        let socket = source.as_ref().and_then(Source::socket);
        let measure = || match condition.on_worker {
            true => worker::run(&plan, socket),
            false => measure::run(&plan),
        };
        let before: Vec<_> = policies.iter().map(Policy::time_in_state).collect();
        let scheduler = placement::scheduler();
        let interval = Duration::from_millis(config.interval_ms.into());
        let tick = |elapsed| self.progress.tick(elapsed);
        let (measured, samples) = frequency::sample_beside(measure, policies, interval, tick)?;
        let schedulers = [scheduler, placement::scheduler()];
        if interrupt::happened() && measured.windows.is_empty() {
            return Ok(());
        }
        let both = policies.iter().zip(before);
        let time_in_state = both.filter_map(|(policy, before)| {
            Some(States {
                policy: policy.name.clone(),
                before: before?,
                after: policy.time_in_state()?,
            })
        });
        let readings = frequency::points(&samples, |sample| sample.cpus.contains(&config.cpu));
        let of = (condition, kernel, repeat);
        let states = time_in_state.collect();
        let mut run = Run::new(of, &about.config, &measured, &readings, states);
        run.spoilt = spoilt(condition, &samples, schedulers);
        let windows = &measured.windows;
        self.writer
            .add(&run, windows, config.deadline_ns(), &samples)?;
        self.study.add(run, windows, &readings);
        self.writer.save(&self.study.found())
    }
}

/// Why a run was not under its condition: other programs on the machine may set governors and load schedulers, too.
fn spoilt(condition: &Condition, samples: &[Sample], schedulers: [String; 2]) -> Option<String> {
    let mut samples = samples.iter();
    let other = samples.find(|sample| Some(&sample.governor) != condition.governor.as_ref());
    let governor = other.map(|sample| {
        format!(
            "{} had governor {:?} meanwhile, which somebody else set",
            sample.policy, sample.governor
        )
    });
    let own = &condition.scheduler;
    let mut schedulers = schedulers.iter().filter(|name| *name != own);
    let scheduler = schedulers.next();
    governor.or(scheduler.map(|name| format!("the scheduler was {name} meanwhile, and not {own}")))
}
