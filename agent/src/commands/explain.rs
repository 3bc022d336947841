//! `zoneward explain`: one Service, and why it is as it is.

use std::collections::HashMap;
use std::io::Write;

use anyhow::{Context, bail};
use zw_dataplane::{Tables, WithIpvs};
use zw_model::ServiceKey;

use super::dump_rules::print_agent;
use super::run::with_advice;
use crate::cli::{ExplainArgs, StoryOutput};
use crate::inspect::agent;
use crate::inspect::drift::{Difference, INTERFACE, What, differences};
use crate::inspect::filter::{Filter, ServiceName};
use crate::inspect::planned::Planned;
use crate::inspect::story::{self, KernelStory};
use crate::inspect::text;
use crate::inspect::view::{PortView, from_kernel};
use crate::screen::{Screen, Tone, count};

pub(crate) fn run(args: ExplainArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let wanted = ServiceName::parse(&args.service)?;
    let screen = Screen::standard(args.color.color);
    let planned = match args.manifests.given() {
        Some((path, node_name)) => {
            Planned::from_manifests(path, node_name, args.plan.config(), &HashMap::new())?
        }
        None => match agent::ask(args.socket.path(), Some(&wanted.key)) {
            Ok(planned) => planned,
            Err(error) => return without_agent(&screen, &wanted, error, out),
        },
    };
    let Some(mut story) =
        story::tell(&planned, &wanted.key, |port| wanted.has_port(&port.name, port.port))
    else {
        let all = match &planned.agent {
            Some(_) => agent::ask(args.socket.path(), None)?,
            None => planned,
        };
        bail!("{}", unknown(&wanted.key, all.index.service_keys()));
    };
    if story.ports.is_empty() {
        bail!("Service {} has no port {}", wanted.key, wanted.port.unwrap_or_default());
    }
    if planned.agent.is_some() {
        story.kernel = Some(compare(&planned, &wanted.key));
    }
    match args.output {
        StoryOutput::Json => {
            let json = serde_json::to_string_pretty(&story).context("cannot print JSON")?;
            writeln!(out, "{json}")?;
        }
        StoryOutput::Text => {
            if let Some(agent) = &planned.agent {
                print_agent(&screen, agent, false, Some(&wanted.key), out)?;
            }
            story::print(&screen, &story, out)?;
        }
    }
    Ok(())
}

/// Whether the kernel has what the agent wants.
fn compare(planned: &Planned, key: &ServiceKey) -> KernelStory {
    let read = WithIpvs::to_look().and_then(|mut kernel| kernel.read_back());
    let actual = match read {
        Ok(read) => read.actual,
        Err(error) => {
            let text = format!("not compared: {:#}", with_advice(error));
            return KernelStory { agrees: false, text };
        }
    };
    agreement(&differences(&planned.desired, &actual), key)
}

/// What differences say of one Service.
fn agreement(all: &[Difference], key: &ServiceKey) -> KernelStory {
    let service = key.to_string();
    let concerns = |name: &str| name.is_empty() || name.split(':').next() == Some(&service);
    // Only this Service was asked for, so everybody else's rules look like nobody's.
    let for_all = |d: &Difference| match d.place.as_str() {
        "table" => true,
        INTERFACE => d.what != What::Extra,
        _ => false,
    };
    let real = |d: &&Difference| concerns(&d.service) && (!d.service.is_empty() || for_all(d));
    let number = all.iter().filter(real).count();
    if number == 0 {
        KernelStory { agrees: true, text: "holds what the agent wants".into() }
    } else {
        let text = format!("differs in {}: see `zoneward diff`", count(number, "place"));
        KernelStory { agrees: false, text }
    }
}

/// The kernel knows what is, not why.
fn without_agent(
    screen: &Screen,
    wanted: &ServiceName,
    error: anyhow::Error,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let filter = Filter { service: Some(wanted.clone()), ..Filter::default() };
    let held = || -> anyhow::Result<Vec<PortView>> {
        let mut kernel = WithIpvs::to_look().map_err(with_advice)?;
        let read = kernel.read_back().map_err(with_advice)?;
        from_kernel(kernel.table(), &read.actual).map_err(with_advice)
    };
    let ports = held().unwrap_or_default();
    let shown: Vec<&PortView> = ports.iter().filter(|port| filter.matches(port)).collect();
    if shown.is_empty() {
        return Err(error);
    }
    let why = format!("no agent, so this is what the kernel holds, and not why: {error:#}");
    screen.paragraph(out, 0, Tone::Doubtful, &why)?;
    writeln!(out)?;
    Ok(text::print(screen, &shown, out)?)
}

/// No such Service; somebody may have meant another.
fn unknown<'a>(key: &ServiceKey, all: impl Iterator<Item = &'a ServiceKey>) -> String {
    let mut near: Vec<String> = all
        .filter(|other| {
            other.name == key.name
                || (other.namespace == key.namespace && distance(&other.name, &key.name) <= 2)
        })
        .map(ToString::to_string)
        .collect();
    near.truncate(5);
    let meant =
        if near.is_empty() { String::new() } else { format!("; is it {}?", near.join(", or ")) };
    format!("no Service {key} with a cluster IP is known{meant}")
}

/// How many letters differ.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::drift::What;

    #[test]
    fn a_slip_of_the_pen_is_recognised() {
        let known = [ServiceKey::new("web", "api"), ServiceKey::new("shop", "cart")];
        let said =
            |namespace: &str, name: &str| unknown(&ServiceKey::new(namespace, name), known.iter());
        let no = "no Service web/apj with a cluster IP is known; is it web/api?";
        assert_eq!(said("web", "apj"), no);
        assert_eq!(
            said("web", "cart"),
            "no Service web/cart with a cluster IP is known; is it shop/cart?"
        );
        assert_eq!(said("web", "other"), "no Service web/other with a cluster IP is known");
    }

    #[test]
    fn the_kernel_is_said_to_differ_by_what_concerns_the_service() {
        let difference = |service: &str, place: &str| Difference {
            service: service.into(),
            family: "IPv4".into(),
            place: place.into(),
            what: What::Missing,
            is: None,
            should_be: None,
        };
        let told = |all: &[Difference]| {
            let story = agreement(all, &ServiceKey::new("web", "api"));
            (story.agrees, story.text)
        };
        let agrees = (true, "holds what the agent wants".to_owned());
        assert_eq!(told(&[]), agrees);
        let others = [difference("web/other:http", "services"), difference("", "chain")];
        assert_eq!(told(&others), agrees);
        let own = [
            difference("web/api:http", "services"),
            difference("web/api:http", "endpoints"),
            difference("", "table"),
        ];
        assert_eq!(told(&own), (false, "differs in 3 places: see `zoneward diff`".to_owned()));
    }
}
