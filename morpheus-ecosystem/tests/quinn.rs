//! Tests quinn: QUIC over UDP; an endpoint's driver, a driver for each connection, and a task for each stream.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use morpheus_ecosystem::hog::{Kind, Until};
use morpheus_ecosystem::{Hogs, Scene, in_time, neighbour, tls};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig};

/// A server and what a client needs to trust it.
fn configs() -> (ServerConfig, ClientConfig) {
    let (server, client) = tls::pair();
    let server = QuicServerConfig::try_from(server).unwrap();
    let client = QuicClientConfig::try_from(client).unwrap();
    let mut server = ServerConfig::with_crypto(Arc::new(server));
    let mut client = ClientConfig::new(Arc::new(client));
    // A machine that is stopped for a while must not end the connection.
    let mut patient = TransportConfig::default();
    patient.max_idle_timeout(None);
    let patient = Arc::new(patient);
    server.transport_config(patient.clone());
    client.transport_config(patient);
    (server, client)
}

/// Echoes each stream, `hog` after a while.
async fn serve(config: ServerConfig, hogs: Hogs) -> SocketAddr {
    let endpoint = Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = endpoint.local_addr().unwrap();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let hogs = hogs.clone();
            tokio::spawn(async move {
                let connection = incoming.await.unwrap();
                while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                    let hogs = hogs.clone();
                    tokio::spawn(async move {
                        let bytes = receive.read_to_end(10_000_000).await.unwrap();
                        if bytes == b"hog" {
                            hogs.hog().await;
                        }
                        send.write_all(&bytes).await.unwrap();
                        send.finish().unwrap();
                    });
                }
            });
        }
    });
    address
}

/// A client's endpoint on the current runtime.
fn client(config: ClientConfig) -> Endpoint {
    let mut endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    endpoint.set_default_client_config(config);
    endpoint
}

async fn connect(endpoint: &Endpoint, address: SocketAddr) -> Connection {
    endpoint.connect(address, tls::NAME).unwrap().await.unwrap()
}

async fn echo(connection: Connection, bytes: &[u8]) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let write = async {
        send.write_all(bytes).await.unwrap();
        send.finish().unwrap();
    };
    let ((), answer) = tokio::join!(write, receive.read_to_end(10_000_000));
    assert!(answer.unwrap() == bytes);
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_at_once_a_large_one_and_a_close() {
    let (server, config) = configs();
    let address = serve(server, Hogs::new(Kind::Sleeps, Until::Time, 1)).await;
    let endpoint = client(config);
    let connection = in_time(connect(&endpoint, address)).await;
    let streams: Vec<_> = (0..50_u8)
        .map(|number| {
            let connection = connection.clone();
            tokio::spawn(async move { echo(connection, &vec![number; 1000]).await })
        })
        .collect();
    for stream in streams {
        in_time(stream).await.unwrap();
    }
    let large: Vec<u8> = (0..2_000_000_u32).map(|n| n as u8).collect();
    in_time(echo(connection.clone(), &large)).await;
    connection.close(0_u8.into(), b"done");
    in_time(endpoint.wait_idle()).await;
    assert!(connection.open_bi().await.is_err(), "it is closed");
}

#[test]
fn a_neighbour_of_hogs() {
    let does = "QUIC server; 50 streams at once, 2 MB echo, an orderly close";
    neighbour("quinn", does, async |stage| {
        let (server, config) = configs();
        let address = stage.inside(serve(server, stage.hogs.clone())).await;
        let endpoint = client(config);
        let hogging = connect(&endpoint, address).await;
        let kept = connect(&endpoint, address).await;
        let hog = move || {
            let connection = hogging.clone();
            async move { echo(connection, b"hog").await }
        };
        let ping = move || {
            let connection = kept.clone();
            async move { echo(connection, b"ping").await }
        };
        Scene::of_server(&stage, hog, ping)
    });
}
