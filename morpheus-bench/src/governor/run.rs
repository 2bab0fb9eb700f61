//! The study: every governor, with and without load on the other CPUs, every kernel, again and again.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use super::analyse::{self, Analysis};
use super::config::{Config, RunOptions};
use super::frequency::Sampler;
use super::measure::{self, Plan};
use super::placement;
use super::record::{BENCH, Condition, Run, States, Study, Writer};
use super::signal::{Name, eeg};
use super::state::{Before, Keeper, Purpose};
use super::sysfs::{self, Policy, TimeInState};
use crate::cpus::{self, Cpus};
use crate::host::Host;
use crate::interrupt;
use crate::order::interleaved;
use crate::policy::Policy as Scheduling;
use crate::progress::Progress;
use crate::report;

/// What is measured when nobody says which: the study's, as far as there are these.
const STUDY: [&str; 3] = ["performance", "powersave", "schedutil"];

/// A study that is about to begin.
pub struct Ready {
    study: Study,
    conditions: Vec<Condition>,
    repeats: usize,
    /// CPUs for everything but the kernels.
    others: Vec<usize>,
}

/// Why nothing was measured.
pub enum Refusal {
    /// What was asked for makes no sense here.
    Usage(String),
    /// It cannot be done.
    Failed(String),
}

/// What came out.
pub struct Outcome {
    /// The figures.
    pub analysis: Analysis,
    /// What was not measured or not put back, in sentences.
    pub failed: Vec<String>,
}

/// Looks at the machine and says what will be done. Changes nothing.
///
/// # Errors
/// When it cannot be done here.
pub fn prepare(options: &RunOptions, sysfs: &Path) -> Result<Ready, Refusal> {
    let config = &options.config;
    config.check().map_err(Refusal::Usage)?;
    let allowed = cpus::allowed();
    if !allowed.contains(&config.cpu) {
        return Err(Refusal::Usage(format!(
            "--cpu {}: this process may use the CPUs {allowed:?}",
            config.cpu
        )));
    }
    let others: Vec<usize> = allowed
        .into_iter()
        .filter(|cpu| *cpu != config.cpu)
        .collect();
    let policies = sysfs::policies(sysfs).map_err(Refusal::Failed)?;
    let mut missing = Vec::new();
    let governors = governors(config, &policies, &mut missing)?;
    let loads = loads(config, &others, &mut missing);
    let scheduler = placement::scheduler();
    let condition = |governor, load| Condition {
        scheduler: scheduler.clone(),
        governor,
        load,
    };
    let mut repeats = config.repeats.into();
    let conditions = if policies.is_empty() {
        missing.insert(
            0,
            "the kernel of this machine has no control over the CPUs' frequencies (no policy in cpufreq), so there is no \
             governor to compare; the kernels were run once, as the machine is"
                .into(),
        );
        repeats = 1;
        vec![condition(None, 0)]
    } else {
        loads
            .iter()
            .flat_map(|load| {
                governors
                    .iter()
                    .map(|name| condition(Some(name.clone()), *load))
            })
            .collect()
    };
    Ok(Ready {
        study: Study {
            bench: BENCH.into(),
            host: Host::read(),
            config: config.clone(),
            policies,
            missing,
        },
        conditions,
        repeats,
        others,
    })
}

/// The governors that every policy has. One that was named and is not there is an error.
fn governors(
    config: &Config,
    policies: &[Policy],
    missing: &mut Vec<String>,
) -> Result<Vec<String>, Refusal> {
    let everywhere = |name: &str| policies.iter().all(|policy| policy.has(name));
    if config.governors.is_empty() {
        let (there, absent): (Vec<&str>, Vec<&str>) =
            STUDY.into_iter().partition(|name| everywhere(name));
        if !absent.is_empty() {
            missing.push(format!(
                "the driver of this machine's CPUs has no governor {}",
                absent.join(", ")
            ));
        }
        return Ok(there.into_iter().map(str::to_owned).collect());
    }
    let mut chosen: Vec<String> = Vec::new();
    for name in &config.governors {
        if !everywhere(name) {
            return Err(Refusal::Usage(no_such_governor(name, policies)));
        }
        if !chosen.contains(name) {
            chosen.push(name.clone());
        }
    }
    Ok(chosen)
}

/// What to say of a governor that some policy does not have.
pub fn no_such_governor(name: &str, policies: &[Policy]) -> String {
    let available = policies
        .iter()
        .find(|policy| !policy.has(name))
        .map(|policy| policy.available.join(", "));
    format!(
        "no governor {name:?}: this machine has {}",
        available.unwrap_or_default()
    )
}

fn loads(config: &Config, others: &[usize], missing: &mut Vec<String>) -> Vec<usize> {
    let load = config.load.map_or(others.len(), usize::from);
    if others.is_empty() {
        missing.push("there is no other CPU to put load on; only measured without".into());
    }
    if load == 0 || others.is_empty() {
        vec![0]
    } else {
        vec![0, load]
    }
}

impl Policy {
    /// Whether it has this governor. Some drivers do not list theirs.
    pub fn has(&self, governor: &str) -> bool {
        self.governor == governor || self.available.iter().any(|name| name == governor)
    }
}

impl Ready {
    /// What this machine cannot do, in sentences.
    pub fn missing(&self) -> &[String] {
        &self.study.missing
    }

    /// What it will take.
    pub fn expected(&self) -> Duration {
        let runs = self.conditions.len() * self.repeats * self.study.config.kernels().len();
        self.study.config.run_time() * runs as u32
    }

    /// What it will do, in lines.
    pub fn plan(&self, output: &Path) -> String {
        let config = &self.study.config;
        let mut text = String::new();
        for policy in &self.study.policies {
            text += &format!("{}\n", describe(policy));
        }
        let kernels: Vec<&str> = config
            .kernels()
            .iter()
            .map(|kernel| kernel.text())
            .collect();
        text += &format!(
            "\nkernels {} on CPU {}, {}",
            kernels.join(", "),
            config.cpu,
            config.policy.kernel_name()
        );
        if config.policy != Scheduling::Other {
            text += &format!(" priority {}", config.priority);
        }
        text += &format!(
            "\n{} s each after {} s of warm-up, {} times:\n",
            config.duration_s, config.warmup_s, self.repeats
        );
        for condition in &self.conditions {
            text += &format!("  {}", condition.name());
            if let Some(governor) = &condition.governor {
                for policy in self
                    .study
                    .policies
                    .iter()
                    .filter(|policy| policy.governor != *governor)
                {
                    text += &format!(
                        "\n    write {governor:?} to {}",
                        policy.governor_file().display()
                    );
                }
            }
            if condition.load > 0 {
                text += &format!(
                    "\n    {} busy processes on the CPUs {:?}",
                    condition.load, self.others
                );
            }
            text += "\n";
        }
        text += &format!("into {}; ", output.display());
        text + &format!("it takes {}\n", duration(self.expected()))
    }

    /// Measures it all, or until Ctrl-C, and puts back what it changed.
    ///
    /// # Errors
    /// When nothing was measured.
    pub fn measure(self, options: &RunOptions, state: &Path) -> Result<Outcome, Refusal> {
        let keeper = self.keep(state).map_err(Refusal::Failed)?;
        let writer = Writer::new(&options.output, &self.study).map_err(Refusal::Usage)?;
        // The thread that waits, and whatever it starts, stays off the measured CPU. An error leaves it there.
        let _ = Cpus::of(&self.others).take();
        let progress = Progress::new(self.expected(), options.json);
        let mut failed = self
            .measure_all(&writer, progress)
            .err()
            .into_iter()
            .collect::<Vec<_>>();
        if let Some(keeper) = keeper {
            failed.extend(
                keeper
                    .restore()
                    .failed
                    .into_iter()
                    .map(|why| format!("not put back: {why}")),
            );
        }
        match analyse::analyse(&options.output) {
            Ok(analysis) => Ok(Outcome { analysis, failed }),
            Err(_) if !failed.is_empty() => Err(Refusal::Failed(failed.join("; "))),
            Err(why) => Err(Refusal::Failed(why)),
        }
    }

    /// Writes down the governors that will be changed; `None` when none will.
    fn keep(&self, state: &Path) -> Result<Option<Keeper>, String> {
        let changes = self.conditions.iter().any(|condition| {
            let differs = |policy: &Policy| Some(&policy.governor) != condition.governor.as_ref();
            self.study.policies.iter().any(differs)
        });
        if !changes {
            return Ok(None);
        }
        for policy in &self.study.policies {
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
        Keeper::new(state, Purpose::Run, before(&self.study.policies)).map(Some)
    }

    fn measure_all(&self, writer: &Writer, mut progress: Progress) -> Result<(), String> {
        let config = &self.study.config;
        let signal = eeg::generate(&config.size, config.size.frames(), config.seed);
        let indices: Vec<usize> = (0..self.conditions.len()).collect();
        for (repeat, index) in interleaved(&indices, self.repeats) {
            let condition = &self.conditions[index];
            if interrupt::happened() {
                break;
            }
            set(&self.study.policies, condition.governor.as_deref())?;
            let _load = placement::load(condition.load, &self.others)?;
            for kernel in config.kernels() {
                progress.say(format!(
                    "{}, {}, repeat {} of {}",
                    condition.name(),
                    kernel.text(),
                    repeat + 1,
                    self.repeats
                ));
                self.measure_one(writer, condition, kernel, repeat, &signal, &progress)?;
                progress.finish_run(config.run_time());
                if interrupt::happened() {
                    break;
                }
            }
        }
        progress.clear();
        Ok(())
    }

    fn measure_one(
        &self,
        writer: &Writer,
        condition: &Condition,
        kernel: Name,
        repeat: usize,
        signal: &[f64],
        progress: &Progress,
    ) -> Result<(), String> {
        let config = &self.study.config;
        let policies = &self.study.policies;
        let interval = Duration::from_millis(config.interval_ms.into());
        let states = |policy: &Policy| Some((policy.name.clone(), policy.time_in_state()?));
        let before: Vec<_> = policies.iter().filter_map(states).collect();
        let sampler = (!policies.is_empty())
            .then(|| Sampler::start(policies.clone(), interval, self.others.clone()));
        let plan = Plan {
            kernel,
            size: &config.size,
            signal,
            warmup: Duration::from_secs_f64(config.warmup_s),
            duration: Duration::from_secs_f64(config.duration_s),
            cpu: config.cpu,
            policy: config.policy,
            priority: config.priority,
        };
        let measured = measure::run(&plan, |elapsed| progress.tick(elapsed));
        let samples = sampler.map(Sampler::finish).unwrap_or_default();
        let measured = measured?;
        let after: Vec<_> = policies.iter().filter_map(states).collect();
        let interrupted = interrupt::happened();
        if interrupted && measured.windows.is_empty() {
            return Ok(());
        }
        // Another program on the machine may set governors, too.
        let other = samples
            .iter()
            .find(|sample| Some(&sample.governor) != condition.governor.as_ref());
        let spoilt = other.map(|sample| {
            format!(
                "{} had governor {:?} meanwhile, which somebody else set",
                sample.policy, sample.governor
            )
        });
        let deadline_ns = u64::from(config.deadline_ms) * 1_000_000;
        let late = measured
            .windows
            .iter()
            .filter(|window| window.response_ns() > deadline_ns);
        let missed = late.count() as u64 + measured.not_begun;
        let windows = measured.windows.len() as u64;
        let period_ns = config.size.period().as_nanos() as u64;
        let run = Run {
            condition: condition.clone(),
            kernel,
            repeat,
            policy: measured.policy,
            refused: measured.refused,
            windows,
            not_begun: measured.not_begun,
            missed,
            settled: measured.settled,
            elapsed_ns: (windows + measured.not_begun) * period_ns,
            time_in_state: states_of(before, after),
            interrupted,
            spoilt,
        };
        writer.add(&run, &measured.windows, deadline_ns, &samples)
    }
}

fn states_of(before: Vec<(String, TimeInState)>, after: Vec<(String, TimeInState)>) -> Vec<States> {
    let both = before.into_iter().zip(after);
    let same = both.filter(|((first, _), (second, _))| first == second);
    same.map(|((policy, before), (_, after))| States {
        policy,
        before,
        after,
    })
    .collect()
}

/// The governors as they are, to be put back.
pub fn before(policies: &[Policy]) -> Vec<Before> {
    let of = |policy: &Policy| Before {
        path: policy.governor_file(),
        value: policy.governor.clone(),
    };
    policies.iter().map(of).collect()
}

/// Sets a governor on every policy.
///
/// # Errors
/// When one refuses it.
pub fn set(policies: &[Policy], governor: Option<&str>) -> Result<(), String> {
    let Some(governor) = governor else {
        return Ok(());
    };
    policies
        .iter()
        .try_for_each(|policy| sysfs::write(&policy.governor_file(), governor))
}

/// A policy in a line.
pub fn describe(policy: &Policy) -> String {
    let mhz = |khz: Option<u64>| khz.map_or_else(|| "?".into(), |khz| format!("{}", khz / 1_000));
    let mut text = format!(
        "{}: CPUs {:?}, governor {}",
        policy.name, policy.cpus, policy.governor
    );
    text += &format!(
        ", {} MHz now, limits {}–{} MHz of {}–{}",
        mhz(policy.current_khz()),
        mhz(policy.limits_khz.0),
        mhz(policy.limits_khz.1),
        mhz(policy.hardware_khz.0),
        mhz(policy.hardware_khz.1)
    );
    if let Some(driver) = &policy.driver {
        text += &format!(", driver {driver}");
    }
    text + &format!("\n  available: {}", policy.available.join(", "))
}

/// `4 h 20 min`, `3 min`, `12 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!(
            "{} h {} min",
            report::count(seconds / 3_600),
            seconds % 3_600 / 60
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::super::sysfs::tests::Fake;
    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        let shown = [0.2, 119.0, 121.0, 7_300.0].map(|s| duration(Duration::from_secs_f64(s)));
        assert_eq!(shown, ["1 s", "119 s", "3 min", "2 h 1 min"]);
    }

    #[test]
    fn governors_are_the_studys_or_those_named() {
        let fake = Fake::new("governors");
        let policies = sysfs::policies(&fake.0).unwrap();
        let chosen = |line: &str| {
            let mut missing = Vec::new();
            let chosen = governors(&config(line), &policies, &mut missing);
            (chosen.map_err(|_| ()), missing)
        };
        assert_eq!(chosen("").0.unwrap(), STUDY);
        let named = chosen("--governors ondemand,powersave,ondemand").0;
        assert_eq!(named.unwrap(), ["ondemand", "powersave"]);
        assert!(chosen("--governors userspace").0.is_err());
        let mut poor = policies.clone();
        poor[1].available = vec!["powersave".into()];
        let mut missing = Vec::new();
        let there = governors(&config(""), &poor, &mut missing)
            .map_err(|_| ())
            .unwrap();
        assert_eq!((there.len(), missing.len()), (1, 1));
        assert!(no_such_governor("x", &poor).contains("ondemand, powersave"));
    }

    #[test]
    fn load_goes_to_other_cpus_if_there_are_any() {
        let of = |line: &str, others: &[usize]| {
            let mut missing = Vec::new();
            (loads(&config(line), others, &mut missing), missing.len())
        };
        assert_eq!(of("", &[1, 2, 3]), (vec![0, 3], 0));
        assert_eq!(of("--load 7", &[1]), (vec![0, 7], 0));
        assert_eq!(of("--load 0", &[1]), (vec![0], 0));
        assert_eq!(of("--load 2", &[]), (vec![0], 1));
    }
}
