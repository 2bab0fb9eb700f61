//! Tests redis: one multiplexed connection for all tasks, against a server process of the test. Without `redis-server` on
//! the machine these tests skip themselves.

use futures_util::StreamExt as _;
use morpheus_ecosystem::redis_server::RedisServer;
use morpheus_ecosystem::{Scene, in_time, neighbour};
use redis::aio::{ConnectionManager, MultiplexedConnection};
use redis::{AsyncCommands as _, AsyncConnectionConfig, Client};

/// Without the client's limit of half a second for an answer: hogs take nearly as long.
async fn connect(client: Client) -> MultiplexedConnection {
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&patient);
    connection.await.unwrap()
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_at_once_pipelines_publishing_and_a_blocking_pop() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let client = Client::open(server.url()).unwrap();
    let mut connection = in_time(connect(client.clone())).await;
    let counting: Vec<_> = (0..100)
        .map(|_| {
            let mut connection = connection.clone();
            tokio::spawn(async move { connection.incr::<_, _, i64>("counter", 1).await.unwrap() })
        })
        .collect();
    let mut seen = Vec::new();
    for count in counting {
        seen.push(in_time(count).await.unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=100).collect::<Vec<_>>());

    let mut pipe = redis::pipe();
    pipe.atomic().set("a", 40).ignore().incr("a", 2).get("a");
    let answers: (i64, i64) = in_time(pipe.query_async(&mut connection)).await.unwrap();
    assert_eq!(answers, (42, 42));
    let wrong: redis::RedisResult<i64> = in_time(connection.hincr("a", "field", 1)).await;
    assert_eq!(wrong.unwrap_err().code(), Some("WRONGTYPE"));

    let mut listener = in_time(client.get_async_pubsub()).await.unwrap();
    in_time(listener.subscribe("numbers")).await.unwrap();
    let publisher = tokio::spawn(async move {
        for number in 0..100 {
            let _: () = connection.publish("numbers", number).await.unwrap();
        }
    });
    let messages: Vec<_> = in_time(listener.on_message().take(100).collect()).await;
    let messages: Vec<i64> = messages
        .iter()
        .map(|message| message.get_payload().unwrap())
        .collect();
    assert_eq!(messages, (0..100).collect::<Vec<_>>());
    in_time(publisher).await.unwrap();

    let popped = tokio::spawn({
        let mut connection = in_time(connect(client.clone())).await;
        async move {
            connection
                .blpop::<_, (String, String)>("list", 0.0)
                .await
                .unwrap()
        }
    });
    let mut manager = in_time(ConnectionManager::new(client)).await.unwrap();
    let _: () = in_time(manager.rpush("list", "x")).await.unwrap();
    let expected = ("list".to_string(), "x".to_string());
    assert_eq!(in_time(popped).await.unwrap(), expected);
}

#[test]
fn a_neighbour_of_hogs() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let does =
        "one connection for all; 100 commands at once, pipelines, publishing, a blocking pop";
    neighbour("redis", does, async |stage| {
        let client = Client::open(server.url()).unwrap();
        let start = async move {
            let mut connection = connect(client).await;
            let _: () = connection.set("key", 42).await.unwrap();
            connection
        };
        let connection = stage.inside(start).await;
        let hogs = stage.hogs.clone();
        let ping = {
            let connection = connection.clone();
            move || read_key(connection.clone())
        };
        let hog = move || {
            let (connection, hogs) = (connection.clone(), hogs.clone());
            async move {
                read_key(connection).await;
                hogs.hog().await;
            }
        };
        Scene::of_tasks(&stage, hog, ping)
    });
}

async fn read_key(mut connection: MultiplexedConnection) {
    assert_eq!(connection.get::<_, i64>("key").await.unwrap(), 42);
}
