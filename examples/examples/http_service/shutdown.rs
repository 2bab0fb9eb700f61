//! How the service ends: on Ctrl-C or SIGTERM it accepts no new connection, and finishes open requests.

use std::future::{Future, IntoFuture};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::service::Service;

/// Requests that have no answer yet.
#[derive(Debug, Default)]
pub struct Open(AtomicUsize);

impl Open {
    /// How many there are.
    pub fn count(&self) -> usize {
        // Relaxed: a number for people, no memory is read by it.
        self.0.load(Ordering::Relaxed)
    }

    fn one(&self) -> impl Drop {
        struct One<'a>(&'a AtomicUsize);
        impl Drop for One<'_> {
            fn drop(&mut self) {
                // Relaxed: as in `count`.
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        // Relaxed: as in `count`.
        self.0.fetch_add(1, Ordering::Relaxed);
        One(&self.0)
    }
}

/// Around every handler: the request is open until there is an answer, or its client has gone.
pub async fn count(State(service): State<Service>, request: Request, next: Next) -> Response {
    let _open = service.open.one();
    next.run(request).await
}

/// What asks a service to end.
pub struct Signals {
    ctrl_c: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on they end the process no more.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            ctrl_c: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the first.
    pub async fn asked(mut self) {
        tokio::select! {
            _ = self.ctrl_c.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Serves until `asked`, and then until the open requests are finished, or for `grace`. Returns how many were left.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    asked: impl Future<Output = ()> + Send + 'static,
    grace: Duration,
    open: &Open,
) -> io::Result<usize> {
    let told = std::sync::Arc::new(Notify::new());
    let tell = std::sync::Arc::clone(&told);
    let ending = async move {
        asked.await;
        tell.notify_one();
    };
    let server = axum::serve(listener, app).with_graceful_shutdown(ending);
    let mut server = pin!(server.into_future());
    let out_of_time = async {
        told.notified().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        ended = &mut server => ended.map(|()| 0),
        () = out_of_time => Ok(open.count()),
    }
}
