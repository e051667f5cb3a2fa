//! What the nodes of one machine may use together. Each container is a node of its own, and may use all that the machine has. So
//! the sum over the nodes is limited to what the machine has.

use super::machine::Size;
use super::node::ClosedNode;
use super::totals::Known;

/// Sums of the nodes of a machine.
#[derive(Default)]
pub(super) struct UsableOfMachine {
    cores: Capped<f64>,
    /// `--n-expected-cores` of the nodes, else their cores.
    expected_cores: Capped<u64>,
    memory_bytes: Known,
    /// The most memory that one node may use, bytes.
    most_memory_bytes: u64,
}

/// A sum over nodes. It counts up to what the machine has, or up to what one node may use if that is more: with
/// `--n-expected-cores`, a node may use more cores than its machine has.
#[derive(Default)]
struct Capped<T> {
    sum: T,
    /// The most of one node.
    most: T,
}

impl UsableOfMachine {
    /// Adds a node.
    pub(super) fn add(&mut self, closed: &ClosedNode) {
        let cores = closed.usable.count;
        self.cores = Capped { sum: self.cores.sum + cores, most: self.cores.most.max(cores) };
        let Capped { sum, most } = self.expected_cores;
        let expected = closed.expected_cores;
        self.expected_cores = Capped { sum: sum.saturating_add(expected), most: most.max(expected) };
        let memory_bytes = closed.node.ram.usable_bytes;
        self.memory_bytes.add(memory_bytes.map(u128::from));
        self.most_memory_bytes = self.most_memory_bytes.max(memory_bytes.unwrap_or(0));
    }

    /// The cores that all nodes together may use, on a machine of this size.
    pub(super) fn cores(&self, size: Size) -> f64 {
        self.cores.sum.min(self.cores.most.max(size.cores.into()))
    }

    /// The cores that all nodes together expect, on a machine of this size.
    pub(super) fn expected_cores(&self, size: Size) -> u64 {
        self.expected_cores.sum.min(self.expected_cores.most.max(size.cores.into()))
    }

    /// The memory that all nodes together may use, bytes. `None`: it is unknown of a node.
    pub(super) fn memory_bytes(&self, size: Size) -> Option<u128> {
        let most = size.ram_bytes.map(|bytes| u128::from(bytes.max(self.most_memory_bytes)));
        self.memory_bytes.whole().map(|bytes| most.map_or(bytes, |most| bytes.min(most)))
    }
}
