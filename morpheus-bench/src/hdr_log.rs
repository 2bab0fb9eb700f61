//! Histograms as a log in HdrHistogram's own format (V2, compressed), which its usual plotters read.

use std::path::Path;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::histogram::Latencies;

/// A histogram and what is written about it.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Its tag: what is measured, in one word. Commas, spaces and line ends become hyphens, as the format has no
    /// place for them.
    pub tag: String,
    /// What it counts, for people: written as a comment.
    pub about: String,
    /// The counts, in nanoseconds.
    pub latencies: &'a Latencies,
}

/// Writes a log of histograms that all were counted between `start` and `start + lasted`.
///
/// # Errors
/// When the file cannot be written; the text says which, and why.
pub fn write(
    path: &Path,
    start: SystemTime,
    lasted: Duration,
    entries: &[Entry],
) -> Result<(), String> {
    render(start, lasted, entries)
        .and_then(|text| std::fs::write(path, text).map_err(|error| error.to_string()))
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

fn render(start: SystemTime, lasted: Duration, entries: &[Entry]) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("latencies in nanoseconds; Interval_Max in milliseconds")
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1e6)
        .begin_log_with(&mut text, &mut serializer)
        .map_err(|error| error.to_string())?;
    for entry in entries {
        let tag = entry.tag.replace([',', ' ', '\n', '\r'], "-");
        let about = entry.about.replace(['\n', '\r'], " ");
        log.write_comment(&format!("{tag}: {about}"))
            .map_err(|error| error.to_string())?;
        let counts = entry.latencies.counts();
        log.write_histogram(counts, Duration::ZERO, lasted, Tag::new(&tag))
            .map_err(|error| format!("{error:?}"))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn a_log_is_read_back() {
        let mut latencies = Latencies::default();
        (1..=1_000).for_each(|i| latencies.record_ns(i * 1_000));
        let entries = [Entry {
            tag: "slack 50,us".into(),
            about: "raw".into(),
            latencies: &latencies,
        }];
        let lasted = Duration::from_secs(2);
        let text = render(SystemTime::now(), lasted, &entries).unwrap();
        let found: Vec<_> = IntervalLogIterator::new(&text)
            .filter_map(|entry| match entry.unwrap() {
                LogEntry::Interval(histogram) => Some(histogram),
                _ => None,
            })
            .collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].tag().unwrap().as_str(), "slack-50-us");
        assert_eq!(found[0].duration(), lasted);
        let encoded = base64(found[0].encoded_histogram());
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut encoded.as_slice())
            .unwrap();
        assert_eq!(&read, latencies.counts());
    }

    /// Decodes, without a dependency for it.
    fn base64(text: &str) -> Vec<u8> {
        let value = |c: u8| match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
        for c in text.bytes().filter(|c| *c != b'=') {
            bits = bits << 6 | u32::from(value(c));
            count += 6;
            if count >= 8 {
                count -= 8;
                bytes.push((bits >> count) as u8);
                bits &= (1 << count) - 1;
            }
        }
        bytes
    }
}
