// SPDX-License-Identifier: GPL-2.0-only
//! The BPF programs and their maps as Rust types, made from `src/bpf/observer.bpf.c` by the build script.

// Generated code, held to the rules of its generator.
#![allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/observer.skel.rs"));
