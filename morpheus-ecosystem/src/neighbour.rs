//! The delay of a request beside hogs, on tokio and on Morpheus.
//!
//! The test judges the order of events and not milliseconds. On Morpheus the hogs stay in their polls until
//! the neighbour has its answer, so the answer must come from another worker. On tokio they end after 200 ms.
//! All its workers are in hogs' polls, so no answer comes before one of the hogs has left. That is the
//! negative control: the same request, the same hogs.

use std::panic::Location;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::hog::{Hogs, Kind};
use crate::stage::{HOGS, Running, Stage, Subject};
use crate::{in_time, version};

type Request = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>>>;

/// A request to a handler that hogs, a request to one that does not, and the runtime that sends both.
pub struct Scene {
    side: Handle,
    hog: Request,
    neighbour: Request,
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scene").finish_non_exhaustive()
    }
}

impl Scene {
    /// Makes a scene with a server under test: [`Stage::outside`] sends the requests. Each request checks its
    /// own answer.
    pub fn of_server<H, N>(
        stage: &Stage,
        hog: impl Fn() -> H + 'static,
        neighbour: impl Fn() -> N + 'static,
    ) -> Scene
    where
        H: Future<Output = ()> + Send + 'static,
        N: Future<Output = ()> + Send + 'static,
    {
        Scene {
            side: stage.outside.clone(),
            hog: Box::new(move || Box::pin(hog())),
            neighbour: Box::new(move || Box::pin(neighbour())),
        }
    }

    /// Makes a scene with a client or tasks under test: the requests are tasks of [`Stage::inside`].
    pub fn of_tasks<H, N>(
        stage: &Stage,
        hog: impl Fn() -> H + 'static,
        neighbour: impl Fn() -> N + 'static,
    ) -> Scene
    where
        H: Future<Output = ()> + Send + 'static,
        N: Future<Output = ()> + Send + 'static,
    {
        Scene {
            side: stage.inside.clone(),
            ..Scene::of_server(stage, hog, neighbour)
        }
    }
}

/// The result of one run.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// The neighbour's request before the hogs began.
    alone: Duration,
    /// The neighbour's request while the hogs were in their polls.
    beside: Duration,
    /// The number of hogs that had left when it was answered.
    left: usize,
}

/// Measures a scene on both runtimes, beside hogs that compute and hogs that sleep, judges it, and prints the
/// row of `docs/src/libraries.md`.
///
/// `MORPHEUS_ROUNDS` sets the number of rounds (default 1). The row has the medians, and behind a slash the
/// longest time on Morpheus.
///
/// # Panics
///
/// When the neighbour waits for the hogs on Morpheus, or does not on tokio.
#[track_caller]
pub fn neighbour(package: &str, does: &str, prepare: impl AsyncFn(Stage) -> Scene) {
    let file = Location::caller().file();
    let (mut alone, mut cells) = (Vec::new(), String::new());
    for kind in [Kind::Computes, Kind::Sleeps] {
        let (mut tokio, mut here) = (Vec::new(), Vec::new());
        for _ in 0..rounds() {
            tokio.push(judged(Subject::Tokio, kind, &prepare).beside);
            let measured = judged(Subject::Morpheus, kind, &prepare);
            here.push(measured.beside);
            alone.push(measured.alone);
        }
        let worst = here.iter().max().copied().unwrap_or_default();
        let [tokio, here, worst] = [median(tokio), median(here), worst].map(milliseconds);
        cells += &format!(" {tokio} | **{here}** / {worst} |");
    }
    let (version, alone) = (version::of(package), milliseconds(median(alone)));
    // On a line of its own, apart from the name of the test. The link is that of the chapter.
    println!("\n| [{package}](../../{file}) {version} | {does} | {alone} |{cells}");
}

/// Measures one run, and panics unless it was as it should be.
fn judged(subject: Subject, kind: Kind, prepare: &impl AsyncFn(Stage) -> Scene) -> Measured {
    let measured = measure(subject, kind, prepare);
    judge(subject, kind, measured);
    measured
}

fn judge(subject: Subject, kind: Kind, measured: Measured) {
    match subject {
        Subject::Tokio => assert!(
            measured.left > 0,
            "tokio answered while all its workers were in hogs' polls ({kind:?}): {measured:?}"
        ),
        Subject::Morpheus => assert!(
            measured.left == 0,
            "the neighbour waited for a hog ({kind:?}): {measured:?}"
        ),
    }
}

fn measure(subject: Subject, kind: Kind, prepare: &impl AsyncFn(Stage) -> Scene) -> Measured {
    let outside = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("tokio starts");
    let running = Running::start(subject);
    let stage = Stage::new(
        subject,
        kind,
        running.handle().clone(),
        outside.handle().clone(),
    );
    let _free = FreeAtTheEnd(stage.hogs.clone());
    outside.block_on(async {
        let hogs = stage.hogs.clone();
        let scene = in_time(prepare(stage.clone())).await;
        // The first request opens the connection.
        ask(&scene).await;
        let mut alone = Vec::new();
        for _ in 0..5 {
            alone.push(ask(&scene).await);
        }
        let hogging: Vec<_> = (0..HOGS).map(|_| scene.side.spawn((scene.hog)())).collect();
        stage
            .wait_for("all hogs are there", || hogs.gathered() == HOGS)
            .await;
        hogs.begin(HOGS);
        stage
            .wait_for("they are in their polls", || {
                if subject == Subject::Tokio {
                    wake_a_worker(&stage.inside);
                }
                hogs.entered() >= hogs.together()
            })
            .await;
        let beside = ask(&scene).await;
        let left = hogs.left();
        hogs.answered();
        for hog in hogging {
            in_time(hog)
                .await
                .expect("a hog's request is answered, too");
        }
        assert_eq!(hogs.left(), HOGS);
        Measured {
            alone: median(alone),
            beside,
            left,
        }
    })
}

/// Wakes a worker of tokio that is parked, so that it looks at the other workers' queues.
///
/// The last worker that searches for tasks wakes another one when it finds some. If the other one is about to
/// park and was not allowed to search, it is neither parked yet nor does it look again. Then the hogs that the
/// first one found stay behind the one that it polls, until the next task wakes a worker.
fn wake_a_worker(runtime: &Handle) {
    drop(runtime.spawn(async {}));
}

/// Sends the neighbour's request and returns its duration.
async fn ask(scene: &Scene) -> Duration {
    let begun = Instant::now();
    let request = scene.side.spawn((scene.neighbour)());
    // Hogs are held for [`PATIENCE`] at most; a test that waits for them longer fails in `judge`.
    tokio::time::timeout(2 * crate::PATIENCE, request)
        .await
        .expect("the neighbour is answered at all")
        .expect("the neighbour's answer is right");
    begun.elapsed()
}

/// Releases the hogs when a test fails in between: otherwise its runtime could not end.
struct FreeAtTheEnd(Hogs);

impl Drop for FreeAtTheEnd {
    fn drop(&mut self) {
        self.0.answered();
    }
}

fn rounds() -> usize {
    match std::env::var("MORPHEUS_ROUNDS") {
        Ok(text) => text
            .parse()
            .ok()
            .filter(|rounds| *rounds > 0)
            .unwrap_or_else(|| panic!("MORPHEUS_ROUNDS={text}: a number of rounds, such as 5")),
        Err(_) => 1,
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 9.95 {
        format!("{ms:.2} ms")
    } else {
        format!("{ms:.0} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(milliseconds(Duration::from_micros(123)), "0.12 ms");
        assert_eq!(milliseconds(Duration::from_micros(9_960)), "10 ms");
        assert_eq!(milliseconds(Duration::from_millis(201)), "201 ms");
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let times = [5, 1, 3].map(Duration::from_millis);
        assert_eq!(median(times.to_vec()), Duration::from_millis(3));
    }

    /// A neighbour that no hog can delay proves nothing: tokio's control must detect that.
    #[test]
    #[should_panic(expected = "tokio answered while all its workers were in hogs' polls")]
    fn a_neighbour_that_needs_no_worker_fails_the_control() {
        neighbour("tokio", "nothing", async |stage| {
            let hogs = stage.hogs.clone();
            let inside = stage.inside.clone();
            let hog = move || {
                let (hogs, inside) = (hogs.clone(), inside.clone());
                async move { inside.spawn(async move { hogs.hog().await }).await.unwrap() }
            };
            Scene::of_server(&stage, hog, async || ())
        });
    }
}
