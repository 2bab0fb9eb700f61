// SPDX-License-Identifier: GPL-2.0-only
//! The doctor's BPF programs: loaded for one process, and what they see as events.
//!
//! The programs are the process's own (`bpf/doctor.bpf.c`): nothing is shared with the observer, and they go with this value,
//! also when the doctor is killed. They write nothing into the process.

use std::cell::RefCell;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::path::Path;
use std::process::ExitCode;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, RingBuffer, RingBufferBuilder};
use morpheus_doctor::arguments::Arguments;
use morpheus_doctor::labels;
use morpheus_doctor::memory::Memory;
use morpheus_doctor::model::Method;
use morpheus_doctor::run;
use morpheus_doctor::sampler::Sampler;
use morpheus_doctor::source::{
    Counter, Event, Kind, Named, Progress, Reason, Signature, Sleep, Source, SystemCall, now_ns,
};
use morpheus_doctor::unwind::{Registers, StackCopy};

use crate::kernel::{self, Error, refused};
use crate::skeleton::doctor::{DoctorSkel, DoctorSkelBuilder, types};

// The same as in bpf/doctor.bpf.h, which a test compares.
const KIND_UNKNOWN: u32 = 0;
const KIND_WORKER: u32 = 1;
const KIND_OTHER: u32 = 2;
const SLEEP_PARK: u32 = 1;
const SLEEP_DRIVER: u32 = 2;
const SLEEP_HELD: u32 = 3;
const EVENT_STACK: u32 = 1;
const EVENT_END: u32 = 2;
const EVENT_EXEC: u32 = 3;
const REASON_COMPUTES: u32 = 1;
const REASON_WOKE: u32 = 2;
const REASON_UNKNOWN_SLEEP: u32 = 3;

/// Stacks of unknown sleeps and threads that are copied before [`REFILL`] is over.
const UNKNOWN_COPIES: i64 = 16;
const REFILL: Duration = Duration::from_millis(100);
/// Between two ticks of a kernel with 250 Hz.
const TICK_NS: u64 = 4_000_000;
/// How long a thread is left alone that is no worker.
const QUIET_NS: u64 = 1_000_000_000;

/// The process to look at, and the options of the look.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The process, by its number in the initial PID namespace.
    pub pid: u32,
    /// Polls longer than this are long.
    pub longer_than: Duration,
    /// Whether libbpf says on standard error what it does.
    pub verbose: bool,
}

/// The programs, attached to one process.
#[allow(missing_debug_implementations)]
pub struct Doctor {
    // First, so that nothing runs any more when the maps go.
    _links: [Link; 4],
    ring: RingBuffer<'static>,
    received: Rc<RefCell<Vec<Event>>>,
    skeleton: DoctorSkel<'static>,
    pid: u32,
    signatures: Vec<Signature>,
    refill: Instant,
    too_many: bool,
}

/// Runs the command: `scx_morpheus doctor`, and the program `morpheus-doctor`.
pub fn run(arguments: &Arguments) -> ExitCode {
    run::run(arguments, &mut |arguments, pid| {
        if arguments.no_bpf {
            return sample(arguments, pid);
        }
        let options = Options {
            pid,
            longer_than: arguments.longer_than,
            verbose: arguments.verbose,
        };
        match attach(options) {
            Ok(doctor) => Ok(Box::new(doctor) as Box<dyn Source>),
            Err(error) => match lacks(&error) {
                Some(lack) => {
                    eprintln!(
                        "morpheus-doctor: {lack}: it samples /proc instead, and what it finds is less exact"
                    );
                    sample(arguments, pid)
                }
                None => Err(error.to_string()),
            },
        }
    })
}

/// Looks at a process without BPF.
fn sample(arguments: &Arguments, pid: u32) -> Result<Box<dyn Source>, String> {
    match Sampler::open(pid, arguments.longer_than) {
        Ok(sampler) => Ok(Box::new(sampler)),
        Err(error) => Err(format!(
            "the threads of process {pid} cannot be looked at: {error}; run as root, or as the process's user where \
             /proc/sys/kernel/yama/ptrace_scope is 0 or is not there"
        )),
    }
}

/// In a few words, why there can be no BPF programs here although nothing is wrong with them.
fn lacks(error: &Error) -> Option<&'static str> {
    let source = match error {
        Error::Refused { source, .. } => source,
        // BPF knows threads by other numbers than the doctor does.
        Error::Namespace => return Some("this is not the initial PID namespace"),
        _ => return None,
    };
    match source.kind() {
        ErrorKind::PermissionDenied => Some("this user may not load BPF programs"),
        _ if !Path::new("/sys/kernel/btf/vmlinux").exists() => {
            Some("this kernel has no BTF, which BPF programs need")
        }
        _ => None,
    }
}

/// Loads the programs for a process, and attaches them.
///
/// # Errors
///
/// When the kernel lacks something, or the rights for it.
pub fn attach(options: Options) -> Result<Doctor, Error> {
    kernel::set_verbose(options.verbose);
    // Once in the life of a process, which owns it until it ends: the skeleton refers to it.
    let object = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = DoctorSkelBuilder::default()
        .open(object)
        .map_err(refused("open the doctor's programs"))?;
    let cpus = kernel::possible_cpus();
    open.maps
        .timers
        .set_max_entries(cpus)
        .map_err(refused("size the maps"))?;
    let constants = open
        .maps
        .rodata_data
        .as_deref_mut()
        .expect("the programs have constants");
    let longer_than_ns = options.longer_than.as_nanos() as u64;
    constants.target = options.pid;
    constants.longer_than_ns = longer_than_ns;
    constants.period_ns = (longer_than_ns / 2).clamp(100_000, 10_000_000);
    constants.relaxed_period_ns = 5 * longer_than_ns;
    constants.ticks_are_enough =
        constants.relaxed_period_ns >= TICK_NS && !kernel::may_compute_without_ticks();
    if !kernel::timers_can_be_pinned() {
        constants.timer_flags = 0;
    }
    let skeleton = open.load().map_err(refused("load the doctor's programs"))?;
    kernel::greet(&skeleton.progs.greet)?;
    for cpu in 0..cpus {
        kernel::call(&skeleton.progs.start, [cpu.into()])
            .map_err(|source| Error::Timer { cpu, source })?;
    }
    let received = Rc::new(RefCell::new(Vec::new()));
    let mut builder = RingBufferBuilder::new();
    let sink = Rc::clone(&received);
    builder
        .add(&skeleton.maps.events, move |bytes| {
            sink.borrow_mut().extend(event(bytes));
            0
        })
        .map_err(refused("read the events"))?;
    let ring = builder.build().map_err(refused("read the events"))?;
    let switch = skeleton
        .progs
        .on_switch
        .attach()
        .map_err(refused("attach to sched_switch"))?;
    let wake = skeleton
        .progs
        .on_wake
        .attach()
        .map_err(refused("attach to sched_waking"))?;
    let interrupt = skeleton
        .progs
        .on_interrupt
        .attach()
        .map_err(refused("attach to hrtimer_expire_entry"))?;
    let exec = skeleton
        .progs
        .on_exec
        .attach()
        .map_err(refused("attach to sched_process_exec"))?;
    let mut doctor = Doctor {
        _links: [switch, wake, interrupt, exec],
        ring,
        received,
        skeleton,
        pid: options.pid,
        signatures: Vec::new(),
        refill: Instant::now(),
        too_many: false,
    };
    doctor.bss().unknown_copies = UNKNOWN_COPIES;
    Ok(doctor)
}

impl Doctor {
    fn bss(&mut self) -> &mut types::bss {
        self.skeleton
            .maps
            .bss_data
            .as_deref_mut()
            .expect("the programs have variables")
    }

    fn threads(&self) -> Vec<(u32, types::thread)> {
        let map = &self.skeleton.maps.threads;
        map.keys()
            .filter_map(|key| {
                let tid = u32::from_ne_bytes(key[..].try_into().ok()?);
                let value = map.lookup(&key, MapFlags::ANY).ok()??;
                Some((tid, structure(&value)?))
            })
            .collect()
    }
}

impl Source for Doctor {
    fn method(&self) -> Method {
        Method::Bpf
    }

    fn collect(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        self.ring.consume().map_err(io::Error::other)?;
        events.append(&mut self.received.borrow_mut());
        if self.refill.elapsed() >= REFILL {
            self.refill = Instant::now();
            self.bss().unknown_copies = UNKNOWN_COPIES;
        }
        Ok(())
    }

    fn learn(&mut self, signature: Signature) {
        let place = self
            .signatures
            .iter()
            .position(|known| known.is_of_same_sleep(&signature));
        let index = place.unwrap_or(self.signatures.len());
        let Some(slot) = self.bss().signatures.get_mut(index) else {
            self.too_many = true;
            return;
        };
        let (core_offset, tick_offset) = signature.counter.unwrap_or((0, 0));
        let form = types::signature {
            ip: signature.ip,
            return_address: signature.return_address,
            return_offset: signature.return_offset,
            system_call: signature.system_call,
            sleep: match signature.sleep {
                Sleep::Park => SLEEP_PARK,
                Sleep::Driver => SLEEP_DRIVER,
                Sleep::Held => SLEEP_HELD,
            },
            core_offset: if place.is_some() { slot.core_offset } else { 0 },
            tick_offset,
            ..types::signature::default()
        };
        let slot: *mut types::signature = slot;
        // SAFETY: `slot` is one of the programs' variables, mapped as long as the skeleton lives. The programs read it meanwhile;
        // writes are of whole words. `core_offset`, by which they judge whether there is a count, comes after the rest.
        unsafe {
            ptr::write_volatile(slot, form);
            fence(Ordering::Release);
            ptr::write_volatile(&raw mut (*slot).core_offset, core_offset);
        }
        match place {
            Some(place) => self.signatures[place] = signature,
            None => {
                self.signatures.push(signature);
                let count = self.signatures.len() as u32;
                // Partner: the programs read the count, and then entries below it.
                fence(Ordering::Release);
                let field = &raw mut self.bss().signature_count;
                // SAFETY: as above.
                unsafe { ptr::write_volatile(field, count) };
            }
        }
    }

    fn adopt(&mut self, tid: u32, kind: Kind, counter: Option<Counter>) {
        let (kind, quiet_until) = match kind {
            Kind::Worker => (KIND_WORKER, 0),
            Kind::Other { .. } => (KIND_OTHER, now_ns() + QUIET_NS),
        };
        let (core_at, tick_offset) = counter.map_or((0, 0), |counter| {
            (counter.core_at, counter.tick_offset.into())
        });
        // The thread may have ended.
        let _ = kernel::call(
            &self.skeleton.progs.adopt,
            [
                tid.into(),
                kind.into(),
                core_at,
                tick_offset,
                quiet_until,
                0,
            ],
        );
    }

    fn has_handle(&mut self, tid: u32, handle: u64) {
        // The thread may have ended.
        let _ = kernel::call(
            &self.skeleton.progs.adopt,
            [tid.into(), KIND_UNKNOWN.into(), 0, 0, 0, handle],
        );
    }

    fn sleepers(&mut self) -> Vec<Event> {
        let memory = Memory::of(self.pid);
        let now = now_ns();
        let asleep = self.threads().into_iter().filter(|(_, thread)| {
            thread.kind == KIND_WORKER
                && thread.sleep == 0
                && thread.out_ns != 0
                && thread.in_ns == 0
        });
        asleep
            .map(|(tid, thread)| {
                let slept_ns = now.saturating_sub(thread.out_ns);
                Event::Stack {
                    progress: Progress {
                        now_ns: now,
                        cpu_ns: thread.cpu_ns,
                        blocked_ns: thread.blocked_ns + slept_ns,
                        unserved_ns: self.unserved_of(&thread, now),
                        runtime: runtime(thread.runtime),
                        is_exact: true,
                        label: labels::watched_at(memory, thread.handle).map(|poll| poll.label),
                        ..Progress::at(tid, thread.began_ns)
                    },
                    reason: Reason::Woke,
                    copy: StackCopy::read(
                        memory,
                        registers(thread.ip, thread.sp, thread.bp, thread.lr),
                    ),
                    system_call: system_call(thread.system_call, thread.arguments),
                    slept_ns,
                    named: Box::default(),
                }
            })
            .collect()
    }

    fn workers(&self) -> Vec<(u32, usize)> {
        self.threads()
            .into_iter()
            .filter(|(_, thread)| thread.kind == KIND_WORKER)
            .map(|(tid, thread)| (tid, runtime(thread.runtime).unwrap_or(0)))
            .collect()
    }

    fn notes(&self) -> Vec<String> {
        if !self.too_many {
            return Vec::new();
        }
        vec![format!(
            "The executor sleeps in more than {} ways, which is more than the BPF programs have room for: some waits for work may be taken for \
             polls.",
            self.signatures.len()
        )]
    }

    fn lost(&self) -> u64 {
        self.skeleton
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |bss| bss.lost)
    }
}

impl Doctor {
    /// How long no worker has served a sleeper's runtime since its poll began.
    fn unserved_of(&self, thread: &types::thread, now: u64) -> u64 {
        let services = self
            .skeleton
            .maps
            .bss_data
            .as_deref()
            .map(|bss| &bss.services);
        let service = runtime(thread.runtime).and_then(|index| services?.get(index));
        let Some(service) = service else {
            return 0;
        };
        let is_unserved = service.roles >> 32 & 0xffff != 0 && service.roles & 0xffff_ffff == 0;
        let open = match is_unserved {
            true => now.saturating_sub(service.unserved_since_ns),
            false => 0,
        };
        (service.unserved_ns + open).saturating_sub(thread.unserved_base_ns)
    }
}

/// An event, as the programs have written it; None of what is none.
fn event(bytes: &[u8]) -> Option<Event> {
    let form: types::event = structure(bytes)?;
    let progress = Progress {
        tid: form.tid,
        now_ns: form.now_ns,
        began_ns: form.began_ns,
        cpu_ns: form.cpu_ns,
        blocked_ns: form.blocked_ns,
        unserved_ns: form.unserved_ns,
        runtime: runtime(form.runtime),
        is_exact: form.is_exact != 0,
        waker: (form.waker != 0).then_some(form.waker),
        woken_ns: form.woken_ns,
        // The programs count labels from 1.
        label: form.label.checked_sub(1),
    };
    match form.kind {
        EVENT_STACK => {
            let named: types::named = structure(bytes.get(size_of::<types::event>()..)?)?;
            let stack = bytes.get(size_of::<types::event>() + size_of::<types::named>()..)?;
            let stack = stack.get(..form.length as usize)?;
            Some(Event::Stack {
                progress,
                reason: match form.reason {
                    REASON_COMPUTES => Reason::Computes,
                    REASON_WOKE => Reason::Woke,
                    REASON_UNKNOWN_SLEEP => Reason::UnknownSleep,
                    _ => Reason::UnknownThread,
                },
                copy: StackCopy {
                    registers: registers(form.ip, form.sp, form.bp, form.lr),
                    bytes: stack.to_vec(),
                },
                system_call: system_call(form.system_call, form.arguments),
                slept_ns: form.slept_ns,
                named: Box::new(Named {
                    mode: form.mode,
                    file: text(&named.file),
                    directory: text(&named.directory),
                    paths: [text(&named.paths[0]), text(&named.paths[1])],
                }),
            })
        }
        EVENT_END => Some(Event::End(progress)),
        EVENT_EXEC => Some(Event::Exec),
        _ => None,
    }
}

/// The structure that bytes begin with.
fn structure<T: Copy + Default>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are that many bytes. The types are the skeleton's for structures of whole numbers, of which all bit patterns are
    // values.
    Some(unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) })
}

/// A string that ends with a zero, or with its room.
fn text(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes
        .iter()
        .take_while(|&&byte| byte != 0)
        .map(|&byte| byte as u8)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn registers(ip: u64, sp: u64, bp: u64, lr: u64) -> Registers {
    Registers {
        ip,
        sp,
        bp: Some(bp),
        lr: cfg!(target_arch = "aarch64").then_some(lr),
    }
}

/// An interrupt has saved another number than a system call.
fn system_call(number: i64, arguments: [u64; 3]) -> Option<SystemCall> {
    let number = u32::try_from(number).ok()?;
    Some(SystemCall { number, arguments })
}

/// The programs count runtimes from 1.
fn runtime(number: u32) -> Option<usize> {
    Some(number.checked_sub(1)? as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bpf_programs_have_the_same_numbers() {
        let header = include_str!("bpf/doctor.bpf.h");
        for (name, number) in [
            ("KIND_UNKNOWN", KIND_UNKNOWN),
            ("KIND_WORKER", KIND_WORKER),
            ("KIND_OTHER", KIND_OTHER),
            ("SLEEP_PARK", SLEEP_PARK),
            ("SLEEP_DRIVER", SLEEP_DRIVER),
            ("SLEEP_HELD", SLEEP_HELD),
            ("EVENT_STACK", EVENT_STACK),
            ("EVENT_END", EVENT_END),
            ("EVENT_EXEC", EVENT_EXEC),
            ("REASON_COMPUTES", REASON_COMPUTES),
            ("REASON_WOKE", REASON_WOKE),
            ("REASON_UNKNOWN_SLEEP", REASON_UNKNOWN_SLEEP),
        ] {
            assert!(
                header.contains(&format!("\n#define {name} {number}\n")),
                "{name}"
            );
        }
    }

    #[test]
    fn what_is_no_event_is_none() {
        for length in [
            0,
            1,
            size_of::<types::event>() - 1,
            size_of::<types::event>(),
            4096,
        ] {
            assert!(event(&vec![0; length]).is_none(), "{length}");
            // A stack event that says it has more than it has.
            let mut bytes = vec![0xff; length];
            if let Some(kind) = bytes.first_chunk_mut() {
                *kind = EVENT_STACK.to_ne_bytes();
            }
            assert!(event(&bytes).is_none(), "{length}");
        }
    }
}
