// SPDX-License-Identifier: GPL-2.0-only
//! Files that crashes, disks and people left.

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::procdb::CONFIDENT_FROM;
use crate::procdb::tests::{comm, observe};

const MS: u64 = 1_000_000;
/// Where the child of `killed_while_saving` saves.
const SAVES_TO: &str = "MORPHEUS_TEST_PROCDB_SAVES_TO";

fn small() -> ProcDb {
    let mut database = ProcDb::new();
    observe(
        &mut database,
        "cc1",
        Tier::Batch,
        8 * MS,
        CONFIDENT_FROM + 1,
    );
    database.advance();
    observe(&mut database, "kwin_wayland", Tier::LatCritical, MS / 10, 3);
    observe(&mut database, "bash", Tier::Interactive, MS, 40);
    database
}

fn large() -> ProcDb {
    let mut database = ProcDb::new();
    for number in 0..CAPACITY + 10 {
        observe(&mut database, &format!("x{number}"), Tier::Batch, MS, 9);
        database.advance();
    }
    database
}

/// A checksum that fits.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - CHECKSUM_BYTES;
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn saved_and_loaded() {
    let directory = tempfile::tempdir().unwrap();
    // Directories are made.
    let path = directory.path().join("a/b/procdb.bin");
    assert_eq!(load(&path).unwrap(), None);
    assert_eq!(load_or_set_aside(&path), (ProcDb::new(), None));
    for database in [ProcDb::new(), small(), large()] {
        save(&database, &path).unwrap();
        let (loaded, message) = load_or_set_aside(&path);
        assert_eq!((&loaded, message), (&database, None));
        assert!(loaded.predictions().eq(database.predictions()));
        assert_eq!(loaded.confident(), database.confident());
    }
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    assert_eq!(fs::metadata(&path).unwrap().len(), MOST_BYTES as u64);
}

#[test]
fn the_format_stays() {
    let mut database = ProcDb::new();
    database.advance();
    observe(&mut database, "sh", Tier::Interactive, 0x1234, 1);
    let mut expected = Vec::new();
    expected.extend(*b"MORPHPDB\x01\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0");
    expected.extend(*b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x34\x12\0\0\0\0\0\0");
    expected.extend(*b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0");
    // As another implementation has it.
    expected.extend(0x452cec48_u32.to_le_bytes());
    assert_eq!(encode(&database), expected);
}

#[test]
fn cut_off_at_any_byte() {
    let bytes = encode(&small());
    for length in 0..bytes.len() {
        let error = decode(&bytes[..length]).unwrap_err();
        assert_eq!(error, Invalid::Length, "{length}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(decode(&longer), Err(Invalid::Length));
}

#[test]
fn any_byte_and_any_bit_changed() {
    let bytes = encode(&small());
    for index in 0..bytes.len() {
        for mask in (0..8).map(|bit| 1 << bit).chain([0xff]) {
            let mut changed = bytes.clone();
            changed[index] ^= mask;
            assert!(decode(&changed).is_err(), "{index} {mask:#x}");
        }
    }
}

#[test]
fn a_corrupt_file_is_set_aside_with_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("procdb.bin");
    let bytes = encode(&small());
    for length in (0..bytes.len()).step_by(7) {
        fs::write(&path, &bytes[..length]).unwrap();
        let (database, message) = load_or_set_aside(&path);
        assert!(database.is_empty());
        let message = message.unwrap();
        assert!(message.contains(".corrupt-"), "{message}");
        assert!(!path.exists());
        // And the scheduler goes on as ever.
        save(&small(), &path).unwrap();
        assert_eq!(load(&path).unwrap(), Some(small()));
    }
    // Only `MOST_SET_ASIDE` are kept; the first stays what it was.
    let kept = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(kept, 1 + MOST_SET_ASIDE as usize);
    assert_eq!(
        fs::read(directory.path().join("procdb.bin.corrupt-1")).unwrap(),
        b""
    );
}

#[test]
fn what_is_no_file_is_not_followed_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("procdb.bin");
    let target = directory.path().join("target");
    fs::write(&target, encode(&small())).unwrap();
    let made: [&dyn Fn(); 4] = [
        &|| symlink(&target, &path).unwrap(),
        &|| symlink("nowhere", &path).unwrap(),
        &|| fs::create_dir(&path).unwrap(),
        &|| {
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        },
    ];
    for make in made {
        make();
        assert!(matches!(
            load(&path),
            Err(LoadError::Invalid(Invalid::NotAFile))
        ));
        let (database, message) = load_or_set_aside(&path);
        assert!(database.is_empty() && message.is_some());
        assert!(fs::symlink_metadata(&path).is_err(), "set aside");
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert!(matches!(
        load(&path),
        Err(LoadError::Invalid(Invalid::NotAFile))
    ));
    // The target of the link was not touched.
    assert_eq!(load(&target).unwrap(), Some(small()));
}

#[test]
fn a_link_is_replaced_and_what_it_leads_to_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("procdb.bin");
    let target = directory.path().join("target");
    fs::write(&target, "mine").unwrap();
    symlink(&target, &path).unwrap();
    symlink(&target, directory.path().join("procdb.bin.tmp")).unwrap();
    save(&small(), &path).unwrap();
    assert_eq!(load(&path).unwrap(), Some(small()));
    assert_eq!(fs::read(&target).unwrap(), b"mine");
}

#[test]
fn huge_files_and_huge_counts_cost_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("procdb.bin");
    // 1 TiB that is not on the disk.
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(
        load(&path),
        Err(LoadError::Invalid(Invalid::Magic))
    ));
    for count in [4, CAPACITY as u32 + 1, 0x1745_d174, u32::MAX] {
        let mut bytes = encode(&small());
        bytes[12..16].copy_from_slice(&count.to_le_bytes());
        assert_eq!(decode(&with_checksum(bytes)), Err(Invalid::Length));
    }
}

#[test]
fn what_nobody_writes_is_refused_though_the_checksum_fits() {
    let first = HEADER_BYTES;
    let second = first + PROFILE_BYTES;
    let changes: [(usize, &[u8]); 8] = [
        (first, b"\0"),
        (first + 5, b"x"),
        (first, b"zz"),
        (second, b"bash\0"),
        (first + 16, &u64::MAX.to_le_bytes()),
        (first + 24, &u64::MAX.to_le_bytes()),
        (first + 32, &[0; 4]),
        (first + 40, &3u32.to_le_bytes()),
    ];
    for (at, new) in changes {
        let mut bytes = encode(&small());
        bytes[at..at + new.len()].copy_from_slice(new);
        let error = decode(&with_checksum(bytes)).unwrap_err();
        assert!(matches!(error, Invalid::Content(_)), "{at}: {error}");
    }
    let mut newer = encode(&small());
    newer[8] = 2;
    let error = decode(&with_checksum(newer)).unwrap_err();
    assert_eq!(error, Invalid::Version(2));
    assert!(error.to_string().contains("version 2"));
}

#[test]
fn a_crash_before_the_rename_leaves_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("procdb.bin");
    let new = encode(&large());
    save(&small(), &path).unwrap();
    for length in (0..new.len()).step_by(1009).chain([new.len()]) {
        fs::write(with_suffix(&path, ".tmp"), &new[..length]).unwrap();
        assert_eq!(load(&path).unwrap(), Some(small()));
    }
    save(&large(), &path).unwrap();
    assert_eq!(load(&path).unwrap(), Some(large()));
    assert!(!with_suffix(&path, ".tmp").exists());
}

#[test]
fn what_cannot_be_saved_leaves_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("procdb.bin");
    save(&small(), &path).unwrap();
    // In the way of the new one.
    fs::create_dir(with_suffix(&path, ".tmp")).unwrap();
    assert!(save(&large(), &path).is_err());
    assert_eq!(load(&path).unwrap(), Some(small()));
    assert_eq!(
        save(&large(), Path::new("/")).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
}

/// This test is also the child that it kills: told by the environment where, it saves until then.
#[test]
fn killed_while_saving() {
    let (small, large) = (small(), large());
    if let Some(path) = std::env::var_os(SAVES_TO) {
        // For long enough, and not for ever: the parent may have failed.
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            save(&small, Path::new(&path)).unwrap();
            save(&large, Path::new(&path)).unwrap();
        }
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("procdb.bin");
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "procdb::file::tests::killed_while_saving"])
            .env(SAVES_TO, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while load(&path).unwrap().is_none() {
            assert!(child.try_wait().unwrap().is_none(), "the child ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(3_100 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let loaded = load(&path).unwrap().expect("it was there");
        assert!(loaded == small || loaded == large, "{loaded:?}");
        fs::remove_file(&path).unwrap();
    }
}

proptest! {
    #[test]
    fn any_content_is_a_database_or_an_error(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..HEADER_BYTES + 8 * PROFILE_BYTES),
        magic in any::<bool>(),
    ) {
        if magic && bytes.len() > HEADER_BYTES + CHECKSUM_BYTES {
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            let count = (bytes.len() - HEADER_BYTES - CHECKSUM_BYTES) / PROFILE_BYTES;
            bytes[12..16].copy_from_slice(&(count as u32).to_le_bytes());
            bytes.truncate(HEADER_BYTES + count * PROFILE_BYTES + CHECKSUM_BYTES);
            bytes = with_checksum(bytes);
        }
        if let Ok(database) = decode(&bytes) {
            prop_assert_eq!(encode(&database), bytes);
        }
    }

    #[test]
    fn forged_content_is_what_this_program_writes_or_an_error(
        changes in proptest::collection::vec((HEADER_BYTES - 8..200usize, any::<u8>()), 1..4),
    ) {
        let mut bytes = encode(&small());
        let end = bytes.len() - CHECKSUM_BYTES;
        for (at, byte) in changes {
            bytes[at.min(end - 1)] = byte;
        }
        let bytes = with_checksum(bytes);
        if let Ok(mut database) = decode(&bytes) {
            prop_assert_eq!(encode(&database), bytes);
            // Usable, whatever it says.
            database.advance();
            database.observe(comm("bash"), Tier::Batch, u64::MAX);
            prop_assert!(database.confident() <= database.len());
        }
    }
}
