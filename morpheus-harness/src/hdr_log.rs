//! Histograms as a log in HdrHistogram's own format (V2, compressed), which its usual plotters read; and such a log read
//! again.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};

use crate::histogram::Latencies;
use crate::rows::view::named;

/// A histogram and what is written about it.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Its tag: what is measured, in one word. Commas, spaces and line ends become hyphens, as the format has no
    /// place for them.
    pub tag: String,
    /// A description of the counts for people, written as a comment.
    pub about: String,
    /// The counts, in nanoseconds.
    pub latencies: &'a Latencies,
}

impl<'a> Entry<'a> {
    /// An entry of these.
    pub fn new(tag: impl Into<String>, about: impl Into<String>, latencies: &'a Latencies) -> Self {
        Self {
            tag: tag.into(),
            about: about.into(),
            latencies,
        }
    }
}

/// Writes a log of histograms that all were counted between `start` and `start + lasted`, where one was asked for.
///
/// # Errors
/// When the file cannot be written; the text says which, and why.
pub fn write<'a>(
    path: Option<&Path>,
    start: SystemTime,
    lasted: Duration,
    entries: impl IntoIterator<Item = Entry<'a>>,
) -> Result<(), String> {
    let Some(path) = path else {
        return Ok(());
    };
    render(start, lasted, &entries.into_iter().collect::<Vec<_>>())
        .and_then(|text| std::fs::write(path, text).map_err(|error| error.to_string()))
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// The same as bytes.
///
/// # Errors
/// When a histogram cannot be put into the format.
pub fn render(start: SystemTime, lasted: Duration, entries: &[Entry]) -> Result<Vec<u8>, String> {
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

/// A histogram is no larger than this when it is not compressed: three digits up to an hour take a tenth of it.
const LARGEST: u32 = 8 << 20;
/// Before the histogram, in what is compressed and in what is not: a magic number and a length, four bytes each.
const HEADER: usize = 8;

/// The histograms of a log, with their tags; histograms with the same tag (one for each interval) are added up.
///
/// # Errors
/// When something in it is no log of HdrHistogram, or there is no histogram.
pub fn read(text: &[u8]) -> Result<Vec<(String, Latencies)>, String> {
    let no_log = |why: &str| format!("is no log of HdrHistogram (V2, compressed): {why}");
    let mut found: Vec<(String, Latencies)> = Vec::new();
    let mut deserializer = Deserializer::new();
    for entry in IntervalLogIterator::new(text) {
        let LogEntry::Interval(interval) = entry.map_err(|_| no_log("a line cannot be read"))?
        else {
            continue;
        };
        let bytes = STANDARD
            .decode(interval.encoded_histogram())
            .map_err(|error| no_log(&error.to_string()))?;
        let length = length_of(&bytes).ok_or_else(|| no_log("a histogram is cut off"))?;
        if length > LARGEST {
            return Err(no_log("a histogram is too large"));
        }
        let counts: Histogram<u64> = deserializer
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| no_log(&format!("{error:?}")))?;
        let tag = interval.tag().map_or("histogram", |tag| tag.as_str());
        named(&mut found, tag.to_owned()).add_counts(&counts);
    }
    if found.is_empty() {
        return Err(no_log("there is no histogram in it"));
    }
    Ok(found)
}

/// The size that a histogram declares: the amount of memory that would be taken before anything is read.
fn length_of(compressed: &[u8]) -> Option<u32> {
    let mut header = [0; HEADER];
    ZlibDecoder::new(compressed.get(HEADER..)?)
        .read_exact(&mut header)
        .ok()?;
    let [.., a, b, c, d] = header;
    Some(u32::from_be_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(found[0].duration(), lasted);
        let read = read(&text).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].0, "slack-50-us");
        assert_eq!(read[0].1.counts(), latencies.counts());
    }

    #[test]
    fn intervals_with_one_tag_are_added_up() {
        let mut latencies = Latencies::default();
        latencies.record_ns(5_000);
        let entry = |tag: &str| Entry {
            tag: tag.into(),
            about: String::new(),
            latencies: &latencies,
        };
        let entries = [entry("a"), entry("b"), entry("a")];
        let text = render(SystemTime::now(), Duration::from_secs(1), &entries).unwrap();
        let counted: Vec<(String, u64)> = read(&text)
            .unwrap()
            .into_iter()
            .map(|(tag, latencies)| (tag, latencies.len()))
            .collect();
        assert_eq!(counted, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let mut latencies = Latencies::default();
        latencies.record_ns(5_000);
        let entries = [Entry {
            tag: "a".into(),
            about: String::new(),
            latencies: &latencies,
        }];
        let good = render(SystemTime::now(), Duration::from_secs(1), &entries).unwrap();
        let good = String::from_utf8(good).unwrap();
        let begin = good.find("HIST").unwrap();
        let cut = &good[..begin + 24];
        let other = good.replace("HIST", "hist");
        for bad in ["", "#comment\n", "hello\n", "{\"a\": 1}\n", cut, &other] {
            assert!(
                read(bad.as_bytes()).unwrap_err().contains("no log"),
                "{bad}"
            );
        }
        assert!(read(&[0xff; 100]).is_err());
        // Every single byte wrong: an error or another histogram, and nothing worse.
        for i in 0..good.len() {
            let mut wrong = good.clone().into_bytes();
            wrong[i] ^= 1;
            let _ = read(&wrong);
        }
    }

    #[test]
    fn a_histogram_that_claims_to_be_huge_is_refused() {
        use std::io::Write;
        let mut inner = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        let claim = [&[0x1c, 0x84, 0x93, 0x13], &u32::MAX.to_be_bytes()[..]].concat();
        inner.write_all(&claim).unwrap();
        inner.write_all(&[0; 64]).unwrap();
        let inner = inner.finish().unwrap();
        let length = (inner.len() as u32).to_be_bytes();
        let outer = [&[0x1c, 0x84, 0x93, 0x14], &length[..], &inner].concat();
        let text = format!("0.000,1.000,1.000,{}\n", STANDARD.encode(outer));
        assert!(read(text.as_bytes()).unwrap_err().contains("too large"));
    }
}
