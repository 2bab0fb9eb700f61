//! smol: `async_executor` with one thread per worker, each driving `async-io` as `smol::spawn`'s do.

use std::future;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use async_io::{Async, Timer};
use futures_lite::io::{AsyncReadExt, AsyncWriteExt};

use super::{Executor, Spawn};
use crate::{load, work};

/// smol's executor and its threads, which live as long as the process.
#[derive(Clone)]
pub struct Smol {
    executor: Arc<async_executor::Executor<'static>>,
}

impl Smol {
    /// Starts an executor with this many threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn build(workers: usize) -> io::Result<Self> {
        let executor = Arc::new(async_executor::Executor::new());
        for i in 0..workers {
            let executor = executor.clone();
            std::thread::Builder::new()
                .name(format!("smol-{i}"))
                .spawn(move || async_io::block_on(executor.run(future::pending::<()>())))?;
        }
        Ok(Self { executor })
    }
}

impl Executor for Smol {
    fn spawn_boxed(&self, _: Spawn, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.executor.spawn(future).detach();
    }

    async fn sleep_until(at: Instant) {
        Timer::at(at).await;
    }

    fn yield_now() -> impl Future<Output = ()> + Send + 'static {
        futures_lite::future::yield_now()
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        async_io::block_on(future)
    }

    fn serve_echo(&self, listener: TcpListener, iterations: u64) -> io::Result<()> {
        let listener = Async::new(listener)?;
        let executor = self.executor.clone();
        let accept = async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // Without it the answer would wait for the other side's delayed acknowledgement.
                let _ = stream.get_ref().set_nodelay(true);
                let echo = async move {
                    let mut message = [0; load::MESSAGE];
                    while stream.read_exact(&mut message).await.is_ok() {
                        work::compute(iterations);
                        if stream.write_all(&message).await.is_err() {
                            break;
                        }
                    }
                };
                executor.spawn(echo).detach();
            }
        };
        self.executor.spawn(accept).detach();
        Ok(())
    }
}
