//! Tests tokio-console: its subscriber on our runtime, with a client that reads what the console would show. Tokio tells it
//! about tasks only with `--cfg tokio_unstable`; without that flag, the only test says so.

#[cfg(not(tokio_unstable))]
#[test]
fn needs_tokio_unstable() {
    morpheus_testing::skip(
        "tokio-console needs RUSTFLAGS='--cfg tokio_unstable' (cargo xtask test --all --only console)",
    );
}

#[cfg(tokio_unstable)]
mod unstable {
    use std::collections::HashMap;
    use std::net::SocketAddr;
    use std::sync::OnceLock;
    use std::time::Duration;

    use console_api::field::{Name, Value};
    use console_api::instrument::instrument_client::InstrumentClient;
    use console_api::instrument::{InstrumentRequest, Update};
    use console_api::tasks::{Stats, Task};
    use console_subscriber::{ConsoleLayer, ServerParts};
    use morpheus_ecosystem::{Scene, in_time, neighbour};
    use tokio::net::TcpListener;
    use tokio::sync::Mutex;
    use tonic::transport::server::TcpIncoming;
    use tonic::transport::{Channel, Endpoint, Server};
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;
    use tracing_subscriber::{Layer as _, Registry, filter, registry, reload};

    type Slot = reload::Handle<Option<ConsoleLayer>, Registry>;

    /// One console at a time: tokio tells the process's subscriber about the tasks of all runtimes.
    static ALONE: Mutex<()> = Mutex::const_new(());

    /// Returns the slot of the console in the process's subscriber.
    fn slot() -> &'static Slot {
        static SLOT: OnceLock<Slot> = OnceLock::new();
        SLOT.get_or_init(|| {
            let (layer, slot) = reload::Layer::new(None);
            // As the console's own filter has it.
            let of_tokio = filter::filter_fn(|metadata| {
                let target = metadata.target();
                let named = metadata.is_span() && metadata.name().starts_with("runtime.");
                named || target.starts_with("tokio") || target.starts_with("runtime")
            });
            registry().with(layer.with_filter(of_tokio)).init();
            slot
        })
    }

    /// Starts a console on the current runtime; returns where it listens.
    async fn serve() -> SocketAddr {
        let console = ConsoleLayer::builder().publish_interval(Duration::from_millis(10));
        let (layer, server) = console.build();
        let mut last = None;
        slot()
            .modify(|console| last = console.replace(layer))
            .expect("the subscriber is there");
        // Not before: it closes spans, and for that needs the slot.
        drop(last);
        let ServerParts {
            instrument_server,
            aggregator,
            ..
        } = server.into_parts();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(aggregator.run());
        let server = Server::builder().add_service(instrument_server);
        tokio::spawn(
            server.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))),
        );
        address
    }

    async fn connect(address: SocketAddr) -> InstrumentClient<Channel> {
        let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
        InstrumentClient::new(endpoint.connect().await.unwrap())
    }

    async fn watch(client: &mut InstrumentClient<Channel>) -> tonic::Streaming<Update> {
        let updates = client.watch_updates(InstrumentRequest {}).await;
        updates.unwrap().into_inner()
    }

    /// The tasks that a console knows after some updates.
    #[derive(Default)]
    struct Known {
        tasks: Vec<Task>,
        stats: HashMap<u64, Stats>,
    }

    impl Known {
        fn learn(&mut self, update: Update) {
            let update = update.task_update.expect("each has one");
            self.tasks.extend(update.new_tasks);
            self.stats.extend(update.stats_update);
        }

        /// The stats of ended tasks from this file that are such.
        fn ended(&self, such: impl Fn(&Task) -> bool) -> Vec<&Stats> {
            let tasks = self.tasks.iter();
            let tasks = tasks.filter(|task| is_from_here(task) && such(task));
            let stats = tasks.filter_map(|task| self.stats.get(&task.id?.id));
            stats.filter(|stats| stats.dropped_at.is_some()).collect()
        }
    }

    fn is_from_here(task: &Task) -> bool {
        let file = task.location.as_ref().and_then(|at| at.file.as_deref());
        file.is_some_and(|file| file.ends_with("tests/console.rs"))
    }

    fn is_from_line(task: &Task, line: u32) -> bool {
        task.location.as_ref().and_then(|at| at.line) == Some(line)
    }

    fn is_bee(task: &Task) -> bool {
        task.fields.iter().any(|field| {
            let key = matches!(&field.name, Some(Name::StrName(key)) if key == "task.name");
            key && matches!(&field.value, Some(Value::StrVal(name) | Value::DebugVal(name)) if name == "bee")
        })
    }

    async fn three_polls() {
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
    }

    #[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
    async fn tasks_with_names_locations_and_polls() {
        let _alone = ALONE.lock().await;
        let address = serve().await;
        let mut client = in_time(connect(address)).await;
        let mut updates = in_time(watch(&mut client)).await;
        let spawn_bee = |_| {
            let bee = tokio::task::Builder::new().name("bee");
            bee.spawn(three_polls()).unwrap()
        };
        let mut tasks: Vec<_> = (0..10).map(spawn_bee).collect();
        let (watched, line) = (morpheus_runtime::spawn(three_polls()), line!());
        tasks.push(watched);
        for task in tasks {
            in_time(task).await.unwrap();
        }
        let mut known = Known::default();
        let is_watched = |task: &Task| is_from_line(task, line);
        while known.ended(is_bee).len() < 10 || known.ended(is_watched).is_empty() {
            known.learn(
                in_time(updates.message())
                    .await
                    .unwrap()
                    .expect("it goes on"),
            );
        }
        for stats in known.ended(|task| is_bee(task) || is_watched(task)) {
            let polls = stats.poll_stats.as_ref().map(|polls| polls.polls);
            // The console counts the end of the future, too.
            assert_eq!(polls, Some(3 + 1), "{stats:?}");
        }
    }

    #[test]
    fn a_neighbour_of_hogs() {
        let _alone = ALONE.blocking_lock();
        let does =
            "the console's server; names, places and polls of tasks as its client reads them";
        neighbour("console-subscriber", does, async |stage| {
            let address = stage.inside(serve()).await;
            let client = connect(address).await;
            let (inside, hogs) = (stage.inside.clone(), stage.hogs.clone());
            let hog = move || {
                let (inside, hogs) = (inside.clone(), hogs.clone());
                async move { inside.spawn(async move { hogs.hog().await }).await.unwrap() }
            };
            let ping = move || {
                let mut client = client.clone();
                async move {
                    // The first update tells a new client of all tasks.
                    let mut updates = watch(&mut client).await;
                    let mut known = Known::default();
                    known.learn(updates.message().await.unwrap().expect("there is one"));
                    assert!(!known.tasks.is_empty());
                }
            };
            Scene::of_server(&stage, hog, ping)
        });
    }
}
