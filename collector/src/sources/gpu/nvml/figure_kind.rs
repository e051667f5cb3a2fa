//! Kinds of figures: what is read together, at one rate.

/// Figures that are read together, in the order in which they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Memory in use. The compute list (of processes that compute on the device) is read only if memory in use has changed since
    /// its last reading. Most often it is the same, to the byte, and then no process has come, gone or changed.
    Memory,
    /// Memory in use, the compute list, and the other lists that show processes of the run.
    Lists,
    /// Memory in use, and all process lists. A list that was empty, or shows no process of the run, is read seldom.
    AllLists,
    /// The driver's utilization samples of the device.
    Utilization,
    /// The description of the device, read once. The driver is then asked to report the device's critical errors.
    Details,
    /// The driver's utilization samples by process.
    ProcessUtilization,
    /// The energy counter. What the device uses before the first reading and after the last is missing.
    Energy,
    /// Power, and the throttle reasons, which explain it.
    Power,
    /// The counters of memory errors, which are read at the start and at the end only.
    Ecc,
    /// The counters of PCIe bytes, which can wrap between two readings of a fast link.
    Pcie,
    /// The hardware's performance counters, where there are any.
    Gpm,
    /// Temperature, clocks, performance state, utilization of memory and video engines.
    Gauges,
    /// The driver's accounting entries.
    Accounting,
    /// Critical errors, of all devices at once.
    Events,
}

impl Kind {
    /// The kinds of a device apart from memory and the lists that are usually read with it.
    pub(super) const OTHERS: [Self; 11] = [
        Self::AllLists,
        Self::Utilization,
        Self::Details,
        Self::ProcessUtilization,
        Self::Energy,
        Self::Power,
        Self::Ecc,
        Self::Pcie,
        Self::Gpm,
        Self::Gauges,
        Self::Accounting,
    ];
    /// The kinds that are read at the end of the run, in groups. First come counters, which have to be read twice, and samples,
    /// which the driver soon overwrites.
    pub(super) const AT_END: [&'static [Self]; 6] = [
        &[Self::Energy],
        &[Self::Ecc],
        &[Self::Utilization, Self::ProcessUtilization],
        &[Self::Power],
        &[Self::Lists],
        &[Self::Pcie, Self::Gpm, Self::Gauges, Self::Accounting],
    ];

    /// Whether this kind reads memory in use, perhaps with process lists.
    pub(super) fn is_memory(self) -> bool {
        matches!(self, Self::Memory | Self::Lists | Self::AllLists)
    }
}
