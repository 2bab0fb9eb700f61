//! wrk: what it is told, and what it says.

use std::fs;
use std::path::PathBuf;
use std::process::{self, Command};
use std::time::Duration;

use serde::Deserialize;

use super::server::supervised;
use crate::interrupt;
use crate::supervised::Supervised;

const PROGRAM: &str = "wrk";

/// What it does with each connection, and how its figures come out.
const SCRIPT: &str = include_str!("load.lua");

/// After the last request was due, for its answer: whole seconds, as wrk has them.
pub const TAIL_S: u32 = 1;
/// wrk may take so much longer, on a slow and busy machine.
const GRACE: Duration = Duration::from_secs(30);

/// Its version.
///
/// # Errors
/// There is none; the text says how to get it.
pub fn version() -> Result<String, String> {
    // It says its version, and then that it lacks a URL, with exit code 1.
    let output = Command::new(PROGRAM).arg("-v").output().map_err(|error| {
        format!("{PROGRAM} cannot be run ({error}). It makes the load; Debian and Ubuntu have it as the package wrk.")
    })?;
    let said = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = said.split_whitespace().take(2).collect();
    match words.as_slice() {
        [PROGRAM, version] => Ok((*version).to_owned()),
        _ => Err(format!("{PROGRAM} does not say its version: {said}")),
    }
}

/// The script as a file, until this is dropped.
pub struct Script(PathBuf);

impl Script {
    /// Writes it.
    ///
    /// # Errors
    /// The directory for temporary files cannot be written.
    pub fn write() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("morpheus-service-{}.lua", process::id()));
        fs::write(&path, SCRIPT).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where.
    pub url: String,
    /// By so many connections.
    pub connections: usize,
    /// Each so often; `None`: again at once.
    pub period: Option<Duration>,
    /// For so long.
    pub seconds: u32,
    /// Every how many requests is a write; 0: none.
    pub writes: u32,
}

/// What it says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Said {
    /// How long it lasted.
    pub duration_us: u64,
    /// Answers, of whatever status.
    pub answered: u64,
    /// Those that told of an error.
    pub bad_status: u64,
    /// Connections that could not be made, or broke.
    pub broken: u64,
    /// Answers, each from when it was due. Only with a timetable.
    pub late_us: Vec<u64>,
    /// The same, from when it was sent.
    pub took_us: Vec<u64>,
    /// What was due and has no answer: how long ago it was due.
    pub unanswered_us: Vec<u64>,
}

/// One that is running.
pub struct Wrk(Supervised);

impl Wrk {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(script: &Script, load: &Load) -> Result<Self, String> {
        supervised(&mut command(script, load)).map(Self)
    }

    /// Waits for its end. `tick` is called a few times a second.
    ///
    /// # Errors
    /// It failed, said nothing, was told of errors by the service, or Ctrl-C came.
    pub fn finish(mut self, load: &Load, mut tick: impl FnMut()) -> Result<Said, String> {
        let mut left = Duration::from_secs((load.seconds + TAIL_S).into()) + GRACE;
        let step = Duration::from_millis(100);
        let status = loop {
            if interrupt::happened() {
                return Err("ended by Ctrl-C".into());
            }
            if let Some(status) = self.0.wait(step, |_| tick()) {
                break status;
            }
            left = left.saturating_sub(step);
            if left.is_zero() {
                return Err(format!("{PROGRAM} does not come to its end, killed"));
            }
        };
        read(&self.0.output()).map_err(|why| format!("{PROGRAM}, {status}: {why}"))
    }
}

fn command(script: &Script, load: &Load) -> Command {
    let seconds = load.seconds + if load.period.is_some() { TAIL_S } else { 0 };
    // With a timetable, a thread for each: what the script keeps is of its thread.
    let threads = load.period.map_or(1, |_| load.connections);
    let period_ms = load.period.unwrap_or_default().as_secs_f64() * 1e3;
    let mut command = Command::new(PROGRAM);
    command
        .arg(format!("-t{threads}"))
        .arg(format!("-c{}", load.connections))
        .arg(format!("-d{seconds}s"))
        // Longer than it lasts: no answer is left out for being late.
        .arg(format!("--timeout={}s", seconds + 2))
        .arg("-s")
        .arg(&script.0)
        .arg(&load.url)
        .arg("--")
        .args([period_ms.to_string(), load.seconds.to_string()])
        .arg(load.writes.to_string());
    command
}

/// Reads the line that the script prints, which is the last.
fn read(output: &str) -> Result<Said, String> {
    let line = output.lines().rev().find(|line| line.starts_with('{'));
    let line = line.ok_or_else(|| format!("no figures, but {:?}", output.trim()))?;
    let said: Said = serde_json::from_str(line).map_err(|error| format!("{error} in {line}"))?;
    if said.bad_status > 0 {
        return Err(format!(
            "{} of {} answers tell of an error",
            said.bad_status, said.answered
        ));
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"Running 1s test @ http://127.0.0.1:1/ping
  1 threads and 2 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    85.00us   13.00us 300.00us   90.00%
Requests/sec:    199.00

{"duration_us":1000000,"answered":3,"bad_status":0,"broken":1,"p50_us":85,"max_us":300,"late_us":[70,85,300],"took_us":[70,85,90],"unanswered_us":[900000]}
"#;

    #[test]
    fn the_line_with_the_figures_is_found_and_read() {
        let said = read(OUTPUT).unwrap();
        assert_eq!(said.answered, 3);
        assert_eq!(said.late_us, [70, 85, 300]);
        assert_eq!(said.took_us, [70, 85, 90]);
        assert_eq!(said.unanswered_us, [900_000]);
        assert_eq!((said.duration_us, said.broken), (1_000_000, 1));
    }

    #[test]
    fn what_is_no_success_is_said() {
        let error = read("unable to connect to 127.0.0.1:1 Connection refused").unwrap_err();
        assert!(error.contains("unable to connect"), "{error}");
        let error = read(&OUTPUT.replace(r#""bad_status":0"#, r#""bad_status":2"#)).unwrap_err();
        assert!(error.contains("2 of 3 answers tell of an error"), "{error}");
        assert!(read(&OUTPUT.replace("900000", "x")).is_err());
    }

    #[test]
    fn a_timetable_takes_a_thread_for_each_connection_and_time_for_the_last_answer() {
        let load = |period| Load {
            url: "http://here/".into(),
            connections: 4,
            period,
            seconds: 5,
            writes: 2,
        };
        let line = |period| {
            let command = command(&Script("/nonexistent/load.lua".into()), &load(period));
            let words: Vec<_> = command
                .get_args()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            words.join(" ")
        };
        assert_eq!(
            line(Some(Duration::from_millis(8))),
            "-t4 -c4 -d6s --timeout=8s -s /nonexistent/load.lua http://here/ -- 8 5 2"
        );
        assert_eq!(
            line(None),
            "-t1 -c4 -d5s --timeout=7s -s /nonexistent/load.lua http://here/ -- 0 5 2"
        );
    }
}
