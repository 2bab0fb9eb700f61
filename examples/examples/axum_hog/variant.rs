//! The variants that are compared: a runtime, and how the handler is written for it.

use std::io;
use std::net::TcpListener;

use argon2::Argon2;
use axum::Router;
use clap::ValueEnum;
use morpheus_bench::code::Code;
use morpheus_bench::flagged;
use morpheus_bench::tuned::{self, MORE_WORKERS};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::app;
use crate::options::Options;

/// One way to serve the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Variant {
    #[value(name = "tokio")]
    #[serde(rename = "tokio")]
    Tokio,
    #[value(name = "tokio+32+slice")]
    #[serde(rename = "tokio+32+slice")]
    TokioMoreSlice,
    #[value(name = "tokio-tuned")]
    #[serde(rename = "tokio-tuned")]
    Tuned,
    #[value(name = "tokio-in-place")]
    #[serde(rename = "tokio-in-place")]
    InPlace,
    #[value(name = "tokio-rewritten")]
    #[serde(rename = "tokio-rewritten")]
    Rewritten,
    #[value(name = "tokio+slice-rewritten")]
    #[serde(rename = "tokio+slice-rewritten")]
    RewrittenSlice,
    #[value(name = "tokio-bounded")]
    #[serde(rename = "tokio-bounded")]
    Bounded,
    #[value(name = "morpheus")]
    #[serde(rename = "morpheus")]
    Morpheus,
    #[value(name = "morpheus+layer")]
    #[serde(rename = "morpheus+layer")]
    MorpheusLayer,
    #[value(name = "morpheus+flag")]
    #[serde(rename = "morpheus+flag")]
    MorpheusFlag,
}

impl Variant {
    /// All variants, in the order of the table.
    pub const ALL: [Variant; 10] = [
        Variant::Tokio,
        Variant::TokioMoreSlice,
        Variant::Tuned,
        Variant::InPlace,
        Variant::Rewritten,
        Variant::RewrittenSlice,
        Variant::Bounded,
        Variant::Morpheus,
        Variant::MorpheusLayer,
        Variant::MorpheusFlag,
    ];

    /// The name on the command line and in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Tokio => "tokio",
            Variant::TokioMoreSlice => "tokio+32+slice",
            Variant::Tuned => "tokio-tuned",
            Variant::InPlace => "tokio-in-place",
            Variant::Rewritten => "tokio-rewritten",
            Variant::RewrittenSlice => "tokio+slice-rewritten",
            Variant::Bounded => "tokio-bounded",
            Variant::Morpheus => "morpheus",
            Variant::MorpheusLayer => "morpheus+layer",
            Variant::MorpheusFlag => "morpheus+flag",
        }
    }

    /// The runtime, as the table calls it.
    pub fn runtime(self) -> &'static str {
        match self {
            Variant::InPlace | Variant::Rewritten | Variant::Bounded => "tokio",
            Variant::RewrittenSlice => "tokio+slice",
            Variant::Tuned => "tokio, tuned",
            Variant::MorpheusFlag => "morpheus, one flag",
            Variant::Tokio
            | Variant::TokioMoreSlice
            | Variant::Morpheus
            | Variant::MorpheusLayer => self.name(),
        }
    }

    /// How the handlers are written.
    pub fn handler(self) -> Code {
        match self {
            Variant::Rewritten | Variant::RewrittenSlice => Code::SpawnBlocking,
            Variant::Bounded => Code::Bounded,
            Variant::InPlace => Code::InPlace,
            Variant::Tokio
            | Variant::TokioMoreSlice
            | Variant::Tuned
            | Variant::Morpheus
            | Variant::MorpheusLayer
            | Variant::MorpheusFlag => Code::Inline,
        }
    }

    /// Whether the variant needs a program that was built with `--cfg tokio_unstable`.
    pub fn needs_flag(self) -> bool {
        matches!(self, Variant::Tuned | Variant::MorpheusFlag)
    }

    fn builder(self, workers: usize) -> io::Result<tokio::runtime::Builder> {
        let more = match self {
            Variant::TokioMoreSlice | Variant::Tuned => MORE_WORKERS,
            _ => 0,
        };
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(workers + more).enable_all();
        match self {
            Variant::TokioMoreSlice | Variant::RewrittenSlice => {
                tuned::shorten_slices(&mut builder);
            }
            Variant::Tuned => tuned::tune(&mut builder).map_err(io::Error::other)?,
            _ => {}
        }
        Ok(builder)
    }

    /// Starts the app on a runtime. The runtime is never dropped: that would wait for
    /// polls under way, and the process ends anyway.
    pub fn serve(
        self,
        listener: TcpListener,
        options: &Options,
        hasher: Argon2<'static>,
    ) -> io::Result<()> {
        let workers = options.workers();
        let app = app::router(self.handler(), hasher, options.computes(), workers);
        match self {
            Variant::Morpheus | Variant::MorpheusLayer | Variant::MorpheusFlag => {
                let app = match self {
                    Variant::MorpheusLayer => app::watched(app),
                    _ => app,
                };
                if self == Variant::MorpheusFlag {
                    flagged::require().map_err(io::Error::other)?;
                }
                let mut builder = morpheus_runtime::Builder::new_multi_thread();
                builder.worker_threads(workers);
                if let Some(spares) = options.spares {
                    builder.max_spares(spares);
                }
                let runtime = builder.build()?;
                serve_on(runtime.handle(), listener, app)?;
                std::mem::forget(runtime);
            }
            _ => {
                let runtime = self.builder(workers)?.build()?;
                serve_on(runtime.handle(), listener, app)?;
                std::mem::forget(runtime);
            }
        }
        Ok(())
    }
}

/// The same for every runtime, because each is a tokio runtime.
fn serve_on(runtime: &Handle, listener: TcpListener, app: Router) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let _context = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    runtime.spawn(async move { axum::serve(listener, app).await });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood() {
        for variant in Variant::ALL {
            assert_eq!(Variant::from_str(variant.name(), false), Ok(variant));
            let json = serde_json::to_string(&variant).unwrap();
            assert_eq!(json, format!("{:?}", variant.name()));
        }
    }
}
