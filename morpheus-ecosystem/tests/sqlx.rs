//! Tests sqlx with SQLite: a pool, transactions, rows as a stream, and errors of different kinds.

use std::path::Path;

use futures_util::TryStreamExt as _;
use morpheus_ecosystem::{PATIENCE, Scene, in_time, neighbour};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

/// A pool of four connections to a new database in a file.
async fn pool(directory: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new()
        .filename(directory.join("test.db"))
        .create_if_missing(true)
        .busy_timeout(PATIENCE)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().max_connections(4);
    let pool = pool.connect_with(options).await.unwrap();
    let create = "CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT UNIQUE NOT NULL, cents INTEGER NOT NULL)";
    sqlx::query(create).execute(&pool).await.unwrap();
    pool
}

async fn open(pool: &SqlitePool, owner: &str, cents: i64) -> sqlx::Result<i64> {
    let insert = "INSERT INTO account (owner, cents) VALUES (?, ?) RETURNING id";
    let insert = sqlx::query_scalar(insert).bind(owner).bind(cents);
    insert.fetch_one(pool).await
}

async fn sum(pool: &SqlitePool) -> i64 {
    let sum = sqlx::query_scalar("SELECT sum(cents) FROM account");
    sum.fetch_one(pool).await.unwrap()
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_transactions_rows_and_errors() {
    let directory = tempfile::tempdir().unwrap();
    let pool = in_time(pool(directory.path())).await;
    let writers: Vec<_> = (0..40)
        .map(|number| {
            let pool = pool.clone();
            tokio::spawn(async move { open(&pool, &format!("owner {number}"), 100).await })
        })
        .collect();
    for writer in writers {
        in_time(writer).await.unwrap().unwrap();
    }
    assert_eq!(in_time(sum(&pool)).await, 4000);

    let mut transaction = pool.begin().await.unwrap();
    let empty = sqlx::query("UPDATE account SET cents = 0");
    let changed = empty.execute(&mut *transaction).await.unwrap();
    assert_eq!(changed.rows_affected(), 40);
    in_time(transaction.rollback()).await.unwrap();
    assert_eq!(in_time(sum(&pool)).await, 4000);

    let mut transaction = pool.begin().await.unwrap();
    for (cents, owner) in [(-30, "owner 1"), (30, "owner 2")] {
        let pay = sqlx::query("UPDATE account SET cents = cents + ? WHERE owner = ?");
        let pay = pay.bind(cents).bind(owner).execute(&mut *transaction);
        in_time(pay).await.unwrap();
    }
    in_time(transaction.commit()).await.unwrap();
    let rows = "SELECT owner, cents FROM account WHERE cents <> 100 ORDER BY owner";
    let rows = sqlx::query_as::<_, (String, i64)>(rows).fetch(&pool);
    let rows: Vec<_> = in_time(rows.try_collect()).await.unwrap();
    let expected = [("owner 1", 70), ("owner 2", 130)];
    assert_eq!(
        rows,
        expected.map(|(owner, cents)| (owner.to_string(), cents))
    );

    let twice = in_time(open(&pool, "owner 1", 1)).await.unwrap_err();
    let twice = twice
        .into_database_error()
        .expect("the database refused it");
    assert!(twice.is_unique_violation(), "{twice}");
    in_time(pool.close()).await;
}

#[test]
fn a_neighbour_of_hogs() {
    let does = "SQLite; a pool, 40 writers at once, commit, rollback, rows as a stream, errors";
    neighbour("sqlx", does, async |stage| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let start = async move {
            let pool = pool(&path).await;
            open(&pool, "owner", 42).await.unwrap();
            pool
        };
        let pool = stage.inside(start).await;
        let hogs = stage.hogs.clone();
        let ping = {
            let pool = pool.clone();
            move || {
                // Keeps the directory while requests are possible.
                let _kept = &directory;
                let pool = pool.clone();
                async move { assert_eq!(sum(&pool).await, 42) }
            }
        };
        let hog = move || {
            let (pool, hogs) = (pool.clone(), hogs.clone());
            async move {
                assert_eq!(sum(&pool).await, 42);
                hogs.hog().await;
            }
        };
        Scene::of_tasks(&stage, hog, ping)
    });
}
