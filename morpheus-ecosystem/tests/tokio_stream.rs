//! Tests tokio-stream: adapters over time and channels, on our timers and across our workers. The hogs compute in a `map`.

use std::time::{Duration, Instant};

use morpheus_ecosystem::{Scene, in_time, neighbour};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_stream::wrappers::{
    BroadcastStream, IntervalStream, ReceiverStream, TcpListenerStream, WatchStream,
};
use tokio_stream::{StreamExt as _, StreamMap};

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_as_streams() {
    let (many, merged) = mpsc::channel(4);
    for first in 0..10_u64 {
        let many = many.clone();
        tokio::spawn(async move {
            for number in (first * 100)..(first * 100 + 100) {
                many.send(number).await.unwrap();
            }
        });
    }
    drop(many);
    let (even, odd) = (mpsc::channel(1), mpsc::channel(1));
    let split = tokio::spawn(async move {
        let mut numbers = ReceiverStream::new(merged);
        while let Some(number) = numbers.next().await {
            let to = if number % 2 == 0 { &even.0 } else { &odd.0 };
            to.send(number).await.unwrap();
        }
    });
    let both = ReceiverStream::new(even.1).merge(ReceiverStream::new(odd.1));
    let sum = both
        .map(|number| number * 2)
        .fold(0, |sum, number| sum + number);
    assert_eq!(in_time(sum).await, 999_000);
    in_time(split).await.unwrap();

    let (send, _) = broadcast::channel(100);
    let mut all = StreamMap::new();
    for name in ["a", "b"] {
        all.insert(name, BroadcastStream::new(send.subscribe()));
    }
    for number in 0..50 {
        send.send(number).unwrap();
    }
    drop(send);
    let heard: Vec<_> = in_time(all.collect()).await;
    let by_a = heard.iter().filter(|(name, _)| *name == "a");
    let by_a: Vec<i32> = by_a.map(|(_, number)| *number.as_ref().unwrap()).collect();
    assert_eq!((heard.len(), by_a), (100, (0..50).collect()));

    let (set, seen) = watch::channel(0);
    let seen = tokio::spawn(WatchStream::new(seen).collect::<Vec<_>>());
    for number in 1..=100 {
        set.send(number).unwrap();
        tokio::task::yield_now().await;
    }
    drop(set);
    let seen = in_time(seen).await.unwrap();
    assert!(seen.is_sorted() && seen.last() == Some(&100), "{seen:?}");
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeouts_throttles_and_chunks() {
    let begun = Instant::now();
    let interval = tokio::time::interval(Duration::from_millis(2));
    let ticks: Vec<_> = in_time(IntervalStream::new(interval).take(10).collect()).await;
    assert_eq!(ticks.len(), 10);
    assert!(begun.elapsed() >= Duration::from_millis(18), "nine periods");

    let begun = Instant::now();
    let slow = tokio_stream::iter(0..5).throttle(Duration::from_millis(5));
    assert_eq!(in_time(slow.collect::<Vec<_>>()).await, [0, 1, 2, 3, 4]);
    assert!(begun.elapsed() >= Duration::from_millis(20), "four pauses");

    let silent = tokio_stream::pending::<()>().timeout(Duration::from_millis(5));
    assert!(in_time(Box::pin(silent).next()).await.unwrap().is_err());

    let chunks = tokio_stream::iter(0..10).chunks_timeout(4, Duration::from_secs(60));
    let chunks: Vec<_> = in_time(chunks.collect()).await;
    assert_eq!(chunks, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_as_a_stream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = TcpListenerStream::new(listener).take(20);
    let accepted = tokio::spawn(accepted.filter_map(Result::ok).collect::<Vec<_>>());
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(in_time(TcpStream::connect(address)).await.unwrap());
    }
    let theirs = in_time(accepted).await.unwrap();
    let theirs: Vec<_> = theirs
        .iter()
        .map(|peer| peer.peer_addr().unwrap())
        .collect();
    let ours: Vec<_> = clients
        .iter()
        .map(|client| client.local_addr().unwrap())
        .collect();
    assert_eq!(theirs, ours);
}

#[test]
fn a_neighbour_of_hogs() {
    let does = "a service that reads a channel as a stream; merge, map, timeout, throttle, chunks, TCP listeners as streams";
    neighbour("tokio-stream", does, async |stage| {
        let (requests, received) = mpsc::channel::<(u32, oneshot::Sender<u32>)>(8);
        let service = async move {
            let mut requests = ReceiverStream::new(received).map(|(n, answer)| (n + 1, answer));
            while let Some((number, answer)) = requests.next().await {
                answer.send(number).unwrap();
            }
        };
        stage.inside.spawn(service);
        let (hogs, inside) = (stage.hogs.clone(), stage.inside.clone());
        let hog = move || {
            let (hogs, inside) = (hogs.clone(), inside.clone());
            async move {
                let work = async move {
                    hogs.turn().await;
                    let (send, numbers) = mpsc::channel(3);
                    (1..=3).for_each(|number| send.try_send(number).unwrap());
                    drop(send);
                    let computed = ReceiverStream::new(numbers).map(|number| {
                        if number == 3 {
                            hogs.hold();
                        }
                        number * number
                    });
                    computed.collect::<Vec<_>>().await
                };
                assert_eq!(inside.spawn(work).await.unwrap(), [1, 4, 9]);
            }
        };
        let ping = move || {
            let requests = requests.clone();
            async move {
                let (answer, answered) = oneshot::channel();
                requests.send((41, answer)).await.unwrap();
                assert_eq!(answered.await.unwrap(), 42);
            }
        };
        Scene::of_server(&stage, hog, ping)
    });
}
