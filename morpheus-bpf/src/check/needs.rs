// SPDX-License-Identifier: GPL-2.0-only
//! The symbols of the kernel that the BPF programs need, and those that they can do without.
//!
//! The kernel is asked for each by its BTF, and not by its version: distributions bring features to older kernels, and build
//! newer ones without them. The versions here are those that first had a thing, for the reader of a message. A test compares
//! the lists with the sources of the programs.

use super::symbols::Found;
use super::symbols::Symbol::{self, Constant, Field, Function, Struct, Tracepoint, Variable};

/// Something that is needed, or used where it is there.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Its purpose.
    pub what: &'static str,
    /// One of these suffices, and of that everything.
    pub one_of: &'static [&'static [Symbol]],
    /// The first kernel that has it.
    pub since: &'static str,
    /// The loss without it; `None` where nothing loads.
    pub without: Option<&'static str>,
}

/// Masks of idle CPUs by node.
pub(crate) const IDLE_BY_NODE: &[Symbol] = &[
    Constant("scx_ops_flags", "SCX_OPS_BUILTIN_IDLE_PER_NODE"),
    Function("scx_bpf_cpu_node"),
    Function("scx_bpf_get_idle_cpumask_node"),
    Function("scx_bpf_get_idle_smtmask_node"),
    Function("scx_bpf_pick_idle_cpu_node"),
];

impl Need {
    /// The symbols of it that the kernel lacks: none, if it has one of the alternatives.
    #[must_use]
    pub fn missing(&self, found: &Found) -> Vec<Symbol> {
        let missing_of = |all: &[Symbol]| -> Vec<Symbol> {
            let missing = all.iter().filter(|symbol| !found.has(**symbol));
            missing.copied().collect()
        };
        let alternatives = self.one_of.iter().map(|all| missing_of(all));
        // The one that the first kernel had, of which the version tells, is the last.
        let mut last = Vec::new();
        for missing in alternatives {
            if missing.is_empty() {
                return missing;
            }
            last = missing;
        }
        last
    }

    /// All that it names.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol> {
        self.one_of.iter().flat_map(|all| all.iter().copied())
    }
}

/// Of both kinds of programs.
pub const OBSERVER: &[Need] = &[
    Need {
        what: "threads are bound",
        one_of: &[&[Function("bpf_task_from_pid"), Function("bpf_task_release")]],
        since: "6.2",
        without: None,
    },
    Need {
        what: "workers are watched",
        one_of: &[&[
            Tracepoint("sched_switch"),
            Tracepoint("hrtimer_expire_entry"),
            Field("task_struct", "__state"),
            Field("task_struct", "flags"),
            Field("task_struct", "on_cpu"),
            Field("task_struct", "pid"),
            Field("task_struct", "tgid"),
            Field("task_struct", "group_leader"),
            Field("task_struct", "start_time"),
            Field("task_struct", "se"),
            Field("sched_entity", "sum_exec_runtime"),
        ]],
        since: "5.14",
        without: None,
    },
];

/// Of the scheduler beside.
pub const SCHEDULER: &[Need] = &[
    Need {
        what: "a scheduler is a table of callbacks",
        one_of: &[&[
            Field("sched_ext_ops", "select_cpu"),
            Field("sched_ext_ops", "enqueue"),
            Field("sched_ext_ops", "dispatch"),
            Field("sched_ext_ops", "running"),
            Field("sched_ext_ops", "stopping"),
            Field("sched_ext_ops", "tick"),
            Field("sched_ext_ops", "yield"),
            Field("sched_ext_ops", "enable"),
            Field("sched_ext_ops", "disable"),
            Field("sched_ext_ops", "cpu_online"),
            Field("sched_ext_ops", "cpu_offline"),
            Field("sched_ext_ops", "init"),
            Field("sched_ext_ops", "exit"),
            Field("sched_ext_ops", "flags"),
            Field("sched_ext_ops", "timeout_ms"),
            Field("sched_ext_ops", "exit_dump_len"),
            Field("sched_ext_ops", "hotplug_seq"),
            Field("sched_ext_ops", "name"),
            Constant("scx_ops_flags", "SCX_OPS_ENQ_LAST"),
            Constant("scx_ops_flags", "SCX_OPS_ENQ_EXITING"),
            Constant("scx_ops_flags", "SCX_OPS_SWITCH_PARTIAL"),
            Field("scx_exit_info", "kind"),
            Field("scx_exit_info", "exit_code"),
            Field("scx_exit_info", "reason"),
            Field("scx_exit_info", "msg"),
            Field("scx_exit_info", "dump"),
        ]],
        since: "6.12",
        without: None,
    },
    Need {
        what: "tasks and CPUs are known",
        one_of: &[&[
            Field("task_struct", "prio"),
            Field("task_struct", "policy"),
            Field("task_struct", "nr_cpus_allowed"),
            Field("task_struct", "cpus_ptr"),
            Field("task_struct", "comm"),
            Field("task_struct", "scx"),
            Field("task_struct", "migration_disabled"),
            Field("cpumask", "bits"),
            Field("sched_ext_entity", "dsq_vtime"),
            Field("sched_ext_entity", "ddsp_dsq_id"),
            Field("sched_ext_entity", "flags"),
            Field("sched_ext_entity", "weight"),
            Field("sched_ext_entity", "runnable_at"),
            Field("sched_ext_entity", "slice"),
            Constant("scx_ent_flags", "SCX_TASK_QUEUED"),
            Function("scx_bpf_task_cpu"),
            Function("scx_bpf_get_online_cpumask"),
            Function("scx_bpf_put_cpumask"),
            Function("bpf_cpumask_empty"),
            Function("bpf_cpumask_any_distribute"),
            Function("bpf_cpumask_test_cpu"),
            Function("bpf_rdonly_cast"),
            Function("bpf_rcu_read_lock"),
            Function("bpf_rcu_read_unlock"),
        ]],
        since: "6.12",
        without: None,
    },
    Need {
        what: "idle CPUs are found and kicked",
        one_of: &[&[
            Function("scx_bpf_select_cpu_dfl"),
            Function("scx_bpf_test_and_clear_cpu_idle"),
            Function("scx_bpf_pick_idle_cpu"),
            Function("scx_bpf_get_idle_cpumask"),
            Function("scx_bpf_get_idle_smtmask"),
            Function("scx_bpf_put_idle_cpumask"),
            Function("scx_bpf_kick_cpu"),
            Constant("scx_kick_flags", "SCX_KICK_IDLE"),
            Constant("scx_kick_flags", "SCX_KICK_PREEMPT"),
            Constant("scx_wake_flags", "SCX_WAKE_SYNC"),
            Constant("scx_wake_flags", "SCX_WAKE_TTWU"),
        ]],
        since: "6.12",
        without: None,
    },
    Need {
        what: "queues are made and read",
        one_of: &[&[
            Function("scx_bpf_create_dsq"),
            Function("scx_bpf_dsq_nr_queued"),
            Function("bpf_iter_scx_dsq_new"),
            Function("bpf_iter_scx_dsq_next"),
            Function("bpf_iter_scx_dsq_destroy"),
            Constant("scx_dsq_id_flags", "SCX_DSQ_INVALID"),
            Constant("scx_dsq_id_flags", "SCX_DSQ_LOCAL"),
            Constant("scx_dsq_id_flags", "SCX_DSQ_LOCAL_ON"),
            Constant("scx_enq_flags", "SCX_ENQ_WAKEUP"),
            Constant("scx_enq_flags", "SCX_ENQ_HEAD"),
            Constant("scx_enq_flags", "SCX_ENQ_PREEMPT"),
            Constant("scx_enq_flags", "SCX_ENQ_REENQ"),
            Constant("scx_enq_flags", "SCX_ENQ_LAST"),
        ]],
        since: "6.12",
        without: None,
    },
    Need {
        what: "tasks are moved between queues",
        one_of: &[&[
            Function("scx_bpf_dsq_move"),
            Function("scx_bpf_dsq_move_vtime"),
            Function("scx_bpf_dsq_move_set_vtime"),
        ]],
        since: "6.13",
        without: None,
    },
    Need {
        what: "tasks are put into queues",
        one_of: &[
            &[Function("scx_bpf_dsq_insert___v2")],
            &[Function("scx_bpf_dsq_insert")],
        ],
        since: "6.13",
        without: None,
    },
    Need {
        what: "tasks are put into queues by vtime",
        one_of: &[
            &[
                Function("__scx_bpf_dsq_insert_vtime"),
                Struct("scx_bpf_dsq_insert_vtime_args"),
            ],
            &[Function("scx_bpf_dsq_insert_vtime")],
        ],
        since: "6.13",
        without: None,
    },
    Need {
        what: "CPUs take tasks from queues",
        one_of: &[
            &[Function("scx_bpf_dsq_move_to_local___v2")],
            &[Function("scx_bpf_dsq_move_to_local")],
        ],
        since: "6.13",
        without: None,
    },
    Need {
        what: "tasks are put back for a real-time thread",
        one_of: &[
            &[Function("scx_bpf_dsq_reenq")],
            &[Function("scx_bpf_reenqueue_local___v2")],
            &[
                Function("scx_bpf_reenqueue_local"),
                Field("sched_ext_ops", "cpu_release"),
            ],
        ],
        since: "6.12",
        without: Some("tasks behind a real-time thread wait until it sleeps"),
    },
    Need {
        what: "a slice is set by a call",
        one_of: &[
            &[
                Function("scx_bpf_task_set_slice"),
                Function("scx_bpf_task_set_dsq_vtime"),
            ],
            &[
                Field("sched_ext_entity", "slice"),
                Field("sched_ext_entity", "dsq_vtime"),
            ],
        ],
        since: "6.12",
        without: None,
    },
    Need {
        what: "groups have weights (cpu.weight)",
        one_of: &[&[
            Field("sched_ext_ops", "cgroup_init"),
            Field("sched_ext_ops", "cgroup_exit"),
            Field("sched_ext_ops", "cgroup_set_weight"),
            Field("scx_cgroup_init_args", "weight"),
            Field("task_struct", "sched_task_group"),
            Field("task_group", "css"),
            Field("cgroup_subsys_state", "cgroup"),
            Field("cgroup_subsys_state", "parent"),
            Field("cgroup", "self"),
            Field("cgroup", "kn"),
            Field("kernfs_node", "id"),
        ]],
        since: "6.12 with CONFIG_EXT_GROUP_SCHED=y",
        without: Some("cpu.weight of cgroups has no effect"),
    },
    Need {
        what: "groups have limits (cpu.max)",
        one_of: &[&[
            Field("sched_ext_ops", "cgroup_set_bandwidth"),
            Field("scx_cgroup_init_args", "bw_period_us"),
            Field("scx_cgroup_init_args", "bw_quota_us"),
            Field("scx_cgroup_init_args", "bw_burst_us"),
        ]],
        since: "6.17 with CONFIG_EXT_GROUP_SCHED=y",
        without: Some("cpu.max of cgroups does not hold: a container may use more than its quota"),
    },
    Need {
        what: "the end of a limit waits for RCU's readers",
        one_of: &[&[Field("task_struct", "rcu_read_lock_nesting")]],
        since: "kernels with CONFIG_PREEMPT_RCU=y",
        without: Some("nothing, where tasks keep their CPU while RCU is read"),
    },
    Need {
        what: "a wake by an interrupt is told from one by a task",
        one_of: &[
            &[
                Field("thread_info", "preempt"),
                Field("preemption", "count"),
            ],
            &[Variable("__preempt_count")],
        ],
        since: "6.15",
        without: Some("wakes by tasks that are about to sleep are placed as all others"),
    },
    Need {
        what: "a CPU that is going offline is seen",
        one_of: &[&[
            Variable("cpuhp_state"),
            Field("cpuhp_cpu_state", "state"),
            Field("cpuhp_cpu_state", "target"),
        ]],
        since: "6.12 with CONFIG_SMP=y",
        without: Some("tasks may wait for a CPU until it is offline"),
    },
    Need {
        what: "the time is read without a clock",
        one_of: &[&[Function("scx_bpf_now")]],
        since: "6.14",
        without: Some("each decision reads the clock, which takes longer"),
    },
    Need {
        what: "tasks that may not migrate come to the scheduler",
        one_of: &[&[Constant("scx_ops_flags", "SCX_OPS_ENQ_MIGRATION_DISABLED")]],
        since: "6.14",
        without: Some("the kernel itself places tasks that may not migrate, with slices of 20 ms"),
    },
    Need {
        what: "wakes do not wait for a CPU that switches",
        one_of: &[&[Constant("scx_ops_flags", "SCX_OPS_ALLOW_QUEUED_WAKEUP")]],
        since: "6.15",
        without: Some("a wake of a task that is about to leave its CPU takes longer"),
    },
    Need {
        what: "each node has masks of its own of its idle CPUs",
        one_of: &[IDLE_BY_NODE],
        since: "6.15",
        without: Some("on machines with several nodes all CPUs that idle write to the same masks"),
    },
    Need {
        what: "CPUs are asked for speed",
        one_of: &[&[Function("scx_bpf_cpuperf_set")]],
        since: "6.12",
        without: Some("the frequency governor goes by the load alone"),
    },
    Need {
        what: "the first task of a queue is read without its lock",
        one_of: &[&[Function("scx_bpf_dsq_peek")]],
        since: "6.19",
        without: Some("some decisions take a queue's lock twice"),
    },
];

#[cfg(test)]
#[path = "needs_tests.rs"]
mod tests;
