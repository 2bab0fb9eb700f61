//! Counting: runs this program under callgrind, and reads what it has written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use morpheus_harness::interrupt;
use morpheus_harness::progress::Progress;
use tempfile::TempDir;

use super::ops::{MEASUREMENTS, Measurement, N, PART_ENDS, ROUNDS};

/// Longer than it takes on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(600);
/// About as long as it takes.
const EXPECTED: Duration = Duration::from_secs(15);
/// The worker executes at least this many times as many instructions as any other thread while it is measured.
const MOSTLY: u64 = 2;

/// Instructions of one operation.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Which.
    pub measurement: Measurement,
    /// In each round. Tokio looks at the clock to tune itself, and does so once more in one round or another.
    pub rounds: Vec<f64>,
}

/// Counts all measurements.
///
/// # Errors
/// When valgrind is not there, fails, or has not written what is expected of it.
pub fn count() -> Result<Vec<Counted>, String> {
    let directory = TempDir::with_prefix("instructions-")
        .map_err(|error| format!("temporary directory: {error}"))?;
    run(&directory.path().join("counts"))?;
    evaluate(&read(directory.path())?)
}

fn run(out: &Path) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| format!("no own program: {error}"))?;
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--separate-threads=yes", "--quiet"])
        .arg(format!("--dump-before={PART_ENDS}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(own)
        .arg("--child")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        format!("valgrind cannot be run: {error}; install it (apt-get install valgrind)")
    })?;
    let progress = Progress::new(EXPECTED, false);
    progress.say("counting".into());
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if interrupt::happened() || begun.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("no counts within {} s", LIMIT.as_secs()));
        }
        progress.tick(begun.elapsed().min(EXPECTED));
        std::thread::sleep(Duration::from_millis(50));
    };
    progress.clear();
    if status.success() {
        return Ok(());
    }
    let said = child.stderr.take().map(std::io::read_to_string);
    let said = said.and_then(Result::ok).unwrap_or_default();
    let last = said.trim().lines().last().unwrap_or("it says nothing");
    Err(format!("valgrind: {status}: {last}"))
}

/// Instructions by part and thread.
type Parts = BTreeMap<u64, Vec<u64>>;

fn read(directory: &Path) -> Result<Parts, String> {
    let mut parts = Parts::new();
    let files = fs::read_dir(directory).map_err(|error| error.to_string())?;
    for file in files.flatten() {
        let text = fs::read_to_string(file.path()).map_err(|error| error.to_string())?;
        if let Some((part, instructions)) = one(&text) {
            parts.entry(part).or_default().push(instructions);
        }
    }
    Ok(parts)
}

/// The part and the instructions of one file: one thread's.
fn one(text: &str) -> Option<(u64, u64)> {
    let number = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some((
        number("part: ")?,
        number("totals: ").or_else(|| number("summary: "))?,
    ))
}

/// Of each round three parts: what was before it, N operations, and 2 N.
fn evaluate(parts: &Parts) -> Result<Vec<Counted>, String> {
    let least = MEASUREMENTS.len() * ROUNDS * 3;
    if parts.len() < least {
        return Err(format!(
            "callgrind wrote {} parts, and not {least}: is this a build with its symbols?",
            parts.len()
        ));
    }
    let mut number = 1;
    let mut counted = Vec::new();
    for measurement in MEASUREMENTS {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let once = of_worker(parts, number + 1)?;
            let twice = of_worker(parts, number + 2)?;
            number += 3;
            rounds.push((twice as f64 - once as f64) / N as f64);
        }
        counted.push(Counted {
            measurement: *measurement,
            rounds,
        });
    }
    Ok(counted)
}

/// The worker is the thread with the most instructions, by far.
fn of_worker(parts: &Parts, number: u64) -> Result<u64, String> {
    let mut threads = parts
        .get(&number)
        .ok_or_else(|| format!("part {number} is missing"))?
        .clone();
    threads.sort_unstable();
    let most = threads.pop().unwrap_or(0);
    let next = threads.pop().unwrap_or(0);
    if most == 0 || most < next * MOSTLY {
        return Err(format!(
            "part {number}: {most} instructions in one thread and {next} in another: which is the worker is not clear"
        ));
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read() {
        let text = "# callgrind format\nversion: 1\npid: 7\npart: 3\nthread: 2\n\nevents: Ir\nfn=(1) x\n1 5\n\ntotals: 1234\n";
        assert_eq!(one(text), Some((3, 1234)));
        assert_eq!(one("part: 3\nsummary: 77\n"), Some((3, 77)));
        assert_eq!(one("something else"), None);
    }

    #[test]
    fn operations_are_what_twice_as_many_take_more() {
        let mut parts = Parts::new();
        for round in 0..(MEASUREMENTS.len() * ROUNDS) as u64 {
            parts.insert(3 * round + 1, vec![999_999_999]);
            parts.insert(3 * round + 2, vec![500 + 10 * N, 7]);
            parts.insert(3 * round + 3, vec![7, 500 + 20 * N + round % 3]);
        }
        let counted = evaluate(&parts).unwrap();
        assert_eq!(counted.len(), MEASUREMENTS.len());
        for one in counted {
            let is_ten = |each: &f64| (each - 10.0).abs() < 0.01;
            assert!(
                one.rounds.len() == ROUNDS && one.rounds.iter().all(is_ten),
                "{one:?}"
            );
        }
        parts.insert(2, vec![1_000, 900]);
        assert!(evaluate(&parts).unwrap_err().contains("not clear"));
        parts.remove(&2);
        assert!(evaluate(&parts).unwrap_err().contains("and not"));
    }
}
