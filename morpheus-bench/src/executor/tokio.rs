//! Stock tokio, and the sceptic's variants of it: more threads, more threads with short slices.

use std::io;
use std::net::TcpListener;
use std::pin::Pin;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Handle, Runtime};

use super::{Executor, Spawn};
use crate::tuned::{self, MORE_WORKERS};
use crate::{load, work};

/// tokio's multi-thread runtime.
#[derive(Clone)]
pub struct Tokio {
    handle: Handle,
}

impl Tokio {
    /// One of tokio's contenders, beside a program's `workers` with as many more as it says; it runs for as long as the
    /// returned [`Runtime`] lives.
    ///
    /// # Errors
    /// When tokio cannot start it, `contender` is none of tokio's, or needs a build with `--cfg tokio_unstable`.
    pub fn build(contender: super::Runtime, workers: usize) -> io::Result<(Self, Runtime)> {
        let mut builder = Builder::new_multi_thread();
        builder.enable_all();
        match contender {
            super::Runtime::Tokio { extra, slice } => {
                builder.worker_threads(workers + extra);
                if slice {
                    tuned::shorten_slices(&mut builder);
                }
            }
            super::Runtime::TokioTuned => {
                builder.worker_threads(workers + MORE_WORKERS);
                tuned::tune(&mut builder).map_err(io::Error::other)?;
            }
            other => return Err(io::Error::other(format!("{other} is not tokio"))),
        }
        let runtime = builder.build()?;
        let handle = runtime.handle().clone();
        Ok((Self { handle }, runtime))
    }
}

impl Executor for Tokio {
    fn spawn_boxed(&self, _: Spawn, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.handle.spawn(future);
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    fn serve_echo(&self, listener: TcpListener, iterations: u64) -> io::Result<()> {
        serve_echo(&self.handle, listener, iterations)
    }
}

/// The echo server for everything that is tokio: its own `net`, tasks started as a library starts them.
pub(super) fn serve_echo(
    handle: &Handle,
    listener: TcpListener,
    iterations: u64,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let _context = handle.enter();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    handle.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Without it the answer would wait for the other side's delayed acknowledgement.
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let mut message = [0; load::MESSAGE];
                while stream.read_exact(&mut message).await.is_ok() {
                    work::compute(iterations);
                    if stream.write_all(&message).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    Ok(())
}
