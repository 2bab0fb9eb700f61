//! Tests which CPUs threads may use beside more CPU hogs than CPUs, and after them.

mod common;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use common::{MS, PATIENCE, alone, become_hog, burn, finish, fresh_label, in_time, wait_for};
use morpheus_runtime::{Builder, Mechanism, Policy, Runtime, task};

/// The CPUs that a thread or process may use: the first 1,024. `None` if it has ended.
fn affinity(id: u32) -> Option<[u64; 16]> {
    let mut affinity = [0; 16];
    let size = size_of_val(&affinity);
    let id = id as libc::pid_t;
    // SAFETY: the buffer is writable for its size.
    let read = unsafe { libc::syscall(libc::SYS_sched_getaffinity, id, size, &raw mut affinity) };
    (read >= 0).then_some(affinity)
}

fn count(affinity: [u64; 16]) -> u32 {
    affinity.iter().map(|word| word.count_ones()).sum()
}

fn own_affinity() -> [u64; 16] {
    affinity(0).unwrap()
}

/// The affinities of all threads of this process.
fn affinities() -> Vec<[u64; 16]> {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let tids = threads.map(|thread| thread.unwrap().file_name().into_string().unwrap());
    tids.filter_map(|tid| affinity(tid.parse().unwrap()))
        .collect()
}

/// Returns false, and says why, where there are no CPUs to choose from.
fn has_cpus() -> bool {
    let allowed = count(own_affinity());
    let paid_for = std::thread::available_parallelism().unwrap().get();
    if allowed < 2 {
        morpheus_testing::skip("needs two CPUs");
        return false;
    }
    if (paid_for as u32) < allowed {
        morpheus_testing::skip("needs all CPUs that the affinity allows, and a quota is less");
        return false;
    }
    true
}

fn two_workers() -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).max_spares(16);
    builder
}

/// CPU hogs that compute until they are told to end.
struct Hogs {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Hogs {
    /// Three more of them than CPUs. `watched`: as tasks with a label, which compute with their cores handed off.
    fn start(runtime: &Runtime, watched: bool) -> Hogs {
        let stop = Arc::new(AtomicBool::new(false));
        let label = fresh_label("hog");
        let hog = || {
            let stop = stop.clone();
            let hog = async move {
                while !stop.load(Ordering::Relaxed) {
                    common::burn_while(50 * MS, || !stop.load(Ordering::Relaxed));
                    tokio::task::yield_now().await;
                }
            };
            match watched {
                true => task::Builder::new()
                    .label(label)
                    .spawn_on(hog, runtime.handle()),
                false => runtime.handle().spawn(hog),
            }
        };
        let tasks = (0..count(own_affinity()) + 3).map(|_| hog()).collect();
        Hogs { stop, tasks }
    }

    fn end(self, runtime: &Runtime) {
        self.stop.store(true, Ordering::Relaxed);
        finish(runtime.handle(), self.tasks);
    }
}

fn confined(runtime: &Runtime) -> u64 {
    runtime.metrics().debug.hogs_confined
}

#[test]
fn hogs_are_confined_while_they_are_more_than_the_cpus() {
    let _alone = alone();
    if !has_cpus() {
        return;
    }
    let all = own_affinity();
    for watched in [false, true] {
        let runtime = two_workers().build().unwrap();
        let hogs = Hogs::start(&runtime, watched);
        let has_less = |of: &[u64; 16]| count(*of) < count(all);
        let some_have_less = || affinities().iter().any(has_less);
        assert!(wait_for(PATIENCE, some_have_less), "watched: {watched}");
        // The count follows.
        assert!(wait_for(PATIENCE, || confined(&runtime) > 0));
        // All CPUs are still in use: the hogs are on both parts.
        let all_are_used = || {
            let parts = affinities().into_iter().filter(has_less);
            let used = parts.fold([0; 16], |sum, part| {
                std::array::from_fn(|word| sum[word] | part[word])
            });
            used == all
        };
        assert!(wait_for(PATIENCE, all_are_used), "watched: {watched}");
        hogs.end(&runtime);
        let all_have_all = || affinities().iter().all(|of| *of == all);
        assert!(wait_for(PATIENCE, all_have_all), "watched: {watched}");
        drop(runtime);
        assert!(all_have_all());
    }
}

/// A runtime that ends beside its hogs leaves nothing confined: the threads of a pool may outlive it.
#[test]
fn a_runtime_that_ends_beside_hogs_gives_all_cpus_back() {
    let _alone = alone();
    if !has_cpus() {
        return;
    }
    let all = own_affinity();
    let runtime = two_workers().build().unwrap();
    let hogs = Hogs::start(&runtime, false);
    assert!(wait_for(PATIENCE, || confined(&runtime) > 0));
    let stop = hogs.stop.clone();
    runtime.shutdown_background();
    let all_have_all = || affinities().iter().all(|of| *of == all);
    let is_all = wait_for(PATIENCE, all_have_all);
    stop.store(true, Ordering::Relaxed);
    assert!(is_all, "while the hogs still compute");
}

/// What hogs start inherits their affinity, and then has all CPUs.
#[test]
fn what_a_confined_hog_starts_may_use_all_cpus() {
    let _alone = alone();
    if !has_cpus() {
        return;
    }
    let all = own_affinity();
    let runtime = two_workers().build().unwrap();
    let hogs = Hogs::start(&runtime, true);
    let (send, started) = mpsc::channel();
    let parent = async move {
        become_hog().await;
        // SAFETY: it takes nothing.
        let own = unsafe { libc::gettid() } as u32;
        let is_confined = || count(affinity(own).unwrap()) < count(all);
        for _ in 0..PATIENCE.as_millis() {
            burn(MS);
            if is_confined() {
                break;
            }
        }
        // Polls of other tasks are short: they have no part in this.
        let was_confined = is_confined();
        let (ends, end) = mpsc::channel::<()>();
        let (says, said) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: it takes nothing.
            says.send(unsafe { libc::gettid() } as u32).unwrap();
            let _ = end.recv();
        });
        let child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn();
        let tid = said.recv().unwrap();
        send.send((was_confined, tid, child.unwrap())).unwrap();
        burn(50 * MS);
        tokio::task::yield_now().await;
        (thread, ends)
    };
    let parent = task::Builder::new()
        .label(fresh_label("parent"))
        .spawn_on(parent, runtime.handle());
    let (was_confined, tid, mut child): (bool, u32, Child) =
        started.recv_timeout(2 * PATIENCE).unwrap();
    let have_all = || [tid, child.id()].map(affinity) == [Some(all); 2];
    let (while_hogs_run, found) = (wait_for(PATIENCE, have_all), affinity(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    let (thread, ends) = runtime.block_on(in_time(parent)).unwrap();
    hogs.end(&runtime);
    drop(ends);
    thread.join().unwrap();
    assert!(was_confined, "else this test proves nothing");
    assert!(while_hogs_run, "{found:?}");
}

/// The negative control: beside the same hogs nothing is confined where it is switched off, or where they are fewer than CPUs.
#[test]
fn nothing_is_confined_where_it_is_off() {
    let _alone = alone();
    if !has_cpus() {
        return;
    }
    let all = own_affinity();
    let mut without = two_workers();
    without.without(Mechanism::Confine);
    let mut takeover = two_workers();
    takeover.policy(Policy::Takeover);
    for mut builder in [without, takeover] {
        let runtime = builder.build().unwrap();
        let hogs = Hogs::start(&runtime, true);
        for _ in 0..100 {
            std::thread::sleep(5 * MS);
            let threads = affinities();
            assert!(threads.iter().all(|of| *of == all), "{threads:?}");
        }
        assert_eq!(confined(&runtime), 0);
        hogs.end(&runtime);
    }
    let runtime = two_workers().build().unwrap();
    let one = task::Builder::new().label(fresh_label("one hog")).spawn_on(
        async {
            become_hog().await;
            burn(200 * MS);
        },
        runtime.handle(),
    );
    finish(runtime.handle(), [one]);
    assert_eq!(confined(&runtime), 0);
}
