// SPDX-License-Identifier: GPL-2.0-only
//! The manual and the completions, made from the command line's own definition, so that they cannot differ from it.

use std::io;

use clap::CommandFactory;
use clap_complete::Shell;
use morpheus_bpf::install::{Document, DocumentKind};

use crate::arguments::Arguments;

/// The page of the program itself.
pub(crate) fn page() -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
    Ok(page)
}

/// A page for the program and for each command, with the names of their files.
pub(crate) fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    fn add(command: clap::Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        for sub in shown.cloned().collect::<Vec<_>>() {
            add(sub, pages)?;
        }
        let page = clap_mangen::Man::new(command);
        let mut text = Vec::new();
        page.render(&mut text)?;
        pages.push((page.get_filename(), text));
        Ok(())
    }
    let mut pages = Vec::new();
    let mut command = Arguments::command().disable_help_subcommand(true);
    // Gives the commands the names of their pages.
    command.build();
    add(command, &mut pages)?;
    Ok(pages)
}

/// The completions of a shell.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    // clap_complete panics where its output is closed, so that it writes into memory.
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut Arguments::command(),
        "scx_morpheus",
        &mut script,
    );
    script
}

/// All that an install puts beside the program.
pub(crate) fn all() -> io::Result<Vec<Document>> {
    let shells = [
        (Shell::Bash, DocumentKind::Bash, "scx_morpheus"),
        (Shell::Zsh, DocumentKind::Zsh, "_scx_morpheus"),
        (Shell::Fish, DocumentKind::Fish, "scx_morpheus.fish"),
    ];
    let scripts = shells.map(|(shell, kind, name)| Document {
        kind,
        name: name.to_owned(),
        content: completions(shell),
    });
    let pages = pages()?.into_iter().map(|(name, content)| Document {
        kind: DocumentKind::Manual,
        name,
        content,
    });
    Ok(scripts.into_iter().chain(pages).collect())
}
