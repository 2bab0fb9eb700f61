//! The contents of files. They are claims: a number may be missing, absurd or something else, a file of any size and depth.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::record::first_in;

/// Larger files are not read.
const LARGEST: u64 = 32 << 20;
/// Greater numbers are no measurements: as nanoseconds, thirty years.
const GREATEST: f64 = 1e18;
/// Longer texts are cut.
const LONGEST: usize = 2_000;

/// Reads a file.
///
/// # Errors
/// When it cannot be read, is no file, or too large.
pub fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    // Opening a pipe would block until another process opens it for writing.
    let about = fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err("is no ordinary file".into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!(
            "is larger than {} MiB, which no benchmark writes: leave it out, or measure less at once",
            LARGEST >> 20
        ));
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("is empty: what was to write it failed, or is not done".into());
    }
    Ok(bytes)
}

/// The objects of a file: one, or one a line. Lines that are none are passed over, for a guest's console says other
/// things, too.
///
/// # Errors
/// When there is none.
pub fn objects(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let whole = serde_json::from_slice::<Value>(bytes);
    let error = match whole {
        Ok(value) if value.is_object() => return Ok(vec![value]),
        Ok(_) => return Err("is JSON, but no object: write the output of --json to it".into()),
        Err(error) => error,
    };
    let text = String::from_utf8_lossy(bytes);
    let found: Vec<Value> = text
        .lines()
        .filter(|line| line.trim_start().starts_with('{'))
        .filter_map(first_in::<Value>)
        .filter(Value::is_object)
        .collect();
    if found.is_empty() {
        let why = cut(&error.to_string());
        return Err(format!(
            "is no JSON ({why}): write the output of --json to it, and nothing else"
        ));
    }
    Ok(found)
}

fn cut(text: &str) -> String {
    let mut cut: String = text.chars().take(LONGEST).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

/// The value of this name.
pub fn at<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.get(name).filter(|found| !found.is_null())
}

/// A number that may have been measured.
pub fn number(value: &Value, name: &str) -> Option<f64> {
    at(value, name).and_then(plain_number)
}

/// The value itself as such a number.
pub fn plain_number(value: &Value) -> Option<f64> {
    value
        .as_f64()
        .filter(|x| x.is_finite() && x.abs() <= GREATEST)
}

/// A text, cut where it is longer than any that a benchmark writes.
pub fn text(value: &Value, name: &str) -> Option<String> {
    at(value, name)?.as_str().map(cut)
}

/// Whether it says true.
pub fn yes(value: &Value, name: &str) -> bool {
    at(value, name).and_then(Value::as_bool) == Some(true)
}

/// A list; empty where there is none.
pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    at(value, name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The texts of a list.
pub fn texts(value: &Value, name: &str) -> Vec<String> {
    let texts = list(value, name).iter().filter_map(Value::as_str);
    texts.map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_or_absurd_is_nothing() {
        let value = json!({
            "a": { "n": 3, "null": null, "text": "x", "list": [1, "two", null, 3.5] },
            "large": 1e300,
            "yes": true,
        });
        let a = &value["a"];
        assert_eq!(number(a, "n"), Some(3.0));
        for name in ["null", "text", "none", "list"] {
            assert_eq!(number(a, name), None, "{name}");
        }
        for name in ["a.n", "b", "large", "a", ""] {
            assert_eq!(number(&value, name), None, "{name}");
        }
        assert_eq!(number(&a["n"], "n"), None, "a number has no names");
        assert_eq!(texts(a, "list"), ["two"]);
        assert!(yes(&value, "yes") && !yes(a, "n"));
        let long = text(&json!({ "t": "ä".repeat(5_000) }), "t").unwrap();
        assert_eq!(long.chars().count(), LONGEST + 1);
    }

    #[test]
    fn one_object_or_one_a_line() {
        assert_eq!(objects(b"{\"a\": 1}\n").unwrap().len(), 1);
        assert_eq!(objects(b"{\n\"a\":\n1}").unwrap().len(), 1);
        let lines = b"booting\n{\"a\":1}\n[ 1.0] panic\n{\"b\":2}vm: done\n{\"cut\":";
        assert_eq!(objects(lines).unwrap().len(), 2);
    }

    #[test]
    fn nonsense_is_refused_with_what_to_do() {
        let deep = "[".repeat(100_000);
        for bad in [
            "hello",
            "{\"a\": NaN}",
            "{\"a\": 1e999}",
            "{",
            &deep,
            "\u{0}",
        ] {
            let error = objects(bad.as_bytes()).unwrap_err();
            assert!(
                error.contains("no JSON") && error.contains("--json"),
                "{error}"
            );
            assert!(error.len() < 1_000);
        }
        assert!(objects(b"[1, 2]").unwrap_err().contains("no object"));
        assert!(objects(&[0xff, 0xfe, b'{']).is_err());
    }

    #[test]
    fn files_that_are_none_are_said() {
        let directory = std::env::temp_dir().join(format!("claims-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        assert!(bytes(&directory).unwrap_err().contains("no ordinary file"));
        assert!(
            bytes(&directory.join("none"))
                .unwrap_err()
                .contains("cannot be read")
        );
        let file = directory.join("file");
        fs::write(&file, "\n").unwrap();
        assert!(bytes(&file).unwrap_err().contains("is empty"));
        File::create(&file).unwrap().set_len(LARGEST + 1).unwrap();
        assert!(bytes(&file).unwrap_err().contains("larger than 32 MiB"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
