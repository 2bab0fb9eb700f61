//! Names and lines for addresses, and which frame is the application's.
//!
//! `backtrace` reads the program's own line tables, if it has any: with
//!
//! ```toml
//! [profile.release]
//! debug = "line-tables-only"
//! ```
//!
//! they cost nothing at run time, and without them there are names of functions only.
//!
//! (Such a profile has a function's own name only, `poll` and not `app::Task::poll`: the line says which.)

use std::ffi::c_void;

use super::walk::Address;
use crate::Frame;
use crate::owner::is_application;

/// The functions at an address, innermost first: those that were inlined there, and the one that has it.
pub(crate) fn frames_at(address: &Address) -> Vec<Frame> {
    // `backtrace` takes what it gets for a return address, and looks one before.
    let at = address.address.wrapping_add(u64::from(!address.is_return));
    let mut frames: Vec<Frame> = Vec::new();
    backtrace::resolve(at as *mut c_void, |symbol| {
        // Without the hash.
        let function = match symbol.name() {
            Some(name) => format!("{name:#}"),
            None => format!("{:#x}", address.address),
        };
        frames.push(Frame {
            is_application: false,
            function,
            file: symbol.filename().map(|file| file.display().to_string()),
            line: symbol.lineno(),
            searched: address.searched,
        });
    });
    if frames.is_empty() {
        frames.push(Frame {
            is_application: false,
            function: format!("{:#x}", address.address),
            file: None,
            line: None,
            searched: address.searched,
        });
    }
    for frame in &mut frames {
        frame.is_application = is_application(&frame.function, frame.file.as_deref());
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_line_is_found() {
        let (mut file, mut line, expected) = (None, None, line!() + 3);
        let mut addresses = Vec::new();
        backtrace::trace(|frame| {
            addresses.push(frame.ip() as u64); // line!() + 3 is the call of `trace`, two above
            true
        });
        for address in addresses {
            for frame in frames_at(&Address {
                address,
                is_return: true,
                searched: false,
            }) {
                if frame.function.contains("this_line_is_found")
                    && !frame.function.contains("closure")
                {
                    (file, line) = (frame.file, frame.line);
                }
            }
        }
        assert!(file.is_some_and(|file| file.ends_with("symbols.rs")));
        assert!(
            line.is_some_and(|line| line.abs_diff(expected) <= 1),
            "{line:?} {expected}"
        );
    }
}
