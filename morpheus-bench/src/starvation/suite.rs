//! stub
use super::{config::Options, workload::Workload};
pub fn main(_: &Options, _: &Workload) -> std::process::ExitCode {
    std::process::ExitCode::from(2)
}
