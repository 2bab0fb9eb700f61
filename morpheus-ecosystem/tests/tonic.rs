//! Tests tonic: server and client, with the generated code of gRPC's own health service (tonic-health), so that no build
//! needs protoc. The service is the test's own, and the name in a request selects a hog.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use morpheus_ecosystem::hog::{Kind, Until};
use morpheus_ecosystem::{Hogs, Scene, in_time, neighbour};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

struct Service(Hogs);

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}

#[tonic::async_trait]
impl Health for Service {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let status = match request.into_inner().service.as_str() {
            "ping" => ServingStatus::Serving,
            "hog" => {
                self.0.hog().await;
                ServingStatus::NotServing
            }
            "never" => std::future::pending().await,
            _ => return Err(Status::not_found("no such service")),
        };
        Ok(Response::new(answer(status)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// A thousand messages, and an error.
    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let messages = (0..1000).map(|number| {
            Ok(answer(if number % 2 == 0 {
                ServingStatus::Serving
            } else {
                ServingStatus::NotServing
            }))
        });
        let end = [Err(Status::resource_exhausted("enough"))];
        let stream = futures_util::stream::iter(messages.chain(end));
        Ok(Response::new(Box::pin(stream)))
    }
}

/// A server on the current runtime.
async fn serve(hogs: Hogs) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(HealthServer::new(Service(hogs)));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
    address
}

/// A client over a connection of its own.
async fn connect(address: SocketAddr) -> HealthClient<Channel> {
    let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

async fn check(mut client: HealthClient<Channel>, service: &str) -> Result<ServingStatus, Status> {
    let service = service.to_string();
    let answer = client.check(HealthCheckRequest { service }).await?;
    Ok(answer.into_inner().status())
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_streams_deadlines_and_errors() {
    let hogs = Hogs::new(Kind::Sleeps, Until::Time, 1);
    let client = connect(serve(hogs).await).await;
    let calls: Vec<_> = (0..100)
        .map(|_| tokio::spawn(check(client.clone(), "ping")))
        .collect();
    for call in calls {
        assert_eq!(
            in_time(call).await.unwrap().unwrap(),
            ServingStatus::Serving
        );
    }
    let unknown = in_time(check(client.clone(), "unknown")).await.unwrap_err();
    assert_eq!(
        (unknown.code(), unknown.message()),
        (Code::NotFound, "no such service")
    );
    let watch = HealthCheckRequest::default();
    let mut messages = client.clone().watch(watch).await.unwrap().into_inner();
    let (mut serving, mut end) = (0, None);
    while let Some(message) = in_time(messages.next()).await {
        match message {
            Ok(message) => serving += u32::from(message.status() == ServingStatus::Serving),
            Err(status) => end = Some(status.code()),
        }
    }
    assert_eq!((serving, end), (500, Some(Code::ResourceExhausted)));
    let mut never = Request::new(HealthCheckRequest {
        service: "never".to_string(),
    });
    never.set_timeout(Duration::from_millis(50));
    let late = in_time(client.clone().check(never)).await.unwrap_err();
    // Both ends know the deadline, and each has a code of its own for it.
    let codes = [Code::Cancelled, Code::DeadlineExceeded];
    assert!(codes.contains(&late.code()), "{late:?}");
}

#[test]
fn a_neighbour_of_hogs_in_the_server() {
    let does = "server; 100 calls on a connection, a stream of 1,000 messages, deadlines, errors";
    neighbour("tonic", does, async |stage| {
        let hogs = stage.hogs.clone();
        let address = stage.inside(serve(hogs)).await;
        let (hogging, kept) = (connect(address).await, connect(address).await);
        let hog = move || {
            let client = hogging.clone();
            async move {
                assert_eq!(
                    check(client, "hog").await.unwrap(),
                    ServingStatus::NotServing
                )
            }
        };
        let ping = move || {
            let client = kept.clone();
            async move { assert_eq!(check(client, "ping").await.unwrap(), ServingStatus::Serving) }
        };
        Scene::of_server(&stage, hog, ping)
    });
}

/// The neighbour's calls go over the connection that the hogs' answers came from.
#[test]
fn a_neighbour_of_hogs_with_the_same_client() {
    let does = "client; one connection for hogs and neighbour";
    neighbour("tonic", does, async |stage| {
        let hogs = stage.hogs.clone();
        let address = in_time(stage.outside.spawn(serve(hogs.clone())))
            .await
            .unwrap();
        let client = stage.inside(connect(address)).await;
        let ping = {
            let client = client.clone();
            move || {
                let client = client.clone();
                async move { assert_eq!(check(client, "ping").await.unwrap(), ServingStatus::Serving) }
            }
        };
        let hog = move || {
            let (client, hogs) = (client.clone(), hogs.clone());
            async move {
                assert_eq!(check(client, "ping").await.unwrap(), ServingStatus::Serving);
                hogs.hog().await;
            }
        };
        Scene::of_tasks(&stage, hog, ping)
    });
}
