//! What was measured, for people: the source's table (minimum, maximum, average), with a median and how sure it is.

use super::WIDTH;
use super::cache::{Cache, FACTOR, Size};
use super::conditions::Conditions;
use super::experiment::Warmup;
use super::main::Measured;
use super::migration::Migration;
use super::preemption::Preemption;
use super::statistics::Figure;
use crate::host::Host;
use crate::report::{self, Table};

/// All of the output.
pub fn render(
    host: &Host,
    conditions: &Conditions,
    measured: &Measured,
    interrupted: bool,
) -> String {
    let cpus: Vec<String> = conditions.cpus.iter().map(usize::to_string).collect();
    let memory = if conditions.memory_locked {
        "locked"
    } else {
        "not locked"
    };
    let mut text = format!(
        "{}\nCPU {}, {}, memory {memory}\n",
        host.line(WIDTH),
        cpus.join(" → "),
        conditions.policy
    );
    for note in &conditions.notes {
        text += &(report::wrap(note, WIDTH) + "\n");
    }
    text += "\n";
    text += &match measured {
        Measured::Preemption(preemption) => of_preemption(preemption),
        Measured::Migration(migration) => of_migration(migration),
        Measured::Cache(cache) => of_cache(cache),
    };
    report::note_early_end(&mut text, interrupted);
    text
}

fn of_preemption(preemption: &Preemption) -> String {
    let table = costs(
        "preemption",
        &[
            ("a switch, with the call", &preemption.switch),
            ("sched_yield, to nobody", &preemption.call),
            ("the switch alone", &preemption.net),
            ("A/A: two switches", &preemption.same),
        ],
    );
    let (Some(net), Some(same)) = (&preemption.net, &preemption.same) else {
        return NOTHING.into();
    };
    let counted = format!(
        "{:.2} context switches were counted for each of the {} yields of one thread in a measurement.",
        preemption.switches_per_yield,
        report::count(preemption.yields.into())
    );
    let sentence = sentence("A switch", net, same);
    format!(
        "{table}\n{}\n",
        report::wrap(
            &format!("{counted} {sentence} {}", warmed_up(&preemption.warmup)),
            WIDTH
        )
    )
}

fn of_migration(migration: &Migration) -> String {
    let (Some(net), Some(same)) = (&migration.net_to_awake, &migration.same_awake) else {
        return NOTHING.into();
    };
    let table = costs(
        "migration",
        &[
            ("to an idle CPU, with the call", &migration.to_idle),
            ("to a CPU awake, with the call", &migration.to_awake),
            ("the call that changes nothing", &migration.call),
            ("to an idle CPU, without it", &migration.net_to_idle),
            ("to a CPU awake, without it", &migration.net_to_awake),
            ("A/A: two to an idle CPU", &migration.same_idle),
            ("A/A: two to a CPU awake", &migration.same_awake),
        ],
    );
    let parts = &migration.parts;
    let where_it_goes = costs(
        "where the time goes",
        &[
            ("awake: call → interrupt there", &parts.until_interrupt),
            ("awake: → first instruction", &parts.until_first_instruction),
            ("awake: call → source is free", &parts.until_source_is_free),
            ("awake: on no CPU", &parts.off_cpu_awake),
            ("idle: on no CPU", &parts.off_cpu_idle),
        ],
    );
    let sentence = sentence("A migration to a CPU that is awake", net, same);
    let explained = "The first two parts make up the whole. The source is free when the kernel's thread that moves others \
                     is done with it. On no CPU is what the thread's own CPU clock did not count.";
    format!(
        "{table}\n{where_it_goes}\n{}\n",
        report::wrap(
            &format!("{explained} {sentence} {}", warmed_up(&migration.warmup)),
            WIDTH
        )
    )
}

fn warmed_up(warmup: &Warmup) -> String {
    let how = if warmup.settled { "had" } else { "had not" };
    format!(
        "The median {how} settled after {} experiments before.",
        warmup.experiments
    )
}

/// Which sizes were measured although their median had not settled.
fn unsettled(sizes: &[Size]) -> String {
    let unsettled = sizes.iter().filter(|size| !size.warmup.settled);
    let names: Vec<String> = unsettled.map(|size| kib(size.bytes)).collect();
    if names.is_empty() {
        "The median of each had settled before.".into()
    } else {
        format!("The median had not settled before: {}.", names.join(", "))
    }
}

const NOTHING: &str = "Nothing was measured.\n";

/// The source's table, one cost a row. What could not be measured is `–`.
fn costs(head: &str, rows: &[(&str, &Option<Figure>)]) -> String {
    let cells = |cell: fn(&Figure) -> String| {
        let all = rows
            .iter()
            .map(|(_, figure)| figure.as_ref().map_or("–".into(), cell));
        all.collect::<Vec<_>>()
    };
    let mut table = Table::default();
    table.column(
        head,
        0,
        rows.iter().map(|(name, _)| (*name).to_owned()).collect(),
    );
    table.column("minimum", 0, cells(|figure| time(figure.min_ns)));
    table.column("maximum", 0, cells(|figure| time(figure.max_ns)));
    table.column("average", 0, cells(|figure| time(figure.mean_ns)));
    table.column("median", 0, cells(|figure| time(figure.median_ns)));
    table.column("95 % interval of it", 0, cells(interval));
    table.column("n", 1, cells(|figure| report::count(figure.n as u64)));
    table.render(WIDTH)
}

/// What a difference says.
fn sentence(what: &str, net: &Figure, same: &Figure) -> String {
    if net.interval_ns.is_none() {
        format!("{what}: n too small to say how sure the median is (6 experiments are needed).")
    } else if net.is_positive_beside(same) {
        format!("{what} costs {}, beyond the noise.", time(net.median_ns))
    } else {
        format!("{what}: the cost is within the noise; no verdict.")
    }
}

fn of_cache(cache: &Cache) -> String {
    let sizes = &cache.sizes;
    if sizes.is_empty() {
        return NOTHING.into();
    }
    let names: Vec<String> = sizes.iter().map(|size| kib(size.bytes)).collect();
    let rows = sizes.iter().zip(&names);
    let whole: Vec<(&str, Option<Figure>)> = rows
        .map(|(size, name)| (name.as_str(), Some(size.refill.clone())))
        .collect();
    let whole: Vec<(&str, &Option<Figure>)> =
        whole.iter().map(|(name, figure)| (*name, figure)).collect();
    let cells = |cell: &dyn Fn(&Size) -> String| sizes.iter().map(cell).collect::<Vec<_>>();
    let line = |figure: &Figure, size: &Size| figure.divided(size.lines as f64);
    let mut table = Table::default();
    table.column("refill a line", 0, names.clone());
    table.column("lines", 1, cells(&|size| report::count(size.lines as u64)));
    table.column(
        "median",
        0,
        cells(&|size| time(size.refill_of_line.median_ns)),
    );
    table.column(
        "95 % interval",
        0,
        cells(&|size| interval(&size.refill_of_line)),
    );
    table.column("A/A", 0, cells(&|size| interval(&line(&size.same, size))));
    table.column(
        "2nd method",
        0,
        cells(&|size| time(line(&size.second, size).median_ns)),
    );
    table.column(
        "ratio",
        0,
        cells(&|size| format!("{:.2}", size.second_by_first)),
    );
    table.column(
        "linear",
        0,
        cells(&|size| time(line(&size.linear, size).median_ns)),
    );
    table.column(
        "read only",
        0,
        cells(&|size| time(line(&size.read_only, size).median_ns)),
    );
    table.column(
        "own lines",
        1,
        cells(&|size| time(line(&size.control, size).median_ns)),
    );
    format!(
        "L1 {}, L2 {}, lines of {} bytes; {}\n\n{}\n{}\n{}\n",
        kib(cache.geometry.l1_bytes),
        kib(cache.geometry.l2_bytes),
        cache.geometry.line_bytes,
        match cache.huge_bytes {
            Some((huge, all)) if huge == all => "in huge pages",
            Some((0, _)) => "not in huge pages",
            Some(_) => "partly in huge pages",
            None => "pages of unknown size",
        },
        costs("refill a buffer", &whole),
        table.render(WIDTH),
        report::wrap(&format!("{} {}", verdict(sizes), unsettled(sizes)), WIDTH)
    )
}

/// Whether the cost is positive and the methods agree, on every size past L1.
fn verdict(sizes: &[Size]) -> String {
    let past: Vec<&Size> = sizes.iter().filter(|size| size.past_l1).collect();
    if past.is_empty() {
        return "No size past L1 was measured.".into();
    }
    if past.iter().any(|size| size.refill.interval_ns.is_none()) {
        return "n too small to say how sure the medians are (6 experiments are needed).".into();
    }
    let failing = |holds: fn(&Size) -> bool| {
        let failing = past.iter().filter(|size| !holds(size));
        failing
            .map(|size| kib(size.bytes))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let sentence = |failing: String, good: &str, bad: &str| {
        if failing.is_empty() {
            good.to_owned()
        } else {
            format!("{bad}: {failing}.")
        }
    };
    let positive = sentence(
        failing(|size| size.positive),
        "Past L1 the cost is positive on every size, its interval away from 0 and from that of A/A.",
        "Past L1 the cost is within the noise on some sizes",
    );
    let agreeing = sentence(
        failing(Size::agrees),
        &format!("The second method agrees within a factor of {FACTOR} on all of them."),
        &format!("The second method is off by more than a factor of {FACTOR} on some"),
    );
    format!("{positive} {agreeing}")
}

fn kib(bytes: usize) -> String {
    format!("{} KiB", report::count(bytes as u64 >> 10))
}

/// A time that may be negative, and below 100 ns has a tenth.
fn time(ns: f64) -> String {
    let (sign, size) = (if ns < -0.05 { "-" } else { "" }, ns.abs());
    if size < 99.95 {
        format!("{sign}{size:.1} ns")
    } else {
        format!("{sign}{}", report::time(size.round() as u64))
    }
}

/// `14.5 … 15.0 ns`, or `999 ns … 1.2 µs`.
fn interval(figure: &Figure) -> String {
    let Some((low, high)) = figure.interval_ns else {
        return "n too small".into();
    };
    let (low, high) = (time(low), time(high));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} … {high}"),
        _ => format!("{low} … {high}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::tests::size;
    use super::*;

    #[test]
    fn times_have_a_sign_and_a_tenth_where_it_matters() {
        let shown = [0.0, -0.04, 15.74, -0.26, 99.94, 123.4, -12_345.0].map(time);
        let expected = [
            "0.0 ns",
            "0.0 ns",
            "15.7 ns",
            "-0.3 ns",
            "99.9 ns",
            "123 ns",
            "-12.3 µs",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_table_has_the_columns_of_the_source() {
        let figure = Figure::of(&[10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        let text = costs("cost", &[("a", &figure), ("b", &None)]);
        let lines: Vec<&str> = text.lines().collect();
        for head in ["minimum", "maximum", "average", "median"] {
            assert!(lines[0].contains(head), "{text}");
        }
        assert!(
            lines[1].contains("10.0 ns  60.0 ns  35.0 ns  35.0 ns"),
            "{text}"
        );
        assert!(lines[1].contains("10.0 … 60.0 ns"), "{text}");
        assert!(
            lines[2].starts_with("b") && lines[2].contains('–'),
            "{text}"
        );
    }

    #[test]
    fn a_sentence_gives_no_verdict_inside_the_noise() {
        let figure = |values: &[f64]| Figure::of(values).unwrap();
        let (net, noise) = (figure(&[100.0; 6]), figure(&[-1.0; 6]));
        assert_eq!(
            sentence("It", &net, &noise),
            "It costs 100 ns, beyond the noise."
        );
        assert!(sentence("It", &net, &figure(&[200.0; 6])).contains("no verdict"));
        assert!(sentence("It", &figure(&[100.0]), &noise).contains("n too small"));
    }

    #[test]
    fn the_verdict_names_the_sizes_that_fail() {
        let (small, good) = (
            size(1 << 10, false, false, 9.0),
            size(64 << 10, true, true, 1.1),
        );
        let bad = size(128 << 10, true, false, 2.5);
        let text = verdict(&[small.clone(), good.clone()]);
        assert!(
            text.contains("positive on every size") && text.contains("agrees within"),
            "{text}"
        );
        let text = verdict(&[small.clone(), good, bad]);
        assert!(
            text.contains("within the noise on some sizes: 128 KiB."),
            "{text}"
        );
        assert!(
            text.contains("off by more than a factor of 2 on some: 128 KiB."),
            "{text}"
        );
        assert!(verdict(std::slice::from_ref(&small)).contains("No size past L1"));
        assert!(unsettled(std::slice::from_ref(&small)).contains("had not settled before: 1 KiB."));
        let settled = Warmup {
            experiments: 15,
            settled: true,
        };
        let warm = Size {
            warmup: settled,
            ..small
        };
        assert!(unsettled(&[warm]).contains("had settled"));
        assert!(warmed_up(&settled).contains("had settled after 15"));
    }
}
