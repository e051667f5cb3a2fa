//! Kinds of figures: what is read together, at one rate.

/// Figures that are read together, in the order in which they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Memory in use; the compute list only if that is not what it was when the list was read. Most often it is, to the byte,
    /// and then no process has come, gone or changed.
    Memory,
    /// Memory in use, the compute list, and the other lists that show processes of the run.
    Lists,
    /// Memory in use, and all process lists: one that was empty, or shows other processes only, is seldom read.
    AllLists,
    /// The driver's utilization samples of the device.
    Utilization,
    /// What describes the device, read once. Its errors are asked for then.
    Details,
    /// The driver's utilization samples by process.
    ProcessUtilization,
    /// The energy counter: one call, and what it counts before the first reading and after the last is missing.
    Energy,
    /// Power, and the throttle reasons, which explain it.
    Power,
    /// Memory errors: counters that are read at the start and at the end only.
    Ecc,
    /// PCIe bytes: counters that can wrap between two readings of a fast link.
    Pcie,
    /// Temperature, clocks, performance state, utilization of memory and video engines.
    Gauges,
    /// The driver's accounting entries.
    Accounting,
    /// Critical errors, of all devices at once.
    Events,
}

impl Kind {
    /// What a device has apart from memory and the lists that are read with it.
    pub(super) const OTHERS: [Self; 10] = [
        Self::AllLists,
        Self::Utilization,
        Self::Details,
        Self::ProcessUtilization,
        Self::Energy,
        Self::Power,
        Self::Ecc,
        Self::Pcie,
        Self::Gauges,
        Self::Accounting,
    ];
    /// All that is read at the end of the run, the most perishable first. That is what has to be read twice, and what the
    /// driver soon overwrites.
    pub(super) const AT_END: [&'static [Self]; 6] = [
        &[Self::Energy],
        &[Self::Ecc],
        &[Self::Utilization, Self::ProcessUtilization],
        &[Self::Power],
        &[Self::Lists],
        &[Self::Pcie, Self::Gauges, Self::Accounting],
    ];

    /// Whether it reads memory in use, and lists as far as they are due.
    pub(super) fn is_memory(self) -> bool {
        matches!(self, Self::Memory | Self::Lists | Self::AllLists)
    }
}
