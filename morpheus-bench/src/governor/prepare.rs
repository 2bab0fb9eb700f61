//! Looks at the machine, and says what will be measured on it: every governor, with and without load on the other CPUs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::refusal::Refusal;
use morpheus_harness::report;
use morpheus_harness::rows::view::distinct;

use super::config::{Config, RunOptions};
use super::daemon::{self, COLUMN, Source};
use super::placement;
use super::record::Condition;
use super::signal::Name;
use super::study::Asked;
use super::sysfs::{self, Policy};
use crate::cpus;
use crate::policy::Policy as Scheduling;

/// The governors that are measured by default, as far as the machine has them.
const STUDY: [&str; 3] = ["performance", "powersave", "schedutil"];

/// A study that is about to begin.
pub struct Ready {
    /// All but what will be measured.
    pub about: Envelope<Asked>,
    /// The conditions that are compared.
    pub conditions: Vec<Condition>,
    /// How often.
    pub repeats: usize,
    /// CPUs for everything but the kernels.
    pub others: Vec<usize>,
    /// Where the scheduler of those conditions comes from whose kernels run on a worker.
    pub source: Option<Source>,
    /// The kernel's directory about schedulers.
    pub sched_ext: PathBuf,
}

/// Looks at the machine and says what will be done. Changes nothing.
///
/// # Errors
/// When it cannot be done here.
pub fn prepare(options: &RunOptions, sysfs: &Path, state: &Path) -> Result<Ready, Refusal> {
    let config = &options.config;
    config.check().map_err(Refusal::Usage)?;
    let mut others = cpus::allowed();
    if !others.contains(&config.cpu) {
        return Err(Refusal::Usage(format!(
            "--cpu {}: this process may use the CPUs {others:?}",
            config.cpu
        )));
    }
    others.retain(|cpu| *cpu != config.cpu);
    let policies = sysfs::policies(sysfs)?;
    let mut notes = Vec::new();
    let mut wanted = governors(config, &policies, &mut notes)?;
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
    // A requested column that was dropped is a failure.
    match wanted.len() < asked_for {
        true => about.failed = said,
        false => notes.append(&mut said),
    }
    let loads = loads(config, &others, &mut notes);
    let with_load = |load: &usize| {
        let load = *load;
        let wanted = wanted.iter().cloned();
        wanted.map(move |condition| Condition { load, ..condition })
    };
    let mut conditions: Vec<Condition> = loads.iter().flat_map(with_load).collect();
    let mut repeats = config.repeats.into();
    if about.config.policies.is_empty() {
        notes.insert(
            0,
            "the kernel of this machine has no control over the CPUs' frequencies (no policy in cpufreq), so there is no \
             governor to compare; the kernels were run once, as the machine is"
                .into(),
        );
        repeats = 1;
        conditions = vec![Condition::alone(&placement::scheduler(), None)];
    }
    about.notes = notes;
    Ok(Ready {
        about,
        conditions,
        repeats,
        others,
        source,
        sched_ext,
    })
}

/// The governors that every policy has. One that was named and is not there is an error.
fn governors(
    config: &Config,
    policies: &[Policy],
    notes: &mut Vec<String>,
) -> Result<Vec<Condition>, Refusal> {
    let mut names = config.governors.clone();
    if names.is_empty() {
        let is_there = |name: &String| sysfs::check_governor(policies, name).is_ok();
        let study = STUDY.map(str::to_owned).into_iter();
        let (there, absent): (_, Vec<String>) = study.partition(is_there);
        names = there;
        if !absent.is_empty() {
            notes.push(format!(
                "the driver of this machine's CPUs has no governor {}",
                absent.join(", ")
            ));
        }
    }
    let scheduler = placement::scheduler();
    let condition = |name: &String| {
        let (governor, on_worker) = match name.strip_suffix(daemon::SUFFIX) {
            None => (&**name, false),
            Some(daemon::GOVERNOR) => (daemon::GOVERNOR, true),
            Some(_) => {
                return Err(format!(
                    "{name:?}: only {COLUMN} makes a difference, since no other governor goes by what a scheduler asks for"
                ));
            }
        };
        sysfs::check_governor(policies, governor)?;
        let scheduler = if on_worker { daemon::NAME } else { &scheduler };
        Ok(Condition {
            on_worker,
            ..Condition::alone(scheduler, Some(governor))
        })
    };
    let chosen: Result<Vec<Condition>, String> = names.iter().map(condition).collect();
    chosen.map(distinct).map_err(Refusal::Usage)
}

/// Where the scheduler is to come from, if a condition needs one. Such conditions go where it cannot be had.
fn source(
    wanted: &mut Vec<Condition>,
    look: impl FnOnce() -> Result<Source, String>,
    said: &mut Vec<String>,
) -> Result<Option<Source>, Refusal> {
    if !wanted.iter().any(|condition| condition.on_worker) {
        return Ok(None);
    }
    match look() {
        Ok(source) => {
            if source == Source::Runs {
                said.push(
                    "scx_morpheus was in force before this run: every governor was measured under it, and schedutil only \
                     with it; stop it for the columns without"
                        .into(),
                );
                wanted.retain(|condition| {
                    condition.on_worker || condition.governor.as_deref() != Some(daemon::GOVERNOR)
                });
            }
            Ok(Some(source))
        }
        Err(why) => {
            let why = format!("{COLUMN} is not measured: {why}");
            wanted.retain(|condition| !condition.on_worker);
            if wanted.is_empty() {
                return Err(Refusal::Failed(why));
            }
            said.push(why);
            Ok(None)
        }
    }
}

/// How many busy processes there are to be on the other CPUs.
fn loads(config: &Config, others: &[usize], notes: &mut Vec<String>) -> Vec<usize> {
    if others.is_empty() {
        notes.push("there is no other CPU to put load on; only measured without".into());
        return vec![0];
    }
    distinct([0, config.load.map_or(others.len(), usize::from)])
}

impl Ready {
    /// The measurements that this machine cannot make, in sentences.
    pub fn missing(&self) -> impl Iterator<Item = &String> {
        self.about.notes.iter().chain(&self.about.failed)
    }

    /// How long the study will take.
    pub fn expected(&self) -> Duration {
        let config = &self.about.config.config;
        let runs = self.conditions.len() * self.repeats * config.kernels().len();
        config.run_time() * runs as u32
    }

    /// The policies whose governor has to be changed for a condition.
    pub fn changed_by(&self, condition: &Condition) -> impl Iterator<Item = &Policy> {
        let policies = self.about.config.policies.iter();
        policies.filter(|policy| condition.governor.as_ref() != Some(&policy.governor))
    }

    /// A description of the study, in lines.
    pub fn text(&self, output: &Path) -> String {
        let Asked { config, policies } = &self.about.config;
        let mut text: String = policies.iter().map(Policy::describe).collect();
        let kernels: Vec<String> = config.kernels().into_iter().map(Name::text).collect();
        let priority = match config.policy {
            Scheduling::Other => String::new(),
            _ => format!(" priority {}", config.priority),
        };
        text += &format!(
            "\nkernels {} on CPU {}, {}{priority}\n{} s each after {} s of warm-up, {} times:\n",
            kernels.join(", "),
            config.cpu,
            config.policy.kernel_name(),
            config.duration_s,
            config.warmup_s,
            self.repeats
        );
        for condition in &self.conditions {
            text += &format!("  {}\n", condition.name());
            if let Some(source) = self.source.as_ref().filter(|_| condition.on_worker) {
                text += &format!(
                    "    {}\n    the kernels on a worker that is registered with it, SCHED_OTHER\n",
                    source.plan()
                );
            }
            let governor = condition.governor.as_deref().unwrap_or_default();
            for policy in self.changed_by(condition) {
                let file = policy.governor_file();
                text += &format!("    write {governor:?} to {}\n", file.display());
            }
            if condition.load > 0 {
                text += &format!(
                    "    {} busy processes on the CPUs {:?}\n",
                    condition.load, self.others
                );
            }
        }
        let takes = duration(self.expected());
        text + &format!("into {}; it takes {takes}\n", output.display())
    }
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

    /// The names of conditions as they are asked for, beside Morpheus's scheduler with its suffix.
    fn names(conditions: &[Condition]) -> Vec<String> {
        let name = |condition: &Condition| {
            let suffix = if condition.on_worker {
                daemon::SUFFIX
            } else {
                ""
            };
            condition.governor.clone().unwrap_or_default() + suffix
        };
        conditions.iter().map(name).collect()
    }

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
            (chosen.map(|all| names(&all)).map_err(|_| ()), missing)
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
        let Err(Refusal::Usage(why)) = governors(&config("--governors x"), &poor, &mut missing)
        else {
            panic!("there is no such governor");
        };
        assert!(why.contains("ondemand, powersave"), "{why}");
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
        let look = |line: &str, found: Result<Source, String>| {
            let mut missing = Vec::new();
            let Ok(mut wanted) = governors(&config(line), &[], &mut missing) else {
                panic!("{line}");
            };
            let source = source(&mut wanted, || found, &mut missing);
            (source.map_err(|_| ()), names(&wanted), missing)
        };
        let none = || Err("it is not there".to_owned());
        let both = "--governors schedutil+morpheus,powersave";
        let (source, left, missing) = look(both, none());
        assert_eq!((source, left), (Ok(None), vec!["powersave".into()]));
        assert_eq!(
            missing,
            ["schedutil+morpheus is not measured: it is not there"]
        );
        assert!(
            look("--governors schedutil+morpheus", none()).0.is_err(),
            "nothing is left"
        );
        assert!(
            look("--governors schedutil", none()).2.is_empty(),
            "nobody asked for it"
        );
        // The scheduler runs already.
        let all = "--governors performance,schedutil,schedutil+morpheus";
        let (source, left, missing) = look(all, Ok(Source::Runs));
        assert_eq!(source, Ok(Some(Source::Runs)));
        assert_eq!(left, ["performance", "schedutil+morpheus"]);
        assert_eq!(missing.len(), 1);
    }
}
