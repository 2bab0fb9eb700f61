//! Made-up reports, for the tests of the printers and for pictures.
#![allow(dead_code)]

use morpheus_doctor::model::{
    Doing, Finding, Flavor, Frame, LongPoll, Method, Owner, Report, Runtime, Sample, Stack, Thread,
    Wait,
};
use morpheus_doctor::report::remedy::remedy;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// Markup, control characters, marks of direction, quotes: all that must not get through.
pub const HOSTILE: &str = "</title></style></script><script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;\u{1b}[2J\u{202e}\n;\u{0}{{closure}}";

pub fn frame(function: &str, place: Option<(&str, u32)>, owner: Owner) -> Frame {
    Frame {
        function: function.into(),
        file: place.map(|(file, _)| file.into()),
        line: place.map(|(_, line)| line),
        module: if owner == Owner::C {
            "libc.so.6"
        } else {
            "orders"
        }
        .into(),
        address: 0x4_1000 + function.len() as u64 * 16,
        inlined: false,
        owner,
    }
}

/// The frames below each handler: the adapters and the executor.
fn executor() -> Vec<Frame> {
    let places = [
        (
            "<F as axum::handler::Handler<(M,T1),S>>::call::{{closure}}",
            "axum-0.8.4/src/handler/mod.rs",
            245,
        ),
        (
            "<core::pin::Pin<P> as core::future::future::Future>::poll",
            "core/src/future/future.rs",
            133,
        ),
        (
            "<axum::routing::route::RouteFuture<E> as core::future::future::Future>::poll",
            "axum-0.8.4/src/routing/route.rs",
            180,
        ),
        (
            "<hyper::server::conn::http1::Connection<I,S> as core::future::future::Future>::poll",
            "hyper-1.6.0/src/server/conn/http1.rs",
            276,
        ),
        (
            "tokio::runtime::task::core::Core<T,S>::poll::{{closure}}",
            "tokio-1.45.0/src/runtime/task/core.rs",
            365,
        ),
        (
            "tokio::runtime::task::harness::Harness<T,S>::poll",
            "tokio-1.45.0/src/runtime/task/harness.rs",
            168,
        ),
        (
            "tokio::runtime::scheduler::multi_thread::worker::Context::run_task",
            "tokio-1.45.0/src/runtime/scheduler/multi_thread/worker.rs",
            596,
        ),
        (
            "tokio::runtime::scheduler::multi_thread::worker::run",
            "tokio-1.45.0/src/runtime/scheduler/multi_thread/worker.rs",
            513,
        ),
        (
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "/rustc/17067e9ac6d/library/std/src/sys/backtrace.rs",
            152,
        ),
    ];
    let registry = "/home/user/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/";
    places
        .iter()
        .map(|(function, file, line)| {
            let file = match file.starts_with('/') {
                true => (*file).to_owned(),
                false => format!("{registry}{file}"),
            };
            frame(function, Some((&file, *line)), Owner::Plumbing)
        })
        .collect()
}

/// A stack: what the culprit called, the culprit, its callers, and the executor.
pub fn stack(called: &[Frame], culprit: Frame, callers: &[Frame]) -> Stack {
    let mut frames = called.to_vec();
    frames.push(culprit);
    frames.extend_from_slice(callers);
    frames.extend(executor());
    Stack {
        culprit: Some(called.len()),
        frames,
    }
}

/// A finding with what follows from the rest made to fit.
pub fn finding(
    doing: Doing,
    waits_for: Vec<Wait>,
    call: Option<&str>,
    count: u64,
    mean_ns: u64,
    unserved_ns: u64,
    stack: Stack,
) -> Finding {
    let total_ns = count * mean_ns;
    let most_ns = total_ns / 100 * 97;
    let (cpu_ns, blocked_ns) = match doing {
        Doing::Computing => (most_ns, total_ns / 100),
        Doing::Blocked => (total_ns / 100, most_ns),
    };
    Finding {
        held_by: None,
        doing,
        remedy: remedy(doing, &waits_for, call, &stack),
        waits_for,
        system_call: call.map(Into::into),
        label: None,
        count,
        p50_ns: mean_ns,
        p99_ns: mean_ns * 3,
        longest_ns: mean_ns * 4,
        total_ns,
        cpu_ns,
        blocked_ns,
        unserved_ns,
        stack,
    }
}

/// A generator of numbers: the same each time.
pub struct Numbers(u64);

impl Numbers {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }
}

fn thread(tid: u32) -> Thread {
    Thread {
        tid,
        name: "tokio-runtime-w".into(),
    }
}

/// A service with seven places that hold it up, most of them more than the next one.
pub fn service() -> Report {
    use Owner::{Application, C, Library, Plumbing};
    let std_file = |path: &str| format!("/rustc/17067e9ac6d/library/std/src/{path}");
    let handler = |name: &str, line: u32| {
        frame(
            &format!("orders::routes::{name}::{{{{closure}}}}"),
            Some(("src/routes.rs", line)),
            Application,
        )
    };
    let libc = |name: &str| frame(name, None, C);
    let findings = vec![
        finding(
            Doing::Blocked,
            vec![Wait::File {
                path: Some("/var/lib/orders/prices.csv".into()),
            }],
            Some("read"),
            312,
            11 * MS,
            3_400 * MS,
            stack(
                &[
                    libc("__read"),
                    frame(
                        "std::sys::fs::unix::File::read_buf",
                        Some((&std_file("sys/fs/unix.rs"), 1290)),
                        Plumbing,
                    ),
                    frame(
                        "<std::fs::File as std::io::Read>::read_to_end",
                        Some((&std_file("fs.rs"), 770)),
                        Plumbing,
                    ),
                    frame(
                        "std::fs::read::inner",
                        Some((&std_file("fs.rs"), 318)),
                        Plumbing,
                    ),
                    frame("std::fs::read", Some((&std_file("fs.rs"), 321)), Plumbing),
                ],
                frame(
                    "orders::prices::load",
                    Some(("src/prices.rs", 41)),
                    Application,
                ),
                &[handler("price", 87)],
            ),
        ),
        finding(
            Doing::Computing,
            vec![],
            None,
            95,
            24 * MS,
            1_150 * MS,
            stack(
                &[
                    frame(
                        "<argon2::block::Block as core::ops::bit::BitXorAssign<&argon2::block::Block>>::bitxor_assign",
                        Some((
                            "/home/user/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/argon2-0.5.3/src/block.rs",
                            120,
                        )),
                        Library,
                    ),
                    frame(
                        "argon2::Argon2::fill_blocks",
                        Some((
                            "/home/user/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/argon2-0.5.3/src/lib.rs",
                            377,
                        )),
                        Library,
                    ),
                    frame(
                        "argon2::Argon2::hash_password_into",
                        Some((
                            "/home/user/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/argon2-0.5.3/src/lib.rs",
                            208,
                        )),
                        Library,
                    ),
                ],
                frame(
                    "orders::auth::verify",
                    Some(("src/auth.rs", 19)),
                    Application,
                ),
                &[handler("login", 33)],
            ),
        ),
        finding(
            Doing::Blocked,
            vec![Wait::Lock],
            Some("futex"),
            64,
            7 * MS,
            380 * MS,
            stack(
                &[
                    libc("syscall"),
                    frame(
                        "std::sys::sync::mutex::futex::Mutex::lock_contended",
                        Some((&std_file("sys/sync/mutex/futex.rs"), 76)),
                        Plumbing,
                    ),
                    frame(
                        "std::sync::poison::mutex::Mutex<T>::lock",
                        Some((&std_file("sync/poison/mutex.rs"), 334)),
                        Plumbing,
                    ),
                ],
                frame(
                    "orders::stock::Stock::reserve",
                    Some(("src/stock.rs", 112)),
                    Application,
                ),
                &[handler("order", 140)],
            ),
        ),
        finding(
            Doing::Blocked,
            vec![Wait::Socket {
                name: Some("socket:[48213]".into()),
            }],
            Some("poll"),
            9,
            31 * MS,
            210 * MS,
            stack(
                &[
                    libc("__poll"),
                    libc("__res_context_send"),
                    libc("getaddrinfo"),
                    frame(
                        "<str as std::net::socket_addr::ToSocketAddrs>::to_socket_addrs",
                        Some((&std_file("net/socket_addr.rs"), 260)),
                        Plumbing,
                    ),
                ],
                frame(
                    "orders::mail::connect",
                    Some(("src/mail.rs", 58)),
                    Application,
                ),
                &[handler("confirm", 171)],
            ),
        ),
        finding(
            Doing::Blocked,
            vec![
                Wait::Pipe {
                    name: Some("pipe:[48100]".into()),
                },
                Wait::Lock,
            ],
            Some("write"),
            21,
            4 * MS,
            44 * MS,
            stack(
                &[
                    libc("__write"),
                    frame(
                        "<std::io::stdio::StdoutLock as std::io::Write>::write_all",
                        Some((&std_file("io/stdio.rs"), 812)),
                        Plumbing,
                    ),
                    frame(
                        "std::io::stdio::_print",
                        Some((&std_file("io/stdio.rs"), 1300)),
                        Plumbing,
                    ),
                ],
                frame(
                    "orders::audit::record",
                    Some(("src/audit.rs", 27)),
                    Application,
                ),
                &[handler("order", 151)],
            ),
        ),
        finding(
            Doing::Computing,
            vec![],
            None,
            33,
            3 * MS,
            12 * MS,
            stack(
                &[
                    frame(
                        "serde_json::read::SliceRead::parse_str_bytes",
                        Some((
                            "/home/user/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde_json-1.0.140/src/read.rs",
                            480,
                        )),
                        Library,
                    ),
                    frame(
                        "serde_json::de::from_slice",
                        Some((
                            "/home/user/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde_json-1.0.140/src/de.rs",
                            2680,
                        )),
                        Library,
                    ),
                ],
                frame(
                    "orders::import::parse",
                    Some(("src/import.rs", 77)),
                    Application,
                ),
                &[handler("import", 202)],
            ),
        ),
        finding(
            Doing::Computing,
            vec![],
            None,
            140,
            2 * MS,
            0,
            stack(
                &[],
                frame(
                    "orders::report::daily::{{closure}}",
                    Some(("src/report.rs", 64)),
                    Application,
                ),
                &[],
            ),
        ),
    ];
    let mut report = Report {
        version: Report::VERSION,
        pid: 48_117,
        name: "orders".into(),
        program: "/opt/orders/bin/orders".into(),
        method: Method::Bpf,
        longer_than_ns: MS,
        began_ns: 7_000 * S,
        length_ns: 30 * S,
        ended: "the time was over".into(),
        runtimes: vec![
            Runtime { flavor: Flavor::MultiThread, workers: (48_118..48_122).map(thread).collect() },
            Runtime { flavor: Flavor::CurrentThread, workers: vec![Thread { tid: 48_130, name: "metrics".into() }] },
        ],
        findings,
        polls: vec![],
        polls_in_all: 0,
        polls_without_stack: 6,
        stolen_ns: 20 * MS,
        samples: vec![],
        notes: vec!["Of 12 files that are mapped, libssl.so.3 has no tables to unwind with: stacks through it end there.".into()],
    };
    add_polls(&mut report);
    add_samples(&mut report);
    report
}

/// Polls for all findings, some at the same time on all workers, the last one still going on; 6 without finding.
pub fn add_polls(report: &mut Report) {
    let mut numbers = Numbers(28);
    let threads: Vec<(usize, u32)> = report
        .runtimes
        .iter()
        .enumerate()
        .flat_map(|(index, runtime)| {
            runtime
                .workers
                .iter()
                .map(move |worker| (index, worker.tid))
        })
        .collect();
    let mut polls = Vec::new();
    let findings = report.findings.iter().map(Some).chain([None]).enumerate();
    for (index, finding) in findings {
        let (count, mean_ns) = finding.map_or((report.polls_without_stack, 2 * MS), |finding| {
            (finding.count, finding.p50_ns)
        });
        for nth in 0..count {
            let mut length_ns = mean_ns / 2 + numbers.below(mean_ns);
            if nth == 0 {
                length_ns = mean_ns * 4;
            }
            // Bursts: the places are where the numbers meet.
            let burst = numbers.below(12) * report.length_ns / 12;
            let began_ns = report.began_ns
                + (burst + numbers.below(report.length_ns / 300))
                    .min(report.length_ns.saturating_sub(length_ns));
            let (runtime, thread) = match threads.get(numbers.below(threads.len() as u64) as usize)
            {
                Some(thread) => *thread,
                None => continue,
            };
            let is_computing = finding.is_none_or(|finding| finding.doing == Doing::Computing);
            polls.push(LongPoll {
                thread,
                runtime,
                began_ns,
                length_ns,
                goes_on: false,
                cpu_ns: if is_computing {
                    length_ns
                } else {
                    length_ns / 50
                },
                blocked_ns: if is_computing { 0 } else { length_ns / 50 * 49 },
                unserved_ns: finding
                    .map_or(0, |finding| finding.unserved_ns / finding.count.max(1)),
                finding: finding.map(|_| index),
            });
        }
    }
    polls.sort_by_key(|poll| poll.began_ns);
    // One at a time on a thread.
    let mut free_at = std::collections::HashMap::new();
    for poll in &mut polls {
        let free = free_at.entry(poll.thread).or_insert(0);
        poll.began_ns = poll.began_ns.max(*free);
        *free = poll.began_ns + poll.length_ns + MS / 2;
    }
    let end_ns = report.began_ns + report.length_ns;
    polls.retain(|poll| poll.began_ns + MS < end_ns);
    if let Some(last) = polls.last_mut() {
        last.goes_on = true;
        last.length_ns = end_ns - last.began_ns;
    }
    report.polls_in_all = polls.len() as u64;
    report.polls = polls;
}

/// Samples for all findings.
pub fn add_samples(report: &mut Report) {
    for (index, finding) in report.findings.iter().enumerate() {
        let mut functions: Vec<String> = finding
            .stack
            .frames
            .iter()
            .rev()
            .map(|frame| frame.function.clone())
            .collect();
        functions.retain(|name| {
            !name.starts_with("tokio::runtime") && !name.starts_with("std::sys::backtrace")
        });
        let parts = [
            (functions.len(), 7),
            (functions.len().saturating_sub(1).max(1), 2),
            (functions.len().saturating_sub(2).max(1), 1),
        ];
        for (length, tenths) in parts {
            report.samples.push(Sample {
                finding: Some(index),
                doing: finding.doing,
                weight_ns: finding.total_ns / 10 * tenths,
                functions: functions[..length.min(functions.len())].to_vec(),
            });
        }
    }
}

/// No poll was long.
pub fn healthy() -> Report {
    Report {
        findings: vec![],
        polls: vec![],
        polls_in_all: 0,
        polls_without_stack: 0,
        samples: vec![],
        notes: vec![],
        ..service()
    }
}

/// Long polls that held up nothing.
pub fn harmless() -> Report {
    let mut report = service();
    report.findings.drain(..6);
    report.samples.clear();
    report.polls_without_stack = 0;
    add_polls(&mut report);
    for poll in &mut report.polls {
        (poll.unserved_ns, poll.goes_on) = (0, false);
    }
    add_samples(&mut report);
    report
}

/// A program without symbols, sampled from `/proc`.
pub fn stripped() -> Report {
    let mut report = service();
    report.method = Method::Proc;
    for finding in &mut report.findings {
        for frame in &mut finding.stack.frames {
            (frame.file, frame.line, frame.owner) = (None, None, Owner::Unknown);
            frame.function = format!("orders+{:#x}", frame.address);
        }
    }
    report.samples.clear();
    add_samples(&mut report);
    report
}

/// All text of the target is hostile.
pub fn hostile() -> Report {
    let mut report = service();
    report.name = HOSTILE.into();
    report.program = format!("/tmp/{HOSTILE}");
    report.ended = HOSTILE.into();
    report.notes = vec![HOSTILE.into()];
    for worker in report
        .runtimes
        .iter_mut()
        .flat_map(|runtime| &mut runtime.workers)
    {
        worker.name = HOSTILE.into();
    }
    for (index, finding) in report.findings.iter_mut().enumerate() {
        finding.label = Some(HOSTILE.into());
        finding.remedy = HOSTILE.into();
        finding.system_call = Some(HOSTILE.into());
        let some = || Some(HOSTILE.to_owned());
        finding.waits_for = vec![
            Wait::File { path: some() },
            Wait::Socket { name: some() },
            Wait::Pipe { name: some() },
            Wait::Terminal { path: some() },
        ];
        finding.waits_for.rotate_left(index % 4);
        for frame in &mut finding.stack.frames {
            frame.function = HOSTILE.into();
            frame.module = HOSTILE.into();
            frame.file = if index % 2 == 0 { some() } else { None };
        }
    }
    report.samples.clear();
    add_samples(&mut report);
    report
}

/// As much as a report has: the most polls, many workers, findings and functions.
pub fn huge() -> Report {
    let mut report = service();
    report.length_ns = 600 * S;
    report.runtimes[0].workers = (1..=512).map(thread).collect();
    let findings = report.findings.clone();
    report.findings = (0..300)
        .map(|index| {
            let mut finding = findings[index % findings.len()].clone();
            (finding.count, finding.unserved_ns) = (67, finding.unserved_ns / (1 + index as u64));
            let culprit = finding.stack.culprit.unwrap_or(0);
            finding.stack.frames[culprit].function = format!("orders::generated::handler_{index}");
            let deep = finding.stack.frames[culprit].clone();
            finding.stack.frames.extend(std::iter::repeat_n(deep, 200));
            finding
        })
        .collect();
    report
        .findings
        .sort_by_key(|finding| std::cmp::Reverse(finding.unserved_ns));
    report.samples.clear();
    add_polls(&mut report);
    add_samples(&mut report);
    report.polls_in_all += 1_000_000;
    report
}
