//! Calls wakers of the application. A waker may panic or block, so it is called where it delays only its own future.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use tokio::runtime::Handle;

use crate::report::own;
use morpheus_system::{supervise, threads};

thread_local! {
    /// True while the calling thread hands a waker to a runtime. The thread must not call the waker then.
    static HANDING_OVER: Cell<bool> = const { Cell::new(false) };
}

/// A waker to call, and the runtime that polls its future.
#[must_use = "a wake that is not made is lost"]
#[derive(Debug)]
pub(crate) struct Wake {
    pub(crate) waker: Waker,
    /// `None` if the future was polled outside of a runtime.
    pub(crate) runtime: Option<Handle>,
    /// Whether the waker is Morpheus's own, which neither panics nor blocks.
    pub(crate) is_own: bool,
}

impl Wake {
    /// Calls the waker on this thread. A panic of the waker ends here.
    pub(crate) fn here(self) {
        Call(Some(self.waker)).make();
    }

    /// Makes a task of the runtime call the waker. Each waker has its own task, so a waker that blocks delays no
    /// other. The task is an ordinary one: if it blocks, a spare takes over.
    ///
    /// No wake is lost. A runtime that ends drops the task, and the drop calls the waker. A runtime that has ended
    /// refuses the task, and then a thread calls the waker.
    pub(crate) fn elsewhere(self) {
        if self.is_own {
            return self.here();
        }
        let Some(runtime) = self.runtime else {
            return on_a_thread(self.waker);
        };
        let call = OnRuntime(Call(Some(self.waker)));
        let _handing_over = HandingOver::begin();
        let hand_over = AssertUnwindSafe(|| own::spawn(&runtime, async move { call.make() }));
        // The application's hook for spawned tasks may panic. That drops the task, and a thread calls the waker.
        if let Err(panic) = catch_unwind(hand_over) {
            supervise::dismiss(panic);
        }
    }
}

/// Calls a waker once, at the latest when it is dropped.
struct Call(Option<Waker>);

impl Call {
    fn make(&mut self) {
        if let Some(waker) = self.0.take()
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake()))
        {
            supervise::dismiss(panic);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.make();
    }
}

/// A [`Call`] that is made by a task of a runtime.
struct OnRuntime(Call);

impl OnRuntime {
    fn make(mut self) {
        self.0.make();
    }
}

impl Drop for OnRuntime {
    fn drop(&mut self) {
        if HANDING_OVER.get()
            && let Some(waker) = self.0.0.take()
        {
            on_a_thread(waker);
        }
    }
}

struct HandingOver;

impl HandingOver {
    fn begin() -> HandingOver {
        HANDING_OVER.set(true);
        HandingOver
    }
}

impl Drop for HandingOver {
    fn drop(&mut self) {
        HANDING_OVER.set(false);
    }
}

/// Calls a waker on a new thread. If no thread can be started, this thread calls it: the drop of the closure does so.
fn on_a_thread(waker: Waker) {
    let mut call = Call(Some(waker));
    let thread = std::thread::Builder::new().name("morpheus-wake".into());
    let _ = threads::start(thread, move || call.make());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;
    use std::time::Duration;

    /// Reports the thread that calls it, then panics.
    struct Panics(Sender<ThreadId>);

    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.send(std::thread::current().id()).unwrap();
            panic!("a waker, on purpose");
        }
    }

    fn waker() -> (Waker, Receiver<ThreadId>) {
        let (sender, called) = channel();
        (Arc::new(Panics(sender)).into(), called)
    }

    fn caller(called: &Receiver<ThreadId>) -> ThreadId {
        called.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap()
    }

    fn wake(waker: Waker, runtime: Option<&Handle>) -> Wake {
        Wake {
            waker,
            runtime: runtime.cloned(),
            is_own: false,
        }
    }

    #[test]
    fn a_panic_of_a_waker_ends_in_the_call() {
        let (waker, called) = waker();
        wake(waker.clone(), None).here();
        assert_eq!(caller(&called), std::thread::current().id());
        let runtime = runtime();
        wake(waker.clone(), Some(runtime.handle())).elsewhere();
        assert_ne!(caller(&called), std::thread::current().id());
        wake(waker, None).elsewhere();
        assert_ne!(caller(&called), std::thread::current().id());
        assert_eq!(runtime.block_on(async { 7 }), 7);
    }

    #[test]
    fn no_wake_is_lost_with_its_runtime() {
        // The only worker is busy when the task comes, and the runtime ends before it runs.
        let (waker, called) = waker();
        let runtime = runtime();
        let (busy, is_busy) = channel();
        let (go_on, goes_on) = channel::<()>();
        drop(runtime.spawn(async move {
            busy.send(()).unwrap();
            let _ = goes_on.recv();
        }));
        is_busy.recv().unwrap();
        let handle = runtime.handle().clone();
        wake(waker.clone(), Some(&handle)).elsewhere();
        runtime.shutdown_background();
        go_on.send(()).unwrap();
        assert_ne!(caller(&called), std::thread::current().id());
        // The runtime has ended.
        wake(waker, Some(&handle)).elsewhere();
        assert_ne!(caller(&called), std::thread::current().id());
    }

    #[test]
    fn a_waker_that_blocks_delays_no_other() {
        struct Blocks(std::sync::Mutex<Receiver<()>>);
        impl std::task::Wake for Blocks {
            fn wake(self: Arc<Self>) {
                let _ = self.0.lock().unwrap().recv();
            }
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let (go_on, goes_on) = channel::<()>();
        let blocks = Arc::new(Blocks(std::sync::Mutex::new(goes_on)));
        let (waker, called) = waker();
        wake(blocks.into(), Some(runtime.handle())).elsewhere();
        wake(waker, Some(runtime.handle())).elsewhere();
        caller(&called);
        drop(go_on);
    }
}
