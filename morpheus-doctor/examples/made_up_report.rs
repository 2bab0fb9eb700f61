//! Writes made-up reports as HTML into a directory (`target/made-up` if none is given), to look at.

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::PathBuf;
use std::{env, fs, io};

use morpheus_doctor::report::html;

fn main() -> io::Result<()> {
    let directory = env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("target/made-up"), PathBuf::from);
    fs::create_dir_all(&directory)?;
    let reports = [
        ("service", common::service()),
        ("healthy", common::healthy()),
        ("harmless", common::harmless()),
        ("stripped", common::stripped()),
        ("hostile", common::hostile()),
        ("huge", common::huge()),
    ];
    for (name, report) in reports {
        let path = directory.join(format!("{name}.html"));
        html::write(&report, &mut fs::File::create(&path)?)?;
        println!("{} {} bytes", path.display(), fs::metadata(&path)?.len());
    }
    Ok(())
}
