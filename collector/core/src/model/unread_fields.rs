//! The fields of `nvidia-smi --query-gpu` that are not read here. Scripts with a fixed query can ask for them: their value is `[N/A]`, as
//! nvidia-smi's for a GPU without the figure.

/// What tells of memory errors by the place where they were. The total of those since the driver was loaded is read.
const ECC: &str = "device_memory dram register_file l1_cache l2_cache texture_memory cbu sram total";

/// The fields (`nvidia-smi --help-query-gpu` of the drivers 535 to 580): how their names begin, the unit of their headings, and how their
/// names go on. Names of one field are `heading=other`.
const FIELDS: [(&str, &str, &str); 31] = [
    ("accounting.", "", "buffer_size"),
    ("c2c.", "", "mode"),
    (
        "clocks.",
        " [MHz]",
        "current.video=video applications.graphics=applications.gr applications.memory=applications.mem",
    ),
    (
        "clocks.default_",
        " [MHz]",
        "applications.graphics=applications.gr applications.memory=applications.mem",
    ),
    ("clocks_event_reasons.", "", "supported"),
    (
        "clocks_event_reasons_counters.",
        " [us]",
        "sw_power_cap sync_boost sw_thermal_slowdown hw_thermal_slowdown hw_power_brake_slowdown",
    ),
    ("dramEncryption.mode.", "", "current pending"),
    ("driver_model.", "", "current pending"),
    ("ecc.errors.corrected.volatile.", "", ECC),
    ("ecc.errors.corrected.aggregate.", "", ECC),
    ("ecc.errors.uncorrected.volatile.", "", ECC),
    ("ecc.errors.uncorrected.aggregate.", "", ECC),
    ("ecc.errors.uncorrected.volatile.sram.", "", "parity secded"),
    ("ecc.errors.uncorrected.aggregate.sram.", "", "parity secded thresholdExceeded l2 sm mcu pcie other"),
    ("encoder.stats.", "", "sessionCount averageFps averageLatency"),
    (
        "fabric.",
        "",
        "state status cliqueId clusterUuid health.summary health.bandwidth health.route_recovery_in_progress \
         health.route_unhealthy health.access_timeout_recovery health.incorrect_configuration health.partition_assigned",
    ),
    ("", "", "addressing_mode gpu_recovery_action hostname power.management temperature.gpu.tlimit"),
    ("gom.", "", "current pending"),
    ("gpu_operation_mode.", "", "current pending"),
    ("gsp.mode.", "", "current default"),
    ("inforom.", "", "img=image oem ecc pwr=power checksum_validation"),
    (
        "module.",
        " [W]",
        "power.draw.average power.draw.instant power.limit=power.requested_limit \
         enforced.power.limit=power.current_limit power.default_limit power.min_limit power.max_limit",
    ),
    ("pci", "", ".baseClass .subClass e.link.gen.gpumax e.link.gen.hostmax"),
    (
        "platform.",
        "",
        "chassis_serial_number slot_number tray_index host_id peer_type module_id gpu_fabric_guid",
    ),
    ("power.draw.", " [W]", "average"),
    (
        "power_smoothing.",
        "",
        "delayed_power_smoothing_supported primary_power_floor secondary_power_floor \
         min_primary_floor_activation_offset min_primary_floor_activation_point window_multiplier",
    ),
    ("protected_memory.", " [MiB]", "total used free"),
    (
        "remapped_rows.",
        "",
        "correctable=sbe correctable_inactive uncorrectable=dbe uncorrectable_inactive pending failure \
      histogram.max histogram.high histogram.partial histogram.low histogram.none",
    ),
    ("reset_status.", "", "reset_required drain_and_reset_recommended"),
    ("retired_pages.", "", "single_bit_ecc.count=sbe double_bit.count=dbe pending"),
    ("utilization.", " [%]", "jpeg ofa"),
];

/// The heading of the unread field that nvidia-smi calls `name`. `None`: it has no such field, or the field is read.
pub(super) fn heading(name: &str) -> Option<String> {
    FIELDS.into_iter().find_map(|(begin, unit, rest)| {
        let end = name.strip_prefix(begin)?;
        let names = rest.split(' ').find(|names| names.split('=').any(|other| other == end))?;
        let first = names.split('=').next()?;
        Some(format!("{begin}{first}{unit}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu_trace::Field;

    // Requirement: GPU-80
    #[test]
    fn unread_field_has_the_heading_of_its_first_name() {
        for (name, expected) in [
            ("power.draw.average", "power.draw.average [W]"),
            ("clocks.applications.gr", "clocks.applications.graphics [MHz]"),
            ("clocks.default_applications.mem", "clocks.default_applications.memory [MHz]"),
            ("utilization.ofa", "utilization.ofa [%]"),
            ("ecc.errors.corrected.aggregate.total", "ecc.errors.corrected.aggregate.total"),
            ("retired_pages.sbe", "retired_pages.single_bit_ecc.count"),
            ("encoder.stats.sessionCount", "encoder.stats.sessionCount"),
            ("power.management", "power.management"),
        ] {
            assert_eq!(heading(name).as_deref(), Some(expected), "{name}");
        }
        for name in ["", "foo", "utilization.", "utilization.tpu", "img", "current", "temperature.gpu tlimit"]
        {
            assert_eq!(heading(name), None, "{name}");
        }
    }

    #[test]
    fn table_has_no_empty_name() {
        for (begin, _, rest) in FIELDS {
            let names = || rest.split([' ', '=']);
            assert!(names().all(|name| !name.is_empty()), "{begin}");
            // The driver is asked for the totals since it was loaded.
            let is_read = |name: &str| Field::named(&format!("{begin}{name}")).is_some();
            assert!(names().all(|name| !is_read(name) || name == "total"), "{begin}");
        }
    }
}
