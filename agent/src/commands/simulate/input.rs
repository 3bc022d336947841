//! Inputs from a CSV file: header `name,zone1,zone2,...`, cells `nodes endpoints`.
//!
//! A row that cannot be used becomes a [`Problem`] that names its line and column; the others
//! still count. Only a header that makes no sense ends it all.

use anyhow::{Result, bail, ensure};
use std::fmt;
use std::num::IntErrorKind;
use zw_topology::{Input, MAX_TOTAL, Zone};

/// One input and what to call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedInput {
    /// Name in every output, such as a Service's namespace and name.
    pub(crate) name: String,
    /// Its zones.
    pub(crate) zones: Input,
}

/// What a file holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    pub(super) inputs: Vec<NamedInput>,
    pub(super) problems: Vec<Problem>,
}

/// Why a row was skipped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    line: usize,
    /// Number and heading of the column, if a single one is to blame.
    column: Option<(usize, String)>,
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some((number, heading)) = &self.column {
            write!(f, ", column {number} ({heading})")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Reads a whole file.
pub(super) fn parse(bytes: &[u8]) -> Result<File> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut lines = bytes
        .split(|&byte| byte == b'\n')
        .enumerate()
        .map(|(index, line)| (index + 1, line.strip_suffix(b"\r").unwrap_or(line)))
        .filter(|(_, line)| !line.trim_ascii().is_empty());
    let Some((line, header)) = lines.next() else {
        bail!("empty, expected a header `name,zone1,zone2,...`");
    };
    let zones = parse_header(line, header)?;
    let mut file = File::default();
    for (line, row) in lines {
        match parse_row(line, row, &zones) {
            Ok(input) => file.inputs.push(input),
            Err(problem) => file.problems.push(problem),
        }
    }
    ensure!(
        !file.inputs.is_empty() || !file.problems.is_empty(),
        "no rows after the header on line {line}"
    );
    Ok(file)
}

/// The zone names.
fn parse_header(line: usize, header: &[u8]) -> Result<Vec<String>> {
    let Ok(header) = std::str::from_utf8(header) else { bail!("line {line}: not UTF-8") };
    let mut headings = split(header).map_err(|what| anyhow::anyhow!("line {line}: {what}"))?;
    let first = headings.remove(0);
    ensure!(first == "name", "line {line}, column 1: heading is {first:?}, expected \"name\"");
    ensure!(!headings.is_empty(), "line {line}: no zone columns after \"name\"");
    for (index, heading) in headings.iter().enumerate() {
        let column = index + 2;
        ensure!(!heading.is_empty(), "line {line}, column {column}: zone without a name");
        ensure!(
            !headings[..index].contains(heading),
            "line {line}, column {column}: zone {heading:?} is listed twice"
        );
    }
    Ok(headings)
}

fn parse_row(line: usize, row: &[u8], zones: &[String]) -> Result<NamedInput, Problem> {
    let problem = |column, what| Problem { line, column, what };
    let row = std::str::from_utf8(row).map_err(|_| problem(None, "not UTF-8".into()))?;
    let mut cells = split(row).map_err(|what| problem(None, what))?;
    let name = cells.remove(0);
    let mut parsed = Vec::with_capacity(zones.len());
    for (index, zone) in zones.iter().enumerate() {
        let column = || Some((index + 2, zone.clone()));
        let Some(cell) = cells.get(index) else {
            let what = format!("missing, the row ends after {} columns", cells.len() + 1);
            return Err(problem(column(), what));
        };
        let (nodes, endpoints) = parse_cell(cell).map_err(|what| problem(column(), what))?;
        parsed.push(Zone { name: zone.clone(), nodes, endpoints });
    }
    if let Some(extra) = cells.get(zones.len()) {
        let column = Some((zones.len() + 2, "no heading".into()));
        return Err(problem(column, format!("{extra:?} is one cell too many")));
    }
    let zones = Input::new(parsed).map_err(|error| problem(None, error.to_string()))?;
    Ok(NamedInput { name, zones })
}

/// `nodes endpoints`
fn parse_cell(cell: &str) -> Result<(u32, u32), String> {
    let numbers: Vec<&str> = cell.split_whitespace().collect();
    let [nodes, endpoints] = numbers[..] else {
        return Err(format!("{cell:?} is not `nodes endpoints`"));
    };
    let number = |text: &str, what: &str| match text.parse::<u32>() {
        Ok(number) => Ok(number),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
            Err(format!("{what} {text:?} is not a whole number up to {MAX_TOTAL}"))
        }
        Err(_) => Err(format!("{what} {text:?} is not a whole number from 0 up")),
    };
    Ok((number(nodes, "node count")?, number(endpoints, "endpoint count")?))
}

/// Cells of one line, trimmed; a cell in double quotes may hold commas and doubled quotes.
fn split(line: &str) -> Result<Vec<String>, String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' if quoted || cell.trim().is_empty() => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell).trim().to_owned()),
            other => cell.push(other),
        }
    }
    if quoted {
        return Err("a quoted cell does not end".into());
    }
    cells.push(cell.trim().to_owned());
    Ok(cells)
}

#[cfg(test)]
mod tests;
