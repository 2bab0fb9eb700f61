//! A page of a service's stalls, with a bar for each place where polls were stalled.

use std::fmt::Write as _;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Html;
use morpheus_runtime::{StallGroup, StallKind, Stalls};

/// The answer where the runtime is not Morpheus.
pub const NOT_WATCHED: &str =
    "This is plain tokio, which does not detect stalled polls; Morpheus has this page.\n";

/// The handler: shows the stalls of the current runtime.
///
/// # Errors
/// 501 on a runtime that is not Morpheus.
pub async fn stalls() -> Result<Html<String>, (StatusCode, &'static str)> {
    // Looking up symbol names takes a while, and would be a stall of its own.
    let stalls = tokio::task::spawn_blocking(Stalls::current).await;
    let stalls = stalls.ok().flatten();
    let stalls = stalls.ok_or((StatusCode::NOT_IMPLEMENTED, NOT_WATCHED))?;
    Ok(Html(page(&stalls)))
}

/// Renders the page: a bar for each group, in proportion to its longest poll, and the stack beneath.
#[must_use]
pub fn page(stalls: &Stalls) -> String {
    let longest = stalls.groups.iter().map(|group| group.longest).max();
    let longest = longest.unwrap_or_default().max(Duration::from_nanos(1));
    let mut html = String::from(
        "<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'><title>Stalls</title>\
         <style>body{font:15px system-ui;max-width:60em;margin:2em auto;padding:0 1em;color-scheme:light dark}\
         .bar{height:.9em;border-radius:2px}.computing{background:#d55e00}.blocked{background:#0072b2}\
         code,pre{font-size:13px;overflow-wrap:anywhere;white-space:pre-wrap}summary{cursor:pointer}</style>\
         <h1>Where polls were stalled</h1>",
    );
    if stalls.groups.is_empty() {
        html += "<p>Nowhere, so far.";
    }
    for group in &stalls.groups {
        let _ = row(&mut html, group, group.longest.div_duration_f64(longest));
    }
    html
}

fn row(html: &mut String, group: &StallGroup, share: f64) -> std::fmt::Result {
    let kind = match group.kind {
        StallKind::Blocked => "blocked",
        _ => "computing",
    };
    let line = group
        .culprit()
        .map_or("no line".into(), ToString::to_string);
    write!(
        html,
        "<h3>{}</h3><div class='bar {kind}' style='width:{:.1}%'></div>\
         <p>{kind}, {} times, {:.0} ms at the longest<br><code>{}</code><details><summary>stack</summary><pre>",
        escaped(&group.label),
        share * 100.0,
        group.count,
        group.longest.as_secs_f64() * 1e3,
        escaped(&line)
    )?;
    for frame in &group.stack {
        writeln!(html, "{}", escaped(&frame.to_string()))?;
    }
    *html += "</pre></details>";
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_and_no_text_is_taken_for_tags() {
        assert!(page(&Stalls::default()).contains("Nowhere"));
        assert_eq!(escaped("<a&b>"), "&lt;a&amp;b&gt;");
    }
}
