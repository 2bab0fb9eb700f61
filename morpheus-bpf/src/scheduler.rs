// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler's BPF programs: loaded and attached.
//!
//! On libbpf-rs alone. The crates of the sched_ext project (`scx_utils`, `scx_cargo`) would bring the kernel's types, its
//! functions under all their names, the exit report and the restart. Here the types are those few that are used, relocated
//! by name when the programs are loaded (`src/bpf/kernel`), as they were for the observer; the
//! rest is this file and [`exit`]. That saves their dependencies (among them bindgen, for which libclang has to be
//! installed) and a pin on one exact version of libbpf-rs. The price is that a function which a future kernel renames has
//! to be added to one header by hand.

use std::fs;
use std::mem::{MaybeUninit, offset_of};
use std::path::{Path, PathBuf};

use libbpf_rs::btf::Btf;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramMut};
use morpheus_common::abi;
use serde_json::Value;

use crate::adapt::Switches;
use crate::adapt::knobs::AffinityMode;
use crate::check;
use crate::check::needs::IDLE_BY_NODE;
use crate::check::symbols::{Symbol, has_at_once};
use crate::domains::{Domains, MOST_DOMAINS};
use crate::exit::{self, Exit};
use crate::kernel::{self, Counters, Error, Kernel, Maps, Programs, refused};
use crate::leases::MOST_CHANGES;
use crate::line_writer;
use crate::machine::{self, Machine};
use crate::placement;
use crate::scaling::Scaled;
use crate::skeleton::scheduler::{OpenSchedulerSkel, SchedulerSkel, SchedulerSkelBuilder, types};
use crate::topology::{self, CoreKind, Cpu, Level, Topology};

/// Where the kernel has the flags that follow.
const FLAGS: &str = "scx_ops_flags";
/// `SCX_OPS_ENQ_LAST`: a task that could go on because its CPU has nothing else to do is put into a queue all the same. Else
/// a limit would not hold for it.
const ENQ_LAST: u64 = 1 << 1;
/// `SCX_OPS_ENQ_EXITING`: tasks that exit are put into queues by us, as all others, and not by the kernel into that of their CPU.
const ENQ_EXITING: u64 = 1 << 2;
/// `SCX_OPS_SWITCH_PARTIAL`
const SWITCH_PARTIAL: u64 = 1 << 3;
/// `SCX_OPS_ENQ_MIGRATION_DISABLED`: a task that may not migrate at present is put into a queue by us, and not by the kernel,
/// which takes others for such as well (`morpheus_enqueue`). Linux 6.14.
const ENQ_MIGRATION_DISABLED: u64 = 1 << 4;
/// `SCX_OPS_ALLOW_QUEUED_WAKEUP`, Linux 6.15: as the kernel's own scheduler does it, a waker of a task that is about to leave
/// its CPU does not wait for that.
const ALLOW_QUEUED_WAKEUP: u64 = 1 << 5;
/// `SCX_OPS_BUILTIN_IDLE_PER_NODE`, Linux 6.15: each node has masks of its own of its idle CPUs.
const BUILTIN_IDLE_PER_NODE: u64 = 1 << 6;
/// These are in options/groups.bpf.h, under the same names.
const MOST_GROUPS: u32 = 4096;
const FIRST_RESERVED: u32 = MOST_GROUPS - 512;
const MOST_LEVELS: u32 = 16;
/// `WINDOW_NS` in options/detect.bpf.c, and the tick of a kernel with 250 Hz.
const WINDOW_AND_TICK_MS: (u32, u32) = (10, 4);
/// Counts the CPUs that came and went; a scheduler that was prepared before that is told to start anew.
const HOTPLUG_SEQ: &str = "/sys/kernel/sched_ext/hotplug_seq";
/// Has a `policyN` for each group of CPUs that change their frequency together, where the kernel can change it.
const FREQUENCIES: &str = "/sys/devices/system/cpu/cpufreq";

/// A part of the scheduler that can be switched off, to see what it is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mechanism {
    /// Polls over their budget are requested to yield
    Request,
    /// Stalled workers get a tenth of their weight
    Demote,
    /// Polls of a label with repeated hog polls are capped
    Throttle,
    /// Critical sections may outlast their slice
    Extension,
    /// One extension in a dispatch, and none for a section that outlived one: without it, a false claim pays
    ExtensionBound,
    /// Tasks that wake preempt
    Kick,
    /// Workers that serve preempt a stalled worker at once
    KickServing,
    /// A worker that serves goes ahead, and those of its process that compute wait for it
    Loan,
    /// Workers have shorter slices than others
    WorkerSlice,
    /// A task that has run for a short time is not preempted
    MinRun,
    /// An idle CPU is kicked for each task that it may run
    KickIdle,
    /// Each NUMA node has masks of its own of its idle CPUs, from Linux 6.15 on
    IdleByNode,
    /// Skipped preemptions are made up
    MakeUp,
    /// A task whose waker is about to sleep preempts only now and then
    SyncPause,
    /// Tasks woken by one that says it is about to sleep, wakes many and does not sleep do not go first
    SyncCrowd,
    /// A task whose waker is about to sleep goes ahead of others that go first: what is begun ends before more begins
    SyncAhead,
    /// A timer samples running workers
    Timer,
    /// The running task competes with those that wait
    Previous,
    /// A task that comes to another domain of CPUs is as far from that domain's clock as it was from the other one
    DomainClock,
    /// A pinned task that wakes is compared with the tasks of its CPU
    PinnedClock,
    /// A CPU asks for full speed while a worker serves there, and else for as much as it is used
    Cpuperf,
    /// And while a task of the tier LAT_CRITICAL runs there
    CpuperfTiers,
    /// A task that has waited for too long goes first
    Rescue,
    /// A CPU that a higher class takes gives its queue back
    Reenqueue,
    /// Tasks are known by what they have done, and those that sleep more than they compute go first; without it, none of the
    /// mechanisms below has anything to do
    Tiers,
    /// A tier has slices of its own length
    TierSlices,
    /// A task that computes for long is BATCH, whatever it was, until it sleeps
    CpuBound,
    /// Some names go first always (--boost)
    Boost,
    /// The kernel's work queues are never taken for tasks that compute
    KworkerFloor,
    /// A task that has hardly slept yet does not go first
    ImmatureGate,
    /// A task that goes first preempts a BATCH task at once
    WakeupPreemption,
    /// The same at a tick, for those that wait still
    TickPreemption,
    /// A task of the tier LAT_CRITICAL preempts when its slice is over, too, and where a higher class has taken its CPU. Off
    /// unless --with says so
    RequeuePreemption,
    /// A task that wakes goes near its last CPU, where CPUs share a second-level cache
    L2Affinity,
    /// On machines whose CPUs differ in capacity, tasks prefer performance cores
    Hybrid,
    /// An idle CPU that was sent a task already gets no more. Off unless --with says so
    IdleDepth,
    /// The other DSQs go before pinned tasks when they were not served for too long. Off unless --with says so
    OverflowRescue,
    /// After this number of tasks of the front queue and of pinned tasks, one of the main queue goes first. Off unless --with says so
    Deficit,
    /// BATCH tasks are served after a while in any case
    StarvationRescue,
    /// And after a shorter one, as things are at present, at a tick as well. Off unless --with says so
    SojournRescue,
    /// Far behind the others is not as far on many CPUs
    VtimeCeiling,
    /// A CPU without work takes it from other domains, the nearest first
    Steal,
    /// Groups share the CPU by their weights (cpu.weight)
    CgroupWeight,
    /// Groups use no more of the CPU than they may (cpu.max), from Linux 6.17 on
    CgroupMax,
    /// A change in the rate of enqueues is a burst
    Cusum,
    /// Many wakes of unknown tasks are a burst
    WakeupBurst,
    /// Where some compute all the time, slices are short
    Longrun,
    /// A task begins with the tier and run time that its name had in earlier runs
    Profiles,
    /// The daemon adapts slices and thresholds to what it sees; without it, they stay as they are at the start, and the
    /// mechanisms below have nothing to do. Off unless --with says so
    Adapt,
    /// How busy the machine is makes a difference to them
    Regimes,
    /// Slices become shorter while wakes wait for long
    Tighten,
    /// How tasks sleep makes a difference to the slices of those that compute
    Sleep,
    /// How often CPUs choose makes a difference to how long those that compute may go without
    Sojourn,
}

/// How to schedule.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often a running worker is sampled, in nanoseconds.
    pub period_ns: u64,
    /// How long a task may run before others are considered, in nanoseconds.
    pub slice_ns: u64,
    /// How long a worker may run before others that have had less are considered, in nanoseconds.
    pub worker_slice_ns: u64,
    /// How long a critical section may go on after its slice, in nanoseconds.
    pub extension_ns: u64,
    /// How many leases there may be at once.
    pub leases: u32,
    /// Demote and throttle, and not only see and report.
    pub enforce: bool,
    /// Schedule only the tasks that asked for it (`SCHED_EXT`).
    pub partial: bool,
    /// How many bytes of the kernel's dump to keep; 0 is the kernel's own choice.
    pub exit_dump_bytes: u32,
    /// The mechanisms that are switched off.
    pub off: Vec<Mechanism>,
    /// Names of tasks that go first always, beside [`COMPOSITORS`].
    pub boosts: Vec<String>,
    /// As many CPUs the formulas count with; `None` as many as there are.
    pub cpus: Option<u32>,
    /// Where a woken task is placed on CPUs that share a second-level cache; `None` leaves it to the regime.
    pub affinity: Option<AffinityMode>,
    /// The process database's file; `None` keeps none.
    pub procdb: Option<PathBuf>,
    /// Whether libbpf says on standard error what it does.
    pub verbose: bool,
}

/// The mechanisms that are off unless asked for: measurements found no gain from them, and a cost of some (`docs/src/kernel.md`).
pub const OFF_BY_DEFAULT: [Mechanism; 6] = [
    Mechanism::RequeuePreemption,
    Mechanism::IdleDepth,
    Mechanism::OverflowRescue,
    Mechanism::Deficit,
    Mechanism::SojournRescue,
    Mechanism::Adapt,
];

/// Programs that draw the screen, and that users wait for. As they stand in `/proc/PID/comm`.
pub const COMPOSITORS: [&str; 11] = [
    "kwin_wayland",
    "kwin_x11",
    "gnome-shell",
    "mutter",
    "sway",
    "Hyprland",
    "picom",
    "weston",
    "labwc",
    "wayfire",
    "niri",
];

/// The longest name that a task has, in bytes.
pub const NAME_MOST: usize = 15;

/// The programs, attached.
#[allow(missing_debug_implementations)]
pub struct Attached {
    // First, so that nothing runs any more when the maps go.
    watching: Option<Watching>,
    _scheduler: Link,
    /// Where `on_switch` is needed without any application, too.
    watches_always: bool,
    /// Without tiers there is nothing to look after.
    machine: Option<Machine>,
    /// As many limits of groups do not hold, and it was said.
    limits_lost: u64,
    skeleton: SchedulerSkel<'static>,
}

/// The programs that watch workers. They are attached while there are leases, so that switches cost nothing else.
struct Watching {
    _on_switch: Link,
    _on_interrupt: Link,
}

impl Watching {
    fn attach(skeleton: &SchedulerSkel<'_>) -> Result<Watching, Error> {
        let programs = &skeleton.progs;
        Ok(Watching {
            _on_switch: programs
                .on_switch
                .attach()
                .map_err(refused("attach to sched_switch"))?,
            _on_interrupt: programs
                .on_interrupt
                .attach()
                .map_err(refused("attach to hrtimer_expire_entry"))?,
        })
    }
}

/// The scheduler as the broker's kernel side.
pub type Scheduler = Kernel<Attached>;

/// The kernel's own choice of a dump's size.
const DUMP_BYTES: u32 = 32768;

/// Loads the programs, and makes them the machine's scheduler.
///
/// # Errors
///
/// When the kernel lacks something, or the rights for it, or another scheduler is there.
pub fn attach(options: &Options) -> Result<Scheduler, Error> {
    kernel::set_verbose(options.verbose);
    let btf = Btf::from_vmlinux().ok();
    check::scheduler_can_load(btf.as_ref()).map_err(Error::Limitation)?;
    // Before anything is known of the CPUs.
    let hotplug_seq = fs::read_to_string(HOTPLUG_SEQ)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    let topology = Topology::read(Path::new(topology::SYSFS));
    let scaled = Scaled::for_cpus(scheduled_cpus(options, &topology));
    // The skeleton refers to it for as long as the process lives; a restart makes another one.
    let object = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = SchedulerSkelBuilder::default()
        .open(object)
        .map_err(refused("open the programs"))?;
    let dump_bytes = match options.exit_dump_bytes {
        0 => DUMP_BYTES,
        bytes => bytes,
    };
    size_maps(&mut open, options, dump_bytes).map_err(refused("size the maps"))?;
    set_for_cpus(&mut open, &topology, &scaled);
    let has = |symbol| btf.as_ref().is_some_and(|btf| has_at_once(btf, symbol));
    let of_cpus = constants(&mut open);
    let nodes = topology.count(Level::Node);
    of_cpus.node_count = nodes;
    for (node, number) in of_cpus.nodes.iter_mut().zip(0..nodes) {
        *node = topology.node_id(number).map_or(0, |id| id as u16);
    }
    // The search for a performance core is in masks of the whole machine.
    of_cpus.idle_by_node_on = (2..=of_cpus.nodes.len()).contains(&(nodes as usize))
        && !of_cpus.hybrid_on
        && IDLE_BY_NODE.iter().all(|symbol| has(*symbol));
    // Second: what is switched off is so whatever the formulas say.
    set_constants(&mut open, options, dump_bytes);
    let is_hybrid = constants(&mut open).hybrid_on;
    let idle_by_node = constants(&mut open).idle_by_node_on;
    let groups = Groups::for_kernel(options, has);
    leave_out_groups(&mut open, groups);
    let table = open.struct_ops.morpheus_mut();
    table.hotplug_seq = hotplug_seq;
    table.exit_dump_len = options.exit_dump_bytes;
    table.flags |= ENQ_EXITING;
    if has(Symbol::Constant(FLAGS, "SCX_OPS_ENQ_MIGRATION_DISABLED")) {
        table.flags |= ENQ_MIGRATION_DISABLED;
    }
    if has(Symbol::Constant(FLAGS, "SCX_OPS_ALLOW_QUEUED_WAKEUP")) {
        table.flags |= ALLOW_QUEUED_WAKEUP;
    }
    if idle_by_node {
        table.flags |= BUILTIN_IDLE_PER_NODE;
    }
    if options.partial {
        table.flags |= SWITCH_PARTIAL;
    }
    if groups.limits || is_hybrid {
        table.flags |= ENQ_LAST;
    }
    let searches = [Mechanism::Tiers, Mechanism::KickIdle];
    let is_off = |mechanism| options.off.contains(mechanism);
    if !asks_for_speed(options) && searches.iter().all(is_off) && !groups.any() {
        table.tick = std::ptr::null_mut();
        open.progs.morpheus_tick.set_autoload(false);
    }
    let watches_always = has(Symbol::Function("scx_bpf_reenqueue_local___v2"));
    if watches_always {
        // From 6.19 on sched_switch says so, and 7.2 warns of the callback.
        table.cpu_release = std::ptr::null_mut();
        open.progs.morpheus_cpu_release.set_autoload(false);
    }
    let mut skeleton =
        open.load().map_err(
            |error| match btf.as_ref().and_then(check::scheduler_lacks) {
                Some(lacks) => {
                    Error::Limitation(format!("this kernel cannot be scheduled: {lacks}"))
                }
                None => refused("load the programs")(error),
            },
        )?;
    kernel::greet(&skeleton.progs.greet)?;
    boost(&skeleton, options).map_err(refused("say who goes first"))?;
    let mut machine = (!options.off.contains(&Mechanism::Tiers)).then(|| {
        Machine::new(&machine::Plan {
            scaled,
            fixed: options.cpus.is_some(),
            switches: switches(options),
            procdb: options
                .procdb
                .clone()
                .filter(|_| !options.off.contains(&Mechanism::Profiles)),
        })
    });
    if let Some(machine) = &mut machine {
        machine
            .begin(&mut skeleton)
            .map_err(refused("set the first knobs"))?;
    }
    // Tried in any case: what does not work is said now, and not when the first application comes.
    let watching = Watching::attach(&skeleton)?;
    let scheduler = skeleton
        .maps
        .morpheus
        .attach_struct_ops()
        .map_err(refused("schedule with these programs"))?;
    let mode = if options.enforce {
        abi::MORPHEUS_MODE_ENFORCE
    } else {
        abi::MORPHEUS_MODE_OBSERVE
    };
    Kernel::new(
        Attached {
            watching: watches_always.then_some(watching),
            _scheduler: scheduler,
            watches_always,
            machine,
            limits_lost: 0,
            skeleton,
        },
        mode,
    )
}

fn size_maps(
    open: &mut OpenSchedulerSkel<'_>,
    options: &Options,
    dump_bytes: u32,
) -> libbpf_rs::Result<()> {
    let maps = &mut open.maps;
    for map in [
        &mut maps.runtime_areas,
        &mut maps.kernel_areas,
        &mut maps.rings,
    ] {
        // Those of leases that have ended go a little later.
        map.set_max_entries(options.leases + MOST_CHANGES as u32)?;
    }
    for map in [
        &mut maps.sample_timers,
        &mut maps.kick_timers,
        &mut maps.near_timers,
        &mut maps.quota_timers,
        &mut maps.slice_timers,
        &mut maps.speeds,
        &mut maps.cpus,
    ] {
        map.set_max_entries(kernel::possible_cpus())?;
    }
    maps.exit_dump.set_value_size(dump_bytes)
}

/// Sets the constants that depend on the CPUs of the machine.
fn set_for_cpus(open: &mut OpenSchedulerSkel<'_>, topology: &Topology, scaled: &Scaled) {
    let constants = constants(open);
    constants.overflow_rescue_ns = scaled.overflow_rescue_ns;
    constants.starvation_ns = scaled.starvation_rescue_ns;
    constants.deficit_budget = scaled.deficit_budget;
    constants.deficit_budget_longrun = scaled.longrun_deficit_budget;
    constants.idle_depth = scaled.cpu_queue_depth;
    constants.vtime_ceiling_ns = scaled.vtime_ceiling_ns.unwrap_or(0);
    constants.burst_wakeups = in_a_window(scaled.burst_wakeups_per_tick);
    set_domains(constants, &Domains::of(topology));
    set_fast_cpus(constants, topology);
    for cpu in topology.cpus() {
        if let Some(near) = constants.near_cpus.get_mut(cpu.id as usize) {
            *near = placement::near(topology, cpu);
            constants.l2_affinity_on |= *near != 0;
        }
    }
}

/// The performance cores of a machine that has others as well.
fn set_fast_cpus(constants: &mut types::rodata, topology: &Topology) {
    let is_fast = |cpu: &&Cpu| cpu.kind == CoreKind::Performance;
    constants.hybrid_on = !topology.online().all(|cpu| is_fast(&cpu));
    if !constants.hybrid_on {
        return;
    }
    for cpu in topology.cpus().iter().filter(is_fast) {
        let id = cpu.id as usize;
        if let Some(word) = constants.fast_bits.get_mut(id / 64) {
            *word |= 1 << (id % 64);
        }
        if let Some(place) = constants.fast_cpus.get_mut(constants.fast_count as usize) {
            *place = cpu.id as u16;
            constants.fast_count += 1;
        }
    }
}

/// Which CPUs share queues.
fn set_domains(constants: &mut types::rodata, domains: &Domains) {
    constants.domain_count = domains.cpus.len() as u32;
    let sizes: &mut [u32; MOST_DOMAINS] = &mut constants.domain_sizes;
    for (index, cpus) in domains.cpus.iter().enumerate() {
        let places = &mut constants.cpus_of_domains[index];
        sizes[index] = cpus.len().min(places.len()) as u32;
        for (place, cpu) in cpus.iter().enumerate() {
            let id = *cpu as usize;
            let Some(domain) = constants.domains_of_cpus.get_mut(id) else {
                continue;
            };
            *domain = index as u8;
            // From the length of `places` on it has none.
            constants.places_of_cpus[id] = place.min(u8::MAX.into()) as u8;
            if let Some(there) = places.get_mut(place) {
                *there = *cpu as u16;
            }
        }
        let nearest = &mut constants.nearest_domains[index];
        for (own, other) in nearest.iter_mut().zip(&domains.nearest[index]) {
            *own = *other;
        }
    }
}

fn constants<'a>(open: &'a mut OpenSchedulerSkel<'_>) -> &'a mut types::rodata {
    open.maps
        .rodata_data
        .as_deref_mut()
        .expect("the programs have constants")
}

fn set_constants(open: &mut OpenSchedulerSkel<'_>, options: &Options, dump_bytes: u32) {
    let constants = constants(open);
    constants.cpu_count = kernel::possible_cpus();
    constants.period_ns = options.period_ns;
    constants.slice_ns = options.slice_ns;
    constants.partial_on = options.partial;
    constants.worker_slice_ns = options.worker_slice_ns;
    constants.extension_ns = options.extension_ns;
    constants.exit_dump_bytes = dump_bytes;
    constants.enforce = options.enforce;
    constants.cpuperf_on = asks_for_speed(options);
    for mechanism in &options.off {
        let switch = match mechanism {
            Mechanism::Request => &mut constants.requests_on,
            Mechanism::Demote => &mut constants.demotion_on,
            Mechanism::Throttle => &mut constants.throttling_on,
            Mechanism::Extension => &mut constants.extensions_on,
            Mechanism::ExtensionBound => &mut constants.extension_bound_on,
            Mechanism::Kick => &mut constants.kicks_on,
            Mechanism::KickServing => &mut constants.serving_kicks_on,
            Mechanism::KickIdle => &mut constants.idle_kicks_on,
            Mechanism::Loan => &mut constants.loans_on,
            Mechanism::WorkerSlice => {
                constants.worker_slice_ns = 0;
                continue;
            }
            Mechanism::MinRun => {
                constants.min_run_ns = 0;
                continue;
            }
            Mechanism::IdleByNode => &mut constants.idle_by_node_on,
            Mechanism::MakeUp => &mut constants.make_up_on,
            Mechanism::SyncPause => {
                constants.sync_pause_ns = 0;
                constants.unsaid_pause_ns = 0;
                continue;
            }
            Mechanism::SyncCrowd => {
                constants.sync_wakes_believed = u32::MAX;
                continue;
            }
            Mechanism::SyncAhead => {
                constants.sync_ahead_ns = 0;
                continue;
            }
            Mechanism::Timer => &mut constants.timer_on,
            Mechanism::Previous => &mut constants.previous_on,
            Mechanism::DomainClock => &mut constants.domain_clock_on,
            Mechanism::PinnedClock => &mut constants.pinned_clock_on,
            Mechanism::Cpuperf => &mut constants.cpuperf_on,
            Mechanism::CpuperfTiers => &mut constants.cpuperf_tiers_on,
            Mechanism::Rescue => &mut constants.rescue_on,
            Mechanism::Reenqueue => &mut constants.reenqueue_on,
            Mechanism::Tiers => &mut constants.tiers_on,
            Mechanism::TierSlices => &mut constants.tier_slices_on,
            Mechanism::CpuBound => &mut constants.cpu_bound_on,
            Mechanism::Boost => &mut constants.boost_on,
            Mechanism::KworkerFloor => &mut constants.kworker_floor_on,
            Mechanism::ImmatureGate => &mut constants.immature_gate_on,
            Mechanism::WakeupPreemption => &mut constants.wakeup_preemption_on,
            Mechanism::TickPreemption => &mut constants.tick_preemption_on,
            Mechanism::RequeuePreemption => &mut constants.requeue_preemption_on,
            Mechanism::L2Affinity => &mut constants.l2_affinity_on,
            Mechanism::Hybrid => &mut constants.hybrid_on,
            Mechanism::IdleDepth => &mut constants.idle_depth_on,
            Mechanism::OverflowRescue => &mut constants.overflow_rescue_on,
            Mechanism::Deficit => &mut constants.deficit_on,
            Mechanism::StarvationRescue => &mut constants.starvation_rescue_on,
            Mechanism::SojournRescue => &mut constants.sojourn_rescue_on,
            Mechanism::VtimeCeiling => {
                constants.vtime_ceiling_ns = 0;
                continue;
            }
            Mechanism::Steal => &mut constants.steal_on,
            // The features of the kernel count as well (leave_out_groups).
            Mechanism::CgroupWeight | Mechanism::CgroupMax => continue,
            Mechanism::Cusum => &mut constants.cusum_on,
            Mechanism::WakeupBurst => &mut constants.wakeup_burst_on,
            Mechanism::Longrun => &mut constants.longrun_on,
            Mechanism::Profiles => &mut constants.profiles_on,
            // Parts of the daemon (switches).
            Mechanism::Adapt
            | Mechanism::Regimes
            | Mechanism::Tighten
            | Mechanism::Sleep
            | Mechanism::Sojourn => continue,
        };
        *switch = false;
    }
}

/// Before the scheduler is attached: names are looked at when it meets a task.
fn boost(skeleton: &SchedulerSkel<'_>, options: &Options) -> libbpf_rs::Result<()> {
    let names = COMPOSITORS.into_iter();
    for name in names.chain(options.boosts.iter().map(String::as_str)) {
        let mut key = [0; NAME_MOST + 1];
        let bytes = &name.as_bytes()[..name.len().min(NAME_MOST)];
        key[..bytes.len()].copy_from_slice(bytes);
        skeleton
            .maps
            .boosts
            .update(&key, &1u32.to_ne_bytes(), MapFlags::ANY)?;
    }
    Ok(())
}

/// A count for a tick, as the count for a detector's window.
fn in_a_window(in_a_tick: u32) -> u32 {
    let (window, tick) = WINDOW_AND_TICK_MS;
    in_a_tick.saturating_mul(window) / tick
}

/// As many CPUs the formulas count with.
fn scheduled_cpus(options: &Options, topology: &Topology) -> u32 {
    let online = || topology.online().count() as u32;
    options.cpus.unwrap_or_else(online).max(1)
}

/// The stages of the adaptive loop that are on.
fn switches(options: &Options) -> Switches {
    let on = |mechanism| !options.off.contains(&mechanism);
    Switches {
        adapt: on(Mechanism::Adapt),
        regimes: on(Mechanism::Regimes),
        tighten: on(Mechanism::Tighten),
        sleep: on(Mechanism::Sleep),
        sojourn: on(Mechanism::Sojourn),
        affinity: options.affinity,
    }
}

/// Whether CPUs ask for the speed that they need. Where no governor would hear of it, nothing of it is loaded.
///
/// Before 6.15 `scx_bpf_cpuperf_set` may not be called where no run queue is locked, as timers do.
fn asks_for_speed(options: &Options) -> bool {
    !options.off.contains(&Mechanism::Cpuperf)
        && kernel::runs_at_least((6, 15))
        && fs::read_dir(FREQUENCIES).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"policy"))
        })
}

/// The settings of groups of tasks (cgroups) that are in force.
#[derive(Clone, Copy, Debug)]
struct Groups {
    weights: bool,
    limits: bool,
}

impl Groups {
    /// The settings that are not switched off, as far as the kernel tells of them: of groups at all where it is built
    /// with them (`CONFIG_EXT_GROUP_SCHED`), of limits from 6.17 on.
    fn for_kernel(options: &Options, has: impl Fn(Symbol) -> bool) -> Groups {
        let on = |mechanism, callback| {
            !options.off.contains(&mechanism) && has(Symbol::Field("sched_ext_ops", callback))
        };
        Groups {
            weights: on(Mechanism::CgroupWeight, "cgroup_set_weight"),
            limits: on(Mechanism::CgroupMax, "cgroup_set_bandwidth"),
        }
    }

    fn any(self) -> bool {
        self.weights || self.limits
    }
}

/// Switches off what groups have no say in, and takes those callbacks out of the table that there is no use for. Where they
/// have none at all, nothing of them is loaded.
fn leave_out_groups(open: &mut OpenSchedulerSkel<'_>, groups: Groups) {
    let constants = constants(open);
    constants.group_weights_on = groups.weights;
    // A group may have a limit already when the scheduler comes.
    constants.group_limits_on = groups.limits;
    let table = open.struct_ops.morpheus_mut();
    let programs = &mut open.progs;
    if !groups.weights {
        table.cgroup_set_weight = std::ptr::null_mut();
        programs.morpheus_cgroup_set_weight.set_autoload(false);
    }
    if !groups.limits {
        table.cgroup_set_bandwidth = std::ptr::null_mut();
        programs.morpheus_cgroup_set_bandwidth.set_autoload(false);
    }
    if !groups.any() {
        table.cgroup_init = std::ptr::null_mut();
        table.cgroup_exit = std::ptr::null_mut();
        table.disable = std::ptr::null_mut();
        programs.morpheus_cgroup_init.set_autoload(false);
        programs.morpheus_cgroup_exit.set_autoload(false);
        programs.morpheus_disable.set_autoload(false);
    }
}

/// The message about limits that do not hold.
fn lost_limits(count: u64) -> String {
    let (groups, reserved, levels) = (
        FIRST_RESERVED - 1,
        MOST_GROUPS - FIRST_RESERVED,
        MOST_LEVELS - 1,
    );
    format!(
        "scx_morpheus: {count} new limits (cpu.max) do not hold: the scheduler tells {groups} cgroups apart, {reserved} more \
         that have a limit, {levels} levels deep, and the others are a part of the cgroup above them; remove cgroups that nobody \
         uses, or limit one above, and set the limit anew"
    )
}

impl Kernel<Attached> {
    /// The counters of the programs, and those of the adaptive loop where it is on.
    #[must_use]
    pub fn all_counters(&self) -> Counters {
        let mut counters = self.counters();
        let machine = self.programs.machine.as_ref();
        counters.extend(machine.into_iter().flat_map(Machine::changes));
        counters
    }

    /// The numbers of the machine beside the counters; null where it is not looked after.
    #[must_use]
    pub fn machine(&self) -> Value {
        let own = &self.programs;
        own.machine
            .as_ref()
            .map_or(Value::Null, |machine| machine.describe(&own.skeleton))
    }
}

impl Programs for Attached {
    const CAN_END: bool = true;

    fn tend(&mut self, counters: &Counters) {
        if let Some(machine) = &mut self.machine {
            machine.tend(&mut self.skeleton, counters);
        }
        let lost = counters.get("limits_lost").copied().unwrap_or(0);
        if lost > self.limits_lost {
            line_writer::say(lost_limits(lost - self.limits_lost));
            self.limits_lost = lost;
        }
    }

    fn bind(&self) -> &ProgramMut<'static> {
        &self.skeleton.progs.bind
    }

    fn unbind(&self) -> &ProgramMut<'static> {
        &self.skeleton.progs.unbind
    }

    fn heartbeat(&self) -> &ProgramMut<'static> {
        &self.skeleton.progs.heartbeat
    }

    fn maps(&self) -> libbpf_rs::Result<Maps> {
        let maps = &self.skeleton.maps;
        Ok(Maps {
            runtime_areas: MapHandle::try_from(&maps.runtime_areas)?,
            kernel_areas: MapHandle::try_from(&maps.kernel_areas)?,
            rings: MapHandle::try_from(&maps.rings)?,
            counters: MapHandle::try_from(&maps.counters)?,
        })
    }

    fn set_leases(&mut self, leases: u32) {
        if leases > 0 && self.watching.is_none() {
            match Watching::attach(&self.skeleton) {
                Ok(watching) => self.watching = Some(watching),
                // It was possible a moment ago: the workers of this application are not watched, and it has its watchdog.
                Err(error) => {
                    line_writer::say(format!("scx_morpheus: workers cannot be watched: {error}"));
                }
            }
        }
        if let Some(shared) = self.skeleton.maps.bss_data.as_deref_mut() {
            shared.leases = leases;
        }
        if leases == 0 && !self.watches_always {
            self.watching = None;
        }
    }

    fn exit(&self) -> Option<Exit> {
        let maps = &self.skeleton.maps;
        let first = 0u32.to_ne_bytes();
        let bytes = maps.data.lookup(&first, MapFlags::ANY).ok()??;
        let report = bytes.get(offset_of!(types::data, exit_report)..)?;
        let kind = i32::from_ne_bytes(
            *report
                .get(offset_of!(types::exit_report, kind)..)?
                .first_chunk()?,
        );
        if kind == 0 {
            return None;
        }
        let code = i64::from_ne_bytes(
            *report
                .get(offset_of!(types::exit_report, code)..)?
                .first_chunk()?,
        );
        let dump = maps.exit_dump.lookup(&first, MapFlags::ANY).ok().flatten();
        Some(Exit {
            kind,
            code,
            reason: exit::text(&report[offset_of!(types::exit_report, reason)..]),
            message: exit::text(&report[offset_of!(types::exit_report, message)..]),
            dump: exit::text(&dump.unwrap_or_default()),
        })
    }
}
