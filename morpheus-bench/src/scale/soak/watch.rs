//! Watches who waits for a CPU, all tasks of the machine, from outside.
//!
//! A thread takes the kernel's events of wakes and switches out of a buffer of their own. It has a real-time priority: a
//! scheduler that forgets tasks cannot make it late, and what it costs (a few per cent of a CPU) is taken from all.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use morpheus_harness::clock::monotonic_ns;
use morpheus_harness::thread;

use super::super::tracing::Instance;
use super::Waited;
use super::ring::{self, Field, Format};
use super::waits::{Event, Task, Waits};
use crate::policy;

/// For each CPU: seconds of a busy one.
const BUFFER_KIB: &str = "8192";
/// The events.
const EVENTS: [&str; 3] = [
    "sched/sched_wakeup",
    "sched/sched_wakeup_new",
    "sched/sched_switch",
];
/// Between two looks at the buffers.
const LOOK: Duration = Duration::from_millis(50);
/// Events are taken in when they are so old: then those of all CPUs are there, also of a virtual one that stood still between
/// the look at the clock and the buffer.
const LAG_NS: u64 = 250_000_000;
/// More than a page of a buffer ever has.
const PAGE_BYTES: usize = 64 << 10;
/// `prev_state` of a task that is runnable: it gave its CPU up, or (`TASK_REPORT_MAX`, "R+") it was taken from it.
const RUNNABLE: [u64; 2] = [0, 0x100];

/// Watches until this is dropped.
pub struct Watch {
    reader: Arc<Mutex<Reader>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins. `tracing` is [`super::super::tracing::DIRECTORY`].
    ///
    /// # Errors
    /// When the kernel's tracing cannot be used, with what to do about it.
    pub fn start(tracing: &Path) -> Result<Self, String> {
        let reader = Arc::new(Mutex::new(Reader::open(tracing)?));
        let stop = Arc::new(AtomicBool::new(false));
        let (own, until) = (reader.clone(), stop.clone());
        let thread = thread::start(move || {
            thread::name_current(c"scale-watch");
            // Without it events may be lost, which is seen.
            let _ = policy::set(libc::SCHED_FIFO, 1);
            while !until.load(Relaxed) {
                locked(&own).read();
                std::thread::sleep(LOOK);
            }
        })?;
        Ok(Self {
            reader,
            stop,
            thread: Some(thread),
        })
    }

    /// The waits that were seen since the last call, until a quarter of a second ago.
    pub fn take(&self) -> Waited {
        let mut reader = locked(&self.reader);
        let until_ns = reader.read();
        reader.waits.take(until_ns)
    }

    /// How often events were lost since it began: what was waiting then was not seen to the end.
    pub fn gaps(&self) -> u64 {
        locked(&self.reader).gaps
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // One that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Locks the reader. Data that a panicked thread left in it are still valid: they are the kernel's.
fn locked(reader: &Mutex<Reader>) -> MutexGuard<'_, Reader> {
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the buffers.
struct Reader {
    /// A file for each CPU, those that are offline as well.
    buffers: Vec<File>,
    decoder: Decoder,
    /// By their times: those that are not over for all CPUs yet.
    pending: BTreeMap<u64, Vec<Event>>,
    waits: Waits,
    gaps: u64,
    bytes: Vec<u8>,
    /// Last, so that the files are closed when it goes.
    _instance: Instance,
}

impl Reader {
    fn open(tracing: &Path) -> Result<Self, String> {
        let instance = Instance::new(tracing, "scale-soak")?;
        // One clock for all CPUs, and the one that this program reads.
        instance.set("trace_clock", "mono")?;
        instance.set("buffer_size_kb", BUFFER_KIB)?;
        let decoder = Decoder::read(&instance)?;
        let of_cpus = instance.file("per_cpu");
        let open = |cpu: DirEntry| super::open(&cpu.path().join("trace_pipe_raw"));
        let buffers: io::Result<Vec<File>> =
            fs::read_dir(&of_cpus).and_then(|cpus| cpus.flatten().map(open).collect());
        let buffers = buffers.map_err(|error| format!("{}: {error}", of_cpus.display()))?;
        for event in EVENTS {
            instance.set(&format!("events/{event}/enable"), "1")?;
        }
        instance.set("tracing_on", "1")?;
        Ok(Self {
            buffers,
            decoder,
            pending: BTreeMap::new(),
            waits: Waits::default(),
            gaps: 0,
            bytes: vec![0; PAGE_BYTES],
            _instance: instance,
        })
    }

    /// Takes all in that happened until [`LAG_NS`] ago; says when that was.
    fn read(&mut self) -> u64 {
        let now_ns = monotonic_ns();
        for buffer in &mut self.buffers {
            let mut newest_ns = 0;
            while newest_ns < now_ns {
                let length = match buffer.read(&mut self.bytes) {
                    Ok(length) if length > 0 => length,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    _ => break,
                };
                let lost_until = ring::page(&self.bytes[..length], |at_ns, data| {
                    newest_ns = at_ns;
                    if let Some(event) = self.decoder.event(data) {
                        self.pending.entry(at_ns).or_default().push(event);
                    }
                });
                if let Some(at_ns) = lost_until {
                    self.gaps += 1;
                    self.pending
                        .entry(at_ns)
                        .or_default()
                        .insert(0, Event::Lost);
                }
            }
        }
        let until_ns = now_ns.saturating_sub(LAG_NS);
        let later = self.pending.split_off(&until_ns);
        for (at_ns, events) in std::mem::replace(&mut self.pending, later) {
            for event in events {
                self.waits.add(at_ns, event);
            }
        }
        until_ns
    }
}

/// Where the fields of the events are.
struct Decoder {
    kind: Field,
    wakes: [u64; 2],
    switch: u64,
    /// Of a task the number and the name.
    woken: [Field; 2],
    from: [Field; 2],
    state: Field,
    to: [Field; 2],
}

impl Decoder {
    fn read(instance: &Instance) -> Result<Self, String> {
        let [wakeup, wakeup_new, switch] = EVENTS.map(|event| {
            let path = instance.file(&format!("events/{event}/format"));
            let text = fs::read_to_string(&path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Format::parse(&text)
        });
        let (wakeup, wakeup_new, switch) = (wakeup?, wakeup_new?, switch?);
        Ok(Self {
            kind: switch.field("common_type")?,
            wakes: [wakeup.id, wakeup_new.id],
            switch: switch.id,
            // Both wakes are of one class, and so have the same fields.
            woken: [wakeup.field("pid")?, wakeup.field("comm")?],
            from: [switch.field("prev_pid")?, switch.field("prev_comm")?],
            state: switch.field("prev_state")?,
            to: [switch.field("next_pid")?, switch.field("next_comm")?],
        })
    }

    fn event(&self, data: &[u8]) -> Option<Event> {
        let task = |[pid, name]: [Field; 2]| {
            Some(Task {
                pid: pid.number(data).try_into().ok()?,
                name: name.bytes(data).try_into().ok()?,
            })
        };
        let id = self.kind.number(data);
        if id == self.switch {
            return Some(Event::Switched {
                from: task(self.from)?,
                preempted: RUNNABLE.contains(&self.state.number(data)),
                to: task(self.to)?,
            });
        }
        let woken = self.wakes.contains(&id).then(|| task(self.woken))?;
        woken.map(Event::Woken)
    }
}
