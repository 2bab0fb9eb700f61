// SPDX-License-Identifier: GPL-2.0-only
//! The observer's BPF programs: loaded, attached, called.

use std::fs;
use std::io;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::AsFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, MapType, PrintLevel, ProgramInput, ProgramMut, libbpf_sys,
};
use morpheus_common::abi;

use crate::leases::{Leases, MOST_CHANGES};
use crate::pressure::Pressure;
use crate::session::{Areas, Binding, KernelSide, LeaseNumber, Terms};
use crate::skeleton::{ObserverSkel, ObserverSkelBuilder, types};

/// Every ring of events has this size; its descriptor says so in `/proc/self/fdinfo`, as `max_entries`.
pub const RING_BYTES: u32 = 1 << 16;
/// Entries of both areas.
const ENTRY_BYTES: usize = 64;

/// How to observe.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often a worker that runs is looked at, in nanoseconds.
    pub period_ns: u64,
    /// How many leases there may be at once.
    pub leases: u32,
    /// Whether libbpf says on standard error what it does.
    pub verbose: bool,
}

/// Why the programs cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refuses them.
    #[error("the kernel refuses to {what}: {source:#} (`scx_morpheus check` says what is missing)")]
    Refused {
        /// To do what.
        what: &'static str,
        /// What libbpf says of it.
        source: libbpf_rs::Error,
    },
    /// Threads have other numbers there than for BPF.
    #[error(
        "scx_morpheus must run in the initial PID namespace, and not in a container of its own"
    )]
    Namespace,
    /// A program said no when it was called for the first time.
    #[error("the timer of CPU {cpu} cannot be set up: {source}")]
    Timer {
        /// Which CPU's.
        cpu: u32,
        /// What the program returned.
        source: io::Error,
    },
}

/// What the programs have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events in a ring.
    pub events: u64,
    /// Events for which a ring had no room.
    pub events_lost: u64,
    /// Polls that were asked to yield.
    pub requests: u64,
    /// Workers that were found on a CPU without having been switched in: the kernel did not say.
    pub unseen: u64,
}

/// The programs, attached. They are detached, and all maps gone, when this is dropped.
pub struct Observer {
    // First, so that nothing runs any more when the maps go.
    _on_switch: Link,
    _on_interrupt: Link,
    skeleton: ObserverSkel<'static>,
    changes: Leases,
    leases: u32,
}

impl Observer {
    /// Loads and attaches the programs.
    ///
    /// # Errors
    ///
    /// When the kernel lacks something, or the rights for it.
    pub fn attach(options: Options) -> Result<Observer, Error> {
        let refused = |what| move |source| Error::Refused { what, source };
        libbpf_rs::set_print(options.verbose.then_some((PrintLevel::Debug, print)));
        // Once in the life of a process, which owns it until it ends: the skeleton refers to it.
        let object = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = ObserverSkelBuilder::default()
            .open(object)
            .map_err(refused("open the programs"))?;
        let cpus = possible_cpus();
        let maps = &mut open.maps;
        for map in [
            &mut maps.runtime_areas,
            &mut maps.kernel_areas,
            &mut maps.rings,
        ] {
            // Those of leases that have ended go a little later.
            map.set_max_entries(options.leases + MOST_CHANGES as u32)
                .map_err(refused("size the maps"))?;
        }
        maps.cpus
            .set_max_entries(cpus)
            .map_err(refused("size the maps"))?;
        let constants = maps
            .rodata_data
            .as_deref_mut()
            .expect("the programs have constants");
        constants.period_ns = options.period_ns;
        if !timers_can_be_pinned() {
            constants.timer_flags = 0;
        }
        let skeleton = open.load().map_err(refused("load the programs"))?;
        for cpu in 0..cpus {
            start(&skeleton, cpu)?;
        }
        let on_switch = skeleton
            .progs
            .on_switch
            .attach()
            .map_err(refused("attach to sched_switch"))?;
        let on_interrupt = skeleton
            .progs
            .on_interrupt
            .attach()
            .map_err(refused("attach to hrtimer_expire_entry"))?;
        Ok(Observer {
            _on_switch: on_switch,
            _on_interrupt: on_interrupt,
            skeleton,
            changes: Leases::default(),
            leases: 0,
        })
    }

    /// As of now; all 0 when they cannot be read.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let key = 0u32.to_ne_bytes();
        let Ok(Some(bytes)) = self.skeleton.maps.bss.lookup(&key, MapFlags::ANY) else {
            return Counters::default();
        };
        let word = |offset: usize| {
            let word = bytes.get(offset..).and_then(|rest| rest.first_chunk());
            word.map_or(0, |word| u64::from_ne_bytes(*word))
        };
        Counters {
            events: word(offset_of!(types::bss, events_sent)),
            events_lost: word(offset_of!(types::bss, events_lost)),
            requests: word(offset_of!(types::bss, requests_made)),
            unseen: word(offset_of!(types::bss, unseen_switches)),
        }
    }

    fn count_leases(&mut self, leases: u32) {
        self.leases = leases;
        if let Some(shared) = self.skeleton.maps.bss_data.as_deref_mut() {
            shared.leases = leases;
        }
    }

    fn insert(&self, lease: LeaseNumber, areas: &Areas) -> io::Result<()> {
        let maps = &self.skeleton.maps;
        self.changes.insert(
            lease,
            &[
                (maps.kernel_areas.as_fd(), &areas.kernel),
                (maps.rings.as_fd(), &areas.ring),
                (maps.runtime_areas.as_fd(), &areas.runtime),
            ],
        )
    }

    fn remove(&self, lease: LeaseNumber) {
        let maps = &self.skeleton.maps;
        self.changes.remove(
            lease,
            &[
                maps.runtime_areas.as_fd(),
                maps.kernel_areas.as_fd(),
                maps.rings.as_fd(),
            ],
        );
    }
}

impl KernelSide for Observer {
    fn mode(&self) -> u32 {
        abi::MORPHEUS_MODE_OBSERVE
    }

    fn open(&mut self, lease: LeaseNumber, terms: Terms) -> io::Result<Areas> {
        let areas = make_areas(terms).map_err(io_error)?;
        if let Err(error) = self.insert(lease, &areas) {
            self.remove(lease);
            return Err(error);
        }
        self.heartbeat(lease, Pressure::default());
        self.count_leases(self.leases + 1);
        Ok(areas)
    }

    fn bind(&mut self, binding: Binding, tgid: u32, terms: Terms) -> io::Result<()> {
        call(
            &self.skeleton.progs.bind,
            [
                binding.tid.into(),
                tgid.into(),
                binding.lease.into(),
                binding.slot.into(),
                terms.policy.into(),
                terms.budget_ns,
            ],
        )
    }

    fn unbind(&mut self, binding: Binding) {
        let arguments = [
            binding.tid.into(),
            0,
            binding.lease.into(),
            binding.slot.into(),
            0,
            0,
        ];
        // What is left bound by a failure finds no areas once the lease has ended.
        let _ = call(&self.skeleton.progs.unbind, arguments);
    }

    fn close(&mut self, lease: LeaseNumber) {
        self.count_leases(self.leases.saturating_sub(1));
        self.remove(lease);
    }

    fn heartbeat(&mut self, lease: LeaseNumber, pressure: Pressure) {
        let arguments = [
            lease.into(),
            pressure.cpu.into(),
            pressure.io.into(),
            pressure.memory.into(),
            pressure.run_queue_depth.into(),
        ];
        // An application that gets none takes the kernel side for dead, which is right then.
        let _ = call(&self.skeleton.progs.heartbeat, arguments);
    }
}

/// Calls a program of the section "syscall" with words, which it takes for its structure of arguments.
fn call<const WORDS: usize>(program: &ProgramMut<'_>, words: [u64; WORDS]) -> io::Result<()> {
    let mut bytes = words.map(u64::to_ne_bytes).concat();
    let output = program
        .test_run(ProgramInput {
            context_in: Some(&mut bytes),
            ..ProgramInput::default()
        })
        .map_err(io_error)?;
    match output.return_value as i32 {
        0 => Ok(()),
        error => Err(match -error {
            libc::ESRCH => io::ErrorKind::NotFound.into(),
            error => io::Error::from_raw_os_error(error),
        }),
    }
}

fn print(_level: PrintLevel, text: String) {
    eprint!("{text}");
}

fn start(skeleton: &ObserverSkel<'_>, cpu: u32) -> Result<(), Error> {
    call(
        &skeleton.progs.start,
        [cpu.into(), std::process::id().into()],
    )
    .map_err(|source| {
        if source.raw_os_error() == Some(libc::EINVAL) {
            Error::Namespace
        } else {
            Error::Timer { cpu, source }
        }
    })
}

fn io_error(error: libbpf_rs::Error) -> io::Error {
    io::Error::other(format!("{error:#}"))
}

fn make_areas(terms: Terms) -> libbpf_rs::Result<Areas> {
    let runtime = make_area("morpheus_rt", terms.slots, runtime_header(terms))?;
    let kernel = make_area("morpheus_kernel", terms.slots, kernel_header(terms))?;
    // From here on no process can write to it, not even this one; BPF programs can.
    kernel.freeze()?;
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let ring = MapHandle::create(
        MapType::RingBuf,
        Some("morpheus_ring"),
        0,
        0,
        RING_BYTES,
        &options,
    )?;
    let own = |map: &MapHandle| {
        map.as_fd()
            .try_clone_to_owned()
            .map_err(libbpf_rs::Error::from)
    };
    Ok(Areas {
        runtime: own(&runtime)?,
        kernel: own(&kernel)?,
        ring: own(&ring)?,
    })
}

fn make_area(name: &str, slots: u32, header: [u8; ENTRY_BYTES]) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: libbpf_sys::BPF_F_MMAPABLE | libbpf_sys::BPF_F_INNER_MAP,
        ..Default::default()
    };
    let area = MapHandle::create(
        MapType::Array,
        Some(name),
        size_of::<u32>() as u32,
        ENTRY_BYTES as u32,
        slots + 1,
        &options,
    )?;
    area.update(&0u32.to_ne_bytes(), &header, MapFlags::ANY)?;
    Ok(area)
}

fn runtime_header(terms: Terms) -> [u8; ENTRY_BYTES] {
    use abi::morpheus_runtime_header as header;
    entry(&[
        (
            offset_of!(header, magic),
            &abi::MORPHEUS_ABI_MAGIC.to_ne_bytes(),
        ),
        (
            offset_of!(header, abi_version),
            &abi::MORPHEUS_ABI_VERSION.to_ne_bytes(),
        ),
        (offset_of!(header, slots), &terms.slots.to_ne_bytes()),
        (offset_of!(header, policy), &terms.policy.to_ne_bytes()),
        (
            offset_of!(header, budget_ns),
            &terms.budget_ns.to_ne_bytes(),
        ),
        (offset_of!(header, grace_ns), &terms.grace_ns.to_ne_bytes()),
    ])
}

fn kernel_header(terms: Terms) -> [u8; ENTRY_BYTES] {
    use abi::morpheus_kernel_header as header;
    entry(&[
        (
            offset_of!(header, magic),
            &abi::MORPHEUS_ABI_MAGIC.to_ne_bytes(),
        ),
        (
            offset_of!(header, abi_version),
            &abi::MORPHEUS_ABI_VERSION.to_ne_bytes(),
        ),
        (offset_of!(header, slots), &terms.slots.to_ne_bytes()),
        (
            offset_of!(header, mode),
            &abi::MORPHEUS_MODE_OBSERVE.to_ne_bytes(),
        ),
    ])
}

/// An area's entry with these words at these offsets, and else zeroes.
fn entry(words: &[(usize, &[u8])]) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    for (offset, word) in words {
        bytes[*offset..offset + word.len()].copy_from_slice(word);
    }
    bytes
}

/// How many CPUs there can ever be, which is what the programs' CPU numbers are below.
fn possible_cpus() -> u32 {
    libbpf_rs::num_possible_cpus().map_or(1, |cpus| cpus as u32)
}

/// Since Linux 6.7 a BPF timer can be bound to a CPU; before, it mostly stays where it was armed.
fn timers_can_be_pinned() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    version(&release).is_some_and(|version| version >= (6, 7))
}

/// The first two numbers of "6.18.44-something".
pub(crate) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_kernels() {
        assert_eq!(version("6.18.44-fc-v657\n"), Some((6, 18)));
        assert_eq!(version("7.0-rc1"), Some((7, 0)));
        assert_eq!(version(""), None);
        assert_eq!(version("next"), None);
    }

    #[test]
    fn headers_have_what_the_abi_says() {
        let terms = Terms {
            slots: 5,
            policy: 3,
            budget_ns: 1_000_000,
            grace_ns: 2_000_000,
        };
        let word = |bytes: [u8; ENTRY_BYTES], at: usize| {
            u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
        };
        for header in [runtime_header(terms), kernel_header(terms)] {
            assert_eq!(word(header, 0), abi::MORPHEUS_ABI_MAGIC);
            assert_eq!(
                word(header, 8),
                5 << 32 | u64::from(abi::MORPHEUS_ABI_VERSION)
            );
        }
        assert_eq!(word(runtime_header(terms), 24), 1_000_000);
        assert_eq!(word(kernel_header(terms), 16), 0, "no heartbeat yet");
    }
}
