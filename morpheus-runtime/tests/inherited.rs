//! Tests that the children of a task inherit the same as on tokio: slice, affinity, timer slack and niceness.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use common::{MS, PATIENCE};
use common::{alone, become_hog, burn, fresh_label, in_time, wait_for};
use morpheus_runtime::{Builder, Runtime, task};
use tokio::runtime::Handle;

/// The attributes that a thread or process passes on to its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inherited {
    /// Nanoseconds; 0 where the kernel does not tell.
    slice: u64,
    /// The first 1,024 CPUs.
    affinity: [u64; 16],
    /// Nanoseconds.
    slack: i64,
    nice: i32,
}

const UNREAD: Inherited = Inherited {
    slice: u64::MAX,
    affinity: [0; 16],
    slack: -1,
    nice: i32::MIN,
};

/// `struct sched_attr`, in its first version.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Inherited {
    /// Of another process or thread, or with 0 of the calling thread. All but the slack: other processes'
    /// slack may be read with `CAP_SYS_NICE` only. Uses system calls only: for children that share memory.
    fn of(id: libc::pid_t, slack: i64) -> Inherited {
        let mut attr = SchedAttr::default();
        let mut affinity = [0; 16];
        // SAFETY: both buffers are writable for the sizes given.
        unsafe {
            libc::syscall(libc::SYS_sched_getattr, id, &raw mut attr, 48, 0);
            let size = size_of_val(&affinity);
            libc::syscall(libc::SYS_sched_getaffinity, id, size, &raw mut affinity);
        }
        Inherited {
            slice: attr.runtime,
            affinity,
            slack,
            nice: attr.nice,
        }
    }

    fn of_current_thread() -> Inherited {
        // SAFETY: PR_GET_TIMERSLACK takes no pointers.
        let slack = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        Inherited::of(0, slack)
    }
}

/// A page that children write to and the parent reads, whether they share memory or not.
struct Page(*mut Inherited);

impl Page {
    fn new() -> Page {
        // SAFETY: a new mapping.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        let page = page.cast::<Inherited>();
        // SAFETY: large enough, aligned to a page, and this function has the only pointer to it.
        unsafe { page.write(UNREAD) };
        Page(page)
    }

    /// Waits for the end of the child, and returns the values that it wrote.
    fn read_after(self, child: libc::pid_t) -> Inherited {
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: `status` is writable; the page is mapped, and its only writer has ended.
        unsafe {
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
            let inherited = self.0.read();
            libc::munmap(self.0.cast(), 4096);
            inherited
        }
    }
}

/// The whole life of a child that does not exec: only system calls.
extern "C" fn child(page: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent gives a page that it reads only after this child has ended.
    unsafe {
        page.cast::<Inherited>()
            .write(Inherited::of_current_thread());
        libc::_exit(0)
    }
}

fn by_fork() -> Inherited {
    let page = Page::new();
    // SAFETY: the child makes system calls only.
    match unsafe { libc::fork() } {
        0 => {
            child(page.0.cast());
            unreachable!("the child has exited")
        }
        id => page.read_after(id),
    }
}

/// By `clone` with `flags`, on a stack of the child's own.
fn by_clone(flags: libc::c_int) -> Inherited {
    let page = Page::new();
    let mut stack = vec![0u128; 4096];
    // SAFETY: the stack is aligned to 16 bytes and lives until the child has ended; the child makes system
    // calls only, so that it may share memory and thread-locals with this thread.
    let id = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(child, top.cast(), flags | libc::SIGCHLD, page.0.cast())
    };
    page.read_after(id)
}

fn by_command(command: &mut Command) -> Inherited {
    let mut child = command
        .args(["-c", "cat /proc/self/timerslack_ns; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let inherited = Inherited::of(child.id() as libc::pid_t, line.trim().parse().unwrap());
    drop(child.stdin.take());
    child.wait().unwrap();
    inherited
}

fn by_pre_exec() -> Inherited {
    let mut command = Command::new("sh");
    // SAFETY: does nothing. It makes the standard library fork instead of calling posix_spawn.
    unsafe { command.pre_exec(|| Ok(())) };
    by_command(&mut command)
}

fn by_thread() -> Inherited {
    let thread = std::thread::spawn(Inherited::of_current_thread);
    thread.join().unwrap()
}

/// Returns the attributes that children inherit from the calling thread, by each way to start one.
fn children() -> Vec<(&'static str, Inherited)> {
    vec![
        ("posix_spawn", by_command(&mut Command::new("sh"))),
        ("fork and exec", by_pre_exec()),
        ("fork", by_fork()),
        ("vfork", by_clone(libc::CLONE_VM | libc::CLONE_VFORK)),
        ("clone", by_clone(0)),
        ("clone with shared memory", by_clone(libc::CLONE_VM)),
        ("thread", by_thread()),
    ]
}

/// Returns the same from a task, and the attributes of blocking calls that a task starts: more calls than the pool has
/// idle threads, so that each thread that may serve one does.
async fn from_a_task() -> Vec<(&'static str, Inherited)> {
    let gate = common::Gate::default();
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let gate = gate.clone();
            tokio::task::spawn_blocking(move || {
                gate.wait();
                let own = Inherited::of_current_thread();
                (own, children())
            })
        })
        .collect();
    let mut all = children();
    gate.open();
    for call in calls {
        let (own, children) = in_time(call).await.unwrap();
        all.push(("spawn_blocking", own));
        all.extend(children);
    }
    all
}

/// Returns the same from a worker, and not from the thread that calls `block_on`.
fn on_a_worker(handle: &Handle) -> Vec<(&'static str, Inherited)> {
    let task = handle.spawn(from_a_task());
    handle.block_on(in_time(task)).unwrap()
}

/// Returns the same from a hog, which is polled by a thread that has handed its core off.
fn handed_off(handle: &Handle) -> Vec<(&'static str, Inherited)> {
    let slow = async {
        become_hog().await;
        let all = children();
        burn(20 * MS);
        tokio::task::yield_now().await;
        all
    };
    let task = task::Builder::new()
        .label(fresh_label("children"))
        .spawn_on(slow, handle);
    handle.block_on(in_time(task)).unwrap()
}

/// Checks the attributes before, in and after a handoff poll.
#[track_caller]
fn assert_everywhere(runtime: &Runtime, expected: Inherited) {
    let polls = runtime.metrics().handoff_polls;
    assert_all(&on_a_worker(runtime.handle()), expected);
    assert_all(&handed_off(runtime.handle()), expected);
    assert!(runtime.metrics().handoff_polls > polls);
    // The pool now has threads that were workers.
    assert_all(&on_a_worker(runtime.handle()), expected);
}

fn two_workers() -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).max_spares(4);
    builder
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

#[track_caller]
fn assert_all(found: &[(&'static str, Inherited)], expected: Inherited) {
    for (how, inherited) in found {
        assert_eq!(*inherited, expected, "{how}");
    }
}

/// Returns the attributes of children of tokio's threads, which have all the same.
fn expected() -> Inherited {
    let tokio = on_a_worker(tokio_runtime().handle());
    let first = tokio[0].1;
    assert_ne!(first, UNREAD);
    assert_all(&tokio, first);
    first
}

#[test]
fn children_of_a_task_inherit_what_they_would_on_tokio() {
    let _alone = alone();
    let expected = expected();
    assert_everywhere(&two_workers().build().unwrap(), expected);
}

/// On a plain tokio runtime a hog is handed off, too.
#[test]
fn children_of_a_task_on_a_plain_runtime_inherit_what_they_would_without_a_label() {
    let _alone = alone();
    let expected = expected();
    let runtime = tokio_runtime();
    assert_all(&handed_off(runtime.handle()), expected);
    assert_all(&on_a_worker(runtime.handle()), expected);
}

/// Runs the rest of a test in a child process as root. Without root it skips the test and says why.
fn only_in_child(name: &str, what_for: &str) -> bool {
    if common::is_child() {
        return true;
    }
    if common::is_root() {
        common::in_child(name, &[]);
    } else {
        morpheus_testing::skip(format!("needs root, {what_for}"));
    }
    false
}

/// A flag of the kernel's keeps children from the slice, and would take a negative niceness from them as well.
#[test]
fn a_negative_niceness_is_passed_on() {
    let name = "a_negative_niceness_is_passed_on";
    if !only_in_child(name, "for a negative niceness") {
        return;
    }
    // SAFETY: changes the calling thread only, and what it starts.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -5) }, 0);
    let expected = expected();
    assert_eq!(expected.nice, -5);
    assert_everywhere(&two_workers().build().unwrap(), expected);
    // A thread that is lowered from -5 for the time of a poll is not at -5 then.
    let runtime = two_workers().nice_hogs(true).build().unwrap();
    handed_off(runtime.handle());
    assert_all(&on_a_worker(runtime.handle()), expected);
}

/// A poll that is lowered costs its thread nothing afterwards, also one that ran inline, and one that panicked.
#[test]
fn a_thread_that_was_lowered_is_raised_again() {
    let name = "a_thread_that_was_lowered_is_raised_again";
    if !only_in_child(name, "to raise a thread again") {
        return;
    }
    let niceness_of = |tid| Inherited::of(tid, UNREAD.slack).nice;
    let runtime = two_workers().nice_hogs(true).build().unwrap();
    for panics in [false, true] {
        let label = fresh_label("lowered");
        let watched = || task::Builder::new().label(label);
        // A label that was short so far is not handed off.
        for _ in 0..200 {
            let short = watched().spawn_on(async {}, runtime.handle());
            runtime.block_on(in_time(short)).unwrap();
        }
        let (send, lowered) = std::sync::mpsc::channel();
        let hog = async move {
            // SAFETY: it takes nothing.
            let tid = unsafe { libc::gettid() };
            let begun = std::time::Instant::now();
            while niceness_of(tid) == 0 && begun.elapsed() < PATIENCE {
                burn(MS);
            }
            send.send((tid, niceness_of(tid))).unwrap();
            assert!(!panics, "a panic that the test wants");
        };
        let hog = watched().spawn_on(hog, runtime.handle());
        assert_eq!(runtime.block_on(in_time(hog)).is_err(), panics);
        let (tid, niceness) = lowered.recv().unwrap();
        assert!(niceness > 0, "it was lowered");
        let is_raised = wait_for(PATIENCE, || niceness_of(tid) == 0);
        assert!(is_raised, "panics: {panics}, still {}", niceness_of(tid));
    }
}

/// A thread that a lowered poll starts inherits its niceness, and may become a worker.
#[test]
fn what_the_pool_starts_beside_a_lowered_poll_is_not_lowered() {
    let name = "what_the_pool_starts_beside_a_lowered_poll_is_not_lowered";
    if !only_in_child(name, "to raise a thread again") {
        return;
    }
    let niceness = || Inherited::of(0, UNREAD.slack).nice;
    let runtime = two_workers().nice_hogs(true).build().unwrap();
    let (gate, gates) = std::sync::mpsc::channel::<()>();
    let gates = Arc::new(Mutex::new(gates));
    let hog = async move {
        let begun = std::time::Instant::now();
        while niceness() == 0 && begun.elapsed() < PATIENCE {
            burn(MS);
        }
        assert!(niceness() > 0, "it was lowered");
        let call = |_| {
            let gates = gates.clone();
            Handle::current().spawn_blocking(move || {
                let _ = gates.lock().unwrap().recv();
                niceness()
            })
        };
        (0..8).map(call).collect::<Vec<_>>()
    };
    let hog = task::Builder::new()
        .label(fresh_label("starts threads"))
        .spawn_on(hog, runtime.handle());
    let calls = runtime.block_on(in_time(hog)).unwrap();
    drop(gate);
    for call in calls {
        assert_eq!(runtime.block_on(in_time(call)).unwrap(), 0);
    }
}

/// A service that becomes another user after it has built its runtime.
#[test]
fn a_process_that_drops_its_rights_lowers_no_more_threads() {
    let name = "a_process_that_drops_its_rights_lowers_no_more_threads";
    if !only_in_child(name, "for rights to drop") {
        return;
    }
    let runtime = two_workers().nice_hogs(true).build().unwrap();
    let is_refused = || {
        let missing = runtime.metrics().limitations;
        missing.contains(&morpheus_runtime::Limitation::ReversibleNice)
    };
    assert!(!is_refused());
    common::become_unprivileged(64_123);
    let label = fresh_label("lowered for good");
    let hogs = |count| {
        for _ in 0..count {
            let hog = task::Builder::new()
                .label(label)
                .spawn_on(async { burn(20 * MS) }, runtime.handle());
            runtime.block_on(in_time(hog)).unwrap();
        }
    };
    assert!(wait_for(PATIENCE, || {
        hogs(1);
        is_refused()
    }));
    let niceness = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let tids = threads.map(|thread| thread.unwrap().file_name().into_string().unwrap());
        let niceness = tids.map(|tid| Inherited::of(tid.parse().unwrap(), UNREAD.slack).nice);
        niceness.collect::<Vec<_>>()
    };
    hogs(20);
    let lowered = niceness();
    assert!(lowered.iter().all(|&nice| nice <= 10), "{lowered:?}");
}

/// To take that flag back needs a privilege: slices are set and put back without.
#[test]
fn slices_change_without_privileges() {
    let name = "slices_change_without_privileges";
    if !only_in_child(name, "to become a user without") {
        return;
    }
    common::become_unprivileged(64_124);
    let expected = expected();
    let runtime = two_workers().build().unwrap();
    assert_everywhere(&runtime, expected);
    if morpheus_runtime::slice::current().is_some() {
        let task = runtime
            .handle()
            .spawn(async { morpheus_runtime::slice::current() });
        let worker = runtime.block_on(in_time(task)).unwrap();
        assert_eq!(worker, Some(morpheus_runtime::slice::WORKER_SLICE_NS));
    }
}

/// The subscriber of the application is its code, and may start threads.
#[test]
fn threads_started_by_a_subscriber_inherit_nothing() {
    struct Starts(Arc<Mutex<Vec<(&'static str, Inherited)>>>);
    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Starts {
        fn on_event(
            &self,
            _event: &tracing::Event<'_>,
            _context: tracing_subscriber::layer::Context<'_, S>,
        ) {
            self.0.lock().unwrap().extend(children());
        }
    }
    if !common::is_child() {
        common::in_child("threads_started_by_a_subscriber_inherit_nothing", &[]);
        return;
    }
    use tracing_subscriber::layer::SubscriberExt;
    let expected = expected();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let subscriber = tracing_subscriber::registry().with(Starts(seen.clone()));
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let runtime = two_workers().build().unwrap();
    let hog = async {
        for _ in 0..20 {
            burn(20 * MS);
            tokio::task::yield_now().await;
        }
    };
    let hog = task::Builder::new()
        .label(fresh_label("reported"))
        .spawn_on(hog, runtime.handle());
    runtime.block_on(in_time(hog)).unwrap();
    assert!(wait_for(PATIENCE, || !seen.lock().unwrap().is_empty()));
    drop(runtime);
    assert_all(&seen.lock().unwrap(), expected);
}

/// The controller's thread belongs to tokio's pool, and gets back the slack and the slice that it had.
#[test]
fn the_controllers_thread_gets_back_what_it_had() {
    let _alone = alone();
    const SLACK: libc::c_ulong = 77_000;
    let at_the_end = Arc::new(Mutex::new(Vec::new()));
    let stopped = at_the_end.clone();
    let runtime = two_workers()
        .on_thread_start(|| {
            // SAFETY: takes a number, and concerns the calling thread.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK, 0, 0, 0) };
        })
        .on_thread_stop(move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            let own = Inherited::of_current_thread();
            stopped.lock().unwrap().push((name, own));
        })
        .build()
        .unwrap();
    let hog = runtime.handle().spawn(async { burn(30 * MS) });
    runtime.block_on(in_time(hog)).unwrap();
    drop(runtime);
    let expected = expected();
    let at_the_end = at_the_end.lock().unwrap();
    let controller = at_the_end
        .iter()
        .find(|(name, _)| name.trim() == "morpheus-ctl");
    let (_, controller) = controller.expect("the controller's thread has ended");
    assert_eq!(controller.slack, SLACK as i64);
    assert_eq!(controller.slice, expected.slice);
}
