//! A handler that runs a query for which SQLite scans a large table.

use std::process::ExitCode;

use morpheus_patients::clock::Stopwatch;
use morpheus_patients::{handler, service};
use rusqlite::Connection;

const FILL: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT NOT NULL);
    WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 100000)
    INSERT INTO orders SELECT n, printf('order %d of customer %d, to be delivered on day %d', n, n % 1234, n % 365) FROM number;
";
const SCAN: &str = "SELECT count(*) FROM orders WHERE note LIKE '%customer 77%day 7%'";

/// Counts the orders of a customer for a day.
#[inline(never)]
fn count_orders(database: &Connection) -> i64 {
    let count = database.query_row(SCAN, [], |row| row.get(0)); // CULPRIT
    count.unwrap_or(-1)
}

async fn report(database: &mut Connection) {
    let stopwatch = Stopwatch::start();
    let count = count_orders(database);
    stopwatch.stop();
    handler::answer(count).await;
}

/// Each task has a connection, so that none waits for another.
async fn requests(mut database: Connection) {
    loop {
        handler::request().await;
        report(&mut database).await;
    }
}

fn main() -> ExitCode {
    service::run("sqlite", || {
        let mut databases = Vec::new();
        for _ in 0..handler::HANDLERS {
            let database = Connection::open_in_memory()?;
            database.execute_batch(FILL)?;
            databases.push(database);
        }
        let databases = std::cell::RefCell::new(databases);
        handler::start(|_| requests(databases.borrow_mut().pop().expect("one for each task")));
        Ok(())
    })
}
