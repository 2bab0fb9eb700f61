// SPDX-License-Identifier: GPL-2.0-only
//! The common part of the observer and the scheduler: the areas of leases, and the programs that the daemon calls.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType, PrintLevel, ProgramInput, ProgramMut, libbpf_sys,
};
use morpheus_common::abi;

use crate::connections::{self, Ladder};
use crate::exit::Exit;
use crate::leases::Leases;
use crate::machine;
use crate::pressure::Pressure;
use crate::quota::MapId;
use crate::session::{Areas, Binding, ENTRY_BYTES, KernelSide, LeaseNumber, RING_BYTES, Terms};

/// The names of the programs' counters: the header that the programs include.
const COUNTERS: &str = include_str!("bpf/kernel/counters.bpf.h");
/// How soon it is found that the kernel has thrown the scheduler out.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Why the programs cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refuses them.
    #[error(
        "the kernel refuses to {what}: {source:#} (`scx_morpheus check` says what is missing; -v what the kernel says)"
    )]
    Refused {
        /// To do what.
        what: &'static str,
        /// The error of libbpf.
        source: libbpf_rs::Error,
    },
    /// Something is missing, and it is known what.
    #[error("{0}")]
    Limitation(String),
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
        /// The error that the program returned.
        source: io::Error,
    },
}

/// Turns what libbpf says into what the user is told.
pub(crate) fn refused(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Error {
    move |source| Error::Refused { what, source }
}

/// The maps that both have.
#[derive(Debug)]
pub struct Maps {
    /// From a lease to the runtime's half.
    pub runtime_areas: MapHandle,
    /// From a lease to the kernel's half.
    pub kernel_areas: MapHandle,
    /// From a lease to its events.
    pub rings: MapHandle,
    /// See [`Counters`].
    pub counters: MapHandle,
}

/// Programs and maps that both have, whatever else there is.
pub trait Programs {
    /// Whether the kernel may end them.
    const CAN_END: bool;

    /// Binds a thread to a slot.
    fn bind(&self) -> &ProgramMut<'static>;
    /// Undoes that.
    fn unbind(&self) -> &ProgramMut<'static>;
    /// Writes the header of an application's area.
    fn heartbeat(&self) -> &ProgramMut<'static>;
    /// Handles of the maps.
    ///
    /// # Errors
    ///
    /// When there are no more descriptors.
    fn maps(&self) -> libbpf_rs::Result<Maps>;
    /// Tells the programs how many leases there are.
    fn set_leases(&mut self, leases: u32);
    /// Why they ended, once they have.
    fn exit(&self) -> Option<Exit>;
    /// Looks after the machine, given what the programs have counted.
    fn tend(&mut self, _counters: &Counters) {}
}

/// The programs, attached. They are detached, and all maps gone, when this is dropped.
pub struct Kernel<P> {
    pub(crate) programs: P,
    mode: u32,
    leases: u32,
    maps: Maps,
    changes: Leases,
    tend_again: Instant,
}

impl<P> std::fmt::Debug for Kernel<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("mode", &self.mode)
            .field("leases", &self.leases)
            .finish_non_exhaustive()
    }
}

/// The values of the programs' counters, by name.
pub type Counters = BTreeMap<&'static str, u64>;

impl<P: Programs> Kernel<P> {
    pub(crate) fn new(programs: P, mode: u32) -> Result<Kernel<P>, Error> {
        let maps = programs.maps().map_err(refused("open its maps"))?;
        Ok(Kernel {
            programs,
            mode,
            leases: 0,
            maps,
            changes: Leases::default(),
            tend_again: Instant::now() + machine::EVERY,
        })
    }

    /// As of now; those that cannot be read are 0.
    #[must_use]
    pub fn counters(&self) -> Counters {
        counter_names()
            .enumerate()
            .map(|(index, name)| {
                let key = (index as u32).to_ne_bytes();
                let by_cpu = self.maps.counters.lookup_percpu(&key, MapFlags::ANY);
                let sum = by_cpu.ok().flatten().map_or(0, |by_cpu| {
                    by_cpu
                        .iter()
                        .filter_map(|word| word.first_chunk())
                        .map(|word| u64::from_ne_bytes(*word))
                        .sum()
                });
                (name, sum)
            })
            .collect()
    }

    /// Why the kernel side ended, once it has.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        self.programs.exit()
    }

    fn count_leases(&mut self, leases: u32) {
        self.leases = leases;
        self.programs.set_leases(leases);
    }

    fn insert(&self, lease: LeaseNumber, areas: &Areas) -> io::Result<()> {
        let maps = &self.maps;
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
        let maps = &self.maps;
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

impl<P: Programs> KernelSide for Kernel<P> {
    fn mode(&self) -> u32 {
        self.mode
    }

    fn ladder(&self, lease: LeaseNumber, slots: &[u32]) -> Option<Ladder> {
        connections::ladder(
            &self.maps.runtime_areas,
            &self.maps.kernel_areas,
            lease,
            slots,
        )
    }

    fn open(&mut self, lease: LeaseNumber, terms: Terms) -> io::Result<Areas> {
        let areas = make_areas(terms, self.mode).map_err(io_error)?;
        if let Err(error) = self.insert(lease, &areas) {
            self.remove(lease);
            return Err(error);
        }
        self.heartbeat(lease, Pressure::default());
        self.count_leases(self.leases + 1);
        Ok(areas)
    }

    fn bind(&mut self, binding: Binding, terms: Terms) -> io::Result<()> {
        call(
            self.programs.bind(),
            [
                binding.tid.into(),
                binding.tgid.into(),
                binding.lease.into(),
                binding.slot.into(),
                terms.policy.into(),
                terms.budget_ns,
                terms.grace_ns,
            ],
        )
    }

    fn unbind(&mut self, binding: Binding) {
        let arguments = [
            binding.tid.into(),
            binding.tgid.into(),
            binding.lease.into(),
            binding.slot.into(),
            0,
            0,
            0,
        ];
        // A thread that a failure leaves bound finds no areas once the lease has ended.
        let _ = call(self.programs.unbind(), arguments);
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
        let _ = call(self.programs.heartbeat(), arguments);
    }

    fn is_gone(&self, map: MapId) -> bool {
        map_is_gone(map)
    }

    fn has_ended(&self) -> bool {
        self.programs.exit().is_some()
    }

    fn tend(&mut self) {
        let now = Instant::now();
        if P::CAN_END && self.tend_again <= now {
            self.tend_again = now + machine::EVERY;
            let counters = self.counters();
            self.programs.tend(&counters);
        }
    }

    fn look_again(&self) -> Option<Duration> {
        P::CAN_END.then_some(LOOK_AGAIN)
    }
}

/// The names of the counters, in their order.
fn counter_names() -> impl Iterator<Item = &'static str> {
    COUNTERS.lines().filter_map(|line| {
        let (_, rest) = line.split_once("\tX(")?;
        rest.split_once(')').map(|(name, _)| name)
    })
}

/// Calls a program of the section "syscall" with words, which it takes for its structure of arguments.
pub(crate) fn call<const WORDS: usize>(
    program: &ProgramMut<'_>,
    words: [u64; WORDS],
) -> io::Result<()> {
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

/// Asks a program whether it knows this process by the number that the process knows.
pub(crate) fn greet(program: &ProgramMut<'_>) -> Result<(), Error> {
    call(program, [std::process::id().into()]).map_err(|_| Error::Namespace)
}

/// Says what libbpf does from now on, or not.
pub(crate) fn set_verbose(verbose: bool) {
    // Without a printer libbpf does not format its words: thousands, where a scheduler is loaded.
    libbpf_rs::set_print(verbose.then_some((PrintLevel::Debug, print)));
}

fn print(_level: PrintLevel, text: String) {
    eprint!("{text}");
}

fn io_error(error: libbpf_rs::Error) -> io::Error {
    io::Error::other(format!("{error:#}"))
}

fn make_areas(terms: Terms, mode: u32) -> libbpf_rs::Result<Areas> {
    let runtime = make_area("morpheus_rt", terms.slots, runtime_header(terms))?;
    let kernel = make_area("morpheus_kernel", terms.slots, kernel_header(terms, mode))?;
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
        maps: [
            runtime.info()?.info.id,
            kernel.info()?.info.id,
            ring.info()?.info.id,
        ],
    })
}

/// Opens a map by its number.
fn open_map(map: MapId) -> io::Result<OwnedFd> {
    // SAFETY: it takes a number.
    let fd = unsafe { libbpf_sys::bpf_map_get_fd_by_id(map) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel made this descriptor for the call, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the last reference to a map is gone. Without CAP_SYS_ADMIN the kernel does not tell, and it counts as gone.
fn map_is_gone(map: MapId) -> bool {
    match open_map(map) {
        Ok(_) => false,
        Err(error) => matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EPERM)),
    }
}

/// Whether the kernel tells this process which maps exist. Without it, areas that processes keep mapped are not counted.
#[must_use]
pub fn can_see_maps() -> bool {
    // 0 is no map's number.
    open_map(0).is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT))
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

fn kernel_header(terms: Terms, mode: u32) -> [u8; ENTRY_BYTES] {
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
        (offset_of!(header, mode), &mode.to_ne_bytes()),
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
pub(crate) fn possible_cpus() -> u32 {
    libbpf_rs::num_possible_cpus().map_or(1, |cpus| cpus as u32)
}

/// Since Linux 6.7 a BPF timer can be bound to a CPU; before, it mostly stays where it was armed.
pub(crate) fn timers_can_be_pinned() -> bool {
    runs_at_least((6, 7))
}

/// Whether a CPU may run without ticks while it computes (`nohz_full=` on the kernel's command line).
pub(crate) fn may_compute_without_ticks() -> bool {
    fs::read_to_string("/sys/devices/system/cpu/nohz_full").is_ok_and(|cpus| names_cpus(&cpus))
}

/// Whether a list of CPUs has one: an empty list is an empty line, and "(null)" on some kernels.
fn names_cpus(list: &str) -> bool {
    list.contains(|c: char| c.is_ascii_digit())
}

/// Whether the kernel has this version, or a newer one.
pub(crate) fn runs_at_least(least: (u32, u32)) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    version(&release).is_some_and(|version| version >= least)
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
    fn a_list_of_cpus_may_be_empty() {
        for (list, has_cpus) in [("\n", false), ("(null)\n", false), ("1-3,8\n", true)] {
            assert_eq!(names_cpus(list), has_cpus, "{list:?}");
        }
    }

    #[test]
    fn versions_of_kernels() {
        assert_eq!(version("6.18.44-fc-v657\n"), Some((6, 18)));
        assert_eq!(version("7.0-rc1"), Some((7, 0)));
        assert_eq!(version(""), None);
        assert_eq!(version("next"), None);
    }

    #[test]
    fn counters_have_names() {
        let names: Vec<_> = counter_names().collect();
        assert_eq!(names[..2], ["events", "events_lost"]);
        assert_eq!(names.last(), Some(&"samples"));
        assert_eq!(names.len(), COUNTERS.matches("\tX(").count());
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
        let mode = abi::MORPHEUS_MODE_ENFORCE;
        for header in [runtime_header(terms), kernel_header(terms, mode)] {
            assert_eq!(word(header, 0), abi::MORPHEUS_ABI_MAGIC);
            assert_eq!(
                word(header, 8),
                5 << 32 | u64::from(abi::MORPHEUS_ABI_VERSION)
            );
        }
        assert_eq!(word(runtime_header(terms), 24), 1_000_000);
        assert_eq!(word(kernel_header(terms, mode), 16), 0, "no heartbeat yet");
        assert_eq!(word(kernel_header(terms, mode), 24), u64::from(mode));
    }
}
