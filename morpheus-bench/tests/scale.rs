//! The binary as its users call it, where it changes nothing: under whatever schedules this machine.

mod common;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use morpheus_bench::scale::case::{Case, Suite};
use morpheus_bench::scale::result::Run;
use morpheus_harness::record::Record;
use morpheus_harness::report::WIDTH;

const PROGRAM: &str = env!("CARGO_BIN_EXE_scale");

/// Nothing is changed, and hardly anything measured.
const QUICK: &str = "--schedulers current --iterations 1 --duration 0.2";

fn scale(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

/// The output of a successful call.
fn printed(arguments: &str) -> String {
    let output = scale(arguments);
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The records of a successful call.
fn runs(arguments: &str) -> Vec<Run> {
    let text = printed(&format!("{arguments} --json"));
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    assert!(
        matches!(lines.next(), Some(Record::<Run>::Host(_))),
        "{text}"
    );
    lines
        .map(|record| match record {
            Record::Run(run) => run,
            Record::Host(_) => panic!("one host is enough: {text}"),
        })
        .collect()
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("scale-{name}-{}", std::process::id()))
}

#[test]
fn every_case_measures_what_it_says() {
    let runs = runs(QUICK);
    let cases: Vec<Case> = runs.iter().map(|run| run.case).collect();
    assert_eq!(cases, Suite::Scale.cases());
    for run in &runs {
        let measured = run.measured.as_ref().unwrap();
        assert_eq!((run.failed.as_ref(), run.iteration), (None, 1), "{run:?}");
        assert!(measured.count > 0 && measured.wall_ns > 0, "{run:?}");
        assert_eq!(run.scheduler, "current");
        if let Some(latency) = &measured.latency_ns {
            assert!(latency.p50 <= latency.max && latency.n > 0, "{run:?}");
        }
        match run.case {
            // A percentile of 40 wakes is none.
            Case::Latency | Case::Burst | Case::Longrun | Case::Mixed => {
                assert_eq!(measured.value, None, "{run:?}");
            }
            Case::Deadline => assert!((0.0..=1.0).contains(&measured.value.unwrap())),
            Case::Throughput => {
                // No process computes longer than it lasts.
                let cpu_ns = measured.cpu_ns.unwrap();
                assert!(cpu_ns > 0 && cpu_ns <= measured.wall_ns * run.cpus as u64);
                assert!(measured.value.unwrap() > 100e3, "{run:?}");
            }
            Case::Messaging | Case::Pipe => assert!(measured.value.unwrap() > 100.0, "{run:?}"),
            _ => {}
        }
    }
}

#[test]
fn people_get_a_table_prometheus_a_file_and_records_can_be_read_again() {
    let (prom, records) = (file("figures.prom"), file("records.jsonl"));
    let only = format!("{QUICK} --only launch,messaging --iterations 2");
    let only = only.replacen("--iterations 1", "", 1);
    let text = printed(&format!("{only} --prom {}", prom.display()));
    let expected = [
        "launch, medians",
        "launch p50",
        "messaging, medians",
        "messages/s",
        "current",
        "iterations 2",
    ];
    common::assert_table(&text, WIDTH, &expected);
    let figures = fs::read_to_string(&prom).unwrap();
    assert!(
        figures.contains("morpheus_scale_per_second{case=\"messaging\",scheduler=\"current\"")
            && figures.contains("morpheus_scale_seconds{case=\"launch\""),
        "{figures}"
    );

    let json = printed(&format!("{only} --json"));
    fs::write(&records, format!("vm: a guest says this\n{json}")).unwrap();
    let again = printed(&format!("--from {0} {0}", records.display()));
    common::assert_table(&again, WIDTH, &["launch p50", "iterations 4"]);
    fs::remove_file(prom).unwrap();
    fs::remove_file(records).unwrap();
}

/// Records of three iterations are read again, so that nothing has to be scheduled.
#[test]
fn a_missed_bar_is_a_failure_where_that_is_asked_for() {
    let code = |times: f64| {
        let records = file(&format!("strict-{times}"));
        let run = |scheduler: &str, iteration: usize, value: f64| {
            format!(
                r#"{{"record":"run","bench":"scale","case":"pipe","scheduler":"{scheduler}","ops":null,"cpus":2,"iteration":{iteration},"failed":null,"measured":{{"value":{value},"latency_ns":null,"count":1,"wall_ns":1,"cpu_ns":null,"soak":null}}}}"#
            )
        };
        let iterations = (1..=3).flat_map(|iteration| {
            let own = run("morpheus", iteration, 1000.0 * times);
            [run("default", iteration, 1000.0), own]
        });
        let lines: Vec<String> = iterations.collect();
        fs::write(&records, lines.join("\n")).unwrap();
        let codes = ["", "--strict "].map(|strict| {
            let output = scale(&format!("{strict}--from {}", records.display()));
            let said = String::from_utf8(output.stderr).unwrap();
            let names = said.contains("pipe: morpheus, ÷ default at least");
            assert_eq!(names, output.status.code() == Some(1), "{said}");
            output.status.code()
        });
        fs::remove_file(records).unwrap();
        codes
    };
    assert_eq!(code(0.5), [Some(0), Some(1)]);
    assert_eq!(code(1.0), [Some(0), Some(0)]);
}

#[test]
fn the_list_has_all_cases_and_needs_nothing() {
    let text = printed("--list");
    for case in Suite::Scale.cases() {
        assert!(text.contains(&case.name()), "{text}");
    }
    common::assert_table(&text, WIDTH, &["frames missed"]);
}

#[test]
fn what_is_not_there_is_said_before_anything_changes() {
    let output = scale("--schedulers default,no-such-scheduler --only pipe --iterations 1");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    // Without root that is what is missing first.
    assert!(
        said.contains("no program no-such-scheduler") || said.contains("needs root"),
        "{said}"
    );
    assert_eq!(scale("--from /nonexistent").status.code(), Some(1));
}

#[test]
fn what_it_calls_itself_for_says_so_to_others() {
    for arguments in ["--child", "--restorer"] {
        let output = common::command(PROGRAM, arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("no job on stdin"), "{said}");
    }
}

/// A killed benchmark leaves behind a pipe that is closed.
#[test]
fn cpus_come_back_when_the_pipe_is_closed() {
    let directory = file("cpus");
    let online = |cpu: usize| directory.join(format!("cpu{cpu}/online"));
    for cpu in [2, 3] {
        fs::create_dir_all(online(cpu).parent().unwrap()).unwrap();
        fs::write(online(cpu), "0").unwrap();
    }
    let mut restorer = common::command(PROGRAM, "--restorer")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = restorer.stdin.take().unwrap();
    let job = serde_json::json!({ "directory": directory, "cpus": [2, 3] });
    writeln!(word, "{job}").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(fs::read_to_string(online(2)).unwrap(), "0", "not yet");
    drop(word);
    assert!(restorer.wait().unwrap().success());
    for cpu in [2, 3] {
        assert_eq!(fs::read_to_string(online(cpu)).unwrap(), "1");
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn ctrl_c_shows_what_was_measured() {
    let line = format!("{QUICK} --only messaging --iterations 500 --json");
    let line = line.replacen("--iterations 1 ", "", 1);
    let mut command = common::command(PROGRAM, &line);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    // SAFETY: kill touches no memory; the child has not been waited for, so the number is its own.
    let killed = unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    assert_eq!(killed, 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let runs = text
        .lines()
        .filter_map(|line| match serde_json::from_str(line).unwrap() {
            Record::Run::<Run>(run) => Some(run),
            Record::Host(_) => None,
        });
    let runs: Vec<Run> = runs.collect();
    assert!(!runs.is_empty() && runs.len() < 500, "{}", runs.len());
    assert!(runs.iter().all(|run| run.failed.is_none()), "{runs:?}");
}
