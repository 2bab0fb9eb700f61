// SPDX-License-Identifier: GPL-2.0-only
//! `scx_morpheus check`: whether this machine has what the daemon needs, and what to do where it has not.
//!
//! - [`needs`]: what the programs need of the kernel, and what is lost where it is not there.
//! - [`symbols`]: what a kernel has, by its BTF.

pub mod needs;
pub mod symbols;

use std::fs;
use std::path::Path;

use libbpf_rs::btf::{Btf, ReferencesType as _, types};

use crate::kernel::{runs_at_least, version};
use needs::{Need, OBSERVER, SCHEDULER};
use symbols::Found;

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;
/// The number of the initial PID namespace in every kernel (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It works without.
    Note,
    /// It does not.
    Limitation,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub verdict: Verdict,
    /// The subject, the result, and the remedy if there is one.
    pub text: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = match self.verdict {
            Verdict::Good => "ok     ",
            Verdict::Note => "note   ",
            Verdict::Limitation => "MISSING",
        };
        write!(f, "{word} {}", self.text)
    }
}

const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// Whether the scheduler can be loaded, as far as can be told without trying. `btf` is the kernel's, if it can be read.
///
/// # Errors
///
/// The missing requirement and its remedy, as a message.
pub fn scheduler_can_load(btf: Option<&Btf<'_>>) -> Result<(), String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let missing = [
        sched_ext(),
        sched_ext_btf(btf),
        rights(&status),
        namespace(),
        other_scheduler(),
    ]
    .into_iter()
    .find(|finding| finding.verdict == Verdict::Limitation);
    match missing {
        Some(finding) => Err(format!(
            "this machine (Linux {}) cannot be scheduled: {}",
            release.trim(),
            finding.text
        )),
        None => Ok(()),
    }
}

fn finding(verdict: Verdict, text: impl Into<String>) -> Finding {
    Finding {
        verdict,
        text: text.into(),
    }
}

/// Everything that is looked at for the observer; the scheduler needs it, too.
#[must_use]
pub fn observer() -> Vec<Finding> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut findings = btf();
    findings.push(kernel(&release));
    findings.push(rights(
        &fs::read_to_string("/proc/self/status").unwrap_or_default(),
    ));
    findings.push(namespace());
    findings.push(preemption());
    findings.push(governor());
    findings
}

/// The findings on the further needs of the scheduler.
#[must_use]
pub fn scheduler() -> Vec<Finding> {
    let mut findings = vec![sched_ext()];
    if findings[0].verdict == Verdict::Good {
        let btf = Btf::from_vmlinux().ok();
        findings.push(sched_ext_btf(btf.as_ref()));
        if let Some(btf) = &btf {
            findings.extend(told("the scheduler's programs", btf, SCHEDULER));
        }
        if !runs_at_least((6, 15)) {
            findings.push(finding(
                Verdict::Note,
                "kernel: before 6.15 a timer may not ask a CPU for speed (BTF does not tell): the frequency governor goes by \
                 the load alone",
            ));
        }
        findings.push(other_scheduler());
    }
    findings
}

/// The findings on the needs of the observer's programs, from the kernel's BTF.
fn btf() -> Vec<Finding> {
    match Btf::from_vmlinux() {
        Ok(btf) => {
            let mut findings = vec![finding(
                Verdict::Good,
                "BTF: the kernel describes its types",
            )];
            findings.extend(told("the observer's programs", &btf, OBSERVER));
            findings
        }
        Err(_) => vec![no_btf()],
    }
}

fn no_btf() -> Finding {
    finding(
        Verdict::Limitation,
        "BTF: /sys/kernel/btf/vmlinux cannot be read; use a kernel with CONFIG_DEBUG_INFO_BTF=y",
    )
}

/// The findings on these needs of these programs, from the kernel's BTF.
fn told(programs: &str, btf: &Btf<'_>, needs: &[Need]) -> Vec<Finding> {
    let found = Found::of(btf, needs.iter().flat_map(Need::symbols));
    judge(programs, &found, needs)
}

/// A line for everything that is needed and there, and one for each thing that is not.
fn judge(programs: &str, found: &Found, needs: &[Need]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for need in needs {
        let missing: Vec<String> = need
            .missing(found)
            .iter()
            .map(ToString::to_string)
            .collect();
        if missing.is_empty() {
            continue;
        }
        let names = missing.join(", ");
        findings.push(match need.without {
            None => finding(
                Verdict::Limitation,
                format!(
                    "kernel: {programs} need {names}, so that {}; Linux {} has it",
                    need.what, need.since
                ),
            ),
            Some(lost) => finding(
                Verdict::Note,
                format!(
                    "kernel: without {names} (Linux {}), by which {}: {lost}",
                    need.since, need.what
                ),
            ),
        });
    }
    let needed = needs.iter().filter(|need| need.without.is_none()).count();
    let lacks = |finding: &Finding| finding.verdict == Verdict::Limitation;
    if !findings.iter().any(lacks) {
        let text = format!(
            "kernel: it has all that {programs} need ({needed} groups of functions, types, fields, constants)"
        );
        findings.insert(0, finding(Verdict::Good, text));
    }
    findings
}

/// The missing symbols without which the scheduler's programs cannot be loaded, in a sentence; `None` if nothing is known to
/// be missing.
#[must_use]
pub fn scheduler_lacks(btf: &Btf<'_>) -> Option<String> {
    let needs: Vec<Need> = OBSERVER.iter().chain(SCHEDULER).copied().collect();
    let lacks: Vec<String> = told("the scheduler's programs", btf, &needs)
        .into_iter()
        .filter(|finding| finding.verdict == Verdict::Limitation)
        .map(|finding| finding.text)
        .collect();
    (!lacks.is_empty()).then(|| lacks.join("; "))
}

fn kernel(release: &str) -> Finding {
    let release = release.trim();
    match version(release) {
        Some(version) if version >= (6, 9) => finding(Verdict::Good, format!("kernel {release}")),
        Some(version) if version >= (6, 2) => finding(
            Verdict::Note,
            format!(
                "kernel {release}: before 6.9 there are no pidfds of threads, and threads are named by their number; \
                 before 6.7 the timer may move to another CPU and miss a budget"
            ),
        ),
        _ => finding(
            Verdict::Limitation,
            format!("kernel {release}: use Linux 6.2 or newer"),
        ),
    }
}

/// From `/proc/self/status`.
fn rights(status: &str) -> Finding {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|word| u64::from_str_radix(word.trim(), 16).ok())
        .unwrap_or(0);
    let has = |capability: u32| effective >> capability & 1 == 1;
    if has(CAP_SYS_ADMIN) || has(CAP_BPF) && has(CAP_PERFMON) {
        finding(Verdict::Good, "rights: BPF programs can be loaded")
    } else {
        finding(
            Verdict::Limitation,
            "rights: run as root, or with CAP_BPF and CAP_PERFMON",
        )
    }
}

fn namespace() -> Finding {
    match fs::read_link("/proc/self/ns/pid") {
        Ok(name) if name.as_os_str() == INITIAL_PID_NAMESPACE => {
            finding(Verdict::Good, "PID namespace: the initial one")
        }
        _ => finding(
            Verdict::Limitation,
            "PID namespace: not the initial one, so that threads have other numbers than BPF knows; run the daemon on \
             the host, or in a container that shares its PID namespace",
        ),
    }
}

fn sched_ext() -> Finding {
    if Path::new(SCHED_EXT).exists() {
        finding(Verdict::Good, "sched_ext: the kernel has it")
    } else {
        finding(
            Verdict::Limitation,
            "sched_ext: the kernel has none; use Linux 6.13 or newer (tested: 6.16, 6.18, 7.2) with CONFIG_SCHED_CLASS_EXT=y, or run \
             scx_morpheus --observe, which does not need it",
        )
    }
}

/// Some distributions' builds of 7.1 and 7.2 describe an argument of these functions that only the kernel itself fills in.
/// No BPF scheduler loads there.
fn sched_ext_btf(btf: Option<&Btf<'_>>) -> Finding {
    let Some(btf) = btf else {
        return no_btf();
    };
    let arguments = btf
        .type_by_name::<types::Func<'_>>("scx_bpf_create_dsq")
        .and_then(|function| types::FuncProto::try_from(function.referenced_type()).ok())
        .map(|prototype| prototype.iter().count());
    match arguments {
        Some(2) => finding(
            Verdict::Good,
            "sched_ext: the kernel describes its functions well",
        ),
        Some(count) => finding(
            Verdict::Limitation,
            format!(
                "sched_ext: the kernel's BTF is malformed (scx_bpf_create_dsq with {count} arguments, not 2), so that no \
                 sched_ext scheduler can be loaded; use another build of the kernel"
            ),
        ),
        None => finding(
            Verdict::Limitation,
            "sched_ext: the kernel does not describe its functions (scx_bpf_create_dsq); use a kernel with \
             CONFIG_SCHED_CLASS_EXT=y and CONFIG_DEBUG_INFO_BTF=y",
        ),
    }
}

/// There can be one.
fn other_scheduler() -> Finding {
    let read = |name: &str| fs::read_to_string(Path::new(SCHED_EXT).join(name)).unwrap_or_default();
    let state = read("state");
    match state.trim() {
        "" | "disabled" => finding(Verdict::Good, "sched_ext: no other scheduler is loaded"),
        state => finding(
            Verdict::Limitation,
            format!(
                "sched_ext: the scheduler {:?} is there ({state}); stop it first",
                read("root/ops").trim()
            ),
        ),
    }
}

/// The finding on the frequency governor of the CPUs.
fn governor() -> Finding {
    match fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
        Ok(governor) if governor.trim() == "schedutil" => finding(
            Verdict::Good,
            "cpufreq: schedutil, which the scheduler asks for full speed while a worker serves",
        ),
        Ok(governor) => finding(
            Verdict::Note,
            format!(
                "cpufreq: {}; measure with performance, or let the load decide with schedutil (in \
                 /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor)",
                governor.trim()
            ),
        ),
        Err(_) => finding(
            Verdict::Note,
            "cpufreq: frequencies are not the kernel's to set here (a virtual machine, or the firmware does it)",
        ),
    }
}

/// Which mode is in force can be read where debugfs is mounted; else the kernel's name says what it was built with.
fn preemption() -> Finding {
    let mode = fs::read_to_string("/sys/kernel/debug/sched/preempt")
        .ok()
        .and_then(|modes| chosen(&modes).map(str::to_owned));
    match mode {
        Some(mode) => finding(Verdict::Good, format!("preemption: {mode}")),
        None => {
            let built = fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
            let built = built
                .split_ascii_whitespace()
                .find(|word| word.starts_with("PREEMPT"))
                .unwrap_or("none or voluntary");
            finding(
                Verdict::Note,
                format!(
                    "preemption: built with {built}; mount debugfs at /sys/kernel/debug to see the mode in force"
                ),
            )
        }
    }
}

/// The one in parentheses of "none voluntary (full) lazy".
fn chosen(modes: &str) -> Option<&str> {
    let (_, rest) = modes.split_once('(')?;
    Some(rest.split_once(')')?.0)
}

#[cfg(test)]
mod tests {
    use super::symbols::Symbol;
    use super::*;

    #[test]
    fn rights_are_root_or_two_capabilities() {
        let status = |word: u64| format!("Name:\tx\nCapInh:\t0\nCapEff:\t{word:016x}\n");
        assert_eq!(rights(&status(u64::MAX)).verdict, Verdict::Good);
        assert_eq!(rights(&status(1 << CAP_SYS_ADMIN)).verdict, Verdict::Good);
        let both = 1 << CAP_BPF | 1 << CAP_PERFMON;
        assert_eq!(rights(&status(both)).verdict, Verdict::Good);
        for less in [0, 1 << CAP_BPF, 1 << CAP_PERFMON, 1 << 20] {
            assert_eq!(rights(&status(less)).verdict, Verdict::Limitation);
        }
        assert_eq!(rights("").verdict, Verdict::Limitation);
    }

    #[test]
    fn kernels() {
        assert_eq!(kernel("6.18.44\n").verdict, Verdict::Good);
        assert_eq!(kernel("6.6.1").verdict, Verdict::Note);
        assert_eq!(kernel("6.1.0").verdict, Verdict::Limitation);
        assert_eq!(kernel("").verdict, Verdict::Limitation);
    }

    #[test]
    fn what_is_missing_is_named_with_what_is_lost() {
        let all = || SCHEDULER.iter().flat_map(Need::symbols);
        let texts = |found: &Found| -> Vec<String> {
            let findings = judge("programs", found, SCHEDULER);
            findings.iter().map(ToString::to_string).collect()
        };
        let whole = texts(&Found::only(all()));
        assert_eq!(whole.len(), 1, "{whole:?}");
        assert!(whole[0].starts_with("ok "), "{whole:?}");
        // A kernel of 6.16: no limits of groups, no reading without a lock.
        let without =
            |names: &'static [&'static str]| {
                Found::only(all().filter(move |symbol| {
                    !names.iter().any(|name| symbol.to_string().contains(name))
                }))
            };
        let older = texts(&without(&["bandwidth", "bw_", "dsq_peek"]));
        assert_eq!(older.len(), 3, "{older:?}");
        assert!(
            older[1].starts_with("note ") && older[1].contains("cpu.max"),
            "{older:?}"
        );
        assert!(older[1].contains("6.17"), "{older:?}");
        // 6.12 has other names for these.
        let too_old = texts(&without(&["dsq_insert", "dsq_move"]));
        assert!(
            too_old.iter().all(|text| text.starts_with("MISSING")),
            "{too_old:?}"
        );
        assert!(
            too_old
                .iter()
                .all(|text| text.contains("Linux 6.13 has it")),
            "{too_old:?}"
        );
    }

    #[test]
    fn this_kernel_is_read() {
        let Ok(btf) = Btf::from_vmlinux() else {
            return morpheus_testing::skip("this kernel has no BTF");
        };
        let found = Found::of(
            &btf,
            [
                Symbol::Field("task_struct", "tgid"),
                Symbol::Field("task_struct", "made_up"),
                Symbol::Function("made_up"),
                Symbol::Constant("bpf_map_type", "BPF_MAP_TYPE_HASH"),
                Symbol::Tracepoint("sched_switch"),
                Symbol::Struct("sched_switch"),
                // In a structure without a name.
                Symbol::Field("bpf_attr", "map_type"),
            ],
        );
        assert!(found.has(Symbol::Field("task_struct", "tgid")));
        assert!(found.has(Symbol::Constant("bpf_map_type", "BPF_MAP_TYPE_HASH")));
        assert!(found.has(Symbol::Tracepoint("sched_switch")));
        assert!(!found.has(Symbol::Field("task_struct", "made_up")));
        assert!(
            !found.has(Symbol::Function("made_up")) && !found.has(Symbol::Struct("sched_switch"))
        );
        let at_once = |symbol| symbols::has_at_once(&btf, symbol);
        assert!(at_once(Symbol::Field("task_struct", "tgid")));
        assert!(!at_once(Symbol::Field("task_struct", "made_up")));
    }

    #[test]
    fn the_mode_in_force() {
        assert_eq!(chosen("none voluntary (full) lazy \n"), Some("full"));
        assert_eq!(chosen("none"), None);
    }
}
