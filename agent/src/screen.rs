//! How text for people is laid out: colour, width, columns. Knows nothing of Services.

use std::env;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;

/// Narrower than this nothing can be laid out, so it is not tried.
const NARROWEST: usize = 40;

/// When to use colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal that has them, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// What text means, rather than what colour it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Title,
    Good,
    Bad,
    Doubtful,
    Faint,
}

/// Where text goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    /// Where lines are broken; `None`: nowhere.
    pub(crate) width: Option<usize>,
    pub(crate) colour: bool,
}

/// A piece of a line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

pub(crate) fn cell(text: impl Into<String>) -> Cell {
    Cell { text: text.into(), tone: Tone::Plain }
}

impl Cell {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn toned(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

impl Screen {
    /// Standard output as it is: COLUMNS counts before the terminal's own width, and what is no terminal
    /// has no width.
    pub(crate) fn standard(colour: Colour) -> Self {
        let colour = match colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => {
                anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
            }
        };
        let told = env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let terminal = || {
            let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
            Some(usize::from(size.ws_col))
        };
        let width = told.or_else(terminal).filter(|width| *width >= NARROWEST);
        Self { width, colour }
    }

    /// Text in a tone.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        let style = match tone {
            _ if !self.colour || text.is_empty() => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Title => Style::new().bold(),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Bad => AnsiColor::Red.on_default().bold(),
            Tone::Doubtful => AnsiColor::Yellow.on_default(),
            Tone::Faint => Style::new().dimmed(),
        };
        format!("{style}{text}{style:#}")
    }

    /// A paragraph: broken between words, all of it moved in.
    pub(crate) fn paragraph(
        &self,
        out: &mut dyn Write,
        indent: usize,
        tone: Tone,
        text: &str,
    ) -> io::Result<()> {
        for line in self.broken(indent, text) {
            writeln!(out, "{:indent$}{}", "", self.paint(tone, &line))?;
        }
        Ok(())
    }

    /// Rows in columns. The last column is broken between words where it does not fit; a column that
    /// nobody fills takes no room.
    pub(crate) fn table(
        &self,
        out: &mut dyn Write,
        indent: usize,
        rows: &[Vec<Cell>],
    ) -> io::Result<()> {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|at| rows.iter().filter_map(|row| Some(length(&row.get(at)?.text))).max())
            .map(Option::unwrap_or_default)
            .collect();
        for row in rows {
            let mut line = " ".repeat(indent);
            // Room that is only written if something follows.
            let mut gap = 0;
            let mut at = indent;
            let filled = row.iter().rposition(|cell| !cell.text.is_empty());
            for (i, cell) in row.iter().enumerate() {
                if widths[i] == 0 {
                    continue;
                }
                let last = Some(i) == filled;
                if last && i + 1 == columns {
                    let mut start = at + gap;
                    if self.width.is_some_and(|width| {
                        width < start + NARROWEST / 2 && width < start + length(&cell.text)
                    }) {
                        // Too little room beside the others: below them.
                        writeln!(out, "{line}")?;
                        start = indent + 6;
                        line = " ".repeat(start);
                    } else {
                        line += &" ".repeat(gap);
                    }
                    let mut lines = self.broken(start, &cell.text).into_iter();
                    line += &self.paint(cell.tone, &lines.next().unwrap_or_default());
                    for more in lines {
                        writeln!(out, "{line}")?;
                        line = format!("{:start$}{}", "", self.paint(cell.tone, &more));
                    }
                    break;
                }
                if !cell.text.is_empty() {
                    line += &" ".repeat(gap);
                    at += gap;
                    gap = 0;
                    line += &self.paint(cell.tone, &cell.text);
                }
                let used = length(&cell.text);
                at += used;
                gap += widths[i] - used + 2;
                if last {
                    break;
                }
            }
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    /// Text in lines that fit behind `start` columns; words that are too long by themselves stay whole.
    fn broken(&self, start: usize, text: &str) -> Vec<String> {
        let Some(room) = self.width.map(|width| width.saturating_sub(start).max(NARROWEST / 2))
        else {
            return vec![text.to_owned()];
        };
        if length(text) <= room {
            return vec![text.to_owned()];
        }
        let mut lines = vec![String::new()];
        for word in text.split(' ') {
            let line = lines.last_mut().expect("there is always one");
            if !line.is_empty() && length(line) + 1 + length(word) > room {
                lines.push(word.to_owned());
            } else {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        lines
    }
}

fn length(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// A number with its noun.
pub(crate) fn count(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(width: Option<usize>, rows: &[Vec<Cell>]) -> String {
        let mut out = Vec::new();
        Screen { width, colour: false }.table(&mut out, 2, rows).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_take_no_room() {
        let rows = [
            vec![cell("a"), cell(""), cell("one"), cell("first")],
            vec![cell("bbb"), cell(""), cell(""), cell("second")],
            vec![cell("c")],
        ];
        let want = "  a    one  first\n  bbb       second\n  c\n";
        assert_eq!(lines(None, &rows), want);
    }

    #[test]
    fn the_last_column_is_broken_where_the_screen_ends() {
        let text = "words that need more room than there is on a line of forty columns";
        let rows = [vec![cell("name"), cell(text)], vec![cell("x"), cell("short")]];
        let want = "  name  words that need more room than\n        there is on a line of forty\n        \
                    columns\n  x     short\n";
        assert_eq!(lines(Some(40), &rows), want);
        assert!(lines(None, &rows).starts_with(&format!("  name  {text}\n")));
    }

    #[test]
    fn a_last_column_without_room_goes_below() {
        let rows = [vec![cell("a name that takes almost all of it"), cell("with some words more")]];
        let want = "  a name that takes almost all of it\n        with some words more\n";
        assert_eq!(lines(Some(40), &rows), want);
    }

    #[test]
    fn colour_wraps_text_and_nothing_else() {
        let screen = Screen { width: None, colour: true };
        assert_eq!(screen.paint(Tone::Good, "in"), "\u{1b}[32min\u{1b}[0m");
        assert_eq!(screen.paint(Tone::Good, ""), "");
        assert_eq!(screen.paint(Tone::Plain, "in"), "in");
    }
}
