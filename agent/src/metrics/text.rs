//! The two text formats. prometheus-client writes OpenMetrics; who does not ask for that gets the older
//! one, in which a counter's type is told under its full name.

/// The content types.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(crate) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// OpenMetrics text as the older format.
pub(crate) fn plain(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut line_out = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    let mut help: Option<(&str, &str)> = None;
    for line in open.lines() {
        let comment = |word| line.strip_prefix("# ").and_then(|rest| rest.strip_prefix(word));
        if let Some(rest) = comment("HELP ") {
            // Which name it goes with is known once the type is.
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = comment("TYPE ").and_then(|rest| rest.split_once(' ')) {
            let total = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                line_out(&format!("# HELP {name}{total} {help}"));
            }
            line_out(&format!("# TYPE {name}{total} {kind}"));
        } else if line != "# EOF" && comment("UNIT ").is_none() {
            line_out(line);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_counter_is_told_under_its_full_name() {
        let open = "# HELP a_seconds Some help.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\n\
                    a_seconds_sum 1\n# HELP b Other help.\n# TYPE b counter\nb_total{x=\"y\"} 2\n# EOF\n";
        let want = "# HELP a_seconds Some help.\n# TYPE a_seconds histogram\na_seconds_sum 1\n\
                    # HELP b_total Other help.\n# TYPE b_total counter\nb_total{x=\"y\"} 2\n";
        assert_eq!(plain(open), want);
    }
}
