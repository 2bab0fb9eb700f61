// Made from include/morpheus_abi.h by bindgen: change that, and see tests/abi.rs.

pub const MORPHEUS_ABI_MAGIC: u64 = 5570761768843957587;
pub const MORPHEUS_ABI_VERSION: u32 = 1;
pub const MORPHEUS_MAX_SLOTS: u32 = 4096;
pub const MORPHEUS_VERDICT_SHIFT: u32 = 8;
pub type __u32 = ::core::ffi::c_uint;
pub type __u64 = ::core::ffi::c_ulonglong;
pub const MORPHEUS_WORKER_INIT: morpheus_worker_state = 0;
pub const MORPHEUS_WORKER_RUNNING: morpheus_worker_state = 2;
pub const MORPHEUS_WORKER_DEAD: morpheus_worker_state = 4;
pub type morpheus_worker_state = ::core::ffi::c_uint;
pub const MORPHEUS_SLOT_HELD: morpheus_slot_flags = 1;
pub const MORPHEUS_SLOT_HANDOFF: morpheus_slot_flags = 2;
pub const MORPHEUS_SLOT_DEMOTABLE: morpheus_slot_flags = 4;
pub const MORPHEUS_SLOT_HOG: morpheus_slot_flags = 8;
pub const MORPHEUS_SLOT_CONTROLLER: morpheus_slot_flags = 16;
pub type morpheus_slot_flags = ::core::ffi::c_uint;
pub const MORPHEUS_VERDICT_STALLED: morpheus_verdict_flags = 1;
pub const MORPHEUS_VERDICT_BLOCKED: morpheus_verdict_flags = 2;
pub const MORPHEUS_VERDICT_HOG: morpheus_verdict_flags = 4;
pub const MORPHEUS_VERDICT_DEMOTED: morpheus_verdict_flags = 8;
pub const MORPHEUS_VERDICT_THROTTLED: morpheus_verdict_flags = 16;
pub type morpheus_verdict_flags = ::core::ffi::c_uint;
pub const MORPHEUS_EVENT_BLOCKED: morpheus_event_kind = 0;
pub const MORPHEUS_EVENT_BUDGET: morpheus_event_kind = 1;
pub const MORPHEUS_EVENT_DEMOTED: morpheus_event_kind = 2;
pub const MORPHEUS_EVENT_THROTTLED: morpheus_event_kind = 3;
pub const MORPHEUS_EVENT_WOKEN: morpheus_event_kind = 4;
pub type morpheus_event_kind = ::core::ffi::c_uint;
pub const MORPHEUS_POLICY_OBSERVE: morpheus_policy = 0;
pub const MORPHEUS_POLICY_REQUEST: morpheus_policy = 1;
pub const MORPHEUS_POLICY_TAKEOVER: morpheus_policy = 2;
pub const MORPHEUS_POLICY_DEMOTE: morpheus_policy = 3;
pub const MORPHEUS_POLICY_THROTTLE: morpheus_policy = 4;
pub type morpheus_policy = ::core::ffi::c_uint;
pub const MORPHEUS_STEP_WATCHING: morpheus_step = 0;
pub const MORPHEUS_STEP_REQUESTED: morpheus_step = 1;
pub const MORPHEUS_STEP_TAKEN_OVER: morpheus_step = 2;
pub const MORPHEUS_STEP_DEMOTED: morpheus_step = 3;
pub const MORPHEUS_STEP_THROTTLED: morpheus_step = 4;
pub type morpheus_step = ::core::ffi::c_uint;
pub const MORPHEUS_MODE_NONE: morpheus_kernel_mode = 0;
pub const MORPHEUS_MODE_OBSERVE: morpheus_kernel_mode = 1;
pub const MORPHEUS_MODE_ENFORCE: morpheus_kernel_mode = 2;
pub type morpheus_kernel_mode = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
#[repr(align(8))]
pub struct morpheus_runtime_header {
    pub magic: __u64,
    pub abi_version: __u32,
    pub slots: __u32,
    pub tgid: __u32,
    pub policy: __u32,
    pub budget_ns: __u64,
    pub grace_ns: __u64,
    pub reserved: [__u64; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of morpheus_runtime_header",
    ][::core::mem::size_of::<morpheus_runtime_header>() - 64usize];
    [
        "Alignment of morpheus_runtime_header",
    ][::core::mem::align_of::<morpheus_runtime_header>() - 8usize];
    [
        "Offset of field: morpheus_runtime_header::magic",
    ][::core::mem::offset_of!(morpheus_runtime_header, magic) - 0usize];
    [
        "Offset of field: morpheus_runtime_header::abi_version",
    ][::core::mem::offset_of!(morpheus_runtime_header, abi_version) - 8usize];
    [
        "Offset of field: morpheus_runtime_header::slots",
    ][::core::mem::offset_of!(morpheus_runtime_header, slots) - 12usize];
    [
        "Offset of field: morpheus_runtime_header::tgid",
    ][::core::mem::offset_of!(morpheus_runtime_header, tgid) - 16usize];
    [
        "Offset of field: morpheus_runtime_header::policy",
    ][::core::mem::offset_of!(morpheus_runtime_header, policy) - 20usize];
    [
        "Offset of field: morpheus_runtime_header::budget_ns",
    ][::core::mem::offset_of!(morpheus_runtime_header, budget_ns) - 24usize];
    [
        "Offset of field: morpheus_runtime_header::grace_ns",
    ][::core::mem::offset_of!(morpheus_runtime_header, grace_ns) - 32usize];
    [
        "Offset of field: morpheus_runtime_header::reserved",
    ][::core::mem::offset_of!(morpheus_runtime_header, reserved) - 40usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
#[repr(align(8))]
pub struct morpheus_kernel_header {
    pub magic: __u64,
    pub abi_version: __u32,
    pub slots: __u32,
    pub heartbeat_ns: __u64,
    pub mode: __u32,
    pub psi_cpu: __u32,
    pub psi_io: __u32,
    pub psi_memory: __u32,
    pub run_queue_depth: __u32,
    pub reserved: [__u32; 5usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of morpheus_kernel_header",
    ][::core::mem::size_of::<morpheus_kernel_header>() - 64usize];
    [
        "Alignment of morpheus_kernel_header",
    ][::core::mem::align_of::<morpheus_kernel_header>() - 8usize];
    [
        "Offset of field: morpheus_kernel_header::magic",
    ][::core::mem::offset_of!(morpheus_kernel_header, magic) - 0usize];
    [
        "Offset of field: morpheus_kernel_header::abi_version",
    ][::core::mem::offset_of!(morpheus_kernel_header, abi_version) - 8usize];
    [
        "Offset of field: morpheus_kernel_header::slots",
    ][::core::mem::offset_of!(morpheus_kernel_header, slots) - 12usize];
    [
        "Offset of field: morpheus_kernel_header::heartbeat_ns",
    ][::core::mem::offset_of!(morpheus_kernel_header, heartbeat_ns) - 16usize];
    [
        "Offset of field: morpheus_kernel_header::mode",
    ][::core::mem::offset_of!(morpheus_kernel_header, mode) - 24usize];
    [
        "Offset of field: morpheus_kernel_header::psi_cpu",
    ][::core::mem::offset_of!(morpheus_kernel_header, psi_cpu) - 28usize];
    [
        "Offset of field: morpheus_kernel_header::psi_io",
    ][::core::mem::offset_of!(morpheus_kernel_header, psi_io) - 32usize];
    [
        "Offset of field: morpheus_kernel_header::psi_memory",
    ][::core::mem::offset_of!(morpheus_kernel_header, psi_memory) - 36usize];
    [
        "Offset of field: morpheus_kernel_header::run_queue_depth",
    ][::core::mem::offset_of!(morpheus_kernel_header, run_queue_depth) - 40usize];
    [
        "Offset of field: morpheus_kernel_header::reserved",
    ][::core::mem::offset_of!(morpheus_kernel_header, reserved) - 44usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
#[repr(align(8))]
pub struct morpheus_runtime_slot {
    pub poll_seq: __u64,
    pub park_seq: __u64,
    pub ack_seq: __u64,
    pub tid: __u32,
    pub state: __u32,
    pub critical_depth: __u32,
    pub flags: __u32,
    pub label: __u32,
    pub yields: __u32,
    pub reserved: [__u32; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of morpheus_runtime_slot",
    ][::core::mem::size_of::<morpheus_runtime_slot>() - 64usize];
    [
        "Alignment of morpheus_runtime_slot",
    ][::core::mem::align_of::<morpheus_runtime_slot>() - 8usize];
    [
        "Offset of field: morpheus_runtime_slot::poll_seq",
    ][::core::mem::offset_of!(morpheus_runtime_slot, poll_seq) - 0usize];
    [
        "Offset of field: morpheus_runtime_slot::park_seq",
    ][::core::mem::offset_of!(morpheus_runtime_slot, park_seq) - 8usize];
    [
        "Offset of field: morpheus_runtime_slot::ack_seq",
    ][::core::mem::offset_of!(morpheus_runtime_slot, ack_seq) - 16usize];
    [
        "Offset of field: morpheus_runtime_slot::tid",
    ][::core::mem::offset_of!(morpheus_runtime_slot, tid) - 24usize];
    [
        "Offset of field: morpheus_runtime_slot::state",
    ][::core::mem::offset_of!(morpheus_runtime_slot, state) - 28usize];
    [
        "Offset of field: morpheus_runtime_slot::critical_depth",
    ][::core::mem::offset_of!(morpheus_runtime_slot, critical_depth) - 32usize];
    [
        "Offset of field: morpheus_runtime_slot::flags",
    ][::core::mem::offset_of!(morpheus_runtime_slot, flags) - 36usize];
    [
        "Offset of field: morpheus_runtime_slot::label",
    ][::core::mem::offset_of!(morpheus_runtime_slot, label) - 40usize];
    [
        "Offset of field: morpheus_runtime_slot::yields",
    ][::core::mem::offset_of!(morpheus_runtime_slot, yields) - 44usize];
    [
        "Offset of field: morpheus_runtime_slot::reserved",
    ][::core::mem::offset_of!(morpheus_runtime_slot, reserved) - 48usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
#[repr(align(8))]
pub struct morpheus_kernel_slot {
    pub request_seq: __u64,
    pub verdict: __u64,
    pub oncpu_ns: __u64,
    pub step: __u32,
    pub reserved0: __u32,
    pub reserved: [__u64; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of morpheus_kernel_slot",
    ][::core::mem::size_of::<morpheus_kernel_slot>() - 64usize];
    [
        "Alignment of morpheus_kernel_slot",
    ][::core::mem::align_of::<morpheus_kernel_slot>() - 8usize];
    [
        "Offset of field: morpheus_kernel_slot::request_seq",
    ][::core::mem::offset_of!(morpheus_kernel_slot, request_seq) - 0usize];
    [
        "Offset of field: morpheus_kernel_slot::verdict",
    ][::core::mem::offset_of!(morpheus_kernel_slot, verdict) - 8usize];
    [
        "Offset of field: morpheus_kernel_slot::oncpu_ns",
    ][::core::mem::offset_of!(morpheus_kernel_slot, oncpu_ns) - 16usize];
    [
        "Offset of field: morpheus_kernel_slot::step",
    ][::core::mem::offset_of!(morpheus_kernel_slot, step) - 24usize];
    [
        "Offset of field: morpheus_kernel_slot::reserved0",
    ][::core::mem::offset_of!(morpheus_kernel_slot, reserved0) - 28usize];
    [
        "Offset of field: morpheus_kernel_slot::reserved",
    ][::core::mem::offset_of!(morpheus_kernel_slot, reserved) - 32usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
#[repr(align(8))]
pub struct morpheus_event {
    pub kind: __u32,
    pub slot: __u32,
    pub poll_seq: __u64,
    pub at_ns: __u64,
    pub detail: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of morpheus_event"][::core::mem::size_of::<morpheus_event>() - 32usize];
    ["Alignment of morpheus_event"][::core::mem::align_of::<morpheus_event>() - 8usize];
    [
        "Offset of field: morpheus_event::kind",
    ][::core::mem::offset_of!(morpheus_event, kind) - 0usize];
    [
        "Offset of field: morpheus_event::slot",
    ][::core::mem::offset_of!(morpheus_event, slot) - 4usize];
    [
        "Offset of field: morpheus_event::poll_seq",
    ][::core::mem::offset_of!(morpheus_event, poll_seq) - 8usize];
    [
        "Offset of field: morpheus_event::at_ns",
    ][::core::mem::offset_of!(morpheus_event, at_ns) - 16usize];
    [
        "Offset of field: morpheus_event::detail",
    ][::core::mem::offset_of!(morpheus_event, detail) - 24usize];
};
