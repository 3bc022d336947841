use super::*;
use clap::Parser;
use zw_topology::{Input, Zone};

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    args: SimulateArgs,
}

fn args(line: &str) -> Result<SimulateArgs, clap::Error> {
    let words = std::iter::once("simulate").chain(line.split_whitespace());
    Cli::try_parse_from(words).map(|cli| cli.args)
}

fn labels(line: &str) -> Vec<String> {
    args(line).unwrap().with.variants().iter().map(ToString::to_string).collect()
}

fn named(name: &str, zones: &[(&str, u32, u32)]) -> NamedInput {
    let zone =
        |&(name, nodes, endpoints): &(&str, u32, u32)| Zone { name: name.into(), nodes, endpoints };
    let zones = Input::new(zones.iter().map(zone).collect()).unwrap();
    NamedInput { name: name.into(), zones }
}

fn show(inputs: &[NamedInput], line: &str) -> String {
    let mut out = Vec::new();
    let args = args(&format!("--dataset small {line}")).unwrap();
    run_named("test", inputs, &args.with, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn algorithms_run_once_each_in_their_usual_order() {
    let all = ["balanced", "local", "local-shared", "local-weighted", "local-opt", "fair"];
    assert_eq!(labels("--dataset small"), all);
    assert_eq!(labels("--dataset small --algorithm fair,local,fair"), ["local", "fair"]);
    assert_eq!(
        labels("--dataset small --algorithm local,fair --starting-threshold 3,1"),
        ["local-1x", "local-3x", "fair"]
    );
}

#[test]
fn there_is_exactly_one_source() {
    assert!(args("").is_err());
    assert!(args("--dataset small --input x.csv").is_err());
    assert!(args("--churn --dataset small").is_err());
    assert!(args("--dataset medium").unwrap_err().to_string().contains("large or small"));
    assert!(args("--dataset small --algorithm locale").unwrap_err().to_string().contains("fair"));
}

#[test]
fn csv_has_a_line_for_every_input_and_algorithm() {
    let inputs = [
        named("web, api", &[("a", 1, 5), ("b", 1, 3), ("c", 1, 2)]),
        named("idle", &[("a", 1, 0), ("b", 1, 0)]),
    ];
    assert_eq!(
        show(&inputs, "--algorithm balanced,local -o csv"),
        "name,algorithm,nodes,endpoints,total,in_zone,overload,slices,max_overload,mean_overload,\
         groups,note\n\
         \"web, api\",balanced,3,10,70.0000,33.3333,100.0000,100.0000,0.000000,0.000000,balanced,\n\
         \"web, api\",local,3,10,80.1111,88.8889,87.7778,33.3333,0.111111,0.133333,\
         a[a:4] b[b:3] c[a:1 c:2],\n\
         idle,balanced,2,0,,,,,,,balanced,no endpoints\n\
         idle,local,2,0,,,,,,,balanced,no endpoints\n"
    );
}

#[test]
fn json_carries_means_and_inputs() {
    let inputs = [named("x", &[("a", 1, 6), ("b", 1, 4)]), named("y", &[("a", 0, 1)])];
    let json: serde_json::Value =
        serde_json::from_str(&show(&inputs, "--algorithm fair -o json")).unwrap();
    assert_eq!(json["algorithms"][0]["algorithm"], "fair");
    assert_eq!(json["algorithms"][0]["inputs"], 2);
    assert_eq!(json["algorithms"][0]["unscored"], 1);
    assert_eq!(json["inputs"][0]["groups"], "a[a:5] b[a:1 b:4]");
    assert_eq!(json["inputs"][1]["note"], "no nodes");
}

#[test]
fn a_bad_row_is_reported_after_the_good_ones_were_scored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.csv");
    std::fs::write(&path, "name,a,b\nbad,x 1,1 1\ngood,1 6,1 6\n").unwrap();
    let mut out = Vec::new();
    let line = format!("--input {} --algorithm local -o csv", path.display());
    let error = run(args(&line).unwrap(), &mut out).unwrap_err().to_string();
    assert!(error.ends_with("in.csv: 1 of 2 rows could not be used"), "{error}");
    assert!(String::from_utf8(out).unwrap().contains("\ngood,local,2,12,92.5000,"));
}

#[test]
fn the_picture_shows_every_algorithm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.svg");
    let inputs = [named("x", &[("a", 1, 6), ("b", 1, 4)]), named("<y>", &[("a", 2, 700)])];
    show(&inputs, &format!("--plot {}", path.display()));
    let svg = std::fs::read_to_string(path).unwrap();
    for algorithm in Algorithm::all() {
        assert_eq!(svg.matches(&format!(">{algorithm}</text>")).count(), 2, "{algorithm}");
    }
    assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let nothing = [named("idle", &[("a", 1, 0)])];
    show(&nothing, &format!("--plot {}", dir.path().join("none.svg").display()));
    let svg = std::fs::read_to_string(dir.path().join("none.svg")).unwrap();
    assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn a_closed_output_ends_the_run_with_the_io_error() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = run(args("--dataset small -o csv").unwrap(), &mut Closed).unwrap_err();
    let cause = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    assert_eq!(cause, Some(std::io::ErrorKind::BrokenPipe));
}
