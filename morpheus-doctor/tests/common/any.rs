//! Reports of any content: any text, any number, indices that lead nowhere.

use morpheus_doctor::model::{
    Doing, Finding, Flavor, Frame, LongPoll, Method, Owner, Report, Runtime, Sample, Stack, Thread,
    Wait,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Text with much of what is special in names, HTML, shells and terminals.
pub fn any_text() -> BoxedStrategy<String> {
    let piece = prop_oneof![
        Just("<".to_owned()),
        Just(">".to_owned()),
        Just("&".to_owned()),
        Just("\"".to_owned()),
        Just("'".to_owned()),
        Just("`".to_owned()),
        Just("::".to_owned()),
        Just(" as ".to_owned()),
        Just("impl ".to_owned()),
        Just(" for ".to_owned()),
        Just("{{closure}}".to_owned()),
        Just("::h0123456789abcdef".to_owned()),
        Just("</script>".to_owned()),
        Just("</title>".to_owned()),
        Just("<img src=x onerror=alert(1)>".to_owned()),
        Just("\n".to_owned()),
        Just("\u{202e}".to_owned()),
        Just("\u{1b}[2J".to_owned()),
        Just("很".to_owned()),
        Just("a\u{301}".to_owned()),
        Just("/rustc/".to_owned()),
        Just("/registry/src/".to_owned()),
        "[a-z/:;. ]{0,12}",
        any::<String>(),
    ];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat()).boxed()
}

/// Small numbers, sizes of times, and the highest.
fn any_ns() -> BoxedStrategy<u64> {
    prop_oneof![0u64..10, 0u64..40_000_000_000, Just(u64::MAX), any::<u64>()].boxed()
}

fn any_index() -> BoxedStrategy<usize> {
    prop_oneof![0usize..5, Just(usize::MAX)].boxed()
}

fn any_doing() -> BoxedStrategy<Doing> {
    prop_oneof![Just(Doing::Computing), Just(Doing::Blocked)].boxed()
}

fn any_wait() -> BoxedStrategy<Wait> {
    let text = || option::of(any_text());
    prop_oneof![
        Just(Wait::Sleep),
        Just(Wait::Lock),
        text().prop_map(|path| Wait::File { path }),
        text().prop_map(|name| Wait::Socket { name }),
        text().prop_map(|name| Wait::Pipe { name }),
        text().prop_map(|path| Wait::Terminal { path }),
        Just(Wait::Child),
        Just(Wait::Memory),
        Just(Wait::Other),
    ]
    .boxed()
}

fn any_frame() -> BoxedStrategy<Frame> {
    let owner = prop_oneof![
        Just(Owner::Application),
        Just(Owner::Library),
        Just(Owner::Plumbing),
        Just(Owner::C),
        Just(Owner::Unknown)
    ];
    (
        any_text(),
        option::of(any_text()),
        option::of(any::<u32>()),
        any_text(),
        any::<u64>(),
        any::<bool>(),
        owner,
    )
        .prop_map(
            |(function, file, line, module, address, inlined, owner)| Frame {
                function,
                file,
                line,
                module,
                address,
                inlined,
                owner,
            },
        )
        .boxed()
}

fn any_finding() -> BoxedStrategy<Finding> {
    let stack = (vec(any_frame(), 0..24), option::of(any_index()))
        .prop_map(|(frames, culprit)| Stack { frames, culprit });
    let texts = (option::of(any_text()), option::of(any_text()), any_text());
    (
        any_doing(),
        vec(any_wait(), 0..4),
        texts,
        vec(any_ns(), 8),
        stack,
    )
        .prop_map(
            |(doing, waits_for, (system_call, label, remedy), ns, stack)| Finding {
                held_by: None,
                doing,
                waits_for,
                system_call,
                label,
                count: ns[0],
                p50_ns: ns[1],
                p99_ns: ns[2],
                longest_ns: ns[3],
                total_ns: ns[4],
                cpu_ns: ns[5],
                blocked_ns: ns[6],
                unserved_ns: ns[7],
                stack,
                remedy,
            },
        )
        .boxed()
}

fn any_poll() -> BoxedStrategy<LongPoll> {
    (
        0u32..6,
        any_index(),
        vec(any_ns(), 5),
        any::<bool>(),
        option::of(any_index()),
    )
        .prop_map(|(thread, runtime, ns, goes_on, finding)| LongPoll {
            thread,
            runtime,
            began_ns: ns[0],
            length_ns: ns[1],
            goes_on,
            cpu_ns: ns[2],
            blocked_ns: ns[3],
            unserved_ns: ns[4],
            finding,
        })
        .boxed()
}

fn any_sample() -> BoxedStrategy<Sample> {
    (
        option::of(any_index()),
        any_doing(),
        any_ns(),
        vec(any_text(), 0..8),
    )
        .prop_map(|(finding, doing, weight_ns, functions)| Sample {
            finding,
            doing,
            weight_ns,
            functions,
        })
        .boxed()
}

/// Any report at all.
pub fn any_report() -> BoxedStrategy<Report> {
    let flavor = prop_oneof![
        Just(Flavor::MultiThread),
        Just(Flavor::CurrentThread),
        Just(Flavor::Unknown)
    ];
    let thread = (0u32..6, any_text()).prop_map(|(tid, name)| Thread { tid, name });
    let runtime =
        (flavor, vec(thread, 0..4)).prop_map(|(flavor, workers)| Runtime { flavor, workers });
    let method = prop_oneof![Just(Method::Bpf), Just(Method::Proc)];
    let texts = (any_text(), any_text(), any_text(), vec(any_text(), 0..3));
    let parts = (
        vec(runtime, 0..6),
        vec(any_finding(), 0..8),
        vec(any_poll(), 0..20),
        vec(any_sample(), 0..8),
    );
    (any::<u32>(), texts, method, vec(any_ns(), 6), parts)
        .prop_map(
            |(
                pid,
                (name, program, ended, notes),
                method,
                ns,
                (runtimes, findings, polls, samples),
            )| Report {
                version: Report::VERSION,
                pid,
                name,
                program,
                method,
                longer_than_ns: ns[0],
                began_ns: ns[1],
                length_ns: ns[2],
                ended,
                runtimes,
                findings,
                polls,
                polls_in_all: ns[3],
                polls_without_stack: ns[4],
                stolen_ns: ns[5],
                samples,
                notes,
            },
        )
        .boxed()
}
