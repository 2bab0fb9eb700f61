//! Tests tokio-util: codecs over TCP, cancellation, a task tracker, a delay queue, and readers made of streams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use morpheus_ecosystem::hog::{Kind, Until};
use morpheus_ecosystem::{Hogs, Scene, in_time, neighbour};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_util::codec::{Framed, LinesCodec};
use tokio_util::io::{ReaderStream, StreamReader};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{LocalPoolHandle, TaskTracker};
use tokio_util::time::DelayQueue;

type Lines = Framed<TcpStream, LinesCodec>;

/// Answers lines, until it is cancelled. Its connections are tasks of the tracker.
async fn serve(hogs: Hogs, tasks: TaskTracker, stop: CancellationToken) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = tasks.clone();
    tasks.spawn(async move {
        loop {
            let accepted = stop.run_until_cancelled(listener.accept()).await;
            let Some(connection) = accepted else { break };
            let lines = Framed::new(connection.unwrap().0, LinesCodec::new());
            let answer = answer(lines, hogs.clone());
            connections.spawn(stop.clone().run_until_cancelled_owned(answer));
        }
    });
    address
}

async fn answer(mut lines: Lines, hogs: Hogs) {
    while let Some(Ok(line)) = lines.next().await {
        if line == "hog" {
            hogs.hog().await;
        }
        let reversed: String = line.chars().rev().collect();
        if lines.send(reversed).await.is_err() {
            break;
        }
    }
}

async fn connect(address: SocketAddr) -> Lines {
    let connection = TcpStream::connect(address).await.unwrap();
    Framed::new(connection, LinesCodec::new())
}

async fn ask(lines: &mut Lines, line: &str) -> String {
    lines.send(line).await.unwrap();
    lines.next().await.unwrap().unwrap()
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_server_that_is_cancelled_and_waited_for() {
    let hogs = Hogs::new(Kind::Sleeps, Until::Time, 1);
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let address = in_time(serve(hogs, tasks.clone(), stop.clone())).await;
    let clients: Vec<_> = (0..20)
        .map(|client| {
            tokio::spawn(async move {
                let mut lines = connect(address).await;
                for number in 0..50 {
                    let line = format!("{client} says {number}");
                    let reversed: String = line.chars().rev().collect();
                    assert_eq!(ask(&mut lines, &line).await, reversed);
                }
                lines
            })
        })
        .collect();
    let mut open = Vec::new();
    for client in clients {
        open.push(in_time(client).await.unwrap());
    }
    assert_eq!(
        tasks.len(),
        21,
        "a task for each connection, and one that accepts"
    );
    stop.cancel();
    tasks.close();
    in_time(tasks.wait()).await;
    for mut lines in open {
        assert!(in_time(lines.next()).await.is_none(), "the server hung up");
    }
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_queue_gives_back_in_order_of_time() {
    let mut queue = DelayQueue::new();
    for ms in [40_u64, 10, 30, 20] {
        queue.insert(ms, Duration::from_millis(ms));
    }
    let key = queue.insert(25, Duration::from_millis(25));
    assert_eq!(queue.remove(&key).into_inner(), 25);
    let mut order = Vec::new();
    while let Some(due) = in_time(queue.next()).await {
        order.push(due.into_inner());
    }
    assert_eq!(order, [10, 20, 30, 40]);
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_a_stream_of_a_reader() {
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    let (from, mut into) = tokio::io::duplex(1000);
    let writer = tokio::spawn({
        let bytes = bytes.clone();
        async move {
            tokio::io::copy(&mut bytes.as_slice(), &mut into)
                .await
                .unwrap()
        }
    });
    let mut reader = StreamReader::new(ReaderStream::new(from));
    let mut read = Vec::new();
    in_time(reader.read_to_end(&mut read)).await.unwrap();
    assert_eq!(in_time(writer).await.unwrap(), 1_000_000);
    assert!(read == bytes);
}

/// A limit: each thread of a local pool is a runtime of its own, so no spare can take over from it.
#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hog_on_a_local_pool_stops_that_thread_as_on_tokio() {
    let pool = LocalPoolHandle::new(1);
    let hogs = Hogs::new(Kind::Sleeps, Until::Time, 1);
    let hog = pool.spawn_pinned({
        let hogs = hogs.clone();
        move || async move { hogs.hog().await }
    });
    hogs.begin(1);
    while hogs.entered() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let left = pool.spawn_pinned(move || async move { hogs.left() });
    assert_eq!(in_time(left).await.unwrap(), 1);
    in_time(hog).await.unwrap();
}

#[test]
fn a_neighbour_of_hogs() {
    let does = "`Framed` lines over TCP; `CancellationToken`, `TaskTracker`, `DelayQueue`, readers of streams";
    let calls = Arc::new(AtomicUsize::new(0));
    neighbour("tokio-util", does, async |stage| {
        let server = serve(
            stage.hogs.clone(),
            TaskTracker::new(),
            CancellationToken::new(),
        );
        let address = stage.inside(server).await;
        let kept = Arc::new(Mutex::new(connect(address).await));
        let hog = move || async move {
            assert_eq!(ask(&mut connect(address).await, "hog").await, "goh");
        };
        let calls = calls.clone();
        let ping = move || {
            let kept = kept.clone();
            let line = format!("{}1", calls.fetch_add(1, Ordering::Relaxed));
            async move {
                let answer = ask(&mut *kept.lock().await, &line).await;
                assert!(
                    answer.starts_with('1') && answer.len() == line.len(),
                    "{answer}"
                );
            }
        };
        Scene::of_server(&stage, hog, ping)
    });
}
