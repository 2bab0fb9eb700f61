// SPDX-License-Identifier: GPL-2.0-only
/*
 * The policy: its callbacks, in the order of a task's life.
 *
 * The policy is in five files: state (policy.bpf.h), classification (classify.bpf.h), the order of dispatch (queue.bpf.h),
 * placement and preemption (place.bpf.h), and this one. options/ has the parts that can be left out, behind
 * options/options.bpf.h; link/ has the parts for workers of applications. ../scheduler.bpf.c has the table of the callbacks.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "policy/place.bpf.h"
#include "link/loan.bpf.h"

/* A task comes to this scheduler: it starts at the clock. */
int STRUCT_OPS(morpheus_enable, struct task_struct *task)
{
	set_vtime(task, clock_of(task));
	init_behaviour(task, domain_of(scx_bpf_task_cpu(task)) + 1);
	return 0;
}

/* Chooses the CPU of a task that wakes; an idle one gets it by direct dispatch (place.bpf.h). */
int STRUCT_OPS(morpheus_select_cpu, struct task_struct *task, __s32 previous, __u64 flags)
{
	__u32 waker = uses_sync() && flags & WAKE_SYNC ? waker_that_sleeps() : 0;
	bool is_idle = false;
	__s32 cpu;

	/* On the waker's CPU the task would wait behind its waker while another CPU is idle. */
	if (waker & ONE_OF_MANY)
		flags &= ~WAKE_SYNC;
	cpu = place(task, previous, flags, &is_idle);
	/* The task waits for the next period of its group, on any CPU. */
	if (is_idle && has_limits() && waits_for(task, scx_now()) != ROOT_GROUP)
		return cpu;
	if (!is_idle && waker) {
		struct behaviour *behaviour = behaviour_of(task);

		/* enqueue may run on another CPU, and needs to know the waker. */
		if (behaviour)
			behaviour->sync = waker;
	}
	if (is_idle && idle_depth_on && scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON | (__u32)cpu) >= (__s32)idle_depth) {
		/* Other tasks were dispatched to that CPU before it woke up. In a DSQ the first free CPU takes this one. */
		count(COUNTER_idle_cpu_full);
		return cpu;
	}
	if (is_idle) {
		struct worker *worker = worker_of(task);

		if (worker)
			restore_vtime(task, worker);
		/*
		 * Before its commit "sched_ext: Fix stale direct dispatch state in ddsp_dsq_id" (2026) the kernel may keep an
		 * insertion that came to nothing (the task was dequeued, or a scheduler came or went just then), and warns of the
		 * next one. It then follows the old one, which is the same, and forgets it.
		 */
		if (task->scx.ddsp_dsq_id == DSQ_INVALID)
			insert_fifo(task, DSQ_LOCAL, slice_ns, 0);
		else
			set_slice(task, slice_ns);
		count(COUNTER_to_idle_cpu);
	}
	return cpu;
}

/* Whether a task is a kernel thread of one CPU: others wait for what it does, so it goes first when it wakes. */
static __always_inline bool is_kernels_own(const struct task_struct *task)
{
	return task->nr_cpus_allowed == 1 && task->flags & PF_KTHREAD &&
	       (cpu_count > 1 || task->flags & PF_NO_SETAFFINITY);
}

/*
 * Lets a task go on that a kernel thread has interrupted: it waits in the local DSQ of the CPU behind that thread, with the rest
 * of its slice. morpheus_stopping noted the rest a moment ago, under the same lock.
 */
static __always_inline bool resume(struct task_struct *task, struct worker *worker, __u64 flags)
{
	struct cpu *cpu = flags & ENQ_WAKEUP ? 0 : cpu_at(bpf_get_smp_processor_id());
	__u64 rest_ns;

	if (!cpu || !cpu->rest_ns)
		return false;
	rest_ns = cpu->rest_ns;
	cpu->rest_ns = 0;
	cpu->out_of_order = 1;
	if (worker)
		worker->resumes = 1;
	insert_fifo(task, DSQ_LOCAL, rest_ns, flags);
	count(COUNTER_resumed);
	return true;
}

/*
 * Dispatches a pinned task directly that wakes where no other task waits, unless its vtime is a slice or more after that of the
 * running task. It is the next one there in any case, and saves an insertion by vtime and a removal. Two tasks that wake each
 * other on one CPU depend on this.
 */
static __always_inline bool goes_next(struct task_struct *task, __s32 index, struct worker *worker, struct claim *claim)
{
	__u32 domain_index = domain_of(index);
	struct domain *domain;
	struct cpu *cpu;
	__u64 vtime;

	if (!is_pinned(task) || worker)
		return false;
	cpu = cpu_at(index);
	domain = domain_at(domain_index);
	if (!cpu || !domain || cpu->pinned)
		return false;
	vtime = bounded_vtime(task, domain, sleeper_ns);
	/* On an idle CPU no task waits. */
	if (cpu->since_ns) {
		if (!before(vtime, present_vtime(cpu, claim->now) + slice_ns))
			return false;
		if (is_rescue_pending(cpu, domain) || scx_bpf_dsq_nr_queued(MAIN_DSQ(domain_index)) ||
		    (tiers_on && scx_bpf_dsq_nr_queued(FRONT_DSQ(domain_index))))
			return false;
	}
	insert_fifo(task, DSQ_LOCAL, slice_ns, 0);
	count(COUNTER_to_next);
	claim->vtime = vtime;
	preempt_own(cpu, index, claim);
	return true;
}

/*
 * The tier of a task for this enqueue. The slot of a worker says whether others wait for it. Any other task has the tier of its
 * past behaviour, and is BATCH while that is too short to rely on.
 */
static __always_inline __u32 tier_of(struct task_struct *task, struct behaviour *behaviour, struct worker *worker,
				     const struct words *serving)
{
	__u32 tier;

	if (!behaviour)
		return TIER_BATCH;
	if (worker)
		return serving ? TIER_LAT_CRITICAL : TIER_BATCH;
	tier = tier_within_run(task, behaviour);
	if (tier == TIER_INTERACTIVE && immature_gate_on && !is_mature(behaviour)) {
		count(COUNTER_immature);
		return TIER_BATCH;
	}
	return tier;
}

/* The counter for a stalled worker that is preempted for this slot. */
static __always_inline enum counter kicks_for(const struct words *serving)
{
	return serving->flags & MORPHEUS_SLOT_CONTROLLER ? COUNTER_kicks_for_controller :
								     COUNTER_kicks_for_serving;
}

/*
 * Puts a runnable task into a DSQ, and preempts for it if it woke.
 *
 * The flags of the table ask for tasks that exit, and for tasks that may not migrate; the latter are put into their local DSQ here.
 * Left to the kernel, both would be, with slices of 20 ms (SCX_SLICE_DFL). Tasks whose memory takes long to free could then keep a
 * CPU to themselves by turns, as it does not dispatch while its local DSQ has tasks. And the kernel takes any running task for one
 * that may not migrate while a BPF program runs: one that lost its CPU to a higher class would keep that CPU.
 */
int STRUCT_OPS(morpheus_enqueue, struct task_struct *task, __u64 flags)
{
	const struct words *serving = 0;
	struct behaviour *record, *behaviour;
	struct worker *worker;
	struct cpu *cpu;
	bool wakes = flags & ENQ_WAKEUP, is_among_many = false;
	struct claim claim = {};
	struct words slot = {};
	__s32 index;
	__u64 now;

	if (!may_move(task, flags)) {
		insert_fifo(task, DSQ_LOCAL, slice_ns, flags);
		if (flags & ENQ_LAST)
			scx_bpf_kick_cpu(bpf_get_smp_processor_id(), 0);
		count(COUNTER_to_local);
		return 0;
	}
	index = scx_bpf_task_cpu(task);
	cpu = cpu_at(index);
	/*
	 * One that has used up a slice waits by its vtime, as any pinned task. So does each while pinned tasks have waited for too long:
	 * two that wake each other would leave them no pick.
	 */
	if (is_kernels_own(task) && flags & (ENQ_WAKEUP | ENQ_REENQ) && cpu && !READ_ONCE(cpu->rescue)) {
		cpu->kicked = KICK_KERNEL;
		/*
		 * Re-enqueued for a higher class, it has no task to preempt: the last task of this CPU, which waits by now, would
		 * lose the rest of its slice.
		 */
		insert_fifo(task, DSQ_LOCAL, slice_ns, flags | (flags & ENQ_REENQ ? ENQ_HEAD : ENQ_PREEMPT));
		count(COUNTER_to_local);
		return 0;
	}
	worker = worker_of(task);
	if (worker)
		restore_vtime(task, worker);
	record = record_of(task);
	come_to_domain(task, record, domain_of(index));
	now = scx_now();
	if (has_groups()) {
		__u32 group;

		join_group(task, false);
		group = waits_for(task, now);
		if (group != ROOT_GROUP && wait_in(group, task, flags, now))
			return 0;
	}
	if (flags & ENQ_LAST) {
		if (hybrid_on && goes_to_fast(task, index))
			return 0;
		/* Its CPU would have nothing to do. The task goes on when that CPU, which idles by then, dispatches again. */
		insert_fifo(task, DSQ_LOCAL, slice_ns, 0);
		scx_bpf_kick_cpu(bpf_get_smp_processor_id(), 0);
		return 0;
	}
	if (resume(task, worker, flags))
		return 0;
	if (worker && wakes && load_words(worker, &slot) && serves(worker, &slot))
		serving = &slot;
	behaviour = tiers_on ? record : 0;
	if (rescue_on && flags & ENQ_REENQ && rescue_again(task, slice_for(behaviour, TIER_BATCH), flags))
		return 0;
	claim.now = now;
	claim.tier = tier_of(task, behaviour, worker, serving);
	if (behaviour) {
		if (wakes) {
			behaviour->woke_ns = now;
			if (uses_sync() || unsaid_pause_ns)
				is_among_many = check_waker(task, behaviour, serving, &claim);
		}
		cpu = cpu_at(bpf_get_smp_processor_id());
		if (cpu) {
			cpu->enqueues++;
			if (!is_mature(behaviour) && (wakes || !behaviour->switches))
				cpu->strangers++;
		}
	}
	count(wakes ? COUNTER_wakeups : COUNTER_enqueues_again);
	if (wakes && goes_next(task, index, worker, &claim))
		return 0;
	if (serving)
		borrow(task, worker);
	if (!put(task, index, worker, behaviour, &claim, flags))
		claim.tier = TIER_BATCH;
	if (rescue_on && !rescue_armed)
		watch_over_queues();
	if (l2_affinity_on && wakes && !is_among_many && waits_near(task))
		return 0;
	if (notify_idle(task))
		return 0;
	/* One task of many that the same task has woken waits as those that compute. */
	if (wakes && !is_among_many && !(worker && worker->demoted)) {
		claim.vtime = task->scx.dsq_vtime;
		preempt_for(task, serving ? kicks_for(serving) : 0, &claim);
	} else if (requeue_preemption_on && !wakes && claim.tier == TIER_LAT_CRITICAL) {
		/* Its slice is over, or a higher class has taken its CPU. A frame that is half done waits no less than a wake-up. */
		claim.vtime = task->scx.dsq_vtime;
		count(COUNTER_claims_of_requeued);
		preempt_for(task, 0, &claim);
	}
	return 0;
}

/* Whether the task that ran here goes before the main DSQ if it goes on, as those of the front DSQ and pinned ones do. */
static __always_inline bool is_before_main(const struct task_struct *task, const struct cpu *cpu, const struct heads *heads)
{
	return deficit_on && heads->main != NO_VTIME && (cpu->tier != TIER_BATCH || is_pinned(task));
}

/* Whether the task that ran here goes on: it has less vtime than all waiting tasks. */
static __always_inline bool goes_on(struct task_struct *task, struct cpu *cpu, struct worker *worker,
				    const struct heads *heads, __u64 now)
{
	if (heads->due || cpu->yielded || !previous_on)
		return false;
	if (heads->front != NO_VTIME && cpu->tier == TIER_BATCH)
		return false;
	if (heads->least == NO_VTIME)
		return !heads->throttled || !worker || !has_spent(worker, now);
	if (worker && has_spent(worker, now))
		return false;
	return before(task->scx.dsq_vtime, heads->least);
}

/* Gives the running task a new slice. */
static __always_inline void keep(struct task_struct *task, struct cpu *cpu, struct worker *worker, __u64 now)
{
	__u64 slice;

	if (worker)
		worker->extended = 0;
	cpu->yielded = 0;
	slice = slice_for(behaviour_of(task), cpu->tier);
	if (cpu->crowd_slice_ns && slice > cpu->crowd_slice_ns)
		slice = cpu->crowd_slice_ns;
	cpu->slice_end_ns = now + slice;
	set_slice(task, slice);
	count(COUNTER_kept);
}

/*
 * Takes a task for a CPU that has none to go on with: by vtime where heads were read, or any other. Without one the CPU is about to
 * idle.
 */
static __always_inline void take_any(struct heads *heads, __u32 domain_index, const struct domain *domain, __s32 index,
				     struct cpu *cpu, __u64 now)
{
	if (heads && (take_least(heads, domain_index, index, now) || (heads->throttled && take_throttled(domain_index, cpu))))
		return;
	if (is_rescue_pending(cpu, domain) && take_rescued(domain_index, index))
		return;
	/* The heads of demoted workers are not read any more where no CPU has dispatched for USED_FOR_NS. */
	if (!take(DEMOTED_DSQ(domain_index), COUNTER_from_demoted) && !take_from_others(domain_index, cpu) && has_groups())
		settle_groups();
}

/* Updates the tier of the running task, which may have computed for too long. */
static __always_inline void update_tier(struct task_struct *task, __s32 index, struct cpu *cpu)
{
	struct behaviour *behaviour = cpu->tier == TIER_BATCH ? 0 : behaviour_of(task);

	if (behaviour)
		mark_batch(index, cpu, tier_within_run(task, behaviour));
}

/*
 * Chooses the next task of a CPU. A task that ran here and is runnable competes by vtime; one that sleeps leaves the choice to the
 * DSQs.
 */
int STRUCT_OPS(morpheus_dispatch, __s32 index, struct task_struct *previous)
{
	__u32 domain_index = domain_of(index);
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);
	struct worker *worker = 0;
	struct heads heads = {};
	bool wants_on, spent, before_main;
	__u64 now;

	if (!cpu || !domain)
		return 0;
	wants_on = previous && previous->scx.flags & TASK_QUEUED && cpu->since_ns;
	if (!wants_on) {
		cpu->kicked = KICK_NONE;
		if (is_rescue_due(cpu, domain) && take_rescued(domain_index, index))
			return 0;
		/* The usual case: the previous task sleeps, and only the front and main DSQs have tasks. */
		if (waits_by_tier(cpu, domain)) {
			if (!take_waiting(domain_index, domain, cpu))
				take_any(0, domain_index, domain, index, cpu, 0);
			return 0;
		}
		now = scx_now();
		read_heads(&heads, domain_index, index, now);
		take_any(&heads, domain_index, domain, index, cpu, now);
		return 0;
	}
	if (cpu->worker)
		worker = worker_of(previous);
	now = scx_now();
	charge(previous, cpu, worker, now);
	/* A task that is alone on another CPU advances the clock. As far behind as that, this one would go on for as long. */
	if (before(previous->scx.dsq_vtime, READ_ONCE(domain->clock) - lag_ns)) {
		cpu->vtime = READ_ONCE(domain->clock) - lag_ns;
		set_vtime(previous, cpu->vtime);
	}
	if (worker)
		repay(previous, worker, index);
	else
		update_tier(previous, index, cpu);
	if (is_rescue_due(cpu, domain)) {
		cpu->kicked = KICK_NONE;
		if (take_rescued(domain_index, index))
			return 0;
	}
	spent = has_limits() && cpu->group != ROOT_GROUP && waits_for(previous, now) != ROOT_GROUP;
	/*
	 * The previous task does not go on whatever its vtime is (goes_on). So no head is read, which takes a lock on older
	 * kernels.
	 */
	if (!spent && !worker && tiers_on && cpu->tier == TIER_BATCH && waits_by_tier(cpu, domain) &&
	    scx_bpf_dsq_nr_queued(FRONT_DSQ(domain_index)) > 0 && take_by_tier(domain_index, domain, cpu, now))
		return 0;
	read_heads(&heads, domain_index, index, now);
	if (spent) {
		/* The task goes to wait for its group's quota when this CPU has another task, or none. */
		cpu->kicked = KICK_NONE;
		set_slice(previous, 0);
		take_any(&heads, domain_index, domain, index, cpu, now);
		return 0;
	}
	before_main = is_before_main(previous, cpu, &heads);
	if (!(before_main && is_deficit_reached(domain)) && goes_on(previous, cpu, worker, &heads, now)) {
		cpu->kicked = KICK_NONE;
		domain->before_main += before_main;
		if (hybrid_on && heads.least == NO_VTIME && is_misplaced(previous, index)) {
			/* It is enqueued as the CPU's last task (ENQ_LAST). */
			set_slice(previous, 0);
			return 0;
		}
		if (heads.least == NO_VTIME && scx_bpf_dsq_nr_queued(MAIN_DSQ(domain_index)) <= 0 && !(worker && worker->demoted))
			/* A task that runs alone advances the clock. Otherwise it would wait for tasks that come later. */
			advance_clock(domain, previous->scx.dsq_vtime);
		keep(previous, cpu, worker, now);
		return 0;
	}
	if (worker && extend(previous, worker, index, now)) {
		cpu->kicked = KICK_NONE;
		return 0;
	}
	if (take_least(&heads, domain_index, index, now))
		return 0;
	if (worker && has_spent(worker, now) && heads.throttled &&
	    take_throttled(domain_index, cpu))
		return 0;
	/* The waiting tasks may not run here. */
	cpu->kicked = KICK_NONE;
	keep(previous, cpu, worker, now);
	return 0;
}

/*
 * A task is switched in: the CPU's state describes it from here on, for charging and for tasks that want to preempt it.
 *
 * This and morpheus_stopping run on another CPU where a thread there changes the affinity, niceness or group of the running task.
 */
int STRUCT_OPS(morpheus_running, struct task_struct *task)
{
	__s32 index = scx_bpf_task_cpu(task);
	__u32 domain_index = domain_of(index), tier = TIER_BATCH;
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);
	struct worker *worker = worker_of(task);
	struct behaviour *record = record_of(task), *behaviour = tiers_on ? record : 0;
	__u64 now = scx_now(), most_ns;

	if (!cpu || !domain)
		return 0;
	if (behaviour) {
		note_wait(behaviour, now);
		tier = behaviour->tier;
		if (sync_ahead_ns && behaviour->ahead_ns) {
			set_vtime(task, task->scx.dsq_vtime + behaviour->ahead_ns);
			behaviour->ahead_ns = 0;
		}
	}
	/* A worker is found by its slot (stalled_cpus), and not by its tier. */
	mark_batch(index, cpu, worker ? TIER_INTERACTIVE : tier);
	cpu->extended_until_ns = 0;
	if (worker) {
		restore_vtime(task, worker);
		if (!worker->resumes)
			worker->extended = 0;
		else if (worker->extended)
			extend_again(task, index, now);
		worker->resumes = 0;
	}
	come_to_domain(task, record, domain_index);
	if (cpu->stalled)
		mark_stalled(index, false);
	cpu->rest_ns = 0;
	cpu->group = has_groups() ? join_group(task, index == (__s32)bpf_get_smp_processor_id()) : ROOT_GROUP;
	cpu->paid_ns = task->se.sum_exec_runtime;
	cpu->vtime = bounded_vtime(task, domain, lag_ns);
	cpu->weight = weight_of(task);
	cpu->worker = worker ? task->tgid : 0;
	cpu->kernel = !!(task->flags & PF_KTHREAD);
	cpu->began_ns = now;
	most_ns = cpu->rescued && cpu->rescued_slice_ns ? cpu->rescued_slice_ns : cpu->crowd_slice_ns;
	if (rescue_on && most_ns && !cpu->kernel && !cpu->extended_until_ns)
		bound_slice(task, index, most_ns, now);
	cpu->slice_end_ns = now + task->scx.slice;
	cpu->exec_ns = task->se.sum_exec_runtime;
	cpu->kicked = KICK_NONE;
	cpu->yielded = 0;
	cpu->sync_wakes = 0;
	/* Written last: a CPU that reads it reads the others, too. */
	WRITE_ONCE(cpu->since_ns, now);
	/*
	 * Only a task that was picked for its vtime advances the clock. The vtime of a demoted worker that goes on after an
	 * interruption is far after all others: with the clock there, running tasks would be far behind it, and waking tasks
	 * behind those. Nor does one that a CPU got without a pick, while others wait: it is on CPUs that those may not use.
	 */
	if (is_kernels_own(task))
		;
	else if (cpu->out_of_order)
		cpu->out_of_order = 0;
	else if ((!worker || !worker->demoted) && (cpu->picked || scx_bpf_dsq_nr_queued(MAIN_DSQ(domain_index)) <= 0))
		advance_clock(domain, cpu->vtime);
	cpu->picked = 0;
	if (cpuperf_on)
		speed_at_start(task, index, now);
	if (has_limits())
		begin_limited(task, now);
	return 0;
}

/*
 * Ends the slice of a BATCH task at a tick if a task waits in the front DSQ. It waits there because its wake-up could not
 * preempt, or because the main DSQ went first.
 */
static __always_inline void preempt_at_tick(struct task_struct *task, __s32 index, struct cpu *cpu, __u64 now)
{
	__u64 after_ns = READ_ONCE(burst_now) ? 0 : knobs.preempt_after_ns;

	if (!tick_preemption_on || cpu->tier != TIER_BATCH || !task->scx.slice || cpu->extended_until_ns ||
	    before(now, cpu->began_ns + after_ns) || !scx_bpf_dsq_nr_queued(FRONT_DSQ(domain_of(index))))
		return;
	set_slice(task, 0);
	count(COUNTER_preempted_at_tick);
}

/* At a tick of a CPU. The table lacks it where there are no tiers, no kicks of idle CPUs, no governors and no groups. */
int STRUCT_OPS(morpheus_tick, struct task_struct *task)
{
	__s32 index = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_at(index);
	__u64 now = scx_now();

	if (tiers_on && cpu) {
		if (detects())
			detect(now);
		if (!cpu->worker)
			update_tier(task, index, cpu);
		preempt_at_tick(task, index, cpu, now);
		if (sojourn_rescue_on)
			make_way_at_tick(task, index, now);
	}
	if (idle_kicks_on)
		kick_missed(domain_of(index));
	if (has_groups() && cpu)
		tick_in_group(task, now);
	if (cpuperf_on)
		speed_at_tick(task, index, now);
	return 0;
}

/* A task is switched out: it is charged, its run ends if it sleeps, and an interruption by a kernel thread keeps its slice. */
int STRUCT_OPS(morpheus_stopping, struct task_struct *task, bool runnable)
{
	__s32 index = scx_bpf_task_cpu(task);
	struct cpu *cpu = cpu_at(index);
	struct behaviour *behaviour;
	struct worker *worker = 0;
	__u64 now = scx_now(), until_ns;
	/* One that is changed goes on at once. */
	bool sleeps = !runnable && task->__state;

	if (!cpu)
		return 0;
	if (cpu->worker)
		worker = worker_of(task);
	charge(task, cpu, worker, now);
	if (!runnable && has_groups())
		note_sleep(task);
	behaviour = behaviour_of(task);
	if (behaviour)
		account_run(task, behaviour, sleeps, now);
	if (worker && runnable)
		count_preempted_section(task, worker, index);
	if (!sleeps || !before(now, cpu->began_ns + min_run_ns))
		cpu->short_runs = 0;
	else
		cpu->short_runs++;
	cpu->rest_ns = 0;
	if (runnable && cpu->kicked == KICK_KERNEL) {
		until_ns = cpu->slice_end_ns;
		if (cpu->extended_until_ns)
			until_ns = cpu->extended_until_ns;
		if (!extension_bound_on && worker && worker->extended)
			until_ns = now + extension_ns;
		if (before(now, until_ns))
			cpu->rest_ns = until_ns - now;
	}
	/*
	 * A CPU that goes offline does not dispatch (morpheus_dispatch). A thread whose slice ends there is put into the local
	 * DSQ by the kernel when the CPU has already gone idle, where it would wait, and the CPU's going with it, until another
	 * event wakes the CPU up.
	 */
	if (runnable && is_kernels_own(task))
		scx_bpf_kick_cpu(index, 0);
	if (cpu->stalled)
		mark_stalled(index, false);
	cpu->since_ns = 0;
	cpu->worker = 0;
	cpu->extended_until_ns = 0;
	cpu->kicked = KICK_NONE;
	if (cpuperf_on)
		speed_at_end(index, now);
	return 0;
}

/* sched_yield: the task does not go on while another one waits. */
int STRUCT_OPS(morpheus_yield, struct task_struct *from, struct task_struct *to)
{
	struct cpu *cpu = cpu_at(bpf_get_smp_processor_id());

	if (cpu)
		cpu->yielded = 1;
	set_slice(from, 0);
	count(COUNTER_yields);
	return 0;
}

/* A task that leaves for another class, or exits. */
int STRUCT_OPS(morpheus_disable, struct task_struct *task)
{
	if (has_groups())
		note_sleep(task);
	return 0;
}
