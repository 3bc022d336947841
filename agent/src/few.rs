//! A list for people that may be long.

/// How many are named where there are more.
const NAMED: usize = 5;

/// The first of them, and how many more there are.
pub(crate) fn first_few(all: &[impl ToString]) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    let more = all.len() - named.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", named.join("; "))
}

#[cfg(test)]
mod tests {
    use super::first_few;

    #[test]
    fn all_are_named_while_they_are_few() {
        assert_eq!(first_few(&["a", "b"]), "a; b");
        assert_eq!(first_few(&[1, 2, 3, 4, 5]), "1; 2; 3; 4; 5");
        assert_eq!(first_few(&[1, 2, 3, 4, 5, 6, 7]), "1; 2; 3; 4; 5; and 2 more");
    }
}
