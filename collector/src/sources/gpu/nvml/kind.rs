//! Kinds of figures: what is read together, at one rate.

/// Figures that are read together, in the order in which they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Memory, and the process lists that show processes of the run.
    Lists,
    /// Memory, and all process lists: one that was empty, or shows other processes only, is seldom read.
    AllLists,
    /// The driver's utilization samples, of the device and by process.
    Utilization,
    /// The energy counter: one call, and what it counts before the first reading and after the last is missing.
    Energy,
    /// Power, and the throttle reasons, which explain it.
    Power,
    /// Temperature, clocks, performance state, memory utilization.
    Gauges,
    /// The driver's accounting entries.
    Accounting,
    /// PCIe bytes.
    Pcie,
    /// Memory errors.
    Ecc,
    /// Critical errors, of all devices at once.
    Events,
}

impl Kind {
    /// What a device has apart from the lists.
    pub(super) const OTHERS: [Self; 8] = [
        Self::AllLists,
        Self::Utilization,
        Self::Energy,
        Self::Power,
        Self::Gauges,
        Self::Accounting,
        Self::Pcie,
        Self::Ecc,
    ];
    /// All that is read at the end of the run, the most perishable first: what has to be read twice, and what the driver
    /// soon overwrites.
    pub(super) const AT_END: [&'static [Self]; 5] = [
        &[Self::Energy],
        &[Self::Power, Self::Ecc],
        &[Self::Utilization],
        &[Self::Lists],
        &[Self::Gauges, Self::Accounting, Self::Pcie],
    ];
}
