//! The study: every governor, with and without load on the other CPUs, every kernel, again and again.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::config::{Config, RunOptions};
use super::daemon::{self, Source};
use super::figures::{Asked, Seen, Study};
use super::frequency::{self, Sampler};
use super::measure::{self, Plan};
use super::placement;
use super::record::{Condition, Run, States, Writer};
use super::signal::{Name, eeg};
use super::state::{Before, Keeper, Purpose};
use super::sysfs::{self, Policy, TimeInState};
use super::worker;
use crate::cpus::{self, Cpus};
use crate::envelope::Envelope;
use crate::interrupt;
use crate::order::interleaved;
use crate::policy::Policy as Scheduling;
use crate::progress::Progress;
use crate::report;
use crate::scx::Scheduler;

/// The governors that are measured by default, as far as the machine has them.
const STUDY: [&str; 3] = ["performance", "powersave", "schedutil"];

/// A study that is about to begin.
pub struct Ready {
    about: Envelope<Asked>,
    columns: Vec<Column>,
    repeats: usize,
    /// CPUs for everything but the kernels.
    others: Vec<usize>,
    /// Where the scheduler of those columns comes from that have one.
    source: Option<Source>,
    /// The kernel's directory about schedulers.
    sched_ext: PathBuf,
}

/// What is measured with one governor and load.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    condition: Condition,
    /// The kernels run on a worker that is registered with the scheduler.
    on_worker: bool,
}

/// A governor that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    governor: String,
    /// Beside Morpheus's scheduler.
    morpheus: bool,
}

/// Why nothing was measured.
pub enum Refusal {
    /// What was asked for makes no sense here.
    Usage(String),
    /// It cannot be done.
    Failed(String),
}

/// Looks at the machine and says what will be done. Changes nothing.
///
/// # Errors
/// When it cannot be done here.
pub fn prepare(options: &RunOptions, sysfs: &Path, state: &Path) -> Result<Ready, Refusal> {
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
    let mut wanted = governors(config, &policies, &mut missing)?;
    let sched_ext = sysfs.join("kernel/sched_ext");
    let asked_for = wanted.len();
    let mut said = Vec::new();
    let source = source(
        &mut wanted,
        || Source::look(&sched_ext, state, options.scx_morpheus.as_deref()),
        &mut said,
    )?;
    let asked = Asked {
        config: config.clone(),
        policies,
    };
    let mut about = Envelope::new("governor", asked);
    match wanted.len() < asked_for {
        true => about.failed = said,
        false => missing.append(&mut said),
    }
    let loads = loads(config, &others, &mut missing);
    let scheduler = placement::scheduler();
    let column = |wanted: Option<&Wanted>, load| {
        let on_worker = wanted.is_some_and(|wanted| wanted.morpheus);
        Column {
            condition: Condition {
                scheduler: if on_worker {
                    daemon::NAME.into()
                } else {
                    scheduler.clone()
                },
                governor: wanted.map(|wanted| wanted.governor.clone()),
                load,
            },
            on_worker,
        }
    };
    let mut repeats = config.repeats.into();
    let columns = if about.config.policies.is_empty() {
        missing.insert(
            0,
            "the kernel of this machine has no control over the CPUs' frequencies (no policy in cpufreq), so there is no \
             governor to compare; the kernels were run once, as the machine is"
                .into(),
        );
        repeats = 1;
        vec![column(None, 0)]
    } else {
        loads
            .iter()
            .flat_map(|load| wanted.iter().map(|wanted| column(Some(wanted), *load)))
            .collect()
    };
    about.notes = missing;
    Ok(Ready {
        about,
        columns,
        repeats,
        others,
        source,
        sched_ext,
    })
}

/// Where the scheduler is to come from, if a column needs one. Such columns go where it cannot be had.
fn source(
    wanted: &mut Vec<Wanted>,
    look: impl FnOnce() -> Result<Source, String>,
    missing: &mut Vec<String>,
) -> Result<Option<Source>, Refusal> {
    if !wanted.iter().any(|wanted| wanted.morpheus) {
        return Ok(None);
    }
    match look() {
        Ok(source) => {
            if source == Source::Runs {
                missing.push(
                    "scx_morpheus was in force before this run: every governor was measured under it, and schedutil only \
                     with it; stop it for the columns without"
                        .into(),
                );
                wanted.retain(|wanted| wanted.morpheus || wanted.governor != daemon::GOVERNOR);
            }
            Ok(Some(source))
        }
        Err(why) => {
            let first = wanted.iter().find(|wanted| wanted.morpheus);
            let name = first.map(Wanted::text).unwrap_or_default();
            let why = format!("{name} is not measured: {why}");
            wanted.retain(|wanted| !wanted.morpheus);
            if wanted.is_empty() {
                return Err(Refusal::Failed(why));
            }
            missing.push(why);
            Ok(None)
        }
    }
}

/// The governors that every policy has. One that was named and is not there is an error.
fn governors(
    config: &Config,
    policies: &[Policy],
    missing: &mut Vec<String>,
) -> Result<Vec<Wanted>, Refusal> {
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
        let alone = |name: &str| Wanted {
            governor: name.to_owned(),
            morpheus: false,
        };
        return Ok(there.into_iter().map(alone).collect());
    }
    let mut chosen: Vec<Wanted> = Vec::new();
    for name in &config.governors {
        let wanted = Wanted::parse(name).map_err(Refusal::Usage)?;
        if !everywhere(&wanted.governor) {
            return Err(Refusal::Usage(no_such_governor(&wanted.governor, policies)));
        }
        if !chosen.contains(&wanted) {
            chosen.push(wanted);
        }
    }
    Ok(chosen)
}

impl Wanted {
    fn text(&self) -> String {
        let suffix = if self.morpheus { daemon::SUFFIX } else { "" };
        format!("{}{suffix}", self.governor)
    }

    fn parse(name: &str) -> Result<Self, String> {
        let (governor, morpheus) = match name.strip_suffix(daemon::SUFFIX) {
            Some(governor) => (governor, true),
            None => (name, false),
        };
        if morpheus && governor != daemon::GOVERNOR {
            return Err(format!(
                "{name:?}: only {}{} makes a difference, since no other governor goes by what a scheduler asks for",
                daemon::GOVERNOR,
                daemon::SUFFIX
            ));
        }
        Ok(Self {
            governor: governor.to_owned(),
            morpheus,
        })
    }
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
    pub fn missing(&self) -> impl Iterator<Item = &String> {
        self.about.notes.iter().chain(&self.about.failed)
    }

    /// What it will take.
    pub fn expected(&self) -> Duration {
        let config = &self.about.config.config;
        let runs = self.columns.len() * self.repeats * config.kernels().len();
        config.run_time() * runs as u32
    }

    /// What it will do, in lines.
    pub fn plan(&self, output: &Path) -> String {
        let Asked { config, policies } = &self.about.config;
        let mut text = String::new();
        for policy in policies {
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
        for Column {
            condition,
            on_worker,
        } in &self.columns
        {
            text += &format!("  {}", condition.name());
            if let Some(source) = self.source.as_ref().filter(|_| *on_worker) {
                text += &format!(
                    "\n    {}\n    the kernels on a worker that is registered with it, SCHED_OTHER",
                    source.plan()
                );
            }
            if let Some(governor) = &condition.governor {
                for policy in policies
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
    pub fn measure(self, options: &RunOptions, state: &Path) -> Result<Study, Refusal> {
        let keeper = self.keep(state).map_err(Refusal::Failed)?;
        let writer = Writer::new(&options.output).map_err(Refusal::Usage)?;
        // The thread that waits, and whatever it starts, stays off the measured CPU. An error leaves it there.
        let _ = Cpus::of(&self.others).take();
        let progress = Progress::new(self.expected(), options.json);
        let conditions = self.columns.iter().map(|column| column.condition.clone());
        let mut study = Study::new(self.about.clone(), conditions.collect());
        let ended = self.measure_all(&writer, progress, &mut study);
        study.about.failed.extend(ended.err());
        study.about.interrupted = interrupt::happened();
        for why in keeper
            .map(|keeper| keeper.restore().failed)
            .unwrap_or_default()
        {
            eprintln!("governor: not put back: {why}");
            study.about.failed.push(format!("not put back: {why}"));
        }
        study.about.failed.extend(writer.save(&study.found()).err());
        Ok(study)
    }

    /// Writes down the governors that will be changed; `None` when none will.
    fn keep(&self, state: &Path) -> Result<Option<Keeper>, String> {
        let changes = self.columns.iter().any(|column| {
            let governor = column.condition.governor.as_ref();
            let differs = |policy: &Policy| Some(&policy.governor) != governor;
            self.about.config.policies.iter().any(differs)
        });
        if !changes {
            return Ok(None);
        }
        for policy in &self.about.config.policies {
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
        Keeper::new(state, Purpose::Run, before(&self.about.config.policies)).map(Some)
    }

    /// The study says which columns failed; an error ends it all.
    fn measure_all(
        &self,
        writer: &Writer,
        mut progress: Progress,
        study: &mut Study,
    ) -> Result<(), String> {
        let Asked { config, policies } = &self.about.config;
        let signal = Arc::new(eeg::generate(
            &config.size,
            config.size.frames(),
            config.seed,
        ));
        let indices: Vec<usize> = (0..self.columns.len()).collect();
        let mut scheduler: Option<Scheduler> = None;
        let mut without: Vec<usize> = Vec::new();
        for (repeat, index) in interleaved(&indices, self.repeats) {
            let column = &self.columns[index];
            let condition = &column.condition;
            if interrupt::happened() {
                break;
            }
            if without.contains(&index) {
                continue;
            }
            if !column.on_worker {
                scheduler = None;
            } else if scheduler.is_none() {
                let source = self.source.as_ref();
                match source.map(|source| source.put_in_force(&self.sched_ext)) {
                    Some(Ok(started)) => scheduler = started,
                    None => {}
                    Some(Err(why)) => {
                        let why = format!("{} is not measured: {why}", condition.name());
                        study.about.failed.push(why);
                        without.push(index);
                        continue;
                    }
                }
            }
            set(policies, condition.governor.as_deref())?;
            let _load = placement::load(condition.load, &self.others)?;
            for kernel in config.kernels() {
                progress.say(format!(
                    "{}, {}, repeat {} of {}",
                    condition.name(),
                    kernel.text(),
                    repeat + 1,
                    self.repeats
                ));
                let measured =
                    self.measure_one(writer, column, (kernel, repeat), &signal, &progress, study);
                if let Err(why) = measured {
                    if !column.on_worker {
                        return Err(why);
                    }
                    let still_there = scheduler.as_mut().map(Scheduler::is_still_there);
                    let why = still_there.and_then(Result::err).unwrap_or(why);
                    let why = format!("{}, {}: {why}", condition.name(), kernel.text());
                    study.about.failed.push(why);
                    without.push(index);
                    scheduler = None;
                    break;
                }
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
        column: &Column,
        (kernel, repeat): (Name, usize),
        signal: &Arc<Vec<f64>>,
        progress: &Progress,
        study: &mut Study,
    ) -> Result<(), String> {
        let Asked { config, policies } = &self.about.config;
        let condition = &column.condition;
        let own_policy = self.about.config.policy_of_cpu();
        let interval = Duration::from_millis(config.interval_ms.into());
        let states = |policy: &Policy| Some((policy.name.clone(), policy.time_in_state()?));
        let before: Vec<_> = policies.iter().filter_map(states).collect();
        let sampler = (!policies.is_empty())
            .then(|| Sampler::start(policies.clone(), interval, self.others.clone()));
        let plan = Plan {
            kernel,
            size: config.size.clone(),
            signal: Arc::clone(signal),
            warmup: Duration::from_secs_f64(config.warmup_s),
            duration: Duration::from_secs_f64(config.duration_s),
            cpu: config.cpu,
            policy: config.policy,
            priority: config.priority,
            frequency: own_policy.map(Policy::frequency_file),
        };
        let deadline = Duration::from_millis(config.deadline_ms.into());
        let tick = |elapsed| progress.tick(elapsed);
        let scheduler = placement::scheduler();
        let measured = if column.on_worker {
            let socket = self.source.as_ref().and_then(Source::socket);
            measure::beside(|| worker::run(&plan, socket, deadline), tick)
        } else {
            measure::run(&plan, tick)
        };
        let schedulers = [scheduler, placement::scheduler()];
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
        let governor = other.map(|sample| {
            format!(
                "{} had governor {:?} meanwhile, which somebody else set",
                sample.policy, sample.governor
            )
        });
        let mut schedulers = schedulers.iter();
        let scheduler = schedulers.find(|name| **name != condition.scheduler);
        let spoilt = governor.or(scheduler.map(|name| {
            format!(
                "the scheduler was {name} meanwhile, and not {}",
                condition.scheduler
            )
        }));
        let deadline_ns = u64::from(config.deadline_ms) * 1_000_000;
        let late = measured
            .windows
            .iter()
            .filter(|window| window.response_ns() > deadline_ns);
        let missed = late.count() as u64 + measured.not_begun;
        let windows = measured.windows.len() as u64;
        let elapsed_ns = (windows + measured.not_begun) * config.size.period().as_nanos() as u64;
        let time_in_state = states_of(before, after);
        let own = own_policy.and_then(|own| {
            let mut states = time_in_state.iter();
            states.find(|states| states.policy == own.name)
        });
        let times = own.map(|states| states.after.since(&states.before));
        let readings = frequency::points(&samples, |sample| sample.cpus.contains(&config.cpu));
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
            elapsed_ns,
            seen: Seen::new(
                &measured.windows,
                elapsed_ns,
                &readings,
                own_policy,
                times.as_ref(),
            ),
            time_in_state,
            interrupted,
            spoilt,
        };
        writer.add(&run, &measured.windows, deadline_ns, &samples)?;
        study.add(run, &measured.windows, &readings);
        writer.save(&study.found())
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
            let text = |wanted: Vec<Wanted>| wanted.iter().map(Wanted::text).collect::<Vec<_>>();
            (chosen.map(text).map_err(|_| ()), missing)
        };
        assert_eq!(chosen("").0.unwrap(), STUDY);
        let named = chosen("--governors ondemand,powersave,ondemand").0;
        assert_eq!(named.unwrap(), ["ondemand", "powersave"]);
        let named = chosen("--governors schedutil+morpheus,schedutil,schedutil+morpheus").0;
        assert_eq!(named.unwrap(), ["schedutil+morpheus", "schedutil"]);
        for none in [
            "userspace",
            "performance+morpheus",
            "+morpheus",
            "schedutil+bpfland",
        ] {
            assert!(chosen(&format!("--governors {none}")).0.is_err(), "{none}");
        }
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

    #[test]
    fn a_column_that_cannot_be_had_is_left_out() {
        let wanted = |names: &[&str]| -> Vec<Wanted> {
            let parse = |name: &&str| Wanted::parse(name).unwrap();
            names.iter().map(parse).collect()
        };
        let look = |names: &[&str], found: Result<Source, String>| {
            let (mut wanted, mut missing) = (wanted(names), Vec::new());
            let source = source(&mut wanted, || found, &mut missing);
            (source.map_err(|_| ()), wanted, missing)
        };
        let none = || Err("it is not there".to_owned());
        let (source, left, missing) = look(&["schedutil+morpheus", "powersave"], none());
        assert_eq!((source, left), (Ok(None), wanted(&["powersave"])));
        assert_eq!(
            missing,
            ["schedutil+morpheus is not measured: it is not there"]
        );
        assert!(
            look(&["schedutil+morpheus"], none()).0.is_err(),
            "nothing is left"
        );
        assert!(
            look(&["schedutil"], none()).2.is_empty(),
            "nobody asked for it"
        );
        // The scheduler runs already.
        let names = ["performance", "schedutil", "schedutil+morpheus"];
        let (source, left, missing) = look(&names, Ok(Source::Runs));
        assert_eq!(source, Ok(Some(Source::Runs)));
        let rest = wanted(&["performance", "schedutil+morpheus"]);
        assert_eq!((left, missing.len()), (rest, 1));
    }
}
