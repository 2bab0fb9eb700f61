//! Rows in SQLite, by blocking calls: all that a synchronous client of a database offers.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, Result};
use serde::{Deserialize, Serialize};

/// The time that [`Database::report`] waits for its disk.
pub const DISK: Duration = Duration::from_millis(5);

/// The time that a writer waits for another one.
const PATIENCE: Duration = Duration::from_secs(10);

/// The rows at the start, so that a report has something to count.
const FIRST_ROWS: usize = 1_000;

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub id: i64,
    pub text: String,
}

/// The result of [`Database::report`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The number of rows that it read, the newest ones.
    pub rows: i64,
    pub mean_length: f64,
}

/// A database file, and its idle connections: at most the number ever used at once.
pub struct Database {
    file: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Database {
    /// Opens the database, and makes the table where there is none.
    pub fn open(file: &Path) -> Result<Self> {
        let database = Self {
            file: file.to_owned(),
            idle: Mutex::default(),
        };
        database.with(|connection| {
            // Readers do not wait for a writer, and a row is on disk some time after it was written.
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.execute_batch(
                "CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
            )?;
            let all = connection.unchecked_transaction()?;
            let empty = all.query_row("SELECT count(*) = 0 FROM rows", (), |row| row.get(0))?;
            if empty {
                for number in 0..FIRST_ROWS {
                    all.execute(
                        "INSERT INTO rows (text) VALUES (?1)",
                        [format!("row {number}")],
                    )?;
                }
            }
            all.commit()
        })?;
        Ok(database)
    }

    /// The ten newest rows.
    pub fn newest(&self) -> Result<Vec<Row>> {
        self.with(|connection| {
            connection
                .prepare_cached("SELECT id, text FROM rows ORDER BY id DESC LIMIT 10")?
                .query_map((), |row| {
                    Ok(Row {
                        id: row.get(0)?,
                        text: row.get(1)?,
                    })
                })?
                .collect()
        })
    }

    /// Adds a row.
    pub fn add(&self, text: String) -> Result<Row> {
        self.with(|connection| {
            connection
                .prepare_cached("INSERT INTO rows (text) VALUES (?1)")?
                .execute([&text])?;
            Ok(Row {
                id: connection.last_insert_rowid(),
                text,
            })
        })
    }

    /// Counts the contents of the newest rows, as if a disk took 5 ms to read them. A sleep inside SQLite
    /// replaces the disk: it takes equally long in every variant that is compared, and no CPU time.
    pub fn report(&self) -> Result<Report> {
        self.with(|connection| {
            connection
                .prepare_cached(
                    "SELECT count(*), avg(length(text)), wait_for_disk() \
                     FROM (SELECT text FROM rows ORDER BY id DESC LIMIT 100)",
                )?
                .query_row((), |row| {
                    Ok(Report {
                        rows: row.get(0)?,
                        mean_length: row.get(1)?,
                    })
                })
        })
    }

    /// Runs `work` with a connection.
    fn with<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let one = idle().pop();
        let one = one.map_or_else(|| self.connect(), Ok)?;
        let done = work(&one);
        idle().push(one);
        done
    }

    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.file)?;
        connection.busy_timeout(PATIENCE)?;
        // A setting of this connection, and not of the file.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.create_scalar_function("wait_for_disk", 0, FunctionFlags::empty(), |_| {
            thread::sleep(DISK);
            Ok(0)
        })?;
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn rows_are_added_and_read_by_many_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rows");
        let database = Database::open(&file).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        database.add("milk".into()).unwrap();
                        assert_eq!(database.newest().unwrap().len(), 10);
                    }
                });
            }
        });
        let newest = database.newest().unwrap();
        assert_eq!(newest[0].id, FIRST_ROWS as i64 + 100);
        assert!(newest.iter().all(|row| row.text == "milk"), "{newest:?}");
        assert!(database.idle.lock().unwrap().len() <= 5);

        let again = Database::open(&file).unwrap();
        assert_eq!(
            again.newest().unwrap(),
            newest,
            "the first rows are made once"
        );
    }

    #[test]
    fn a_report_waits_for_its_disk() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(&directory.path().join("rows")).unwrap();
        for _ in 0..3 {
            let begun = Instant::now();
            let report = database.report().unwrap();
            assert!(begun.elapsed() >= DISK);
            assert_eq!(report.rows, 100);
            assert_eq!(report.mean_length, "row 999".len() as f64);
        }
    }
}
