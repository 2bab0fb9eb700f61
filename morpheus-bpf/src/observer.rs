// SPDX-License-Identifier: GPL-2.0-only
//! The observer's BPF programs: loaded and attached.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapHandle, ProgramMut};
use morpheus_common::abi;

use crate::exit::Exit;
use crate::kernel::{self, Error, Kernel, Maps, Programs, refused};
use crate::leases::MOST_CHANGES;
use crate::skeleton::observer::{ObserverSkel, ObserverSkelBuilder};

/// How to observe.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often a running worker is sampled, in nanoseconds.
    pub period_ns: u64,
    /// How many leases there may be at once.
    pub leases: u32,
    /// Whether libbpf says on standard error what it does.
    pub verbose: bool,
}

/// The programs, attached.
#[allow(missing_debug_implementations)]
pub struct Attached {
    // First, so that nothing runs any more when the maps go.
    _on_switch: Link,
    _on_interrupt: Link,
    skeleton: ObserverSkel<'static>,
}

/// The observer as the broker's kernel side.
pub type Observer = Kernel<Attached>;

/// Loads and attaches the programs.
///
/// # Errors
///
/// When the kernel lacks something, or the rights for it.
pub fn attach(options: Options) -> Result<Observer, Error> {
    kernel::set_verbose(options.verbose);
    // Once in the life of a process, which owns it until it ends: the skeleton refers to it.
    let object = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = ObserverSkelBuilder::default()
        .open(object)
        .map_err(refused("open the programs"))?;
    let cpus = kernel::possible_cpus();
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
    maps.sample_timers
        .set_max_entries(cpus)
        .map_err(refused("size the maps"))?;
    let constants = maps
        .rodata_data
        .as_deref_mut()
        .expect("the programs have constants");
    constants.period_ns = options.period_ns;
    if !kernel::timers_can_be_pinned() {
        constants.timer_flags = 0;
    }
    let skeleton = open.load().map_err(refused("load the programs"))?;
    kernel::greet(&skeleton.progs.greet)?;
    for cpu in 0..cpus {
        kernel::call(&skeleton.progs.start, [cpu.into()])
            .map_err(|source| Error::Timer { cpu, source })?;
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
    Kernel::new(
        Attached {
            _on_switch: on_switch,
            _on_interrupt: on_interrupt,
            skeleton,
        },
        abi::MORPHEUS_MODE_OBSERVE,
    )
}

impl Programs for Attached {
    const CAN_END: bool = false;

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
        if let Some(shared) = self.skeleton.maps.bss_data.as_deref_mut() {
            shared.leases = leases;
        }
    }

    /// Nothing ends tracing programs.
    fn exit(&self) -> Option<Exit> {
        None
    }
}
