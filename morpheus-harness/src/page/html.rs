//! The page: one file with nothing outside of it, readable on a phone, in the dark and on paper.

use super::plot::{palette, svg};
use super::section::{Figure, Section, Table};

/// By this the program knows its own pages.
pub const GENERATOR: &str = "<meta name=\"generator\" content=\"morpheus-bench report\">";
const STYLE: &str = include_str!("style.css");
/// Of a longer table only the beginning is on the page; the file has all.
const MOST_ROWS: usize = 400;
/// Cells with more than this are text.
const LONG: usize = 48;
/// An open table with at least this many columns stands beside its plot, in the whole width of the page.
const WIDE: usize = 7;
/// Longer tables open when asked to.
const OPEN: usize = 12;

/// A section with where it is from.
pub struct Part {
    /// The file's name.
    pub file: String,
    /// The section to show.
    pub section: Section,
    /// Names of the pictures, where there are, for each figure.
    pub pictures: Vec<Option<String>>,
}

/// Everything on the page.
pub struct Page<'a> {
    /// Its title.
    pub title: &'a str,
    /// The machines, and which files are from each.
    pub machines: &'a [Machine],
    /// The sections.
    pub parts: &'a [Part],
    /// The files that could not be shown, and why.
    pub problems: &'a [(String, String)],
}

/// Facts about a machine, as names and what they are.
pub struct Machine {
    /// The facts.
    pub facts: Vec<(String, String)>,
    /// The files that say so.
    pub files: Vec<String>,
}

/// Text that is text, wherever it is put.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            // HTML has no place for them, and some turn text around.
            c if c.is_control()
                || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}') =>
            {
                safe.push(' ');
            }
            c => safe.push(c),
        }
    }
    safe
}

/// The file.
pub fn render(page: &Page) -> String {
    let title = escape(page.title);
    let (light, dark, painted) = (palette::rules(false), palette::rules(true), svg::STYLE);
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n{GENERATOR}\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}{painted}\
         {light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    );
    text += &machines(page.machines);
    text += &problems(page.problems);
    if page.parts.len() > 1 {
        text += &contents(page.parts);
    }
    for (number, part) in page.parts.iter().enumerate() {
        text += &section(number, part);
    }
    text += "</main>\n<footer>Made by <code>report</code> of Morpheus from the files named above.</footer>\n</body>\n</html>\n";
    text
}

fn machines(machines: &[Machine]) -> String {
    let mut text = "<div class=\"machines\">\n".to_owned();
    for machine in machines {
        text += "<div>";
        if machines.len() > 1 {
            text += &format!(
                "<p class=\"about\">{}</p>\n",
                escape(&machine.files.join(", "))
            );
        }
        text += "<dl class=\"facts\">";
        for (name, fact) in &machine.facts {
            text += &format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(fact));
        }
        text += "</dl></div>\n";
    }
    text + "</div>\n"
}

fn problems(problems: &[(String, String)]) -> String {
    if problems.is_empty() {
        return String::new();
    }
    let mut text =
        "<div class=\"problems\" role=\"note\"><p><strong>Not shown</strong></p>\n<ul>".to_owned();
    for (file, why) in problems {
        text += &format!("<li><code>{}</code> {}</li>", escape(file), escape(why));
    }
    text + "</ul></div>\n"
}

fn contents(parts: &[Part]) -> String {
    let mut text = "<nav aria-label=\"Contents\"><ul>".to_owned();
    for (number, part) in parts.iter().enumerate() {
        let title = escape(&part.section.title);
        let about = match &*escape(&part.section.about) {
            "" => String::new(),
            about => format!(" <span class=\"about\">{about}</span>"),
        };
        text += &format!("<li><a href=\"#part-{number}\">{title}</a>{about}</li>");
    }
    text + "</ul></nav>\n"
}

fn section(number: usize, part: &Part) -> String {
    let section = &part.section;
    let mut text = format!(
        "<section id=\"part-{number}\">\n<h2>{}</h2>\n<p class=\"about\">{}{}<code>{}</code></p>\n",
        escape(&section.title),
        escape(&section.about),
        if section.about.is_empty() { "" } else { " · " },
        escape(&part.file)
    );
    text += "<div class=\"figures\">\n";
    let mut figures = section.figures.iter().zip(&part.pictures);
    // The picture that answers the section's question, then the verdicts, then the others.
    if let Some((figure, picture)) = figures.next() {
        text += &one(figure, picture.as_deref());
    }
    text += &notes(&section.notes);
    for (figure, picture) in figures {
        text += &one(figure, picture.as_deref());
    }
    text + "</div>\n</section>\n"
}

fn notes(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items = notes
        .iter()
        .map(|note| format!("<li>{}</li>", escape(note)));
    format!("<ul class=\"notes\">{}</ul>\n", items.collect::<String>())
}

fn one(figure: &Figure, picture: Option<&str>) -> String {
    let table = figure.table.without_empty_columns();
    let wide = match &figure.plot {
        None => " class=\"alone\"",
        Some(_) if table.heads.len() >= WIDE && table.rows.len() <= OPEN => " class=\"wide\"",
        Some(_) => "",
    };
    let mut text = format!(
        "<figure{wide}>\n<figcaption><h3>{}</h3><p>{}</p></figcaption>\n",
        escape(&figure.title),
        escape(&figure.caption)
    );
    if let Some(plot) = &figure.plot {
        text += "<div class=\"plot\">";
        let spoken = format!("{}. {}", figure.title, figure.caption);
        text += &svg::render(&plot.draw(), &spoken);
        text.push('\n');
        let picture = picture.map(escape);
        let link = picture.map(|name| format!("<a class=\"svg\" href=\"{name}\" download>SVG</a>"));
        text += &link.unwrap_or_default();
        text += "</div>\n";
    }
    if !table.rows.is_empty() {
        text += &shown(&table, wide.is_empty() && table.rows.len() > 8);
    }
    text + "</figure>\n"
}

/// Long ones, and those that push the next plot away, open when asked to.
fn shown(of: &Table, is_in_the_way: bool) -> String {
    let (table, rows) = (table(of), of.rows.len());
    match is_in_the_way || rows > OPEN {
        true => format!("<details><summary>Table, {rows} rows</summary>{table}</details>\n"),
        false => table,
    }
}

/// A number stays with its unit where a cell has to break.
fn unbroken(cell: &str) -> String {
    let is_number = cell.starts_with(|c: char| c.is_ascii_digit() || c == '−');
    if is_number && cell.chars().count() < 12 {
        cell.replace(' ', "\u{A0}")
    } else {
        cell.to_owned()
    }
}

fn table(table: &Table) -> String {
    let mut text = "<div class=\"table\"><table><thead><tr>".to_owned();
    for head in &table.heads {
        text += &format!("<th scope=\"col\">{}</th>", escape(head));
    }
    text += "</tr></thead><tbody>";
    for row in table.rows.iter().take(MOST_ROWS) {
        text += "<tr>";
        for cell in row {
            let long = match cell.chars().count() > LONG {
                true => " class=\"long\"",
                false => "",
            };
            text += &format!("<td{long}>{}</td>", escape(&unbroken(cell)));
        }
        // A row that says why it has no figures has fewer cells.
        for _ in row.len()..table.heads.len() {
            text += "<td></td>";
        }
        text += "</tr>";
    }
    text += "</tbody></table></div>\n";
    if table.rows.len() > MOST_ROWS {
        text += &format!(
            "<p class=\"about\">The first {MOST_ROWS} of {} rows.</p>\n",
            table.rows.len()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const NASTY: &str = "</title><script>alert('&\")</script>\u{202E}\u{0}";

    #[test]
    fn text_is_escaped_wherever_it_comes_from() {
        let table = Table {
            heads: vec![NASTY.into()],
            rows: vec![vec![NASTY.into()], vec![]],
        };
        let figure = Figure {
            title: NASTY.into(),
            caption: NASTY.into(),
            plot: None,
            table,
        };
        let section = Section {
            title: NASTY.into(),
            about: NASTY.into(),
            host: None,
            figures: vec![figure],
            notes: vec![NASTY.into()],
        };
        let part = || Part {
            file: NASTY.into(),
            section: section.clone(),
            pictures: vec![Some(NASTY.into())],
        };
        let machine = || Machine {
            facts: vec![(NASTY.into(), NASTY.into())],
            files: vec![NASTY.into()],
        };
        let text = render(&Page {
            title: NASTY,
            machines: &[machine(), machine()],
            parts: &[part(), part()],
            problems: &[(NASTY.into(), NASTY.into())],
        });
        assert!(!text.contains("<script") && !text.contains('\u{202E}') && !text.contains('\u{0}'));
        assert_eq!(text.matches("</title>").count(), 1);
        assert!(text.contains("&lt;script&gt;alert(&#39;&amp;&quot;)"));
    }

    #[test]
    fn verdicts_stand_behind_the_first_picture_and_before_the_others() {
        let figure = |title: &str| Figure {
            title: title.into(),
            ..Figure::default()
        };
        let part = Part {
            file: "a.json".into(),
            section: Section {
                figures: vec![figure("first"), figure("second")],
                notes: vec!["a verdict".into()],
                ..Section::default()
            },
            pictures: vec![None, None],
        };
        let text = section(0, &part);
        let places = ["first", "a verdict", "second"].map(|part| text.find(part).unwrap());
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn numbers_stay_with_their_units() {
        assert_eq!(unbroken("19.5 µs"), "19.5\u{A0}µs");
        assert_eq!(unbroken("−3 ns"), "−3\u{A0}ns");
        for cell in ["n too small", "19.5 µs (18.0 µs to 20.0 µs)", ""] {
            assert_eq!(unbroken(cell), cell);
        }
    }

    #[test]
    fn a_huge_table_is_cut_and_says_so() {
        let huge = Table {
            heads: vec!["x".into()],
            rows: vec![vec!["1".into()]; 5_000],
        };
        let text = table(&huge);
        assert!(text.matches("<tr>").count() == MOST_ROWS + 1 && text.contains("of 5000 rows"));
    }
}
