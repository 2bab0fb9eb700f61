//! Sentences and phrases that the printers have in common.

use crate::model::{Doing, Finding, Flavor, Frame, Method, Owner, Report, Runtime, Wait};
use crate::report::names::{
    first_columns, last_columns, printable, quoted, short_file, short_function,
};
use crate::report::units::{count, duration, grouped, percent, threshold};

/// From this share of the run on, a place is said to hold up the service.
const NOTICED: f64 = 0.01;
/// From this share of its time on, it is said that a thread did something else, too.
const ALSO: f64 = 0.1;

/// Columns of a name in a sentence: generic functions, paths and names have no bound.
const LONGEST_NAME: usize = 120;

/// Where a frame is: `src/db.rs:41`, or module and address.
#[must_use]
pub fn location(frame: &Frame) -> String {
    let text = match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", short_file(file)),
        (Some(file), None) => short_file(file).to_owned(),
        _ => format!("{}+{:#x}", frame.module, frame.address),
    };
    printable(&text)
}

/// A frame's function, short.
#[must_use]
pub fn function(frame: &Frame) -> String {
    printable(&short_function(&frame.function))
}

/// The frame that a finding is about: the culprit, or else the innermost one.
#[must_use]
pub fn named_frame(finding: &Finding) -> Option<&Frame> {
    finding.stack.culprit().or(finding.stack.frames.first())
}

/// The culprit as one line: short function and place.
#[must_use]
pub fn place(finding: &Finding) -> String {
    let Some(frame) = named_frame(finding) else {
        return "unknown (no stack)".to_owned();
    };
    let is_nameless =
        frame.function.is_empty() || frame.function.contains(&format!("{:#x}", frame.address));
    match (&frame.file, is_nameless) {
        (Some(_), false) => format!("{} at {}", function(frame), location(frame)),
        (None, false) => format!("{} ({})", function(frame), location(frame)),
        (_, true) => location(frame),
    }
}

/// A kind of wait in a few words.
#[must_use]
pub fn wait(wait: &Wait) -> String {
    let text = match wait {
        Wait::Sleep => "a sleep".to_owned(),
        Wait::Lock => "a lock".to_owned(),
        Wait::File { path } => named("file", "a file", path.as_deref()),
        Wait::Socket { name } => named("", "a socket", name.as_deref()),
        Wait::Pipe { name } => named("", "a pipe", name.as_deref()),
        Wait::Terminal { path } => named("terminal", "a terminal", path.as_deref()),
        Wait::Child => "a child process".to_owned(),
        Wait::Memory => "memory (page faults)".to_owned(),
        Wait::Other => "the kernel".to_owned(),
    };
    printable(&text)
}

fn named(kind: &str, nameless: &str, name: Option<&str>) -> String {
    match name {
        None | Some("") => nameless.to_owned(),
        Some(name) if kind.is_empty() => last_columns(name, LONGEST_NAME),
        Some(name) => format!("{kind} {}", last_columns(name, LONGEST_NAME)),
    }
}

/// `computing`, or `blocked on file /var/x and 2 others (read)`; in addition, if the threads did something else for a good part of the
/// time, that.
#[must_use]
pub fn doing(finding: &Finding) -> String {
    let mut text = match finding.doing {
        Doing::Computing => "computing".to_owned(),
        Doing::Blocked => blocked_on(finding),
    };
    let mut also = Vec::new();
    let mut add = |part_ns: u64, what: &str| {
        if part_ns as f64 >= ALSO * finding.total_ns as f64 && part_ns > 0 {
            also.push(format!("{} {what}", percent(part_ns, finding.total_ns)));
        }
    };
    match finding.doing {
        Doing::Computing => add(finding.blocked_ns, "blocked"),
        Doing::Blocked => add(finding.cpu_ns, "computing"),
    }
    let off_ns = finding
        .total_ns
        .saturating_sub(finding.cpu_ns)
        .saturating_sub(finding.blocked_ns);
    add(off_ns, "waiting for a CPU");
    if !also.is_empty() {
        text += &format!("; {}", also.join(", "));
    }
    text
}

/// `blocked on …`, without what else the threads did.
#[must_use]
pub fn blocked_on(finding: &Finding) -> String {
    let mut text = "blocked".to_owned();
    if let Some(first) = finding.waits_for.first() {
        text += &format!(" on {}", wait(first));
    }
    match finding.waits_for.len() {
        0 | 1 => {}
        2 => text += " and another",
        more => text += &format!(" and {} others", more - 1),
    }
    if let Some(call) = &finding.system_call {
        text += &format!(" ({})", first_columns(&printable(call), LONGEST_NAME));
    }
    text
}

/// `computing` or `blocked`.
#[must_use]
pub fn verb(doing: Doing) -> &'static str {
    match doing {
        Doing::Computing => "computing",
        Doing::Blocked => "blocked",
    }
}

/// A process, by name and number.
#[must_use]
pub fn process(report: &Report) -> String {
    format!(
        "{} (pid {})",
        first_columns(&printable(&report.name), LONGEST_NAME),
        report.pid
    )
}

/// A runtime in a few words.
#[must_use]
pub fn runtime(runtime: &Runtime) -> String {
    let workers = count(runtime.workers.len() as u64, "worker", "workers");
    match runtime.flavor {
        Flavor::MultiThread => format!("multi-thread, {workers}"),
        Flavor::CurrentThread => "current-thread".to_owned(),
        Flavor::Unknown => workers,
    }
}

/// All runtimes of a report.
#[must_use]
pub fn runtimes(report: &Report) -> String {
    /// More are counted only.
    const MOST: usize = 4;
    let runtimes = &report.runtimes;
    if runtimes.is_empty() {
        return "no tokio runtime seen".to_owned();
    }
    let mut list: Vec<String> = runtimes.iter().take(MOST).map(runtime).collect();
    if runtimes.len() > MOST {
        list.push(format!("and {} more", runtimes.len() - MOST));
    }
    format!(
        "{} ({})",
        count(runtimes.len() as u64, "runtime", "runtimes"),
        list.join("; ")
    )
}

/// Facts about a run: process, length, method, runtimes, numbers.
#[must_use]
pub fn run(report: &Report) -> String {
    let method = match report.method {
        Method::Bpf => "observed with BPF",
        Method::Proc => "sampled from /proc",
    };
    format!(
        "{}, {} {method}: {}; {} longer than {} in {}.",
        process(report),
        duration(report.length_ns),
        runtimes(report),
        count(report.polls_in_all, "poll", "polls"),
        threshold(report.longer_than_ns),
        count(report.findings.len() as u64, "place", "places"),
    )
}

/// One sentence that says what the result means.
#[must_use]
pub fn sentence(report: &Report) -> String {
    let (name, run) = (process(report), duration(report.length_ns));
    let limit = threshold(report.longer_than_ns);
    let polls = |number: u64| count(number, "poll", "polls");
    if report.polls_in_all == 0 && report.findings.is_empty() {
        if report.runtimes.is_empty() {
            return format!(
                "No tokio worker of {name} was seen in {run}, so that nothing can be said about its polls."
            );
        }
        let workers: u64 = report
            .runtimes
            .iter()
            .map(|runtime| runtime.workers.len() as u64)
            .sum();
        let who = match workers {
            0 => "its runtime".to_owned(),
            workers => format!("its {}", count(workers, "worker", "workers")),
        };
        let method = match report.method {
            Method::Bpf => "",
            Method::Proc => " (as far as samples of /proc tell, which miss short ones)",
        };
        return format!(
            "No poll of {name} was longer than {limit} in {run}{method}: no task held up {who}."
        );
    }
    let Some(worst) = report.findings.first() else {
        let longest = report.polls.iter().map(|poll| poll.length_ns).max();
        let longest =
            longest.map_or_else(String::new, |ns| format!(", the longest {}", duration(ns)));
        return format!(
            "{} of {name} took longer than {limit} in {run}{longest}, but no stack of them was seen, so that their line is not known.",
            polls(report.polls_in_all)
        );
    };
    let (place, what) = (
        last_columns(&place(worst), 2 * LONGEST_NAME),
        what_it_did(worst),
    );
    let others = report.findings[1..]
        .iter()
        .filter(|finding| finding.unserved_ns > 0)
        .count();
    let others = match others {
        0 => String::new(),
        others => format!(
            " {} held up work, too.",
            count(others as u64, "other place", "other places")
        ),
    };
    if worst.unserved_ns == 0 {
        return format!(
            "No long poll of {name} held up other tasks: other workers served what waited. The most time went to {place}, {what}."
        );
    }
    let unserved = duration(worst.unserved_ns);
    // Of several runtimes, or of polls at the same time, it may be more than the run.
    let share = match worst.unserved_ns <= report.length_ns {
        true => format!(
            " of {run} ({})",
            percent(worst.unserved_ns, report.length_ns)
        ),
        false => String::new(),
    };
    match worst.unserved_ns as f64 >= NOTICED * report.length_ns as f64 {
        true => format!(
            "{place} held up {name}: {what}. Meanwhile no worker served what waited, for {unserved}{share}.{others}"
        ),
        false => format!(
            "{name} was hardly held up: no worker served what waited for {unserved}{share}, most of all because of {place}, {what}.{others}"
        ),
    }
}

/// `312 polls blocked on a file (read), up to 48.2 ms each`
fn what_it_did(finding: &Finding) -> String {
    let what = match finding.doing {
        Doing::Computing => "computing".to_owned(),
        Doing::Blocked => blocked_on(finding),
    };
    match finding.count {
        1 => format!("1 poll {what}, {}", duration(finding.longest_ns)),
        number => format!(
            "{} polls {what}, up to {} each",
            grouped(number),
            duration(finding.longest_ns)
        ),
    }
}

/// Whether a finding held up nothing.
#[must_use]
pub fn is_harmless(finding: &Finding) -> bool {
    finding.unserved_ns == 0
}

/// How to get lines, where culprits have none: a sentence each.
#[must_use]
pub fn hints(report: &Report) -> Vec<String> {
    let lineless: Vec<&Frame> = report
        .findings
        .iter()
        .filter_map(named_frame)
        .filter(|frame| frame.line.is_none() && frame.owner != Owner::C)
        .collect();
    let mut hints = Vec::new();
    if lineless.is_empty() {
        return hints;
    }
    hints.push(
        "The program has no line tables, so that places are functions or addresses: set `debug = \"line-tables-only\"` under \
         `[profile.release]` in Cargo.toml, which costs no speed, and build again."
            .to_owned(),
    );
    if let Some(frame) = lineless.iter().find(|frame| frame.owner == Owner::Unknown) {
        hints.push(format!(
            "The program is stripped: `strip = \"none\"` under `[profile.release]` keeps the names. With an unstripped file of the same \
             build, `addr2line -f -i -C -e {} {:#x}` names the first place.",
            quoted(&file_of(report, frame)),
            frame.address
        ));
    }
    hints
}

/// The path of a frame's module, as far as it is known.
fn file_of(report: &Report, frame: &Frame) -> String {
    let is_program = report.program.rsplit('/').next() == Some(frame.module.as_str());
    printable(if is_program {
        &report.program
    } else {
        &frame.module
    })
}

/// Limits of the report's accuracy: its own notes, and those that follow from its figures.
#[must_use]
pub fn notes(report: &Report) -> Vec<String> {
    let mut notes: Vec<String> = report.notes.iter().map(|note| printable(note)).collect();
    if report.polls_in_all > report.polls.len() as u64 {
        notes.push(format!(
            "The report lists the first {} of {}; findings count all.",
            grouped(report.polls.len() as u64),
            count(report.polls_in_all, "long poll", "long polls"),
        ));
    }
    let going_on = report.polls.iter().filter(|poll| poll.goes_on).count() as u64;
    if going_on > 0 {
        let had = if going_on == 1 { "It is" } else { "They are" };
        notes.push(format!(
            "{} had not ended when the run did. {had} counted with the length until then.",
            count(going_on, "long poll", "long polls"),
        ));
    }
    notes
}

/// A line that tells how a run goes on, for output that is no terminal.
#[must_use]
pub fn progress_line(report: &Report) -> String {
    let mut line = format!(
        "{}: {} longer than {}",
        duration(report.length_ns),
        count(report.polls_in_all, "poll", "polls"),
        threshold(report.longer_than_ns)
    );
    if let Some(worst) = report.findings.first() {
        line += &format!(
            "; worst: {}, {}",
            last_columns(&place(worst), 2 * LONGEST_NAME),
            doing(worst)
        );
        line += &match worst.unserved_ns {
            0 => ", harmless so far".to_owned(),
            ns => format!(", unserved {}", duration(ns)),
        };
    }
    line
}
