//! What a difference looks like to whoever has to explain it.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;
use zw_tests::binary::{run_in, text, tool_in};

use crate::allowed::Uses;
use crate::compare::{Difference, compare};
use crate::service::{NAMESPACE, Service};
use crate::shrink::smaller;
use crate::twins::{Program, Side, Twins};

/// How long one difference is made smaller.
const SHRINKING: Duration = Duration::from_secs(60);
/// How many answers of one Service are shown.
const SHOWN: usize = 6;

/// Makes the Service alone show a difference, as small as it gets, and describes it. The differences are
/// those it showed among others; the zone is the one the node is in.
pub(crate) fn shrunk(
    twins: &mut Twins,
    service: &Service,
    among_others: &[Difference],
    zone: &str,
) -> String {
    let mut differs = |service: &Service| {
        let alone = [service.clone()];
        twins.bring(&alone);
        Uses::default().take(compare(twins, &alone, Duration::ZERO).differences, &alone)
    };
    let mut differences = differs(service);
    let mut smallest = service.clone();
    if differences.is_empty() {
        let mut out = format!(
            "{} differs only together with other Services, or only after changes:\n{}",
            service.name(),
            yaml_of(service)
        );
        describe(&mut out, twins, among_others);
        return out;
    }
    let end = Instant::now() + SHRINKING;
    let (mut steps, mut tries) = (0, 0);
    'smaller: loop {
        for candidate in smaller(&smallest) {
            if Instant::now() > end {
                break 'smaller;
            }
            tries += 1;
            let found = differs(&candidate);
            if !found.is_empty() {
                (smallest, differences) = (candidate, found);
                steps += 1;
                continue 'smaller;
            }
        }
        break;
    }
    // The last try may have been one that agreed.
    twins.bring(std::slice::from_ref(&smallest));
    let mut out = format!(
        "{} made smaller in {steps} steps of {tries} tries; the node is in zone {zone:?}\n{}",
        smallest.name(),
        yaml_of(&smallest)
    );
    describe(&mut out, twins, &differences);
    out.push_str("among all Services of the round:\n");
    describe(&mut out, twins, among_others);
    for side in &twins.sides {
        let _ = writeln!(out, "--- rules of {:?}\n{}", side.program, rules(side, &smallest));
    }
    out
}

/// The questions and both answers.
pub(crate) fn describe(out: &mut String, twins: &Twins, differences: &[Difference]) {
    let [one, two] = &twins.sides;
    for Difference { question, answers } in differences.iter().take(SHOWN) {
        let _ = writeln!(out, "{question}");
        let _ = writeln!(out, "    {:?}: {}", one.program, answers[0]);
        let _ = writeln!(out, "    {:?}: {}", two.program, answers[1]);
    }
    if differences.len() > SHOWN {
        let _ = writeln!(out, "    and {} more", differences.len() - SHOWN);
    }
}

/// The part of a side's rules that is about a Service.
fn rules(side: &Side, service: &Service) -> String {
    let node = side.lab.node();
    let listing = text(&tool_in(node, "nft", &["list", "ruleset"], "").stdout);
    let mut out = about(&listing, service);
    if side.program == Program::Zoneward {
        let name = format!("{NAMESPACE}/{}", service.name());
        let output = run_in(node, &["dump-rules", &name]);
        let _ = write!(out, "\n{}{}", text(&output.stdout), text(&output.stderr));
    }
    out
}

/// Chains named after the Service in whole, and every other line that names it or one of its addresses,
/// under the name of what it is in.
fn about(listing: &str, service: &Service) -> String {
    let mut words = vec![format!("{}/", service.name()), format!("{}:", service.name())];
    words.extend(service.families.iter().map(|family| format!("{} ", service.cluster_ip(*family))));
    words.extend(service.external_ips.iter().map(|ip| format!("{ip} ")));
    words.extend(service.ingress.iter().map(|ingress| format!("{} ", ingress.ip)));
    let node_ports = service.ports.iter().filter_map(|port| port.node_port);
    words.extend(node_ports.map(|port| format!(" {port} ")));
    let names = |line: &str| words.iter().any(|word| line.contains(word));
    let (mut out, mut header, mut whole) = (String::new(), None, false);
    for line in listing.lines() {
        let depth = line.chars().take_while(|c| *c == '\t').count();
        if depth <= 1 {
            header = Some(line);
            whole = depth == 1 && names(line);
            continue;
        }
        if whole || names(line) {
            if let Some(header) = header.take() {
                let _ = writeln!(out, "{header}");
            }
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

/// The manifests, to be read and applied by hand.
fn yaml_of(service: &Service) -> String {
    let mut manifest = service.manifest();
    manifest["status"] = service.status();
    let mut out = String::new();
    for object in [manifest].into_iter().chain(service.slice_manifests()) {
        out.push_str("---\n");
        yaml(&mut out, &object, 0);
    }
    out
}

fn yaml(out: &mut String, value: &Value, indent: usize) {
    let Value::Object(fields) = value else { unreachable!("only objects have lines of their own") };
    for (name, value) in fields {
        let _ = write!(out, "{:indent$}{name}:", "");
        match value {
            Value::Object(inner) if !inner.is_empty() && indent < 4 => {
                out.push('\n');
                yaml(out, value, indent + 2);
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                out.push('\n');
                for item in items {
                    // JSON is YAML.
                    let _ = writeln!(out, "{:indent$}- {item}", "");
                }
            }
            other => {
                let _ = writeln!(out, " {other}");
            }
        }
    }
}
