// SPDX-License-Identifier: GPL-2.0-only
//! The BPF programs and their maps as Rust types, made from `src/bpf` by the build script.

// Generated code, held to the rules of its generator.
#![allow(
    missing_docs,
    dead_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]

pub(crate) mod doctor {
    include!(concat!(env!("OUT_DIR"), "/doctor.skel.rs"));
}

pub(crate) mod observer {
    include!(concat!(env!("OUT_DIR"), "/observer.skel.rs"));
}

pub(crate) mod scheduler {
    include!(concat!(env!("OUT_DIR"), "/scheduler.skel.rs"));
}
