//! Stock tokio, and the sceptic's variants of it: more threads, more threads with short slices.

use std::io;
use std::net::TcpListener;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Handle, Runtime};

use super::{Executor, Spawn};
use crate::{load, work};

/// The slice that `+slice` gives to every thread, the same that Morpheus takes.
const SLICE_NS: u64 = 200_000;
/// The workers that a tuned tokio has more, as many as Morpheus has spares.
#[cfg(tokio_unstable)]
const TUNED_MORE: usize = 32;

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
        match contender {
            super::Runtime::Tokio { extra, slice } => {
                Self::build_with(workers + extra, slice, |_| {})
            }
            #[cfg(tokio_unstable)]
            super::Runtime::TokioTuned => Self::build_with(workers + TUNED_MORE, true, |builder| {
                builder.enable_eager_driver_handoff().disable_lifo_slot();
            }),
            other => Err(io::Error::other(format!(
                "{other} is not tokio in this build"
            ))),
        }
    }

    fn build_with(
        workers: usize,
        slice: bool,
        tune: impl FnOnce(&mut Builder),
    ) -> io::Result<(Self, Runtime)> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(workers).enable_all();
        tune(&mut builder);
        if slice {
            builder.on_thread_start(|| {
                morpheus_runtime::slice::set_current(SLICE_NS);
            });
        }
        let runtime = builder.build()?;
        let handle = runtime.handle().clone();
        Ok((Self { handle }, runtime))
    }
}

impl Executor for Tokio {
    fn spawn<F>(&self, _: Spawn, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.handle.spawn(future);
    }

    fn sleep_until(at: Instant) -> impl Future<Output = ()> + Send + 'static {
        tokio::time::sleep_until(at.into())
    }

    fn yield_now() -> impl Future<Output = ()> + Send + 'static {
        tokio::task::yield_now()
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
