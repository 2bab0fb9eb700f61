//! Small programs, one idea each: see `examples/`.
