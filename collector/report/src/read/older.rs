//! Reports of older schemas, made into the form of today's: a function for each version. What they lack stays unknown, and a
//! note names it.

use serde_json::{Map, Value, json};

use crate::model::report::Series;
use crate::model::style::{RamUnit, TimeUnit};

type Object = Map<String, Value>;

/// Makes the document as if this version had written it, and a note on what it lacks.
pub(super) fn upgraded(mut document: Value, schema: u64) -> (Value, String) {
    let mut lacking = Vec::new();
    if let Value::Object(report) = &mut document {
        if schema < 2 {
            from_1(report);
        }
        from_2(report, &mut lacking);
    }
    (document, format!("Its schema_version is {schema}. It lacks: {}.", lacking.join(", ")))
}

/// Makes schema 2 of schema 1: `coverage.silent` became `coverage.uninstrumented`.
fn from_1(report: &mut Object) {
    if let Some(Value::Object(coverage)) = report.get_mut("coverage") {
        let count = coverage.remove("silent");
        coverage.extend(count.map(|count| ("uninstrumented".to_owned(), count)));
    }
}

/// Makes schema 3 of schema 2. The exact figures are made of gpu_tracker's objects. Sections were added while this schema
/// was in use.
fn from_2(report: &mut Object, lacking: &mut Vec<&'static str>) {
    let exact = [
        ("cpu", report.get("cpu_utilization").cloned()),
        ("gpu", report.get("gpu_utilization").cloned()),
        ("max_ram_bytes", part(report, "max_ram").and_then(in_bytes)),
        ("max_gpu_ram_bytes", part(report, "max_gpu_ram").and_then(in_bytes)),
        ("wall_s", part(report, "compute_time").and_then(in_seconds).map(Value::from)),
        ("stage", stage(report, lacking)),
        ("series", Some(no_series(lacking))),
    ];
    for (key, value) in exact {
        report.extend(value.map(|value| (key.to_owned(), value)));
    }
    warnings(report, lacking);
    usable(report, lacking);
    cpus_hint(report);
    gaps(report, lacking);
    peak_processes(report, lacking);
    lacking.push("processes that crashed");
}

/// Adds that the hint about cores was no lower bound: it was not looked at whether others had cores.
fn cpus_hint(report: &mut Object) {
    let hint = report.get_mut("hints").and_then(|hints| hints.get_mut("cpus"));
    if let Some(Value::Object(hint)) = hint {
        hint.entry("is_lower_bound").or_insert(Value::Bool(false));
    }
}

/// Makes `stage` of `finished`.
fn stage(report: &Object, lacking: &mut Vec<&'static str>) -> Option<Value> {
    let is_finished = report.get("finished")?.as_bool()?;
    if !is_finished {
        lacking.push("whether it was recovered (shown as a report so far)");
    }
    Some(if is_finished { "final" } else { "so_far" }.into())
}

/// Gives a series without points, and notes that it is lacking.
fn no_series(lacking: &mut Vec<&'static str>) -> Value {
    lacking.push("the run over time");
    serde_json::to_value(Series::default()).unwrap_or_default()
}

/// Makes warnings with a topic of warnings that were texts.
fn warnings(report: &mut Object, lacking: &mut Vec<&'static str>) {
    let mut has_any = false;
    for warning in entries(report.get_mut("warnings")) {
        *warning = json!({"topic": "figures", "text": warning.take()});
        has_any = true;
    }
    lacking.extend(has_any.then_some("the topics of warnings (shown as warnings about figures)"));
}

/// Adds what the command could use: the cores that percentages were of are the only ones that are known.
fn usable(report: &mut Object, lacking: &mut Vec<&'static str>) {
    if report.contains_key("usable") {
        return;
    }
    lacking.push("what the command could use (shown are the expected cores)");
    let Some(cpu) = part(report, "cpu_utilization") else { return };
    let [all, expected] = ["system_core_count", "n_expected_cores"].map(|key| cpu.get(key).cloned());
    let source = if all == expected { "machine" } else { "n_expected_cores" };
    report.insert("usable".into(), json!({"cores": {"count": expected, "source": source}}));
}

/// Adds that GPUs had no gaps, where nothing is said of them.
fn gaps(report: &mut Object, lacking: &mut Vec<&'static str>) {
    let mut has_lacked = false;
    for device in entries(report.get_mut("gpus")).filter_map(Value::as_object_mut) {
        if !device.contains_key("gaps") {
            device.insert("gaps".into(), json!([]));
            has_lacked = true;
        }
    }
    lacking.extend(has_lacked.then_some("how long GPUs could not be read"));
}

/// Gives the RAM peak today's form. Its processes are removed if one lacks `added_bytes`, without which they can't be read.
/// `by_command` stays empty: only the largest processes are listed, so sums by command can't be made of them.
fn peak_processes(report: &mut Object, lacking: &mut Vec<&'static str>) {
    let Some(peak) = report.get_mut("peak").and_then(Value::as_object_mut) else { return };
    let is_lacking = |process: &mut Value| process.get("added_bytes").is_none();
    if entries(peak.get_mut("processes")).any(is_lacking) {
        peak.insert("processes".into(), json!([]));
        lacking.push("what held the RAM at its peak");
    } else {
        lacking.push("RAM at its peak by command");
    }
    peak.insert("by_command".into(), json!([]));
}

/// Gives the object of this key.
fn part<'a>(report: &'a Object, key: &str) -> Option<&'a Object> {
    report.get(key).and_then(Value::as_object)
}

/// Gives the entries of a list.
fn entries(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Converts gpu_tracker's RAM in its unit, which it names, to bytes. Bytes are whole numbers, so rounding gives them back.
fn in_bytes(ram: &Object) -> Option<Value> {
    fn converted(value: &Value, bytes_of_unit: f64) -> Value {
        match value {
            Value::Number(number) => {
                number.as_f64().map(|number| (number * bytes_of_unit).round() as u64).into()
            }
            Value::Object(parts) => {
                parts.iter().map(|(key, part)| (key.clone(), converted(part, bytes_of_unit))).collect()
            }
            // The unit's name: today's form has none.
            _ => Value::Null,
        }
    }
    let unit =
        RamUnit::ALL.into_iter().find(|unit| ram.get("unit").is_some_and(|name| name == unit.name()))?;
    Some(converted(&Value::Object(ram.clone()), unit.bytes()))
}

/// Converts the wall time in its unit, which it names, to seconds.
fn in_seconds(time: &Object) -> Option<f64> {
    let unit =
        TimeUnit::ALL.into_iter().find(|unit| time.get("unit").is_some_and(|name| name == unit.name()))?;
    Some(time.get("time")?.as_f64()? * unit.seconds())
}
