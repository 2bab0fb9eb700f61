//! Whose code the functions of a stripped program are, by the places that their panics would name.
//!
//! A function that may panic has the addresses of `core::panic::Location`s in its code: each is a path, a line and a column, and stays
//! in a program without symbols, because panics print it. An `async fn` always has one. So a part of the functions is known to be the
//! application's, a library's or the Rust library's. A linker lays each crate's functions out together; what lies between two known
//! functions is taken for the nearer one's.

use std::collections::BTreeMap;

use morpheus_stacks::owner;

use crate::memory::Memory;
use crate::model::Owner;
use crate::modules::Module;

/// The longest path, in bytes.
const LONGEST: u64 = 300;
/// The most code that is read, in bytes.
const MOST_CODE: usize = 256 << 20;

/// The owners and places of a program's functions, as far as they are known.
#[derive(Debug, Default)]
pub struct Locations {
    /// By where they begin in the file.
    functions: BTreeMap<u64, (Owner, Option<Place>)>,
}

/// A file and a line of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path, as the compiler was given it.
    pub file: String,
    /// The least line at which the function may panic.
    pub line: u32,
}

impl Locations {
    /// Reads the code of a program and what it points to, in the memory of the process, where addresses are relocated.
    #[must_use]
    pub fn read(memory: Memory, program: &Module) -> Locations {
        let mut found = Locations::default();
        let length = usize::try_from(program.code.end - program.code.start).unwrap_or(0);
        let mut code = vec![0; length.min(MOST_CODE)];
        let had = memory.read(program.code.start, &mut code);
        for (at, target) in addresses(&code[..had]) {
            let instruction = program.code.start.wrapping_add(at as u64);
            let target = instruction.wrapping_add_signed(target);
            // Relocated structures lie behind the code, in pages that are not executable.
            if target % 8 != 0 || program.code.contains(&target) || target < program.code.end {
                continue;
            }
            let Some(function) = program.function_of(program.relative(instruction)) else {
                continue;
            };
            let Some(place) = location(memory, target) else {
                continue;
            };
            let owner = owner_of(&place.file);
            let entry = found.functions.entry(function).or_insert((owner, None));
            // Libraries' functions are inlined into the application's, and not the other way.
            if owner == Owner::Application {
                let nearer = entry.1.as_ref().is_none_or(|known| place.line < known.line);
                *entry = (
                    Owner::Application,
                    Some(place).filter(|_| nearer).or(entry.1.take()),
                );
            } else if entry.0 == Owner::Plumbing {
                entry.0 = owner;
            }
        }
        found
    }

    /// Whose a function is, and a place in it where it is the application's and may panic.
    #[must_use]
    pub fn of(&self, function: u64) -> (Owner, Option<&Place>) {
        let before = self.functions.range(..=function).next_back();
        let after = self.functions.range(function..).next();
        let (known, (owner, place)) = match (before, after) {
            (Some(before), Some(after)) if after.0 - function < function - before.0 => after,
            (Some(near), _) | (None, Some(near)) => near,
            (None, None) => return (Owner::Unknown, None),
        };
        (*owner, place.as_ref().filter(|_| *known == function))
    }
}

/// Where the code loads the address of something: the end of the instruction, and how far from there.
#[cfg(target_arch = "x86_64")]
fn addresses(code: &[u8]) -> impl Iterator<Item = (usize, i64)> {
    // lea register, [rip + offset]: REX.W, with or without REX.R
    code.windows(7).enumerate().filter_map(|(at, bytes)| {
        let is_lea = matches!(bytes[0], 0x48 | 0x4c) && bytes[1] == 0x8d && bytes[2] & 0xc7 == 0x05;
        let offset = i32::from_le_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]);
        is_lea.then_some((at + 7, offset.into()))
    })
}

/// Addresses are loaded in two parts there, which are not read.
#[cfg(not(target_arch = "x86_64"))]
fn addresses(_code: &[u8]) -> impl Iterator<Item = (usize, i64)> {
    std::iter::empty()
}

/// The structure at an address, if it may be a location: the address and the length of a path, a line, a column.
fn location(memory: Memory, address: u64) -> Option<Place> {
    let mut bytes = [0; 24];
    if memory.read(address, &mut bytes) != bytes.len() {
        return None;
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (path, length) = (word(0), word(8));
    let (line, column) = (half(16), half(20));
    // The path may be followed by a zero, which the length does not count.
    if !(4..=LONGEST).contains(&length)
        || line == 0
        || line > 1_000_000
        || column == 0
        || column > 100_000
    {
        return None;
    }
    let mut text = vec![0; length as usize];
    if memory.read(path, &mut text) != text.len() || !text.ends_with(b".rs") {
        return None;
    }
    let file = String::from_utf8(text).ok()?;
    Some(Place { file, line })
}

/// Whose code a file is.
fn owner_of(file: &str) -> Owner {
    if owner::is_application("", Some(file)) && !file.starts_with("library/") {
        Owner::Application
    } else if owner::is_library("", Some(file)) {
        Owner::Library
    } else {
        Owner::Plumbing
    }
}
