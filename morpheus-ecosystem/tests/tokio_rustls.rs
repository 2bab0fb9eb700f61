//! Tests rustls over TCP (tokio-rustls, with ring): handshakes, data both ways, and a certificate that is refused.

use std::net::SocketAddr;
use std::sync::Arc;

use morpheus_ecosystem::hog::{Kind, Until};
use morpheus_ecosystem::{Hogs, Scene, in_time, neighbour, tls};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, ProtocolVersion, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

type Client = BufStream<TlsStream<TcpStream>>;

/// Answers each line with the same line, and `hog` after a while.
async fn serve(config: ServerConfig, hogs: Hogs) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            let (acceptor, hogs) = (acceptor.clone(), hogs.clone());
            tokio::spawn(async move { answer(acceptor, connection, hogs).await });
        }
    });
    address
}

/// A client that does not trust us, or goes away, is no error.
async fn answer(acceptor: TlsAcceptor, connection: TcpStream, hogs: Hogs) -> std::io::Result<()> {
    let mut tls = BufStream::new(acceptor.accept(connection).await?);
    let mut line = String::new();
    while tls.read_line(&mut line).await? > 0 {
        if line == "hog\n" {
            hogs.hog().await;
        }
        tls.write_all(line.as_bytes()).await?;
        tls.flush().await?;
        line.clear();
    }
    tls.shutdown().await
}

async fn connect(config: ClientConfig, address: SocketAddr) -> std::io::Result<Client> {
    let connector = TlsConnector::from(Arc::new(config));
    let connection = TcpStream::connect(address).await?;
    let name = tls::NAME.try_into().expect("a name");
    Ok(BufStream::new(connector.connect(name, connection).await?))
}

async fn echo(client: &mut Client, line: &str) {
    client.write_all(line.as_bytes()).await.unwrap();
    client.flush().await.unwrap();
    let mut answer = String::new();
    client.read_line(&mut answer).await.unwrap();
    assert!(answer == line);
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_at_once_and_a_large_message() {
    let (server, client) = tls::pair();
    let address = serve(server, Hogs::new(Kind::Sleeps, Until::Time, 1)).await;
    let clients: Vec<_> = (0..20)
        .map(|number| {
            let config = client.clone();
            tokio::spawn(async move {
                let mut client = connect(config, address).await.unwrap();
                let version = client.get_ref().get_ref().1.protocol_version();
                assert_eq!(version, Some(ProtocolVersion::TLSv1_3));
                echo(&mut client, &format!("{number}\n")).await;
                echo(&mut client, &format!("{}\n", "x".repeat(100_000))).await;
                client.shutdown().await.unwrap();
                let mut rest = Vec::new();
                assert_eq!(client.read_to_end(&mut rest).await.unwrap(), 0);
            })
        })
        .collect();
    for client in clients {
        in_time(client).await.unwrap();
    }
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_without_a_trusted_issuer() {
    let (server, client) = tls::pair();
    let address = serve(server, Hogs::new(Kind::Sleeps, Until::Time, 1)).await;
    let refused = in_time(connect(tls::distrustful(), address)).await;
    let refused = refused.expect_err("an unknown issuer").to_string();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    let mut client = in_time(connect(client, address)).await.unwrap();
    in_time(echo(&mut client, "still there\n")).await;
}

#[test]
fn a_neighbour_of_hogs() {
    let does = "TLS 1.3 over TCP; 20 handshakes at once, 100 KB echo, an unknown issuer refused";
    neighbour("tokio-rustls", does, async |stage| {
        let (server, config) = tls::pair();
        let address = stage.inside(serve(server, stage.hogs.clone())).await;
        let kept = connect(config.clone(), address).await.unwrap();
        let kept = Arc::new(Mutex::new(kept));
        let hog = move || {
            let config = config.clone();
            async move { echo(&mut connect(config, address).await.unwrap(), "hog\n").await }
        };
        let ping = move || {
            let kept = kept.clone();
            async move { echo(&mut *kept.lock().await, "ping\n").await }
        };
        Scene::of_server(&stage, hog, ping)
    });
}
