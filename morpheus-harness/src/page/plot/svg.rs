//! A drawing as SVG: inside a page, coloured by the page's style sheet, or as a picture that stands alone.

use super::drawing::{Anchor, Drawing, Ink, MARK, Place, Shape, corners};
use super::font::Weight;
use super::palette::{class, rules};
use crate::page::html::escape;

/// How shapes are painted, in the colour of their class.
pub const STYLE: &str = ".f{fill:currentColor}.l{fill:none;stroke:currentColor;stroke-linejoin:round;stroke-linecap:round}\
    .d{stroke-dasharray:4 4}";

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
    text.extend(drawing.shapes.iter().map(of_shape));
    text += "</svg>";
    text
}

fn of_shape(shape: &Shape) -> String {
    match shape {
        Shape::Line {
            points,
            ink,
            thick,
            dashed,
        } => {
            let kind = if *dashed { "l d" } else { "l" };
            let (class, thick, points) = (class(*ink), number(*thick), list(points));
            format!(
                "<polyline class=\"{kind} {class}\" stroke-width=\"{thick}\" points=\"{points}\"/>"
            )
        }
        Shape::Bar { at, size, ink } => {
            let [x, y, width, height] = [at.0, at.1, size.0, size.1].map(number);
            let class = class(*ink);
            format!(
                "<rect class=\"f {class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
            )
        }
        Shape::Mark { at, slot, tip } => {
            let tip = match tip.as_str() {
                "" => String::new(),
                tip => format!("<title>{}</title>", escape(tip)),
            };
            let (class, mark) = (class(Ink::Series(*slot)), mark(*at, *slot));
            format!("<g class=\"f {class}\">{mark}{tip}</g>")
        }
        Shape::Text {
            at,
            text,
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
            let [x, y, size] = [at.0, at.1, *size].map(number);
            let (class, text) = (class(*ink), escape(text));
            format!(
                "<text class=\"f {class}\" x=\"{x}\" y=\"{y}\" font-size=\"{size}\"{anchor}{weight}>{text}</text>"
            )
        }
    }
}

fn mark(at: Place, slot: usize) -> String {
    let corners = corners(slot);
    if corners.is_empty() {
        let [x, y, radius] = [at.0, at.1, MARK].map(number);
        return format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>");
    }
    let points: Vec<Place> = corners.iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
    format!("<polygon points=\"{}\"/>", list(&points))
}

fn list(points: &[Place]) -> String {
    let pair = |(x, y): &Place| format!("{},{}", number(*x), number(*y));
    points.iter().map(pair).collect::<Vec<_>>().join(" ")
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
        drawing.mark((1.0, 2.0), 0, nasty.into());
        drawing.mark((1.0, 2.0), 1, String::new());
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
