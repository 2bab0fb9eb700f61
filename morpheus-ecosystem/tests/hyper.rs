//! Tests hyper 1: its HTTP/1 and HTTP/2 servers and clients, with hyper-util's adapters for tokio.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use morpheus_ecosystem::hog::{Kind, Until};
use morpheus_ecosystem::{Hogs, Scene, in_time, neighbour};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

type Body = Full<Bytes>;

/// Which HTTP a server speaks.
#[derive(Clone, Copy)]
enum Http {
    One,
    Two,
}

async fn handle(request: Request<Incoming>, hogs: Hogs) -> hyper::Result<Response<Body>> {
    let body = match (request.method(), request.uri().path()) {
        (&Method::GET, "/ping") => "pong".into(),
        (&Method::GET, "/hog") => {
            hogs.hog().await;
            "grunt".into()
        }
        (&Method::POST, "/echo") => request.into_body().collect().await?.to_bytes(),
        _ => {
            let mut response = Response::new(Body::default());
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        }
    };
    Ok(Response::new(body.into()))
}

/// A server on the current runtime: a task for each connection.
async fn serve(http: Http, hogs: Hogs) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            let (io, hogs) = (TokioIo::new(connection), hogs.clone());
            let service = service_fn(move |request| handle(request, hogs.clone()));
            tokio::spawn(async move {
                // A client that goes away is no error.
                let _ = match http {
                    Http::One => {
                        let server = server::conn::http1::Builder::new();
                        server.serve_connection(io, service).await
                    }
                    Http::Two => {
                        let server = server::conn::http2::Builder::new(TokioExecutor::new());
                        server.serve_connection(io, service).await
                    }
                };
            });
        }
    });
    address
}

/// A client over HTTP/1, which keeps its connection.
async fn connect(address: SocketAddr) -> http1::SendRequest<Body> {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(method: Method, path: &str, body: impl Into<Bytes>) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("host", "localhost");
    request.body(Full::new(body.into())).unwrap()
}

async fn get(client: &mut http1::SendRequest<Body>, path: &str) -> Bytes {
    client.ready().await.unwrap();
    let response = client.send_request(request(Method::GET, path, ""));
    let response = response.await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body().collect().await.unwrap().to_bytes()
}

/// Returns hogs for tests in which no handler hogs.
fn no_hogs() -> Hogs {
    Hogs::new(Kind::Sleeps, Until::Time, 1)
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_with_keep_alive_and_a_large_body() {
    let mut client = connect(serve(Http::One, no_hogs()).await).await;
    assert_eq!(in_time(get(&mut client, "/ping")).await, "pong");
    // More than any buffer holds, so that both sides wait for each other.
    let large: Bytes = (0..4_000_000_u32).map(|n| n as u8).collect();
    let echo = client.send_request(request(Method::POST, "/echo", large.clone()));
    let echo = in_time(echo).await.unwrap().into_body().collect();
    assert!(in_time(echo).await.unwrap().to_bytes() == large);
    client.ready().await.unwrap();
    let none = client.send_request(request(Method::GET, "/none", ""));
    assert_eq!(in_time(none).await.unwrap().status(), StatusCode::NOT_FOUND);
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_2_with_a_hundred_streams_on_one_connection() {
    let address = serve(Http::Two, no_hogs()).await;
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let handshake = http2::handshake(TokioExecutor::new(), io);
    let (client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let streams: Vec<_> = (0..100)
        .map(|number: u32| {
            let mut client = client.clone();
            tokio::spawn(async move {
                client.ready().await.unwrap();
                let text = format!("{number}").repeat(1000);
                let echo = client.send_request(request(Method::POST, "/echo", text.clone()));
                let echo = echo.await.unwrap().into_body().collect().await.unwrap();
                assert!(echo.to_bytes() == text);
            })
        })
        .collect();
    for stream in streams {
        in_time(stream).await.unwrap();
    }
}

#[test]
fn a_neighbour_of_hogs() {
    let does = "HTTP/1 server, a task a connection; 4 MB echo, keep-alive, HTTP/2 with 100 streams";
    neighbour("hyper", does, async |stage| {
        let hogs = stage.hogs.clone();
        let address = stage.inside(serve(Http::One, hogs)).await;
        let kept = Arc::new(Mutex::new(connect(address).await));
        let hog = move || async move {
            let mut client = connect(address).await;
            assert_eq!(get(&mut client, "/hog").await, "grunt");
        };
        let ping = move || {
            let kept = kept.clone();
            async move { assert_eq!(get(&mut *kept.lock().await, "/ping").await, "pong") }
        };
        Scene::of_server(&stage, hog, ping)
    });
}
