//! The form for people.

use std::io::{self, Write};

use super::view::{EndpointView, PortView, Refusal};

/// One block per Service port: a line for the port, a line per endpoint.
pub(crate) fn print(ports: &[&PortView], out: &mut dyn Write) -> io::Result<()> {
    for (i, port) in ports.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        let name = if port.name.is_empty() { String::new() } else { format!(":{}", port.name) };
        let frontend = match port.address {
            Some(address) => std::net::SocketAddr::new(address, port.port).to_string(),
            None => format!("{} node port {}", opt(&port.family), port.port),
        };
        write!(out, "{}{name}  {frontend}/{}", port.service, port.protocol)?;
        match (&port.taken_by, port.endpoints.len()) {
            (Some(owner), _) => {
                write!(out, "  not programmed: {owner} has this address and port")?;
            }
            (None, 0) => write!(out, "  no usable endpoint")?,
            (None, 1) => write!(out, "  1 endpoint")?,
            (None, n) => write!(out, "  {n} endpoints")?,
        }
        if let Some(local) = &port.endpoints_for_outsiders {
            write!(out, ", for outsiders {}", local.len())?;
        }
        match port.without_endpoints {
            Some(Refusal::Refused) => write!(out, ": connections are refused")?,
            Some(Refusal::Ignored) => write!(out, ": connections are ignored")?,
            None => {}
        }
        if let Some(connections) = port.connections {
            write!(out, "  {connections} connections")?;
        }
        writeln!(out)?;
        let outsiders = || port.endpoints_for_outsiders.iter().flatten();
        let all = || port.endpoints.iter().chain(outsiders()).chain(&port.left_out);
        let width =
            |text: fn(&EndpointView) -> &str| all().map(|e| text(e).len()).max().unwrap_or(0);
        let columns: [fn(&EndpointView) -> &str; 4] =
            [|e| &e.address, |e| opt(&e.node), |e| opt(&e.zone), |e| opt(&e.reason)];
        let columns = columns.map(|text| (text, width(text)));
        let line = |mark: String, endpoint: &EndpointView| {
            let mut line = format!("  {mark:>4}");
            // A column that nobody fills takes no room.
            for (text, width) in columns.iter().filter(|(_, width)| *width > 0) {
                line += &format!("  {:width$}", text(endpoint));
            }
            line.trim_end().to_owned()
        };
        for (slot, endpoint) in port.endpoints.iter().enumerate() {
            writeln!(out, "{}", line(slot.to_string(), endpoint))?;
        }
        for (slot, endpoint) in outsiders().enumerate() {
            writeln!(out, "{}", line(format!("o{slot}"), endpoint))?;
        }
        for endpoint in &port.left_out {
            writeln!(out, "{}", line("-".into(), endpoint))?;
        }
    }
    Ok(())
}

fn opt(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}
