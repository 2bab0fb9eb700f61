//! Tests that what depends on its context in tokio has the same results as there: in watched tasks, in hogs that are
//! handed off, and on runtimes that are not Morpheus's.

mod common;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Log, MS, PATIENCE, alone, become_hog, burn, fresh_label, in_time, wait_for};
use morpheus_runtime::{Builder, Runtime, Watch as _, task};
use tokio::runtime::Handle;
use tokio::task::{JoinSet, LocalSet};

type Body = Pin<Box<dyn Future<Output = String> + Send>>;
type Scenario = (&'static str, fn() -> Body);

fn stock() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

async fn nap<T>(value: T) -> T {
    tokio::time::sleep(MS).await;
    value
}

/// Things that applications do inside tasks. Each describes its result in words.
const SCENARIOS: &[Scenario] = &[
    ("block_in_place", || {
        Box::pin(async {
            let before = tokio::task::block_in_place(|| 7);
            format!("{before} {}", nap(8).await)
        })
    }),
    ("block_in_place within block_in_place", || {
        Box::pin(async {
            let nested = tokio::task::block_in_place(|| tokio::task::block_in_place(|| 7));
            nested.to_string()
        })
    }),
    ("block_in_place and Handle::block_on", || {
        Box::pin(async {
            let handle = Handle::current();
            tokio::task::block_in_place(|| handle.block_on(nap(7))).to_string()
        })
    }),
    ("Handle::block_on", || {
        Box::pin(async { Handle::current().block_on(nap(7)).to_string() })
    }),
    ("spawn_blocking", || {
        Box::pin(async { format!("{:?}", tokio::task::spawn_blocking(|| 7).await) })
    }),
    ("block_on from a blocking thread", || {
        Box::pin(async {
            let handle = Handle::current();
            let blocking = tokio::task::spawn_blocking(move || handle.block_on(nap(7)));
            format!("{:?}", blocking.await)
        })
    }),
    ("LocalSet on a blocking thread", || {
        Box::pin(async {
            let handle = Handle::current();
            let blocking = tokio::task::spawn_blocking(move || {
                let local = LocalSet::new();
                let inner = async { tokio::task::spawn_local(nap(7)).await.unwrap() };
                handle.block_on(local.run_until(inner))
            });
            format!("{:?}", blocking.await)
        })
    }),
    ("LocalSet in block_in_place", || {
        Box::pin(async {
            let handle = Handle::current();
            tokio::task::block_in_place(|| {
                let local = LocalSet::new();
                let inner = async { tokio::task::spawn_local(nap(7)).await.unwrap() };
                handle.block_on(local.run_until(inner))
            })
            .to_string()
        })
    }),
    ("spawn_local without a LocalSet", || {
        Box::pin(async {
            let task = tokio::task::spawn_local(nap(7));
            task.is_finished().to_string()
        })
    }),
    ("a current-thread runtime in block_in_place", || {
        Box::pin(async {
            tokio::task::block_in_place(|| current_thread().block_on(nap(7))).to_string()
        })
    }),
    ("a runtime of its own in block_in_place", || {
        Box::pin(async {
            tokio::task::block_in_place(|| {
                let runtime = small();
                runtime.block_on(async { runtime.spawn(nap(7)).await.unwrap() })
            })
            .to_string()
        })
    }),
    ("a current-thread runtime", || {
        Box::pin(async { current_thread().block_on(nap(7)).to_string() })
    }),
    ("a runtime of its own", || {
        Box::pin(async { small().block_on(nap(7)).to_string() })
    }),
    ("mpsc blocking_send", || {
        Box::pin(async {
            let (tx, _rx) = tokio::sync::mpsc::channel(1);
            format!("{:?}", tx.blocking_send(7))
        })
    }),
    ("oneshot blocking_recv", || {
        Box::pin(async {
            let (tx, rx) = tokio::sync::oneshot::channel();
            tx.send(7).unwrap();
            format!("{:?}", rx.blocking_recv())
        })
    }),
    ("Mutex blocking_lock", || {
        Box::pin(async { tokio::sync::Mutex::new(7).blocking_lock().to_string() })
    }),
    ("select!", || {
        Box::pin(async {
            let slow = tokio::time::sleep(Duration::from_secs(600));
            tokio::select! {
                () = slow => "slow".to_owned(),
                value = nap("fast") => value.to_owned(),
            }
        })
    }),
    ("select! of watched futures", || {
        Box::pin(async {
            let slow = tokio::time::sleep(Duration::from_secs(600)).watched("contexts slow");
            tokio::select! {
                () = slow => "slow".to_owned(),
                value = morpheus_runtime::watch(nap("fast")) => value.to_owned(),
            }
        })
    }),
    ("join! of watched futures", || {
        Box::pin(async {
            let one = morpheus_runtime::watch(nap(1));
            let two = nap(2).watched("contexts two");
            format!("{:?}", tokio::join!(one, two, nap(3)))
        })
    }),
    ("nested watch", || {
        Box::pin(async {
            let inner = nap(7).watched("contexts inner");
            morpheus_runtime::watch(inner).await.to_string()
        })
    }),
    ("JoinSet", || {
        Box::pin(async {
            let mut set = JoinSet::new();
            for value in 0..10 {
                set.spawn(nap(value));
            }
            let mut all = set.join_all().await;
            all.sort_unstable();
            format!("{all:?}")
        })
    }),
    ("task ids", || {
        Box::pin(async {
            let outer = tokio::task::id();
            let inner = morpheus_runtime::watch(async { tokio::task::id() }).await;
            format!("{} {}", tokio::task::try_id().is_some(), outer == inner)
        })
    }),
    ("panic", || Box::pin(async { panic!("on purpose") })),
    ("panic in block_in_place", || {
        Box::pin(async { tokio::task::block_in_place(|| panic!("on purpose")) })
    }),
    ("dropping a runtime", || {
        Box::pin(async {
            drop(stock());
            "dropped".to_owned()
        })
    }),
    ("shutdown_background of a runtime", || {
        Box::pin(async {
            small().shutdown_background();
            nap("done").await.to_owned()
        })
    }),
    ("timeout around an always-ready future", || {
        Box::pin(async {
            let ready = common::always_ready(Arc::default());
            tokio::time::timeout(30 * MS, ready)
                .await
                .is_err()
                .to_string()
        })
    }),
    ("aborting an always-ready watched task", || {
        Box::pin(async {
            let task = morpheus_runtime::spawn(async {
                become_hog().await;
                common::always_ready(Arc::default()).await;
            });
            tokio::time::sleep(150 * MS).await;
            task.abort();
            task.await.unwrap_err().is_cancelled().to_string()
        })
    }),
    ("unconstrained", || {
        Box::pin(async { tokio::task::unconstrained(nap(7)).await.to_string() })
    }),
    ("net", || {
        Box::pin(async {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let client = async {
                let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
                socket.write_u8(7).await.unwrap();
            };
            let server = async {
                let (mut socket, _) = listener.accept().await.unwrap();
                socket.read_u8().await.unwrap()
            };
            format!("{:?}", tokio::join!(client, server))
        })
    }),
    ("fs", || {
        Box::pin(async {
            let text = tokio::fs::read_to_string("/etc/hostname").await;
            text.is_ok().to_string()
        })
    }),
    ("process", || {
        Box::pin(async {
            let output = tokio::process::Command::new("echo").arg("7").output().await;
            String::from_utf8_lossy(&output.unwrap().stdout)
                .trim()
                .to_owned()
        })
    }),
    ("signal", || {
        Box::pin(async {
            use tokio::signal::unix::{SignalKind, signal};
            let mut stream = signal(SignalKind::user_defined1()).unwrap();
            // SAFETY: the handler is installed.
            unsafe { libc::raise(libc::SIGUSR1) };
            format!("{:?}", stream.recv().await)
        })
    }),
    ("entering another runtime's context", || {
        Box::pin(async {
            let other = tokio::task::block_in_place(small);
            let value = {
                let handle = other.handle().clone();
                let entered = handle.enter();
                let task = tokio::spawn(nap(7));
                drop(entered);
                task.await
            };
            other.shutdown_background();
            format!("{value:?}")
        })
    }),
    ("a watched block_in_place and block_on", || {
        Box::pin(async {
            let handle = Handle::current();
            let watched = morpheus_runtime::watch(async {
                burn(10 * MS);
                nap(7).await
            });
            tokio::task::block_in_place(|| handle.block_on(watched)).to_string()
        })
    }),
];

fn small() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .max_spares(2)
        .build()
        .unwrap()
}

/// Describes the result of a task in words, panics included. It leaves out the ids that tokio puts into some.
fn words(result: Result<String, tokio::task::JoinError>) -> String {
    match result {
        Ok(text) => text,
        Err(error) if error.is_panic() => {
            let text = common::panic_text(&*error.into_panic());
            format!("panic: {text}")
        }
        Err(error) => format!("{error}"),
    }
}

/// Every scenario has the same result on stock tokio, unwatched on Morpheus, watched, and in a hog.
#[test]
fn the_results_are_tokio_s_with_every_rating() {
    let _alone = alone();
    let panics = common::own_panics();
    let (tokio, morpheus) = (
        stock(),
        Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap(),
    );
    let mut different = Vec::new();
    for &(name, scenario) in SCENARIOS {
        let expected = tokio.block_on(async { words(in_time(tokio.spawn(scenario())).await) });
        let run = |task| morpheus.block_on(async { words(in_time(task).await) });
        let unwatched = run(morpheus.handle().spawn(scenario()));
        let watched = run(morpheus.spawn(scenario()));
        let before = morpheus.metrics().handoff_polls;
        let label = fresh_label("contexts hog");
        let hog = run(task::Builder::new().label(label).spawn_on(
            async move {
                become_hog().await;
                scenario().await
            },
            morpheus.handle(),
        ));
        let handoffs = morpheus.metrics().handoff_polls - before;
        if [&unwatched, &watched, &hog] != [&expected; 3] || handoffs == 0 {
            different.push(format!(
                "{name}: tokio {expected:?}, unwatched {unwatched:?}, watched {watched:?}, hog {hog:?}, \
                 {handoffs} handoff polls"
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert_eq!(common::own_panics(), panics);
}

/// Tokio refuses the scenarios that it must refuse; else the test above would compare one mistake with another.
#[test]
fn what_tokio_refuses_in_a_task_it_refuses_here() {
    let _alone = alone();
    let morpheus = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    for refused in [
        "Handle::block_on",
        "a current-thread runtime",
        "a runtime of its own",
        "mpsc blocking_send",
        "oneshot blocking_recv",
        "Mutex blocking_lock",
        "dropping a runtime",
        "spawn_local without a LocalSet",
    ] {
        let (_, scenario) = SCENARIOS.iter().find(|(name, _)| *name == refused).unwrap();
        let task = morpheus.spawn(async move {
            become_hog().await;
            scenario().await
        });
        let result = words(morpheus.block_on(in_time(task)));
        assert!(result.starts_with("panic: "), "{refused}: {result}");
    }
}

/// Hogs without a worker do not panic: in `block_on`, in a `LocalSet`, on blocking threads, on a current-thread
/// runtime, polled by hand.
#[test]
fn hogs_without_a_worker() {
    let _alone = alone();
    let panics = common::own_panics();
    let hog = || {
        async {
            become_hog().await;
            burn(10 * MS);
            nap(7).await
        }
        .watched(fresh_label("elsewhere"))
    };
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    assert_eq!(runtime.block_on(hog()), 7);
    let current = current_thread();
    assert_eq!(current.block_on(hog()), 7);
    assert_eq!(
        current.block_on(async { tokio::spawn(hog()).await.unwrap() }),
        7
    );
    let local = async { tokio::task::spawn_local(hog()).await.unwrap() };
    assert_eq!(runtime.block_on(LocalSet::new().run_until(local)), 7);
    let local = async { tokio::task::spawn_local(hog()).await.unwrap() };
    assert_eq!(current.block_on(LocalSet::new().run_until(local)), 7);
    let handle = runtime.handle().clone();
    let blocking = runtime
        .handle()
        .spawn_blocking(move || handle.block_on(hog()));
    assert_eq!(runtime.block_on(in_time(blocking)).unwrap(), 7);
    let blocking = runtime
        .handle()
        .spawn_blocking(move || current_thread().block_on(hog()));
    assert_eq!(runtime.block_on(in_time(blocking)).unwrap(), 7);
    // On no runtime at all.
    let mut by_hand = std::pin::pin!(async { burn(10 * MS) }.watched(fresh_label("by hand")));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(by_hand.as_mut().poll(&mut context).is_ready());
    assert_eq!(common::own_panics(), panics);
}

/// The thread of a current-thread runtime has entered a multi-thread one: the flavor that tokio tells is the entered
/// one's, and `block_in_place` panics. It does so once for each of the two runtimes, and not for each poll.
#[test]
fn a_hog_on_a_current_thread_runtime_that_entered_another_one() {
    let _alone = alone();
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_refusal = common::panic_text(info.payload()).contains("can call blocking");
        REFUSED.fetch_add(usize::from(is_refusal), Ordering::SeqCst);
        before(info);
    }));
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let plain = stock();
    for handle in [runtime.handle(), plain.handle()] {
        let entered_inside = async {
            let _entered = handle.enter();
            let hog = async {
                for _ in 0..8 {
                    burn(20 * MS);
                    tokio::task::yield_now().await;
                }
                7
            };
            hog.watched(fresh_label("entered")).await
        };
        assert_eq!(current_thread().block_on(entered_inside), 7);
    }
    let refused = REFUSED.load(Ordering::SeqCst);
    assert!(refused <= 2, "{refused} panics were printed");
}

/// Polls a future with another runtime entered, as `tokio_util::context::TokioContext` does.
struct Entering<F>(Handle, Pin<Box<F>>);

impl<F: Future> Future for Entering<F> {
    type Output = F::Output;

    fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<F::Output> {
        let handle = self.0.clone();
        let _entered = handle.enter();
        self.1.as_mut().poll(cx)
    }
}

/// The worker belongs to one runtime and the current handle to another, with fewer workers or of another flavor.
#[test]
fn a_hog_on_a_worker_that_entered_another_runtime() {
    let _alone = alone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let (other, current) = (stock(), current_thread());
    for handle in [other.handle(), current.handle()] {
        // Several, so that some are on workers with a number that the other runtime does not have.
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let label = fresh_label("entering");
                let hog = async {
                    for _ in 0..8 {
                        burn(10 * MS);
                        tokio::task::yield_now().await;
                    }
                    7
                };
                let hog = Box::pin(hog.watched(label));
                runtime.handle().spawn(Entering(handle.clone(), hog))
            })
            .collect();
        for task in tasks {
            assert_eq!(runtime.block_on(in_time(task)).unwrap(), 7);
        }
    }
}

/// A task that was a hog on one runtime continues on another.
#[test]
fn a_watched_future_that_moves_between_runtimes() {
    let _alone = alone();
    let panics = common::own_panics();
    let (one, two) = (
        Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap(),
        Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap(),
    );
    let plain = stock();
    let watched = async {
        for _ in 0..6 {
            become_hog().await;
            // The next runtime continues here.
            nap(()).await;
        }
        7
    };
    let mut watched = Box::pin(watched.watched(fresh_label("wanderer")));
    let runtimes = [one.handle(), two.handle(), plain.handle()];
    let mut result = None;
    for turn in 0.. {
        let handle = runtimes[turn % 3];
        let task = handle.spawn(async move {
            let output = tokio::time::timeout(50 * MS, &mut watched).await.ok();
            (watched, output)
        });
        let output;
        (watched, output) = one.block_on(in_time(task)).unwrap();
        if output.is_some() {
            result = output;
            break;
        }
        assert!(turn < 500, "never done");
    }
    assert_eq!(result, Some(7));
    let free = wait_for(PATIENCE, || {
        [&one, &two].iter().all(|runtime| {
            let metrics = runtime.metrics();
            (metrics.permits_waiting, metrics.debug.handoffs_now) == (0, 0)
        })
    });
    assert!(free);
    assert_eq!(common::own_panics(), panics);
}

/// On stock tokio a watched hog is reported, asked to yield, and handed off: another thread serves its worker's
/// queue.
#[test]
fn on_plain_tokio_it_reports_asks_and_hands_off() {
    let _alone = alone();
    let log = Log::global();
    log.clear();
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let label = fresh_label("plain hog");
    let asked = Arc::new(AtomicUsize::new(0));
    let served = |watched: bool| {
        let (ran, asked) = (Arc::new(AtomicBool::new(false)), asked.clone());
        let hog = async move {
            become_hog().await;
            // Spawned in an inline poll it would wait for the end of that poll, in the LIFO slot of the only worker.
            drop(tokio::spawn({
                let ran = ran.clone();
                async move { ran.store(true, Ordering::SeqCst) }
            }));
            let until = std::time::Instant::now() + 500 * MS;
            while !ran.load(Ordering::SeqCst) && std::time::Instant::now() < until {
                burn(MS);
            }
            ran.load(Ordering::SeqCst)
        };
        let asking = async move {
            for _ in 0..30 {
                burn(MS);
                if morpheus_runtime::yield_requested() {
                    asked.fetch_add(1, Ordering::SeqCst);
                    morpheus_runtime::checkpoint().await;
                }
            }
        };
        tokio.block_on(in_time(async {
            if watched {
                tokio::spawn(asking.watched(fresh_label("plain asking")))
                    .await
                    .unwrap();
                tokio::spawn(hog.watched(label)).await.unwrap()
            } else {
                tokio::spawn(asking).await.unwrap();
                tokio::spawn(hog).await.unwrap()
            }
        }))
    };
    assert!(!served(false), "unwatched, the woken task waits");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert!(served(true), "watched, it is served meanwhile");
    assert!(asked.load(Ordering::SeqCst) > 0);
    assert!(
        log.line_with(&["morpheus::stall", label]).is_some(),
        "{}",
        log.text()
    );
}

/// The same on a current-thread runtime, which can hand nothing off.
#[test]
fn on_a_current_thread_runtime_it_reports_and_asks() {
    let _alone = alone();
    let log = Log::global();
    log.clear();
    let label = fresh_label("current hog");
    let asked = current_thread().block_on(
        async {
            let mut asked = 0;
            for _ in 0..100 {
                burn(MS);
                if morpheus_runtime::checkpoint_sync() {
                    asked += 1;
                    tokio::task::yield_now().await;
                }
            }
            // A poll that answers is no stall. This one does not answer, for as long as a busy machine needs to see it.
            wait_for(Duration::from_secs(5), || {
                burn(50 * MS);
                log.line_with(&["morpheus::stall", label]).is_some()
            });
            asked
        }
        .watched(label),
    );
    assert!(asked > 0);
    assert!(
        log.line_with(&["morpheus::stall", label]).is_some(),
        "{}",
        log.text()
    );
}

/// A hog on one runtime costs another nothing, and each has ratings of its own.
#[test]
fn two_runtimes_do_not_disturb_each_other() {
    let _alone = alone();
    let (one, two) = (
        Builder::new_multi_thread()
            .worker_threads(1)
            .max_spares(4)
            .build()
            .unwrap(),
        Builder::new_multi_thread()
            .worker_threads(1)
            .max_spares(4)
            .build()
            .unwrap(),
    );
    let hog = one.spawn(async {
        for _ in 0..5 {
            burn(50 * MS);
            tokio::task::yield_now().await;
        }
    });
    let from_two = Arc::new(Mutex::new(0));
    let task = two.spawn({
        let (handle, from_two) = (one.handle().clone(), from_two.clone());
        async move {
            for _ in 0..20 {
                let value = handle.spawn(nap(1)).await.unwrap();
                *from_two.lock().unwrap() += value;
            }
        }
    });
    two.block_on(in_time(task)).unwrap();
    one.block_on(in_time(hog)).unwrap();
    assert_eq!(*from_two.lock().unwrap(), 20);
    assert!(one.metrics().debug.hog_tasks >= 1);
    assert_eq!(two.metrics().debug.hog_tasks, 0);
}

/// Polls of 8 ms are slow with a budget of 0.1 ms, and not with one of 50 ms. A label is slow on one runtime and healthy on
/// another at the same time, whichever polled it last.
#[test]
fn each_runtime_rates_a_label_by_its_own_budget() {
    let _alone = alone();
    let with_budget = |budget: Duration| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(4).budget(budget);
        builder.build().unwrap()
    };
    let (strict, lenient) = (with_budget(MS / 10), with_budget(50 * MS));
    let label = fresh_label("two budgets");
    // Each poll is a task of its own, so that no task has a rating.
    let poll_once = |runtime: &Runtime, cpu: Duration| {
        let task = async move { burn(cpu) };
        let task = task::Builder::new()
            .label(label)
            .spawn_on(task, runtime.handle());
        runtime.block_on(in_time(task)).unwrap();
    };
    let handoffs = |runtime: &Runtime| runtime.metrics().handoff_polls;
    for _ in 0..8 {
        poll_once(&strict, 8 * MS);
    }
    let on_strict = handoffs(&strict);
    assert!(on_strict > 0, "polls of 80 times the budget");
    for _ in 0..8 {
        poll_once(&lenient, 8 * MS);
    }
    assert_eq!(handoffs(&lenient), 0, "polls of a sixth of the budget");
    // More than clear a label.
    for _ in 0..80 {
        poll_once(&lenient, Duration::ZERO);
    }
    poll_once(&strict, 8 * MS);
    assert_eq!(handoffs(&strict), on_strict + 1, "as slow as before");
    // Then polls that are slow on both runtimes.
    for _ in 0..8 {
        poll_once(&lenient, 80 * MS);
    }
    let on_lenient = handoffs(&lenient);
    assert!(on_lenient > 0, "polls over the larger budget");
    let cleared = (0..1_000).any(|_| {
        let before = handoffs(&strict);
        poll_once(&strict, Duration::ZERO);
        handoffs(&strict) == before
    });
    assert!(cleared, "by short polls on that runtime");
    poll_once(&lenient, 80 * MS);
    assert_eq!(
        handoffs(&lenient),
        on_lenient + 1,
        "which clear it there alone"
    );
}
