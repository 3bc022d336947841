//! The benchmark as a program: see `README.md` beside it, or `--help`.

use std::fs;

use clap::Parser;
use zw_bench::{Args, markdown, run, svg};

fn main() {
    let args = Args::parse();
    let report = run(&args);
    let table = markdown(&report);
    let json = serde_json::to_string_pretty(&report).expect("numbers and names are JSON");
    fs::create_dir_all(&args.output).expect("the output folder can be made");
    for (name, text) in
        [("results.md", &table), ("results.json", &json), ("plot.svg", &svg(&report))]
    {
        let path = args.output.join(name);
        fs::write(&path, text)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
    println!("{table}\nwritten to {}", args.output.display());
}
