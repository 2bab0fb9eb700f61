//! The figures that bars are about, and how each is read from a run.

use super::result::RunResult;
use crate::histogram::Summary;
use crate::report::{count, time};

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    WakeP50,
    WakeP99,
    TimerP99,
    LoadRate,
    LoadP99,
    Polls,
    MixP99,
    MixPolls,
    LifoP99,
    HogCpu,
    Neighbours,
    Controller,
    Wakeups,
}

/// A figure that could be had, or why not.
pub enum Read {
    Value(f64),
    /// Too few samples for the percentile; it lies between the median and the longest.
    Between(f64, f64),
    StandsStill,
    Nothing(String),
}

impl Figure {
    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::WakeP50 => "wake p50",
            Self::WakeP99 => "wake p99",
            Self::TimerP99 => "timer p99",
            Self::LoadRate => "requests/s",
            Self::LoadP99 => "request p99",
            Self::Polls => "the innocents' polls/s",
            Self::MixP99 => "the innocents' p99",
            Self::MixPolls => "the innocents' polls/s",
            Self::LifoP99 => "the woken task's p99",
            Self::HogCpu => "the hogs' CPU",
            Self::Neighbours => "the neighbours' CPU",
            Self::Controller => "the controller's CPU",
            Self::Wakeups => "wakeups",
        }
    }

    /// A value of it, with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::WakeP50 | Self::WakeP99 | Self::TimerP99 => time(value as u64),
            Self::LoadP99 | Self::MixP99 | Self::LifoP99 => time(value as u64),
            Self::LoadRate | Self::Polls | Self::MixPolls | Self::Wakeups => count(value as u64),
            Self::HogCpu | Self::Neighbours => format!("{:.1} %", value * 100.0),
            Self::Controller => format!("{:.2} %", value * 100.0),
        }
    }

    /// Its value in a run.
    pub fn read(self, run: &RunResult) -> Read {
        if let Some(why) = &run.failed {
            return if why.starts_with("stands still") {
                Read::StandsStill
            } else {
                Read::Nothing(format!("{}: {why}", run.runtime))
            };
        }
        let missing =
            || Read::Nothing(format!("{} has no figure for {}", run.runtime, self.name()));
        let p99 = |summary: Option<&Summary>| match summary {
            Some(Summary { p99: Some(ns), .. }) => Read::Value(*ns as f64),
            Some(Summary {
                p50: Some(p50),
                max: Some(max),
                ..
            }) => Read::Between(*p50 as f64, *max as f64),
            _ => missing(),
        };
        let number = |value: Option<f64>| value.map_or_else(missing, Read::Value);
        match self {
            Self::WakeP50 => number(run.wake_ns.p50.map(|ns| ns as f64)),
            Self::WakeP99 => p99(Some(&run.wake_ns)),
            Self::TimerP99 => p99(Some(&run.timer_ns)),
            Self::LoadP99 => p99(run.load.as_ref().map(|load| &load.latency_ns)),
            Self::MixP99 => p99(run.mix.as_ref().map(|mix| &mix.late_ns)),
            Self::LifoP99 => p99(run.lifo_ns.as_ref()),
            Self::LoadRate => number(run.load.as_ref().map(|load| load.requests_per_s)),
            Self::Polls => number(run.busy.as_ref().map(|busy| busy.polls_per_s)),
            Self::MixPolls => number(run.mix.as_ref().map(|mix| mix.polls_per_s)),
            Self::HogCpu => number(run.hog.as_ref().map(|hog| hog.cpu_share)),
            Self::Neighbours => number(run.neighbours_cpu),
            Self::Controller => number(run.controller_cpu_share),
            Self::Wakeups => number(run.idle.as_ref().map(|idle| idle.wakeups as f64)),
        }
    }
}
