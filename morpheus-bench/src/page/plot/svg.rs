//! A drawing as SVG: inside a page, coloured by the page's style sheet, or as a picture that stands alone.

use std::fmt::Write;

use super::drawing::{Anchor, Drawing, Ink, MARK, Place, Shape, corners};
use super::font::Weight;
use super::palette::{class, rules};
use crate::page::html::escape;

/// How shapes are painted, in the colour of their class.
pub const STYLE: &str = ".f{fill:currentColor}.l{fill:none;stroke:currentColor;stroke-linejoin:round;stroke-linecap:round}\
    .d{stroke-dasharray:4 4}.h{fill:#fff;stroke:currentColor;stroke-width:1.8}";

/// A file, black on white.
pub fn alone(drawing: &Drawing, title: &str) -> String {
    let head = format!(
        "<style>{STYLE}{}</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>",
        rules(false)
    );
    let namespace = " xmlns=\"http://www.w3.org/2000/svg\" font-family=\"DejaVu Sans,sans-serif\"";
    element(drawing, title, namespace, &head) + "\n"
}

/// The element; `title` is read out instead of it.
pub fn render(drawing: &Drawing, title: &str) -> String {
    element(drawing, title, "", "")
}

fn element(drawing: &Drawing, title: &str, attributes: &str, head: &str) -> String {
    let (width, height) = (number(drawing.width), number(drawing.height));
    let mut text = format!(
        "<svg{attributes} viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{}\">{head}",
        escape(title)
    );
    for shape in &drawing.shapes {
        add(&mut text, shape);
    }
    text += "</svg>";
    text
}

fn add(text: &mut String, shape: &Shape) {
    let _ = match shape {
        Shape::Line {
            points,
            ink,
            thick,
            dashed,
        } => {
            let kind = if *dashed { "l d" } else { "l" };
            let (class, thick) = (class(*ink), number(*thick));
            write!(
                text,
                "<polyline class=\"{kind} {class}\" stroke-width=\"{thick}\" points=\"{}\"/>",
                list(points)
            )
        }
        Shape::Bar { at, size, ink } => write!(
            text,
            "<rect class=\"f {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            class(*ink),
            number(at.0),
            number(at.1),
            number(size.0),
            number(size.1)
        ),
        Shape::Mark {
            at,
            ink,
            hollow,
            tip,
        } => {
            let kind = if *hollow { "h" } else { "f" };
            let tip = match tip.as_str() {
                "" => String::new(),
                tip => format!("<title>{}</title>", escape(tip)),
            };
            write!(
                text,
                "<g class=\"{kind} {}\">{}{tip}</g>",
                class(*ink),
                mark(*at, *ink)
            )
        }
        Shape::Text {
            at,
            text: line,
            size,
            weight,
            anchor,
            ink,
        } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let weight = match weight {
                Weight::Regular => "",
                Weight::Bold => " font-weight=\"600\"",
            };
            write!(
                text,
                "<text class=\"f {}\" x=\"{}\" y=\"{}\" font-size=\"{}\"{anchor}{weight}>{}</text>",
                class(*ink),
                number(at.0),
                number(at.1),
                number(*size),
                escape(line)
            )
        }
    };
}

fn mark(at: Place, ink: Ink) -> String {
    let slot = match ink {
        Ink::Series(slot) => slot,
        _ => 0,
    };
    let corners = corners(slot);
    if corners.is_empty() {
        return format!(
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\"/>",
            number(at.0),
            number(at.1),
            number(MARK)
        );
    }
    let points: Vec<Place> = corners.iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
    format!("<polygon points=\"{}\"/>", list(&points))
}

fn list(points: &[Place]) -> String {
    let pairs: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{},{}", number(*x), number(*y)))
        .collect();
    pairs.join(" ")
}

/// To a tenth of what a screen can show.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_numbers_are_short() {
        let mut drawing = Drawing::new(10.0);
        let nasty = "</svg><script>alert('&\")</script>";
        drawing.text((1.0, 2.25), nasty, 12.0, Anchor::End, Ink::Text);
        drawing.mark((1.0, 2.0), 0, true, nasty.into());
        drawing.mark((1.0, 2.0), 1, false, String::new());
        drawing.line(vec![(0.0, 1.04), (2.0, 3.0)], Ink::Grid, 1.0);
        let text = render(&drawing, nasty);
        assert!(!text.contains("<script") && text.matches("</svg>").count() == 1);
        assert!(
            text.contains("points=\"0,1 2,3\"") && text.contains("&lt;script&gt;"),
            "{text}"
        );
        assert!(text.contains("<circle") && text.contains("<polygon"));
        let alone = alone(&drawing, nasty);
        assert!(!alone.contains("<script") && alone.ends_with("</svg>\n"));
        assert!(
            alone.contains(".s0{color:") && alone.contains("xmlns="),
            "{alone}"
        );
    }
}
