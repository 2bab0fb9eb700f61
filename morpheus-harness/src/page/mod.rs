//! `report DIR`: the JSON files of a run as one page with plots and tables, and a picture of each plot.
//!
//! `config` reads the command line, `read` the files: through `claims`, as nothing in them is believed. `section` knows what
//! there is to show of each benchmark, as plots and tables; `plot` draws, `html` makes the page of it.

mod claims;
mod config;
mod html;
mod plot;
mod read;
mod section;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde_json::Value;

use crate::progress::Progress;
use crate::rows::view;
use crate::unit::Unit;
use crate::{figures, report};
use config::Options;
use html::{Machine, Page, Part};
use plot::scale::extremes;
use read::Found;
use section::Section;

/// The time that a picture takes, about.
const DRAWING: Duration = Duration::from_millis(2);

/// Makes rows of a file that has a run in each line, as `scale --json` prints them; fails with what the file is to be.
pub type RowsOf = fn(&[Value]) -> Result<Value, String>;

/// Makes the page. Exit codes: 0 made, 1 nothing to show or failed, 2 bad usage.
pub fn main(rows_of: RowsOf) -> ExitCode {
    let options = Options::parse();
    if !options.fill.is_empty() {
        return figures::fill(&options.directory, &options.fill, options.check);
    }
    match make(&options, rows_of) {
        Ok(page) => {
            report::print(&format!("{page}\n"));
            ExitCode::SUCCESS
        }
        Err(error) => report::failed("report", &error),
    }
}

fn make(options: &Options, rows_of: RowsOf) -> Result<String, String> {
    let target = options.output.as_deref().unwrap_or(&options.directory);
    let page = target.join("index.html");
    if !options.force && is_foreign(&page) {
        return Err(format!(
            "{} is there, and not made by this program: name another directory with --output, or replace it with --force",
            page.display()
        ));
    }
    let Found { sections, problems } = read::read(&options.directory, rows_of)?;
    for (file, why) in &problems {
        eprintln!("report: {file} {why}");
    }
    if sections.is_empty() {
        return Err(format!(
            "nothing in {} can be shown",
            options.directory.display()
        ));
    }
    write(options, target, sections, &problems)?;
    Ok(page.display().to_string())
}

/// Whether a file is there that this program did not generate.
fn is_foreign(page: &Path) -> bool {
    page.exists() && !fs::read_to_string(page).is_ok_and(|text| text.contains(html::GENERATOR))
}

fn write(
    options: &Options,
    target: &Path,
    sections: Vec<(String, Section)>,
    problems: &[(String, String)],
) -> Result<(), String> {
    let failed = |path: &Path, error| format!("{} cannot be written: {error}", path.display());
    fs::create_dir_all(target).map_err(|error| failed(target, error))?;
    let machines = machines(&sections);
    let figures = sections.iter().map(|(_, section)| section.figures.len());
    let mut progress = Progress::new(DRAWING * figures.sum::<usize>() as u32, false);
    let mut names: Vec<String> = Vec::new();
    let mut parts = Vec::new();
    for (file, section) in sections {
        let mut pictures = Vec::new();
        for figure in &section.figures {
            let picture = match &figure.plot {
                Some(plot) if !options.no_svg => {
                    let stem = file.rsplit_once('.').map_or(&*file, |(stem, _)| stem);
                    let name = free_name(&format!("{stem} {}", figure.title), &mut names);
                    progress.say(format!("drawing {name}"));
                    let title = format!("{}: {}", section.title, figure.title);
                    let footer = footer(&section);
                    let picture = plot.draw().framed(&title, &figure.caption, &footer);
                    let path = target.join(&name);
                    let alone = plot::svg::alone(&picture, &figure.title);
                    fs::write(&path, alone).map_err(|error| failed(&path, error))?;
                    Some(name)
                }
                _ => None,
            };
            pictures.push(picture);
            progress.finish_run(DRAWING);
        }
        parts.push(Part {
            file,
            section,
            pictures,
        });
    }
    progress.clear();
    let page = html::render(&Page {
        title: &options.title,
        machines: &machines,
        parts: &parts,
        problems,
    });
    let path = target.join("index.html");
    fs::write(&path, page).map_err(|error| failed(&path, error))
}

/// `latency-response-time.svg`, and with a number where that is taken.
fn free_name(text: &str, taken: &mut Vec<String>) -> String {
    let text: String = text.to_lowercase().chars().take(90).collect();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let slug = match words.is_empty() {
        true => "plot".into(),
        false => words.join("-"),
    };
    let numbered = (2..).map(|number| format!("{slug}-{number}.svg"));
    let mut names = std::iter::once(format!("{slug}.svg")).chain(numbered);
    let free = names.find(|name| !taken.contains(name));
    let name = free.expect("numbers have no end");
    taken.push(name.clone());
    name
}

/// The footer of a picture that stands alone: where it is from.
fn footer(section: &Section) -> String {
    let host = section.host.as_ref().map(facts).unwrap_or_default();
    let of = |name: &str| host.iter().find(|(known, _)| known == name);
    let chosen = ["Kernel", "CPU", "CPUs", "Scheduler"]
        .into_iter()
        .filter_map(of);
    let mut parts: Vec<String> = chosen
        .map(|(name, fact)| match name.as_str() {
            "CPUs" => format!("{fact} CPUs"),
            "Kernel" => format!("Linux {fact}"),
            "Scheduler" => format!("scheduler: {fact}"),
            _ => fact.clone(),
        })
        .collect();
    if !section.about.is_empty() {
        parts.insert(0, section.about.clone());
    }
    parts.join(", ")
}

/// The facts about a machine, as names and values.
fn facts(host: &Value) -> Vec<(String, String)> {
    use claims::{at, number, text, texts, yes};
    let own = "the kernel's own".to_owned();
    let none = "none: no control over frequencies".to_owned();
    let slack = number(host, "timer_slack_ns");
    let floor = number(host, "clock_floor_ns").map(|ns| format!(", floor {ns} ns"));
    let clock = text(host, "clocksource").map(|name| name + &floor.unwrap_or_default());
    let longest = number(host, "idle_limit_us").map(|us| format!("{us} µs"));
    let slices = at(host, "short_slices").map(|_| match yes(host, "short_slices") {
        true => "taken".into(),
        false => "not taken".into(),
    });
    let facts = [
        ("Kernel", text(host, "kernel")),
        ("CPU", text(host, "cpu")),
        ("CPUs", number(host, "cpus").map(|n| n.to_string())),
        ("Scheduler", text(host, "scheduler").or(Some(own))),
        ("Preemption", text(host, "preemption")),
        ("Governor", text(host, "governor").or(Some(none))),
        ("Idle states", Some(texts(host, "idle_states").join(", "))),
        ("Longest wakeup allowed", longest),
        ("Timer slack", slack.map(|ns| Unit::Time.tick(ns, ns))),
        ("Clock", clock),
        ("Short slices", slices),
        ("User id", number(host, "uid").map(|uid| uid.to_string())),
    ];
    let known = |(name, fact): (&str, Option<String>)| Some((name.to_owned(), fact?));
    let known = facts.into_iter().filter_map(known);
    known.filter(|(_, fact)| !fact.is_empty()).collect()
}

/// The machines of all files: those that agree in everything but the load and what was read by chance are one.
fn machines(sections: &[(String, Section)]) -> Vec<Machine> {
    let hosts = sections
        .iter()
        .filter_map(|(file, section)| Some((file, section.host.as_ref()?)));
    let but_the_clock = |(_, host): (&String, &Value)| {
        let mut facts = facts(host);
        facts.retain(|(name, _)| name != "Clock");
        Some(facts)
    };
    let machine = |own: Vec<(&String, &Value)>| {
        let loads = own.iter();
        let loads = loads.filter_map(|(_, host)| claims::number(host, "load"));
        let load = extremes(&loads.collect::<Vec<_>>());
        let load = load.map(|(low, high)| match high - low < 0.005 {
            true => format!("{low:.2}"),
            false => format!("{low:.2} to {high:.2}"),
        });
        let mut facts = facts(own[0].1);
        facts.extend(load.map(|load| ("Load before each".into(), load)));
        let files = view::distinct(own.iter().map(|(file, _)| (*file).clone()));
        Machine { facts, files }
    };
    let groups = view::grouped(hosts, but_the_clock);
    groups.into_iter().map(|(_, own)| machine(own)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pictures_have_plain_names_each_its_own() {
        let mut taken = Vec::new();
        let names = ["latency Wake, p99", "../latency/wake  P99!", "µ/", ""]
            .map(|text| free_name(text, &mut taken));
        assert_eq!(
            names,
            [
                "latency-wake-p99.svg",
                "latency-wake-p99-2.svg",
                "plot.svg",
                "plot-2.svg"
            ]
        );
    }

    #[test]
    fn machines_that_differ_in_load_alone_are_one() {
        let section = |load: f64, kernel: &str| Section {
            host: Some(json!({ "kernel": kernel, "cpus": 2, "load": load, "uid": 0 })),
            ..Section::default()
        };
        let sections = [
            ("a".to_owned(), section(0.5, "6.18")),
            ("b".to_owned(), section(1.5, "6.18")),
            ("c".to_owned(), section(0.0, "7.2")),
            ("d".to_owned(), Section::default()),
        ];
        let machines = machines(&sections);
        assert_eq!(machines.len(), 2);
        assert_eq!(machines[0].files, ["a", "b"]);
        let load = machines[0].facts.last().unwrap();
        assert_eq!(load.1, "0.50 to 1.50");
        assert!(footer(&sections[0].1).contains("Linux 6.18, 2 CPUs"));
    }

    #[test]
    fn absurd_hosts_have_few_facts_and_do_no_harm() {
        for host in [
            json!({}),
            json!(3),
            json!({ "kernel": 5, "idle_states": "x", "cpus": 1e300 }),
        ] {
            assert!(facts(&host).len() <= 2, "{host}");
        }
    }
}
