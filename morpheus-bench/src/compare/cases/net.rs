//! Servers on the runtime, over the loopback. Their client is a thread outside of it ([`super::client`]).

use std::convert::Infallible;
use std::net::SocketAddr;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use morpheus_harness::histogram::SAMPLES_FOR_P99;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::client::{Clients, Protocol};
use super::{Body, Stage};
use crate::compare::spawner::Spawner;
use crate::load;

/// The round trips that a p99 needs, and a few more, so that it does not depend on one.
pub const LEAST: u64 = SAMPLES_FOR_P99 + SAMPLES_FOR_P99 / 5;

/// A server that sends back what it gets.
pub fn echo<S: Spawner, const CONNECTIONS: usize>(stage: &Stage) -> Result<Body, String> {
    served::<S, _>(stage, CONNECTIONS, Protocol::Echo, send_back)
}

async fn send_back(mut stream: TcpStream) {
    let mut message = [0; load::MESSAGE];
    while stream.read_exact(&mut message).await.is_ok() {
        if stream.write_all(&message).await.is_err() {
            return;
        }
    }
}

/// hyper, which says hello.
pub fn hello<S: Spawner, const CONNECTIONS: usize>(stage: &Stage) -> Result<Body, String> {
    served::<S, _>(stage, CONNECTIONS, Protocol::Http, greet)
}

async fn greet(stream: TcpStream) {
    let io = TokioIo::new(stream);
    // A client that closes the connection ends this with an error, which is the end of the run.
    let _ = http1::Builder::new()
        .serve_connection(io, service_fn(say_hello))
        .await;
}

async fn say_hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let hello = Bytes::from_static(b"Hello, world!");
    Ok(Response::new(Full::new(hello)))
}

fn served<S: Spawner, F>(
    stage: &Stage,
    connections: usize,
    protocol: Protocol,
    serve: fn(TcpStream) -> F,
) -> Result<Body, String>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listen = async {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(loopback).await?;
        let address = listener.local_addr()?;
        S::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Without it the answer would wait for the other side's delayed acknowledgement.
                let _ = stream.set_nodelay(true);
                S::spawn(serve(stream));
            }
        });
        Ok(address)
    };
    let address = stage
        .runtime
        .block_on(listen)
        .map_err(|error: std::io::Error| format!("no server on the loopback: {error}"))?;
    let clients = Clients::connect(address, connections, protocol)?;
    Ok(Box::new(move |n| clients.round_trips(n)))
}
