//! Shares hogs, probes, child processes and a bound on every wait between the integration tests.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::future::Future;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock};
use std::time::{Duration, Instant};

use morpheus_runtime::task;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub const MS: Duration = Duration::from_millis(1);
/// Longer than anything here takes on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Lets one test of a file run at a time, because the tests measure how tasks share the CPUs.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    watch_panics();
    ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

static CONTROLLER_PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics of Morpheus. Tokio swallows the panic of a blocking task, and the controller is one.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let inside = info.location().is_some_and(|at| {
                at.file().contains("morpheus-runtime/src")
                    || at.file().contains("morpheus-common/src")
            });
            if inside {
                CONTROLLER_PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(info);
        }));
    });
}

/// Returns how many panics came from Morpheus's own code since the process began.
pub fn own_panics() -> usize {
    CONTROLLER_PANICS.load(Ordering::SeqCst)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable for the whole call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Computes until the calling thread has used `cpu` more CPU time.
pub fn burn(cpu: Duration) {
    burn_while(cpu, || true);
}

/// The same, but ends at the first `false`.
pub fn burn_while(cpu: Duration, mut go_on: impl FnMut() -> bool) {
    let until = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) + cpu.as_nanos() as u64;
    while clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) < until && go_on() {
        for _ in 0..1000 {
            std::hint::spin_loop();
        }
    }
}

/// Blocks this thread until `is_so` returns true, for at most `limit`. Returns whether it did.
pub fn wait_for(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= until {
            return is_so();
        }
        std::thread::sleep(MS / 2);
    }
}

/// Runs `body` on a thread of its own and fails if it does not return within `limit`, so that a test that hangs
/// reports it.
#[track_caller]
pub fn within<T: Send + 'static>(limit: Duration, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (tx, rx) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = body();
        let _ = tx.send(());
        result
    });
    match rx.recv_timeout(limit) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("not done within {limit:?}"),
        _ => thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Counts the threads of runtimes in this process; 0 without `/proc`. It ignores threads of the test harness,
/// which come and go.
pub fn threads() -> usize {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok())
        .filter(|name| name.starts_with("morpheus") || name.starts_with("tokio"))
        .count()
}

/// Counts these threads once their number has settled: a thread that an earlier test started may have no name yet.
pub fn settled_threads() -> usize {
    loop {
        let count = threads();
        std::thread::sleep(50 * MS);
        if threads() == count {
            return count;
        }
    }
}

/// Returns the text of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "?".to_owned())
}

/// Measures how late timers of 1 ms are, one after the other, while the probe lives.
pub struct TimerProbe {
    stop: Arc<AtomicBool>,
    late: Arc<Mutex<Vec<Duration>>>,
    began: Instant,
}

impl TimerProbe {
    /// Starts a few tasks on the runtime that sleep and read the clock.
    pub fn start(handle: &Handle) -> TimerProbe {
        let probe = TimerProbe {
            stop: Arc::default(),
            late: Arc::default(),
            began: Instant::now(),
        };
        for _ in 0..8 {
            let (stop, late) = (probe.stop.clone(), probe.late.clone());
            handle.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let due = Instant::now() + MS;
                    tokio::time::sleep_until(due.into()).await;
                    let by = Instant::now().saturating_duration_since(due);
                    late.lock().unwrap().push(by);
                }
            });
        }
        probe
    }

    /// Ends the probe. If no timer has fired, it reports the time since the probe began.
    pub fn finish(self) -> Lateness {
        self.stop.store(true, Ordering::Relaxed);
        let mut late = self.late.lock().unwrap().clone();
        if late.is_empty() {
            late.push(self.began.elapsed());
        }
        late.sort();
        Lateness {
            count: late.len(),
            median: late[late.len() / 2],
            p90: late[late.len() * 9 / 10],
            max: late[late.len() - 1],
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Lateness {
    pub count: usize,
    pub median: Duration,
    pub p90: Duration,
    pub max: Duration,
}

/// Returns a name for a label that no other test has, because labels live as long as the process.
pub fn fresh_label(prefix: &str) -> &'static str {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Box::leak(format!("{prefix} {number}").into_boxed_str())
}

/// Spawns `count` tasks under one label.
pub fn spawn_labelled<F>(
    handle: &Handle,
    label: &'static str,
    count: usize,
    mut make: impl FnMut() -> F,
) -> Vec<JoinHandle<F::Output>>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    (0..count)
        .map(|_| task::Builder::new().label(label).spawn_on(make(), handle))
        .collect()
}

/// Returns the results of the tasks, each of which has to end [in time](in_time).
#[track_caller]
pub fn finish<T>(handle: &Handle, tasks: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let at = std::panic::Location::caller();
    let results = tasks
        .into_iter()
        .map(|task| handle.block_on(in_time(task)))
        .map(|result| result.unwrap_or_else(|error| panic!("{at}: {error}")));
    results.collect()
}

/// Makes the watched task that awaits it a CPU hog. The poll that continues after it is a handoff poll.
pub async fn become_hog() {
    for _ in 0..4 {
        burn(20 * MS);
        tokio::task::yield_now().await;
    }
}

/// Makes the watched task that awaits it slow, without CPU time: its polls sleep.
pub async fn become_slow() {
    for _ in 0..4 {
        std::thread::sleep(10 * MS);
        tokio::task::yield_now().await;
    }
}

/// Awaits futures that are always ready until `stop`, so that only tokio's coop budget makes it pending.
pub async fn always_ready(stop: Arc<AtomicBool>) {
    let (tx, mut rx) = tokio::sync::mpsc::channel(8);
    while !stop.load(Ordering::Relaxed) {
        tx.send(()).await.expect("the receiver is here");
        rx.recv().await.expect("the sender is here");
    }
}

/// Runs the test `name` of the same file in a process of its own, with `MORPHEUS_CHILD=1`.
/// Returns the output. Fails if the child fails or did not run the test.
#[track_caller]
pub fn in_child(name: &str, env: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
    command
        .args([
            "--exact",
            name,
            "--nocapture",
            "--test-threads=1",
            "--include-ignored",
        ])
        .env("MORPHEUS_CHILD", "1")
        .envs(env.iter().copied())
        .stdin(std::process::Stdio::null());
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("can start itself");
    let id = child.id();
    // The output matters most if the child does not end, so threads collect it meanwhile.
    let text = Arc::new(Mutex::new(Vec::new()));
    let readers = [
        reader(child.stdout.take().expect("piped"), &text),
        reader(child.stderr.take().expect("piped"), &text),
    ];
    let said = || String::from_utf8_lossy(&text.lock().unwrap()).into_owned();
    let until = Instant::now() + 2 * PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            break status;
        }
        if Instant::now() >= until {
            let threads = states(id);
            let _ = child.kill();
            let _ = child.wait();
            panic!("child {id} ({name}) hangs:\n{threads}\n{}", said());
        }
        std::thread::sleep(2 * MS);
    };
    for reader in readers {
        let _ = reader.join();
    }
    let text = said();
    assert!(
        status.success() && text.contains("1 passed"),
        "child {id} ({name}): {}\n{text}",
        status
    );
    text
}

fn reader(
    mut from: impl std::io::Read + Send + 'static,
    into: &Arc<Mutex<Vec<u8>>>,
) -> std::thread::JoinHandle<()> {
    let into = into.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            into.lock().unwrap().extend_from_slice(&buffer[..count]);
        }
    })
}

/// Describes each thread of a process: name, state, and the kernel function in which it waits.
fn states(process: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let threads = tasks.into_iter().flatten().flatten().map(|task| {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        format!("{} in {}", read("stat").trim(), read("wchan"))
    });
    threads.collect::<Vec<_>>().join("\n")
}

pub fn is_child() -> bool {
    std::env::var_os("MORPHEUS_CHILD").is_some()
}

/// Keeps the calling thread, and those that it starts, on one of its CPUs.
pub fn stay_on_one_cpu() {
    // SAFETY: both calls get a set of their own and its size; a set of zeros is valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of_val(&set);
        assert_eq!(libc::sched_getaffinity(0, size, &raw mut set), 0);
        let cpu = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &set));
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(cpu.expect("it runs on one"), &mut set);
        assert_eq!(libc::sched_setaffinity(0, size, &raw const set), 0);
    }
}

pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Becomes a user without rights, because the kernel limits threads of such users only.
pub fn become_unprivileged(uid: u32) {
    // SAFETY: ids and an empty group list; glibc changes all threads.
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setgid(uid), 0);
        assert_eq!(libc::setuid(uid), 0);
    }
}

/// Limits the number of threads that the user may have. The kernel applies the limit to unprivileged users only.
pub fn limit_threads(threads: u64) {
    let limit = libc::rlimit {
        rlim_cur: threads,
        rlim_max: threads.max(4096),
    };
    // SAFETY: `limit` is readable.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) };
    assert_eq!(set, 0);
}

/// Keeps the events that tracing saw in this process, as text.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Returns the log, which becomes the process's subscriber on first use.
    pub fn global() -> &'static Log {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Log::default();
            let writer = log.clone();
            tracing_subscriber::fmt()
                .with_ansi(false)
                .with_writer(move || writer.clone())
                .init();
            log
        })
    }

    pub fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// Returns the first line with all these words, if there is one.
    pub fn line_with(&self, words: &[&str]) -> Option<String> {
        self.text()
            .lines()
            .find(|line| words.iter().all(|word| line.contains(word)))
            .map(str::to_owned)
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A gate for threads, shut at first.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, std::sync::Condvar)>);

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Blocks the thread until the gate is open, for at most [`PATIENCE`].
    pub fn wait(&self) {
        let shut = self.0.0.lock().unwrap();
        drop(self.0.1.wait_timeout_while(shut, PATIENCE, |open| !*open));
    }
}

/// Bounds `future` by [`PATIENCE`], for use inside a runtime.
#[track_caller]
pub fn in_time<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let at = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(output) => output,
            Err(_) => panic!("{at}: not done within {PATIENCE:?}"),
        }
    }
}

/// Sets how many descriptors the process may have.
pub fn limit_descriptors(most: u64) {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: `limit` is readable.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(set, 0);
}
