//! A crate called `tokio` for tokio's own tests: all of tokio, but its builder and its runtime are Morpheus's.
//!
//! `tokio_suite` writes this file into the target directory and builds it there; it is no module of `xtask`. A variable
//! of the environment, read once, chooses the [`Mode`], so that one build serves all of them.

pub use real_tokio::*;

pub use ours::spawn;

/// As tokio's module; the names here win over those of the glob.
pub mod runtime {
    pub use crate::ours::{Builder, Runtime};
    pub use real_tokio::runtime::*;
}

/// As tokio's module; the names here win over those of the glob.
pub mod task {
    pub use crate::ours::{LocalSet, spawn};
    pub use real_tokio::task::*;
}

/// A module, because a name imported at the root would hide tokio's of that name.
mod ours {
    use std::fmt;
    use std::io;
    use std::ops::Deref;
    use std::pin::Pin;
    use std::sync::{Arc, OnceLock};
    use std::task::{Context, Poll};
    use std::time::Duration;

    use real_tokio::runtime::{EnterGuard, Handle, LocalOptions, LocalRuntime, RuntimeMetrics};
    use real_tokio::task::JoinHandle;

    /// The runtime of a process.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Mode {
        /// Morpheus's runtime; spawned tasks are as the test wrote them.
        Unwatched,
        /// Morpheus's runtime; each task that `tokio::spawn` or `Runtime::spawn` gets is watched.
        Watched,
        /// Tokio's runtime: the control.
        Tokio,
    }

    impl Mode {
        /// # Panics
        ///
        /// The variable is missing or unknown: a run must not be taken for one of another mode.
        fn get() -> Mode {
            static MODE: OnceLock<Mode> = OnceLock::new();
            *MODE.get_or_init(|| match std::env::var("TOKIO_SUITE_MODE").as_deref() {
                Ok("unwatched") => Mode::Unwatched,
                Ok("watched") => Mode::Watched,
                Ok("tokio") => Mode::Tokio,
                other => panic!("TOKIO_SUITE_MODE is {other:?}"),
            })
        }
    }

    /// As tokio's; watched in [`Mode::Watched`].
    #[track_caller]
    pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match Mode::get() {
            Mode::Watched => morpheus_runtime::spawn(future),
            Mode::Unwatched | Mode::Tokio => real_tokio::spawn(future),
        }
    }

    /// As tokio's. Each option goes to both builders, to tokio's first: where tokio refuses a value it panics at the line of
    /// the test.
    pub struct Builder {
        /// Builds the runtime unless `morpheus` does, and builds local ones.
        tokio: real_tokio::runtime::Builder,
        morpheus: Option<morpheus_runtime::Builder>,
    }

    impl fmt::Debug for Builder {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match &self.morpheus {
                Some(morpheus) => morpheus.fmt(f),
                None => self.tokio.fmt(f),
            }
        }
    }

    /// Options that Morpheus's builder has itself.
    macro_rules! of_morpheus {
        ($($name:ident($($value:ident: $type:ty),*);)*) => {$(
            #[track_caller]
            pub fn $name(&mut self, $($value: $type),*) -> &mut Self {
                self.tokio.$name($($value.clone()),*);
                if let Some(morpheus) = &mut self.morpheus {
                    morpheus.$name($($value),*);
                }
                self
            }
        )*};
    }

    /// The same for functions, which have no clones.
    macro_rules! hooks {
        ($($name:ident($type:ty);)*) => {$(
            pub fn $name(&mut self, hook: impl Fn() -> $type + Send + Sync + 'static) -> &mut Self {
                let hook = Arc::new(hook);
                let same = hook.clone();
                self.tokio.$name(move || same());
                if let Some(morpheus) = &mut self.morpheus {
                    morpheus.$name(move || hook());
                }
                self
            }
        )*};
    }

    /// Options that go through to tokio's builder.
    macro_rules! of_tokio {
        ($($name:ident($($value:ident: $type:ty),*);)*) => {$(
            #[track_caller]
            pub fn $name(&mut self, $($value: $type),*) -> &mut Self {
                self.tokio.$name($($value.clone()),*);
                if let Some(morpheus) = &mut self.morpheus {
                    morpheus.tokio(|tokio| {
                        tokio.$name($($value),*);
                    });
                }
                self
            }
        )*};
    }

    impl Builder {
        pub fn new_multi_thread() -> Builder {
            Builder {
                tokio: real_tokio::runtime::Builder::new_multi_thread(),
                morpheus: (Mode::get() != Mode::Tokio)
                    .then(morpheus_runtime::Builder::new_multi_thread),
            }
        }

        pub fn new_current_thread() -> Builder {
            Builder {
                tokio: real_tokio::runtime::Builder::new_current_thread(),
                morpheus: (Mode::get() != Mode::Tokio)
                    .then(morpheus_runtime::Builder::new_current_thread),
            }
        }

        /// Of the two that would build the runtime alone: Morpheus's takes a 0.
        #[track_caller]
        pub fn worker_threads(&mut self, threads: usize) -> &mut Self {
            match &mut self.morpheus {
                Some(morpheus) => {
                    morpheus.worker_threads(threads);
                }
                None => {
                    self.tokio.worker_threads(threads);
                }
            }
            self
        }

        of_morpheus! {
            enable_all();
            enable_io();
            enable_time();
            event_interval(ticks: u32);
            global_queue_interval(ticks: u32);
            max_blocking_threads(threads: usize);
            name(name: impl Into<String> + Clone);
            start_paused(paused: bool);
            thread_keep_alive(duration: Duration);
            thread_name(name: impl Into<String> + Clone);
            thread_stack_size(bytes: usize);
        }

        hooks! {
            on_thread_start(());
            on_thread_stop(());
            on_thread_park(());
            on_thread_unpark(());
            thread_name_fn(String);
        }

        of_tokio! {
            max_io_events_per_busy_tick(events: usize);
            max_io_events_per_tick(events: usize);
        }

        pub fn build(&mut self) -> io::Result<Runtime> {
            match &mut self.morpheus {
                Some(morpheus) => morpheus.build().map(Runtime::Morpheus),
                None => self.tokio.build().map(Runtime::Tokio),
            }
        }

        #[track_caller]
        pub fn build_local(&mut self, options: LocalOptions) -> io::Result<LocalRuntime> {
            self.tokio.build_local(options)
        }
    }

    /// As tokio's.
    #[derive(Debug)]
    pub enum Runtime {
        Morpheus(morpheus_runtime::Runtime),
        Tokio(real_tokio::runtime::Runtime),
    }

    impl Runtime {
        pub fn new() -> io::Result<Runtime> {
            Builder::new_multi_thread().enable_all().build()
        }

        pub fn handle(&self) -> &Handle {
            match self {
                Runtime::Morpheus(runtime) => runtime.handle(),
                Runtime::Tokio(runtime) => runtime.handle(),
            }
        }

        #[track_caller]
        pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
        where
            F: Future + Send + 'static,
            F::Output: Send + 'static,
        {
            match self {
                Runtime::Morpheus(runtime) if Mode::get() == Mode::Watched => runtime.spawn(future),
                _ => self.handle().spawn(future),
            }
        }

        #[track_caller]
        pub fn spawn_blocking<F, R>(&self, function: F) -> JoinHandle<R>
        where
            F: FnOnce() -> R + Send + 'static,
            R: Send + 'static,
        {
            self.handle().spawn_blocking(function)
        }

        #[track_caller]
        pub fn block_on<F: Future>(&self, future: F) -> F::Output {
            match self {
                Runtime::Morpheus(runtime) => runtime.block_on(future),
                Runtime::Tokio(runtime) => runtime.block_on(future),
            }
        }

        pub fn enter(&self) -> EnterGuard<'_> {
            self.handle().enter()
        }

        pub fn metrics(&self) -> RuntimeMetrics {
            self.handle().metrics()
        }

        pub fn shutdown_timeout(self, timeout: Duration) {
            match self {
                Runtime::Morpheus(runtime) => runtime.shutdown_timeout(timeout),
                Runtime::Tokio(runtime) => runtime.shutdown_timeout(timeout),
            }
        }

        pub fn shutdown_background(self) {
            match self {
                Runtime::Morpheus(runtime) => runtime.shutdown_background(),
                Runtime::Tokio(runtime) => runtime.shutdown_background(),
            }
        }
    }

    /// As tokio's, but for its `block_on`, whose parameter is tokio's own `Runtime`.
    #[derive(Debug, Default)]
    pub struct LocalSet(real_tokio::task::LocalSet);

    impl LocalSet {
        pub fn new() -> LocalSet {
            LocalSet::default()
        }

        pub async fn run_until<F: Future>(&self, future: F) -> F::Output {
            self.0.run_until(future).await
        }

        #[track_caller]
        pub fn block_on<F: Future>(&self, runtime: &Runtime, future: F) -> F::Output {
            runtime.block_on(self.0.run_until(future))
        }
    }

    impl Deref for LocalSet {
        type Target = real_tokio::task::LocalSet;

        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }

    impl Future for LocalSet {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            Pin::new(&mut self.0).poll(context)
        }
    }
}
