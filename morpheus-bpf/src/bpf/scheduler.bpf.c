// SPDX-License-Identifier: GPL-2.0-only
/* The scheduler as the kernel loads it: its table of callbacks, its start, and its exit report. policy/ has the policy. */
#define DEFINES_SHARED
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "link/ladder.bpf.h"
#include "options/groups.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* The number of bytes that are kept of the kernel's dump at an exit. */
const volatile __u32 exit_dump_bytes = 1;

/* The exit report. `kind`, of enum scx_exit_kind, is written last. */
struct exit_report {
	int kind;
	int padding;
	__s64 code;
	char reason[128];
	char message[1024];
};

struct exit_report exit_report SEC(".data");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 8);
} exit_dump SEC(".maps");

int STRUCT_OPS_SLEEPABLE(morpheus_init)
{
	__u32 index;
	int error;

	bpf_for(index, 0, domain_count) {
		struct domain *domain = domain_at(index);

		if (domain)
			domain->clock = CLOCK_BEGINS;
		error = scx_bpf_create_dsq(MAIN_DSQ(index), -1);
		if (error)
			return error;
		error = scx_bpf_create_dsq(FRONT_DSQ(index), -1);
		if (error)
			return error;
		error = scx_bpf_create_dsq(DEMOTED_DSQ(index), -1);
		if (error)
			return error;
		error = scx_bpf_create_dsq(THROTTLED_DSQ(index), -1);
		if (error)
			return error;
		error = scx_bpf_create_dsq(RESCUE_DSQ(index), -1);
		if (error)
			return error;
	}
	bpf_for(index, 0, cpu_count) {
		error = scx_bpf_create_dsq(PINNED_DSQ(index), -1);
		if (error)
			return error;
		error = scx_bpf_create_dsq(PINNED_RESCUE_DSQ(index), -1);
		if (error)
			return error;
		error = rescue_on ? start_slice_timer(index) : 0;
		if (error)
			return error;
		error = start_sample_timer(index);
		if (error)
			return error;
		error = make_up_on ? start_kick_timer(index) : 0;
		if (error)
			return error;
		error = l2_affinity_on ? start_near_timer(index) : 0;
		if (error)
			return error;
		error = group_limits_on ? start_quota_timer(index) : 0;
		if (error)
			return error;
		error = cpuperf_on ? start_speed(index) : 0;
		if (error)
			return error;
	}
	if (group_limits_on) {
		error = init_groups();
		if (error)
			return error;
	}
	return rescue_on ? init_rescue() : 0;
}

int STRUCT_OPS(morpheus_exit, struct scx_exit_info *info)
{
	__u32 key = 0;
	char *dump = bpf_map_lookup_elem(&exit_dump, &key);

	bpf_probe_read_kernel_str(exit_report.reason, sizeof(exit_report.reason), info->reason);
	bpf_probe_read_kernel_str(exit_report.message, sizeof(exit_report.message), info->msg);
	if (dump)
		bpf_probe_read_kernel_str(dump, exit_dump_bytes, info->dump);
	exit_report.code = info->exit_code;
	STORE_RELEASE(exit_report.kind, info->kind);
	return 0;
}

/* The other callbacks, by the object that has them. */

#define CALLBACK(name) int morpheus_##name(unsigned long long *context)

/* policy/policy.bpf.c */
CALLBACK(select_cpu);
CALLBACK(enqueue);
CALLBACK(dispatch);
CALLBACK(running);
CALLBACK(stopping);
CALLBACK(tick);
CALLBACK(yield);
CALLBACK(enable);
CALLBACK(disable);
/* options/reenqueue.bpf.c */
CALLBACK(cpu_release);
/* options/hotplug.bpf.c */
CALLBACK(cpu_online);
CALLBACK(cpu_offline);
/* options/groups.bpf.c: not in the table where groups have no weights or limits. The kernel calls them for all groups. */
CALLBACK(cgroup_init);
CALLBACK(cgroup_exit);
CALLBACK(cgroup_set_weight);
CALLBACK(cgroup_set_bandwidth);

SEC(".struct_ops.link")
struct sched_ext_ops morpheus = {
	.select_cpu = (void *)morpheus_select_cpu,
	.enqueue = (void *)morpheus_enqueue,
	.dispatch = (void *)morpheus_dispatch,
	.running = (void *)morpheus_running,
	.stopping = (void *)morpheus_stopping,
	.tick = (void *)morpheus_tick,
	.yield = (void *)morpheus_yield,
	.enable = (void *)morpheus_enable,
	.disable = (void *)morpheus_disable,
	.cpu_release = (void *)morpheus_cpu_release,
	.cpu_online = (void *)morpheus_cpu_online,
	.cpu_offline = (void *)morpheus_cpu_offline,
	.cgroup_init = (void *)morpheus_cgroup_init,
	.cgroup_exit = (void *)morpheus_cgroup_exit,
	.cgroup_set_weight = (void *)morpheus_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)morpheus_cgroup_set_bandwidth,
	.init = (void *)morpheus_init,
	.exit = (void *)morpheus_exit,
	.timeout_ms = 5000,
	.name = "morpheus",
};
