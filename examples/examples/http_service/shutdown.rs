//! The shutdown of the service: on Ctrl-C or SIGTERM it accepts no new connection, and finishes open
//! requests.

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

/// The requests that have no answer yet.
#[derive(Debug, Default)]
pub struct Open(AtomicUsize);

impl Open {
    /// The number of open requests.
    pub fn count(&self) -> usize {
        // Relaxed: a number for people; no other memory depends on it.
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

/// A layer around every handler: the request is open until there is an answer, or its client has gone.
pub async fn count(State(service): State<Service>, request: Request, next: Next) -> Response {
    let _open = service.open.one();
    next.run(request).await
}

/// The signals that ask the service to end.
pub struct Signals {
    ctrl_c: Signal,
    terminate: Signal,
}

impl Signals {
    /// Installs handlers: from now on these signals no longer end the process.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            ctrl_c: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the first signal.
    pub async fn asked(mut self) {
        tokio::select! {
            _ = self.ctrl_c.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Serves until `asked` completes, and then until the open requests are finished, or for `grace`. Returns how
/// many were left.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    asked: impl Future<Output = ()> + Send + 'static,
    grace: Duration,
    open: &Open,
) -> io::Result<usize> {
    let is_asked = std::sync::Arc::new(Notify::new());
    let tell = std::sync::Arc::clone(&is_asked);
    let ending = async move {
        asked.await;
        tell.notify_one();
    };
    let server = axum::serve(listener, app).with_graceful_shutdown(ending);
    let mut server = pin!(server.into_future());
    let out_of_time = async {
        is_asked.notified().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        ended = &mut server => ended.map(|()| 0),
        () = out_of_time => Ok(open.count()),
    }
}
