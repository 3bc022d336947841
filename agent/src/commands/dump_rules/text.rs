//! The form for people.

use std::io::{self, Write};

use super::view::{EndpointView, PortView};

/// One block per Service port: a line for the port, a line per endpoint.
pub(crate) fn print(ports: &[&PortView], out: &mut dyn Write) -> io::Result<()> {
    for (i, port) in ports.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        let name = if port.name.is_empty() { String::new() } else { format!(":{}", port.name) };
        let frontend = std::net::SocketAddr::new(port.address, port.port);
        write!(out, "{}{name}  {frontend}/{}", port.service, port.protocol)?;
        match port.endpoints.len() {
            0 => write!(out, "  no usable endpoint: connections are refused")?,
            1 => write!(out, "  1 endpoint")?,
            n => write!(out, "  {n} endpoints")?,
        }
        if let Some(connections) = port.connections {
            write!(out, "  {connections} connections")?;
        }
        writeln!(out)?;
        let all = || port.endpoints.iter().chain(&port.left_out);
        let width =
            |text: fn(&EndpointView) -> &str| all().map(|e| text(e).len()).max().unwrap_or(0);
        let (address, node, zone) =
            (width(|e| &e.address), width(|e| opt(&e.node)), width(|e| opt(&e.zone)));
        let line = |mark: String, endpoint: &EndpointView| {
            let text = format!(
                "  {mark:>4}  {:address$}  {:node$}  {:zone$}  {}",
                endpoint.address,
                opt(&endpoint.node),
                opt(&endpoint.zone),
                opt(&endpoint.reason)
            );
            text.trim_end().to_owned()
        };
        for (slot, endpoint) in port.endpoints.iter().enumerate() {
            writeln!(out, "{}", line(slot.to_string(), endpoint))?;
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
