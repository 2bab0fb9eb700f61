//! The contract of every benchmark's command line: `--help` teaches, bad usage is refused with exit code 2, and on Ctrl-C what was
//! measured until then is printed, with exit code 130.

mod common;

use std::time::Duration;

use serde_json::Value;

/// A benchmark as its users call it.
struct Program {
    name: &'static str,
    path: &'static str,
    /// Lines that make no sense.
    bad: &'static [&'static str],
    /// Arguments of a run that takes much longer than [`SOON`]; `None` where Ctrl-C is tested elsewhere, with what that needs.
    long: Option<&'static str>,
}

/// Ctrl-C comes after this time. By then each has warmed up and measured something, unless the machine is busy.
const SOON: Duration = Duration::from_secs(3);

const PROGRAMS: &[Program] = &[
    Program {
        name: "compare",
        path: env!("CARGO_BIN_EXE_compare"),
        bad: &[
            "--case nonsense",
            "--pairs 0",
            "--workers 0",
            "--window-ms 0",
            "--against smol",
            "--runtime tokio-watched",
        ],
        long: Some("--case spawn10 --pairs 5000 --window-ms 5"),
    },
    Program {
        name: "escalation",
        path: env!("CARGO_BIN_EXE_escalation"),
        bad: &[
            "--polls 0",
            "--chains 0",
            "--chain 0",
            "--only speed",
            "--link kernel",
        ],
        long: Some("--only takeover,cold --chains 10000 --chain 10"),
    },
    Program {
        name: "footprint",
        path: env!("CARGO_BIN_EXE_footprint"),
        bad: &[
            "--spares 0",
            "--spares x",
            "--workers 0",
            "--only both",
            "--tasks 0",
        ],
        long: Some("--spares 2 --workers 1 --runs 5000 --settle-ms 1 --only idle"),
    },
    Program {
        name: "governor",
        path: env!("CARGO_BIN_EXE_governor"),
        bad: &["", "run --kernels nonsense", "run --repeats 0"],
        long: None,
    },
    Program {
        name: "instructions",
        path: env!("CARGO_BIN_EXE_instructions"),
        bad: &["--nonsense"],
        long: None,
    },
    Program {
        name: "jitter",
        path: env!("CARGO_BIN_EXE_jitter"),
        bad: &[
            "0",
            "10 0",
            "1 1 --policy idle",
            "1 1 --policy deadline --cpu 0",
            "--sweep --load 2",
        ],
        long: Some("5 100000"),
    },
    Program {
        name: "latency",
        path: env!("CARGO_BIN_EXE_latency"),
        bad: &[
            "--workers 0",
            "--ops-per-second 0",
            "--paired --with-checkpoints",
            "--pairs 5",
        ],
        long: Some("--duration 600 --workers 1 --ops-per-second 100"),
    },
    Program {
        name: "liar",
        path: env!("CARGO_BIN_EXE_liar"),
        bad: &[
            "--critical-duration-ms 0",
            "--iterations 0",
            "--link kernel",
            "--rounds 0",
        ],
        long: Some("--critical-duration-ms 1 --iterations 100000 --honest-only"),
    },
    Program {
        name: "loops",
        path: env!("CARGO_BIN_EXE_loops"),
        bad: &[
            "--case nonsense",
            "--pairs 0",
            "--window-ms 0",
            "--spares x",
        ],
        long: Some("--case collatz --pairs 10000 --window-ms 1"),
    },
    Program {
        name: "overhead",
        path: env!("CARGO_BIN_EXE_overhead"),
        bad: &[
            "",
            "context-switch",
            "preemption --experiments 0",
            "preemption --yields 0",
            "preemption --sizes 4",
            "migration --cpus a,b",
            "cache --sizes 0",
            "cache --sizes 999999999",
            "cache --seed -1",
        ],
        long: None,
    },
    Program {
        name: "report",
        path: env!("CARGO_BIN_EXE_report"),
        bad: &["--nonsense"],
        long: None,
    },
    Program {
        name: "scale",
        path: env!("CARGO_BIN_EXE_scale"),
        bad: &[
            "--iterations 0",
            "--duration none",
            "--cpus 0",
            "--only speed",
            "--suite none",
            "--schedulers current,default",
            "--from file --iterations 2",
            "--ablation --suite soak",
        ],
        long: None,
    },
    Program {
        name: "service",
        path: env!("CARGO_BIN_EXE_service"),
        bad: &[
            "--scene idle",
            "--rounds 0",
            "--seconds 0",
            "--only go",
            "--clients many",
        ],
        long: None,
    },
    Program {
        name: "starvation",
        path: env!("CARGO_BIN_EXE_starvation"),
        bad: &[
            "--runtime tokyo",
            "--workers 0",
            "--period-us 0",
            "--suite --suite-only nothing",
            "--suite --histogram x",
        ],
        long: Some("--runtime tokio,smol --hogs 0 --duration 600"),
    },
];

#[test]
fn help_teaches_and_has_the_exit_codes() {
    for program in PROGRAMS {
        let output = common::run(program.path, "--help");
        let help = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", program.name);
        for words in ["Usage: ", program.name, "Examples:", "Exit codes:"] {
            assert!(help.contains(words), "{}: {words}: {help}", program.name);
        }
    }
}

#[test]
fn bad_usage_is_refused_and_says_why() {
    for program in PROGRAMS {
        common::assert_refused(program.path, program.bad);
    }
}

#[test]
fn ctrl_c_prints_what_was_measured_until_then() {
    // At the same time: each does little but wait.
    std::thread::scope(|scope| {
        for program in PROGRAMS {
            let Some(long) = program.long else {
                continue;
            };
            scope.spawn(move || {
                let is_measured = |row: &Value| row["n"].as_u64().is_some_and(|n| n > 0);
                // On a machine that others use, nothing may have been measured so soon.
                let has_rows = [1, 4, 16].into_iter().any(|times| {
                    let found: Value =
                        common::json_of_interrupted(program.path, long, SOON * times);
                    assert_eq!(found["bench"], program.name);
                    assert_eq!(found["interrupted"], true, "{}", program.name);
                    assert_eq!(found["failed"].as_array().map(Vec::len), Some(0), "{found}");
                    found["rows"].as_array().unwrap().iter().any(is_measured)
                });
                assert!(has_rows, "{}", program.name);
            });
        }
    });
}
