//! Converts reports of older schemas to today's schema, one schema after the other. What a report lacks stays unknown, or has the
//! stand-in that this schema needs. A note to the user names both.

use serde_json::{Map, Value, json};

use crate::model::report::Series;
use crate::model::style::{RamUnit, TimeUnit};

type Object = Map<String, Value>;

/// Converts a report of an older `schema` to today's. Returns it with a note that names what it lacks. A document that is no object
/// stays as it is; the caller then fails to read it.
pub(super) fn upgraded(mut document: Value, schema: u64) -> (Value, String) {
    let mut lacking = Vec::new();
    if let Value::Object(report) = &mut document {
        if schema < 2 {
            convert_1_to_2(report);
        }
        convert_2_to_3(report, &mut lacking);
    }
    (document, format!("Its schema_version is {schema}. It lacks: {}.", lacking.join(", ")))
}

/// Converts schema 1 to 2: `coverage.silent` became `coverage.uninstrumented`.
fn convert_1_to_2(report: &mut Object) {
    if let Some(Value::Object(coverage)) = report.get_mut("coverage") {
        let count = coverage.remove("silent");
        coverage.extend(count.map(|count| ("uninstrumented".to_owned(), count)));
    }
}

/// Converts schema 2 to 3. Figures that schema 2 had only in gpu_tracker's objects, in units that were chosen, move to keys of
/// their own. Sections were added while schema 2 was in use, so a report may have them already. `lacking` gets the words for
/// what an old report does not have.
fn convert_2_to_3(report: &mut Object, lacking: &mut Vec<&'static str>) {
    let converted = [
        ("cpu", report.get("cpu_utilization").cloned()),
        ("gpu", report.get("gpu_utilization").cloned()),
        ("max_ram_bytes", part(report, "max_ram").and_then(in_bytes)),
        ("max_gpu_ram_bytes", part(report, "max_gpu_ram").and_then(in_bytes)),
        ("wall_s", part(report, "compute_time").and_then(in_seconds).map(Value::from)),
        ("stage", stage(report, lacking)),
        ("series", Some(no_series(lacking))),
    ];
    for (key, value) in converted {
        report.extend(value.map(|value| (key.to_owned(), value)));
    }
    give_topics_to_warnings(report, lacking);
    add_usable(report, lacking);
    complete_cpus_hint(report);
    add_gaps(report, lacking);
    complete_peak(report, lacking);
    lacking.push("processes that crashed");
}

/// Adds to the hint about cores that it is no lower bound. Only other processes that kept cores busy would make it one, and schema 2
/// did not look for them.
fn complete_cpus_hint(report: &mut Object) {
    let hint = report.get_mut("hints").and_then(|hints| hints.get_mut("cpus"));
    if let Some(Value::Object(hint)) = hint {
        hint.entry("is_lower_bound").or_insert(Value::Bool(false));
    }
}

/// Converts `finished` to `stage`. `None`: the report has no `finished`. `lacking` gets that a recovered report looks like a report
/// so far.
fn stage(report: &Object, lacking: &mut Vec<&'static str>) -> Option<Value> {
    let is_finished = report.get("finished")?.as_bool()?;
    if !is_finished {
        lacking.push("whether it was recovered (shown as a report so far)");
    }
    Some(if is_finished { "final" } else { "so_far" }.into())
}

/// Makes a run over time without points, and adds to `lacking` that it is missing.
fn no_series(lacking: &mut Vec<&'static str>) -> Value {
    lacking.push("the run over time");
    serde_json::to_value(Series::default()).unwrap_or_default()
}

/// Makes objects of warnings, which were texts, with the topic "figures". If there are any, adds to `lacking` that topics are
/// unknown.
fn give_topics_to_warnings(report: &mut Object, lacking: &mut Vec<&'static str>) {
    let mut has_any = false;
    for warning in entries(report.get_mut("warnings")) {
        *warning = json!({"topic": "figures", "text": warning.take()});
        has_any = true;
    }
    lacking.extend(has_any.then_some("the topics of warnings (shown as warnings about figures)"));
}

/// Adds what the command could use, if the report does not say. gpu_tracker's objects tell only the expected cores.
fn add_usable(report: &mut Object, lacking: &mut Vec<&'static str>) {
    if report.contains_key("usable") {
        return;
    }
    lacking.push("what the command could use (shown are the expected cores)");
    let Some(cpu) = part(report, "cpu_utilization") else { return };
    let [all, expected] = ["system_core_count", "n_expected_cores"].map(|key| cpu.get(key).cloned());
    let source = if all == expected { "machine" } else { "n_expected_cores" };
    report.insert("usable".into(), json!({"cores": {"count": expected, "source": source}}));
}

/// Adds an empty list of gaps in the readings to GPUs that have no list, since schema 3 needs one.
fn add_gaps(report: &mut Object, lacking: &mut Vec<&'static str>) {
    let mut has_lacked = false;
    for device in entries(report.get_mut("gpus")).filter_map(Value::as_object_mut) {
        if !device.contains_key("gaps") {
            device.insert("gaps".into(), json!([]));
            has_lacked = true;
        }
    }
    lacking.extend(has_lacked.then_some("how long GPUs could not be read"));
}

/// Completes what the report has of the moment of the largest RAM. Its processes are removed if one lacks `added_bytes`, without
/// which they can't be read. `by_command` is empty: only the largest processes are listed, so sums by command can't be made of
/// them.
fn complete_peak(report: &mut Object, lacking: &mut Vec<&'static str>) {
    let Some(peak) = report.get_mut("peak").and_then(Value::as_object_mut) else { return };
    let lacks_added_bytes = |process: &mut Value| process.get("added_bytes").is_none();
    if entries(peak.get_mut("processes")).any(lacks_added_bytes) {
        peak.insert("processes".into(), json!([]));
        lacking.push("what held the RAM at its peak");
    } else {
        lacking.push("RAM at its peak by command");
    }
    peak.insert("by_command".into(), json!([]));
}

/// The object of this key. `None`: there is none.
fn part<'a>(report: &'a Object, key: &str) -> Option<&'a Object> {
    report.get(key).and_then(Value::as_object)
}

/// The entries of a list; none if the value is no list.
fn entries(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Converts all numbers of gpu_tracker's RAM object to bytes, from the unit that it names. Bytes are whole numbers, so rounding
/// restores them exactly. `None`: it names no known unit.
fn in_bytes(ram: &Object) -> Option<Value> {
    /// Converts a number, or all numbers within an object.
    fn to_bytes(value: &Value, bytes_of_unit: f64) -> Value {
        match value {
            Value::Number(number) => {
                number.as_f64().map(|number| (number * bytes_of_unit).round() as u64).into()
            }
            Value::Object(parts) => {
                parts.iter().map(|(key, part)| (key.clone(), to_bytes(part, bytes_of_unit))).collect()
            }
            // The unit's name, which schema 3 does not have.
            _ => Value::Null,
        }
    }
    let unit =
        RamUnit::ALL.into_iter().find(|unit| ram.get("unit").is_some_and(|name| name == unit.name()))?;
    Some(to_bytes(&Value::Object(ram.clone()), unit.bytes()))
}

/// Converts gpu_tracker's time to seconds, from the unit that it names. `None`: it names no known unit.
fn in_seconds(time: &Object) -> Option<f64> {
    let unit =
        TimeUnit::ALL.into_iter().find(|unit| time.get("unit").is_some_and(|name| name == unit.name()))?;
    Some(time.get("time")?.as_f64()? * unit.seconds())
}
