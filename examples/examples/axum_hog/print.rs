//! The output for people: the table, the ratios, and one sentence.

use examples::password::Hash;
use morpheus_bench::code::Code;
use morpheus_bench::report::{Table, count, maybe_time, time, times};

use crate::app::{self, Work};
use crate::figures::{Ratios, Run, find};
use crate::load::PINGS_PER_S;
use crate::options::Options;
use crate::variant::Variant;

/// The maximum width of the output, in columns.
pub const WIDTH: usize = 110;

/// The title: one line that says what is measured. `hash` is the work of one hash.
pub fn title(options: &Options, hash: &Hash) -> String {
    let each = match options.work {
        Work::Hash => format!("{} of CPU a hash", time(hash.cpu.as_nanos() as u64)),
        Work::Compute => format!("{} ms of CPU each time", options.hash_ms),
        Work::Read => format!("blocked for {:?} each time", app::READ),
    };
    format!(
        "{} workers, {} {} clients ({each}), /ping {}/s, {} s, medians of {} rounds",
        options.workers(),
        options.clients,
        options.work.path(),
        count(PINGS_PER_S.into()),
        options.duration,
        options.rounds
    )
}

/// The table of the medians of each variant.
pub fn table(work: Work, medians: &[Run]) -> String {
    let mut table = Table::default();
    let mut column = |head: &str, cell: &dyn Fn(&Run) -> String| {
        table.column(head, 0, medians.iter().map(cell).collect());
    };
    column("runtime", &|run| run.variant.runtime().into());
    column("handlers", &|run| handler(run).into());
    let measured = |run: &Run, text: String| match run.failed {
        Some(_) => "–".into(),
        None => text,
    };
    column("/ping p50", &|run| maybe_time(run.ping_ns.p50));
    column("p99", &|run| maybe_time(run.ping_ns.p99));
    column("answered", &|run| {
        measured(run, format!("{:.1} %", run.ping_answered * 100.0))
    });
    column(&format!("{} per s", work.path()), &|run| {
        measured(run, format!("{:.1}", run.work_per_s))
    });
    table.render(WIDTH) + &notes(medians)
}

fn handler(run: &Run) -> &'static str {
    match run.variant.handler() {
        Code::Inline => "as it is",
        Code::SpawnBlocking => "spawn_blocking",
        Code::Bounded => "spawn_blocking, bounded",
        Code::InPlace => "block_in_place",
    }
}

fn notes(medians: &[Run]) -> String {
    let note = |run: &Run| {
        let name = run.variant.name();
        match (&run.failed, run.ping_ns.p99) {
            (Some(why), _) => Some(format!("{name}: {why}\n")),
            (None, None) => Some(format!(
                "{name}: no p99, n too small (1,000 pings a round are needed)\n"
            )),
            (None, Some(_)) => None,
        }
    };
    medians.iter().filter_map(note).collect()
}

/// The table of the ratios, with the targets for two cores and four clients.
pub fn ratios(ratios: &Ratios) -> String {
    let shown = |ratio: Option<f64>| match ratio {
        None => "–".into(),
        Some(ratio) if ratio < 10.0 => format!("{ratio:.2}"),
        Some(ratio) => count(ratio.round() as u64),
    };
    let rows = [
        (
            "p99: morpheus / tokio with spawn_blocking",
            ratios.p99_morpheus_over_rewritten,
            "≤ 1.0",
        ),
        (
            "p99: tokio+32+slice / morpheus",
            ratios.p99_more_workers_over_morpheus,
            "≥ 20",
        ),
        (
            "p99: tokio / morpheus",
            ratios.p99_tokio_over_morpheus,
            "≥ 1,000",
        ),
        (
            "p99: morpheus+layer / tokio with spawn_blocking",
            ratios.p99_layer_over_rewritten,
            "≤ 1.0",
        ),
        (
            "work: morpheus+layer / tokio with spawn_blocking",
            ratios.work_layer_over_rewritten,
            "≥ 0.95",
        ),
        (
            "work: morpheus / tokio with spawn_blocking",
            ratios.work_morpheus_over_rewritten,
            "≥ 0.95",
        ),
        (
            "work: morpheus / tokio",
            ratios.work_morpheus_over_tokio,
            "",
        ),
    ];
    let mut table = Table::default();
    table.column("ratio", 0, rows.map(|(name, ..)| name.into()).into());
    table.column("", 0, rows.map(|(_, ratio, _)| shown(ratio)).into());
    table.column("bar", 0, rows.map(|(_, _, bar)| bar.into()).into());
    table.render(WIDTH)
}

/// One sentence that sums the figures up.
pub fn sentence(options: &Options, medians: &[Run]) -> String {
    let p99 = |variant| find(medians, variant).and_then(|run| run.ping_ns.p99);
    let Some(own) = p99(Variant::Morpheus) else {
        return "There is no p99 of Morpheus to compare.".into();
    };
    let others = [
        (
            Variant::Rewritten,
            "rewritten with spawn_blocking, tokio took",
        ),
        (Variant::TokioMoreSlice, "as it is, tokio+32+slice took"),
        (Variant::Tokio, "tokio"),
    ];
    let others: String = others
        .into_iter()
        .filter_map(|(variant, what)| Some((p99(variant)?, what)))
        .map(|(p99, what)| format!("; {what} {} ({})", time(p99), compared(p99, own)))
        .collect();
    format!(
        "Beside {} clients that never stop asking for {}, Morpheus answered 99 % of the pings within {}, with the \
         handlers as they are{others}{}.",
        options.clients,
        options.work.path(),
        time(own),
        work(medians)
    )
}

fn compared(other: u64, own: u64) -> String {
    let (other, own) = (other as f64, own as f64);
    if other > own * 1.05 {
        format!("{} times as long", times(other, own))
    } else if own > other * 1.05 {
        format!("Morpheus took {} times as long", times(own, other))
    } else {
        "the same".into()
    }
}

fn work(medians: &[Run]) -> String {
    let ratio = Ratios::of(medians).work_morpheus_over_rewritten;
    ratio.map_or_else(String::new, |ratio| {
        let percent = ratio * 100.0;
        format!("; it answered {percent:.0} % as many of these as the rewritten handlers")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::figures::medians;
    use crate::figures::tests::run;

    fn measured(morpheus_us: u64) -> Vec<Run> {
        let mut tokio = run(Variant::Tokio, 3_960_000, 40.0);
        tokio.ping_answered = 0.051;
        medians(&[
            tokio,
            Run::failed(Variant::TokioMoreSlice, "no figures".into()),
            run(Variant::Rewritten, 1_300, 40.0),
            run(Variant::RewrittenSlice, 500, 40.0),
            run(Variant::Morpheus, morpheus_us, 39.0),
        ])
    }

    #[test]
    fn the_table_fits_and_says_what_failed() {
        let text = table(Work::Hash, &measured(1_200));
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.contains("tokio+32+slice: no figures"), "{text}");
        assert!(text.contains("5.1 %") && text.contains("3.96 s"), "{text}");
    }

    #[test]
    fn too_few_pings_are_said() {
        let mut runs = measured(1_200);
        runs[4].ping_ns.p99 = None;
        assert!(table(Work::Hash, &runs).contains("morpheus: no p99, n too small"));
        assert!(sentence(&options(), &runs).contains("no p99 of Morpheus"));
        assert!(ratios(&Ratios::of(&runs)).contains('–'));
    }

    fn options() -> Options {
        Options::parse_from(["axum_hog"])
    }

    #[test]
    fn the_sentence_follows_the_figures() {
        let text = sentence(&options(), &measured(1_200));
        assert!(text.contains("within 1.2 ms"), "{text}");
        assert!(text.contains("3.96 s (3,300 times as long)"), "{text}");
        assert!(text.contains("1.3 ms (1.1 times as long)"), "{text}");
        assert!(text.contains("98 % as many"), "{text}");
        let text = sentence(&options(), &measured(13_000));
        assert!(text.contains("Morpheus took 10 times as long"), "{text}");
    }
}
