use super::*;

fn problems(text: &str) -> Vec<String> {
    parse(text.as_bytes()).unwrap().problems.iter().map(ToString::to_string).collect()
}

fn refusal(text: &str) -> String {
    parse(text.as_bytes()).unwrap_err().to_string()
}

fn names(file: &File) -> Vec<&str> {
    file.inputs.iter().map(|input| input.name.as_str()).collect()
}

#[test]
fn rows_become_inputs() {
    let file = parse(b"name,a,b\nweb/api, 3 12,1  4\n\n\"x, \"\"y\"\"\",0 0,\"2 5\"\r\n").unwrap();
    assert_eq!(file.problems, []);
    assert_eq!(names(&file), ["web/api", "x, \"y\""]);
    let zone = |name: &str, nodes, endpoints| Zone { name: name.into(), nodes, endpoints };
    let want = Input::new(vec![zone("a", 3, 12), zone("b", 1, 4)]).unwrap();
    assert_eq!(file.inputs[0].zones, want);
}

#[test]
fn bad_cells_are_named_and_good_rows_kept() {
    let text = "name,a,b\nneg,-1 2,1 1\nword,1 1,two 2\nhalf,1.5 1,1 1\none,1 1,1\nnone,1 1,\n\
                huge,99999999999 1,1 1\nsum,999999 1,2 1\ngood,1 1,1 1\n";
    let file = parse(text.as_bytes()).unwrap();
    assert_eq!(names(&file), ["good"]);
    assert_eq!(
        problems(text),
        [
            "line 2, column 2 (a): node count \"-1\" is not a whole number from 0 up",
            "line 3, column 3 (b): node count \"two\" is not a whole number from 0 up",
            "line 4, column 2 (a): node count \"1.5\" is not a whole number from 0 up",
            "line 5, column 3 (b): \"1\" is not `nodes endpoints`",
            "line 6, column 3 (b): \"\" is not `nodes endpoints`",
            "line 7, column 2 (a): node count \"99999999999\" is not a whole number up to 1000000",
            "line 8: more than 1000000 nodes in all zones together",
        ]
    );
}

#[test]
fn ragged_rows_are_named() {
    assert_eq!(
        problems("name,a,b\nshort,1 1\nlong,1 1,1 1,1 1\n\"open,1 1,1 1\n"),
        [
            "line 2, column 3 (b): missing, the row ends after 2 columns",
            "line 3, column 4 (no heading): \"1 1\" is one cell too many",
            "line 4: a quoted cell does not end",
        ]
    );
}

#[test]
fn a_line_that_is_not_text_is_named() {
    let file = parse(b"name,a\nx,\xff\xff\ny,1 1\n").unwrap();
    assert_eq!(names(&file), ["y"]);
    assert_eq!(file.problems[0].to_string(), "line 2: not UTF-8");
}

#[test]
fn a_file_without_inputs_is_refused() {
    assert_eq!(refusal(""), "empty, expected a header `name,zone1,zone2,...`");
    assert_eq!(refusal(" \n\n"), "empty, expected a header `name,zone1,zone2,...`");
    assert_eq!(refusal("name,a\n"), "no rows after the header on line 1");
    assert_eq!(refusal("name\nx\n"), "line 1: no zone columns after \"name\"");
    assert_eq!(refusal("a,b\nx,1 1\n"), "line 1, column 1: heading is \"a\", expected \"name\"");
    assert_eq!(refusal("name,a,,b\n"), "line 1, column 3: zone without a name");
    assert_eq!(refusal("name,a,a\n"), "line 1, column 3: zone \"a\" is listed twice");
}

#[test]
fn one_zone_and_a_hundred_zones_are_fine() {
    let wide = |cell: &str| vec![cell; 100].join(",");
    let header = (0..100).map(|z| format!("z{z}")).collect::<Vec<_>>().join(",");
    let file = parse(format!("name,{header}\nx,{}\n", wide("3 7")).as_bytes()).unwrap();
    assert_eq!(file.inputs[0].zones.counts().len(), 100);
    assert_eq!(names(&parse(b"\xef\xbb\xbfname,a\nx,1 5\n").unwrap()), ["x"]);
}
