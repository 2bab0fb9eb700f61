//! The file of a history: a header, and two rings of slots that are written again and again.
//!
//! A slot is written whole, with a checksum of its own, in the place that its number gives it. So there is no end to keep on
//! the disk: a crash loses the record that was being written and those that the system had not brought to the disk yet, and
//! nothing else. The file has its full size, 645,184 bytes, from the start.
//!
//! All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `MORPHIST` |
//! | 4 | version: 1 |
//! | 4 | bytes of a slot: 128 |
//! | 4 each | slots of the seconds and of the minutes: 3600, 1440 |
//! | 36 | zeros |
//! | 4 | CRC-32 (IEEE) of all before |
//! | 128 each | the seconds, then the minutes: [`record`](super::record). Record `n` is in slot `n` modulo their number |

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::Resolution;
use super::record::{RECORD_BYTES, Record};

const MAGIC: [u8; 8] = *b"MORPHIST";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const SLOTS: usize = (Resolution::Seconds.slots() + Resolution::Minutes.slots()) as usize;
/// The size of a file on the disk, in bytes.
pub const FILE_BYTES: usize = HEADER_BYTES + SLOTS * RECORD_BYTES;

/// Why there is no history.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a directory, a socket, or a link where it is to be written.
    #[error("{}: this is no regular file", .0.display())]
    NotAFile(PathBuf),
    /// It does not begin as one, or its header is damaged.
    #[error("{}: this is no history of scx_morpheus; remove it, or name another file", .0.display())]
    NotAHistory(PathBuf),
    /// It is of another release.
    #[error(
        "{}: this history has the format {found}, and this release reads {VERSION}; remove it, or name another file", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version that it has.
        found: u32,
    },
    /// Two daemons would overwrite each other's records.
    #[error("{}: another daemon writes this history; name another file", .0.display())]
    InUse(PathBuf),
}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// By the second, the oldest first.
    pub seconds: Vec<Record>,
    /// By the minute, the oldest first.
    pub minutes: Vec<Record>,
    /// Slots that cannot be read: a crash, or a write that was going on.
    pub damaged: usize,
}

impl History {
    /// The records of a resolution.
    #[must_use]
    pub fn of(&self, resolution: Resolution) -> &[Record] {
        match resolution {
            Resolution::Seconds => &self.seconds,
            Resolution::Minutes => &self.minutes,
        }
    }
}

fn header() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    let numbers = [
        VERSION,
        RECORD_BYTES as u32,
        Resolution::Seconds.slots(),
        Resolution::Minutes.slots(),
    ];
    for (index, number) in numbers.into_iter().enumerate() {
        bytes[8 + 4 * index..][..4].copy_from_slice(&number.to_le_bytes());
    }
    let checksum = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Refuses what does not begin as a history of this version.
fn check_header(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let Some((bytes, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Error::NotAHistory(path.to_owned()));
    };
    if *bytes == header() {
        return Ok(());
    }
    let found = u32::from_le_bytes(bytes[8..12].try_into().expect("four"));
    if bytes.starts_with(&MAGIC) && found != VERSION {
        let path = path.to_owned();
        return Err(Error::Version { path, found });
    }
    Err(Error::NotAHistory(path.to_owned()))
}

/// Where a ring begins in the file.
fn offset(resolution: Resolution) -> usize {
    match resolution {
        Resolution::Seconds => HEADER_BYTES,
        Resolution::Minutes => HEADER_BYTES + Resolution::Seconds.slots() as usize * RECORD_BYTES,
    }
}

fn slot_of(resolution: Resolution, number: u64) -> usize {
    (number % u64::from(resolution.slots())) as usize
}

/// The records of a ring by their numbers, and how many slots are damaged. A ring that is cut off has fewer.
fn ring(bytes: &[u8], resolution: Resolution) -> (Vec<(u64, Record)>, usize) {
    let from = offset(resolution).min(bytes.len());
    let to = (offset(resolution) + resolution.slots() as usize * RECORD_BYTES).min(bytes.len());
    let (slots, _) = bytes[from..to].as_chunks::<RECORD_BYTES>();
    let (mut records, mut damaged) = (Vec::new(), 0);
    for (index, slot) in slots.iter().enumerate() {
        match Record::decode(slot) {
            // In another place it is not what the ring would have there.
            Some((number, record)) if slot_of(resolution, number) == index => {
                records.push((number, record));
            }
            None if slot.iter().all(|byte| *byte == 0) => {}
            _ => damaged += 1,
        }
    }
    records.sort_unstable_by_key(|(number, _)| *number);
    // A record older than a whole ring is of before a part of the ring was lost.
    let newest = records.last().map_or(0, |(number, _)| *number);
    let oldest = newest.saturating_sub(u64::from(resolution.slots()) - 1);
    records.retain(|(number, _)| *number >= oldest);
    (records, damaged)
}

/// The content of an opened file, as much as a history has.
fn content(path: &Path, file: &File) -> Result<Vec<u8>, Error> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    if !file.metadata().map_err(io)?.is_file() {
        return Err(Error::NotAFile(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES as u64)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    check_header(path, &bytes)?;
    Ok(bytes)
}

/// Reads a history, also while a daemon writes it. Damaged slots and a cut-off end are left out.
///
/// # Errors
///
/// When there is no such file, or it is no history of this version.
pub fn read(path: &Path) -> Result<History, Error> {
    let file = OpenOptions::new()
        .read(true)
        // Waits for no writer of a pipe.
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })?;
    let bytes = content(path, &file)?;
    let [(seconds, damaged), (minutes, more)] =
        Resolution::ALL.map(|resolution| ring(&bytes, resolution));
    let records = |ring: Vec<(u64, Record)>| ring.into_iter().map(|(_, record)| record).collect();
    Ok(History {
        seconds: records(seconds),
        minutes: records(minutes),
        damaged: damaged + more,
    })
}

/// The one writer of a history. Goes on behind the records that are there.
#[derive(Debug)]
pub struct Writer {
    file: File,
    /// The number of the next record, by resolution.
    next: [u64; 2],
}

impl Writer {
    /// Opens a history, or makes one where there is none.
    ///
    /// # Errors
    ///
    /// When the file is something else or of another version, which is left as it is; when another daemon writes it, or the
    /// system refuses.
    pub fn open(path: &Path) -> Result<Writer, Error> {
        let io = |source: io::Error| Error::Io {
            path: path.to_owned(),
            source,
        };
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(path)
        };
        let file = match open() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(path).and_then(|()| open()).map_err(io)?
            }
            Err(_) if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) => {
                return Err(Error::NotAFile(path.to_owned()));
            }
            Err(error) => return Err(io(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::InUse(path.to_owned())),
            locked => locked.map_err(|error| io(error.into()))?,
        }
        let bytes = content(path, &file)?;
        // One that was cut off gets its end back, empty.
        file.set_len(FILE_BYTES as u64).map_err(io)?;
        let next = Resolution::ALL.map(|resolution| {
            let (records, _) = ring(&bytes, resolution);
            records
                .last()
                .map_or(1, |(number, _)| number.saturating_add(1))
        });
        Ok(Writer { file, next })
    }

    /// Writes a record over the oldest one.
    ///
    /// # Errors
    ///
    /// When the system refuses; the next one may succeed.
    pub fn append(&mut self, resolution: Resolution, record: &Record) -> io::Result<()> {
        let next = &mut self.next[resolution as usize];
        // 0 is an empty slot's; no daemon writes as many.
        let number = (*next).max(1);
        let at = offset(resolution) + slot_of(resolution, number) * RECORD_BYTES;
        self.file.write_all_at(&record.encode(number), at as u64)?;
        *next = number.wrapping_add(1);
        Ok(())
    }

    /// Brings what was written to the disk.
    ///
    /// # Errors
    ///
    /// When the disk refuses.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// An empty history. It has its name once its header is on the disk.
fn create(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    // Left by a crash.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let created = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&beside)?;
        file.write_all(&header())?;
        file.set_len(FILE_BYTES as u64)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if created.is_err() {
        // The first error says more.
        let _ = fs::remove_file(&beside);
    }
    created
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn record(number: u64) -> Record {
        let mut record = Record::default();
        record.end_unix_ms = number;
        record
    }

    fn ends(records: &[Record]) -> Vec<u64> {
        records.iter().map(|record| record.end_unix_ms).collect()
    }

    fn file() -> (TempDir, PathBuf) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("below/history");
        (directory, path)
    }

    #[test]
    fn the_newest_records_stay_and_the_size_does() {
        let (_directory, path) = file();
        let mut writer = Writer::open(&path).unwrap();
        assert_eq!(read(&path).unwrap(), History::default());
        for number in 0..4000 {
            writer.append(Resolution::Seconds, &record(number)).unwrap();
            if number % 60 == 0 {
                writer.append(Resolution::Minutes, &record(number)).unwrap();
            }
        }
        writer.sync().unwrap();
        let history = read(&path).unwrap();
        assert_eq!(ends(&history.seconds), Vec::from_iter(400..4000));
        assert_eq!(
            ends(&history.minutes),
            Vec::from_iter((0..4000).step_by(60))
        );
        assert_eq!(history.damaged, 0);
        assert_eq!(fs::metadata(&path).unwrap().len(), FILE_BYTES as u64);
        assert_eq!(FILE_BYTES, 645_184);
        // Another one may not write meanwhile, and goes on afterwards.
        assert!(matches!(Writer::open(&path), Err(Error::InUse(_))));
        drop(writer);
        let mut writer = Writer::open(&path).unwrap();
        writer.append(Resolution::Seconds, &record(4000)).unwrap();
        let history = read(&path).unwrap();
        assert_eq!(ends(&history.seconds), Vec::from_iter(401..=4000));
    }

    #[test]
    fn a_file_that_is_cut_off_anywhere_gives_what_is_whole() {
        let (_directory, path) = file();
        let mut writer = Writer::open(&path).unwrap();
        for number in 0..10 {
            writer.append(Resolution::Seconds, &record(number)).unwrap();
        }
        drop(writer);
        let whole = fs::read(&path).unwrap();
        for length in (0..HEADER_BYTES + 12 * RECORD_BYTES).step_by(7) {
            fs::write(&path, &whole[..length]).unwrap();
            match read(&path) {
                Err(Error::NotAHistory(_)) => assert!(length < HEADER_BYTES, "{length}"),
                Err(error) => panic!("{length}: {error}"),
                Ok(history) => {
                    // The first record, 1, is in slot 1.
                    let slots = (length - HEADER_BYTES) / RECORD_BYTES;
                    assert_eq!(history.seconds.len(), slots.clamp(1, 11) - 1, "{length}");
                }
            }
            // The daemon makes it whole, or leaves what is none of its own.
            let opened = Writer::open(&path);
            assert_eq!(opened.is_ok(), length >= HEADER_BYTES, "{length}");
            let expected = if length < HEADER_BYTES {
                length
            } else {
                FILE_BYTES
            };
            assert_eq!(fs::metadata(&path).unwrap().len(), expected as u64);
        }
    }

    #[test]
    fn torn_and_foreign_slots_are_left_out() {
        let (_directory, path) = file();
        let mut writer = Writer::open(&path).unwrap();
        for number in 0..10 {
            writer.append(Resolution::Seconds, &record(number)).unwrap();
        }
        let slot = |index: usize| (HEADER_BYTES + index * RECORD_BYTES) as u64;
        // Half of it is of the record before.
        writer.file.write_all_at(&[7; 64], slot(3)).unwrap();
        // Whole, but of another place, and of long ago.
        let foreign = record(77).encode(5);
        writer.file.write_all_at(&foreign, slot(4)).unwrap();
        let far = u64::MAX - (u64::MAX - 6) % 3600;
        writer
            .file
            .write_all_at(
                &record(78).encode(far),
                slot(slot_of(Resolution::Seconds, far)),
            )
            .unwrap();
        let history = read(&path).unwrap();
        assert_eq!(history.damaged, 2);
        // The one with the number that none will ever have makes the others old.
        assert_eq!(ends(&history.seconds), [78]);
        drop(writer);
        let mut writer = Writer::open(&path).unwrap();
        for number in 0..8000 {
            writer.append(Resolution::Seconds, &record(number)).unwrap();
        }
    }

    #[test]
    fn what_is_no_history_is_left_as_it_is() {
        let (directory, path) = file();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut other_version = header();
        other_version[8] = 2;
        let mut damaged = header();
        damaged[20] ^= 1;
        for (content, says) in [
            (&b""[..], "no history"),
            (b"root:x:0:0\n", "no history"),
            (&other_version, "format 2"),
            (&damaged, "no history"),
        ] {
            fs::write(&path, content).unwrap();
            for error in [read(&path).unwrap_err(), Writer::open(&path).unwrap_err()] {
                assert!(error.to_string().contains(says), "{error}");
            }
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(Writer::open(&link), Err(Error::NotAFile(_))));
        assert!(matches!(read(directory.path()), Err(Error::NotAFile(_))));
        assert!(matches!(
            Writer::open(directory.path()),
            Err(Error::NotAFile(_))
        ));
        assert!(matches!(
            read(Path::new("/nowhere/history")),
            Err(Error::Io { .. })
        ));
    }
}
