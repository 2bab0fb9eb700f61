//! What `--json` prints: every run, the medians of each variant, and the ratios that are judged.

use serde::{Deserialize, Serialize};

use super::config::{Options, Scene};
use super::server::Hash;
use super::variant::Variant;
use super::wrk::Said;
use crate::histogram::{Latencies, Summary, median};
use crate::host::Host;
use crate::tuned::MORE_WORKERS;

/// Everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `service`.
    pub bench: String,
    /// Facts about the machine.
    pub host: Host,
    /// What was asked for.
    pub config: Config,
    /// One after the other.
    pub runs: Vec<Run>,
    /// Of each variant that was measured, in the order of the table.
    pub medians: Vec<Medians>,
    /// Of medians.
    pub ratios: Vec<Ratio>,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Who keeps the service busy.
    pub scene: Scene,
    /// How many do.
    pub clients: usize,
    /// Measured in each round.
    pub seconds: u32,
    /// Under load before that.
    pub warmup_s: u32,
    /// Rounds.
    pub rounds: usize,
    /// Requests that are due each second.
    pub ping_per_s: f64,
    /// Likewise.
    pub db_per_s: f64,
    /// Passes of argon2 in a hash.
    pub hash_passes: u32,
    /// CPU time that these take.
    pub hash_cpu_ns: u64,
    /// Workers of each variant but `tokio+32`, which has 32 more.
    pub workers: usize,
    /// Version of wrk.
    pub wrk: String,
}

/// One variant in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Which.
    pub variant: Variant,
    /// From 1.
    pub round: usize,
    /// Why there are no figures.
    pub failed: Option<String>,
    /// What came out of it.
    pub figures: Option<Figures>,
}

/// What came out of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// `/ping`.
    pub ping: Asked,
    /// `/db`.
    pub db: Asked,
    /// Answers a second to the clients that keep the service busy, the time before the window included.
    pub work_per_s: f64,
}

/// What was asked by a timetable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// Requests that were due.
    pub due: u64,
    /// Those that had an answer by the end.
    pub answered: u64,
    /// Connections that broke.
    pub broken: u64,
    /// From when a request was due until its answer; what has none counts with its age at the end.
    pub late_ns: Summary,
    /// From when it was sent; only those that have an answer.
    pub took_ns: Summary,
}

impl Asked {
    /// Of what wrk says.
    pub fn of(said: &Said) -> Self {
        let counted = |times: &mut dyn Iterator<Item = &u64>| {
            let mut latencies = Latencies::default();
            times.for_each(|us| latencies.record_ns(us.saturating_mul(1_000)));
            Summary {
                curve: Vec::new(),
                ..latencies.summary()
            }
        };
        let late_ns = counted(&mut said.late_us.iter().chain(&said.unanswered_us));
        Self {
            due: late_ns.n,
            answered: said.late_us.len() as u64,
            broken: said.broken,
            late_ns,
            took_ns: counted(&mut said.took_us.iter()),
        }
    }
}

/// A figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// In the best or worst round.
    pub least: f64,
    /// Likewise.
    pub most: f64,
}

impl Spread {
    /// `None` where a round does not have the figure.
    fn of(figures: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let values: Vec<f64> = figures.collect::<Option<_>>()?;
        Some(Self {
            median: median(values.clone())?,
            least: values.iter().copied().reduce(f64::min)?,
            most: values.iter().copied().reduce(f64::max)?,
        })
    }
}

/// The figures of one variant over the rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Medians {
    /// Which.
    pub variant: Variant,
    /// Rounds that were measured.
    pub rounds: usize,
    /// Why there are no figures: a round that failed is a failure of the whole, for a median of the lucky ones would hide it.
    pub failed: Option<String>,
    /// From when a ping was due.
    pub ping_p50_ns: Option<Spread>,
    /// Likewise.
    pub ping_p99_ns: Option<Spread>,
    /// Likewise.
    pub ping_max_ns: Option<Spread>,
    /// From when it was sent, of those that have an answer.
    pub ping_took_p50_ns: Option<Spread>,
    /// Likewise.
    pub ping_took_max_ns: Option<Spread>,
    /// The share of the pings due that have an answer, from 0 to 1.
    pub ping_answered: Option<Spread>,
    /// From when a request to `/db` was due.
    pub db_p99_ns: Option<Spread>,
    /// Answers of `/db` in a second.
    pub db_per_s: Option<Spread>,
    /// Answers a second to the clients that keep the service busy.
    pub work_per_s: Option<Spread>,
}

impl Medians {
    fn of(variant: Variant, runs: &[Run], seconds: u32) -> Option<Self> {
        let own: Vec<&Run> = runs.iter().filter(|run| run.variant == variant).collect();
        if own.is_empty() {
            return None;
        }
        let spread = |figure: &dyn Fn(&Figures) -> Option<f64>| {
            Spread::of(own.iter().map(|run| figure(run.figures.as_ref()?)))
        };
        let ns = |ns: Option<u64>| ns.map(|ns| ns as f64);
        Some(Self {
            variant,
            rounds: own.len(),
            failed: own.iter().find_map(|run| run.failed.clone()),
            ping_p50_ns: spread(&|run| ns(run.ping.late_ns.p50)),
            ping_p99_ns: spread(&|run| ns(run.ping.late_ns.p99)),
            ping_max_ns: spread(&|run| ns(run.ping.late_ns.max)),
            ping_took_p50_ns: spread(&|run| ns(run.ping.took_ns.p50)),
            ping_took_max_ns: spread(&|run| ns(run.ping.took_ns.max)),
            ping_answered: spread(&|run| {
                Some(run.ping.answered as f64 / run.ping.due.max(1) as f64)
            }),
            db_p99_ns: spread(&|run| ns(run.db.late_ns.p99)),
            db_per_s: spread(&|run| Some(run.db.answered as f64 / f64::from(seconds))),
            work_per_s: spread(&|run| Some(run.work_per_s)),
        })
    }
}

/// Two medians, one over the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// For people.
    pub name: String,
    /// `None` where a figure is missing.
    pub value: Option<f64>,
    /// What it is held against.
    pub bar: Option<f64>,
    /// Whether more than that is good.
    pub at_least: bool,
    /// Whether it holds.
    pub met: Option<bool>,
}

impl Report {
    /// Of these runs.
    pub fn new(host: Host, config: Config, runs: Vec<Run>, interrupted: bool) -> Self {
        let medians: Vec<Medians> = Variant::ALL
            .into_iter()
            .filter_map(|variant| Medians::of(variant, &runs, config.seconds))
            .collect();
        Self {
            bench: "service".into(),
            ratios: ratios(&config, &medians),
            host,
            config,
            runs,
            medians,
            interrupted,
        }
    }

    /// Whether a run failed, or there was none.
    pub fn has_failures(&self) -> bool {
        self.runs.is_empty() || self.runs.iter().any(|run| run.failed.is_some())
    }
}

impl Config {
    /// What is to be measured.
    pub fn new(options: &Options, hash: Hash, workers: usize, wrk: String) -> Self {
        Self {
            scene: options.scene,
            clients: options.clients(),
            seconds: options.seconds,
            warmup_s: options.warmup,
            rounds: options.rounds,
            ping_per_s: super::run::PING.per_s(),
            db_per_s: super::run::DB.per_s(),
            hash_passes: hash.passes,
            hash_cpu_ns: hash.cpu_ns,
            workers,
            wrk,
        }
    }
}

type Figure = fn(&Medians) -> Option<Spread>;

/// All that both were measured for.
fn ratios(config: &Config, medians: &[Medians]) -> Vec<Ratio> {
    let of = |variant: Variant, figure: Figure| {
        let own = medians
            .iter()
            .find(|one| one.variant == variant && one.failed.is_none())?;
        figure(own).map(|spread| spread.median)
    };
    let ping: Figure = |one| one.ping_p99_ns;
    let db: Figure = |one| one.db_p99_ns;
    let work: Figure = |one| one.work_per_s;
    let path = config.scene.path();
    let mut all = Vec::new();
    for own in [
        Variant::Morpheus,
        Variant::MorpheusLayer,
        Variant::MorpheusFlag,
    ] {
        // More clients than there are spares are for the layer and the flag, and fewer need neither.
        let judged = (own == Variant::Morpheus)
            == (config.scene == Scene::Blocking || config.clients <= MORE_WORKERS);
        let mut add = |what: String, figure: Figure, over, under, bar: Option<(bool, f64)>| {
            let value = match (of(over, figure), of(under, figure)) {
                (Some(over), Some(under)) if under > 0.0 => Some(over / under),
                _ => return,
            };
            let bar = bar.filter(|_| judged);
            let at_least = bar.is_none_or(|(at_least, _)| at_least);
            all.push(Ratio {
                name: format!("{what}: {over} / {under}"),
                value,
                bar: bar.map(|(_, bar)| bar),
                at_least,
                met: bar.zip(value).map(
                    |((at_least, bar), value)| {
                        if at_least { value >= bar } else { value <= bar }
                    },
                ),
            });
        };
        let p99 = || "/ping p99".to_owned();
        let rate = || format!("{path} per s");
        match config.scene {
            Scene::Hash => {
                add(p99(), ping, Variant::Tokio, own, Some((true, 1_000.0)));
                add(p99(), ping, Variant::TokioMore, own, None);
                add(p99(), ping, own, Variant::Tuned, None);
                add(p99(), ping, own, Variant::Rewritten, Some((false, 1.0)));
                add(p99(), ping, own, Variant::Bounded, None);
                add(rate(), work, own, Variant::Rewritten, Some((true, 0.95)));
                add(rate(), work, own, Variant::Bounded, None);
                add(rate(), work, own, Variant::Tokio, None);
            }
            Scene::Blocking => {
                add(rate(), work, own, Variant::Tokio, Some((true, 5.0)));
                add(rate(), work, own, Variant::TokioMore, None);
                add(rate(), work, own, Variant::Rewritten, Some((true, 0.9)));
                add(p99(), ping, Variant::Tokio, own, None);
                add(p99(), ping, own, Variant::Rewritten, None);
            }
        }
        add("/db p99".into(), db, Variant::Tokio, own, None);
        add("/db p99".into(), db, own, Variant::Rewritten, None);
    }
    all
}

#[cfg(test)]
pub mod tests {
    use super::super::config::tests::parse;
    use super::*;

    /// Of this variant: pings that were answered after so many microseconds, and of that many that were not after a
    /// second; answers a second to the others.
    pub fn run(variant: Variant, ping_us: u64, unanswered: usize, work_per_s: f64) -> Run {
        let said = Said {
            duration_us: 1_000_000,
            answered: 2_000,
            bad_status: 0,
            broken: 0,
            late_us: vec![ping_us; 2_000],
            took_us: vec![ping_us / 2; 2_000],
            unanswered_us: vec![1_000_000; unanswered],
        };
        Run {
            variant,
            round: 1,
            failed: None,
            figures: Some(Figures {
                ping: Asked::of(&said),
                db: Asked::of(&said),
                work_per_s,
            }),
        }
    }

    pub fn report(line: &str, runs: Vec<Run>) -> Report {
        let options = parse(line);
        let hash = Hash {
            passes: 9,
            cpu_ns: 49_000_000,
        };
        let config = Config::new(&options, hash, 2, "4.1.0".into());
        Report::new(Host::read(), config, runs, false)
    }

    fn near(spread: Option<Spread>, expected: f64) -> bool {
        spread.is_some_and(|spread| (spread.median / expected - 1.0).abs() < 0.01)
    }

    fn ratio<'a>(report: &'a Report, name: &str) -> &'a Ratio {
        report
            .ratios
            .iter()
            .find(|ratio| ratio.name == name)
            .unwrap()
    }

    #[test]
    fn what_has_no_answer_counts_with_its_age() {
        let report = report("", vec![run(Variant::Tokio, 50, 500, 9.0)]);
        let tokio = &report.medians[0];
        assert!(near(tokio.ping_p50_ns, 50e3), "{tokio:?}");
        assert!(near(tokio.ping_p99_ns, 1e9), "{tokio:?}");
        assert!(near(tokio.ping_took_max_ns, 25e3), "{tokio:?}");
        assert!(near(tokio.ping_answered, 0.8), "{tokio:?}");
        assert!(near(tokio.db_per_s, 250.0), "{tokio:?}");
    }

    #[test]
    fn medians_are_of_all_rounds_and_a_failure_is_of_the_whole() {
        let mut runs: Vec<Run> = [10.0, 30.0, 11.0]
            .map(|rate| run(Variant::Morpheus, 60, 0, rate))
            .into();
        let work = report("", runs.clone()).medians[0].work_per_s.unwrap();
        assert_eq!((work.median, work.least, work.most), (11.0, 10.0, 30.0));
        runs[1].failed = Some("it did not start".into());
        runs[1].figures = None;
        let report = report("", runs);
        assert_eq!(report.medians[0].work_per_s, None);
        assert!(report.has_failures() && report.medians[0].failed.is_some());
    }

    #[test]
    fn bars_are_for_the_variant_that_is_to_meet_them() {
        let runs = vec![
            run(Variant::Tokio, 2_000_000, 0, 40.0),
            run(Variant::Rewritten, 1_500, 0, 40.0),
            run(Variant::Morpheus, 1_000, 0, 37.0),
            run(Variant::MorpheusLayer, 3_000, 0, 39.0),
        ];
        let few = report("", runs.clone());
        let tokio = ratio(&few, "/ping p99: tokio / morpheus");
        assert_eq!((tokio.bar, tokio.met), (Some(1_000.0), Some(true)));
        let hand = ratio(&few, "/ping p99: morpheus / tokio-rewritten");
        assert_eq!((hand.at_least, hand.met), (false, Some(true)));
        let rate = ratio(&few, "/hash per s: morpheus / tokio-rewritten");
        assert_eq!(rate.met, Some(false));
        let layer = ratio(&few, "/ping p99: morpheus+layer / tokio-rewritten");
        assert_eq!((layer.bar, layer.met), (None, None));

        let many = report("--clients 40", runs.clone());
        assert_eq!(ratio(&many, "/ping p99: tokio / morpheus").bar, None);
        assert_eq!(
            ratio(&many, "/ping p99: morpheus+layer / tokio-rewritten").met,
            Some(false)
        );

        let blocking = report("--scene blocking", runs);
        let rate = ratio(&blocking, "/report per s: morpheus / tokio");
        assert_eq!((rate.bar, rate.met), (Some(5.0), Some(false)));
        assert!(
            !blocking
                .ratios
                .iter()
                .any(|ratio| ratio.name.contains("+32"))
        );
    }
}
