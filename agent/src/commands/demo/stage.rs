//! The stage: the network, the folder, the agent, and what is shown of them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use zw_lab::Lab;

use super::DEADLINE;
use super::cast::{NODE, POD_RANGES, Pod, SERVED, Slice, Zone, manifests};
use super::traffic::{Totals, Traffic};

/// The pod that connects.
const CLIENT: &str = "client";

pub(super) struct Stage {
    lab: Lab,
    folder: Folder,
    agent: Option<Agent>,
    traffic: Option<Traffic>,
    acts: usize,
    colour: bool,
}

impl Stage {
    /// Builds the network and makes the state folder.
    pub(super) fn set(keep: bool) -> anyhow::Result<Self> {
        let node: [IpAddr; 2] = [[192, 0, 2, 1].into(), [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into()];
        let client: [IpAddr; 2] =
            [[10, 244, 1, 100].into(), [0xfd00, 0x10, 0x244, 1, 0, 0, 0, 0x100].into()];
        let mut lab = Lab::new(&node).context("cannot make the node")?;
        lab.add_host(CLIENT, &client).context("cannot make the client")?;
        for zone in Zone::ALL {
            for pod in [1, 2, 3].map(|n| Pod::new(zone, n)) {
                let name = pod.name();
                lab.add_host(&name, &pod.addresses())
                    .with_context(|| format!("cannot make {name}"))?;
                lab.serve(&name, &[SERVED]).with_context(|| format!("cannot start {name}"))?;
            }
        }
        let colour = io::stdout().is_terminal();
        let folder = Folder::make(keep)?;
        Ok(Self { lab, folder, agent: None, traffic: None, acts: 0, colour })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// Writes the manifests and waits until the agent has committed them.
    pub(super) fn publish(&mut self, slices: &[Slice]) -> anyhow::Result<()> {
        // In one step: an editor that writes in place would be read half-way, and complained about.
        let (hidden, file) =
            (self.folder.path.join(".demo.yaml"), self.folder.path.join("demo.yaml"));
        fs::write(&hidden, manifests(slices)).context("cannot write the manifests")?;
        fs::rename(&hidden, &file).context("cannot write the manifests")?;
        if self.agent.is_none() {
            self.agent = Some(Agent::start(&self.lab, &self.folder.path)?);
        }
        self.agent.as_ref().map_or(Ok(()), Agent::wait_for_sync)
    }

    pub(super) fn begin_traffic(&mut self) -> anyhow::Result<()> {
        let client = self.lab.host(CLIENT).context("the client has a namespace")?;
        self.traffic = Some(Traffic::start(client));
        Ok(())
    }

    /// Ends a pod that no rule leads to any more, once connections under way are over.
    pub(super) fn retire(&mut self, pod: Pod) -> anyhow::Result<()> {
        self.more_connections(4)?;
        self.lab.stop_serving(&pod.name());
        Ok(())
    }

    /// Lets traffic run and shows who answered.
    pub(super) fn act(
        &mut self,
        out: &mut dyn Write,
        title: &str,
        sample: usize,
    ) -> anyhow::Result<()> {
        // The connection under way when the rules changed belongs to the act before.
        self.more_connections(4)?;
        let totals = self.more_connections(sample)?;
        self.acts += 1;
        writeln!(out, "\n{} {}", self.bold(&format!("{}.", self.acts)), self.bold(title))?;
        let mut zones: BTreeMap<char, BTreeMap<&str, usize>> = BTreeMap::new();
        for by in totals.last(sample) {
            let zone = by.chars().next().unwrap_or('?');
            *zones.entry(zone).or_default().entry(by).or_default() += 1;
        }
        for zone in Zone::ALL {
            let letter = zone.to_string().chars().last().unwrap_or('?');
            let pods = zones.get(&letter).cloned().unwrap_or_default();
            let count: usize = pods.values().sum();
            let percent = (count * 100 + sample / 2) / sample;
            let bar = if self.colour { "█" } else { "#" }.repeat(percent / 4);
            let who: Vec<String> = pods.iter().map(|(pod, n)| format!("{pod} {n}")).collect();
            writeln!(
                out,
                "   {zone} {percent:>3} % {}  {}",
                self.green(&format!("{bar:25}")),
                who.join(", ")
            )?;
        }
        Ok(())
    }

    /// What `zoneward dump-rules` says now.
    pub(super) fn dump_rules(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let output = self
            .lab
            .node()
            .run(|| Command::new(program).args(["dump-rules", "demo/shop:web"]).output());
        let output = output.context("cannot run dump-rules")?;
        if !output.status.success() {
            bail!("dump-rules failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        writeln!(out, "\n{}", self.bold("zoneward dump-rules demo/shop:web"))?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            writeln!(out, "   {line}")?;
        }
        Ok(())
    }

    pub(super) fn end_traffic(&mut self) -> anyhow::Result<Totals> {
        Ok(self.traffic.take().context("traffic has begun")?.end())
    }

    pub(super) fn say(&self, out: &mut dyn Write, text: &str) -> io::Result<()> {
        writeln!(out, "\n{text}")
    }

    fn more_connections(&self, count: usize) -> anyhow::Result<Totals> {
        let traffic = self.traffic.as_ref().context("traffic has begun")?;
        if !traffic.wait_for(count, DEADLINE) {
            let totals = traffic.totals();
            let last = totals.failures.last().cloned().unwrap_or_default();
            bail!("connections take too long; {} failed, last: {last}", totals.failures.len());
        }
        Ok(traffic.totals())
    }

    fn bold(&self, text: &str) -> String {
        if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.into() }
    }

    fn green(&self, text: &str) -> String {
        if self.colour { format!("\x1b[32m{text}\x1b[0m") } else { text.into() }
    }
}

/// The state folder, removed at the end unless it is to be kept.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    fn make(keep: bool) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("zoneward-demo-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path, keep })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            // Left in the temporary folder at worst.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The real agent: this program's own `run`, in the node's namespace.
struct Agent {
    child: Child,
    log: Receiver<String>,
}

impl Agent {
    fn start(lab: &Lab, folder: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = lab
            .node()
            .run(|| {
                Command::new(program)
                    .args([
                        "run",
                        "--log",
                        "info,zoneward::sync=debug",
                        "--node-name",
                        NODE,
                        "--cluster-cidr",
                        POD_RANGES,
                    ])
                    .arg("--state")
                    .arg(folder)
                    .stderr(Stdio::piped())
                    .spawn()
            })
            .context("cannot start the agent")?;
        let stderr = child.stderr.take().ok_or_else(|| anyhow!("the agent has a log"))?;
        let (tell, log) = sync_channel(1024);
        std::thread::spawn(move || {
            BufReader::new(stderr)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| tell.send(line))
        });
        Ok(Self { child, log })
    }

    fn wait_for_sync(&self) -> anyhow::Result<()> {
        let end = Instant::now() + DEADLINE;
        let mut said = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(left) {
                Ok(line) if line.contains("synced") => return Ok(()),
                Ok(line) => said.push(line),
                Err(_) => bail!("the agent did not sync; it said:\n{}", said.join("\n")),
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Its rules go with the namespace.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
