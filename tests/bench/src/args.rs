//! What to measure.

use std::path::PathBuf;

use clap::Parser;

use crate::{Proxy, Shape};

/// Measures kube-proxy v1.37.1 (nftables) and Zoneward side by side. Needs root.
#[derive(Debug, Clone, Parser)]
#[command(name = "zw-bench")]
pub struct Args {
    /// Clusters that everything is measured on: A (5,000 x 50 + 1,000 x 10), B (25,000 x 1), tiny, or
    /// SERVICESxENDPOINTS, several of these joined by +.
    #[arg(long, value_delimiter = ',', default_value = "A,B")]
    pub shapes: Vec<Shape>,
    /// Clusters besides these for the plot, measured once and with a quarter of the changes; none if
    /// nothing is named.
    #[arg(long, num_args = 0.., value_delimiter = ',', default_value = "20x50,200x50,2000x50")]
    pub growth: Vec<Shape>,
    /// How often each proxy is started and measured, taking turns.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Single changes with idle time between, over all rounds.
    #[arg(long, default_value_t = 200)]
    pub changes: usize,
    /// Changes made without a pause, 20 a second, over all rounds.
    #[arg(long, default_value_t = 1_000)]
    pub sustained: usize,
    /// Numbers of Services at which connections through a cluster IP are measured.
    #[arg(long, num_args = 0.., value_delimiter = ',', default_value = "1,1000,10000")]
    pub connections: Vec<usize>,
    /// How many connections are opened to measure each way.
    #[arg(long, default_value_t = 3_000)]
    pub connects: usize,
    /// Measure only this proxy, to profile it.
    #[arg(long)]
    pub only: Option<Proxy>,
    /// Where results.md, results.json and plot.svg are written.
    #[arg(long, default_value = "target/bench")]
    pub output: PathBuf,
}

impl Args {
    /// The proxies to measure; the one that comes first takes turns.
    pub(crate) fn proxies(&self, round: usize) -> Vec<Proxy> {
        let mut order = Proxy::ALL;
        if round % 2 == 1 {
            order.reverse();
        }
        order.into_iter().filter(|proxy| self.only.is_none_or(|only| only == *proxy)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_may_be_left_empty_and_the_proxies_take_turns() {
        let args = Args::parse_from(["zw-bench", "--growth", "--connections", "--rounds=2"]);
        assert!(args.growth.is_empty() && args.connections.is_empty(), "{args:?}");
        assert_eq!(args.shapes.len(), 2);
        assert_eq!(args.proxies(0), Proxy::ALL);
        assert_eq!(args.proxies(1), [Proxy::Zoneward, Proxy::KubeProxy]);
        let args = Args::parse_from(["zw-bench", "--only=zoneward"]);
        assert_eq!(args.proxies(1), [Proxy::Zoneward]);
    }
}
