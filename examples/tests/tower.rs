//! Tests of the layer with axum, tonic and hyper: the report names the route of a stalled handler, and the
//! other requests are answered. Each has its control on tokio alone.

#[path = "../../morpheus-runtime/tests/common/mod.rs"]
mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::extract::MatchedPath;
use axum::routing::get;
use common::{Gate, Log, MS, PATIENCE, alone, fresh_label, in_time, wait_for};
use morpheus_runtime::tower::WatchLayer;
use morpheus_runtime::{Builder, Mechanism, Runtime};
use tokio::net::TcpListener;

/// The time without an answer after which the test concludes that no worker can answer.
const NO_ANSWER: Duration = Duration::from_millis(400);

/// Makes a runtime with one worker, which a stalled handler occupies.
fn one_worker() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).max_spares(8);
    builder.build().unwrap()
}

/// Makes the same runtime without anything of Morpheus's.
fn tokio_alone() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// Sends a request and waits for the answer on a thread of its own, up to `limit`.
fn asked(address: SocketAddr, path: &str, limit: Duration) -> Option<String> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(limit)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.rsplit("\r\n\r\n").next()?.to_owned())
}

/// Sends a request, and does not read the answer.
fn send(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
    stream
}

/// `/ping`, and a handler under `route` that blocks its thread until the gate is open.
fn app(route: &str, gate: &Gate) -> axum::Router {
    let gate = gate.clone();
    let stalled = move || {
        let gate = gate.clone();
        async move {
            gate.wait();
            "stalled no more"
        }
    };
    axum::Router::new()
        .route(route, get(stalled))
        .route("/ping", get(async || "pong"))
}

fn serve(handle: &tokio::runtime::Handle, app: axum::Router) -> SocketAddr {
    let listener = handle.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    handle.spawn(async move { axum::serve(listener, app).await });
    address
}

/// A route that no other test uses, without blanks.
fn fresh_route() -> String {
    format!("/{}", fresh_label("stalled").replace(' ', "-"))
}

#[test]
fn a_stalled_axum_handler_is_named_by_its_route_and_the_others_are_answered() {
    let _alone = alone();
    let log = Log::global();
    let gate = Gate::default();
    let route = fresh_route() + "/{id}";
    let by_route =
        WatchLayer::by_route(|request| Some(request.extensions().get::<MatchedPath>()?.as_str()));
    let runtime = one_worker();
    let address = serve(runtime.handle(), app(&route, &gate).layer(by_route));
    let _stalled = send(address, &route.replace("{id}", "7"));
    let label = format!("label=GET {route}");
    let named = wait_for(PATIENCE, || log.line_with(&[&label]).is_some());
    assert!(named, "no {label} in {}", log.text());
    let answer = asked(address, "/ping", PATIENCE);
    assert_eq!(answer.as_deref(), Some("pong"));
    gate.open();
}

/// The control of all other tests.
#[test]
fn on_tokio_alone_no_request_is_answered_beside_a_stalled_handler() {
    let _alone = alone();
    let gate = Gate::default();
    let runtime = tokio_alone();
    let address = serve(runtime.handle(), app("/stalled", &gate));
    assert!(asked(address, "/ping", PATIENCE).is_some());
    let _stalled = send(address, "/stalled");
    // Once no request is answered, the handler has stalled, and stays stalled.
    assert!(wait_for(PATIENCE, || asked(address, "/ping", NO_ANSWER).is_none()));
    assert!(asked(address, "/ping", NO_ANSWER).is_none());
    gate.open();
    assert_eq!(asked(address, "/ping", PATIENCE).as_deref(), Some("pong"));
}

/// Without the layer other requests are answered as well, but no report names the handler.
#[test]
fn without_the_layer_it_is_not_watched() {
    let _alone = alone();
    let log = Log::global();
    let gate = Gate::default();
    let route = fresh_route();
    let runtime = one_worker();
    let address = serve(runtime.handle(), app(&route, &gate));
    let _stalled = send(address, &route);
    let said = wait_for(PATIENCE, || {
        log.line_with(&["label=\"not watched\""]).is_some()
    });
    assert!(said, "{}", log.text());
    assert!(log.line_with(&[&route]).is_none());
    assert_eq!(asked(address, "/ping", PATIENCE).as_deref(), Some("pong"));
    gate.open();
}

/// The label is the path, and the handlers compute: they are slow from the second poll on, so they are handed
/// off.
#[test]
fn handlers_that_compute_are_rated_by_their_path() {
    let _alone = alone();
    let log = Log::global();
    let route = fresh_route();
    let app = axum::Router::new()
        .route(
            &(route.clone() + "/{id}"),
            get(async || {
                common::burn(20 * MS);
                "hashed"
            }),
        )
        .route("/ping", get(async || "pong"));
    let handoff_polls = |layer: bool| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(8);
        if !layer {
            builder.without(Mechanism::Handoffs);
        }
        let runtime = builder.build().unwrap();
        let app = app.clone().layer(WatchLayer::new());
        let address = serve(runtime.handle(), app);
        for number in 0..12 {
            let answer = asked(address, &format!("{route}/{number}"), PATIENCE);
            assert_eq!(answer.as_deref(), Some("hashed"));
        }
        runtime.metrics().handoff_polls
    };
    assert!(handoff_polls(true) > 0);
    assert!(log.line_with(&[&format!("label=GET {route} ")]).is_some());
    assert_eq!(handoff_polls(false), 0);
}

#[test]
fn a_stalled_hyper_service_is_named_through_the_adapter() {
    use http::{Request, Response};
    use hyper::body::Incoming;
    use hyper_util::rt::TokioIo;
    use hyper_util::service::TowerToHyperService;
    use tower::{Layer as _, service_fn};

    let _alone = alone();
    let log = Log::global();
    let gate = Gate::default();
    let route = fresh_route();
    let (opened, stalled_at) = (gate.clone(), route.clone());
    let handle = move |request: Request<Incoming>| {
        let (gate, is_stalled) = (opened.clone(), request.uri().path() == stalled_at);
        async move {
            if is_stalled {
                gate.wait();
            }
            Ok::<_, std::convert::Infallible>(Response::new("pong".to_owned()))
        }
    };
    let service = TowerToHyperService::new(WatchLayer::new().layer(service_fn(handle)));
    let runtime = one_worker();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.handle().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service.clone());
            tokio::spawn(served);
        }
    });
    let _stalled = send(address, &route);
    let label = format!("label=GET {route}");
    assert!(
        wait_for(PATIENCE, || log.line_with(&[&label]).is_some()),
        "{}",
        log.text()
    );
    assert_eq!(asked(address, "/ping", PATIENCE).as_deref(), Some("pong"));
    gate.open();
}

/// A generated service with generated messages, unchanged; a layer inside of Morpheus's stalls its `Check`.
#[test]
fn a_stalled_tonic_method_is_named_by_its_path() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    let _alone = alone();
    let log = Log::global();
    let gate = Gate::default();
    let runtime = one_worker();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let blocked = gate.clone();
    let get_stalled = tower::util::MapFutureLayer::new(move |answer| {
        let gate = blocked.clone();
        async move {
            gate.wait();
            IntoFuture::into_future(answer).await
        }
    });
    let served = tonic::transport::Server::builder()
        .layer(WatchLayer::new())
        .layer(get_stalled)
        .add_service(health)
        .serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener));
    runtime.handle().spawn(served);
    let call = async move {
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}"))?;
        let mut client = HealthClient::new(channel.connect().await?);
        let answer = client.check(HealthCheckRequest::default()).await;
        Ok::<bool, tonic::transport::Error>(answer.is_ok())
    };
    let asking = runtime.handle().spawn(call);
    let label = "label=/grpc.health.v1.Health/Check";
    assert!(
        wait_for(PATIENCE, || log.line_with(&[label]).is_some()),
        "{}",
        log.text()
    );
    assert!(!asking.is_finished());
    gate.open();
    assert!(runtime.block_on(in_time(asking)).unwrap().unwrap());
}
