//! The programs in the chapters of the guide (`docs/src`) are compiled and run here, where axum and tower are.

#[doc = include_str!("../../docs/src/adopt.md")]
struct Adopt;

#[doc = include_str!("../../docs/src/benchmarks.md")]
struct Benchmarks;

#[doc = include_str!("../../docs/src/doctor.md")]
struct Doctor;

#[doc = include_str!("../../docs/src/every-task.md")]
struct EveryTask;

#[doc = include_str!("../../docs/src/how-it-works.md")]
struct HowItWorks;

#[doc = include_str!("../../docs/src/introduction.md")]
struct Introduction;

#[doc = include_str!("../../docs/src/kernel.md")]
struct Kernel;

#[doc = include_str!("../../docs/src/libraries.md")]
struct Libraries;

#[doc = include_str!("../../docs/src/limits.md")]
struct Limits;

#[doc = include_str!("../../docs/src/metrics.md")]
struct WatchTheNumbers;

#[doc = include_str!("../../docs/src/operate.md")]
struct Operate;

#[doc = include_str!("../../docs/src/stall-report.md")]
struct StallReport;

#[doc = include_str!("../../docs/src/troubleshooting.md")]
struct Troubleshooting;
