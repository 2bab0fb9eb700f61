//! Criterion's benches at a small size, and their medians in one file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::context::Context;
use crate::suite::{LIMIT, run_to_end};

/// Runs them, and writes their medians to `file`. Returns how many there are.
///
/// # Errors
///
/// One fails, or criterion's own files cannot be read.
pub(crate) fn measure(context: &Context, file: &Path) -> io::Result<usize> {
    let begun = SystemTime::now();
    let mut bench = context.cargo();
    bench.args(["bench", "-p", "morpheus-bench", "--", "--noplot"]);
    bench.args(["--warm-up-time", "0.5", "--measurement-time", "1.5"]);
    run_to_end(&mut bench, LIMIT)?;
    let mut medians = Vec::new();
    collect(&context.target.join("criterion"), begun, &mut medians)?;
    medians.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let all = json!({ "bench": "criterion", "medians": medians });
    fs::write(file, format!("{all}\n"))?;
    Ok(medians.len())
}

/// Collects the medians below `directory` that were written since.
fn collect(directory: &Path, since: SystemTime, medians: &mut Vec<Value>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        if path.ends_with("new") {
            medians.extend(one(&path, since)?);
        } else {
            collect(&path, since, medians)?;
        }
    }
    Ok(())
}

/// The median of one bench, unless it is of an earlier run.
fn one(directory: &Path, since: SystemTime) -> io::Result<Option<Value>> {
    let estimates = directory.join("estimates.json");
    if fs::metadata(&estimates)?.modified()? < since {
        return Ok(None);
    }
    let about = read(&directory.join("benchmark.json"))?;
    let median = &read(&estimates)?["median"];
    let interval = &median["confidence_interval"];
    Ok(Some(json!({
        "name": about["full_id"],
        "median_ns": median["point_estimate"],
        "low_ns": interval["lower_bound"],
        "high_ns": interval["upper_bound"],
    })))
}

fn read(path: &PathBuf) -> io::Result<Value> {
    let bytes = fs::read(path)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_measured_since_is_collected_and_what_is_older_is_not() {
        let root = std::env::temp_dir().join(format!("xtask-criterion-{}", std::process::id()));
        let new = root.join("spawn/watched/new");
        fs::create_dir_all(&new).unwrap();
        fs::write(new.join("benchmark.json"), r#"{"full_id":"spawn/watched"}"#).unwrap();
        let estimates = r#"{"median":{"point_estimate":5.5,"confidence_interval":{"lower_bound":5,"upper_bound":6}}}"#;
        fs::write(new.join("estimates.json"), estimates).unwrap();
        let now = SystemTime::now();
        let mut found = Vec::new();
        collect(&root, now - Duration::from_secs(60), &mut found).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["name"], "spawn/watched");
        assert_eq!(found[0]["median_ns"], 5.5);
        found.clear();
        collect(&root, now + Duration::from_secs(60), &mut found).unwrap();
        assert!(found.is_empty());
        fs::remove_dir_all(root).unwrap();
    }
}
